"""Gilbert-Elliott chains over rounds, messages and packets: loss that comes in bursts.

As netem's `gemodel`: at each step a message (or what the unit is) is lost with the probability of the state that the
chain is in, and then the chain may change; it starts in the good state. Stays in a state are drawn whole, geometric,
which is the same law and skips what nobody asks for. Models take two streams: `key` of the states, `loss` of losses.

An index (round, k) names a message whatever a scheme sent before. So the first messages of the rounds are the steps
of one chain over rounds, from which each round's further messages go on; with `per: packet` the packets of a message
go on from its own state in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import numpy as np

from emul.base.streams import uniform_at
from emul.network.models.stays import GeometricStays, Stays, drawn, geometric

_ROUNDS_KEPT = 8                # rounds whose chains are cached
_START = 1 << 121               # the index of the draw of a chain's first state: no other draw has it


@dataclass(frozen=True, slots=True)
class Chain:
    """From good to bad with probability p at each step, back with r; what is lost in which state."""

    p: float
    r: float
    loss_good: float
    loss_bad: float
    stationary: bool = False

    @property
    def bad_share(self) -> float:
        """The stationary probability of the bad state; 0 where neither state is ever left."""
        return self.p / (self.p + self.r) if self.p + self.r else 0.0

    def loss(self, bad: bool) -> float:
        """The probability of loss at a step in the bad, or the good, state."""
        return self.loss_bad if bad else self.loss_good

    def mean_loss(self, packets: int = 1) -> float:
        """P(one of so many steps in a row is a loss), in the stationary state."""
        if not packets:
            return 0.0
        share = np.array([1 - self.bad_share, self.bad_share])
        keep = np.diag([1 - self.loss_good, 1 - self.loss_bad])
        step = np.array([[1 - self.p, self.p], [self.r, 1 - self.r]])
        return float(1 - share @ keep @ np.linalg.matrix_power(step @ keep, packets - 1) @ np.ones(2))

    def stays(self, key: int) -> Stays:
        """The states from step 0 on, drawn from `key`."""
        return self.stays_from(self.stationary and uniform_at(key, _START) < self.bad_share, key, 0)

    def stays_from(self, bad: bool, key: int, prefix: int) -> Stays:
        """The states from one that is given on; stay i is draw number `prefix << 32 | i` of `key`."""
        return Stays(bad, GeometricStays(key, prefix, (self.p, self.r)))


class RoundChain:
    """One step a round: all messages of a round share a fate. In round 0 each message is a step."""

    __slots__ = ("_chain", "_key", "_loss", "_outside", "_stays")

    timeline = None

    def __init__(self, chain: Chain, key: int, loss: int):
        self._chain = chain
        self._key = key
        self._loss = loss
        self._stays = chain.stays(key)
        self._outside: MessageChain | None = None

    def lost(self, start_ns: int, end_ns: int, round: int, k: int, packets: int) -> bool:
        """By the state of step round - 1, for all messages of the round; in round 0 as `MessageChain`."""
        if round == 0:
            if self._outside is None:
                self._outside = MessageChain(self._chain, self._key, self._loss)
            return self._outside.lost(start_ns, end_ns, 0, k, packets)
        return drawn(self._loss, round, self._chain.loss(self._stays.bad(round - 1)))

    def mean_loss(self, packets: int = 1) -> float:
        """Of one step in the stationary state, whatever the number of packets."""
        return self._chain.mean_loss()


class _Walks:
    """The chain over the first messages of rounds, and those that go on from it within the rounds."""

    __slots__ = ("_chain", "_firsts", "_key", "_rounds")

    def __init__(self, chain: Chain, key: int):
        self._chain = chain
        self._key = key
        self._firsts = chain.stays(key)
        self._rounds: dict[int, Stays] = {}

    def bad(self, round: int, k: int) -> bool:
        """The state in which the k-th message of a round finds the link."""
        if k == 0:
            return self._firsts.bad(round)
        walk = self._rounds.get(round)
        if walk is None:
            if len(self._rounds) >= _ROUNDS_KEPT:
                del self._rounds[next(iter(self._rounds))]
            walk = self._chain.stays_from(self._firsts.bad(round), self._key, 1 << 64 | round)
            self._rounds[round] = walk
        return walk.bad(k)


class MessageChain:
    """One step a message."""

    __slots__ = ("_chain", "_loss", "_walks")

    timeline = None

    def __init__(self, chain: Chain, key: int, loss: int):
        self._chain = chain
        self._walks = _Walks(chain, key)
        self._loss = loss

    def lost(self, start_ns: int, end_ns: int, round: int, k: int, packets: int) -> bool:
        """By the state that the k-th message of the round meets; neither times nor packets matter."""
        return drawn(self._loss, 1 << 96 | round << 32 | k, self._chain.loss(self._walks.bad(round, k)))

    def mean_loss(self, packets: int = 1) -> float:
        """Of one step in the stationary state, whatever the number of packets."""
        return self._chain.mean_loss()


class PacketChain:
    """One step a packet; a message is lost with one of its packets."""

    __slots__ = ("_chain", "_key", "_loss", "_walks")

    timeline = None

    def __init__(self, chain: Chain, key: int, loss: int):
        self._chain = chain
        self._walks = _Walks(chain, key)
        self._key = key
        self._loss = loss

    def lost(self, start_ns: int, end_ns: int, round: int, k: int, packets: int) -> bool:
        """True if one of its packets, steps in a row of the chain, is a loss; times do not matter."""
        return self.first_lost(round, k, packets) is not None

    def first_lost(self, round: int, k: int, most: int) -> int | None:
        """The packet (from 0) that would be the first lost of a message of `most` packets; None: none of them."""
        bad, packet, stay, prefix = self._walks.bad(round, k), 0, 0, (1 << 96 | round << 32 | k) << 24
        while packet < most:
            uniform = uniform_at(self._key, prefix | stay)
            length = geometric(uniform, self._chain.r if bad else self._chain.p)
            end = most if length is None else min(most, packet + length)
            fail = geometric(uniform_at(self._loss, prefix | stay), self._chain.loss(bad))
            if fail is not None and packet + fail <= end:
                return packet + fail - 1
            packet, stay, bad = end, stay + 1, not bad
        return None

    def packet_loss(self, round: int, k: int, packets: int) -> np.ndarray:
        """(packets,) the probability of loss in the state that each packet of the message meets."""
        found = np.empty(packets)
        bad, packet, stay, prefix = self._walks.bad(round, k), 0, 0, (1 << 96 | round << 32 | k) << 24
        while packet < packets:
            length = geometric(uniform_at(self._key, prefix | stay), self._chain.r if bad else self._chain.p)
            end = packets if length is None else min(packets, packet + length)
            found[packet:end] = self._chain.loss(bad)
            packet, stay, bad = end, stay + 1, not bad
        return found

    def lost_packets(self, key: int) -> Iterator[int]:
        """The lost ones of many packets in a row, ascending. Draw 0 of the stream `key` is the first state."""
        chain = self._chain
        if not chain.mean_loss():
            return
        bad, begin = uniform_at(key, 0) < chain.bad_share, 0
        for stay in count():
            length = geometric(uniform_at(key, 1 << 64 | stay), chain.r if bad else chain.p)
            end = None if length is None else begin + length
            at, drawn = begin - 1, stay << 64
            while True:
                gap = geometric(uniform_at(key, 1 << 96 | drawn), chain.loss(bad))
                if gap is None or (end is not None and at + gap >= end):
                    break
                at, drawn = at + gap, drawn + 1
                yield at
            if end is None:
                return
            begin, bad = end, not bad

    def mean_loss(self, packets: int = 1) -> float:
        """P(a loss in so many steps in a row), from the stationary state on."""
        return self._chain.mean_loss(packets)


MODELS: dict[str, type[MessageChain] | type[PacketChain] | type[RoundChain]] = {
    "message": MessageChain, "packet": PacketChain, "round": RoundChain}
