"""Vertical federated learning: parties have columns of the same samples, one other node has the labels. Liu et al.,
IEEE TKDE 2024 (arXiv 2211.12814), section 3; asynchronous: Chen et al., VAFL, arXiv 2007.06081, Algorithm 1.

    once        parties and server find the samples that all have (`emul.protocols.alignment`)
    party k     e_k = f_k(x_k)                                      sends e_k of a batch
    server      L(f_top(e_1, ..., e_K), y), g_k = dL/de_k; f_top steps      sends g_k
    party k     f_k steps from g_k

f_k is the task's model for the columns of party k, with `embedding` outputs, f_top a ReLU and a linear layer. All take
the same batches of the common samples, by a seed that the server sends. A round has the steps of a local training. The
one model of all towers and the top is trained on those batches.

With `asynchronous` the server does not wait for all: it answers each party at once, with the newest e_j that it has of
the same samples from each other party j (0 before the first), and steps f_top each time.

Every `test_every` rounds parties send e_k of the test samples, and the server finds the accuracy: nobody has the whole
model, so that this costs bytes and time as any other message (TestActivations).

It leaks: the server learns of each party which of its ids it has, and how many; parties learn their common ids. The
server sees e_k of every sample; parties see gradients, whose directions tell labels apart: `emul attack RUN --by
label_leakage` measures how well. Nobody sees columns, labels or parameters of others.

Bytes of the arrays, b samples a batch, E the embedding: Embeddings and Gradients 4 E b, without headers. `compress`
packs Embeddings on the way up and Gradients on the way down. No error is kept: the next batch has other samples.

Protects: raw columns and labels, which never travel. Not: embeddings and gradients, which tell of them; which ids are
common.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from emul.base.errors import NothingToReceive, NotSendable, TimedOut, TooFewClients
from emul.learning import NodeTask
from emul.protocols import alignment
from emul.protocols.alignment import align, find_common, present
from emul.protocols.demands import demand, shaped
from emul.protocols.split import carried, packed, unpacked
from emul.roles import Matrix, Message, Node, Scheme, Vector, World, checks
from emul.roles.example import example, lossy

if TYPE_CHECKING:
    from emul.learning.pieces import Piece


@dataclass(frozen=True)
class Begin(Message):
    """Server to party: the round is open."""

    align: bool                         # find the common samples first
    seed: int                           # of the batches


@dataclass(frozen=True)
class Embeddings(Message):
    """Party to server."""

    step: int                           # batch of the round, from 0
    values: np.ndarray                  # e_k: (b, E) float32, or its code (n,) uint8


@dataclass(frozen=True)
class Gradients(Message):
    """Server to party."""

    step: int
    values: np.ndarray                  # g_k: (b, E) float32, or its code (n,) uint8


@dataclass(frozen=True)
class TestActivations(Message):
    """Party to server."""

    values: Matrix                      # e_k of all test samples


@dataclass(frozen=True)
class Params:
    embedding: int = 16                 # E, outputs of a party's tower
    asynchronous: bool = False          # the server answers each party at once, with old embeddings of the others
    test_every: int = 1                 # rounds between two tests, which cost messages; 0: none
    deadline_s: float = 60.0            # of each wait; who is late is missing, and the round is over


@dataclass
class ServerState:
    top: Piece | None = None
    common: np.ndarray | None = None    # ids of the samples of all, in everybody's order; None: not found yet


@dataclass
class PartyState:
    tower: Piece | None = None
    common: np.ndarray | None = None


# --- the server -------------------------------------------------------------------------------------------------------

async def server(node: Node, p: Params) -> None:
    s = node.state(ServerState())
    async for round_ in node.rounds():
        with round_:
            seed = int(node.stream("batches").integers(2**63))
            node.broadcast(node.clients, Begin(s.common is None, seed))
            if s.common is None:
                s.common = await align(node, p.deadline_s)
            if s.top is None:
                s.top = await node.compute("load", node.task.top, p.embedding)
            plan = node.task.plan(len(s.common), seed)
            try:
                await (serve_each if p.asynchronous else serve_all)(node, p, s.top, s.common, plan)
            except TooFewClients:
                s.common = None                         # a missing party may have been left behind: find it anew
                raise
            evaluate = partial(none_tested)
            if p.test_every and round_ % p.test_every == 0:
                got = await node.gather(TestActivations, node.clients, timeout_s=p.deadline_s,
                                        accept=shaped(values=(node.task.test_samples, p.embedding)))
                if len(got) == len(node.clients):
                    logits = await node.compute("test", s.top.outputs, side_by_side([m.values for m in got.values()]))
                    evaluate = partial(tested, node.task, logits)
            node.report(s.top.parameters, evaluate=evaluate, common=len(s.common), steps=len(plan))


async def serve_all(node: Node, p: Params, top: Piece, common: np.ndarray, plan: Sequence[np.ndarray]) -> None:
    """Batch after batch, with the embeddings of all parties. Raises TooFewClients if one is missing."""
    for step, rows in enumerate(plan):
        got = present(node, node.clients, await node.gather(
            Embeddings, node.clients, timeout_s=p.deadline_s,
            accept=partial(sound, node, "up", (len(rows), p.embedding), (step,))))
        values = side_by_side([await unpacked(node, "up", message.values, (len(rows), p.embedding))
                               for message in got.values()])
        gradient = await node.compute("top", learn, top, values, node.task.labels_of(common[rows]), node.round,
                                      work=float(len(rows)))
        for k, own in zip(got, np.split(gradient, len(got), axis=1), strict=True):
            node.send(k, Gradients(step, await packed(node, "down", np.ascontiguousarray(own))))


async def serve_each(node: Node, p: Params, top: Piece, common: np.ndarray, plan: Sequence[np.ndarray]) -> None:
    """Answer the party that comes first, with the last known embeddings of the others. Raises TooFewClients if one is
    missing at the end."""
    E, parties = p.embedding, node.clients
    known = np.zeros((len(common), E * len(parties)), np.float32)
    done = dict.fromkeys(parties, 0)                    # batches that are answered

    def accept(message: Message) -> None:
        demand(isinstance(message, Embeddings) and message.sender in done, "of no party")
        assert isinstance(message, Embeddings)
        step = done[message.sender]
        demand(step < len(plan), "step: more than there are")
        sound(node, "up", (len(plan[step]), E), (step,), message)

    while min(done.values()) < len(plan):
        try:
            message = await node.recv_any(Embeddings, timeout_s=p.deadline_s, accept=accept)
        except TimedOut:
            raise TooFewClients("a party is silent") from None
        k, rows = message.sender, plan[message.step]
        own = slice(E * parties.index(k), E * (parties.index(k) + 1))
        known[rows, own] = await unpacked(node, "up", message.values, (len(rows), E))
        gradient = await node.compute("top", learn, top, known[rows], node.task.labels_of(common[rows]), node.round,
                                      work=float(len(rows)))
        node.send(k, Gradients(message.step, await packed(node, "down", np.ascontiguousarray(gradient[:, own]))))
        done[k] += 1


def sound(node: Node, way: str, shape: tuple[int, int], steps: Sequence[int], message: Any) -> None:
    """A demand: embeddings ("up") or gradients ("down") of one of these batches."""
    demand(message.step in steps, "step: not the one that is due")
    carried(node, way, "values", message.values, shape)


def learn(top: Piece, values: np.ndarray, labels: np.ndarray, round_: int) -> np.ndarray:
    """The gradient by the embeddings; the top takes its step. Raises NotSendable if that is not finite; the top is then
    as it was."""
    before = top.parameters
    gradient, _ = top.learn(values, labels, 1.0, round_)
    top.step()
    if not (np.isfinite(gradient).all() and np.isfinite(top.parameters).all()):
        top.load(before)
        raise NotSendable("training has diverged: a gradient or a parameter is not finite")
    return gradient


def side_by_side(values: Sequence[np.ndarray]) -> np.ndarray:
    """(b, K E)."""
    return np.concatenate(values, axis=1)


def tested(task: NodeTask, logits: np.ndarray, _: Vector) -> dict[str, float]:
    """{"accuracy", "loss"} of what the top makes of the test samples, off the clock."""
    labels = task.labels_of(np.arange(len(logits)), test=True)
    shifted = logits.astype(np.float64) - logits.max(1, keepdims=True)
    losses = np.log(np.exp(shifted).sum(1)) - shifted[np.arange(len(labels)), labels]
    return {"accuracy": float((logits.argmax(1) == labels).mean()), "loss": float(losses.mean())}


def none_tested(_: Vector) -> dict[str, float]:
    """Of a round without a test."""
    return {}


# --- a party ----------------------------------------------------------------------------------------------------------

async def client(node: Node, p: Params) -> None:
    s = node.state(PartyState())
    async for round_ in node.rounds(of=node.server):
        with round_:
            begin = await node.recv(Begin, node.server)
            if begin.align:
                s.common = await find_common(node, node.server, 2 * p.deadline_s)
            if s.common is None:
                raise NothingToReceive("the common samples are not known here")
            if s.tower is None:
                s.tower = await node.compute("load", node.task.tower, p.embedding)
            tower = s.tower
            for step, rows in enumerate(node.task.plan(len(s.common), begin.seed)):
                values = await node.compute("forward", forward, node.task, tower, s.common[rows], step, node.round,
                                            work=float(len(rows)))
                node.send(node.server, Embeddings(step, await packed(node, "up", values)))
                shape = len(rows), p.embedding
                got = await node.recv(Gradients, node.server, timeout_s=2 * p.deadline_s,
                                      accept=partial(sound, node, "down", shape, (step,)))
                gradient = await unpacked(node, "down", got.values, shape)
                await node.compute("backward", backward, tower, step, gradient, work=float(len(rows)))
            node.report(tower.parameters, evaluate=none_tested)
            if p.test_every and round_ % p.test_every == 0:
                values = await node.compute("test", of_test, node.task, tower)
                node.send(node.server, TestActivations(values))


def forward(task: NodeTask, tower: Piece, ids: np.ndarray, step: int, round_: int) -> np.ndarray:
    """e_k of a batch. Passes of batches whose gradients never came are given up."""
    if not step:
        tower.replace(tower.parameters)
    return tower.forward(step, task.own_columns(ids), round_)


def backward(tower: Piece, step: int, gradient: np.ndarray) -> None:
    """The tower takes its step. Raises NotSendable if it is then not finite; it is then as it was."""
    before = tower.parameters
    tower.backward(step, gradient)
    tower.step()
    if not np.isfinite(tower.parameters).all():
        tower.load(before)
        raise NotSendable("training has diverged: a parameter is not finite")


def of_test(task: NodeTask, tower: Piece) -> np.ndarray:
    """e_k of all test samples."""
    return tower.outputs(task.own_columns(np.arange(task.test_samples), test=True))


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    from emul.learning.cuts import wrong_solver, wrong_towers

    errors = wrong_solver(world.task) + checks.times(deadline=params.deadline_s)
    errors += checks.at_least(1, "a number of outputs, 1 or more", embedding=params.embedding)
    errors += checks.at_least(0, "a number of rounds, 0 or more", test_every=params.test_every)
    partition = world.task.get("partition")
    if isinstance(partition, dict) and "columns" in partition:
        errors += wrong_towers(world.task)
    else:
        errors.append("task.partition: vertical needs one by columns, such as {columns: {groups: 2}}")
    if world.clients < 2:
        errors.append(f"topology: {world.clients} party: expected at least 2")
    return errors


EXAMPLE = example("vertical", "deadline: 1 s", topology="star, clients: 2",
                  links=(lossy("client2->server", p=0.05, per="message"),), data="set: digits, held_out: 1400",
                  partition="{columns: {groups: 2, common: 0.8}}", model="digits_mlp",
                  solver="lr: 0.2, steps: 3, batch: 16")

SCHEME = Scheme(
    params=Params, roles={"server": server, "client": client},
    messages=(Begin, *alignment.MESSAGES, Embeddings, Gradients, TestActivations),
    compress=("up", "down"), timeouts=("deadline_s",), batches=True, check=check, example=EXAMPLE)
