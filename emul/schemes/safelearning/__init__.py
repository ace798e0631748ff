"""Backdoors seen on sums of random groups, while single updates stay hidden (SAFELearning). After Zhang et al.,
arXiv:2102.02402; rebuilt from its abstract.

Groups of about `group` clients are drawn each round from a seed that the server committed to before it saw the clients'
nonces: nobody chooses who is with whom. Values of 16 bits are cut into high and low parts. The high parts are opened as
group sums, and a detector rejects groups by them; then the low parts are opened, as one sum over the groups that are
kept. Each part has mask keys and self masks of its own, and the low parts are masked over `partners` more clients of
other groups, drawn at random.

    U0 selected > U1 sent keys and a nonce > U2 shared four secrets > U3 sent both parts
    S: U3 without groups of which fewer than `least` are left;  K: S without flagged groups
    high parts: shares of b of S, of s_sk of U2 - U3 with a neighbour in S       -> group sums, flagged groups
    low parts: shares of b of K, of s_sk of U2 - K                               -> the sum over K

Not protected: the server knows the groups, and the 8 high bits of a sum of `group` clients say something about each:
state `group` beside every result; 8 or more is advised. The server can try a few draws by leaving out clients whose
nonces it has seen. Of the paper, a tree of more levels and elimination by transferred commitments are not here; its
byte counts are not these.

Messages and their bytes: `emul.protocols.pairwise`, and `split` beside this file, which has what the server computes of
both parts; `split_client` has the client's side, `groups` the draw of who is with whom, and the detectors.

Protects: a client's update from the server, which sees sums of random groups; the model from backdoors that these show.
Not: the group sums themselves, a server that deviates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from emul.base.errors import NotDecodable
from emul.learning import NodeTask
from emul.primitives.crypto.graphs import Closed, connected
from emul.primitives.crypto.keys import KEY_BYTES
from emul.primitives.quantise import Quantiser, SumOfUpdates
from emul.protocols import pairwise
from emul.protocols.audit import Revealed
from emul.protocols.demands import shaped
from emul.protocols.pairwise.messages import AdvertiseKeys, Reveal, Unmask, id_array
from emul.protocols.pairwise.rules import PairwiseRules
from emul.protocols.pairwise.server import (
    audit_reveals,
    dropped_pair_seeds,
    exchanged_shares,
    fresh_keys,
    neighbourhoods,
    secrets_of,
    shares_of,
)
from emul.protocols.sums import (
    QuantisedSum,
    Seen,
    cohort_size,
    refusing_client,
    summing_server,
    wrong_coding,
    wrong_cohort,
)
from emul.roles import Node, Received, Scheme, Vector, World, checks
from emul.roles.example import example
from emul.schemes.safelearning import split
from emul.schemes.safelearning.groups import DETECTORS, NONCE_BYTES, commitment, draw_groups, group_seed, joined
from emul.schemes.safelearning.split import (
    HIGH,
    LOW,
    Commit,
    GroupRing,
    MaskedParts,
    RevealLow,
    UnmaskLow,
    group_sum,
    low_sum,
    of_groups,
)
from emul.schemes.safelearning.split_client import take_part

_KEYS = 3 * KEY_BYTES               # of the channels, of the high and of the low part


@dataclass(frozen=True)
class Params(QuantisedSum):
    group: int = 8                          # g, clients of a group; a group has g to 2 g - 1
    least: int = 3                          # of a group with fewer survivors nothing is opened
    partners: int = 2                       # of each client, in other groups: the low parts are masked with them, too
    low_bits: int = 8                       # of the bits of a value
    detector: str = "distance"              # none, distance, norm, cosine
    limit: float = 3.0                      # of the detector: MADs above the median
    threshold: int | None = None            # t, shares that give a secret; None: floor((group + 2) / 2) + 1
    route: Literal["direct", "server"] = "server"       # of encrypted shares


def rules(p: Params) -> PairwiseRules:
    """The rules that server and clients have agreed on."""
    t = p.threshold if p.threshold is not None else (p.group + 2) // 2 + 1
    return PairwiseRules(t, p.stage_deadline_s, p.route, audit=p.audit)


@dataclass
class DrawnGroups:
    """The server's knowledge of the groups of a round, and the values that it was given."""

    A: Closed                               # neighbours, with whom shares and masks of the low part are exchanged
    groups: list[list[int]]
    advertised: dict[int, AdvertiseKeys]
    secret: bytes
    revealed: Revealed

    def closing(self, U2: list[int], request: Unmask) -> UnmaskLow:
        """The second request, with the proof of the draw."""
        ids = list(self.advertised)
        nonces = np.stack([self.advertised[i].keys[_KEYS:] for i in ids])
        secret = np.frombuffer(self.secret, np.uint8)
        return UnmaskLow(request.survivors, request.dropped, secret, id_array(ids), nonces)


