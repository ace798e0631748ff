"""Streaming DiLoCo: the parts of the model are synchronised in turn, in few bits, while the training goes on.
Douillard et al., arXiv 2501.18512, Algorithm 2.

    peer m      theta_m: H steps of the task's solver, of which after step (p + 1) H / P - tau, for p = 0 .. P - 1:
                sends c = Q(theta_m,p - theta_p) of fragment p to all others, and trains on for tau steps; then
    all         Delta_p = -(1/n) sum_m decoded(c_m), in 32 bits
                b_p <- mu b_p + Delta_p;  theta_p <- theta_p - eta (Delta_p + mu b_p)
                theta_m,p <- alpha theta_m,p + (1 - alpha) theta_p

Layer l of the model is in fragment l mod P ("strided"); embeddings and last norms go with the first layer. alpha weighs
the local model, so that 1 would let peers drift apart, and 0 is DiLoCo. tau < H / P, so that one fragment is under way
at a time. A round is H steps, in which each fragment is sent once; in the paper fragment p goes out at steps p H / P,
tau steps later than here. With P = 1, tau = 0, alpha = 0 and 32 bits it is `diloco`, to the bit.

Q is the codec `e3m0` of 4 bits by default; the paper does not say over how many numbers its scale is. A sum of codes is
no code, so that codes go to all others, n - 1 of them, where a ring would send 2 (n - 1) / n. A fragment is sent by an
activity beside the training, on a lane of its own, and costs the training nothing until it is late.

`overlap` begins in the backward pass of the last step before a fragment goes out: the pass takes 2/3 of the step in as
many equal parts as there are layers, the last layer first, and a layer of the fragment goes out as soon as it is
through. Only a declared model has such parts of known length.

A peer whose round fails throws its H steps away; if others have taken steps in it, its replica differs from then on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from emul.base.errors import EmulError, ProtocolFailure, ProtocolViolation
from emul.learning.declared import declared
from emul.primitives.compress import Codec, choose
from emul.primitives.compress.codec import sendable
from emul.primitives.written import WrittenChoice
from emul.protocols import collective, peers, updates
from emul.protocols.outer import nesterov
from emul.protocols.rounds import finite
from emul.roles import Message, Node, Octets, Scheme, Vector, World, checks
from emul.roles.example import example

BACKWARD = 2 / 3                        # of a step, that its backward pass takes


@dataclass(frozen=True)
class Fragment(Message):
    """To all other peers: a fragment of the differences, or a layer of it."""

    code: Octets
    fragment: int                       # p, from 0
    layer: int                          # of the model; -1: all of the fragment


@dataclass(frozen=True)
class PlainFragment(Message):
    """In place of Fragment, without a codec."""

    values: Vector
    fragment: int
    layer: int


MESSAGES = (Fragment, PlainFragment)


@dataclass(frozen=True)
class Params:
    rate: float = 0.7                   # eta, of the outer step
    momentum: float = 0.9               # mu, of the outer step
    fragments: int = 1                  # P, at most as many as the model has layers
    tau: int = 1                        # steps between the sending of a fragment and its outer step, below H / P
    alpha: float = 0.5                  # weight of the local model where a fragment comes back
    codec: WrittenChoice | None = "e3m0"        # Q, such as bf16; none: 32 bits
    steps: int | None = None            # H, inner steps a round; None: as many as the solver says
    overlap: bool = False               # layers go out in the backward pass; of a declared model
    timeout_s: float | None = None      # of a fragment, from its sending; None: until fates are known


@dataclass
class State:
    model: Vector                       # theta, (d,) float32
    momentum: Vector                    # b, (d,) float32
    drift: Vector                       # theta_m - theta, (d,) float32


async def peer(node: Node, p: Params) -> None:
    first = node.task.initial_parameters()
    s = node.state(State(first, np.zeros_like(first), np.zeros_like(first)))
    members, layers = node.nodes("peer"), node.task.layers()
    steps = p.steps or node.task.local_steps()
    codec = None if p.codec is None else choose(p.codec)
    async for round_ in node.rounds(sync=node.peers):
        with round_:
            model, momentum, drift, done = np.array(s.model), np.array(s.momentum), np.array(s.drift), 0
            box = FragmentBox(node, members, p)
            for f in range(p.fragments):
                due = steps * (f + 1) // p.fragments
                drift, pieces = await _leading(node, p, box, codec, model, drift, max(0, due - p.tau - done), f,
                                               layers)
                exchange = node.start(_exchanged(box, codec, pieces))
                if p.tau:
                    drift = await _trained(node, model, drift, p.tau)
                totals = await exchange
                for (at, _, _), total in zip(pieces, totals, strict=True):
                    after, momentum[at] = await node.compute(
                        "outer", nesterov, model[at], momentum[at], total, len(members), p.rate, p.momentum,
                        work=total.size, lane="link")
                    drift[at] = np.float32(p.alpha) * (drift[at] - (after - model[at]))
                    model[at] = after
                done = due
            s.model, s.momentum, s.drift = finite(model), momentum, finite(drift)
            node.report(parameters=s.model)


class Portion(NamedTuple):
    """A fragment, or one layer of it."""

    places: np.ndarray                  # in the vector, (n,)
    fragment: int
    layer: int                          # -1: all of the fragment


async def _trained(node: Node, model: Vector, drift: Vector, steps: int, cost_s: float | None = None) -> Vector:
    """The drift after so many more steps. cost_s: of them; None: as the node's GPUs take, or as the scenario says."""
    train = partial(node.task.local_update, steps=steps)
    update, _ = await node.compute("train", train, model + drift,
                                   cost_s=node.training_s(steps) if cost_s is None else cost_s, lane="train")
    return drift + update


