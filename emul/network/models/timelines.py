"""States of a link that change with virtual time: up or down, as pure functions of names and time.

A timeline answers `up_at(t)` and `next_change(t)`. Slots draw each slot of virtual time alone; `Stays` alternate
between two states for drawn lengths of time or numbers of slots. Nothing depends on what was asked before: answers
are cached, and an earlier time is found again from a checkpoint.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from math import log1p
from typing import Protocol

import numpy as np

from emul.base.streams import uniform_at, uniforms_at

_ALWAYS = 1 << 100          # the end of a stay that never ends
_KEPT = 64                  # stays between two checkpoints
_HORIZON = 1 << 26          # slots: a change farther away than this counts as none


class Timeline(Protocol):
    """A state of a link over virtual time."""

    def up_at(self, t_ns: int) -> bool:
        """Whether the link is up at `t_ns` (>= 0)."""
        ...

    def next_change(self, t_ns: int) -> int | None:
        """The first time after `t_ns` at which `up_at` is another; None: never."""
        ...


class Stays:
    """A process that alternates between two states, good (False) and bad, at integer times from 0 on.

    length(i, bad): how long stay number i (from 0) lasts, 1 or more; None: for ever. It starts in the state `bad`.
    """

    __slots__ = ("_begin", "_checkpoints", "_end", "_first", "_length", "_number")

    def __init__(self, bad: bool, length: Callable[[int, bool], int | None]):
        self._first = bad
        self._length = length
        self._checkpoints = [0]             # where the stays number 0, _KEPT, 2 * _KEPT, ... begin
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
        """Where the stay that holds `n` ends, itself excluded; None: never."""
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


def geometric(u: float, p: float) -> int | None:
    """Trials up to the first success, 1 or more, of probability p each, from a uniform u in [0, 1); None: never."""
    if p >= 1:
        return 1
    if p <= 0:
        return None
    return 1 + int(min(log1p(-u) / log1p(-p), 2.0**90))


class OnOff:
    """Up and down in turn for exponential times with the means `up_ns` and `down_ns`; 1 ns at least.

    start "up", or "stationary": down with probability down / (up + down); the rest of a stay is exponential, too.
    """

    __slots__ = ("_key", "_means", "_stays")

    def __init__(self, key: int, up_ns: int, down_ns: int, start: str):
        self._key = key
        self._means = (up_ns, down_ns)
        down = start == "stationary" and uniform_at(key, 0) < down_ns / (up_ns + down_ns)
        self._stays = Stays(down, self._length)

    def _length(self, number: int, down: bool) -> int:
        return max(1, round(-self._means[down] * log1p(-uniform_at(self._key, number + 1))))

    def up_at(self, t_ns: int) -> bool:
        return not self._stays.bad(t_ns)

    def next_change(self, t_ns: int) -> int | None:
        return self._stays.end(t_ns)


class Slots:
    """Each slot of virtual time is down with probability p, drawn alone: draw number `slot` of the stream `key`."""

    __slots__ = ("_down", "_key", "_p", "_slot", "_slot_ns")

    def __init__(self, key: int, p: float, slot_ns: int):
        self._key = key
        self._p = p
        self._slot_ns = slot_ns
        self._slot = -1                 # the last slot asked for, and its state: most messages ask for the same
        self._down = False

    def up_at(self, t_ns: int) -> bool:
        slot = t_ns // self._slot_ns
        if slot != self._slot:
            self._slot = slot
            self._down = uniform_at(self._key, slot) < self._p
        return not self._down

    def next_change(self, t_ns: int) -> int | None:
        """As a `Timeline` says; a change more than 2**26 slots away counts as none."""
        slot = t_ns // self._slot_ns
        found = first_slot(self._key, self._p, slot + 1, None, self.up_at(t_ns))
        return None if found is None else found * self._slot_ns


class ChainSlots:
    """Slots of virtual time that go through a two-state chain, in each state down with a probability of its own.

    `states` gives the state of each slot; `loss` = (probability in good, in bad); draw number `slot` of `key` decides.
    """

    __slots__ = ("_key", "_loss", "_slot_ns", "_states")

    def __init__(self, key: int, states: Stays, loss: tuple[float, float], slot_ns: int):
        self._key = key
        self._states = states
        self._loss = loss
        self._slot_ns = slot_ns

    def up_at(self, t_ns: int) -> bool:
        slot = t_ns // self._slot_ns
        return not drawn(self._key, slot, self._loss[self._states.bad(slot)])

    def next_change(self, t_ns: int) -> int | None:
        """As a `Timeline` says; a change more than 2**26 slots away counts as none."""
        up = self.up_at(t_ns)
        slot = t_ns // self._slot_ns + 1
        horizon = slot + _HORIZON
        while slot < horizon:
            end = self._states.end(slot)
            found = first_slot(self._key, self._loss[self._states.bad(slot)], slot, end, up)
            if found is not None:
                return found * self._slot_ns
            if end is None:
                return None
            slot = end
        return None


def drawn(key: int, index: int, p: float) -> bool:
    """Whether draw number `index` of the stream `key` is one of probability p."""
    return p > 0 and (p >= 1 or uniform_at(key, index) < p)


def first_slot(key: int, p: float, begin: int, end: int | None, down: bool) -> int | None:
    """The first slot in [begin, end) that is down, or up; None where there is none, or none in 2**26 slots.

    Slots are down with probability p, drawn from `key` each at its own index.
    """
    if p in (0, 1):
        return begin if down == (p == 1) and (end is None or begin < end) else None
    last = begin + _HORIZON if end is None else min(end, begin + _HORIZON)
    for slot in range(begin, min(last, begin + 8)):         # near ones one by one, then in blocks
        if (uniform_at(key, slot) < p) == down:
            return slot
    begin, block = begin + 8, 256
    while begin < last:
        count = min(block, last - begin)
        hits = np.flatnonzero((uniforms_at(key, begin, count) < p) == down)
        if len(hits):
            return begin + int(hits[0])
        begin, block = begin + count, min(4 * block, 1 << 18)
    return None


class Steps:
    """A level over virtual time that is constant between given times: `values[i]` from `times[i]` (ns) on.

    times: ascending, the first is 0. period_ns: what comes before it is repeated; None: the last value stays.
    """

    __slots__ = ("period_ns", "times", "values")

    def __init__(self, times: list[int], values: list[float], period_ns: int | None = None):
        self.times = times
        self.values = values
        self.period_ns = period_ns

    def value_at(self, t_ns: int) -> float:
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


class Levels:
    """A timeline out of `Steps` of 0 and 1: down where the value is 1."""

    __slots__ = ("steps",)

    def __init__(self, steps: Steps):
        self.steps = steps

    def up_at(self, t_ns: int) -> bool:
        return self.steps.value_at(t_ns) < 1

    def next_change(self, t_ns: int) -> int | None:
        return self.steps.next_change(t_ns)
