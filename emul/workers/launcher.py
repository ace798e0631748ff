"""Who starts workers, and knows how they end. What they are told, and how they speak, is the same wherever they are.

    Launcher  starts workers and readies what a run needs where they are
    Local     processes of this machine, from a fork server that has torch loaded, where there can be one
"""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.forkserver
import multiprocessing.resource_tracker
import multiprocessing.util
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from emul.workers.core import Setup
from emul.workers.transport import Ipc, Tcp, Transport


class Told(Struct):
    """What a worker is told when it is started: text alone, so that it can come by any way."""

    index: int
    token: str                      # of whoever may speak on the pool's sockets
    transport: Ipc | Tcp
    control: str                    # addresses of the coordinator's sockets
    beat: str
    watched: int                    # the process here whose end is the worker's
    leftovers: list[str] = []       # directories that it removes then

    def text(self) -> str:
        """To be taken by `read`."""
        return msgspec.json.encode(self).decode()


def read(text: str) -> Told:
    """What `Told.text` gave."""
    return msgspec.json.decode(text, type=Told)


class Started(Protocol):
    """A worker that was started. sentinel: a descriptor that can be read once it has ended."""

    @property
    def sentinel(self) -> int: ...

    @property
    def pid(self) -> int | None:
        """Of its process, on its machine; None: not known yet."""
        ...

    @property
    def place(self) -> str:
        """Which process it is, and where, for whoever reads of its end."""
        ...

    def ending(self) -> str:
        """How it has ended: "ended with exit code 1"."""
        ...

    def is_alive(self) -> bool: ...

    def kill(self) -> None: ...

    def join(self, timeout: float) -> None: ...


class Launcher(Protocol):
    """Starts the workers of one pool after the other."""

    def transport(self) -> Transport:
        """A new one, for a pool that is about to start."""
        ...

    def start(self, every: Sequence[Told]) -> Sequence[Started]:
        """A worker for each that is told something; does not wait until they can work."""
        ...

    def prepare(self, setups: Sequence[Setup]) -> Sequence[Setup]:
        """Before each run: have what the set-ups name where the workers are; the set-ups as they hold there. Raises
        RunError."""
        ...

    def collect(self) -> None:
        """After each run, however it ended: have in the run's directory what workers left elsewhere."""
        ...

    def close(self) -> None:
        """All workers have ended: let go of what they were started with."""
        ...


class Child:
    """A process of this machine."""

    def __init__(self, process: Any):
        self._process = process
        self.sentinel: int = process.sentinel

    @property
    def pid(self) -> int | None:
        return self._process.pid

    @property
    def place(self) -> str:
        return f"process {self.pid}"

    def ending(self) -> str:
        self._process.join(1)
        return f"ended with exit code {self._process.exitcode}"

    def is_alive(self) -> bool:
        return self._process.is_alive()

    def kill(self) -> None:
        self._process.kill()

    def join(self, timeout: float) -> None:
        self._process.join(timeout)


class Local:
    """Workers are processes of this machine."""

    def __init__(self, by: Transport | None = None):
        """by: how frames travel, in place of Unix sockets: TCP, for whoever measures it."""
        self._by = by

    def transport(self) -> Transport:
        return Ipc.new() if self._by is None else self._by

    def start(self, every: Sequence[Told]) -> list[Child]:
        from emul.workers.entry import run

        server: Any = multiprocessing.get_context("forkserver" if forks() else "spawn")
        if forks():
            server.set_forkserver_preload(["emul.workers.preload"])
        started: list[Child] = []
        with _no_main(), _one_thread_each():
            multiprocessing.resource_tracker.ensure_running()       # it lets interrupts in again, so it comes first
            with _interrupts_held():
                if forks():
                    multiprocessing.forkserver.ensure_running()
                for one in every:
                    one.watched = os.getpid()
                    one.leftovers = [*one.transport.leftovers, multiprocessing.util.get_temp_dir()]     # fork server's
                    name = f"emul-worker-{one.index}"
                    process = server.Process(target=run, args=(one.text(),), daemon=True, name=name)
                    process.start()
                    started.append(Child(process))
        return started

    def prepare(self, setups: Sequence[Setup]) -> Sequence[Setup]:
        return setups

    def collect(self) -> None:
        """They write to the run's directory themselves."""

    def close(self) -> None:
        """Nothing is left."""


def forks() -> bool:
    """Whether workers come from the fork server; else each imports torch for itself. On macOS a process that has used
    the system's libraries cannot be forked safely."""
    return sys.platform != "darwin" and "forkserver" in multiprocessing.get_all_start_methods()


@contextlib.contextmanager
def _no_main() -> Iterator[None]:
    """Keep multiprocessing from running the user's main module again in every worker."""
    main = sys.modules["__main__"]
    kept: dict[str, Any] = {name: main.__dict__[name] for name in ("__file__", "__spec__") if name in main.__dict__}
    main.__dict__.pop("__file__", None)
    main.__spec__ = None
    try:
        yield
    finally:
        main.__dict__.update(kept)


@contextlib.contextmanager
def _interrupts_held() -> Iterator[None]:
    """A Ctrl-C comes when the block is over; what is started in it, and all that is forked from that, hears of none."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _one_thread_each() -> Iterator[None]:
    """The fork server inherits this environment before it imports NumPy and torch."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    kept = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name, value in kept.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
