"""The server of EBS-CFL: it trusts by references of its own, and adds up uploads that it only sees encoded.

    set_up      keys from the dealer, asked for until they are there
    collect     uploads of a round, checked; who fails may send again, whoever is missing is mended by the dealer
    aggregate   E, W, g (`emul.primitives.masking.aggregate`)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial

import numpy as np

from emul.base.errors import NothingToReceive, TooFewClients
from emul.primitives.masking import alpha, rounds
from emul.primitives.masking.aggregate import LEAST_WEIGHT, Trust, directions_of, group_sums, trust
from emul.primitives.masking.alpha import Compact, Factor
from emul.primitives.masking.blocks import Array
from emul.primitives.masking.keys import ServerKeys
from emul.primitives.masking.shape import Shape
from emul.protocols.clustered import Models
from emul.protocols.demands import demand, shaped
from emul.protocols.ebs_cfl.design import Masking, dealer_of, shape_of
from emul.protocols.ebs_cfl.messages import (
    AlphaKeys,
    AlphaTensor,
    Checks,
    Correction,
    Missing,
    NotHeld,
    Participants,
    References,
    Renewed,
    Resend,
    ServerKeySet,
    StandIns,
    Upload,
    VerifyKeys,
    Wanted,
)
from emul.protocols.setup import TRIES
from emul.protocols.trust import Clusters, Trusting, moved, prepare, step_norms, tell
from emul.roles import Message, Node

BATCH_BYTES = 1 << 28                   # of alpha keys that are under way at a time


@dataclass
class ServerState:
    """What the server keeps: models and references, and keys."""

    clusters: Clusters = field(default_factory=Clusters)
    keys: ServerKeys | None = None
    vk: list[Array] = field(default_factory=list)               # by group, (3dq,)
    version: int = 0                                            # of the references that alpha keys are of
    held: bool = False                                          # the dealer has these references
    alpha: dict[tuple[int, int], Factor | Array] = field(default_factory=dict)  # (client or group, set) -> its key


@dataclass
class Collected:
    """What a round has brought."""

    uploads: dict[int, Array]                                   # client, from 0 -> (s, 3dq), sound
    checks: dict[int, Array]                                    # client -> e_i, (s,)
    rejected: int = 0
    missing: int = 0
    correction: Array | None = None
    renewed: dict[int, tuple[Array, Array]] = field(default_factory=dict)       # group -> (tau1, tk1)
    attempt: int = 0
    stand_ins: list[int] = field(default_factory=list)


async def server(node: Node, d: Masking, how: Trusting) -> None:
    """Rounds of the server."""
    shape, s = shape_of(node, d), node.state(ServerState())
    async for round_ in node.rounds():
        with round_:
            models, g0 = await prepare(node, how, s.clusters, round_)
            Gammas = await set_up(node, d, s, shape, g0)
            cohort = node.sample(node.clients, d.fraction)
            node.offer("cohort", cohort)
            node.offer("reference", g0)
            node.send(dealer_of(node), Participants(_ids(node, cohort)))
            node.broadcast(cohort, Models(models))
            got = await collect(node, d, s, shape, cohort)
            norms = await step_norms(node, how, s.clusters)
            assert s.keys is not None
            directions, found = await node.compute("aggregate", aggregate, d, shape, s.keys, s.alpha, Gammas, got,
                                                   work=len(got.uploads) * shape.length)
            s.clusters.models = moved(models, directions, norms, how)
            there = [i for i in sorted(got.uploads) if i not in got.stand_ins]
            tell(node, s.clusters, [node.clients[i] for i in there], weights_of(node, d, found, there),
                 sum(each.W for each in found), received=len(there), missing=got.missing, rejected=got.rejected,
                 recovered=float(got.missing > 0), moved=float(any(each.W >= LEAST_WEIGHT for each in found)))


def _ids(node: Node, nodes: Sequence[int]) -> np.ndarray:
    place = {k: i for i, k in enumerate(node.clients)}
    return np.array(sorted(place[k] for k in nodes), np.int32)


# --- keys -----------------------------------------------------------------------------------------------------------

async def set_up(node: Node, d: Masking, s: ServerState, shape: Shape, g0: Array) -> list[Array]:
    """See to it that there are keys of these references; Gamma of each set. Raises TooFewClients."""
    dealer, h = dealer_of(node), alpha.directions(g0)
    if s.version != s.clusters.version:
        s.version, s.held, s.alpha = s.clusters.version, False, {}
    Gammas: list[Array] = []
    for _ in range(TRIES + 2 * shape.clients):
        if s.keys is not None and not Gammas:
            Gammas = await node.compute("gammas", alpha.gammas, shape, s.keys.A, h, d.weighting)
        lacking = _lacking(d, s, shape)
        if s.keys is not None and s.vk and not lacking:
            return Gammas
        begun = node.now_ns
        if not s.held:
            node.send(dealer, References(s.version, h))
        first = s.keys is None or not s.vk
        whose = [] if s.keys is None else lacking[:_batch(d, shape)]
        node.send(dealer, Wanted(s.version, first, np.array(whose, np.int32)))
        answered = await _take_keys(node, d, s, shape, first, whose, Gammas)
        s.held = answered
        if not answered and node.now_ns == begun:
            break                       # settled at once: the dealer has left the round, asking again is no use
    raise TooFewClients("set-up: the dealer has not sent its keys")


def _lacking(d: Masking, s: ServerState, shape: Shape) -> list[int]:
    """Clients, or groups, of which an alpha key has not come."""
    every = range(len(shape.groups) if d.alpha == "full" else shape.clients)
    return [i for i in every if any((i, which) not in s.alpha for which in range(d.sets))]


def _batch(d: Masking, shape: Shape) -> int:
    """How many clients' alpha keys are asked for at a time."""
    rows = shape.segments * 3 * shape.d * shape.q * 8
    size = rows * 4 * (shape.d * shape.q) ** 2 if d.alpha == "full" else rows * 2
    return max(1, BATCH_BYTES // (size * d.sets))


async def _take_keys(node: Node, d: Masking, s: ServerState, shape: Shape, first: bool, whose: list[int],
                     Gammas: list[Array]) -> bool:
    """Whether something of what was asked for has come."""
    dealer, wait, came = dealer_of(node), d.dealer_timeout_s, False
    if first:
        got = await node.gather((ServerKeySet, NotHeld), [dealer], timeout_s=wait, accept=partial(_sound_keys, shape))
        if isinstance(keys := got.get(dealer), ServerKeySet):
            s.keys, came = ServerKeys(**{f.name: getattr(keys, f.name) for f in fields(ServerKeys)}), True
        else:
            return False
        verify = await node.gather(VerifyKeys, [dealer], timeout_s=wait, accept=partial(_sound_rows, shape))
        s.vk = verify[dealer].vk if verify else []
    for _ in range(len(whose) * d.sets):
        one = (await node.gather((AlphaKeys, AlphaTensor, NotHeld), [dealer], timeout_s=wait,
                                 accept=partial(_sound_alpha, d, shape))).get(dealer)
        if isinstance(one, AlphaKeys):
            key = Compact(one.F, one.B)
            s.alpha[one.client, one.which] = await node.compute("factor", alpha.factor, key, Gammas[one.which])
            came = True
        elif isinstance(one, AlphaTensor):
            s.alpha[one.group, one.which], came = one.tensor, True
        elif isinstance(one, NotHeld):
            break
    return came


def _sound_keys(shape: Shape, message: Message) -> None:
    """Raise ProtocolViolation unless all keys have their sizes."""
    if not isinstance(message, ServerKeySet):
        return
    d, N, groups = shape.d, shape.clients, shape.groups
    shaped(A=(shape.clusters, shape.t, d), betaG=(d, 2 * d * N), dk=(2 * d * N, 3 * d * N))(message)
    for name, rows, columns in (("beta", None, 2), ("tau1", 2, 2), ("tau2", 2, 2), ("tau3", 2, 2), ("tk0", 2, -2),
                                ("tk1", 3, -3)):
        found = [matrix.shape for matrix in getattr(message, name)]
        expected = [(d if rows is None else rows * d * len(group), columns * d * len(group) if columns > 0 else
                     -columns * d * N) for group in groups]
        demand(found == expected, f"{name}: not of its size")


def _sound_rows(shape: Shape, message: VerifyKeys) -> None:
    demand([row.shape for row in message.vk] == [(3 * shape.d * len(group),) for group in shape.groups],
           "vk: not of its size")


def _sound_alpha(d: Masking, shape: Shape, message: Message) -> None:
    if isinstance(message, AlphaKeys):
        demand(0 <= message.client < shape.clients, "client: out of range")
        q = len(shape.groups[message.client // shape.q])
        shaped(F=(shape.segments, 3 * shape.d * q, 2), B=(2, 2 * shape.d * q, 2 * shape.d * q))(message)
    elif isinstance(message, AlphaTensor):
        demand(0 <= message.group < len(shape.groups), "group: out of range")
        k = shape.d * len(shape.groups[message.group])
        shaped(tensor=(shape.segments, 2 * k, 3 * k, 2 * k))(message)
    if isinstance(message, AlphaKeys | AlphaTensor):
        demand(isinstance(message, AlphaTensor) == (d.alpha == "full"), "keys of the other kind")
        demand(0 <= message.which < d.sets, "which: out of range")


# --- uploads --------------------------------------------------------------------------------------------------------

async def collect(node: Node, d: Masking, s: ServerState, shape: Shape, cohort: Sequence[int]) -> Collected:
    """Sound uploads of one round, with what stands in for those that are missing. Raises TooFewClients."""
    there = _ids(node, cohort).tolist()
    got = Collected({}, {})
    await gather_checked(node, d, s, shape, got, there)
    while missing := [i for i in there if i not in got.uploads]:
        left = [i for i in there if i in got.uploads]
        if len(left) < d.least(len(there)):
            raise TooFewClients(f"{len(left)} of {len(there)} uploads are sound, expected {d.least(len(there))}")
        got.missing += len(missing)
        node.send(dealer_of(node), Missing(np.array(missing, np.int32)))
        if d.recovery != "restart":
            await mend(node, d, shape, got, missing)
            return got
        if got.attempt == d.restarts:
            raise TooFewClients(f"{len(missing)} uploads are missing after {d.restarts} restarts")
        there, got.uploads, got.attempt = left, {}, got.attempt + 1
        if d.renews:
            new = await node.recv(Renewed, dealer_of(node), timeout_s=d.dealer_timeout_s)
            got.renewed = {g: (new.tau1[k], new.tk1[k]) for k, g in enumerate(new.groups.tolist())}
        await gather_checked(node, d, s, shape, got, there)
    return got


async def gather_checked(node: Node, d: Masking, s: ServerState, shape: Shape, got: Collected,
                         there: list[int]) -> None:
    """Uploads of one attempt; who fails its check may send again. Raises what `recv` raises without checks."""
    def sound(message: Upload) -> None:
        demand(message.attempt == got.attempt, "attempt: another one")
        q = len(shape.groups[place[message.sender] // shape.q])
        shaped(delta=(shape.segments, 3 * shape.d * q))(message)

    place = {node.clients[i]: i for i in there}
    waiting = sorted(place)
    arrived = await node.gather(Upload, waiting, timeout_s=d.deadline_s, accept=sound)
    dealt = await node.recv(Checks, dealer_of(node), timeout_s=d.dealer_timeout_s,
                            accept=shaped(e=(len(there), shape.segments)))
    got.checks = dict(zip(there, dealt.e, strict=True))
    for left in range(d.resend, -1, -1):
        wrong = await node.compute("verify", verify, d, shape, s.vk, got.checks,
                                   {place[k]: m.delta for k, m in arrived.items()}, work=len(arrived) * shape.length)
        got.uploads |= {place[k]: m.delta for k, m in arrived.items() if place[k] not in wrong}
        again = [node.clients[i] for i in wrong]
        if not again or not left:
            got.rejected += len(again)
            return
        node.broadcast(again, Resend())
        arrived = await node.gather(Upload, again, timeout_s=d.deadline_s, accept=sound)


def verify(d: Masking, shape: Shape, vk: Sequence[Array], checks: Mapping[int, Array], uploads: Mapping[int, Array],
           ) -> list[int]:
    """Clients whose uploads fail."""
    return [i for i, delta in sorted(uploads.items())
            if rounds.wrong(delta, vk[i // shape.q], checks[i], d.mask_norm, shape.d, d.verify)]


async def mend(node: Node, d: Masking, shape: Shape, got: Collected, missing: list[int]) -> None:
    """What the dealer sends in place of the missing. Raises NothingToReceive."""
    dealer = dealer_of(node)

    def sound(message: Message) -> None:
        if isinstance(message, Correction):
            shaped(C=(shape.segments, shape.d))(message)
        elif isinstance(message, StandIns):
            sizes = [(shape.segments, 3 * shape.d * len(shape.groups[i // shape.q])) for i in missing]
            demand([upload.shape for upload in message.uploads] == sizes, "uploads: not of their sizes")

    answer = (await node.gather((Correction, StandIns, NotHeld), [dealer], timeout_s=d.dealer_timeout_s,
                                accept=sound)).get(dealer)
    if isinstance(answer, Correction):
        got.correction = answer.C
    elif isinstance(answer, StandIns):
        got.stand_ins = missing
        got.uploads |= dict(zip(missing, answer.uploads, strict=True))
    else:
        raise NothingToReceive("the dealer has not mended the round")


# --- aggregation ----------------------------------------------------------------------------------------------------

def aggregate(d: Masking, shape: Shape, keys: ServerKeys, held: Mapping[tuple[int, int], Factor | Array],
              Gammas: Sequence[Array], got: Collected) -> tuple[Array, list[Trust]]:
    """The direction of each cluster (m, l), and E and W of each set. Section 9.3, steps 2 to 6."""
    tau1 = {g: new[0] for g, new in got.renewed.items()}
    tk1 = {g: new[1] for g, new in got.renewed.items()}
    found = [trust(shape, keys, {i: _encoded(held[i if d.alpha == "compact" else i // shape.q, which], Gamma, delta)
                                 for i, delta in got.uploads.items()}, tau1) for which, Gamma in enumerate(Gammas)]
    sums = group_sums(shape, got.uploads)
    return directions_of(shape, keys, sums, found, d.order, got.correction, tk1), found


def _encoded(key: Factor | Array, Gamma: Array, delta: Array) -> Array:
    """alpha_i of one set."""
    if isinstance(key, Factor):
        return alpha.encoded(key, alpha.product(Gamma, delta))
    return alpha.encoded_by_tensor(key, delta)


def weights_of(node: Node, d: Masking, found: Sequence[Trust], there: Sequence[int]) -> dict[int, float] | None:
    """For the observer, what the server could see and does not use: w_i = trace(E_i beta^T) / d of each client.

    None where groups or traces hide it.
    """
    if d.q > 1 or d.zeta != "traceless":
        return None
    return {node.clients[i]: max(0.0, sum(each.by_group[i] for each in found)) for i in there}
