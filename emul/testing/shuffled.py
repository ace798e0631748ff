"""A pool of several workers in one process, which answers in any order."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from emul.message.wire import Encoded
from emul.roles.events import Event, Observation, Reply
from emul.workers.attacking import Note
from emul.workers.core import Core, FittedGroups, StoreUse
from emul.workers.jobs import Timing
from emul.workers.keeping import KeptValue
from emul.workers.setup import Setup
from emul.workers.twin import one_thread


class Shuffled:
    """An in-process pool of several workers that answers in an order drawn from `seed`, as real machines would.

    Each worker has frames of its own, and the kernel has to have them shipped. Nothing of a run may depend on it.
    """

    def __init__(self, workers: int, seed: int = 0):
        self.workers = workers
        self._draw = np.random.Generator(np.random.Philox(key=seed))
        self._cores: list[Core] = []
        self._outboxes: list[dict[tuple[int, int], Encoded]] = []
        self._arrived: list[dict[tuple[int, int], Encoded]] = []
        self._posted: list[deque[Event]] = []
        self._replies: dict[int, Reply] = {}
        self._observations: dict[tuple[int, int], Observation] = {}
        self._threads = contextlib.ExitStack()
        self.kept: list[KeptValue] = []
        self.store_use, self.fitted = StoreUse(), FittedGroups()

    def open(self, setups: Sequence[Setup]) -> None:
        """Begin a run with a worker for each setup; torch and BLAS have one thread until it ends."""
        self._threads.enter_context(one_thread())
        self._outboxes = [{} for _ in setups]
        self._arrived = [{} for _ in setups]
        self._posted = [deque() for _ in setups]
        self._replies, self._observations = {}, {}
        self._cores = [Core(setup, outbox, _taking(arrived))
                       for setup, outbox, arrived in zip(setups, self._outboxes, self._arrived, strict=True)]

    def post(self, worker: int, event: Event) -> None:
        """Put the event behind all that were posted to this worker."""
        self._posted[worker].append(event)
        if self._draw.random() < 0.2:
            self._step()

    def reply(self, node: int, worker: int) -> Reply:
        """Let workers step, in a drawn order, until this node has answered."""
        while node not in self._replies:
            self._step()
        return self._replies.pop(node)

    def ship(self, source: int, first: int, home: int, target: int, last: bool = False) -> None:
        """Let workers go on until the frames of (source, first) are there, and hand them over."""
        while (source, first) not in self._outboxes[home]:
            self._step()                    # the kernel ships what has been sent, so this ends
        self._arrived[target][source, first] = self._outboxes[home][source, first]
        if last:
            self.forget(source, first, home)

    def forget(self, source: int, first: int, home: int) -> None:
        """Have the worker `home` drop the frames of message (source, first)."""
        del self._outboxes[home][source, first]

    def observation(self, node: int, round: int) -> Observation:
        """Let workers step until this was observed."""
        while (node, round) not in self._observations:
            self._step()
        return self._observations[node, round]

    def finish(self) -> tuple[list[Observation], list[Timing]]:
        """End the run: all observations and timings; observations by round and node."""
        for core in self._cores:
            core.finish()
            self._collect(core)
        timings = [timing for core in self._cores for timing in core.timings]
        self.kept = sorted((one for core in self._cores for one in core.kept), key=lambda k: (k.node, k.name))
        self.abort()
        return sorted(self._observations.values(), key=lambda o: (o.round, o.node)), timings

    @property
    def notes(self) -> list[Note]:
        """The notes of the workers, such as that something was trained alone."""
        return [note for core in self._cores for note in core.notes]

    def abort(self) -> None:
        """Forget the run that was under way, if any."""
        self.store_use = sum((core.close() for core in self._cores), StoreUse())
        self.fitted = sum((core.fitted for core in self._cores), FittedGroups())
        self._threads.close()

    @property
    def accuracy(self) -> float | None:
        """None: nobody watches it run."""
        return None

    def _step(self) -> None:
        """One worker takes an event, or works."""
        able = [w for w, core in enumerate(self._cores) if self._posted[w] or not core.idle]
        worker = able[int(self._draw.integers(len(able)))]
        core, posted = self._cores[worker], self._posted[worker]
        if posted and (core.idle or self._draw.random() < 0.5):
            core.put(posted.popleft())
        elif self._draw.random() < 0.5:
            core.work(settle=False)
        else:
            core.settle()
            core.work()
        self._collect(core)

    def _collect(self, core: Core) -> None:
        for reply in core.replies:
            self._replies[reply.node] = reply
        for seen in core.observations:
            self._observations[seen.node, seen.round] = seen
        core.replies, core.observations = [], []


def _taking(arrived: dict[tuple[int, int], Encoded]) -> Callable[[tuple[int, int]], Encoded]:
    return lambda key: arrived.pop(key)
