"""The fork server of this process: it imports torch once, and every worker begins as a copy of it.

A plain `fork` of the coordinator is no choice: a context of ZeroMQ and threads do not survive one. `spawn` imports
torch once for each worker, and is used where there is no fork server. `begin_ahead` may be called long before there is
a pool: then torch is imported beside whatever this process imports itself. Nothing heavy is imported here.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import multiprocessing.forkserver
import multiprocessing.resource_tracker
import multiprocessing.util
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from emul.base.files import hold_folder, remove_left_folders

LEFT = "EMUL_FORK_SERVER"           # tells it the directory that it removes if this process is killed
# The environment of every worker before it imports NumPy and torch: one thread each, and a seed of hashes,
# so that hashes of text, and with them orders of sets, are the same in all workers and in every run. And no module is
# looked for in the current folder, where Python would look first.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONHASHSEED": "0",
               "PYTHONSAFEPATH": "1"}
_LONGEST = 70                       # characters of the folder of temporary files: below it are two more names
_idle = False                       # begun ahead of any worker, and none has come since


def forks() -> bool:
    """True if workers come from the fork server; else each imports torch for itself. On macOS a process that has used
    the system's libraries cannot be forked safely."""
    return sys.platform != "darwin" and "forkserver" in multiprocessing.get_all_start_methods()


def begin_ahead() -> None:
    """Begin to import torch for workers that will be asked for. If this process ends before, so does the import."""
    # Both import side by side: with this and the freeze in `preload` a command ends its first round after 1.48 s in
    # place of 2.26, and on one core after 2.10 in place of 2.55 (three pairs in turn).
    global _idle
    if forks() and multiprocessing.forkserver._forkserver._forkserver_pid is None:      # type: ignore[attr-defined]
        with starting():
            pass
        _idle = True
        atexit.register(_end_idle)


@contextlib.contextmanager
def starting() -> Iterator[Any]:
    """multiprocessing's context for workers, which are started in the block: their fork server runs, with their
    ENVIRONMENT, and what is started hears of no Ctrl-C."""
    global _idle
    context: Any = multiprocessing.get_context("forkserver" if forks() else "spawn")
    with _no_main(), _environment():
        multiprocessing.resource_tracker.ensure_running()           # it lets interrupts in again, so it comes first
        with _interrupts_held():
            if forks():
                context.set_forkserver_preload(["emul.workers.preload"])
                os.environ[LEFT] = _temporary_folder()
                multiprocessing.forkserver.ensure_running()
                del os.environ[LEFT]
            yield context
    _idle = False


def short_folder() -> str:
    """The folder of temporary files, if the name of a socket below it is no longer than the system takes: at most 107
    characters in all."""
    return tempfile.gettempdir() if len(tempfile.gettempdir()) <= _LONGEST else "/tmp"


@cache
def _temporary_folder() -> str:
    """The folder of multiprocessing's sockets, which goes with this process; those of processes that were killed go
    now."""
    before, tempfile.tempdir = tempfile.gettempdir(), short_folder()
    try:
        folder = multiprocessing.util.get_temp_dir()
    finally:
        tempfile.tempdir = before
    hold_folder(Path(folder))
    remove_left_folders(Path(short_folder()), ("emul-", "pymp-"))
    return folder


def _end_idle() -> None:
    """Nobody has asked for workers: their fork server does not import to the end, and keeps no output open."""
    if _idle:
        signal.signal(signal.SIGINT, signal.SIG_IGN)        # the process ends: an impatient Ctrl-C has nothing to end
        pid = multiprocessing.forkserver._forkserver._forkserver_pid        # type: ignore[attr-defined]
        with contextlib.suppress(OSError):      # it has ended by itself
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


@contextlib.contextmanager
def _no_main() -> Iterator[None]:
    """Keep multiprocessing from running the user's main module again in every worker."""
    main = sys.modules["__main__"]
    kept: dict[str, object] = {name: main.__dict__[name] for name in ("__file__", "__spec__") if name in main.__dict__}
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
def _environment() -> Iterator[None]:
    """Processes started in the block inherit ENVIRONMENT; afterwards this process's own is as it was."""
    kept = {name: os.environ.get(name) for name in ENVIRONMENT}
    os.environ.update(ENVIRONMENT)
    try:
        yield
    finally:
        for name, value in kept.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
