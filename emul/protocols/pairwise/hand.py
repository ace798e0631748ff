"""The draws, shares and reveals of a client of the pairwise protocol: pure functions, and their refusals."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from emul.base.errors import ProtocolViolation
from emul.primitives.crypto import shamir
from emul.primitives.crypto.keys import KEY_BYTES, KeyPair, agree, channel_key, key_pair, mask_seed, seal, unseal
from emul.primitives.crypto.masks import check_reveal, mask_input
from emul.protocols.demands import Refused, ascending, demand, key_table
from emul.protocols.pairwise.messages import (
    KeyRing,
    Reveal,
    Shares,
    Unmask,
    UnmaskWithout,
    channel_public,
    id_array,
    mask_public,
)
from emul.roles import Vector

# (update, number of samples) -> (x_i, (d',) uint32; fraction of the update's values that were clipped)
Encode = Callable[[Vector, int], tuple[np.ndarray, float]]
# (i, b_i, {j: s_ij}, update, number of samples, encode) -> (y_i, in words of 32 or 64 bits; what `encode` says besides)
Masking = Callable[[int, bytes, Mapping[int, bytes], Vector, int, Encode], tuple[np.ndarray, float]]


@dataclass(frozen=True)
class RoundSecrets:
    """The secrets that a client draws anew each round."""

    c: KeyPair                      # of the channels to its neighbours
    s: KeyPair                      # of the pair masks
    b: bytes                        # seed of the self mask
    more: tuple[tuple[KeyPair, bytes], ...] = ()        # s and b of further vectors

    @property
    def vectors(self) -> list[tuple[KeyPair, bytes]]:
        """(s, b) of each vector."""
        return [(self.s, self.b), *self.more]

    @property
    def public(self) -> np.ndarray:
        """(32 (1 + vectors),) uint8, as `AdvertiseKeys` has it."""
        return np.frombuffer(self.c.public + b"".join(s.public for s, _ in self.vectors), np.uint8)


@dataclass(frozen=True)
class SharedSecrets:
    """The shares that a client holds after sharing."""

    peers: dict[int, bytes]         # N_i & U1: s_pk, of one vector after the other
    channels: dict[int, bytes]      # N_i & U1: key of the channel
    boxes: dict[int, np.ndarray]    # N_i & U1: encrypted shares for that neighbour
    kept: bytes                     # own shares of its own secrets


def new_secrets(rng: np.random.Generator, vectors: int = 1) -> RoundSecrets:
    """Fresh ones, from a client's own stream: for emulation only, since who has the scenario's seed has them, too."""
    first = RoundSecrets(key_pair(rng.bytes(KEY_BYTES)), key_pair(rng.bytes(KEY_BYTES)), rng.bytes(KEY_BYTES))
    more = tuple((key_pair(rng.bytes(KEY_BYTES)), rng.bytes(KEY_BYTES)) for _ in range(vectors - 1))
    return RoundSecrets(first.c, first.s, first.b, more)


def check_ring(i: int, own: RoundSecrets, ring: KeyRing, clients: Sequence[int], extra: int = 0) -> None:
    """Figure 4, round 1: keys of clients, all of them different, with one's own as it was sent.

    extra: octets behind the keys of each, such as a signature. Raises ProtocolViolation.
    """
    ascending("ids", ring.ids, clients)
    width = own.public.size
    place = ring.ids.tolist().index(i) if i in ring.ids else None
    key_table("keys", ring.keys[:, :width], len(ring.ids), None if place is None else (place, own.public.tobytes()))
    demand(ring.keys.shape[1] == width + extra, "keys: not as many of each client as it has vectors")


def share_secrets(i: int, own: RoundSecrets, ring: KeyRing, t: int, round_: int,
                  rng: np.random.Generator) -> SharedSecrets:
    """Shares of s_sk and b, of one vector after the other, to A_i & U1, encrypted but for the own one."""
    ids = ring.ids.tolist()
    if i not in ids or len(ids) < t:
        raise Refused(f"keys of {len(ids)} clients{'' if i in ids else ' without my own'}, threshold t = {t}")
    shares = shamir.share([secret for s, b in own.vectors for secret in (s.secret, b)], t, ids, rng)
    channels = {j: channel_key(agree(own.c.secret, channel_public(keys)))
                for j, keys in zip(ids, ring.keys, strict=True) if j != i}
    boxes = {j: np.frombuffer(seal(key, i, j, 0, round_, shares[j]), np.uint8) for j, key in channels.items()}
    vectors = range(len(own.vectors))
    peers = {j: b"".join(mask_public(keys, v) for v in vectors)
             for j, keys in zip(ids, ring.keys, strict=True) if j != i}
    return SharedSecrets(peers, channels, boxes, shares[i])


def require_sharers(i: int, U2: Sequence[int], peers: Collection[int], t: int) -> None:
    """Raises Refused unless U2 is within U1, with this client and at least t in all."""
    if not set(U2) <= {i, *peers} or i not in U2:
        raise Refused(f"inconsistent_sets: U2 = {U2} is not within U1, or without me")
    if len(U2) < t:
        raise Refused(f"{len(U2)} clients in U2, threshold t = {t}")


def pair_seeds(i: int, own: RoundSecrets, peers: Mapping[int, bytes], U2: Collection[int], round_: int,
               vector: int = 0) -> dict[int, bytes]:
    """{j: s_ij} for j in N_i & U2: over U2, not U1, since only there can j's half be taken off again."""
    part = slice(KEY_BYTES * vector, KEY_BYTES * (vector + 1))
    secret = own.vectors[vector][0].secret
    return {j: mask_seed(agree(secret, peers[j][part]), round_) for j in U2 if j != i}


