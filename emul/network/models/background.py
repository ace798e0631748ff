"""Background traffic: rates that load a link beside the messages of a scheme, as functions of time.

A `Traffic` is one entry of a scenario. `rate_curve` makes of it the rate on one link or of one flow: a pure function
of the seed, of the entry's key and of the names of the two ends. A curve has steps of whole bit/s; the step of a smooth
one has the exact mean of that time, rounded to 1 bit/s.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from emul.base.streams import generator, key64, uniform_at
from emul.network.models.churn import Law
from emul.network.models.elastic import MessageLaws
from emul.network.models.laws import Exponential, Normal, Pareto, Poisson, UniformLaw
from emul.network.models.pieces import Pieces, earliest
from emul.network.models.profiles import PiecewiseConstant, RateCurve
from emul.network.models.traces import TraceSpec

SINE_STEPS = 144                # of a period, and
RAMP_STEPS = 100                # of a ramp, where the scenario gives no `step`
MOST_STEPS = 100_000            # of one period or one ramp
_MEAN_POINTS = 1000             # quantiles by which the mean of a law cut at 0 and at `most` is estimated


RateLaw: TypeAlias = UniformLaw | Normal | Exponential | Poisson       # of bit/s, cut at 0
StayLaw: TypeAlias = Law | Pareto                                   # of durations in ns


# ---- what an entry says ----

@dataclass(frozen=True, slots=True)
class SineRate:
    """mean + amplitude * sin(2 pi t / period), in steps. step_ns None: 144 steps a period."""

    mean_bps: int
    amplitude_bps: int
    period_ns: int
    step_ns: int | None = None

    @property
    def steps(self) -> int:
        """Steps of one period; the last one may be shorter than the others."""
        return min(SINE_STEPS, self.period_ns) if self.step_ns is None else -(-self.period_ns // self.step_ns)


@dataclass(frozen=True, slots=True)
class RampRate:
    """From one rate to another in `over_ns`, in steps; then it stays. step_ns None: 100 steps."""

    from_bps: int
    to_bps: int
    over_ns: int
    step_ns: int | None = None

    @property
    def steps(self) -> int:
        """Steps of the ramp; the last one may be shorter than the others."""
        return min(RAMP_STEPS, self.over_ns) if self.step_ns is None else -(-self.over_ns // self.step_ns)


@dataclass(frozen=True, slots=True)
class OnOffRate:
    """`rate_bps` and nothing in turn, for times drawn from two laws. It begins on, or `stationary`."""

    rate_bps: int
    on: StayLaw
    off: StayLaw
    stationary: bool = False


@dataclass(frozen=True, slots=True)
class WalkRate:
    """A rate drawn anew from `law` after each time drawn from `every`, cut at 0 and at `most_bps`."""

    every: StayLaw
    law: RateLaw
    most_bps: int | None = None

    def rate(self, u: float) -> int:
        """The rate of a draw u in [0, 1), bit/s."""
        found = max(0, round(self.law.quantile(u)))
        return found if self.most_bps is None else min(found, self.most_bps)


RateSpec: TypeAlias = int | TraceSpec | SineRate | RampRate | OnOffRate | WalkRate


@dataclass(frozen=True, slots=True)
class Traffic:
    """One entry: background traffic on each link that `link` matches, or along the routes of the pairs of `flow`.

    Of both one is given, in the form of a rule's `match`. key: names the entry's draws; no two entries of a scenario
    have the same. for_ns None: it does not end. messages, greedy: elastic traffic, in place of a rate, which is 0 then:
    messages by their laws, or so many flows that never end.
    """

    key: str
    rate: RateSpec
    link: str | None = None
    flow: str | None = None
    name: str | None = None
    at_ns: int = 0
    for_ns: int | None = None
    messages: MessageLaws | None = None
    greedy: int | None = None

    @property
    def elastic(self) -> bool:
        """True if it is of messages or flows, and not a rate."""
        return self.messages is not None or self.greedy is not None

    @property
    def match(self) -> str:
        """The pattern of the links, or of the pairs of vertices."""
        found = self.link if self.link is not None else self.flow
        assert found is not None
        return found


def mean_bps(rate: RateSpec) -> float:
    """The mean of a rate in the long run, bit/s; of a ramp the rate that it ends with."""
    if isinstance(rate, (int, TraceSpec)):
        return float(rate)
    if isinstance(rate, SineRate):
        return float(rate.mean_bps)
    if isinstance(rate, RampRate):
        return float(rate.to_bps)
    if isinstance(rate, OnOffRate):
        on, off = rate.on.mean, rate.off.mean
        return rate.rate_bps * on / (on + off)
    return sum(rate.rate((i + 0.5) / _MEAN_POINTS) for i in range(_MEAN_POINTS)) / _MEAN_POINTS


def is_nothing(rate: RateSpec) -> bool:
    """True if a rate is 0 at all times: such an entry is as if it were not there."""
    if isinstance(rate, (OnOffRate, int)):
        return (rate if isinstance(rate, int) else rate.rate_bps) == 0
    if isinstance(rate, SineRate):
        return rate.mean_bps == 0
    return isinstance(rate, RampRate) and rate.from_bps == rate.to_bps == 0


# ---- curves ----

def rate_curve(entry: Traffic, seed: int, source: str, destination: str) -> RateCurve:
    """The rate of an entry on the link, or of the flow, between these ends."""
    found = _shape(entry, seed, source, destination)
    return found if not entry.at_ns and entry.for_ns is None else _Within(found, entry.at_ns, entry.for_ns)


def _shape(entry: Traffic, seed: int, source: str, destination: str) -> RateCurve:
    rate = entry.rate
    if isinstance(rate, int):
        return PiecewiseConstant([0], [rate])
    if isinstance(rate, TraceSpec):
        return rate.of(seed, source, destination).service()
    if isinstance(rate, SineRate):
        return _sine(rate)
    if isinstance(rate, RampRate):
        return _ramp(rate)
    names = (entry.key, source, destination)
    key = key64(seed, "traffic", *names)
    if isinstance(rate, WalkRate):
        values = key64(seed, "traffic rate", *names)
        return _Renewed(lambda i: rate.every.quantile(uniform_at(key, i)),
                        lambda i: rate.rate(uniform_at(values, i)))
    return _on_off(rate, seed, key, names)


def _on_off(rate: OnOffRate, seed: int, key: int, names: tuple[str, str, str]) -> RateCurve:
    laws = rate.on, rate.off
    begins_off, first = 0, None
    if rate.stationary:
        # The state that time 0 falls into, and what is left of it: of a stay that lasts as those do which a point of
        # time meets (longer ones more often), a uniform share.
        start = key64(seed, "traffic start", *names)
        on, off = rate.on.mean, rate.off.mean
        begins_off = int(uniform_at(start, 0) * (on + off) >= on)
        met = laws[begins_off].biased(uniform_at(start, 1), generator(seed, "traffic met", *names))
        first = met * uniform_at(start, 2)

    def length(i: int) -> float:
        if i == 0 and first is not None:
            return first
        return laws[(i + begins_off) % 2].quantile(uniform_at(key, i))

    return _Renewed(length, lambda i: 0 if (i + begins_off) % 2 else rate.rate_bps)


def _times(steps: int, step_ns: int | None, whole_ns: int) -> list[int]:
    """The times at which steps begin, and the end of the last one."""
    if step_ns is None:
        return [i * whole_ns // steps for i in range(steps + 1)]
    return [*(i * step_ns for i in range(steps)), whole_ns]


def _sine(rate: SineRate) -> PiecewiseConstant:
    times = _times(rate.steps, rate.step_ns, rate.period_ns)
    turn = 2 * math.pi / rate.period_ns
    cosines = [math.cos(turn * t) for t in times]
    rates = [max(0, round(rate.mean_bps + rate.amplitude_bps * (cosines[i] - cosines[i + 1])
                          / (turn * (times[i + 1] - times[i])))) for i in range(rate.steps)]
    return PiecewiseConstant(times[:-1], rates, rate.period_ns)


def _ramp(rate: RampRate) -> PiecewiseConstant:
    times = _times(rate.steps, rate.step_ns, rate.over_ns)
    rise = rate.to_bps - rate.from_bps
    rates = [rate.from_bps + round(rise * (times[i] + times[i + 1]) / (2 * rate.over_ns)) for i in range(rate.steps)]
    return PiecewiseConstant(times, [*rates, rate.to_bps])


class _Within:
    """A curve that begins at a time, and may end: before and after there is nothing."""

    __slots__ = ("_at", "_curve", "_end")

    def __init__(self, curve: RateCurve, at_ns: int, for_ns: int | None):
        self._curve = curve
        self._at = at_ns
        self._end = None if for_ns is None else at_ns + for_ns

    def rate_at(self, t_ns: int) -> int:
        """As a `RateCurve` says; the curve's own time begins at `at_ns`."""
        if t_ns < self._at or (self._end is not None and t_ns >= self._end):
            return 0
        return self._curve.rate_at(t_ns - self._at)

    def next_change(self, t_ns: int) -> int | None:
        """As a `RateCurve` says."""
        if t_ns < self._at:
            return self._at
        if self._end is not None and t_ns >= self._end:
            return None
        change = self._curve.next_change(t_ns - self._at)
        return earliest(self._end, None if change is None else change + self._at)


class _Renewed(Pieces[int]):
    """A `RateCurve` of stays one after the other, each with its length and its rate."""

    __slots__ = ("_length", "_rate")

    def __init__(self, length: Callable[[int], float], rate: Callable[[int], int]):
        super().__init__([], [])
        self._length = length
        self._rate = rate
        self.known_ns = 0

    def _grow(self) -> None:
        begin, number = self.known_ns or 0, len(self.times)
        self.times.append(begin)
        self.values.append(self._rate(number))
        self.known_ns = begin + max(1, round(self._length(number)))

    def rate_at(self, t_ns: int) -> int:
        """As a `RateCurve` says."""
        return self.values[self.place(t_ns)]

    def next_change(self, t_ns: int) -> int | None:
        """As a `RateCurve` says: the end of the stay, also where the next one has the same rate, as that of a walk
        whose law has one value always has."""
        i = self.place(t_ns) + 1
        return self.times[i] if i < len(self.times) else self.known_ns
