"""A client's side of the coded-mask protocol, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from emul.primitives.codes.packed import Code, cut, width
from emul.primitives.crypto.keys import SEAL_OVERHEAD_BYTES
from emul.primitives.crypto.prg import SEED_BYTES
from emul.primitives.field import Elements, add, subtract, total, uniform
from emul.primitives.quantise import SumOfUpdates
from emul.protocols.audit import keep_input
from emul.protocols.channels import Channels, ids_of, join
from emul.protocols.coded_mask.messages import (
    Answer,
    Coded,
    Masked,
    Relayed,
    Share,
    Shared,
    Sharers,
    Survivors,
    joined,
)
from emul.protocols.coded_mask.rules import CodedMaskRules, Route
from emul.protocols.demands import Demand, Refused, ascending, shaped
from emul.protocols.rounds import train_once
from emul.protocols.sums import Begin, refusing_client
from emul.roles import Node, Vector

# (U2 without this client; sender -> its box) -> whose shares to add up. Raises Refused to answer nothing.
Holds = Callable[[Collection[int], Mapping[int, np.ndarray]], list[int]]


async def coded_mask_client(node: Node, rules: CodedMaskRules, holds: Holds | None = None) -> None:
    """Rounds of a client, which keeps nothing between them.

    holds: what a holder does that lacks a share; None: it stays silent, as it must.
    """
    await refusing_client(node, partial(take_part, node, rules, holds or all_of_them))


async def take_part(node: Node, rules: CodedMaskRules, holds: Holds) -> None:
    """One round. Raises Refused or ProtocolViolation where the server asks for what the protocol forbids."""
    code, patience_s, size = rules.code, rules.patience_s, node.task.dimension + rules.codec.extra
    begin = await node.recv(Begin, node.server, timeout_s=patience_s, accept=shaped(model=(node.task.dimension,)))
    channels = await join(node, patience_s)
    require("keys", len(channels.members), code.need)
    hand = await node.compute("code", coded_mask, channels, code, size, node.rng.bytes(SEED_BYTES),
                              node.rng.bytes(SEED_BYTES), work=len(channels.members) * size)
    way = WAYS[rules.route](node, hand, patience_s)
    way.send()
    if rules.offline:
        update, samples = await train_once(node, begin.model)
        U1 = await way.sharers()
    else:
        U1 = await way.sharers()
        update, samples = await train_once(node, begin.model)
    require("shares", len(U1) + 1, code.need)
    y, clipped = await node.compute("mask", masked_input, hand.mask, update, samples, rules.codec, code.p, work=size)
    node.send(node.server, Masked(y))
    node.report(clip_fraction=clipped)
    if rules.audit:
        keep_input(node, subtract(y, hand.mask, code.p))

    survivors = await node.recv(Survivors, node.server, timeout_s=patience_s)
    U2 = others_in(survivors.ids.tolist(), node.id, U1, code.need)
    boxes = await way.boxes(U2)
    node.send(node.server, await node.compute("answer", answer, hand, boxes, U2, holds, code.p,
                                              work=(len(U2) + 1) * hand.kept.size))


@dataclass(frozen=True)
class CodedMask:
    """The shares and boxes of a client after coding its mask."""

    channels: Channels
    mask: Elements                          # z_i, (d',)
    boxes: dict[int, np.ndarray]            # for each other, encrypted
    kept: Elements                          # its own share of its own mask, (w,)


def coded_mask(channels: Channels, code: Code, size: int, mask_seed: bytes, code_seed: bytes) -> CodedMask:
    """A fresh mask and its shares. A member's place in the code is its place among those that sent keys."""
    mask = uniform(mask_seed, size, code.p)
    w = width(size, code.segments)
    randomness = uniform(code_seed, code.randomness * w, code.p).reshape(code.randomness, w)
    shares = code.encode([*cut(mask, code.segments), *randomness])
    boxes = {j: channels.seal(j, shares[place]) for place, j in enumerate(channels.members) if j != channels.me}
    return CodedMask(channels, mask, boxes, shares[channels.members.index(channels.me)].copy())


def masked_input(mask: Elements, update: Vector, samples: int, codec: SumOfUpdates, p: int) -> tuple[Elements, float]:
    """(y_i, (d',) uint32; fraction of the update's values that were clipped)."""
    x, clipped = codec.encode(update, samples)
    return add(x, mask, p), clipped


def require(stage: str, have: int, need: int) -> None:
    """Raise Refused below `need`: fewer clients than these would hide an update badly, and could not decode."""
    if have < need:
        raise Refused(f"too_few_clients: {stage}: {have} clients, need {need}")


