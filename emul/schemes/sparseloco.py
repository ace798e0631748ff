"""SparseLoCo: peers train alone for H steps, and send the largest parts of their differences in 2 bits each.
Sarfi et al., arXiv 2508.15706; equations 1 and 2 of Covenant-72B, arXiv 2603.08163.

    peer m      theta_m: H steps of the task's solver from theta;  a = beta e_m + theta - theta_m
                sends c = Q(TopK(a)) to all others;  D_m = decoded(c);  e_m <- a - D_m, 0 at first
    all         theta <- theta - (eta / n) sum_m D_m;  theta_m <- theta

TopK takes k of each `chunk` of numbers, and Q leaves a sign and one of 2^(bits - 1) sizes a chunk of each value
(`emul.primitives.compress.sparse`). theta is a replica: all peers add the same D_m up in one order. A round is H steps
and one `all_gather` of codes. `mean: senders` is what the authors' code does: it divides each parameter by the number
of peers whose D_m is not 0 there, so that steps are up to n times larger. The inner solver is AdamW whose moments stay
at the peer: `keep: true` of the solver. The paper has H = 30.

e_m and theta change together, once the codes of all are there. A peer whose round fails throws its H steps away and
keeps both; if others have taken the step, its replica differs from then on, since nothing brings it back. With
`survive: true` a rendezvous (`emul.protocols.rendezvous`) decides who takes part and whether a step counts. A peer that
comes back takes theta over from another one, and begins with e_m = 0.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from emul.primitives.compress import Codec, TopK
from emul.primitives.compress.codec import sendable
from emul.protocols import collective, peers, rendezvous, updates
from emul.protocols.collective import Code, CodedPart, decoded, gather_codes, gather_codes_of
from emul.protocols.demands import demand
from emul.protocols.rendezvous import Members, enter, settle
from emul.protocols.rounds import finite
from emul.roles import Message, Node, Octets, Scheme, Vector, World, checks
from emul.roles.example import example


@dataclass(frozen=True)
class Params:
    rate: float = 1.0                   # eta, of the outer step
    decay: float = 0.95                 # beta, of what was left out before
    k: int = 64                         # values of each chunk that are sent
    chunk: int = 4096                   # numbers of which k are sent
    bits: int = 2                       # of a value: 1 to 8, or 32
    mean: Literal["all", "senders"] = "all"     # over all peers, or of each parameter over those that have sent it
    steps: int | None = None            # H, inner steps a round; None: as many as the solver says
    clip: Literal["median"] | None = None       # each D_m is shortened to the median of their norms
    store: bool = False                 # codes go to a node that hands them on once all are there, and not directly
    timeout_s: float | None = None      # of the collective, from a peer's call; None: until fates are known
    survive: bool = False               # the collective is done again without peers that fail
    grace_s: float = 1.0                # of a rendezvous, between the first peer and the last that is waited for


@dataclass(frozen=True)
class StoredCode(Message):
    """Store to a peer: the code of another peer."""

    code: Octets
    of: int                             # the peer


@dataclass
class State:
    model: Vector                       # theta, (d,) float32
    error: Vector                       # e_m, (d,) float32
    steps: int = 0                      # outer steps so far, where a rendezvous counts them

    def shared(self) -> list[Vector]:
        """The part that is the same at all peers."""
        return [self.model]

    def take_over(self, state: Sequence[Vector]) -> None:
        """Replace it by another peer's."""
        self.model, = state


async def peer(node: Node, p: Params) -> None:
    first = node.task.initial_parameters()
    s = node.state(State(first, np.zeros_like(first)))
    members, codec, d = node.nodes("peer"), codec_of(p), first.size
    train = partial(node.task.local_update, steps=p.steps)
    if p.survive:
        await _surviving(node, p, s, train, codec)
        return
    async for round_ in node.rounds(sync=node.peers):
        with round_:
            # update: theta_m - theta
            update, _ = await node.compute("train", train, s.model, cost_s=node.training_s(p.steps))
            code, error = await node.compute("encode", encoded, codec, s.error, update, p.decay,
                                             node.stream("compress"), work=d)
            gathered = from_store if p.store else gather_codes
            codes = await gathered(node, members, codec, code, d, p.timeout_s)
            model = await node.compute("outer", outer, s.model, codec, codes, p, work=len(codes) * d)
            s.model, s.error = finite(model), error
            node.report(parameters=s.model)


async def _surviving(node: Node, p: Params, s: State, train: Callable[[Vector], tuple[Vector, int]],
                     codec: Codec) -> None:
    where, = node.nodes("rendezvous")
    async for round_ in node.rounds(of=where):
        with round_:
            code, error = None, np.zeros_like(s.model)
            joined = await enter(node, where, s)
            if joined:                          # its moments are of another model; the others train in this round
                node.task.begin_anew((s.steps + 1) * (p.steps or node.task.local_steps()))
            else:
                update, _ = await node.compute("train", train, s.model, cost_s=node.training_s(p.steps))
                code, error = await node.compute("encode", encoded, codec, s.error, update, p.decay,
                                                 node.stream("compress"), work=update.size)
            s.model, call = await settle(node, where, not joined, partial(_step, node, p, s.model, codec, code))
            s.error, s.steps = error, s.steps + 1
            node.report(parameters=s.model, members=len(call.members))


