"""A level over virtual time that is constant between given times."""

from __future__ import annotations

from bisect import bisect_right


class StepFunction:
    """A level over virtual time that is constant between given times: `values[i]` from `times[i]` (ns) on.

    times: ascending, the first is 0. period_ns: what comes before it is repeated; None: the last value stays.
    """

    __slots__ = ("period_ns", "times", "values")

    def __init__(self, times: list[int], values: list[float], period_ns: int | None = None):
        self.times = times
        self.values = values
        self.period_ns = period_ns

    def value_at(self, t_ns: int) -> float:
        """The value of the last of `times` up to `t_ns`, which is folded into the period where there is one."""
        if self.period_ns is not None:
            t_ns %= self.period_ns
        return self.values[bisect_right(self.times, t_ns) - 1]

    def next_change(self, t_ns: int) -> int | None:
        """The first time after `t_ns` with another value; None: never."""
        value, times, n = self.value_at(t_ns), self.times, len(self.times)
        base = 0 if self.period_ns is None else t_ns // self.period_ns * self.period_ns
        place = bisect_right(times, t_ns - base) - 1
        for _ in range(n if self.period_ns is not None else n - 1 - place):
            place += 1
            if place == n:
                assert self.period_ns is not None
                place, base = 0, base + self.period_ns
            if self.values[place] != value:
                return base + times[place]
        return None

    def most(self, start_ns: int, end_ns: int) -> float:
        """The largest value in [start_ns, end_ns], the end excluded where it is not the start."""
        most, t = self.value_at(start_ns), self.next_change(start_ns)
        while t is not None and t < end_ns and most < 1:
            most = max(most, self.value_at(t))
            t = self.next_change(t)
        return most

    def mean(self) -> float:
        """Over one period, or from 0 to the last time given, whose value then counts only if it is the only one."""
        ends = [*self.times[1:], self.times[-1] if self.period_ns is None else self.period_ns]
        total = ends[-1]
        if not total:
            return self.values[-1]
        return sum(v * (end - begin) for v, begin, end in zip(self.values, self.times, ends, strict=True)) / total
