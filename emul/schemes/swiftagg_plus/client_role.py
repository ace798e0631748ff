"""A member of a group in the coded-input protocol, with a seat or without."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from emul.base.errors import ProtocolViolation
from emul.primitives.codes.packed import Code, cut, width
from emul.primitives.crypto.keys import SEAL_OVERHEAD_BYTES
from emul.primitives.crypto.prg import SEED_BYTES
from emul.primitives.field import Elements, add, total, uniform
from emul.primitives.quantise import SumOfUpdates
from emul.protocols.audit import keep_input
from emul.protocols.channels import Channels, join
from emul.protocols.demands import Refused, shaped
from emul.protocols.rounds import train_once
from emul.protocols.sums import Begin, refusing_client
from emul.roles import Node, Vector
from emul.schemes.swiftagg_plus.messages import Agreed, Held, Running, Share, Total
from emul.schemes.swiftagg_plus.rules import Seating, SwiftAggRules, bits_of, members_of, seat

# counters of a channel: a client may be a member and a predecessor of the same seat in different rounds only, but
# a nonce should not hang on that
_SHARE, _RUNNING = 0, 1

# (A_g, whom this seat holds) -> whose shares it adds up. Raises Refused to add up none.
Adds = Callable[[Collection[int], Collection[int]], list[int]]


async def coded_input_client(node: Node, rules: SwiftAggRules, adds: Adds) -> None:
    """Rounds of a client, which keeps nothing between them. adds: what a seat adds up."""
    await refusing_client(node, partial(take_part, node, rules, adds))


async def take_part(node: Node, rules: SwiftAggRules, adds: Adds) -> None:
    """One round. Raises Refused or ProtocolViolation where it has to stay silent."""
    code, patience_s = rules.code, rules.stages_s(2)
    begin = await node.recv(Begin, node.server, timeout_s=patience_s, accept=shaped(model=(node.task.dimension,)))
    channels = await join(node, patience_s)
    if len(channels.members) < code.n:
        raise Refused(f"too_few_clients: keys: {len(channels.members)} clients, need {code.n}")
    seating = seat(channels.members, code.n)
    seats = seating.seats(seating.group_of(node.id))
    update, samples = await train_once(node, begin.model)
    hand = await node.compute("code", coded_input, channels, seats, code, rules.codec, update, samples,
                              node.rng.bytes(SEED_BYTES), work=code.n * update.size)
    node.send_each({j: Share(box) for j, box in hand.boxes.items()})
    node.report(clip_fraction=hand.clipped)
    if rules.audit:
        keep_input(node, rules.codec.encode(update, samples)[0])
    if node.id in seats:
        await hold_seat(node, seating, hand, rules, adds)


async def hold_seat(node: Node, seating: Seating, hand: CodedInput, rules: SwiftAggRules, adds: Adds) -> None:
    """From the shares of the group to this sequence's running sum."""
    p, w = rules.code.p, width(node.task.dimension + rules.codec.extra, rules.code.segments)
    g = seating.group_of(node.id)
    group, s = seating.groups[g], seating.seats(g).index(node.id)
    box = shaped(box=(4 * w + SEAL_OVERHEAD_BYTES,))
    got = await node.gather(Share, [j for j in group if j != node.id], timeout_s=rules.deadline_s, accept=box)
    shares = await node.compute("open", opened, hand, got, p, work=len(got) * w)
    node.send(node.server, Held(bits_of(group, shares)))

    answer = await node.recv(Agreed, node.server, timeout_s=rules.stages_s(3))
    running = await node.compute("add", sum_of, shares, adds(members_of(group, answer.members), shares), w, p,
                                 work=len(group) * w)
    if g > 0:
        before = seating.seats(g - 1)[s]
        message = await node.recv(Running, before, timeout_s=rules.stages_s(g + 1), accept=box)
        running = await node.compute("add", passed_on, hand, before, message, running, p, work=w)
    if g + 1 < len(seating.groups):
        after = seating.seats(g + 1)[s]
        node.send(after, Running(hand.channels.seal(after, running, _RUNNING)))
    else:
        node.send(node.server, Total(running))


@dataclass(frozen=True)
class CodedInput:
    """A client's values after it has coded its input."""

    channels: Channels
    boxes: dict[int, np.ndarray]            # for each other seat of its group, encrypted
    kept: Elements | None                   # its own share of its own input, (w,), if it has a seat
    clipped: float                          # fraction of the update's values that were clipped


def coded_input(channels: Channels, seats: tuple[int, ...], code: Code, codec: SumOfUpdates, update: Vector,
                samples: int, seed: bytes) -> CodedInput:
    """The shares of x_i, one a seat."""
    x, clipped = codec.encode(update, samples)
    segments = cut(x, code.segments)
    w = segments.shape[1]
    randomness = uniform(seed, code.randomness * w, code.p).reshape(code.randomness, w)
    shares = code.encode([*segments, *randomness])
    boxes = {j: channels.seal(j, shares[s], _SHARE) for s, j in enumerate(seats) if j != channels.me}
    return CodedInput(channels, boxes, shares[seats.index(channels.me)].copy() if channels.me in seats else None,
                      clipped)


def opened(hand: CodedInput, got: Mapping[int, Share], p: int) -> dict[int, Elements]:
    """{member: its share}, with one's own. A broken box is a share that this seat does not hold."""
    assert hand.kept is not None
    shares = {hand.channels.me: hand.kept}
    for j, message in got.items():
        try:
            shares[j] = hand.channels.open(j, message.box, p, _SHARE)
        except ProtocolViolation:
            continue
    return shares


def sum_of(shares: Mapping[int, Elements], members: Collection[int], w: int, p: int) -> Elements:
    """The sum of these members' shares, (w,)."""
    return total([shares[j] for j in members], w, p)


def passed_on(hand: CodedInput, before: int, message: Running, own: Elements, p: int) -> Elements:
    """The running sum with that of the seat before. Raises ProtocolViolation for a broken box."""
    return add(hand.channels.open(before, message.box, p, _RUNNING), own, p)


def those_agreed(agreed: Collection[int], held: Collection[int]) -> list[int]:
    """A_g. A seat that does not hold all of it stays silent: its sum would be that of another set."""
    if not set(agreed) <= set(held):
        raise Refused("inconsistent_sets: asked for shares that have not come")
    return list(agreed)


def all_held(agreed: Collection[int], held: Collection[int]) -> list[int]:
    """The shares that a seat adds up if it does not wait for an agreement: sequences are then of different sums."""
    return list(held)
