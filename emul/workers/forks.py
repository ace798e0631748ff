"""The fork server of this process: it imports torch once, and every worker begins as a copy of it.

`begin` may be called long before there is a pool: then torch is imported beside whatever this process imports itself.
Nothing heavy is imported here.
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
from collections.abc import Iterator
from typing import Any

LEFT = "EMUL_FORK_SERVER"           # tells it the directory that it removes if this process is killed
_idle = False                       # begun ahead of any worker, and none has come since


def forks() -> bool:
    """Whether workers come from the fork server; else each imports torch for itself. On macOS a process that has used
    the system's libraries cannot be forked safely."""
    return sys.platform != "darwin" and "forkserver" in multiprocessing.get_all_start_methods()


def begin_ahead() -> None:
    """Begin to import torch for workers that will be asked for. If this process ends before, so does the import."""
    global _idle
    if forks() and multiprocessing.forkserver._forkserver._forkserver_pid is None:      # type: ignore[attr-defined]
        with starting():
            pass
        _idle = True
        atexit.register(_end_idle)


@contextlib.contextmanager
def starting() -> Iterator[Any]:
    """multiprocessing's context for workers, which are started in the block: their fork server runs, with one thread
    for BLAS, and what is started hears of no Ctrl-C."""
    global _idle
    context: Any = multiprocessing.get_context("forkserver" if forks() else "spawn")
    with _no_main(), _one_thread_each():
        multiprocessing.resource_tracker.ensure_running()           # it lets interrupts in again, so it comes first
        with _interrupts_held():
            if forks():
                context.set_forkserver_preload(["emul.workers.preload"])
                os.environ[LEFT] = multiprocessing.util.get_temp_dir()
                multiprocessing.forkserver.ensure_running()
                del os.environ[LEFT]
            yield context
    _idle = False


def _end_idle() -> None:
    """Nobody has asked for workers: their fork server does not import to the end, and keeps no output open."""
    if _idle:
        pid = multiprocessing.forkserver._forkserver._forkserver_pid        # type: ignore[attr-defined]
        with contextlib.suppress(OSError):      # it has ended by itself
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


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
