"""The server of EBS-CFL: it trusts by references of its own, and adds up uploads that it only sees encoded.

    server      its rounds
    set_up      keys from the dealer (`ServerKeyring`)
    collect     uploads of a round, checked; who fails may send again, whoever is missing is mended by the dealer
    aggregate   E, W, g (`emul.schemes.ebs_cfl.masking.rounds`)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from emul.base.errors import NothingToReceive, TooFewClients
from emul.protocols.clustered import Models
from emul.protocols.demands import ascending, demand, shaped
from emul.protocols.setup import TRIES
from emul.protocols.trust import Clusters, moved, prepare, step_norms, tell
from emul.roles import Message, Node
from emul.schemes.ebs_cfl.design import Masking, dealer_of, shape_of
from emul.schemes.ebs_cfl.masking import rounds
from emul.schemes.ebs_cfl.masking.blocks import Array, Shape
from emul.schemes.ebs_cfl.masking.keys import SENT, Lift, ServerKeys
from emul.schemes.ebs_cfl.masking.rounds import Compact, Factor, Trust, directions_of, group_sums, trust
from emul.schemes.ebs_cfl.messages import (
    AlphaKeys,
    AlphaTensor,
    Checks,
    Correction,
    LayerKeys,
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

BATCH_BYTES = 1 << 28                   # of alpha keys that are under way at a time


@dataclass
class ServerKeyring:
    """All keys of the server."""

    keys: ServerKeys | None = None
    vk: list[Array] = field(default_factory=list)               # by group, (3dq,)
    lifts: dict[int, Lift] = field(default_factory=dict)        # by layer, those above the groups
    version: int = 0                                            # of the references that alpha keys are of
    known: bool = False                                         # the dealer has these references
    alpha: dict[tuple[int, int], Factor | Array] = field(default_factory=dict)  # (client or group, set) -> its key


@dataclass
class ServerState:
    """The state of the server: models and references, and keys."""

    clusters: Clusters = field(default_factory=Clusters)
    held: ServerKeyring = field(default_factory=ServerKeyring)


@dataclass
class Collected:
    """The uploads that a round has brought."""

    uploads: dict[int, Array]                                   # client, from 0 -> (s, 3dq), sound
    checks: dict[int, Array]                                    # client -> e_i, (s,)
    rejected: int = 0
    missing: int = 0
    correction: Array | None = None
    renewed: dict[int, tuple[Array, Array]] = field(default_factory=dict)       # group -> (tau1, tk1)
    attempt: int = 0
    stand_ins: list[int] = field(default_factory=list)


async def server(node: Node, d: Masking) -> None:
    """Rounds of the server."""
    shape, s = shape_of(node, d), node.state(ServerState())
    async for round_ in node.rounds():
        with round_:
            models, g0 = await prepare(node, d, s.clusters, round_)
            keys, Gammas = await set_up(node, d, s.held, shape, s.clusters.version, g0)
            cohort = node.sample(node.clients, d.fraction)
            node.offer("cohort", cohort)
            node.offer("reference", g0)
            node.send(dealer_of(node), Participants(_ids(node, cohort)))
            node.broadcast(cohort, Models(models))
            got = await collect(node, d, s.held.vk, shape, cohort)
            norms = await step_norms(node, d, s.clusters)
            directions, found = await node.compute("aggregate", aggregate, d, shape, keys, s.held.alpha, Gammas, got,
                                                   work=len(got.uploads) * shape.length)
            totals = [each.W for each in found]
            s.clusters.models = moved(models, directions, norms, totals, d, g0, round_)
            there = [i for i in sorted(got.uploads) if i not in got.stand_ins]
            tell(node, s.clusters, [node.clients[i] for i in there], weights_of(node, d, found, there),
                 sum(totals), received=len(there), missing=got.missing, rejected=got.rejected,
                 recovered=float(got.missing > 0), moved=float(max(totals) >= d.least_weight))


def _ids(node: Node, nodes: Sequence[int]) -> np.ndarray:
    place = {k: i for i, k in enumerate(node.clients)}
    return np.array(sorted(place[k] for k in nodes), np.int32)


# --- keys: the server asks the dealer until they are there ----------------------------------------------------------
# First for those that do not depend on the references, then for alpha keys, some clients at a time: they are as large
# as uploads. After `References` of a new version only alpha keys are asked for.

async def set_up(node: Node, d: Masking, s: ServerKeyring, shape: Shape, version: int, g0: Array,
                 ) -> tuple[ServerKeys, list[Array]]:
    """(keys, Gamma of each set): see to it that there are all keys of these references. Raises TooFewClients."""
    h, Gammas, silent = rounds.directions(g0), list[Array](), 0
    if s.version != version:
        s.version, s.known, s.alpha = version, False, {}
    while silent < TRIES:
        if s.keys is not None and not Gammas:
            Gammas = await node.compute("gammas", rounds.gammas, shape, s.keys.A, h, d.weighting)
        lacking = _lacking(d, s, shape)
        if s.keys is not None and _has_first(s, shape) and not lacking:
            return replace(s.keys, lifts=tuple(s.lifts[layer] for layer in sorted(s.lifts))), Gammas
        begun = node.now_ns
        s.known = await _ask(node, d, s, shape, h, lacking[:_batch(d, shape)], Gammas)
        silent = 0 if s.known else silent + 1
        if silent and node.now_ns == begun:
            break                       # settled at once: the dealer has left the round, asking again is no use
    raise TooFewClients("set-up: the dealer has not sent its keys")


def _has_first(s: ServerKeyring, shape: Shape) -> bool:
    """True if the keys are there that do not depend on the references."""
    return s.keys is not None and bool(s.vk) and len(s.lifts) == len(shape.layers)


def _lacking(d: Masking, s: ServerKeyring, shape: Shape) -> list[int]:
    """Clients, or groups, of which an alpha key has not come."""
    every = range(len(shape.groups) if d.alpha == "full" else shape.clients)
    return [i for i in every if any((i, which) not in s.alpha for which in range(d.sets))]


def _batch(d: Masking, shape: Shape) -> int:
    """The number of clients whose alpha keys are asked for at a time."""
    rows = shape.segments * 3 * shape.d * shape.q * 8
    size = rows * 4 * (shape.d * shape.q) ** 2 if d.alpha == "full" else rows * 2
    return max(1, BATCH_BYTES // (size * d.sets))


async def _ask(node: Node, d: Masking, s: ServerKeyring, shape: Shape, h: Array, whose: list[int],
               Gammas: Sequence[Array]) -> bool:
    """One question; whether something of what was asked for has come."""
    dealer, first = dealer_of(node), not _has_first(s, shape)
    if s.keys is None:
        whose = []                      # their Gamma takes the slots of the clusters
    if not s.known:
        node.send(dealer, References(s.version, h))
    node.send(dealer, Wanted(s.version, first, np.array(whose, np.int32)))
    if first and not await _take_first(node, d, s, shape):
        return False
    came = first
    for _ in range(len(whose) * d.sets):
        one = (await node.gather((AlphaKeys, AlphaTensor, NotHeld), [dealer], timeout_s=d.dealer_timeout_s,
                                 accept=partial(_sound_alpha, d, shape))).get(dealer)
        if isinstance(one, AlphaKeys):
            key = Compact(one.F, one.B)
            s.alpha[one.client, one.which] = await node.compute("factor", rounds.factor, key, Gammas[one.which])
        elif isinstance(one, AlphaTensor):
            s.alpha[one.group, one.which] = one.tensor
        elif isinstance(one, NotHeld):
            break
        came = came or one is not None
    return came


async def _take_first(node: Node, d: Masking, s: ServerKeyring, shape: Shape) -> bool:
    """Keys that do not depend on the references; whether they have come, with the keys of verification or without."""
    dealer, wait = dealer_of(node), d.dealer_timeout_s
    found = (await node.gather((ServerKeySet, NotHeld), [dealer], timeout_s=wait,
                               accept=partial(_sound_keys, shape))).get(dealer)
    if not isinstance(found, ServerKeySet):
        return False
    s.keys = ServerKeys(**{name: getattr(found, name) for name in SENT})
    verify = await node.gather(VerifyKeys, [dealer], timeout_s=wait, accept=partial(_sound_rows, shape))
    s.vk = verify[dealer].vk if verify else []
    for _ in shape.layers:
        one = (await node.gather(LayerKeys, [dealer], timeout_s=wait, accept=partial(_sound_layer, shape))).get(dealer)
        if one is not None:
            s.lifts[one.layer] = Lift(one.tk0, one.tk1)
    return True


def _sound_keys(shape: Shape, message: Message) -> None:
    """Raise ProtocolViolation unless all keys have their sizes."""
    if not isinstance(message, ServerKeySet):
        return
    d, N, groups = shape.d, shape.clients, shape.groups
    _sound_moves(shape, 0, message.tk0, message.tk1)
    shaped(A=(shape.clusters, shape.t, d), betaG=(d, 2 * d * N), dk=(2 * d * N, 3 * d * N))(message)
    for name, rows in (("beta", None), ("tau1", 2), ("tau2", 2), ("tau3", 2)):
        found = [matrix.shape for matrix in getattr(message, name)]
        expected = [(d if rows is None else rows * d * len(group), 2 * d * len(group)) for group in groups]
        demand(found == expected, f"{name}: not of its size")


def _sound_layer(shape: Shape, message: LayerKeys) -> None:
    demand(1 <= message.layer <= len(shape.layers), "layer: out of range")
    _sound_moves(shape, message.layer, message.tk0, message.tk1)


def _sound_moves(shape: Shape, layer: int, tk0: Sequence[Array], tk1: Sequence[Array]) -> None:
    """Raise ProtocolViolation unless the keys from a layer to the next one have their sizes."""
    for name, blocks, found in (("tk0", 2, tk0), ("tk1", 3, tk1)):
        expected = [(blocks * shape.d * len(below), blocks * shape.d * shape.above(layer, node))
                    for node, below in enumerate(shape.tree[layer])]
        demand([matrix.shape for matrix in found] == expected, f"{name}: not of its size")


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

async def collect(node: Node, d: Masking, vk: Sequence[Array], shape: Shape, cohort: Sequence[int]) -> Collected:
    """Sound uploads of one round, with what stands in for those that are missing. Raises TooFewClients."""
    there = _ids(node, cohort).tolist()
    got = Collected({}, {})
    await gather_checked(node, d, vk, shape, got, there)
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
        got.renewed = await renewal(node, d, shape)
        await gather_checked(node, d, vk, shape, got, there)
    return got


async def gather_checked(node: Node, d: Masking, vk: Sequence[Array], shape: Shape, got: Collected, there: list[int],
                         ) -> None:
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
        wrong = await node.compute("verify", verify, d, shape, vk, got.checks,
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
            if rounds.wrong(delta, vk[i // shape.q], checks[i], d.mask_norm, shape.d, d.verify, d.tau_v, d.tau_n)]


async def mend(node: Node, d: Masking, shape: Shape, got: Collected, missing: list[int]) -> None:
    """Receive the keys that the dealer sends in place of the missing clients' uploads. Raises NothingToReceive."""
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


