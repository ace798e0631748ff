"""Virtual time: a SimPy calendar of integer nanoseconds, read one step at a time.

The total order of a run is (time, step, kind, node, that node's sequence number), and this module is the one place
that writes it. A *step* is all entries that exist now at the earliest time and are of the lowest kind present there;
what they create at the same time belongs to a later step. SimPy orders the times; entries of one time share one SimPy
event, so a thousand timers of one instant cost one event.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, TypeAlias

from simpy import Environment
from simpy.core import Infinity
from simpy.events import Event

from emul.base.errors import DuplicateKey

# kinds, in the order in which they happen at one instant: a reply that arrives at the deadline counts
NETWORK, TIMER, FAULT = 0, 1, 2

Entry: TypeAlias = tuple[int, int, int, int, Any]          # kind, node, seq, tag, what


class Calendar:
    """Entries by time. Times may be scheduled in any order: within its lookahead the kernel runs nodes ahead."""

    def __init__(self) -> None:
        self._env = Environment(0)
        self._buckets: dict[int, list[Entry]] = {}

    def add(self, time: int, entry: Entry) -> None:
        bucket = self._buckets.get(time)
        if bucket is not None:
            bucket.append(entry)
            return
        self._buckets[time] = [entry]
        env = self._env
        event = Event(env)
        event._ok = True            # triggered from the start, as a Timeout is
        event._value = None
        env.schedule(event, delay=time - env.now)

    @property
    def next_time(self) -> int | None:
        """The earliest time with an entry, or None."""
        time = self._env.peek()
        return None if time is Infinity or time == Infinity else time

    def peek(self, time: int) -> list[Entry]:
        """The next step, at `time` = `next_time`, in its order; it stays. Raises DuplicateKey."""
        bucket = self._buckets[time]
        if len(bucket) == 1:
            return bucket
        bucket.sort(key=_key)
        kind = bucket[0][0]
        step = [e for e in bucket if e[0] == kind]
        for a, b in pairwise(step):
            if a[:4] == b[:4]:
                raise DuplicateKey(f"two events at {time} ns with the key {a[:4]}: {a[4]!r} and {b[4]!r}")
        return step

    def drop(self, time: int, step: list[Entry]) -> None:
        """Take the step that `peek` has shown off the calendar."""
        bucket = self._buckets[time]
        rest = bucket[len(step):]           # a sorted bucket begins with the step
        if rest:
            self._buckets[time] = rest
        else:
            del self._buckets[time]
            self._env.step()


def _key(entry: Entry) -> tuple[int, int, int, int]:
    return entry[:4]
