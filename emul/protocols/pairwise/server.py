"""The server's side of the pairwise protocol."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Protocol

import numpy as np

from emul.base.errors import TooFewClients
from emul.primitives.bft.signing import SIGNATURE_BYTES
from emul.primitives.crypto import shamir
from emul.primitives.crypto.graphs import Closed
from emul.primitives.crypto.keys import KEY_BYTES, SEAL_OVERHEAD_BYTES, agree, mask_seed
from emul.primitives.crypto.masks import Ring, sum_ring, unmask
from emul.primitives.quantise import SumOfUpdates
from emul.protocols.audit import Revealed
from emul.protocols.demands import Demand, ascending, demand, key_table, shaped
from emul.protocols.pairwise.consent import extra_octets
from emul.protocols.pairwise.messages import (
    AdvertiseKeys,
    Consent,
    Consents,
    KeyRing,
    Masked,
    MaskedLacking,
    Reveal,
    Shared,
    Sharers,
    SharesDown,
    SharesUp,
    Survived,
    Unmask,
    UnmaskWithout,
    id_array,
    mask_public,
)
from emul.protocols.pairwise.rules import PairwiseRules
from emul.protocols.sums import Begin, Seen, summing_server
from emul.roles import Message, Node, Vector

# A graph gives the closed neighbourhood A_i = N_i + i of each of the nodes. Equal ones should be one object: its
# members then get one message.
Graph = Callable[[Sequence[int]], Closed]
Sets = dict[str, list[int]]         # as far as the stages are closed: U0, U1, ...
# (masked inputs, {i: b_i}, {j: {i: s_ij}}, words of a number) -> (sum of x_i over U3, masks expanded)
Unmasking = Callable[[Mapping[int, Masked], Mapping[int, bytes], Mapping[int, Mapping[int, bytes]], int],
                     tuple[np.ndarray, int]]


class RevealedShares(Protocol):
    """A message that reveals shares."""

    @property
    def ids(self) -> np.ndarray: ...
    @property
    def shares(self) -> np.ndarray: ...


async def pairwise_server(node: Node, graph: Graph, rules: PairwiseRules, sums: SumOfUpdates, *,
                          fraction: float) -> None:
    """Rounds of the pairwise protocol over any mask graph. A round that fails keeps the model.

    graph: drawn anew each round. sums: how updates are coded. fraction: of the clients, drawn each round.
    """
    await summing_server(node, partial(pairwise_sum, node, graph, rules, sums.extra), sums, fraction=fraction,
                         audit=rules.audit)


async def pairwise_sum(node: Node, graph: Graph, rules: PairwiseRules, extra: int, U0: list[int], model: Vector,
                       seen: Seen,
                    ) -> tuple[np.ndarray, list[int]]:
    """(sum of x_i, (d + extra,) uint32; U3). Fills `seen` with the sets and the masks that were expanded."""
    sets: Sets = seen
    sets["U0"] = U0
    total, seen["expansions"] = await secure_sum(node, U0, graph, rules, Begin(model), model.size + extra, sets)
    return total, sets["U3"]


async def secure_sum(node: Node, U0: list[int], graph: Graph, rules: PairwiseRules, begin: Message, size: int,
                     sets: Sets,
                     unmasking: Unmasking | None = None) -> tuple[np.ndarray, int]:
    """(sum of x_i over U3, (d',) uint32 or uint64 of the ring; masks expanded). Fills `sets` as the stages close.

    begin: opens the round. size: d'. unmasking: of other masks than those of the ring, `unmasked_sum`. Raises
    TooFewClients, naming the stage, below the threshold.
    """
    A, t = graph(U0), rules.t
    node.offer("cohort", U0)
    node.broadcast(U0, begin)

    advertised = await node.gather(AdvertiseKeys, U0, timeout_s=rules.deadline_s,
                                   accept=fresh_keys(2 * KEY_BYTES, extra_octets(rules)))
    U1 = sets["U1"] = surrounded(node, rules, A, list(advertised), KeyRing)
    for members, near in neighbourhoods("keys", node, A, U1, len(U0), t):
        ring = await node.compute("ring", key_ring, advertised, near, work=len(near))
        node.broadcast(members, ring)
    U2 = await exchanged_shares(node, rules, A, U1, sets)

    masked = await masked_inputs(node, rules, A, U2, rules.words * size, sets)
    U3 = sets["U3"] = list(masked)                  # later ones are late: not summed, their b not asked for
    asked = await asked_survivors(node, rules, A, U2, U3, sets)
    unheld = sets.get("unheld", [])
    U2 = [j for j in U2 if j not in unheld]

    reveals = await node.gather(Reveal, asked, timeout_s=rules.deadline_s, accept=shares_of([*U2, *unheld]))
    sets["U5"] = list(reveals)
    if rules.audit:
        audit_reveals(Revealed(t, node.world.names), reveals, U3)
    self_seeds, mask_keys = await node.compute("reconstruct", reconstruct, reveals, A, U2, U3, t, node.world.names,
                                               rules.verify_spare,
                                               work=len(U2))
    pairs = sum(len(A[j].intersection(U3)) for j in mask_keys)
    dropped_seeds = await node.compute("agree", dropped_pair_seeds, mask_keys, advertised, A, U3, node.round,
                                       work=pairs)
    if unheld:
        dropped_seeds = {**dropped_seeds, **revealed_seeds(reveals, A, unheld, U3, node.world.names)}
        pairs += sum(len(dropped_seeds[j]) for j in unheld)
    return await node.compute("unmask", unmasking or unmasked_sum, masked, self_seeds, dropped_seeds, rules.words,
                              work=(len(U3) + pairs) * masked[U3[0]].y.size)


async def exchanged_shares(node: Node, rules: PairwiseRules, A: Closed, U1: list[int], sets: Sets, secrets: int = 2,
                           ) -> list[int]:
    """U2, whose shares are out. Each of it is told whose of its neighbours' are, or gets them.

    secrets: 32-byte shares in a box. Raises TooFewClients.
    """
    if rules.route == "direct":
        shared = await node.gather(Shared, U1, timeout_s=rules.deadline_s)
        U2 = sets["U2"] = surrounded(node, rules, A, list(shared), Sharers)
        for members, near in neighbourhoods("shares", node, A, U2, len(U1), rules.t):
            node.broadcast(members, Sharers(id_array(near)))
        return U2
    size = shamir.SHARE_BYTES * secrets + SEAL_OVERHEAD_BYTES
    bundles = await node.gather(SharesUp, U1, timeout_s=rules.deadline_s, accept=bundle_of(A, U1, size))
    U2 = sets["U2"] = surrounded(node, rules, A, list(bundles), SharesDown)
    neighbourhoods("shares", node, A, U2, len(U1), rules.t)
    bundles = {i: bundles[i] for i in U2}
    forwarded = await node.compute("forward", forwarded_bundles, bundles, A, work=sum(len(A[i]) for i in U2))
    node.send_each(forwarded)
    return U2


async def masked_inputs(node: Node, rules: PairwiseRules, A: Closed, U2: list[int], size: int, sets: Sets,
                        ) -> Mapping[int, Masked]:
    """The messages of U3. With `receipts` U3 is without those whose secrets too few could give back; they are in K,
    `unheld` of `sets`, with such of U2 from whom nothing has come. size: words of an input."""
    if not rules.receipts:
        return await node.gather(Masked, U2, timeout_s=rules.deadline_s, accept=shaped(y=(size,)))
    came = await node.gather(MaskedLacking, U2, timeout_s=rules.deadline_s, accept=lacking_of(A, U2, size))
    lacking = {i: frozenset(m.lacking.tolist()) for i, m in came.items()}
    U3, sets["unheld"] = held_by_enough(A, U2, lacking, rules.t)
    if len(U3) < len(came):
        node.abstain([i for i in came if i not in U3], UnmaskWithout)
    return {i: Masked(came[i].y) for i in U3}


def lacking_of(A: Closed, U2: Sequence[int], size: int) -> Demand:
    """A masked input of `size` words, and some of the sender's neighbours in U2."""
    def accept(message: MaskedLacking) -> None:
        shaped(y=(size,))(message)
        ascending("lacking", message.lacking, sorted(A[message.sender].intersection(U2) - {message.sender}))
    return accept


def held_by_enough(A: Closed, U2: Sequence[int], lacking: Mapping[int, Collection[int]], t: int,
                   ) -> tuple[list[int], list[int]]:
    """(those that have sent a masked input, without K; K, of U2). lacking: of those that have, whose shares they lack.

    A client is in K if a neighbour lacks its shares and fewer than t neighbours hold them; where it has fewer than t
    neighbours left, all of them must hold them. Clients in K leave and hold no shares of others any more, so this is
    repeated until nobody more leaves.

    >>> everybody = frozenset({1, 2, 3, 4})
    >>> held_by_enough(dict.fromkeys(everybody, everybody), [1, 2, 3, 4], {1: [], 2: [1], 3: [1], 4: []}, 2)
    ([2, 3, 4], [1])
    """
    left, unheld = list(lacking), list[int]()
    while True:
        lost = []
        for j in U2:
            near = A[j].intersection(left) - {j}
            holders = [i for i in near if j not in lacking[i]]
            if j not in unheld and len(holders) < min(t, len(near)):
                lost.append(j)
        if not lost:
            return left, sorted(unheld)
        unheld += lost
        left = [i for i in left if i not in lost]


def revealed_seeds(reveals: Mapping[int, Reveal], A: Closed, unheld: Sequence[int], U3: Sequence[int],
                   names: Sequence[str]) -> dict[int, dict[int, bytes]]:
    """{j: {i: s_ij}} for j in K, i in N_j & U3, as i has revealed it. Raises TooFewClients where one has not."""
    shown = {i: dict(zip(reveal.ids.tolist(), reveal.shares, strict=True)) for i, reveal in reveals.items()}
    found: dict[int, dict[int, bytes]] = {}
    for j in unheld:
        near = sorted(A[j].intersection(U3))
        for i in near:
            if j not in shown.get(i, {}):
                raise TooFewClients(f"unmask: {names[i]} has not revealed its pair mask with {names[j]}, whose shares "
                                    "too few hold")
        found[j] = {i: shown[i][j].tobytes() for i in near}
    return found


async def asked_survivors(node: Node, rules: PairwiseRules, A: Closed, U2: list[int], U3: list[int],
                          sets: Sets) -> list[int]:
    """The clients that are asked for shares, U3; or U4, if they have to agree on U3 first. Raises TooFewClients."""
    found = neighbourhoods("masked input", node, A, U3, len(U2), rules.t)
    if rules.receipts:
        unheld = sets["unheld"]
        for members, near in found:
            others = A[members[0]].intersection(U2).difference(U3)
            node.broadcast(members, UnmaskWithout(id_array(near), id_array(sorted(others.difference(unheld))),
                                                  id_array(sorted(others.intersection(unheld)))))
        return U3
    if not rules.active:
        for members, near in found:
            dropped = sorted(A[members[0]].intersection(U2).difference(U3))
            node.broadcast(members, Unmask(id_array(near), id_array(dropped)))
        return U3
    node.broadcast(U3, Survived(id_array(U3)))
    consents = await node.gather(Consent, U3, timeout_s=rules.deadline_s,
                                 accept=shaped(signature=(SIGNATURE_BYTES,)))
    U4 = sets["U4"] = list(consents)
    for members, near in neighbourhoods("consistency", node, A, U4, len(U3), rules.t):
        node.broadcast(members, Consents(id_array(near), np.stack([consents[i].signature for i in near])))
    return U4


def fresh_keys(width: int, extra: int = 0) -> Demand:
    """Sound keys, `width` octets and `extra` others behind, that nobody has advertised before in this round."""
    seen: set[bytes] = set()

    def accept(message: AdvertiseKeys) -> None:
        keys = message.keys[:width]
        key_table("keys", keys.reshape(1, -1), 1)
        shaped(keys=(width + extra,))(message)
        fresh = {keys[at:at + KEY_BYTES].tobytes() for at in range(0, width, KEY_BYTES)}
        demand(not fresh & seen, "keys: those of somebody else")
        seen.update(fresh)
    return accept


def bundle_of(A: Closed, U1: Sequence[int], size: int) -> Demand:
    """A box for each of the sender's neighbours in U1."""
    def accept(message: SharesUp) -> None:
        expected = sorted(A[message.sender].intersection(U1) - {message.sender})
        demand(message.ids.tolist() == expected, "ids: not those of the key ring")
        shaped(boxes=(len(expected), size))(message)
    return accept


def forwarded_bundles(bundles: Mapping[int, SharesUp], A: Closed) -> dict[int, SharesDown]:
    """{i: the boxes of N_i & U2 for i}, in the order of the senders."""
    place = {j: {i: at for at, i in enumerate(bundle.ids.tolist())} for j, bundle in bundles.items()}
    found = {}
    for i in bundles:
        senders = sorted(A[i].intersection(bundles) - {i})
        boxes = [bundles[j].boxes[place[j][i]] for j in senders]
        found[i] = SharesDown(id_array(senders), np.stack(boxes) if boxes else np.zeros((0, 0), np.uint8))
    return found


def audit_reveals(revealed: Revealed, reveals: Mapping[int, RevealedShares], survivors: Sequence[int],
                  vector: int = 0) -> None:
    """Note every share that came. Raises AuditFailed if both secrets of one client have been revealed."""
    alive = set(survivors)
    for holder, reveal in reveals.items():
        for owner in reveal.ids.tolist():
            revealed.note(holder, owner, 2 * vector + (owner in alive))


def shares_of(U2: Sequence[int]) -> Demand:
    """A share for each of the ids, each once, all of U2."""
    def accept(message: Reveal) -> None:
        found = message.ids.tolist()
        demand(len(set(found)) == len(found) and set(found) <= set(U2), "ids: not of U2, or one twice")
        shaped(shares=(len(found), shamir.SHARE_BYTES))(message)
    return accept


def surrounded(node: Node, rules: PairwiseRules, A: Closed, U: list[int], awaited: type[Message]) -> list[int]:
    """U as a stage closes it: with `prune` without those that have fewer than t of it around them, who are told that
    no `awaited` message comes. If nobody were left, all of U."""
    kept = pruned(A, U, rules.t) if rules.prune else U
    if kept and len(kept) < len(U):
        node.abstain([i for i in U if i not in kept], awaited)
    return kept or U


def pruned(A: Closed, U: Sequence[int], t: int) -> list[int]:
    """U without those i of it for which |A_i & U| < t, and again, until there are none.

    >>> pruned({1: frozenset({1, 2, 3}), 2: frozenset({1, 2}), 3: frozenset({1, 3}), 4: frozenset({4})}, [1, 2, 4], 2)
    [1, 2]
    """
    left = list(U)
    while len(kept := [i for i in left if len(A[i].intersection(left)) >= t]) < len(left):
        left = kept
    return left


def neighbourhoods(stage: str, node: Node, A: Closed, U: Sequence[int], asked: int,
                   t: int) -> list[tuple[list[int], list[int]]]:
    """[(clients i of U with one A_i, A_i & U)]: who gets which message. The set of a stage is closed by this.

    Raises TooFewClients unless |A_i & U| >= t for all i of U, and |U| >= t.
    """
    groups: dict[frozenset[int], list[int]] = {}
    for i in U:
        groups.setdefault(A[i], []).append(i)
    found = [(members, sorted(closed.intersection(U))) for closed, members in groups.items()]
    for members, near in found:
        if len(near) < t:
            raise TooFewClients(f"{stage}: {len(U)} of {asked} clients answered, {len(near)} of them around "
                                f"{node.world.names[members[0]]}, threshold t = {t}")
    if len(U) < t:
        raise TooFewClients(f"{stage}: {len(U)} of {asked} clients answered, threshold t = {t}")
    return found


def key_ring(advertised: Mapping[int, AdvertiseKeys], near: Sequence[int]) -> KeyRing:
    """The keys of `near`."""
    return KeyRing(id_array(near), np.stack([advertised[i].keys for i in near]))


def reconstruct(reveals: Mapping[int, Reveal], A: Closed, U2: Sequence[int], U3: Sequence[int],
                t: int, names: Sequence[str], verify: bool = False) -> tuple[dict[int, bytes], dict[int, bytes]]:
    """({i: b_i} for U3, {j: s_sk_j} for the j of U2 - U3 that have a neighbour in U3), 32 bytes each.

    A: who may hold shares of whom, and who has a mask with whom. Raises TooFewClients, naming the secret, if fewer than
    t of its shares came.
    """
    survivors = frozenset(U3)
    dropped = [j for j in U2 if j not in survivors and not A[j].isdisjoint(survivors)]
    return secrets_of(reveals, A, U2, U3, dropped, t, names, verify)


def secrets_of(reveals: Mapping[int, RevealedShares], A: Closed, U2: Sequence[int], alive: Sequence[int],
               dropped: Sequence[int], t: int, names: Sequence[str], verify: bool = False,
               ) -> tuple[dict[int, bytes], dict[int, bytes]]:
    """({i: b_i} of `alive`, {j: s_sk_j} of `dropped`), from shares that those of A have revealed.

    Raises TooFewClients, naming the secret, if fewer than t of its shares came; with `verify` also ProtocolViolation,
    if spare ones do not fit.
    """
    shares: dict[int, dict[int, bytes]] = {j: {} for j in U2}                   # owner -> holder -> share
    for holder, reveal in reveals.items():
        blob = reveal.shares.tobytes()
        for k, owner in enumerate(reveal.ids.tolist()):
            if owner in shares and owner in A[holder]:
                shares[owner][holder] = blob[shamir.SHARE_BYTES * k:shamir.SHARE_BYTES * (k + 1)]
    for secret, owners in (("self mask", alive), ("mask key", dropped)):
        for j in owners:
            if len(shares[j]) < t:
                raise TooFewClients(f"unmask: {len(shares[j])} shares of the {secret} of {names[j]}, threshold t = {t}")
    return (shamir.combine_all({i: shares[i] for i in alive}, t, verify),
            shamir.combine_all({j: shares[j] for j in dropped}, t, verify))


def dropped_pair_seeds(mask_keys: Mapping[int, bytes], advertised: Mapping[int, AdvertiseKeys],
                       A: Closed, U3: Sequence[int], round_: int, vector: int = 0) -> dict[int, dict[int, bytes]]:
    """{j: {i: s_ij}} for j in U2 - U3, i in N_j & U3: those pairs only were left without their other half."""
    return {j: {i: mask_seed(agree(key, mask_public(advertised[i].keys, vector)), round_)
                for i in sorted(A[j].intersection(U3))} for j, key in mask_keys.items()}


def unmasked_sum(masked: Mapping[int, Masked], self_seeds: Mapping[int, bytes],
                 dropped_seeds: Mapping[int, Mapping[int, bytes]], words: int = 1) -> tuple[np.ndarray, int]:
    """(sum of x_i over U3, (d',) of the ring; number of masks expanded). words: 1: Z_2^32, 2: Z_2^64."""
    dtype = np.uint64 if words == 2 else np.uint32
    ys: list[Ring] = [np.ascontiguousarray(m.y).view(dtype) for m in masked.values()]
    total = sum_ring(ys, ys[0].size, dtype)
    return total, unmask(total, self_seeds, dropped_seeds)
