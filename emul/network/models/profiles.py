"""Rates that vary in time: services that a link asks when what it sends has left.

A `PiecewiseConstant` holds a rate until the next change; it repeats, or its last rate holds for ever. A `CurveProfile`
does the same for a rate that is made of others, whose changes nobody knows beforehand. Work is counted in bit ns/s, an
integer (8e9 of them are a byte), cumulated at every change and searched by bisection: what has left by a time, and when
a size has left, are exact.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import accumulate, compress, islice
from operator import lt, mul, ne, sub
from typing import Protocol

from emul.base.units import END_OF_TIME
from emul.network.linkrecord import BeyondRecord
from emul.network.models.pieces import Pieces

NEVER = END_OF_TIME                 # ns: a time that does not come
WORK_PER_BYTE = 8 * 10**9           # bits a byte times ns a second: bytes * this / (bit/s) is a time in ns
OPPORTUNITY_BYTES = 1500            # of a line of a Mahimahi trace
# A curve that so many changes of its parts leave as it is counts as one that stays: else a link that is always full
# would be asked for ever when it has sent a message.
MOST_UNCHANGED = 1_000_000
_MS = 10**6
_RATE = OPPORTUNITY_BYTES * 8 * 1000        # bit/s: one opportunity a millisecond


class RateCurve(Protocol):
    """A rate over time, in whole bit/s. Pure: nothing depends on what was asked before."""

    def rate_at(self, t_ns: int) -> int:
        """bit/s at a time."""
        ...

    def next_change(self, t_ns: int) -> int | None:
        """The first time after `t_ns` at which the rate may be another one; None: it stays."""
        ...


class VaryingRate(RateCurve, Protocol):
    """A rate that varies in time, as a link asks for it."""

    def finish(self, start_ns: int, size_bytes: int | Fraction) -> int:
        """The time when the last of `size_bytes` has left that begin at `start_ns`, rounded up to ns; NEVER if it never
        does."""
        ...

    def sent_bytes(self, start_ns: int, now_ns: int) -> Fraction:
        """The bytes that leave between two times, exactly."""
        ...


class PiecewiseConstant(Pieces[int]):
    """A `VaryingRate` of given pieces, as `Pieces` says: whole numbers of bit/s, 0 or more."""

    __slots__ = ("_first_lap", "_of_lap", "_work")

    def __init__(self, times_ns: Sequence[int], rates_bps: Sequence[int], period_ns: int | None = None,
                 repeat_from_ns: int = 0):
        if not times_ns or times_ns[0] != 0 or not all(map(lt, times_ns, islice(times_ns, 1, None))):
            raise ValueError("expected times that ascend from 0")
        if len(times_ns) != len(rates_bps) or min(rates_bps) < 0:
            raise ValueError("expected a rate of 0 bit/s or more for every time")
        end = repeat_from_ns + (period_ns or 0)
        count = bisect_left(times_ns, end) if period_ns else len(times_ns)
        changes = [True, *map(ne, islice(rates_bps, 1, count), rates_bps)]
        super().__init__(list(compress(times_ns, changes)), list(compress(rates_bps, changes)), period_ns or None,
                         repeat_from_ns)
        lasts = map(sub, islice(self.times, 1, None), self.times)
        self._work = list(accumulate(map(mul, self.values, lasts), initial=0))      # that could have left before each
        self._first_lap = self._work_in(end) if period_ns else 0                            # work until its end,
        self._of_lap = self._first_lap - self._work_in(repeat_from_ns) if period_ns else 0     # and of each lap

    def _work_in(self, t_ns: int) -> int:
        """The work until a time of the first lap."""
        i = bisect_right(self.times, t_ns) - 1
        return self._work[i] + self.values[i] * (t_ns - self.times[i])

    def work_at(self, t_ns: int) -> int:
        """The work that could have left from 0 to `t_ns`, in bit ns/s."""
        while self.known_ns is not None and self.known_ns <= t_ns:
            self._grow()
        if self.period_ns is None:
            return self._work_in(t_ns)
        t_ns, laps = self._lap(t_ns)
        return self._work_in(t_ns) + laps * self._of_lap

    def time_of(self, work: int | Fraction) -> int:
        """The first whole ns by which `work` could have left; NEVER if it never can."""
        if work <= 0:
            return 0
        while (self.known_ns is not None
               and self._work[-1] + self.values[-1] * (self.known_ns - self.times[-1]) < work):
            self._grow()
        shift = 0
        if self.period_ns is not None and work > self._first_lap:
            if not self._of_lap:
                return NEVER
            laps = -((self._first_lap - work) // self._of_lap)      # ceil
            work -= laps * self._of_lap
            shift = laps * self.period_ns
        i = bisect_left(self._work, work) - 1
        if not self.values[i]:                              # the last one: the others are followed by more work
            return NEVER
        return min(NEVER, shift + self.times[i] - int((self._work[i] - work) // self.values[i]))

    def rate_at(self, t_ns: int) -> int:
        """As a `RateCurve` says."""
        return self.values[self.place(t_ns)]

    def finish(self, start_ns: int, size_bytes: int | Fraction) -> int:
        """As a `VaryingRate` says; what has no bytes leaves at once."""
        if size_bytes <= 0:
            return start_ns
        return self.time_of(self.work_at(start_ns) + size_bytes * WORK_PER_BYTE)

    def sent_bytes(self, start_ns: int, now_ns: int) -> Fraction:
        """As a `VaryingRate` says."""
        return Fraction(self.work_at(now_ns) - self.work_at(start_ns), WORK_PER_BYTE)

    @property
    def mean_bps(self) -> float:
        """Of the repeated stretch; of one whose last rate holds, that rate."""
        return self._of_lap / self.period_ns if self.period_ns is not None else float(self.values[-1])


class Begun:
    """A `VaryingRate`: a profile that repeats itself, as it goes on from `start_ns` of it. It keeps no pieces."""

    __slots__ = ("_profile", "_start_ns")

    def __init__(self, profile: PiecewiseConstant, start_ns: int):
        self._profile, self._start_ns = profile, start_ns

    def rate_at(self, t_ns: int) -> int:
        """As a `RateCurve` says."""
        return self._profile.rate_at(self._start_ns + t_ns)

    def next_change(self, t_ns: int) -> int | None:
        """As a `RateCurve` says."""
        found = self._profile.next_change(self._start_ns + t_ns)
        return None if found is None else found - self._start_ns

    def finish(self, start_ns: int, size_bytes: int | Fraction) -> int:
        """As a `VaryingRate` says; what has no bytes leaves at once."""
        found = self._profile.finish(self._start_ns + start_ns, size_bytes)
        return NEVER if found >= NEVER else found - self._start_ns

    def sent_bytes(self, start_ns: int, now_ns: int) -> Fraction:
        """As a `VaryingRate` says."""
        return self._profile.sent_bytes(self._start_ns + start_ns, self._start_ns + now_ns)

    @property
    def mean_bps(self) -> float:
        """Of a lap."""
        return self._profile.mean_bps


class CurveProfile(PiecewiseConstant):
    """Any curve as a `VaryingRate`: its pieces are found as far as they are asked for, and kept, 100 B each."""

    __slots__ = ("_curve", "_unchanged")

    def __init__(self, curve: RateCurve):
        super().__init__([0], [curve.rate_at(0)])
        self._curve = curve
        self._unchanged = 0
        self.known_ns = curve.next_change(0)

    def next_change(self, t_ns: int) -> int | None:
        """As a `VaryingRate` says. Where the curve is a record's that ends, which says no rate from there on, its end
        is a change."""
        if self.known_ns is not None and self.known_ns <= t_ns:
            self.place(t_ns)
        times = self.times
        i = bisect_right(times, t_ns)
        while i == len(times):
            if self.known_ns is None:
                return None
            try:
                self._grow()
            except BeyondRecord:
                return self.known_ns
        return times[i]

    def _grow(self) -> None:
        at = self.known_ns
        assert at is not None
        rate = self._curve.rate_at(at)
        self.known_ns = self._curve.next_change(at)
        if rate == self.values[-1]:
            self._unchanged += 1
            if self._unchanged >= MOST_UNCHANGED:
                self.known_ns = None
            return
        self._unchanged = 0
        self._work.append(self._work[-1] + self.values[-1] * (at - self.times[-1]))
        self.times.append(at)
        self.values.append(rate)


def opportunities(stamps_ms: Sequence[int]) -> PiecewiseConstant:
    """The service of a Mahimahi trace, one stamp a line: they do not descend, and the last is above 0.

    A line is a chance to send 1,500 bytes, as Mahimahi's documentation has it (its code, link_queue.cc, takes 1,504: a
    packet and the header of its TUN device). Its capacity is spread over the millisecond that ends at the stamp. So by
    every whole millisecond exactly Mahimahi's bytes have left, messages share opportunities and a message may span
    several, and what is not used is gone. The trace begins anew at its last stamp (`base += last_timestamp`): lines
    stamped 0 then count at the end of the lap before. In the first lap, before which there is nothing, they count in
    its first millisecond.
    """
    # A list of instants would give the service a state, because messages that share an instant must know how much of it
    # is left, and every change of plan would have to restore it. Of a rate, the end of a message follows from its begin
    # and its size (`test_f24_bytes_are_1500_times_the_opportunities_until_then`).
    length = stamps_ms[-1]
    counts = Counter(stamps_ms)
    at_zero = counts.pop(0, 0)
    counts[length] += at_zero
    if not at_zero:
        return PiecewiseConstant(*bins(counts, 1, length), length * _MS)
    # the first millisecond once, with what is stamped 0; then the milliseconds 2 .. length and 1 again and again
    times, rates = bins({**counts, length + 1: counts[1]}, 2, length + 1)
    return PiecewiseConstant([0, *(t + _MS for t in times)], [(counts[1] + at_zero) * _RATE, *rates], length * _MS, _MS)


def bins(counts: Mapping[int, int], first: int, last: int) -> tuple[list[int], list[int]]:
    """(times ns, rates bit/s) of the milliseconds that end at `first` .. `last`, with so many opportunities each; the
    first of them begins at 0."""
    times, rates = [0], [0]
    for stamp in sorted(stamp for stamp, count in counts.items() if count and first <= stamp <= last):
        begin = (stamp - first) * _MS
        if times[-1] == begin:
            times.pop()
            rates.pop()
        times += [begin, begin + _MS]
        rates += [counts[stamp] * _RATE, 0]
    if len(times) > 1 and times[-1] == (last - first + 1) * _MS:
        times.pop()
        rates.pop()
    return times, rates