async def _leading(node: Node, p: Params, box: FragmentBox, codec: Codec | None, model: Vector, drift: Vector,
                   steps: int, f: int, layers: Sequence[np.ndarray]) -> tuple[Vector, list[Portion]]:
    """Train for the steps before fragment f goes out: (the drift, the portions that go out). With `overlap` they have
    gone out when the last step is over; else they are sent by the exchange."""
    if not p.overlap:
        drift = await _trained(node, model, drift, steps)
        whole = np.sort(np.concatenate(layers[f::p.fragments]))
        box.own[f, -1] = drift[whole]
        return drift, [Portion(whole, f, -1)]
    last_s = node.training_s(1)
    assert last_s is not None               # or `check` has refused it
    before_s = node.training_s(steps - 1) if steps > 1 else 0.0
    drift = await _trained(node, model, drift, steps, (before_s or 0.0) + (1 - BACKWARD) * last_s)
    pieces: list[Portion] = []
    through = 0                             # layers of the backward pass
    for layer in [*range(f, len(layers), p.fragments)][::-1]:
        await _backward(node, BACKWARD * last_s * (len(layers) - layer - through) / len(layers))
        through = len(layers) - layer
        pieces.append(Portion(layers[layer], f, layer))
        box.own[f, layer] = drift[layers[layer]]
        await box.send(codec, f, layer)
    await _backward(node, BACKWARD * last_s * (len(layers) - through) / len(layers))
    return drift, pieces


async def _backward(node: Node, cost_s: float) -> None:
    """A part of a backward pass, whose result the training before it has."""
    if cost_s > 0:
        await node.compute("train", _nothing, cost_s=cost_s, lane="train")


def _nothing() -> None:
    return None


async def _exchanged(box: FragmentBox, codec: Codec | None, pieces: Sequence[Portion]) -> list[Vector]:
    """The sums of -Delta over all peers, of each piece: what comes, and before it what has not been sent yet."""
    for _, f, layer in pieces:
        if (f, layer) not in box.sent:
            await box.send(codec, f, layer)
    return [await box.total(codec, places.size, f, layer) for places, f, layer in pieces]


class FragmentBox:
    """The pieces of a round that a peer sends and receives, whatever order links bring them in."""

    def __init__(self, node: Node, members: Sequence[int], p: Params):
        self._node, self._members, self._p = node, members, p
        self.own: dict[tuple[int, int], Vector] = {}            # (fragment, layer) -> -Delta
        self.sent: dict[tuple[int, int], float] = {}            # -> when, s
        self._codes: dict[tuple[int, int], np.ndarray] = {}     # -> the own one
        self._early: dict[tuple[int, int, int], np.ndarray] = {}        # (peer, fragment, layer) -> what has come
        self._known: set[tuple[int, int, int]] = set()

    async def send(self, codec: Codec | None, f: int, layer: int) -> None:
        """Encode the own piece and send it to all others, the next one first."""
        node, own = self._node, self.own[f, layer]
        at = self._members.index(node.id)
        others = [*self._members[at + 1:], *self._members[:at]]
        if codec is None:
            self._codes[f, layer] = own
            node.broadcast(others, PlainFragment(own, f, layer))
        else:
            code = await node.compute("encode", _encoded, codec, own, node.stream("compress"), work=own.size,
                                      lane="link")
            self._codes[f, layer] = code
            node.broadcast(others, Fragment(code, f, layer))
        self.sent[f, layer] = node.now

    async def total(self, codec: Codec | None, d: int, f: int, layer: int) -> Vector:
        """The sum of -Delta over all peers in their order, (d,) float32. Raises ProtocolFailure if one is missing."""
        node, p = self._node, self._p
        found: list[np.ndarray] = []
        for j in self._members:
            while j != node.id and (j, f, layer) not in self._early:
                left_s = None if p.timeout_s is None else max(0.0, self.sent[f, layer] + p.timeout_s - node.now)
                if codec is None:
                    plain = await node.recv(PlainFragment, j, left_s, accept=self._fits)
                    self._early[j, plain.fragment, plain.layer] = plain.values
                else:
                    coded = await node.recv(Fragment, j, left_s, accept=self._fits)
                    self._early[j, coded.fragment, coded.layer] = coded.code
            found.append(self._codes[f, layer] if j == node.id else self._early.pop((j, f, layer)))
        return await node.compute("decode", summed, codec, found, d, work=len(found) * d, lane="link")

    def _fits(self, piece: Fragment | PlainFragment) -> None:
        key = piece.sender, piece.fragment, piece.layer
        if key in self._known or not 0 <= piece.fragment < self._p.fragments:
            raise ProtocolViolation(f"fragment {piece.fragment}, layer {piece.layer}: no such piece, or one twice")
        self._known.add(key)


