"""The parts of a PHOLD run alone, in CPU microseconds: the kernel, one worker, the first use of links, the table.

A run is taped once in process: what the kernel posted to each worker, and what was answered. The kernel then runs
against the tape (its workers are stubs that answer at once), and a worker is fed with its events, encoded and decoded
as on a socket. The costs of processes and sockets come on top of both and are in neither.
"""

from __future__ import annotations

import gc
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeVar

import msgspec

from emul.engine import Wiring
from emul.kernel import Kernel, run_to_end
from emul.message.wire import Encoded, from_frames
from emul.roles.events import Event, Observation, Reply
from emul.workers.collections import rare_collections
from emul.workers.core import Core
from emul.workers.process import encoder, events_decoder
from emul.workers.setup import Setup

_BATCH = 48                         # events and answers that cross a socket together
_Key = tuple[int, int]
T = TypeVar("T")


class Discarded:
    """A journal that keeps nothing but how many rows it got."""

    def __init__(self) -> None:
        self.count = 0

    def extend(self, found: Sequence[Any]) -> None:
        self.count += len(found)

    def round_ended(self) -> None:
        """Nothing waits."""

    def observed(self, seen: Sequence[Observation]) -> None:
        """Nothing is looked at."""


@dataclass
class Tape:
    """The traffic between the kernel and its workers."""

    wired: Wiring
    events: list[list[Event]]                               # worker -> what it was told
    replies: list[list[Reply]]                              # node -> what it answered
    came: list[dict[_Key, Encoded]]                         # worker -> payloads that others shipped to it
    rows: int = 0


class Taping:
    """Workers in this process, payloads between them included; keeps a tape of all."""

    def __init__(self, wired: Wiring):
        setups: list[Setup] = wired.setups
        self.outboxes: list[dict[_Key, Encoded]] = [{} for _ in setups]
        self.arrived: list[dict[_Key, Encoded]] = [{} for _ in setups]
        self.cores = [Core(setup, outbox, arrived.pop)
                      for setup, outbox, arrived in zip(setups, self.outboxes, self.arrived, strict=True)]
        self.tape = Tape(wired, [[] for _ in setups], [[] for _ in wired.plan.names], [{} for _ in setups])
        self._found: dict[int, Reply] = {}

    def post(self, worker: int, event: Event) -> None:
        self.tape.events[worker].append(event)
        core = self.cores[worker]
        core.put(event)
        for reply in core.replies:
            self._found[reply.node] = reply
        core.replies.clear()

    def reply(self, node: int, worker: int) -> Reply:
        reply = self._found.pop(node)
        self.tape.replies[node].append(msgspec.convert(msgspec.to_builtins(reply), Reply))
        return reply

    def ship(self, source: int, first: int, home: int, target: int, last: bool = False) -> None:
        payload = from_frames(self.outboxes[home][source, first].frames())
        self.arrived[target][source, first] = self.tape.came[target][source, first] = payload
        if last:
            self.forget(source, first, home)

    def forget(self, source: int, first: int, home: int) -> None:
        self.outboxes[home].pop((source, first), None)


@dataclass
class Stubs:
    """Workers that answer from a tape; commands go nowhere."""

    replies: list[deque[Reply]]
    commands: int = field(default=0)

    def post(self, worker: int, event: Event) -> None:
        """Nobody is there."""

    def reply(self, node: int, worker: int) -> Reply:
        return self.replies[node].popleft()

    def ship(self, source: int, first: int, home: int, target: int, last: bool = False) -> None:
        self.commands += 1

    def forget(self, source: int, first: int, home: int) -> None:
        self.commands += 1


def timed(action: Callable[[], T]) -> tuple[float, T]:
    """CPU seconds of this thread, and what came of it; the collector rests as in a run."""
    gc.collect()
    with rare_collections():
        begin = time.thread_time()
        found = action()
        return time.thread_time() - begin, found


def tape(wire: Callable[[], Wiring]) -> Tape:
    wired = wire()
    port, journal = Taping(wired), Discarded()
    with rare_collections():
        run_to_end(Kernel(wired.plan, wired.network, port, journal))        # type: ignore[arg-type]
    port.tape.rows = journal.count
    return port.tape


def kernel_alone(taped: Tape, wire: Callable[[], Wiring], steady: bool) -> float:
    """CPU us an activation of the kernel against stubs. steady: on a network whose links and routes the same run has
    used before; else all that is first use is in it."""
    wired = wire()
    if steady:
        _warm(wired)
    marks: list[tuple[float, int]] = []
    stubs, journal = Stubs([deque(replies) for replies in taped.replies]), Discarded()

    def run() -> Kernel:
        kernel = Kernel(wired.plan, wired.network, stubs, journal,          # type: ignore[arg-type]
                        lambda kernel: marks.append((time.thread_time(), kernel.activations)))
        run_to_end(kernel)
        return kernel

    spent, kernel = timed(run)
    if journal.count != taped.rows:
        raise RuntimeError(f"the kernel wrote {journal.count} rows against stubs, {taped.rows} with workers")
    if steady:                          # the second half: of the first, every pipe and way is new to the kernel
        (since, before), (until, after) = marks[len(marks) // 2], marks[-1]
        return 1e6 * (until - since) / (after - before)
    return 1e6 * spent / kernel.activations


def _warm(wired: Wiring) -> None:
    """Have the network make every link and route of PHOLD."""
    n = len(wired.plan.names)
    for node in range(n):
        for shift in wired.params.shifts:
            u, v = wired.plan.vertices[node], wired.plan.vertices[(node + shift) % n]
            for a, b in pairwise(wired.network.route(u, v)):
                wired.network.link(a, b)


def first_use(wire: Callable[[], Wiring]) -> float:
    """CPU us a link: its route found and the link made, of all links in turn."""
    wired = wire()
    n, shifts = len(wired.plan.names), wired.params.shifts
    return 1e6 * timed(lambda: _warm(wired))[0] / (n * len(shifts))


def worker_alone(taped: Tape, worker: int = 0) -> float:
    """CPU us an activation of one worker: events decoded, roles, payloads, answers encoded."""
    batches = [encoder.encode(taped.events[worker][i:i + _BATCH]) for i in range(0, len(taped.events[worker]), _BATCH)]
    came = dict(taped.came[worker])
    core = Core(taped.wired.setups[worker], {}, came.pop)
    answered = 0

    def run() -> None:
        nonlocal answered
        for batch in batches:
            for event in events_decoder.decode(batch):
                core.put(event)
            answered += len(core.replies)
            encoder.encode(core.replies)
            core.replies = []

    return 1e6 * timed(run)[0] / answered
