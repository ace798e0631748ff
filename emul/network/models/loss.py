"""Outage models: which messages a link loses, as pure functions of names and indices.

A fate is drawn from a stream keyed by (seed, unit, name of the source, name of the destination) at an index that
says what is lost: (round, k) for the k-th message offered in a round, the round, or the slot of virtual time. No
fate depends on other traffic, so schemes on one seed meet the same links (common random numbers). Units and models
have streams of their own: knowing the fates per round says nothing about the fates per message.

A message lasts: what a state that changes with time does to it says `span`. at_start: lost if the link is bad when
the transmission starts; any_slot: if it is bad at any time of it; pause: never, the link transmits only while good.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import expm1, log1p
from typing import Protocol

from emul.base.streams import key64, uniform_at
from emul.network.models import chains
from emul.network.models.outages import (
    AnyOutage,
    FadingSpec,
    GilbertSpec,
    OnOffSpec,
    OutageSpec,
    Span,
    read_trace,
)
from emul.network.models.pieces import Pieces
from emul.network.models.stays import geometric
from emul.network.models.timelines import ChainSlots, Levels, OnOff, Slots, Timeline


class Outage(Protocol):
    """The model that a link asks when a transmission starts."""

    @property
    def timeline(self) -> Timeline | None:
        """For span "pause": when the link transmits. None: it always does."""
        ...

    def lost(self, start_ns: int, end_ns: int, round: int, k: int, packets: int) -> bool:
        """Fate of the k-th message (from 0) offered in `round`, of so many packets, sent from start to end. Pure."""
        ...

    def mean_loss(self, packets: int = 1) -> float:
        """The long-run share of messages of so many packets that is lost, where they take no time."""
        ...


class PerMessage:
    """Each message has a fate of its own, index (round, k)."""

    __slots__ = ("_key", "_p")

    timeline = None

    def __init__(self, spec: OutageSpec, seed: int, src: str, dst: str):
        self._p = spec.p
        self._key = key64(seed, "outage/message", src, dst)

    def lost(self, start_ns: int, end_ns: int, round: int, k: int, packets: int) -> bool:
        """By draw (round, k) alone: neither times nor packets matter."""
        return uniform_at(self._key, (round << 32) | k) < self._p

    def mean_loss(self, packets: int = 1) -> float:
        """p, whatever the number of packets."""
        return self._p


class PerPacket:
    """Each packet is lost alone, and a message with one of them. One draw a message: which packet is the first lost.

    So a message of more packets is lost where one of fewer is: P(lost) = 1 - (1 - p)^packets.
    """

    __slots__ = ("_keep", "_key", "_p")

    timeline = None

    def __init__(self, spec: OutageSpec, seed: int, src: str, dst: str):
        self._p = spec.p
        self._keep = log1p(-spec.p) if spec.p < 1 else float("-inf")
        self._key = key64(seed, "outage/packet", src, dst)

    def lost(self, start_ns: int, end_ns: int, round: int, k: int, packets: int) -> bool:
        """By draw (round, k) against 1 - (1 - p)^packets; times do not matter."""
        return uniform_at(self._key, (round << 32) | k) < -expm1(packets * self._keep)

    def first_lost(self, round: int, k: int, most: int) -> int | None:
        """The packet (from 0) that would be the first lost of a message of `most` packets; None: none of them."""
        u = uniform_at(self._key, (round << 32) | k)
        low, high = 0, most         # lost(packets) is monotone: exactly what `lost` says, whatever the rounding
        if not u < -expm1(high * self._keep):
            return None
        while high - low > 1:
            middle = (low + high) // 2
            if u < -expm1(middle * self._keep):
                high = middle
            else:
                low = middle
        return high - 1

    def packet_loss(self, round: int, k: int, packets: int) -> float:
        """The probability of loss of each packet of the message."""
        return self._p

    def lost_packets(self, key: int) -> Iterator[int]:
        """The lost ones of many packets in a row, ascending: geometric gaps, draws 0, 1, ... of the stream `key`."""
        at, drawn = -1, 0
        while True:
            gap = geometric(uniform_at(key, drawn), self._p)
            assert gap is not None                      # p is above 0
            at, drawn = at + gap, drawn + 1
            yield at

    def mean_loss(self, packets: int = 1) -> float:
        """1 - (1 - p)^packets; 0 without packets."""
        return -expm1(packets * self._keep) if packets else 0.0


class PerRound:
    """All messages of a round share one fate; those of round 0 (outside rounds, unscoped) have one each."""

    __slots__ = ("_fate", "_key", "_p", "_per_message", "_round")

    timeline = None

    def __init__(self, spec: OutageSpec, seed: int, src: str, dst: str):
        self._p = spec.p
        self._key = key64(seed, "outage/round", src, dst)
        self._per_message = PerMessage(spec, seed, src, dst)
        self._round = 0                 # the last round asked for, and its fate: most messages ask for the same
        self._fate = False

    def lost(self, start_ns: int, end_ns: int, round: int, k: int, packets: int) -> bool:
        """By the round's draw; in round 0 as `PerMessage`, by that of (0, k)."""
        if round == 0:
            return self._per_message.lost(start_ns, end_ns, round, k, packets)
        if round != self._round:
            self._round = round
            self._fate = uniform_at(self._key, round) < self._p
        return self._fate

    def mean_loss(self, packets: int = 1) -> float:
        """p, though the messages of a round are lost together."""
        return self._p


