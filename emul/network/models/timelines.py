"""States of a link that change with virtual time: up or down, as pure functions of names and time.

A timeline answers `up_at(t)` and `next_change(t)`. Slots draw each slot of virtual time alone; `OnOff` and `ChainSlots`
alternate between two states (`stays`); `Levels` come from a trace (`pieces`). Nothing depends on what was asked before.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from emul.base.streams import uniform_at, uniforms_at
from emul.network.models.pieces import Pieces
from emul.network.models.stays import ExponentialStays, Stays, drawn

_HORIZON = 1 << 26          # slots: a change farther away than this counts as none


class Timeline(Protocol):
    """A state of a link over virtual time."""

    def up_at(self, t_ns: int) -> bool:
        """True if the link is up at `t_ns` (>= 0)."""
        ...

    def next_change(self, t_ns: int) -> int | None:
        """The first time after `t_ns` at which `up_at` is another; None: never."""
        ...


class OnOff:
    """Up and down in turn for exponential times with the means `up_ns` and `down_ns`; 1 ns at least.

    start "up", or "stationary": down with probability down / (up + down); the rest of a stay is exponential, too.
    """

    __slots__ = ("_stays",)

    def __init__(self, key: int, up_ns: int, down_ns: int, start: str):
        down = start == "stationary" and uniform_at(key, 0) < down_ns / (up_ns + down_ns)
        self._stays = Stays(down, ExponentialStays(key, (up_ns, down_ns)))

    def up_at(self, t_ns: int) -> bool:
        return not self._stays.bad(t_ns)

    def next_change(self, t_ns: int) -> int | None:
        """The end of the stay that `t_ns` falls into."""
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
        """By the draw of the slot that `t_ns` falls into."""
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
        """By the slot's draw against the probability of the state that the chain is in."""
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


class Levels:
    """A timeline out of `Pieces` of 0 and 1: down where the value is 1."""

    __slots__ = ("steps",)

    def __init__(self, steps: Pieces[float]):
        self.steps = steps

    def up_at(self, t_ns: int) -> bool:
        return self.steps.value_at(t_ns) < 1

    def next_change(self, t_ns: int) -> int | None:
        return self.steps.next_change(t_ns)
