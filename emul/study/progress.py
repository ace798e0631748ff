"""The progress of a study for a person: a line for each cell that ends; on a terminal, the state of the others."""

from __future__ import annotations

import sys
import time
from typing import TextIO

from emul.base.plain import PlainMapping
from emul.record.marks import MARK, oracle_waits
from emul.record.progress import clock, live, rounded_size, seconds
from emul.study.cells import Cell
from emul.study.job import CellEvent

_LINES_EVERY_S = 10.0       # between lines on the progress of a long cell, where no line can be drawn again


class StudyProgress:
    """The progress of `todo` cells of `total`, on stderr; the others are there already."""

    def __init__(self, total: int, todo: int, quiet: bool = False, stream: TextIO | None = None):
        self._total, self._done, self._todo, self._quiet = total, total - todo, todo, quiet
        self._stream = sys.stderr if stream is None else stream
        self._begin = self._shown = time.monotonic()
        self._ended = 0
        self._live = None if quiet or not todo else live(self._stream)
        if not quiet and self._done:
            self._write(f"{self._done} of {total} cells are there already")

    def moved(self, cell: Cell, event: CellEvent) -> None:
        """A running cell has got to the end of a round."""
        now = time.monotonic()
        if self._quiet or (self._live is None and now - self._shown < _LINES_EVERY_S):
            return
        self._shown = now
        limit = cell.scenario.stop.rounds
        accuracy = "" if event.accuracy is None else f"  accuracy {event.accuracy:.3f}"
        line = (f"{self._done}/{self._total}  {cell.text}  round {event.round}" + (f"/{limit}" if limit else "")
                + f"  virtual {seconds(event.virtual_ns / 1e9)}{accuracy}{self._left()}")
        if self._live is not None:
            self._live.update(line, self._done / self._total)
        else:
            self._write(line)

    def ended(self, cell: Cell, event: CellEvent, summary: PlainMapping | None) -> None:
        """A cell is over; `summary` of one that came to its end."""
        self._done += 1
        self._ended += 1
        self._shown = time.monotonic()
        if self._quiet:
            return
        head = f"{self._done}/{self._total}  {cell.text}{MARK * bool(oracle_waits(summary or {}))}"
        if summary is None:
            said = str(event.error).strip().splitlines()
            self._write(f"{head}  failed: {said[0] if said else ''}")
            return
        accuracy = "-" if summary["accuracy"] is None else f"{summary['accuracy']:.3f}"
        self._write(f"{head}  accuracy {accuracy}  virtual {seconds(summary['virtual_seconds'])}  "
                    f"{rounded_size(summary['bytes_total'])}  real {clock(summary['real_seconds'])}{self._left()}")

    def _left(self) -> str:
        if not self._ended or self._ended >= self._todo:
            return ""
        return f"  left {clock((time.monotonic() - self._begin) * (self._todo - self._ended) / self._ended)}"

    def _write(self, line: str) -> None:
        if self._live is not None:
            self._live.write(line)
        else:
            self._stream.write(line + "\n")
            self._stream.flush()

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._live is not None:
            self._live.stop()
            self._live = None