async def server(node: Node, p: Params) -> None:
    coding = SumOfUpdates(Quantiser(p.clip, p.bits), cohort_size(p.fraction, len(node.clients)))
    await summing_server(node, partial(kept_sum, node, p, node.stream("groups")), coding, fraction=p.fraction,
                         audit=p.audit)


async def kept_sum(node: Node, p: Params, rng: np.random.Generator, U0: list[int], model: Vector, seen: Seen,
                   ) -> tuple[np.ndarray, list[int]]:
    """(sum of x_i over K, (d,) uint32; K). Fills `seen` with the sets, and how many groups there are."""
    sets: dict[str, list[int]] = seen
    sets["U0"] = U0
    drawn = await draw(node, p, model, rng.bytes(32), sets)
    masked = await node.gather(MaskedParts, sets["U2"], timeout_s=p.stage_deadline_s,
                               accept=shaped(high=model.shape, low=model.shape))
    sets["U3"] = list(masked)
    high = await open_high(node, p, drawn, masked, sets)
    total = await open_low(node, p, drawn, masked, high, sets)
    seen |= {"groups": len(drawn.groups), "opened": len(high)}
    return total, sets["K"]


async def draw(node: Node, p: Params, model: Vector, secret: bytes, sets: dict[str, list[int]]) -> DrawnGroups:
    """Stages 0 and 1: keys and nonces in, groups drawn, shares exchanged."""
    r, U0 = rules(p), sets["U0"]
    node.offer("cohort", U0)
    node.broadcast(U0, Commit(model, np.frombuffer(commitment(secret), np.uint8)))
    advertised = await node.gather(AdvertiseKeys, U0, timeout_s=r.deadline_s, accept=fresh_keys(_KEYS, NONCE_BYTES))
    U1 = sets["U1"] = list(advertised)
    groups, A = await node.compute("groups", drawn_groups, secret, advertised, p, work=len(U1))
    neighbourhoods("keys", node, A, U1, len(U0), r.t)
    node.send_each(await node.compute("ring", key_rings, groups, A, advertised, work=sum(map(len, A.values()))))
    drawn = DrawnGroups(A, groups, advertised, secret, Revealed(r.t, node.world.names))
    await exchanged_shares(node, r, A, U1, sets, secrets=4)
    return drawn


def drawn_groups(secret: bytes, advertised: Mapping[int, AdvertiseKeys], p: Params) -> tuple[list[list[int]], Closed]:
    """(the groups of those who have sent keys, A: see `DrawnGroups`), by the seed of the server and their nonces."""
    seed = group_seed(secret, {i: message.keys[_KEYS:].tobytes() for i, message in advertised.items()})
    groups = draw_groups(seed, list(advertised), p.group)
    return groups, joined(seed, groups, p.partners)


def key_rings(groups: list[list[int]], A: Closed, advertised: Mapping[int, AdvertiseKeys]) -> dict[int, GroupRing]:
    """{client: the keys of its neighbours, and its group}."""
    rings = {}
    for group in groups:
        for i in group:
            near = sorted(A[i])
            rings[i] = GroupRing(id_array(near), np.stack([advertised[j].keys[:_KEYS] for j in near]), id_array(group))
    return rings


async def open_high(node: Node, p: Params, drawn: DrawnGroups, masked: dict[int, MaskedParts],
                    sets: dict[str, list[int]]) -> dict[tuple[int, ...], np.ndarray]:
    """Stage 3: {survivors of a group: sum of their high parts}, of the groups with enough. Fills S."""
    r, A, U2, U3 = rules(p), drawn.A, sets["U2"], sets["U3"]
    neighbourhoods("masked input", node, A, U3, len(U2), r.t)
    left = [tuple(sorted(set(group).intersection(U3))) for group in drawn.groups]
    left = [members for members in left if len(members) >= p.least]
    S = sets["S"] = sorted(i for members in left for i in members)
    if not S:
        raise NotDecodable(f"empty_group: of no group as many as {p.least} have survived")
    inside = of_groups(drawn.groups)
    dropped = [j for j in U2 if j not in masked and not inside[j].isdisjoint(S)]
    node.send_each({i: Unmask(id_array(sorted(A[i].intersection(S))), id_array(sorted(A[i].intersection(dropped))))
                    for i in U3})
    reveals = await node.gather(Reveal, U3, timeout_s=r.deadline_s, accept=shares_of(U2))
    sets["U5"] = list(reveals)
    if p.audit:
        audit_reveals(drawn.revealed, reveals, S, HIGH)
    b, keys = await node.compute("reconstruct", secrets_of, reveals, A, U2, S, dropped, r.t, node.world.names,
                                 p.verify_spare, work=len(U2))
    seeds = await node.compute("agree", dropped_pair_seeds, keys, drawn.advertised, inside, S, node.round, HIGH,
                               work=len(dropped) * p.group)
    found = {}
    for members in left:
        gone = {j: seeds[j] for j in dropped if not inside[j].isdisjoint(members)}
        found[members] = await node.compute("unmask", group_sum, masked, members, b, gone,
                                            work=(len(members) * (1 + len(gone))) * masked[S[0]].high.size)
    return found


