"""One cell run to its end, with its origin, and the loop of a process that runs one cell after the other.

    python -m emul.study.job FD      tasks are lines of JSON on stdin, events lines of JSON on the file descriptor FD

Only JSON and paths cross. stdout stays free, since roles of a plug-in may print.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from emul import __version__, engine
from emul.base.errors import EmulError
from emul.base.machine import chip
from emul.record.rundir import TRAININGS, read_json, write_json
from emul.record.summary import versions
from emul.scenario import loads
from emul.study.syntax import ROOT

CELLS = "cells"
_TELL_EVERY_S = 0.5


class CellJob(msgspec.Struct, frozen=True):
    """A cell to run: its key, its resolved scenario as text, and the directory of the study. group: of cells that may
    share trainings, and therefore run one after the other. store: of trainings, not the study's; "none": none."""

    key: str
    scenario: str
    study: str
    plugins: list[str] = []
    workers: int = 1
    group: str = ""
    store: str = ""


class CellEvent(msgspec.Struct, frozen=True):
    """News of a cell: its progress, or, with `done`, that it is over; a failed one has an error."""

    key: str
    done: bool = False
    round: int = 0
    virtual_ns: int = 0
    accuracy: float | None = None
    error: str | None = None
    warnings: list[str] = []


Tell = Callable[[CellEvent], None]


@dataclass
class PoolOnDemand:
    """A pool of workers that is opened when first needed, and anew after it was lost."""

    workers: int
    timeout_s: float = 30.0
    _open: object = None
    _stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def get(self) -> Any:
        """The workers, started at the first call and at the first one after `close`."""
        if self._open is None:
            self._open = self._stack.enter_context(engine.pool_of(self.workers, self.timeout_s))
        return self._open

    def close(self) -> None:
        """End the workers, if there are any."""
        self._open = None
        self._stack.close()

    def __enter__(self) -> PoolOnDemand:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def run_cell(task: CellJob, pool: PoolOnDemand, tell: Tell) -> CellEvent:
    """Run a cell into `cells/<key>` of the study. If it fails, the event has the `error`.

    It runs into a directory beside that one, which takes the name when it is complete. One that failed takes the name
    too, with its mark INCOMPLETE, so that one can look into it; it is run again the next time.
    """
    cells = Path(task.study) / CELLS
    place = cells / f".{task.key}.{os.getpid()}.tmp"
    last = 0.0

    def watch(round: int, virtual_ns: int, accuracy: float | None) -> None:
        nonlocal last
        if time.monotonic() - last >= _TELL_EVERY_S:
            last = time.monotonic()
            tell(CellEvent(task.key, round=round, virtual_ns=virtual_ns, accuracy=accuracy))

    warnings: tuple[str, ...] = ()
    try:
        try:
            one = loads(task.scenario, f"cell {task.key}", check=False)
            store = Path(task.store) if task.store else None
            keeping = engine.Keeping.chosen(store, default=Path(task.study) / TRAININGS)
            result = engine.run(one, workers=pool.get(), out=place, plugins=task.plugins, watch=watch,
                                keeping=keeping)[0]
            error, warnings = result.error, result.warnings
            if result.directory is not None:
                write_json(result.directory / ORIGIN, origin())
            if result.worker_died:
                pool.close()
        except EmulError as e:
            error = f"{type(e).__name__}: {e}"
        except Exception as e:          # a bug, of a scheme or ours: the other cells are worth having all the same
            error = f"{type(e).__name__}: {e}\n{traceback.format_exc().rstrip()}"
            pool.close()
        made = next(iter(sorted(place.iterdir())), None) if place.is_dir() else None
        if made is not None:                # it takes the name of the cell; the error, if any, is in it
            if error is not None:
                (made / "error.txt").write_text(error + "\n", encoding="utf-8")
            there = cells / task.key
            if there.is_symlink() or there.is_file():
                there.unlink()
            shutil.rmtree(there, ignore_errors=True)
            made.rename(there)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return CellEvent(task.key, done=True, error=error, warnings=list(warnings))


def run_text(text: str, paths: Sequence[str]) -> str:
    """`run_cell` from JSON to JSON, on a pool of its own: for engines that place single calls. paths: folders that are
    searched for modules, after those that this process searches."""
    sys.path += [path for path in paths if path not in sys.path]
    task = msgspec.json.decode(text, type=CellJob)
    with PoolOnDemand(task.workers) as pool:
        return msgspec.json.encode(run_cell(task, pool, lambda event: None)).decode()


# --- the loop of a process ------------------------------------------------------------------------------------------

def main(descriptor: int) -> None:
    """Run what comes on stdin until it ends; if it ends during a cell, whoever wanted it is gone: interrupt."""
    os.set_inheritable(descriptor, False)
    busy = threading.Event()
    tasks: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(tasks, busy), daemon=True).start()
    pool: PoolOnDemand | None = None
    with os.fdopen(descriptor, "wb") as out, contextlib.ExitStack() as stack:
        def tell(event: CellEvent) -> None:
            out.write(msgspec.json.encode(event) + b"\n")
            out.flush()

        for line in iter(tasks.get, None):
            task = msgspec.json.decode(line, type=CellJob)
            busy.set()
            pool = pool or stack.enter_context(PoolOnDemand(task.workers))
            tell(run_cell(task, pool, tell))
            busy.clear()


def _listen(tasks: queue.SimpleQueue[bytes | None], busy: threading.Event) -> None:
    for line in sys.stdin.buffer:
        tasks.put(line)
    tasks.put(None)
    if busy.is_set():
        os.kill(os.getpid(), signal.SIGINT)


# --- the origin of a cell: beside its run, and in rows of tables ----------------------------------------------------

ORIGIN = "origin.json"
ORIGIN_COLUMNS = {
    "revision": "The commit of emul that ran it; `+`: its files had been changed; `~`: the commit that brought the "
                "row, which was made with it or shortly before. Without a checkout the version.",
    "processor": "Name of the processor, and a hash of its features.",
    "torch": "Version of torch.",
    "made": "Day, UTC.",
}


def origin() -> dict[str, str]:
    """`ORIGIN_COLUMNS` of a run of this process that ends now."""
    return {"revision": revision(), "processor": chip(), "torch": versions()["torch"], "made": today()}


def read_origin(run: Path) -> dict[str, str]:
    """`ORIGIN_COLUMNS` of a run of a study; empty texts: it was run before they were kept."""
    file = run / ORIGIN
    said = read_json(file) if file.is_file() else {}
    return {name: str(said.get(name, "")) for name in ORIGIN_COLUMNS}


def today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


@cache
def revision() -> str:
    """The commit of the checkout that emul is imported from, `5126f34d91`; with + if its files have been changed."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        _git("ls-files", "--error-unmatch", "__init__.py")      # emul may be installed inside of another checkout
        changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".")
        return _git("rev-parse", "--short=10", "HEAD") + ("+" if changed else "")
    return f"emul {__version__}"


def _git(*said: str) -> str:
    return subprocess.run(["git", "-C", str(ROOT), *said], capture_output=True, text=True, check=True,
                          timeout=20).stdout.strip()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)       # rows are kept, nothing is left behind
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        main(int(sys.argv[1]))
