"""Processes that alternate between two states, good and bad, and the laws of how long they stay in each.

All of it is a pure function of a stream's key and an index: answers are cached, and an earlier place is found
again from a checkpoint. This is the ground that chains (`chains`) and states over time (`timelines`) stand on.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from math import log1p

from emul.base.streams import uniform_at

_ALWAYS = 1 << 100          # the end of a stay that never ends
_KEPT = 64                  # stays between two checkpoints


def drawn(key: int, index: int, p: float) -> bool:
    """True if draw number `index` of the stream `key` is one of probability p."""
    return p > 0 and (p >= 1 or uniform_at(key, index) < p)


def geometric(u: float, p: float) -> int | None:
    """Trials up to the first success, 1 or more, of probability p each, from a uniform u in [0, 1); None: never."""
    if p >= 1:
        return 1
    if p <= 0:
        return None
    return 1 + int(min(log1p(-u) / log1p(-p), 2.0**90))


@dataclass(frozen=True, slots=True)
class ExponentialStays:
    """Stay i lasts an exponential time with the mean `means[bad]`, rounded, 1 ns at least: draw i + 1 of `key`."""

    key: int
    means: tuple[int, int]      # ns, in the good state and in the bad one

    def __call__(self, number: int, bad: bool) -> int:
        return max(1, round(-self.means[bad] * log1p(-uniform_at(self.key, number + 1))))


@dataclass(frozen=True, slots=True)
class GeometricStays:
    """Stay i ends at each step with probability `leave[bad]`: draw `prefix << 32 | i` of `key`."""

    key: int
    prefix: int
    leave: tuple[float, float]  # of the good state and of the bad one

    def __call__(self, number: int, bad: bool) -> int | None:
        return geometric(uniform_at(self.key, self.prefix << 32 | number), self.leave[bad])


class Stays:
    """A process that alternates between two states, good (False) and bad, at integer times from 0 on.

    length(i, bad): how long stay number i (from 0) lasts, 1 or more; None: for ever. It starts in the state `bad`.
    """

    __slots__ = ("_begin", "_checkpoints", "_end", "_first", "_length", "_number")

    def __init__(self, bad: bool, length: Callable[[int, bool], int | None]):
        self._first = bad
        self._length = length
        # Begins of the stays number 0, _KEPT, 2 * _KEPT, ... Not all are kept, as `Pieces` would: a chain may change
        # its state with every slot or packet of a run, and lengths are draws that can be made again.
        self._checkpoints = [0]
        self._go_to(0, 0)

    def _go_to(self, number: int, begin: int) -> None:
        length = self._length(number, self._state(number))
        self._number, self._begin = number, begin
        self._end = _ALWAYS if length is None else begin + length

    def _state(self, number: int) -> bool:
        return self._first != bool(number & 1)

    def bad(self, n: int) -> bool:
        """The state at `n` >= 0."""
        if not self._begin <= n < self._end:
            self._find(n)
        return self._state(self._number)

    def end(self, n: int) -> int | None:
        """The end of the stay that holds `n`, itself excluded; None: never."""
        if not self._begin <= n < self._end:
            self._find(n)
        return None if self._end == _ALWAYS else self._end

    def _find(self, n: int) -> None:
        marks = self._checkpoints
        if n < self._begin or n >= marks[-1] > self._begin:
            place = bisect_right(marks, n) - 1
            self._go_to(place * _KEPT, marks[place])
        while n >= self._end:
            if (self._number + 1) % _KEPT == 0 and self._end > marks[-1]:
                marks.append(self._end)
            self._go_to(self._number + 1, self._end)
