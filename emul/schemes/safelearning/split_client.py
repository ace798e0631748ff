"""A client's side of a round with two vectors, opened one after the other. See `split`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

import numpy as np

from emul.primitives.quantise import Quantiser
from emul.protocols.audit import keep_input, keep_revealed
from emul.protocols.demands import Refused, ascending, demand, shaped
from emul.protocols.pairwise.client import exchange_shares, shares_of_peers
from emul.protocols.pairwise.hand import (
    RoundSecrets,
    SharedSecrets,
    asked_shares,
    check_ring,
    new_secrets,
    opened,
    pair_seeds,
    share_secrets,
)
from emul.protocols.pairwise.messages import AdvertiseKeys, KeyRing, Shares, Unmask
from emul.protocols.pairwise.rules import PairwiseRules
from emul.protocols.rounds import train_once
from emul.roles import Node
from emul.schemes.safelearning.groups import NONCE_BYTES
from emul.schemes.safelearning.split import (
    HIGH,
    LOW,
    Commit,
    GroupRing,
    RevealLow,
    UnmaskLow,
    check_draw,
    check_second_request,
    masked_parts,
)


class Splitting(Protocol):
    """The parameters of a scheme that this side needs."""

    @property
    def group(self) -> int: ...
    @property
    def low_bits(self) -> int: ...
    @property
    def bits(self) -> int: ...
    @property
    def clip(self) -> float: ...


async def take_part(node: Node, p: Splitting, r: PairwiseRules) -> None:
    """One round of a client. Raises Refused or ProtocolViolation where the server asks for what would expose
    somebody."""
    i = node.id
    begin = await node.recv(Commit, node.server, timeout_s=r.patience_s,
                            accept=shaped(model=(node.task.dimension,), commitment=(32,)))
    own, nonce = await node.compute("keys", fresh_secrets, node.rng)
    node.send(node.server, AdvertiseKeys(np.concatenate([own.public, np.frombuffer(nonce, np.uint8)])))

    ring = await node.recv(GroupRing, node.server, timeout_s=r.patience_s, accept=of_mine(i, own, node.clients))
    group = ring.group.tolist()
    hand = await node.compute("share", share_secrets, i, own, KeyRing(ring.ids, ring.keys), r.t, node.round, node.rng,
                              work=ring.ids.size)
    U2, boxes = await exchange_shares(node, r, hand)
    update, _ = await train_once(node, begin.model)
    near = {HIGH: set(group).intersection(U2), LOW: set(U2)}
    seeds = await node.compute("agree", both_seeds, i, own, hand, near, node.round,
                               work=len(near[HIGH]) + len(near[LOW]) - 2)
    quantiser = Quantiser(p.clip, p.bits)
    values = await node.compute("quantise", quantiser.quantise, update, work=update.size)
    parts = await node.compute("mask", masked_parts, i, values, p.low_bits, [b for _, b in own.vectors], seeds,
                               work=(len(near[HIGH]) + len(near[LOW])) * update.size)
    if r.audit:
        keep_input(node, values)
    node.send(node.server, parts)
    node.report(clip_fraction=quantiser.clip_fraction(update))
    if boxes is None:
        boxes = await shares_of_peers(node, r, U2)
    await answer(node, p, r, hand, boxes, U2, group, (begin.commitment.tobytes(), nonce))


async def answer(node: Node, p: Splitting, r: PairwiseRules, hand: SharedSecrets, boxes: Mapping[int, Shares],
                 U2: list[int],
                 group: list[int], told: tuple[bytes, bytes]) -> None:
    """Stages 3 and 4, each once. told: the server's commitment, the client's own nonce."""
    i = node.id
    first = await node.recv(Unmask, node.server, timeout_s=r.patience_s)
    opened_ids, gone = first.survivors.tolist(), first.dropped.tolist()
    if set(opened_ids) & set(gone) or not set(opened_ids) | set(gone) <= set(U2) or i in gone:
        raise Refused("inconsistent_sets: both secrets of a client, one of nobody in U2, or mine as of one who is gone")
    held = await node.compute("open", opened, i, hand, boxes, node.round, work=len(boxes))
    node.send(node.server, asked_shares(held, opened_ids, gone, HIGH))
    second = await node.recv(UnmaskLow, node.server, timeout_s=r.patience_s)
    check_second_request(U2, group, opened_ids, gone, second)
    await node.compute("check", check_draw, i, *told, group, p.group, second, work=second.ids.size)
    kept, dropped = second.survivors.tolist(), second.dropped.tolist()
    shares = asked_shares(held, kept, dropped, LOW)
    if r.audit:
        keep_revealed(node, [*((j, 1) for j in opened_ids), *((j, 0) for j in gone), *((j, 3) for j in kept),
                             *((j, 2) for j in dropped)])
    node.send(node.server, RevealLow(shares.ids, shares.shares))


def fresh_secrets(rng: np.random.Generator) -> tuple[RoundSecrets, bytes]:
    """Secrets for two vectors, and a nonce."""
    return new_secrets(rng, 2), rng.bytes(NONCE_BYTES)


def of_mine(i: int, own: RoundSecrets, clients: Collection[int]) -> Callable[[GroupRing], None]:
    """A sound ring of keys, and a group within it that has this client."""
    def accept(ring: GroupRing) -> None:
        check_ring(i, own, KeyRing(ring.ids, ring.keys), list(clients))
        ascending("group", ring.group, ring.ids.tolist())
        demand(i in ring.group, "group: without me")
    return accept


def both_seeds(i: int, own: RoundSecrets, hand: SharedSecrets, near: Mapping[int, Collection[int]], round_: int,
               ) -> list[dict[int, bytes]]:
    """The seeds of the pair masks of the high and of the low part."""
    return [pair_seeds(i, own, hand.peers, near[vector], round_, vector) for vector in (HIGH, LOW)]
