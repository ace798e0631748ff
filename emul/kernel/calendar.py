"""Virtual time: a SimPy calendar of integer nanoseconds, read one step at a time.

The total order of a run is (time, step, kind, node, that node's sequence number), and this module is the one place
that writes it. A *step* is all entries that exist now at the earliest time and are of the lowest kind present there;
what they create at the same time belongs to a later step. SimPy orders the times; entries of one time share one SimPy
event, so a thousand timers of one instant cost one event.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import pairwise
from operator import itemgetter
from typing import Any, TypeAlias

from simpy import Environment
from simpy.events import NORMAL, Event

from emul.base.errors import DuplicateKey

# kinds, in the order in which they happen at one instant: a reply that arrives at the deadline counts
NETWORK, TIMER, FAULT = 0, 1, 2

# tags: what an entry of these kinds is; `loop.py` says what happens at each
(ADVANCE, LOCAL, LAND, COMPUTED, LOOK, FATE, OFFER, FLOW_ON, FLOW_IN, DEADLINE, FAILURE, RETURN, BACK,
 STOP, EMPTY) = range(15)

FAR = 1 << 62                       # beyond all times, and all sequence numbers of a node's own

Entry: TypeAlias = tuple[int, int, int, int, Any, Any]     # kind, node, seq; tag, what, whose: the kernel's own


class Calendar:
    """Entries by time. Times may be added in any order: within its lookahead the kernel runs some nodes ahead."""

    def __init__(self) -> None:
        self._env = Environment(0)
        # SimPy's heap: whoever wants the earliest time need only look at its head
        self.queue: list[tuple[int, int, int, Event]] = self._env._queue        # type: ignore[assignment]
        self._buckets: dict[int, Entry | list[Entry]] = {}      # most times have one alone
        # One triggered event stands for every bucket: what happens at a time is in the bucket, not in the event.
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
        # as `Environment.schedule` does; no two of these events have one time, so they need no number to order them
        heappush(self.queue, (time, NORMAL, 0, self._tick))

    @property
    def next_time(self) -> int | None:
        """The earliest time with an entry, or None."""
        queue = self.queue
        return queue[0][0] if queue else None

    def take_step(self, time: int) -> list[Entry]:
        """Take the next step, at `time` = `next_time`, off the calendar, in its order. Raises DuplicateKey."""
        bucket = self._buckets.pop(time)
        heappop(self.queue)             # as `Environment.step` does; nobody has called for what happens at the event
        self._env._now = time
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