async def open_low(node: Node, p: Params, drawn: DrawnGroups, masked: dict[int, MaskedParts],
                   high: dict[tuple[int, ...], np.ndarray], sets: dict[str, list[int]]) -> np.ndarray:
    """Stage 4: the sum over the groups that are not flagged, (d,) uint32. Fills K. Raises NotDecodable."""
    r, A, U2, S = rules(p), drawn.A, sets["U2"], sets["S"]
    flagged = await node.compute("detect", flagged_groups, high, p, work=len(high) * masked[S[0]].low.size)
    K = sets["K"] = sorted(i for members in high if members not in flagged for i in members)
    node.judged(S, K)
    if not K:
        raise NotDecodable("all_rejected: the detector has flagged every group")
    if not connected(A, K):
        raise NotDecodable("inconsistent_sets: the low parts of the groups that are kept would open in pieces")
    dropped = [j for j in U2 if j not in set(K)]
    node.send_each({i: drawn.closing(U2, Unmask(id_array(sorted(A[i].intersection(K))),
                                                id_array(sorted(A[i].intersection(dropped))))) for i in sets["U3"]})
    reveals = await node.gather(RevealLow, sets["U3"], timeout_s=r.deadline_s, accept=shares_of(U2))
    if p.audit:
        audit_reveals(drawn.revealed, reveals, K, LOW)
    needed = [j for j in dropped if not A[j].isdisjoint(K)]
    b, keys = await node.compute("reconstruct", secrets_of, reveals, A, U2, K, needed, r.t, node.world.names,
                                 p.verify_spare, work=len(U2))
    seeds = await node.compute("agree", dropped_pair_seeds, keys, drawn.advertised, A, K, node.round, LOW,
                               work=len(needed) * p.group)
    low = await node.compute("unmask", low_sum, masked, K, b, seeds,
                             work=(len(K) + sum(map(len, seeds.values()))) * masked[K[0]].low.size)
    tops = sum((total for members, total in high.items() if members not in flagged), np.zeros_like(low))
    return np.asarray((tops << np.uint32(p.low_bits)) + low)


def flagged_groups(high: dict[tuple[int, ...], np.ndarray], p: Params) -> set[tuple[int, ...]]:
    """Those that the detector rejects, by the means of their high parts, (G, d)."""
    quantiser = Quantiser(p.clip, p.bits)
    means = np.stack([(total / len(members)) * (1 << p.low_bits) * quantiser.step for members, total in high.items()])
    verdicts = DETECTORS[p.detector](means, p.limit)
    return {members for members, bad in zip(high, verdicts.tolist(), strict=True) if bad}


async def client(node: Node, p: Params) -> None:
    await refusing_client(node, partial(take_part, node, p, rules(p)))


def honest(task: NodeTask, received: Received, j: int) -> Vector:
    """The result of client j's training, before it is quantised and masked, if it follows the protocol."""
    update: Vector = task.local_update(received[Commit].model)[0]
    return update


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    p, errors = params, wrong_cohort(params.fraction, world)
    if errors:
        return errors
    n = cohort_size(p.fraction, world.clients)
    errors = wrong_coding(p, n) + checks.positive(limit=p.limit)
    if not 2 <= p.group <= min(n, 128):
        return [*errors, f"group = {p.group}: expected 2..{min(n, 128)}, of the clients of a round"]
    if p.detector not in DETECTORS:
        errors.append(f'detector = "{p.detector}": expected one of {", ".join(DETECTORS)}')
    if not 2 <= p.least <= p.group:
        errors.append(f"least = {p.least}: expected 2..{p.group}, the clients of a group")
    if not 2 <= rules(p).t <= p.group + p.partners:
        errors.append(f"threshold = {rules(p).t}: expected 2..{p.group + p.partners}, a group and its partners")
    if not 1 <= p.low_bits < p.bits <= p.low_bits + 8:
        errors.append(f"low_bits = {p.low_bits}: expected bits - 8..bits - 1, so that the high parts of a group have "
                      "a sum below 2^16")
    return errors + checks.at_least(0, "0 or more", partners=p.partners)


def warn(params: Params, world: World) -> list[str]:
    """Small groups tell much."""
    return [] if params.group >= 8 else [
        f"group = {params.group}: the high bits of a sum of so few clients say much about each; 8 or more is advised"]


EXAMPLE = example("safelearning", "group: 3, least: 2, audit: true", topology="star, clients: 9", links=(), sections="""
attacks: [{nodes: [client4], update: {name: scale, factor: -20}}]
faults:
  - {node: client2, stage: MaskedParts, drop: true, rounds: 2}
""")

SCHEME = Scheme(
    params=Params, roles={"server": server, "client": client}, messages=(*pairwise.MESSAGES, *split.MESSAGES),
    stateless=("client",), timeouts=("stage_deadline_s",), audits=True, honest=honest, check=check, warn=warn,
    example=EXAMPLE)
