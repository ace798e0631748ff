"""DiLoCo: peers train alone for H steps, then take one step of Nesterov's momentum along the mean of their differences.
Douillard et al., arXiv 2311.08105, Algorithm 1.

    peer m      theta_m: H steps of the task's solver from theta;  Delta_m = theta - theta_m
    all         Delta = (1/n) sum_m Delta_m, by a collective (`emul.protocols.collective`)
                b <- mu b + Delta;  theta <- theta - eta (Delta + mu b);  theta_m <- theta

as torch's SGD(nesterov=True) has it, b = 0 at first. theta and b are replicas: all have the same mean. A round is H
steps and one collective. The paper's inner solver is AdamW whose moments stay at the peer from round to round and are
never averaged: `keep: true` of the solver. The paper has H = 500, INTELLECT-1 100, the scaling laws 30. `local_sgd` is
the variant with eta 1 and mu 0, a mean of the models.

Differences travel in 32 bits, or as a codec (`emul.primitives.compress`) says. A sum of codes is no code. In a ring
every peer decodes, adds and codes again, as INTELLECT-1 does. With `how: all_gather` codes go to all others, and every
peer decodes all of them and adds them up in one order. With `feedback` of the codec a peer adds to its difference what
its codes before have left out.

A peer whose round fails throws its H steps away and goes on from theta; if others have taken the outer step, its
replica differs from then on, since nothing brings it back. With `survive: true` a rendezvous
(`emul.protocols.rendezvous`) decides who takes part and whether a step counts: a collective in which a peer fails is
done again without it, and a peer that comes back takes theta and b over from another one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

import numpy as np

from emul.learning.cuts import too_many_parts
from emul.primitives.compress import Codec, choose
from emul.primitives.written import WrittenChoice
from emul.protocols import collective, peers, rendezvous
from emul.protocols.collective import (
    Chunk,
    Code,
    CodedPart,
    How,
    Manner,
    Part,
    all_reduce,
    decoded,
    gather_codes,
    wrong_group,
)
from emul.protocols.outer import nesterov
from emul.protocols.rendezvous import Members, enter, settle
from emul.protocols.rounds import finite
from emul.protocols.updates import Sent, encoded
from emul.roles import Node, Octets, Scheme, Vector, World, checks
from emul.roles.example import example


@dataclass(frozen=True)
class Params:
    rate: float = 0.7                   # eta, of the outer step
    momentum: float = 0.9               # mu, of the outer step
    steps: int | None = None            # H, inner steps a round; None: as many as the solver says
    how: Literal[How, "all_gather"] = "ring"        # the collective that adds up; all_gather: of codes
    codec: WrittenChoice | None = None  # of differences: bf16, {int8: {sigmas: 3}}; None: 32 bits
    timeout_s: float | None = None      # of a collective, from a peer's call; None: until fates are known
    blocking: bool = False              # a collective also waits until all that a peer sends in it has left the peer
    pieces: int = 1                     # into which a part of the vector is cut: one at a time is given to the link
    survive: bool = False               # collectives are done again without peers that fail; `timeout` is of a silence
    grace_s: float = 1.0                # of a rendezvous, between the first peer and the last that is waited for


@dataclass
class State:
    model: Vector                       # theta, (d,) float32
    momentum: Vector                    # b, (d,) float32
    sent: Sent = field(default_factory=Sent)        # of the codec: what was left out, its warm start
    steps: int = 0                      # outer steps so far, where a rendezvous counts them

    def shared(self) -> list[Vector]:
        """The part that is the same at all peers."""
        return [self.model, self.momentum]

    def take_over(self, state: Sequence[Vector]) -> None:
        """Replace it by another peer's."""
        self.model, self.momentum = state


async def peer(node: Node, p: Params) -> None:
    first = node.task.initial_parameters()
    s = node.state(State(first, np.zeros_like(first)))
    members = node.nodes("peer")
    train = partial(node.task.local_update, steps=p.steps)
    codec = None if p.codec is None else choose(p.codec).shaped(node.task.shapes())
    if p.survive:
        await _surviving(node, p, s, train, codec)
        return
    async for round_ in node.rounds(sync=node.peers):
        with round_:
            # update: -Delta_m
            update, _ = await node.compute("train", train, s.model, cost_s=node.training_s(p.steps))
            sent = replace(s.sent)
            if p.how == "all_gather":
                assert codec is not None        # or `check` has refused it
                code = await node.compute("encode", encoded, codec, sent, update, node.stream("compress"),
                                          work=update.size)
                codes = await gather_codes(node, members, codec, code, update.size, p.timeout_s)
                total = await node.compute("decode", summed, codec, codes, update.size, work=len(codes) * update.size)
            else:
                total = await all_reduce(node, members, update, p.how, p.timeout_s,
                                         Manner(codec=codec, blocking=p.blocking, pieces=p.pieces))
            model, momentum = await node.compute("outer", nesterov, s.model, s.momentum, total, len(members), p.rate,
                                                  p.momentum)
            s.model, s.momentum, s.sent = finite(model), momentum, sent
            node.report(parameters=s.model)


