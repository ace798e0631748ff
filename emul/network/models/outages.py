"""Outages: which messages a link loses, as a scenario writes it, and as pure functions of names and indices.

A new law of loss is a specification here (a frozen dataclass, its checks in `problem`) and its model, which `outage`
makes for a direction of a link; `emul.scenario.links` reads it from a file. Chains of states are in `chains`, states
over time in `timelines`.

A fate is drawn from a stream keyed by (seed, unit, name of the source, name of the destination) at an index that
says what is lost: (round, k) for the k-th message offered in a round, the round, or the slot of virtual time. No
fate depends on other traffic, so schemes on one seed meet the same links (common random numbers): of one stream a link,
drawn message by message, a scheme that sends one message more would shift all fates after it. Units and models
have streams of their own: knowing the fates per round says nothing about the fates per message.

A message lasts: what a state that changes with time does to it says `span`. at_start: lost if the link is bad when
the transmission starts; any_slot: if it is bad at any time of it; pause: never, the link transmits only while good.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import expm1, isfinite, log1p
from pathlib import Path
from typing import Literal, Protocol, TypeAlias, get_args

from emul.base import tables
from emul.base.errors import ScenarioError
from emul.base.plain import is_count, is_number
from emul.base.streams import key64, uniform_at
from emul.base.units import format_duration
from emul.network.models import chains
from emul.network.models.pieces import Pieces, too_short
from emul.network.models.stays import geometric
from emul.network.models.timelines import ChainSlots, Levels, OnOff, Slots, Timeline

OutageUnit = Literal["message", "packet", "round", "slot"]
Span = Literal["at_start", "any_slot", "pause"]
UNITS: tuple[str, ...] = get_args(OutageUnit)
SPANS: tuple[str, ...] = get_args(Span)


@dataclass(frozen=True, slots=True)
class OutageSpec:
    """Bernoulli outage: each `per` is lost with probability `p`; `slot_ns` is the slot's length, for `per="slot"`."""

    p: float
    per: OutageUnit = "message"
    slot_ns: int | None = None
    model: Literal["bernoulli"] = "bernoulli"
    span: Span = "at_start"


@dataclass(frozen=True, slots=True)
class GilbertSpec:
    """Gilbert-Elliott, as netem's `gemodel p r 1-h 1-k`: a chain over messages, packets, rounds or slots.

    p: from good to bad, r: from bad to good, at each step; loss_bad = 1-h, loss_good = 1-k: lost in that state. start
    "good", as netem, or "stationary".
    """

    p: float
    r: float
    loss_bad: float = 1.0
    loss_good: float = 0.0
    per: OutageUnit = "message"
    slot_ns: int | None = None
    start: Literal["good", "stationary"] = "good"
    span: Span = "at_start"


@dataclass(frozen=True, slots=True)
class OnOffSpec:
    """Up and down in turn, for exponential times of virtual time with these means."""

    up_ns: int
    down_ns: int
    start: Literal["stationary", "up"] = "stationary"
    span: Span = "at_start"


@dataclass(frozen=True, slots=True)
class FadingSpec:
    """Rayleigh block fading: the channel is drawn anew every `coherence_ns`, the mean of its `snr` (a ratio) is given.

    A block is in outage if the channel cannot carry `efficiency` bit/s/Hz: log2(1 + SNR) < efficiency, with
    probability 1 - exp(-(2^efficiency - 1) / snr).
    """

    coherence_ns: int
    snr: float
    efficiency: float
    span: Span = "at_start"

    @property
    def p(self) -> float:
        """The probability of outage of a block."""
        return -expm1(-(2**self.efficiency - 1) / self.snr)


@dataclass(frozen=True, slots=True)
class LossTraceSpec:
    """A state over time from a CSV file, `t,up` or `t,loss`; with `loop` its last row only says when it begins anew."""

    file: Path
    loop: bool = False
    span: Span = "at_start"


AnyOutage: TypeAlias = OutageSpec | GilbertSpec | OnOffSpec | FadingSpec | LossTraceSpec


# --- what a specification may hold ----------------------------------------------------------------------------------

SPECS = (OutageSpec, GilbertSpec, OnOffSpec, FadingSpec, LossTraceSpec)


def problem(spec: AnyOutage) -> tuple[str, str, str] | None:
    """(field, found, expected) of the first thing wrong with a spec, None where it is sound. Reads a trace's file."""
    found = _values(spec)
    if found is None and spec.span not in SPANS:
        found = "span", repr(spec.span), f"expected one of {', '.join(SPANS)}"
    if found is None and isinstance(spec, (OutageSpec, GilbertSpec)):
        found = _unit(spec)
    if found is None and isinstance(spec, LossTraceSpec):
        found = _trace(spec)
    return found