class Timed:
    """The state of the link at the time of the transmission decides: slots, on/off, fading, traces of 0 and 1."""

    __slots__ = ("mean", "span", "states", "timeline")

    def __init__(self, states: Timeline, span: Span, mean: float):
        self.states = states
        self.timeline = states if span == "pause" else None
        self.span = span
        self.mean = mean                # the long-run share of time that the link is down

    def lost(self, start_ns: int, end_ns: int, round: int, k: int, packets: int) -> bool:
        """By the state at `start_ns`; span any_slot: in [start, end); span pause: never, for the link waits."""
        if self.timeline is not None:
            return False
        if not self.states.up_at(start_ns):
            return True
        if self.span != "any_slot" or end_ns <= start_ns + 1:
            return False
        change = self.states.next_change(start_ns)      # from up to down
        return change is not None and change < end_ns

    def mean_loss(self, packets: int = 1) -> float:
        """The share of time down, which is that of messages that take no time; 0 with span pause."""
        return 0.0 if self.timeline is not None else self.mean


class TracedLoss:
    """Each message is lost with the probability that a trace gives for its time; one draw a message, (round, k)."""

    __slots__ = ("_key", "span", "steps")

    timeline = None

    def __init__(self, steps: Pieces[float], span: Span, seed: int, src: str, dst: str):
        self.steps = steps
        self.span = span
        self._key = key64(seed, "outage/trace", src, dst)

    def lost(self, start_ns: int, end_ns: int, round: int, k: int, packets: int) -> bool:
        """True if its draw lies below the probability at `start_ns`; span any_slot: the largest in [start, end)."""
        p = self.steps.value_at(start_ns)
        change = self.steps.next_change(start_ns) if self.span == "any_slot" else None
        if self.steps.period_ns is not None:        # a lap has all values
            end_ns = min(end_ns, start_ns + self.steps.period_ns)
        while change is not None and change < end_ns and p < 1:
            p = max(p, self.steps.value_at(change))
            change = self.steps.next_change(change)
        return self.draw(round, k) < p

    def draw(self, round: int, k: int) -> float:
        """The message is lost where the probability is above this."""
        return uniform_at(self._key, (round << 32) | k)

    def mean_loss(self, packets: int = 1) -> float:
        """The trace's mean over time, whatever the span and the number of packets."""
        return self.steps.mean()


def outage(spec: AnyOutage | None, seed: int, src: str, dst: str) -> Outage | None:
    """The model of one direction of a link, None where nothing is ever lost. `spec` is one that `problem` passes."""
    if spec is None:
        return None
    if isinstance(spec, OutageSpec):
        return _bernoulli(spec, seed, src, dst)
    if isinstance(spec, GilbertSpec):
        return _gilbert(spec, seed, src, dst)
    if isinstance(spec, OnOffSpec):
        states = OnOff(key64(seed, "outage/on_off", src, dst), spec.up_ns, spec.down_ns, spec.start)
        return Timed(states, spec.span, spec.down_ns / (spec.up_ns + spec.down_ns))
    if isinstance(spec, FadingSpec):
        return Timed(Slots(key64(seed, "outage/fading", src, dst), spec.p, spec.coherence_ns), spec.span, spec.p)
    steps = read_trace(spec.file, spec.loop)
    if set(steps.values) <= {0, 1}:
        return Timed(Levels(steps), spec.span, steps.mean())
    return TracedLoss(steps, spec.span, seed, src, dst)


def _bernoulli(spec: OutageSpec, seed: int, src: str, dst: str) -> Outage | None:
    if spec.p == 0:
        return None
    if spec.per == "slot":
        assert spec.slot_ns is not None
        return Timed(Slots(key64(seed, "outage/slot", src, dst), spec.p, spec.slot_ns), spec.span, spec.p)
    models: dict[str, type[PerMessage] | type[PerPacket] | type[PerRound]] = {
        "message": PerMessage, "packet": PerPacket, "round": PerRound}
    return models[spec.per](spec, seed, src, dst)


def _gilbert(spec: GilbertSpec, seed: int, src: str, dst: str) -> Outage:
    chain = chains.Chain(spec.p, spec.r, spec.loss_good, spec.loss_bad, spec.start == "stationary")
    key, loss = (key64(seed, f"outage/gilbert/{spec.per}{what}", src, dst) for what in ("", "/loss"))
    if spec.per == "slot":
        assert spec.slot_ns is not None
        states = ChainSlots(loss, chain.stays(key), (spec.loss_good, spec.loss_bad), spec.slot_ns)
        return Timed(states, spec.span, chain.mean_loss())
    return chains.MODELS[spec.per](chain, key, loss)


def lost_at(spec: AnyOutage | None, seed: int, src: str, dst: str, *,
            start_ns: int = 0, end_ns: int | None = None, round: int = 0, k: int = 0, packets: int = 1) -> bool:
    """Fate of one (link, index) without a link: what `Link.offer` draws, for tests and for analysis."""
    model = outage(spec, seed, src, dst)
    return model is not None and model.lost(start_ns, start_ns if end_ns is None else end_ns, round, k, packets)