async def _surviving(node: Node, p: Params, s: State, train: Callable[[Vector], tuple[Vector, int]],
                     codec: Codec | None) -> None:
    where, = node.nodes("rendezvous")
    async for round_ in node.rounds(of=where):
        with round_:
            joined = await enter(node, where, s)
            if joined:                          # its moments are of another model; the others train in this round
                node.task.begin_anew((s.steps + 1) * (p.steps or node.task.local_steps()))
            update = np.zeros_like(s.model) if joined else (await node.compute(
                "train", train, s.model, cost_s=node.training_s(p.steps)))[0]
            step = partial(_step, node, p, s, update, codec)
            (s.model, s.momentum), call = await settle(node, where, not joined, step)
            s.steps += 1
            node.report(parameters=s.model, members=len(call.members))


async def _step(node: Node, p: Params, s: State, update: Vector, codec: Codec | None, call: Members,
                ) -> tuple[Vector, Vector]:
    """(theta, b) after the outer step, if this attempt counts."""
    assert p.how != "all_gather"                # or `check` has refused it
    manner = Manner(tag=call.attempt, codec=codec, silence_s=p.timeout_s, blocking=p.blocking, pieces=p.pieces)
    total = await all_reduce(node, call.members, update, p.how, manner=manner)
    model, momentum = await node.compute("outer", nesterov, s.model, s.momentum, total, len(call.trained), p.rate,
                                          p.momentum)
    return finite(model), momentum


def summed(codec: Codec, codes: Sequence[Octets], d: int) -> Vector:
    """The sum of the decoded vectors, (d,) float32. Raises NotDecodable."""
    total = np.zeros(d, np.float32)
    for code in codes:
        total += decoded(codec, code, d)
    return total


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    wrong = checks.below_one(momentum=params.momentum)
    wrong += rendezvous.mortal(params.survive, params.timeout_s)
    if params.survive and params.how in ("butterfly", "all_gather"):
        wrong.append(f"how = {params.how}: with survive: expected ring, tree or server")
    return (wrong + checks.positive(rate=params.rate)
            + checks.steps(steps=params.steps) + checks.at_least(1, "an integer >= 1", pieces=params.pieces)
            + checks.times(timeout=params.timeout_s, grace=params.grace_s) + wrong_group(params.how, world)
            + too_many_parts(world.task, "pieces", params.pieces, world.count("peer"))
            + _wrong_codec(params))


def _wrong_codec(params: Params) -> list[str]:
    if params.codec is None:
        return ["how = all_gather: sends codes: expected a codec, or another how"] if params.how == "all_gather" else []
    name = _named(params.codec)
    try:
        codec = choose(params.codec)
    except ValueError as error:
        return [f"codec = {name}: {error}"]
    if params.how == "ring":
        by_tensors = type(codec).shaped is not Codec.shaped
        return [f"codec = {name}: keeps what its codes of a vector leave out, and in a ring sums are coded: expected "
                "no feedback, or how: all_gather"] * codec.keeps_errors + [
            f"codec = {name}: codes tensors, and a ring parts of a vector: expected how: all_gather"] * by_tensors
    return [] if params.how == "all_gather" else [
        f"how = {params.how}: adds up on the way, and a sum of codes of {name} is no code: expected ring or all_gather"]


def needs_training(params: Params) -> list[str]:
    """The reasons why `training: skip` would give another run."""
    if params.codec is None or choose(params.codec).nbytes(1) is not None:
        return []
    return [f"codec = {_named(params.codec)}: makes codes whose length depends on the values"]


def unsent(params: Params) -> Collection[str]:
    """The names of the messages that other collectives send."""
    sends = (Code if params.how == "all_gather" else CodedPart if params.codec is not None else
             Chunk if params.survive else Part)
    quiet = {kind.__name__ for kind in collective.MESSAGES if kind is not sends}
    return quiet if params.survive else quiet | {kind.__name__ for kind in rendezvous.MESSAGES}


def without(params: Params) -> Collection[str]:
    """The roles that have no node."""
    return () if params.survive else ("rendezvous",)


def _named(written: WrittenChoice) -> str:
    return written if isinstance(written, str) else str(next(iter(written), written))


EXAMPLE = example("diloco", "timeout: 10 s", topology="complete, peers: 4", links=(), partition="iid",
                  solver="lr: 0.1, steps: 5, batch: 16")

SCHEME = Scheme(
    params=Params, roles={"peer": peer, "rendezvous": rendezvous.rendezvous},
    messages=(*collective.MESSAGES, *rendezvous.MESSAGES), unsent=unsent,
    places={**peers.PLACES, "rendezvous": rendezvous.PLACE}, without=without, decides="peer", knows_topology=True,
    oblivious=needs_training, declares=True, timeouts=("timeout_s",), check=check, warn=collective.warn,
    accuracy="global", example=EXAMPLE)
