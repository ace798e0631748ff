"""The in-process twin of a pool: the same roles, frames and answers, in one process and one thread.

For tests, debugging with breakpoints, and as the reference: a run's digest must equal the pool's for any number of
workers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from emul.roles.events import Event, Observation, Reply
from emul.workers.attacking import Note
from emul.workers.core import Core, FittedGroups, StoreUse
from emul.workers.jobs import Timing
from emul.workers.keeping import KeptValue
from emul.workers.patience import Watchdog
from emul.workers.pool import Tell, discard, newest_accuracy
from emul.workers.setup import Setup


class Twin:
    """One worker, called directly. Used like a pool: `open(setups)`, then as the kernel's port, then `finish()`."""

    # It decodes the same frames by the same `Core`. A simpler stand-in without frames would agree with itself and prove
    # nothing (`test_twin_and_any_number_of_workers_compute_the_same_run`).

    workers = 1

    def __init__(self, computes: bool = True) -> None:
        """computes: False for a dry run, in which no array is touched: torch, which takes seconds, is not loaded."""
        self._computes = computes
        self._core: Core | None = None
        self._replies: dict[int, Reply] = {}
        self._observations: dict[tuple[int, int], Observation] = {}
        self.tell: Tell = discard           # of the run that is open: what is observed, as it comes
        self.kept: list[KeptValue] = []         # values that nodes left in the run directory, once the run has ended
        self._threads: contextlib.ExitStack | None = None
        self.watchdog: Watchdog | None = None   # of the run that is open, or was last, if `workers.patience` is set
        self.notes: list[Note] = []             # of the run that has ended
        self.store_use = StoreUse()             # of the run that has ended last
        self.fitted = FittedGroups()            # of that, too

    def __enter__(self) -> Twin:
        return self

    def __exit__(self, *error: object) -> None:
        self.abort()

    def open(self, setups: Sequence[Setup]) -> None:
        """Begin a run with the first setup; torch and BLAS have one thread until it ends."""
        self.tell = discard
        self._threads = contextlib.ExitStack()
        if self._computes:
            self._threads.enter_context(one_thread())
        self._replies.clear()
        self._observations.clear()
        self._core = Core(setups[0])
        limit_s = setups[0].patience_s
        self.watchdog = Watchdog(limit_s, self._core.whose) if limit_s else None

    @property
    def core(self) -> Core:
        """The core that it runs. Raises RuntimeError between two runs."""
        if self._core is None:
            raise RuntimeError("no run is under way")
        return self._core

    def post(self, worker: int, event: Event) -> None:
        assert self._core is not None
        self._core.put(event)

    def reply(self, node: int, worker: int) -> Reply:
        """The node's actions, after as much work as it takes. Raises AssertionError if none can come."""
        core = self._core
        assert core is not None
        self._collect(core)
        while node not in self._replies:
            if not core.work():
                raise AssertionError(f"no answer of node {node} can come")
            self._collect(core)
        return self._replies.pop(node)

    def ship(self, source: int, first: int, home: int, target: int, last: bool = False) -> None:
        raise AssertionError("one worker ships nothing")

    def forget(self, source: int, first: int, home: int) -> None:
        raise AssertionError("one worker ships nothing")

    def observation(self, node: int, round: int) -> Observation:
        """As the pool's. Raises AssertionError if there will be none."""
        core = self._core
        assert core is not None
        while (node, round) not in self._observations:
            if not core.work():
                raise AssertionError(f"nothing to observe of node {node} in round {round}")
            self._collect(core)
        return self._observations[node, round]

    @property
    def accuracy(self) -> float | None:
        """The newest accuracy that has been observed in this run, for a progress line."""
        return newest_accuracy(self._observations)

    def finish(self) -> tuple[list[Observation], list[Timing]]:
        """End the run: all observations and timings, in an order that does not depend on real time."""
        core = self._core
        assert core is not None
        core.finish()
        self._collect(core)
        timings, self.notes = core.timings, core.notes
        self.kept = core.kept
        self.abort()
        return sorted(self._observations.values(), key=lambda o: (o.round, o.node)), timings

    def abort(self) -> None:
        """Forget the run that was under way, if any."""
        if self.watchdog is not None:
            self.watchdog.close()
        if self._core is not None:
            self.store_use, self.fitted = self._core.close(), self._core.fitted
        self._core = None
        if self._threads is not None:
            self._threads.close()
            self._threads = None

    def _collect(self, core: Core) -> None:
        if core.replies:
            for reply in core.replies:
                self._replies[reply.node] = reply
            core.replies = []
        if core.observations:
            for seen in core.observations:
                self._observations[seen.node, seen.round] = seen
            self.tell(core.observations)
            core.observations = []


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """One torch and one BLAS thread inside the block, as in every worker."""
    import torch
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)