async def renewal(node: Node, d: Masking, shape: Shape) -> dict[int, tuple[Array, Array]]:
    """{group: (tau1, tk1)} of a restart; {} where the old ones do. Raises NothingToReceive."""
    def sound(message: Message) -> None:
        if isinstance(message, Renewed):
            ascending("groups", message.groups, range(len(shape.groups)))
            sizes = [(shape.d * len(shape.groups[g]), shape.d * shape.above(0, g)) for g in message.groups.tolist()]
            demand([tau.shape for tau in message.tau1] == [(2 * k, 2 * k) for k, _ in sizes], "tau1: not of its size")
            demand([tk.shape for tk in message.tk1] == [(3 * k, 3 * up) for k, up in sizes], "tk1: not of its size")

    dealer = dealer_of(node)
    new = (await node.gather((Renewed, NotHeld), [dealer], timeout_s=d.dealer_timeout_s, accept=sound)).get(dealer)
    if not isinstance(new, Renewed):
        raise NothingToReceive("the dealer has not begun anew")
    return {g: (new.tau1[k], new.tk1[k]) for k, g in enumerate(new.groups.tolist())}


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
        return rounds.encoded(key, rounds.product(Gamma, delta))
    return rounds.encoded_by_tensor(key, delta)


def weights_of(node: Node, d: Masking, found: Sequence[Trust], there: Sequence[int]) -> dict[int, float] | None:
    """For the observer, what the server could see and does not use: w_i = trace(E_i beta^T) / d of each client.

    None where groups or traces hide it.
    """
    if d.q > 1 or d.zeta != "traceless":
        return None
    return {node.clients[i]: max(0.0, sum(each.by_group[i] for each in found)) for i in there}
