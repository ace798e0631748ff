"""Follows the journal of a run as it grows, whoever writes it, and says how the run stands."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from emul.record.journal import Reading, RecordError
from emul.record.rundir import JOURNAL, RESUMED, RunDirectory, read_error
from emul.report.live.state import DAMAGED, ENDED, RUNNING, STOPPED, WAITING, RunProgress

EVERY_S = 0.5
_SHARE = 0.1                        # of a core that telling may take, at most


class Follower:
    """Reads in a thread of its own. told: called with a new state, at most every `every_s` seconds, from that thread.

    A run that was cut off is followed again once it is resumed; one that has ended is not looked at any more.
    """

    def __init__(self, directory: Path, told: Callable[[RunProgress], None], every_s: float = EVERY_S):
        self._directory, self._told, self._every_s = RunDirectory(directory), told, every_s
        self._over, self._ending, self._settled = threading.Event(), threading.Event(), threading.Event()
        self._rest_s = every_s
        self._file = Path()
        self._reading: Reading | None = None
        self._state = RunProgress(directory)
        self._thread = threading.Thread(target=self._follow, name="emul-follower", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns once nothing more is told."""
        self._over.set()
        self._thread.join()

    def settle(self, timeout_s: float) -> None:
        """Returns once all of a run that nobody writes any more was told, or after a while."""
        self._ending.set()
        self._settled.wait(timeout_s)

    def _follow(self) -> None:
        while not self._over.is_set():
            ending = self._ending.is_set()
            self._file = self._newest()
            if self._file.is_file():
                self._read()
            else:
                self._tell(WAITING)
            if self._state.status == ENDED:
                return
            if self._state.status == DAMAGED and ending:    # before that, perhaps its head was only being written
                self._settled.set()
            self._over.wait(self._every_s)

    def _newest(self) -> Path:
        """The journal that is written: that of a resumption stands beside the old one until it ends."""
        resumed = self._directory.path / RESUMED
        return resumed if resumed.is_file() else self._directory.path / JOURNAL

    def _read(self) -> None:
        """One journal, from its first row to where it ends or is left."""
        self._state = RunProgress(self._directory.path)
        try:
            self._reading = Reading(self._file, sums=False, more=self._more)
            self._state.begin(self._reading.header)
            for chunk in self._reading.chunks():
                self._state.take(chunk)
            self._until_written()
        except RecordError as error:
            self._state.why = str(error)
            self._tell(DAMAGED)
        except OSError as error:
            self._state.why = f"{error.filename}: {error.strerror}"
            self._tell(DAMAGED)
        self._reading = None

    def _more(self) -> bool:
        """All that is there was read. Returns whether there can be more of it, after a while."""
        reading = self._reading
        if reading is None:                         # not even its header
            return not self._over.wait(self._every_s) and self._directory.running
        self._state.observe(reading.observed)
        if reading.complete or self._over.is_set():
            return False
        if not self._directory.running:
            return self._left()
        self._tell(RUNNING)
        return not self._over.wait(self._rest_s)

    def _left(self) -> bool:
        """Nobody writes it, and it has no end: told once, until somebody does again."""
        self._state.why = why_stopped(self._directory.path)
        self._tell(STOPPED)
        while not self._over.wait(self._every_s):
            if not self._file.is_file() or self._file != self._newest() or self._directory.running:
                return False                        # resumed, into another file
        return False

    def _until_written(self) -> None:
        """The journal has its end; the tables come after it."""
        if not (self._reading and self._reading.complete):
            return
        self._state.observe(self._reading.observed)
        while self._directory.running and not self._over.wait(self._every_s):
            self._tell(RUNNING)
        if self._directory.complete:
            self._tell(ENDED)
        else:
            self._left()

    def _tell(self, status: str) -> None:
        if status != RUNNING and status == self._state.status:
            return
        self._state.status = status
        begin = time.monotonic()
        self._state.sample(begin)
        self._told(self._state)
        self._rest_s = max(self._every_s, (time.monotonic() - begin) / _SHARE)
        if status in (ENDED, STOPPED):
            self._settled.set()


def why_stopped(directory: Path) -> str:
    """The reason why a run stopped early, as far as it has left word."""
    lines = read_error(directory)
    return lines[-1][:500] if lines else "it was killed, or its machine stopped"

