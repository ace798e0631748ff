"""The rate that background traffic leaves of a link: max(0, c(t) - sum of b(t)), and what the traffic got itself.

Background traffic with a rate is served first and never reacts: packets of it lie between those of the messages. The
excess over the link's rate c is dropped and leaves no backlog.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from emul.network.models.pieces import earliest
from emul.network.models.profiles import WORK_PER_BYTE, CurveProfile, PiecewiseConstant, RateCurve, VaryingRate

Own = VaryingRate | int | float | None          # the rate of a link itself; None: infinite


class _Left:
    """A `RateCurve`: what `load` leaves of a link's `own` rate."""

    __slots__ = ("_load", "_own")

    def __init__(self, own: VaryingRate, load: RateCurve):
        self._own = own
        self._load = load

    def rate_at(self, t_ns: int) -> int:
        return max(0, self._own.rate_at(t_ns) - self._load.rate_at(t_ns))

    def next_change(self, t_ns: int) -> int | None:
        own = self._own.next_change(t_ns)
        if own is None and self._own.rate_at(t_ns) == 0:    # as after the last contact: no load changes that any more
            return None
        return earliest(own, self._load.next_change(t_ns))


class Residual(CurveProfile):
    """A `VaryingRate`: what `load` leaves of a link's `own` rate."""

    __slots__ = ()

    def __init__(self, own: VaryingRate, load: RateCurve):
        super().__init__(_Left(own, load))


@dataclass(frozen=True, slots=True)
class LoadEntry:
    """One entry's traffic on one link: the entry's name, its rate, and the mean of that in the long run."""

    entry: str
    curve: RateCurve
    mean_bps: float = 0.0


@dataclass(frozen=True, slots=True)
class CarriedTraffic:
    """One entry's traffic on one link by the end of a run, in whole bytes: offered = carried + dropped."""

    entry: str
    offered_bytes: int
    carried_bytes: int
    dropped_bytes: int


class LinkLoad:
    """All background traffic on one link. A `RateCurve`.

    `own` is the link's own rate. A fault changes it with `set_own`; while the link is down nothing is carried.
    """

    __slots__ = ("_last", "_own", "_past", "entries")

    def __init__(self, entries: Sequence[LoadEntry], own: Own):
        self.entries = entries
        self._own = own
        self._last: tuple[Own, Residual | None] | None = None
        self._past: list[tuple[int, bool, Own]] = [(0, False, own)]       # from when on: down, and the own rate

    def rate_at(self, t_ns: int) -> int:
        """bit/s of all entries together."""
        return sum(one.curve.rate_at(t_ns) for one in self.entries)

    def next_change(self, t_ns: int) -> int | None:
        """As a `RateCurve` says."""
        found = None
        for one in self.entries:
            found = earliest(found, one.curve.next_change(t_ns))
        return found

    def residual(self, own: Own | str) -> Residual | None:
        """The rate that is left of `own`; "profile": of the rate as built; None: of an infinite one, all of it."""
        rate = self._rate(own)
        if self._last is None or self._last[0] != rate:         # most faults change something else
            varying = varying_rate(rate)
            self._last = rate, None if varying is None else Residual(varying, self)
        return self._last[1]

    def _rate(self, own: Own | str) -> Own:
        return self._own if own == "profile" else None if isinstance(own, str) else own

    def set_own(self, now_ns: int, down: bool, own: Own | str) -> None:
        """From `now_ns` on the link is down, or has this own rate: told of each fault, for what it carried."""
        rate = self._rate(own)
        if self._past[-1][1:] != (down, rate):
            self._past.append((now_ns, down, rate))

    def carried(self, end_ns: int) -> list[CarriedTraffic]:
        """The fate of each entry's traffic by `end_ns`. The excess over the rate is dropped of all in proportion."""
        offered, dropped = [0] * len(self.entries), [0] * len(self.entries)
        for i, (begin, down, own) in enumerate(self._past):
            end = min(end_ns, self._past[i + 1][0]) if i + 1 < len(self._past) else end_ns
            varying = varying_rate(0 if down else own)
            t: int | None = begin
            while t is not None and t < end:
                change = earliest(self.next_change(t), None if varying is None else varying.next_change(t))
                until = end if change is None else min(end, change)
                self._add(t, until, None if varying is None else varying.rate_at(t), offered, dropped)
                t = until
        found = []
        for one, work, lost in zip(self.entries, offered, dropped, strict=True):
            whole = work // WORK_PER_BYTE
            gone = min(whole, (lost + WORK_PER_BYTE // 2) // WORK_PER_BYTE)
            found.append(CarriedTraffic(one.entry, whole, whole - gone, gone))
        return found

    def _add(self, t_ns: int, until_ns: int, own_bps: int | None, offered: list[int], dropped: list[int]) -> None:
        """Add a stretch of constant rates, in bit ns/s."""
        rates = [one.curve.rate_at(t_ns) for one in self.entries]
        total = sum(rates)
        excess = 0 if own_bps is None else max(0, total - own_bps)
        for i, rate in enumerate(rates):
            offered[i] += rate * (until_ns - t_ns)
            if excess:
                dropped[i] += rate * (until_ns - t_ns) * excess // total


def varying_rate(own: Own) -> VaryingRate | None:
    """A link's own rate as one that varies; None: infinite."""
    if own is None:
        return None
    return PiecewiseConstant([0], [round(own)]) if isinstance(own, (int, float)) else own


class TimeLeft:
    """The share of a medium's time that background traffic leaves: each bit takes its link's time. Piecewise constant.

    loads: (traffic, the rate at which its link sends, seconds a bit that packets cost beside their bits).
    """

    __slots__ = ("_loads",)

    def __init__(self, loads: Sequence[tuple[LinkLoad, VaryingRate, float]]):
        self._loads = loads

    def rate_at(self, t_ns: int) -> float:
        """The share from `t_ns` on, 0 or more. A link without a rate sends nothing, and takes no time."""
        taken = 0.0
        for load, own, packet_s in self._loads:
            rate = own.rate_at(t_ns)
            if rate:
                taken += load.rate_at(t_ns) * (1 / rate + packet_s)
        return max(0.0, 1.0 - taken)

    def next_change(self, t_ns: int) -> int | None:
        """The first time after `t_ns` at which the share may be another one; None: never."""
        return earliest(*(part.next_change(t_ns) for load, own, _ in self._loads for part in (load, own)))
