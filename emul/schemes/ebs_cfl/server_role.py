"""The server of EBS-CFL: it trusts by references of its own, and adds up uploads that it only sees encoded.

    set_up      keys from the dealer (`held.py`)
    collect     uploads of a round, checked; who fails may send again, whoever is missing is mended by the dealer
    aggregate   E, W, g (`emul.schemes.ebs_cfl.masking.aggregate`)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from emul.base.errors import NothingToReceive, TooFewClients
from emul.protocols.clustered import Models
from emul.protocols.demands import ascending, demand, shaped
from emul.protocols.trust import Clusters, moved, prepare, step_norms, tell
from emul.roles import Message, Node
from emul.schemes.ebs_cfl.design import Masking, dealer_of, shape_of
from emul.schemes.ebs_cfl.keyring import ServerKeyring, set_up
from emul.schemes.ebs_cfl.masking import alpha, rounds
from emul.schemes.ebs_cfl.masking.aggregate import Trust, directions_of, group_sums, trust
from emul.schemes.ebs_cfl.masking.alpha import Factor
from emul.schemes.ebs_cfl.masking.blocks import Array
from emul.schemes.ebs_cfl.masking.keys import ServerKeys
from emul.schemes.ebs_cfl.masking.shape import Shape
from emul.schemes.ebs_cfl.messages import (
    Checks,
    Correction,
    Missing,
    NotHeld,
    Participants,
    Renewed,
    Resend,
    StandIns,
    Upload,
)


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
        return alpha.encoded(key, alpha.product(Gamma, delta))
    return alpha.encoded_by_tensor(key, delta)


def weights_of(node: Node, d: Masking, found: Sequence[Trust], there: Sequence[int]) -> dict[int, float] | None:
    """For the observer, what the server could see and does not use: w_i = trace(E_i beta^T) / d of each client.

    None where groups or traces hide it.
    """
    if d.q > 1 or d.zeta != "traceless":
        return None
    return {node.clients[i]: max(0.0, sum(each.by_group[i] for each in found)) for i in there}
