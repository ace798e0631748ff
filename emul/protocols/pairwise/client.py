"""A client's side of the pairwise protocol, and what it refuses."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from emul.base.errors import ProtocolFailure, ProtocolViolation
from emul.primitives.crypto import shamir
from emul.primitives.crypto.keys import KEY_BYTES, KeyPair, agree, channel_key, key_pair, mask_seed, seal, unseal
from emul.primitives.crypto.masks import check_reveal, mask_input
from emul.protocols.demands import ascending, demand, key_table, shaped
from emul.protocols.pairwise.messages import (
    AdvertiseKeys,
    Begin,
    KeyRing,
    Masked,
    Reveal,
    Shared,
    Sharers,
    Shares,
    Unmask,
    channel_public,
    id_array,
    mask_public,
)
from emul.protocols.rounds import Train
from emul.roles import Node, Vector

# (update, number of samples) -> (x_i, (d',) uint32; fraction of the update's values that were clipped)
Encode = Callable[[Vector, int], tuple[np.ndarray, float]]


class Refused(ProtocolFailure):
    """A client does not answer what the protocol forbids. Its round is over, the run is not."""


async def pairwise_client(node: Node, t: int, train: Train, encode: Encode, *, deadline_s: float | None) -> None:
    """Rounds of a client, which keeps nothing between them.

    t: shares that give a secret. train: the model -> (update, number of samples). encode: how an update becomes a
    vector of the ring. deadline_s: of a stage at the server; None: until the fates are known.
    """
    # what has been under way for longer than a whole stage could not be answered in time
    patience_s = None if deadline_s is None else 2 * deadline_s
    async for round_ in node.rounds(of=node.server):
        with round_:
            try:
                await take_part(node, t, train, encode, patience_s)
            except ProtocolViolation as e:
                raise Refused(str(e)) from e


async def take_part(node: Node, t: int, train: Train, encode: Encode, patience_s: float | None) -> None:
    """One round. Raises Refused or ProtocolViolation where the server asks for what would unmask somebody."""
    i = node.id
    begin = await node.recv(Begin, node.server, timeout_s=patience_s, accept=shaped(model=(node.task.dimension,)))
    model = begin.model
    own = await node.compute("keys", new_secrets, node.rng)
    node.send(node.server, AdvertiseKeys(own.public))

    ring = await node.recv(KeyRing, node.server, timeout_s=patience_s,
                           accept=lambda ring: check_ring(i, own, ring, node.clients))
    hand = await node.compute("share", share_secrets, i, own, ring, t, node.round, node.rng, work=ring.ids.size)
    for j, box in hand.boxes.items():
        node.send(j, Shares(box))
    node.send(node.server, Shared())

    U2 = (await node.recv(Sharers, node.server, timeout_s=patience_s)).ids.tolist()              # A_i & U2
    require_sharers(i, U2, hand.peers, t)
    update, samples = await train(model)
    seeds = await node.compute("agree", pair_seeds, i, own, hand.peers, U2, node.round, work=len(U2) - 1)
    y, clipped = await node.compute("mask", masked_input, i, own.b, seeds, update, samples, encode,
                                    work=len(U2) * update.size)
    node.send(node.server, Masked(y))
    node.report(clip_fraction=clipped)

    request = await node.recv(Unmask, node.server, timeout_s=patience_s)
    # with deadlines, what has not come by now never will for this round
    boxes = await node.gather(Shares, set(U2) - {i}, timeout_s=None if patience_s is None else 0)
    node.send(node.server, await node.compute("reveal", reveal, i, hand, boxes, U2, request, t, node.round,
                                              work=len(boxes)))


@dataclass(frozen=True)
class Secrets:
    """What a client draws anew each round."""

    c: KeyPair                      # of the channels to its neighbours
    s: KeyPair                      # of the pair masks
    b: bytes                        # seed of the self mask

    @property
    def public(self) -> np.ndarray:
        """(64,) uint8, as `AdvertiseKeys` has it."""
        return np.frombuffer(self.c.public + self.s.public, np.uint8)


@dataclass(frozen=True)
class Hand:
    """What a client holds after sharing."""

    peers: dict[int, bytes]         # N_i & U1: s_pk
    channels: dict[int, bytes]      # N_i & U1: key of the channel
    boxes: dict[int, np.ndarray]    # N_i & U1: encrypted shares for that neighbour
    kept: bytes                     # own shares of its own s_sk and b


def new_secrets(rng: np.random.Generator) -> Secrets:
    """Fresh ones, from a client's own stream: for emulation only, since who has the scenario's seed has them, too."""
    return Secrets(key_pair(rng.bytes(KEY_BYTES)), key_pair(rng.bytes(KEY_BYTES)), rng.bytes(KEY_BYTES))


def check_ring(i: int, own: Secrets, ring: KeyRing, clients: Sequence[int]) -> None:
    """Figure 4, round 1: keys of clients, all of them different, with one's own as it was sent.

    Raises ProtocolViolation.
    """
    ascending("ids", ring.ids, clients)
    place = ring.ids.tolist().index(i) if i in ring.ids else None
    key_table("keys", ring.keys, len(ring.ids), None if place is None else (place, own.public.tobytes()))
    demand(ring.keys.shape[1] == 2 * KEY_BYTES, "keys: not two of each client")


def share_secrets(i: int, own: Secrets, ring: KeyRing, t: int, round_: int, rng: np.random.Generator) -> Hand:
    """Shares of s_sk and b to A_i & U1, encrypted but for the own one."""
    ids = ring.ids.tolist()
    if i not in ids or len(ids) < t:
        raise Refused(f"keys of {len(ids)} clients{'' if i in ids else ' without my own'}, threshold t = {t}")
    shares = shamir.share([own.s.secret, own.b], t, ids, rng)
    channels = {j: channel_key(agree(own.c.secret, channel_public(keys)))
                for j, keys in zip(ids, ring.keys, strict=True) if j != i}
    boxes = {j: np.frombuffer(seal(key, i, j, 0, round_, shares[j]), np.uint8) for j, key in channels.items()}
    peers = {j: mask_public(keys) for j, keys in zip(ids, ring.keys, strict=True) if j != i}
    return Hand(peers, channels, boxes, shares[i])


def require_sharers(i: int, U2: Sequence[int], peers: Collection[int], t: int) -> None:
    """Raises Refused unless U2 is within U1, with this client and at least t in all."""
    if not set(U2) <= {i, *peers} or i not in U2:
        raise Refused(f"inconsistent_sets: U2 = {U2} is not within U1, or without me")
    if len(U2) < t:
        raise Refused(f"{len(U2)} clients in U2, threshold t = {t}")


def pair_seeds(i: int, own: Secrets, peers: Mapping[int, bytes], U2: Sequence[int], round_: int) -> dict[int, bytes]:
    """{j: s_ij} for j in N_i & U2: over U2, not U1, since only there can j's half be taken off again."""
    return {j: mask_seed(agree(own.s.secret, peers[j]), round_) for j in U2 if j != i}