def _encoded(codec: Codec, own: Vector, rng: np.random.Generator) -> Octets:
    """Raises NotSendable if it is not finite."""
    return codec.encode(sendable(own), rng)[0]


def summed(codec: Codec | None, codes: Sequence[np.ndarray], d: int) -> Vector:
    """The sum of -Delta over the pieces of all peers, (d,) float32. Raises ProtocolFailure for what is no piece."""
    total = np.zeros(d, np.float32)
    for code in codes:
        values = code if codec is None else updates.decoded(codec, code, d)
        if values is None or values.shape != (d,):
            raise ProtocolFailure("a piece of another length, or a code that nobody can have made")
        total += values
    return total


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    wrong = (checks.below_one(momentum=params.momentum) + checks.shares(alpha=params.alpha)
             + checks.positive(rate=params.rate) + checks.times(timeout=params.timeout_s)
             + checks.steps(steps=params.steps) + checks.at_least(1, "an integer >= 1", fragments=params.fragments)
             + checks.at_least(0, "an integer >= 0", tau=params.tau)
             + checks.at_least(2, "two or more", peers=world.count("peer")))
    if params.codec is not None:
        try:
            choose(params.codec)
        except ValueError as error:
            wrong.append(f"codec = {params.codec}: {error}")
    if params.overlap and declared(world.task) is None:
        wrong.append("overlap = true: expected a task with declared, whose backward pass has parts of known length")
    return wrong or [*_too_many(params, world)]


def _too_many(params: Params, world: World) -> Iterator[str]:
    """Fragments that are more than layers or steps, or that meet."""
    (options,) = (world.task.get("solver") or {"sgd": {}}).values()
    steps = params.steps or options.get("steps")
    if steps is not None and steps < params.fragments:
        yield f"fragments = {params.fragments}: expected at most {steps}, the steps of a round"
    elif steps is not None and params.tau and params.tau >= steps // params.fragments:
        most = steps // params.fragments
        yield (f"tau = {params.tau}: expected fewer than {most} steps, H / P, so that one fragment "
               "is under way at a time")
    layers = layer_count(world) if params.fragments > 1 else None
    if layers is not None and params.fragments > layers:
        yield f"fragments = {params.fragments}: the model has {layers} layers: expected at most so many"


def layer_count(world: World) -> int | None:
    """The number of layers of the task's model; None: it cannot be made. Imports torch unless the model is declared."""
    found = declared(world.task)
    if found is not None and found.layers is not None:
        return found.layers
    from emul.learning import Task

    try:
        return len(Task(dict(world.task), 1, 0).layers)
    except (EmulError, OSError):            # told elsewhere
        return None


def warn(params: Params, world: World) -> list[str]:
    """Warnings for the user before the run, of parameters that are no mistake."""
    return [f"task.solver.{found}: the inner solver begins anew in every fragment; keep: true is that of the paper"
            for found in collective.begins_anew(world)]


def needs_training(params: Params) -> list[str]:
    """The reasons why `training: skip` would give another run."""
    if params.codec is None or choose(params.codec).nbytes(1) is not None:
        return []
    return ["codec: makes codes whose length depends on the values"]


def unsent(params: Params) -> list[str]:
    """The names of the messages that are not sent."""
    return [(Fragment if params.codec is None else PlainFragment).__name__]


EXAMPLE = example("streaming_diloco", "fragments: 2, steps: 6, timeout: 10 s", topology="complete, peers: 3", links=(),
                  partition="iid", model="digits_mlp", solver="lr: 0.1, steps: 6, batch: 16")

SCHEME = Scheme(
    params=Params, roles={"peer": peer}, messages=MESSAGES, unsent=unsent, places=peers.PLACES,
    lanes=("train", "link"), oblivious=needs_training, declares=True, timeouts=("timeout_s",), check=check, warn=warn,
    accuracy="global", example=EXAMPLE)