def others_in(U2: Sequence[int], me: int, U1: Collection[int], need: int) -> list[int]:
    """U2 without this client. Raises Refused unless it is within U1, with this client and at least `need` in all."""
    if len(set(U2)) < len(U2) or me not in U2 or not {*U2} <= {me, *U1}:
        raise Refused("inconsistent_sets: U2 is not within U1, without me, or names one twice")
    require("masked input", len(U2), need)
    return [i for i in U2 if i != me]


# --- the way of the shares ------------------------------------------------------------------------------------------

class ThroughServer:
    """All shares of a client in one message, up to the server and down from it."""

    def __init__(self, node: Node, hand: CodedMask, patience_s: float | None):
        self._node, self._hand, self._patience_s = node, hand, patience_s
        self._boxes: dict[int, np.ndarray] = {}

    def send(self) -> None:
        """The shares of this client's mask."""
        boxes = self._hand.boxes
        self._node.send(self._node.server, Coded(ids_of(list(boxes)), joined(list(boxes.values()))))

    async def sharers(self) -> Collection[int]:
        """U1 without this client, as the server says. Raises ProtocolFailure if it says nothing."""
        got = await self._node.recv(Relayed, self._node.server, timeout_s=self._patience_s,
                                    accept=boxes_of(self._hand))
        self._boxes = dict(zip(got.ids.tolist(), got.boxes, strict=True))
        return self._boxes

    async def boxes(self, U2: Sequence[int]) -> Mapping[int, np.ndarray]:
        """The shares that have come from each of U2."""
        return {i: self._boxes[i] for i in U2}


class BetweenClients:
    """Each share in a message of its own, straight to its holder. One that is lost is missing."""

    def __init__(self, node: Node, hand: CodedMask, patience_s: float | None):
        self._node, self._hand, self._patience_s = node, hand, patience_s

    def send(self) -> None:
        """The shares of this client's mask."""
        self._node.send_each({j: Share(box) for j, box in self._hand.boxes.items()})
        self._node.send(self._node.server, Shared())

    async def sharers(self) -> Collection[int]:
        """U1 without this client, as the server says. Raises ProtocolFailure if it says nothing."""
        got = await self._node.recv(Sharers, self._node.server, timeout_s=self._patience_s)
        return others_in(got.ids.tolist(), self._node.id, self._hand.boxes, 1)

    async def boxes(self, U2: Sequence[int]) -> Mapping[int, np.ndarray]:
        """The shares that have come from each of U2."""
        size = 4 * self._hand.kept.size + SEAL_OVERHEAD_BYTES
        # with deadlines, what has not come by now never will for this round
        got = await self._node.gather(Share, U2, timeout_s=None if self._patience_s is None else 0,
                                      accept=shaped(box=(size,)))
        return {i: message.box for i, message in got.items()}


WAYS: Mapping[Route, type[ThroughServer] | type[BetweenClients]] = {"server": ThroughServer, "direct": BetweenClients}


def boxes_of(hand: CodedMask) -> Demand:
    """A box from each of some others."""
    def accept(message: Relayed) -> None:
        ascending("ids", message.ids, list(hand.boxes))
        shaped(boxes=(len(message.ids), 4 * hand.kept.size + SEAL_OVERHEAD_BYTES))(message)
    return accept


# --- a holder's answer ------------------------------------------------------------------------------------------------

def answer(hand: CodedMask, boxes: Mapping[int, np.ndarray], U2: Collection[int], holds: Holds, p: int) -> Answer:
    """The sum of the shares of U2 that this client holds. Raises Refused, or ProtocolViolation for a broken one."""
    shares = [hand.channels.open(i, boxes[i], p) for i in holds(U2, boxes)]
    return Answer(total([hand.kept, *shares], hand.kept.size, p))


def all_of_them(U2: Collection[int], boxes: Mapping[int, np.ndarray]) -> list[int]:
    """A holder that lacks a share stays silent: its sum would be that of another set."""
    lacking = [i for i in U2 if i not in boxes]
    if lacking:
        raise Refused(f"inconsistent_sets: {len(lacking)} shares of U2 have not come")
    return list(U2)


def those_that_came(U2: Collection[int], boxes: Mapping[int, np.ndarray]) -> list[int]:
    """The sum of a naive holder: its answer is of another set, and the sum decoded from it is wrong."""
    return [i for i in U2 if i in boxes]