def masked_input(i: int, b: bytes, seeds: Mapping[int, bytes], update: Vector, samples: int, encode: Encode,
                 ) -> tuple[np.ndarray, float]:
    """(y_i, (d',) uint32; fraction of the update's values that were clipped)."""
    x, clipped = encode(update, samples)
    return mask_input(x, i, b, seeds), clipped


def reveal(i: int, hand: SharedSecrets, boxes: Mapping[int, Shares], U2: Sequence[int], request: Unmask, t: int,
           round_: int) -> Reveal:
    """Of survivors the share of b, of the dropped that of s_sk, of nobody both and of nobody else any."""
    survivors, dropped = request.survivors.tolist(), request.dropped.tolist()
    check_survivors(i, U2, survivors, dropped, t)
    return asked_shares(opened(i, hand, boxes, round_), survivors, dropped)


def reveal_without(i: int, held: Mapping[int, bytes], seeds: Mapping[int, bytes], U2: Sequence[int],
                   request: UnmaskWithout, t: int) -> Reveal:
    """As `reveal`, with `receipts`; and of those whose secrets too few hold, the seed of the pair mask with them.

    held: as `opened` gives it. seeds: {j: s_ij}. Of nobody two things: whoever gives the seed has given no share of b.
    """
    survivors, dropped, unheld = (ids.tolist() for ids in (request.survivors, request.dropped, request.unheld))
    if set(dropped) & set(unheld):
        raise Refused("inconsistent_sets: a mask key and the pair mask of one client")
    check_survivors(i, U2, survivors, [*dropped, *unheld], t)
    shares = asked_shares(held, survivors, dropped)
    rows = np.frombuffer(b"".join(seeds[j] for j in unheld), np.uint8).reshape(len(unheld), shamir.SHARE_BYTES)
    return Reveal(np.concatenate([shares.ids, id_array(unheld)]), np.concatenate([shares.shares, rows]))


def check_survivors(i: int, U2: Sequence[int], survivors: Sequence[int], others: Sequence[int], t: int) -> None:
    """Raises Refused, or ProtocolViolation, unless this request unmasks nobody."""
    check_reveal(U2, survivors, others)
    if i not in survivors:
        raise Refused("inconsistent_sets: my own masked input was sent, but I am asked as one who dropped out")
    if len(survivors) < t:
        raise Refused(f"{len(survivors)} clients in U3, threshold t = {t}")


def opened(i: int, hand: SharedSecrets, boxes: Mapping[int, Shares], round_: int) -> dict[int, bytes]:
    """{j: the shares of j's secrets that i holds}, its own among them."""
    held = {i: hand.kept}
    for j, message in boxes.items():
        with contextlib.suppress(ProtocolViolation):            # a broken box is a share that I do not have
            held[j] = unseal(hand.channels[j], j, i, 0, round_, message.box.tobytes())
    return held


def asked_shares(held: Mapping[int, bytes], survivors: Sequence[int], dropped: Sequence[int],
                 vector: int = 0) -> Reveal:
    """Of `survivors` the shares of b, of `dropped` those of s_sk, of one vector, as far as they are held."""
    size = shamir.SHARE_BYTES
    start = 2 * size * vector
    asked = [(j, slice(start + size, start + 2 * size)) for j in survivors]
    asked += [(j, slice(start, start + size)) for j in dropped]
    found = [(j, held[j][part]) for j, part in asked if j in held]
    shares = np.frombuffer(b"".join(share for _, share in found), np.uint8)
    return Reveal(id_array([j for j, _ in found]), shares.reshape(len(found), size))