def masked_input(i: int, b: bytes, seeds: Mapping[int, bytes], update: Vector, samples: int, encode: Encode,
                 ) -> tuple[np.ndarray, float]:
    """(y_i, (d',) uint32; fraction of the update's values that were clipped)."""
    x, clipped = encode(update, samples)
    return mask_input(x, i, b, seeds), clipped


def reveal(i: int, hand: Hand, boxes: Mapping[int, Shares], U2: Sequence[int], request: Unmask, t: int,
           round_: int) -> Reveal:
    """Of survivors the share of b, of the dropped that of s_sk, of nobody both and of nobody else any."""
    survivors, dropped = request.survivors.tolist(), request.dropped.tolist()
    check_reveal(U2, survivors, dropped)
    if i not in survivors:
        raise Refused("inconsistent_sets: my own masked input was sent, but I am asked as one who dropped out")
    if len(survivors) < t:
        raise Refused(f"{len(survivors)} clients in U3, threshold t = {t}")
    held = {i: hand.kept}
    for j, message in boxes.items():
        with contextlib.suppress(ProtocolViolation):            # a broken box is a share that I do not have
            held[j] = unseal(hand.channels[j], j, i, 0, round_, message.box.tobytes())
    size = shamir.SHARE_BYTES
    asked = [(j, slice(size, 2 * size)) for j in survivors] + [(j, slice(0, size)) for j in dropped]
    found = [(j, held[j][part]) for j, part in asked if j in held]
    shares = np.frombuffer(b"".join(share for _, share in found), np.uint8)
    return Reveal(id_array([j for j, _ in found]), shares.reshape(len(found), size))
