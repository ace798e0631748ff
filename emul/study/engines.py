"""The places where cells run: here, one after the other; in processes beside each other; on a Ray cluster.

An engine runs all tasks and tells what becomes of them, in whatever order they end. The files of a cell do not depend
on the engine: they are a run directory, equal for any number of workers.
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import IO, Any

import msgspec

from emul.base.errors import InputError
from emul.study.job import CellEvent, CellJob, PoolOnDemand, Tell, run_cell, run_text
from emul.workers.forks import ENVIRONMENT
from emul.workers.ray_address import CUT_OFF, NoCluster, join

Engine = Callable[[Sequence[CellJob], Tell], None]

_END_S = 10.0       # the time that a process may take to end its run when told to


def in_turn(tasks: Sequence[CellJob], tell: Tell) -> None:
    """One after the other in this process, on one pool."""
    if tasks:
        with PoolOnDemand(tasks[0].workers) as pool:
            for task in tasks:
                tell(run_cell(task, pool, tell))


def in_processes(jobs: int) -> Engine:
    """In `jobs` processes, each with a pool of its own. One that dies costs its cell; a new one goes on."""
    # A task is text, by JSON and paths. `concurrent.futures` pickles, and its processes outlive a coordinator that was
    # killed (`test_a_sweep_that_ends_takes_its_processes_along`).
    def engine(tasks: Sequence[CellJob], tell: Tell) -> None:
        waiting = _Waiting(tasks)
        events: queue.SimpleQueue[CellEvent] = queue.SimpleQueue()
        crew = [_Job(waiting, events) for _ in range(min(jobs, len(tasks)))]
        try:
            left = len(tasks)
            while left:
                event = events.get()
                left -= event.done
                tell(event)
        finally:
            for job in crew:
                job.stop()
            for job in crew:
                job.join()
    return engine


class _Waiting:
    """Tasks that nobody has begun. A process that has run one of a group goes on with that group: its trainings are
    there."""

    def __init__(self, tasks: Sequence[CellJob]):
        self._lock = threading.Lock()
        self._begun: set[str] = set()
        self._groups: dict[str, deque[CellJob]] = {}
        for task in tasks:
            self._groups.setdefault(task.group, deque()).append(task)

    def take(self, last: str | None) -> CellJob | None:
        """The next task for who has run one of group `last`; None: there is none."""
        with self._lock:
            if not self._groups:
                return None
            group = last if last in self._groups else max(
                self._groups, key=lambda name: (name not in self._begun, len(self._groups[name])))
            assert group is not None
            self._begun.add(group)
            task = self._groups[group].popleft()
            if not self._groups[group]:
                del self._groups[group]
            return task


class _Job:
    """A thread that hands tasks to a process, one at a time, and passes on what the process tells."""

    def __init__(self, waiting: _Waiting, events: queue.SimpleQueue[CellEvent]):
        self._waiting, self._events = waiting, events
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: IO[bytes] | None = None
        self._lock = threading.Lock()           # between the thread and `stop`
        self._stopped = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """No further task. The end of its stdin ends the process, in the middle of a cell if need be."""
        with self._lock:
            self._stopped = True
            if self._process is not None and self._process.stdin is not None:
                self._process.stdin.close()

    def join(self) -> None:
        self._thread.join(_END_S)
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
        self._thread.join()

    def _run(self) -> None:
        last: str | None = None
        while not self._stopped and (task := self._waiting.take(last)) is not None:
            last = task.group
            if not self._hand(task) or not self._follow(task):
                self._lost(task)
        self.stop()
        self._forget()

    def _hand(self, task: CellJob) -> bool:
        """Give a task to the process, which is started for the first one."""
        with self._lock:
            if self._stopped:
                return False
            if self._process is None:
                self._start()
            assert self._process is not None
            assert self._process.stdin is not None
            try:
                self._process.stdin.write(msgspec.json.encode(task) + b"\n")
                self._process.stdin.flush()
            except BrokenPipeError:
                return False
            return True

    def _start(self) -> None:
        reading, writing = os.pipe()
        try:
            # -P: else the current folder is searched before Python's own library
            self._process = subprocess.Popen([sys.executable, "-P", "-m", "emul.study.job", str(writing)],
                                             stdin=subprocess.PIPE, stdout=2, pass_fds=(writing,),
                                             env={**os.environ, "PYTHONHASHSEED": ENVIRONMENT["PYTHONHASHSEED"],
                                                  "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)})
        finally:
            os.close(writing)
        self._answers = os.fdopen(reading, "rb")

    def _follow(self, task: CellJob) -> bool:
        """Pass on what is told of a task; whether it came to its end."""
        assert self._answers is not None
        for line in self._answers:
            if not line.endswith(b"\n"):        # cut by the end of the process
                break
            event = msgspec.json.decode(line, type=CellEvent)
            self._events.put(event)
            if event.done:
                return True
        return False

    def _lost(self, task: CellJob) -> None:
        """The process has ended, not by us: so has the cell."""
        if not self._stopped:
            code = self._forget()
            self._events.put(CellEvent(task.key, done=True, error=f"the process that ran it ended with code {code}"))

    def _forget(self) -> int | None:
        """Wait until the process has ended; the next task starts another. Its exit code."""
        with self._lock:
            process, answers = self._process, self._answers
        if process is None or answers is None or process.stdin is None:
            return None
        answers.read()                          # to its end, which is that of the process
        answers.close()
        code = process.wait()
        with self._lock:
            if not process.stdin.closed:
                process.stdin.close()
            self._process = self._answers = None
        return code


# --- tasks of a Ray cluster -----------------------------------------------------------------------------------------
#
# Paths and JSON cross, nothing else; the directory of the study is to be a place that all machines of the cluster see
# under the same name, and so are the files that the scenario names.

class RayMissing(InputError):
    """`--engine ray` without Ray."""


def on_ray(tasks: Sequence[CellJob], tell: Tell) -> None:
    """Run tasks on the cluster of $RAY_ADDRESS, on one that runs on this machine, or on a new one of this machine.

    A task asks for as many CPUs as it has workers. A machine that is lost costs its cells. Raises RayMissing and
    NoCluster.
    """
    try:
        import ray
    except ImportError:
        raise RayMissing("--engine ray needs Ray: install emul[ray]") from None
    ours = not ray.is_initialized()
    if ours:
        join(None)
    try:
        place: Any = ray.remote(max_retries=0)(run_text)
        paths = [path for path in sys.path if path]         # a plug-in's folder is one of them
        waiting = {place.options(num_cpus=max(1, task.workers)).remote(msgspec.json.encode(task).decode(), paths):
                   task.key for task in tasks}
        while waiting:
            for ended in ray.wait(list(waiting))[0]:
                key = waiting.pop(ended)
                try:
                    tell(msgspec.json.decode(ray.get(ended), type=CellEvent))
                except ray.exceptions.RayError as e:
                    tell(CellEvent(key, done=True, error=f"{type(e).__name__}: {e}"))
    except ConnectionError as e:
        raise NoCluster(f"{CUT_OFF}; the same command goes on with what is missing: {e}") from None
    finally:
        if ours:
            ray.shutdown()          # ends what still runs, if this is an interrupt