async def _step(node: Node, p: Params, model: Vector, codec: Codec, code: Octets | None, call: Members) -> Vector:
    """theta after the step, if this attempt counts."""
    codes = await gather_codes_of(node, call.members, call.trained, codec, code, model.size, call.attempt, p.timeout_s)
    return finite(await node.compute("outer", outer, model, codec, codes, p, work=len(codes) * model.size))


def codec_of(p: Params) -> Codec:
    """Raises ValueError for parameters that no such codec has."""
    return TopK(k=p.k, chunk=p.chunk, bits=p.bits)


def encoded(codec: Codec, error: Vector, update: Vector, decay: float, rng: np.random.Generator,
            ) -> tuple[Octets, Vector]:
    """(c, e_m after it). update: theta_m - theta, (d,) float32. Raises NotSendable if a is not finite."""
    a = sendable(np.float32(decay) * error - update)
    code, _ = codec.encode(a, rng)
    return code, a - codec.decode(code, len(a))


def outer(model: Vector, codec: Codec, codes: Sequence[Octets], p: Params) -> Vector:
    """theta after the step, (d,) float32. codes: of the peers. Raises NotDecodable."""
    vectors = [decoded(codec, code, len(model)) for code in codes]
    total, senders = np.zeros_like(model), np.zeros_like(model)
    for one in clipped(vectors) if p.clip else vectors:
        total += one
        senders += one != 0
    count = np.maximum(senders, 1) if p.mean == "senders" else np.float32(len(codes))
    return model - np.float32(p.rate) * (total / count)


def clipped(vectors: Sequence[Vector]) -> list[Vector]:
    """The vectors, those that are longer than the median of their norms shortened to it, as Covenant-72B has it."""
    norms = np.array([np.linalg.norm(one.astype(np.float64)) for one in vectors])
    most = float(np.median(norms))
    return [one * np.float32(most / norm) if norm > most else one for one, norm in zip(vectors, norms, strict=True)]


async def store(node: Node, p: Params) -> None:
    members, sound = node.nodes("peer"), updates.sound(codec_of(p), node.task.dimension)
    async for round_ in node.rounds(of=members):
        with round_:
            got = await node.gather(Code, members, p.timeout_s, accept=sound)
            for m, message in got.items():
                node.broadcast([j for j in members if j != m], StoredCode(message.code, m))


async def from_store(node: Node, members: Sequence[int], codec: Codec, code: Octets, d: int,
                     timeout_s: float | None) -> list[Octets]:
    """As `gather_codes`, through the store."""
    (at,), end_s = node.nodes("store"), None if timeout_s is None else node.now + timeout_s
    found, length = {node.id: code}, updates.sound(codec, d)

    def sound(message: StoredCode) -> None:
        length(message)
        demand(message.of in members and message.of not in found, f"of {message.of}: not a peer, or one twice")

    node.send(at, Code(code))
    while len(found) < len(members):
        left_s = None if end_s is None else max(0.0, end_s - node.now)
        message = await node.recv(StoredCode, at, left_s, accept=sound)
        found[message.of] = message.code
    return [found[m] for m in members]


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    wrong = checks.shares(decay=params.decay)
    try:
        codec_of(params)
    except ValueError as error:
        wrong.append(str(error))
    return (wrong + checks.positive(rate=params.rate) + checks.steps(steps=params.steps)
            + checks.times(timeout=params.timeout_s, grace=params.grace_s)
            + rendezvous.mortal(params.survive, params.timeout_s)
            + ["store = true: with survive: expected codes that go to all others"] * (params.store and params.survive)
            + checks.at_least(2, "two or more", peers=world.count("peer")))


def unsent(params: Params) -> Collection[str]:
    """The names of the messages that are not sent under these parameters."""
    stored = () if params.store else (StoredCode.__name__,)
    alone = (Code,) if params.survive else (CodedPart, *rendezvous.MESSAGES)
    return {*stored, *(kind.__name__ for kind in alone)}


def without(params: Params) -> Collection[str]:
    """The roles that have no node under these parameters."""
    return [role for role, there in (("store", params.store), ("rendezvous", params.survive)) if not there]


EXAMPLE = example("sparseloco", "k: 8, chunk: 64, timeout: 10 s", topology="complete, peers: 5", links=(),
                  partition="iid", solver="lr: 0.1, steps: 5, batch: 16")

SCHEME = Scheme(
    params=Params, roles={"peer": peer, "store": store, "rendezvous": rendezvous.rendezvous},
    messages=(Code, StoredCode, CodedPart, *rendezvous.MESSAGES), unsent=unsent,
    places={**peers.PLACES, "store": "server", "rendezvous": rendezvous.PLACE}, without=without, decides="peer",
    knows_topology=True, oblivious=True, declares=True, timeouts=("timeout_s",), check=check, warn=collective.warn,
    accuracy="global", example=EXAMPLE)
