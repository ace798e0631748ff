"""Virtual time: a SimPy calendar of integer nanoseconds, read one step at a time.

The total order of a run is (time, step, kind, node, that node's sequence number), and this module is the one place
that writes it. A *step* is all entries that exist now at the earliest time and are of the lowest kind present there;
what they create at the same time belongs to a later step. SimPy orders the times; entries of one time share one SimPy
event, so a thousand timers of one instant cost one event.
"""

from __future__ import annotations

from itertools import pairwise
from math import inf
from operator import itemgetter
from typing import Any, TypeAlias

from simpy import Environment
from simpy.events import Event

from emul.base.errors import DuplicateKey
from emul.base.units import END_OF_TIME

# kinds, in the order in which they happen at one instant: a reply that arrives at the deadline counts
NETWORK, TIMER, FAULT = 0, 1, 2

# tags: what an entry of these kinds is; `loop.py` says what happens at each
(ADVANCE, LOCAL, LAND, COMPUTED, LOOK, FATE, OFFER, FLOW_ON, FLOW_IN, DEADLINE, FAILURE, RETURN, BACK,
 STOP, EMPTY, SENT) = range(16)

FAR = END_OF_TIME                   # beyond all times, and all sequence numbers of a node's own

Entry: TypeAlias = tuple[int, int, int, int, Any, Any]     # kind, node, seq; tag, what, whose: the kernel's own


class Calendar:
    """Entries by time. Times may be added in any order: within its lookahead the kernel runs some nodes ahead."""

    def __init__(self) -> None:
        self._env = Environment(0)
        self._buckets: dict[int, Entry | list[Entry]] = {}      # most times have one alone
        # Kept, since the loop asks for it two or three times an activation: an entry costs 14 % fewer instructions
        # than with SimPy's `peek` each time.
        self.next_time: int | None = None       # the earliest time with an entry
        # One triggered event stands for every bucket: what happens at a time is in the bucket, not in the event. SimPy
        # has no public way to make an event that is triggered and not scheduled; these two private names do it.
        self._tick = Event(self._env)
        self._tick._ok = True
        self._tick._value = None

    def add(self, time: int, entry: Entry) -> None:
        """Enter what is to happen at `time` (ns): a step of that time, whose order `take_step` finds."""
        buckets = self._buckets
        bucket = buckets.get(time)
        if bucket is not None:
            if isinstance(bucket, list):
                bucket.append(entry)
            else:
                buckets[time] = [bucket, entry]
            return
        buckets[time] = entry
        if self.next_time is None or time < self.next_time:
            self.next_time = time
        # The kernel lets nodes run ahead of each other, so `time` may lie before SimPy's clock, which is at the last
        # step. SimPy takes a delay below 0; `test_times_before_simpys_clock_are_taken` would say if it did not.
        self._env.schedule(self._tick, delay=time - self._env.now)

    def waiting(self, time: int) -> list[Entry]:
        """The entries of `time`, in no order; they stay."""
        bucket = self._buckets.get(time, [])
        return bucket if isinstance(bucket, list) else [bucket]

    def take_step(self, time: int) -> list[Entry]:
        """Take the next step, at `time` = `next_time`, off the calendar, in its order. Raises DuplicateKey."""
        bucket = self._buckets.pop(time)
        self._env.step()
        self._tick.callbacks = []       # SimPy takes them from an event that has happened; this one will happen again
        following = self._env.peek()
        self.next_time = None if following == inf else int(following)
        # Most times have one entry alone. The lines below take 0.77 us for such an entry, this way out 0.09.
        if not isinstance(bucket, list):
            return [bucket]
        kind = min(entry[0] for entry in bucket)
        step = [entry for entry in bucket if entry[0] == kind]
        if len(step) < len(bucket):
            for entry in bucket:
                if entry[0] != kind:
                    self.add(time, entry)
        step.sort(key=_key)
        for a, b in pairwise(step):
            if a[1] == b[1] and a[2] == b[2]:
                raise DuplicateKey(f"two events at {time} ns with the key (kind, node, seq) = {a[:3]}")
        return step


_key = itemgetter(1, 2)             # of one step: all its entries are of one kind
