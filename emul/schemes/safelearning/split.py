"""Two vectors behind masks of their own, opened one after the other: what SAFELearning adds to the pairwise protocol.

A value v = high 2^l + low. The high parts are masked within small groups, so that a server that is given the self
masks learns group sums of them; the low parts are masked over all groups, so that they open in total alone. Each part
has mask keys and self masks of its own: with one key the step that opens the low parts would give away the pair masks
of a client whose self mask of the high part is known already. Bytes of the arrays in each message, without its header:

    Commit          4 d + 32                        server to each of U0
    AdvertiseKeys   112                             each of U0 to the server: three keys, a nonce of 16
    GroupRing       100 |A_i & U1| + 4 |group|      server to each of U1
    Shares          144; in SharesUp and SharesDown 148 |N_i|
    MaskedParts     6 d                             each of U2 to the server
    UnmaskLow       4 |A_i & U2| + 32 + 20 |U1|     server to each of U3
    RevealLow       36 per share held               each of U3 to the server
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from emul.primitives.crypto.graphs import Closed
from emul.primitives.crypto.masks import mask_input, sum_ring, unmask
from emul.protocols.demands import Refused, demand
from emul.roles import Holds, Message, OctetRows, Octets, Vector, Words
from emul.schemes.safelearning.groups import NONCE_BYTES, commitment, draw_groups, group_seed

HIGH, LOW = 0, 1
Halves = Annotated[np.ndarray, Holds("uint16", 1)]


@dataclass(frozen=True)
class Commit(Message):
    """Server to client: the round is open, and the seed of its groups is chosen."""

    model: Vector                   # (d,) float32
    commitment: Octets              # (32,)


@dataclass(frozen=True)
class GroupRing(Message):
    """Server to client: the keys of A_i & U1, and who of them shares the group."""

    ids: Words                      # (a,), ascending
    keys: OctetRows                 # (a, 96): c_pk, and s_pk of the high and of the low part
    group: Words                    # ascending, the receiver among them


@dataclass(frozen=True)
class MaskedParts(Message):
    """Client to server."""

    high: Halves                    # (d,) mod 2^16
    low: Words                      # (d,) mod 2^32


@dataclass(frozen=True)
class UnmaskLow(Message):
    """Server to client: whose secrets of the low parts to reveal, and how the groups came about."""

    survivors: Words                # A_i & K: of b
    dropped: Words                  # A_i & (U2 - K): of s_sk
    secret: Octets                  # (32,): what the server committed to
    ids: Words                      # U1
    nonces: OctetRows               # (|U1|, 16)


@dataclass(frozen=True)
class RevealLow(Message):
    """Client to server: the shares asked for that the client holds."""

    ids: Words                      # (m,)
    shares: OctetRows               # (m, 32)


MESSAGES = (Commit, GroupRing, MaskedParts, UnmaskLow, RevealLow)


def masked_parts(i: int, values: np.ndarray, low_bits: int, b: Sequence[bytes],
                 seeds: Sequence[Mapping[int, bytes]]) -> MaskedParts:
    """High and low parts of (d,) uint32 values, each behind its own masks; b and seeds of each."""
    high, low = values >> np.uint32(low_bits), values & np.uint32((1 << low_bits) - 1)
    masked = mask_input(high, i, b[HIGH], seeds[HIGH])
    return MaskedParts(masked.astype(np.uint16), mask_input(low, i, b[LOW], seeds[LOW]))    # 2^16 divides 2^32


def group_sum(masked: Mapping[int, MaskedParts], members: Sequence[int], self_seeds: Mapping[int, bytes],
              dropped_seeds: Mapping[int, Mapping[int, bytes]]) -> np.ndarray:
    """Sum of the high parts of `members`, (d,) uint32 below 2^16. dropped_seeds: of the group's dropouts."""
    total = sum_ring((masked[i].high.astype(np.uint32) for i in members), masked[members[0]].high.size)
    unmask(total, {i: self_seeds[i] for i in members}, dropped_seeds)
    return total & np.uint32(0xFFFF)


def low_sum(masked: Mapping[int, MaskedParts], kept: Sequence[int], self_seeds: Mapping[int, bytes],
            dropped_seeds: Mapping[int, Mapping[int, bytes]]) -> np.ndarray:
    """Sum of the low parts of `kept`, (d,) uint32."""
    total = sum_ring((masked[i].low for i in kept), masked[kept[0]].low.size)
    unmask(total, self_seeds, dropped_seeds)
    return total


def of_groups(groups: Sequence[Sequence[int]]) -> Closed:
    """The mask graph of the high parts: each group complete, nothing between them."""
    return {i: frozenset(group) for group in groups for i in group}


def check_second_request(U2: Sequence[int], group: Sequence[int], opened: Sequence[int], first_dropped: Sequence[int],
                         request: UnmaskLow) -> None:
    """The checks that a client makes before it opens low parts. opened: of A_i, whose high parts were. Raises Refused.

    K lies within those; nobody is asked for twice, who dropped out before has not come back, and the client's own group
    is kept as a whole or not at all.
    """
    kept, dropped = set(request.survivors.tolist()), set(request.dropped.tolist())
    if kept & dropped or not kept | dropped <= set(U2):
        raise Refused("inconsistent_sets: both secrets of a client, or one of nobody in U2")
    if not kept <= set(opened) or not set(first_dropped) <= dropped:
        raise Refused("inconsistent_sets: kept without having been opened, or dropped and back")
    mates = set(group).intersection(opened)
    if mates & kept not in (set(), mates):
        raise Refused("inconsistent_sets: my group is split")


def check_draw(i: int, told: bytes, nonce: bytes, group: Sequence[int], size: int, request: UnmaskLow) -> None:
    """The groups were drawn from what the server committed to and the clients' nonces, one's own among them.

    Raises ProtocolViolation or Refused.
    """
    ids = request.ids.tolist()
    demand(request.nonces.shape == (len(ids), NONCE_BYTES), "nonces: not one for each of U1")
    nonces = {j: row.tobytes() for j, row in zip(ids, request.nonces, strict=True)}
    secret = request.secret.tobytes()
    if commitment(secret) != told or nonces.get(i) != nonce:
        raise Refused("inconsistent_sets: the groups' seed is not what was committed to, or lacks my nonce")
    if list(group) not in draw_groups(group_seed(secret, nonces), ids, size):
        raise Refused("inconsistent_sets: my group was not drawn")