def _values(spec: AnyOutage) -> tuple[str, str, str] | None:
    """The mistakes in the numbers alone."""
    if isinstance(spec, OutageSpec):
        if spec.model != "bernoulli":
            return "model", repr(spec.model), 'expected "bernoulli"'
        return _probabilities(p=spec.p)
    if isinstance(spec, GilbertSpec):
        if spec.start not in ("good", "stationary"):
            return "start", repr(spec.start), "expected good or stationary"
        return _probabilities(**{"p": spec.p, "r": spec.r, "1-h": spec.loss_bad, "1-k": spec.loss_good})
    if isinstance(spec, OnOffSpec):
        if spec.start not in ("stationary", "up"):
            return "start", repr(spec.start), "expected stationary or up"
        return _durations(up=spec.up_ns, down=spec.down_ns)
    if isinstance(spec, FadingSpec):
        for name, value in (("snr", spec.snr), ("spectral_efficiency", spec.efficiency)):
            if not is_number(value) or not isfinite(value) or value <= 0:
                return name, repr(value), "expected a positive number"
        if spec.efficiency > 1000:
            return "spectral_efficiency", repr(spec.efficiency), "expected bit/s/Hz, at most 1000"
        return _durations(coherence=spec.coherence_ns)
    return None


def _unit(spec: OutageSpec | GilbertSpec) -> tuple[str, str, str] | None:
    if spec.per not in UNITS:
        return "per", repr(spec.per), f"expected one of {', '.join(UNITS)}"
    if spec.per == "slot" and (not isinstance(spec.slot_ns, int) or spec.slot_ns <= 0):
        return "slot", repr(spec.slot_ns), "expected the length of a slot, a positive duration"
    if spec.per != "slot" and spec.slot_ns is not None:
        return "slot", repr(spec.slot_ns), 'is used only with per "slot"'
    if spec.per != "slot" and spec.span != "at_start":
        return "span", repr(spec.span), f'per "{spec.per}" knows no time: is used only with per "slot"'
    return None


def _trace(spec: LossTraceSpec) -> tuple[str, str, str] | None:
    try:
        steps = read_trace(spec.file, spec.loop)
    except ScenarioError as error:
        return ("file", *tables.in_short(error))
    if spec.span == "pause" and not set(steps.values) <= {0, 1}:
        return "span", repr(spec.span), "needs a trace of 0 and 1: with a probability in between nothing can wait"
    return None


def _probabilities(**values: object) -> tuple[str, str, str] | None:
    for name, value in values.items():
        if not is_number(value) or not 0 <= value <= 1:        # refuses NaN, too
            return name, repr(value), "expected a probability in [0, 1]"
    return None


def _durations(**values: object) -> tuple[str, str, str] | None:
    for name, value in values.items():
        if not is_count(value):
            return name, repr(value), "expected a positive duration"
    return None


def read_trace(file: Path, loop: bool) -> Pieces[float]:
    """The probability of loss over time in a CSV file with the columns t and up (0 or 1), or t and loss.

    Raises ScenarioError: no such file, a value that is none, times that do not ascend from 0, with line and column.
    """
    return _read_trace(file, loop, tables.stamp(file))


@lru_cache(maxsize=256)
def _read_trace(file: Path, loop: bool, stamp: tuple[int, int] | None) -> Pieces[float]:
    # once for all the links that a rule matches; a file that has changed is read again
    found = tables.read(file, ("t=s", "up"), ("t=s", "loss"))
    times = found.durations("t")
    values = found.column("up", _up) if found.find("up") else found.shares("loss")
    tables.ascending(found, "t", times)
    if loop and len(times) < 2:
        found.problem(found.rows[0][0], "", "1 row", "expected two or more: with loop the last row says where it ends")
    found.check()
    known, levels = [n for n in times if n is not None], [v for v in values if v is not None]
    if loop and (expected := too_short(known[-1], len(known) - 1)):
        found.problem(found.rows[-1][0], "t", format_duration(known[-1]), f"{expected}: with loop it ends there")
        found.check()
    return Pieces(known[:-1], levels[:-1], known[-1]) if loop else Pieces(known, levels)


def _up(text: str) -> float:
    if text not in ("0", "1"):
        raise ValueError("expected 1 (up) or 0 (down)")
    return float(text == "0")


# --- models ---------------------------------------------------------------------------------------------------------

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
