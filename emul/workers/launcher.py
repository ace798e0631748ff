"""Launchers, which start workers and know how they end. Workers get the same text and speak alike wherever they are.

    Launcher  starts workers and readies what a run needs where they are
    Local     processes of this machine, from a fork server that has torch loaded, where there can be one
"""

from __future__ import annotations

import multiprocessing.util
import os
import socket
from collections.abc import Sequence
from typing import Any, Protocol

from emul.workers import forks
from emul.workers.entry import run
from emul.workers.setup import Setup
from emul.workers.transport import Ipc, Transport, WorkerSettings

_REACHED_S = 10                     # for a machine of the same cluster to take a connection


def unreached(host: str, port: int) -> str:
    """The reason why this process cannot reach a listener, perhaps on another machine; "": it can."""
    try:
        socket.create_connection((host, port), timeout=_REACHED_S).close()
    except OSError as e:
        return e.strerror or f"nothing comes back within {_REACHED_S} s"
    return ""


def address_towards(machine: str) -> str:
    """The address of this process from which it would send to that machine, and at which it is reached from there."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:         # nothing is sent
        probe.connect((machine, 9))
        return str(probe.getsockname()[0])


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
        """The process and its machine, for messages about its end."""
        ...

    def ending(self) -> str:
        """The way in which it has ended: "ended with exit code 1"."""
        ...

    def is_alive(self) -> bool: ...

    def kill(self) -> None: ...

    def join(self, timeout: float) -> None: ...


class Launcher(Protocol):
    """Starts the workers of one pool after the other."""

    def transport(self) -> Transport:
        """A new one, for a pool that is about to start."""
        ...

    def start(self, every: Sequence[WorkerSettings]) -> Sequence[Started]:
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


class LocalLauncher:
    """Workers are processes of this machine."""

    def __init__(self, by: Transport | None = None):
        """by: how frames travel, in place of Unix sockets: TCP, for whoever measures it."""
        self._by = by

    def transport(self) -> Transport:
        return Ipc.new() if self._by is None else self._by

    def start(self, every: Sequence[WorkerSettings]) -> list[Child]:
        started: list[Child] = []
        with forks.starting() as server:
            for one in every:
                one.watched = os.getpid()
                one.leftovers = [*one.transport.leftovers, multiprocessing.util.get_temp_dir()]     # fork server's
                process = server.Process(target=run, args=(one.text(),), daemon=True, name=f"emul-worker-{one.index}")
                process.start()
                started.append(Child(process))
        return started

    def prepare(self, setups: Sequence[Setup]) -> Sequence[Setup]:
        return setups

    def collect(self) -> None:
        """They write to the run's directory themselves."""

    def close(self) -> None:
        """Nothing is left."""
