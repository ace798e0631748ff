"""The server's side of the pairwise protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from emul.base.errors import NotDecodable, ProtocolFailure, ProtocolViolation, TooFewClients
from emul.primitives.crypto import shamir
from emul.primitives.crypto.keys import KEY_BYTES, agree, mask_seed
from emul.primitives.crypto.masks import sum_ring, unmask
from emul.protocols.demands import Demand, demand, key_table, shaped
from emul.protocols.pairwise.messages import (
    AdvertiseKeys,
    Begin,
    KeyRing,
    Masked,
    Reveal,
    Shared,
    Sharers,
    Unmask,
    channel_public,
    id_array,
    mask_public,
)
from emul.roles import Node, Vector

# A graph gives the closed neighbourhood A_i = N_i + i of each of the nodes. Equal ones should be one object: its
# members then get one message.
Graph = Callable[[Sequence[int]], Mapping[int, frozenset[int]]]
# (model, sum of x_i over n clients, (d',) uint32; n) -> the next model
AddMean = Callable[[Vector, np.ndarray, int], Vector]


@dataclass
class State:
    model: Vector


async def pairwise_server(node: Node, graph: Graph, t: int, add_mean: AddMean, *, fraction: float,
                          deadline_s: float | None, extra: int = 0) -> None:
    """Rounds of the pairwise protocol over any mask graph. A round that fails keeps the model.

    t: shares that give a secret. fraction: of the clients, drawn each round. deadline_s: of each stage; None: until the
    fates are known. extra: numbers that an x_i has beside those of an update, d' - d.
    """
    s = node.state(State(node.task.initial_parameters()))
    async for round_ in node.rounds():
        with round_:
            sets: dict[str, list[int]] = {}
            try:
                U0 = sets["U0"] = node.sample(node.clients, fraction)
                total, expansions = await secure_sum(node, U0, graph, t, s.model, deadline_s, sets, extra)
                s.model = await node.compute("aggregate", add_mean, s.model, total, len(sets["U3"]), work=total.size)
            except (ProtocolFailure, ProtocolViolation) as e:
                node.report(parameters=s.model, **sizes(sets))
                if isinstance(e, ProtocolViolation):    # shares that make no secret
                    raise NotDecodable(str(e)) from e
                raise
            node.report(parameters=s.model, expansions=expansions, **sizes(sets))


async def secure_sum(node: Node, U0: list[int], graph: Graph, t: int, model: Vector, deadline_s: float | None,
                     sets: dict[str, list[int]], extra: int = 0) -> tuple[np.ndarray, int]:
    """(sum of x_i over U3, (d',) uint32 mod 2^32; masks expanded). Fills `sets` as the stages close.

    Raises TooFewClients, naming the stage, below the threshold.
    """
    A = graph(U0)
    node.offer("cohort", U0)
    node.broadcast(U0, Begin(model))

    advertised = await node.gather(AdvertiseKeys, U0, timeout_s=deadline_s, accept=fresh_pairs())
    U1 = sets["U1"] = list(advertised)
    for members, near in neighbourhoods("keys", node, A, U1, len(U0), t):
        ring = await node.compute("ring", key_ring, advertised, near, work=len(near))
        node.broadcast(members, ring)

    shared = await node.gather(Shared, U1, timeout_s=deadline_s)
    U2 = sets["U2"] = list(shared)
    for members, near in neighbourhoods("shares", node, A, U2, len(U1), t):
        node.broadcast(members, Sharers(id_array(near)))

    masked = await node.gather(Masked, U2, timeout_s=deadline_s, accept=shaped(y=(model.size + extra,)))
    U3 = sets["U3"] = list(masked)                  # what comes from now on is late: not summed, its b not asked for
    for members, near in neighbourhoods("masked input", node, A, U3, len(U2), t):
        dropped = sorted(A[members[0]].intersection(U2).difference(U3))
        node.broadcast(members, Unmask(id_array(near), id_array(dropped)))

    reveals = await node.gather(Reveal, U3, timeout_s=deadline_s, accept=shares_of(U2))
    sets["U5"] = list(reveals)                      # U4 is that of the consistency check
    self_seeds, mask_keys = await node.compute("reconstruct", reconstruct, reveals, A, U2, U3, t, node.world.names,
                                               work=len(U2))
    pairs = sum(len(A[j].intersection(U3)) for j in mask_keys)
    dropped_seeds = await node.compute("agree", dropped_pair_seeds, mask_keys, advertised, A, U3, node.round,
                                       work=pairs)
    return await node.compute("unmask", unmasked_sum, masked, self_seeds, dropped_seeds,
                              work=(len(U3) + pairs) * masked[U3[0]].y.size)


def fresh_pairs() -> Demand:
    """Two sound keys that nobody has advertised before in this round."""
    seen: set[bytes] = set()

    def accept(message: AdvertiseKeys) -> None:
        key_table("keys", message.keys.reshape(1, -1), 1)
        shaped(keys=(2 * KEY_BYTES,))(message)
        pair = {channel_public(message.keys), mask_public(message.keys)}
        demand(not pair & seen, "keys: those of somebody else")
        seen.update(pair)
    return accept


def shares_of(U2: Sequence[int]) -> Demand:
    """A share for each of the ids, each once, all of U2."""
    def accept(message: Reveal) -> None:
        found = message.ids.tolist()
        demand(len(set(found)) == len(found) and set(found) <= set(U2), "ids: not of U2, or one twice")
        shaped(shares=(len(found), shamir.SHARE_BYTES))(message)
    return accept


def neighbourhoods(stage: str, node: Node, A: Mapping[int, frozenset[int]], U: Sequence[int], asked: int,
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


def reconstruct(reveals: Mapping[int, Reveal], A: Mapping[int, frozenset[int]], U2: Sequence[int], U3: Sequence[int],
                t: int, names: Sequence[str]) -> tuple[dict[int, bytes], dict[int, bytes]]:
    """({i: b_i} for U3, {j: s_sk_j} for the j of U2 - U3 that have a neighbour in U3), 32 bytes each.

    Raises TooFewClients, naming the secret, if fewer than t of its shares came.
    """
    shares: dict[int, dict[int, bytes]] = {j: {} for j in U2}                   # owner -> holder -> share
    for holder, reveal in reveals.items():
        blob = reveal.shares.tobytes()
        for k, owner in enumerate(reveal.ids.tolist()):
            if owner in shares and owner in A[holder]:
                shares[owner][holder] = blob[shamir.SHARE_BYTES * k:shamir.SHARE_BYTES * (k + 1)]
    survivors = frozenset(U3)
    dropped = [j for j in U2 if j not in survivors and not A[j].isdisjoint(survivors)]
    for secret, owners in (("self mask", U3), ("mask key", dropped)):
        for j in owners:
            if len(shares[j]) < t:
                raise TooFewClients(f"unmask: {len(shares[j])} shares of the {secret} of {names[j]}, threshold t = {t}")
    return (shamir.combine_all({i: shares[i] for i in U3}, t),
            shamir.combine_all({j: shares[j] for j in dropped}, t))


def dropped_pair_seeds(mask_keys: Mapping[int, bytes], advertised: Mapping[int, AdvertiseKeys],
                       A: Mapping[int, frozenset[int]], U3: Sequence[int], round_: int) -> dict[int, dict[int, bytes]]:
    """{j: {i: s_ij}} for j in U2 - U3, i in N_j & U3: those pairs only were left without their other half."""
    return {j: {i: mask_seed(agree(key, mask_public(advertised[i].keys)), round_)
                for i in sorted(A[j].intersection(U3))} for j, key in mask_keys.items()}


def unmasked_sum(masked: Mapping[int, Masked], self_seeds: Mapping[int, bytes],
                 dropped_seeds: Mapping[int, Mapping[int, bytes]]) -> tuple[np.ndarray, int]:
    """(sum of x_i over U3, (d',) uint32; number of masks expanded)."""
    ys = [m.y for m in masked.values()]
    total = sum_ring(ys, ys[0].size)
    return total, unmask(total, self_seeds, dropped_seeds)


def sizes(sets: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """What a round reports: the sizes of the sets that were closed."""
    return {name: len(members) for name, members in sets.items()}
