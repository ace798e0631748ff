"""Values over virtual time that are constant by pieces: rates, latencies, states, places.

`Pieces` holds such values; `emul.network.models.profiles` adds to it how much a rate sends by a time, and when so much
has left. A value that is made of others, such as a sum of traffic or the rate that it leaves, is computed from theirs;
its next change is the `earliest` one of its parts. A profile of it then keeps its pieces.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Generic, TypeVar

from emul.base.units import format_duration

V = TypeVar("V", bound=float)
LEAST_STEP_NS = 1000        # of what begins anew again and again, for each value: a run goes through all of all laps


def too_short(lap_ns: int, count: int, what: str = "values") -> str:
    """The length that a lap of so many values is expected to have; "": it has it."""
    return "" if lap_ns >= LEAST_STEP_NS * count else (
        f"expected {format_duration(LEAST_STEP_NS)} or more for each of the {count} {what}")


class Pieces(Generic[V]):
    """`values[i]` from `times[i]` (ns) on; times ascend from 0. The last value stays; or, with `period_ns`, what lies
    in [repeat_from_ns, repeat_from_ns + period_ns) comes again and again.

    A subclass may begin with fewer, or with none: `known_ns` is then where they end (None: the last stays), and `_grow`
    finds the next ones when somebody asks. They are kept, so that nothing depends on what was asked before.
    """

    __slots__ = ("_first", "known_ns", "period_ns", "repeat_from_ns", "times", "values")

    def __init__(self, times: list[int], values: list[V], period_ns: int | None = None, repeat_from_ns: int = 0):
        self.times = times
        self.values: list[V] = values
        self.period_ns = period_ns
        self.repeat_from_ns = repeat_from_ns
        self.known_ns: int | None = None
        self._first = bisect_right(times, repeat_from_ns) - 1       # the piece that a lap begins in

    def _grow(self) -> None:
        """Find what comes at `known_ns`, and move that on. Of given pieces nothing does: the last value stays."""
        self.known_ns = None

    def _lap(self, t_ns: int) -> tuple[int, int]:
        """(the same place in the first lap, the laps after that one)."""
        if self.period_ns is None or t_ns < self.repeat_from_ns + self.period_ns:
            return t_ns, 0
        laps, rest = divmod(t_ns - self.repeat_from_ns, self.period_ns)
        return self.repeat_from_ns + rest, laps

    def place(self, t_ns: int) -> int:
        """The number of the piece that `t_ns` falls into."""
        while self.known_ns is not None and self.known_ns <= t_ns:
            self._grow()
        if self.period_ns is not None and t_ns >= self.period_ns:
            t_ns, _ = self._lap(t_ns)
        return bisect_right(self.times, t_ns) - 1

    def value_at(self, t_ns: int) -> V:
        """The value at `t_ns` (>= 0)."""
        return self.values[self.place(t_ns)]

    def next_change(self, t_ns: int) -> int | None:
        """The first time after `t_ns` with another value; None: never. Where a lap begins with the value that the one
        before ended with, that is no change."""
        if self.known_ns is not None:
            self.place(t_ns)
        first = t_ns if self.period_ns is None else self._lap(t_ns)[0]
        begin, times, values = t_ns - first, self.times, self.values
        i = bisect_right(times, first) - 1
        value, turns = values[i], 0
        while turns < 2:                            # after a whole lap of one value nothing else can come
            if i + 1 < len(times):
                i += 1
                if values[i] != value:
                    return begin + times[i]
            elif self.known_ns is not None:
                self._grow()
            elif self.period_ns is None:
                return None
            else:
                i, begin, turns = self._first, begin + self.period_ns, turns + 1
                if values[i] != value:
                    return begin + self.repeat_from_ns
        return None

    def mean(self) -> float:
        """Over one period, or from 0 to the last time given, whose value then counts only if it is the only one."""
        ends = [*self.times[1:], self.times[-1] if self.period_ns is None else self.period_ns]
        total = ends[-1]
        if not total:
            return self.values[-1]
        return sum(v * (end - begin) for v, begin, end in zip(self.values, self.times, ends, strict=True)) / total


def earliest(*times: int | None) -> int | None:
    """The earliest of several times; None: never."""
    found = None                        # no `min` of those that are there: it takes three times as long
    for t in times:
        if t is not None and (found is None or t < found):
            found = t
    return found
