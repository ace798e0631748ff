"""The runs of a study: those that are missing are run, whatever becomes of one of them; where they run, and their
progress for a person.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from emul.base.machine import cores
from emul.base.names import kind_of, listed
from emul.base.plain import PlainDict, PlainMapping
from emul.record.marks import MARK, accuracy_by, oracle_waits
from emul.record.progress import clock, live, rounded_size, seconds
from emul.record.rundir import SUMMARY, read_json
from emul.study import engines
from emul.study.cells import Cell
from emul.study.directory import Failure, finished
from emul.study.done import Done
from emul.study.engines import Engine
from emul.study.job import CELLS, CellEvent, CellJob

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
        self._write(f"{head}  {accuracy_by(summary.get('accuracy_of'))} {accuracy}  "
                    f"virtual {seconds(summary['virtual_seconds'])}  {rounded_size(summary['bytes_total'])}  "
                    f"real {clock(summary['real_seconds'])}{self._left()}")

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


@dataclass(frozen=True)
class Where:
    """The place and the way in which the cells of a study run. `workers`: processes a cell; 0: none, within the process
    that runs it."""

    engine: Engine
    workers: int = 1
    plugins: tuple[str, ...] = ()
    quiet: bool = True


def placed(engine: str = "local", jobs: int = 1, workers: int | None = None, plugins: Sequence[str] = (),
           quiet: bool = True) -> Where:
    """On this machine, `jobs` cells beside each other, or, engine "ray", as tasks of a Ray cluster.

    workers: processes of each; None: the cores divided by the jobs, 1 with Ray. Raises RayMissing.
    """
    if engine == "ray":
        return Where(engines.on_ray, 1 if workers is None else workers, tuple(plugins), quiet)
    local = engines.in_turn if jobs == 1 else engines.in_processes(jobs)
    return Where(local, _each(jobs, workers), tuple(plugins), quiet)


def crowded(jobs: int, workers: int | None) -> str:
    """A warning if the jobs want more cores than there are; "": they do not."""
    each = max(1, _each(jobs, workers))
    if jobs * each <= cores():
        return ""
    return (f"{jobs} jobs with {each} workers each share {cores()} cores: runs get slower, and measured times wrong")


def _each(jobs: int, workers: int | None) -> int:
    return max(1, cores() // jobs) if workers is None else workers


@dataclass(frozen=True)
class StudyOutcome:
    """The outcome of a study: its cells that were run to their end, those that failed, and warnings."""

    path: Path
    runs: list[Cell]
    failed: list[Failure]
    found: int                          # of the runs those that had been there before
    violated: list[tuple[Cell, str]]    # invariants, by cell
    warnings: list[str]
    from_store: float | None = None     # share of the trainings and evaluations of this call's runs that were known
    knowing: list[str] = field(default_factory=list)    # schemes of which a run has waits that know fates
    known: int = 0                      # cells that a table of done ones has, of which there is no run here


def complete(path: Path, cells: Sequence[Cell], where: Where, save: Callable[[list[Cell], list[Failure]], None],
             table: Done | None = None) -> StudyOutcome:
    """Run the cells that are missing in the study at `path`, which is `opened`.

    `save` is called with what there is before the first and after the last of them, an interrupt included. table: cells
    that have a row in it are not run; every other gets one as soon as it is finished.
    """
    there = {cell.key for cell in cells if finished(path, cell)}
    known = [cell for cell in cells if cell.key not in there and table is not None and cell in table]
    passed = {cell.key for cell in known}
    todo = {cell.key: cell for cell in cells if cell.key not in there and cell.key not in passed}
    tasks = [CellJob(key, cell.scenario.resolved(), str(path.resolve()), list(where.plugins), where.workers,
                     f"{cell.scheme} {cell.seed}") for key, cell in todo.items()]
    first = {group: place for place, group in reversed(list(enumerate(task.group for task in tasks)))}
    tasks.sort(key=lambda task: first[task.group])      # stable: the values of a grid one after the other
    progress = StudyProgress(len(cells), len(todo), where.quiet)
    done: set[str] = set(there)
    errors: dict[str, str] = {}
    warnings: dict[str, dict[str, str]] = {}        # kind -> key of a cell -> its first warning of that kind

    def runs() -> list[Cell]:
        return [cell for cell in cells if cell.key in done]

    def failed() -> list[Failure]:
        return [Failure(cell, errors[cell.key]) for cell in cells if cell.key in errors]

    def keep(ended: Sequence[Cell]) -> None:
        for cell in ended:
            if table is not None:
                table.add(path, cell)

    def tell(event: CellEvent) -> None:
        cell = todo[event.key]
        if not event.done:
            progress.moved(cell, event)
            return
        if event.error is None:
            done.add(cell.key)
            keep([cell])
        else:
            errors[cell.key] = event.error
        for text in event.warnings:
            warnings.setdefault(kind_of(text), {}).setdefault(cell.key, text)
        progress.ended(cell, event, summary_of(path, cell) if event.error is None else None)

    save(runs(), [])
    keep(runs())
    try:
        where.engine(tasks, tell)
    finally:
        progress.close()
        # After an interrupt: what ended meanwhile, and of which nothing was told any more. The others are not asked
        # again, since that reads all tables of a run.
        done |= {cell.key for cell in cells if cell.key not in done and cell.key not in errors
                 and finished(path, cell)}
        save(runs(), failed())
        keep(runs())
    said = [_of_cells(texts, cells) for texts in warnings.values()]
    if table is not None and (older := table.older(known)):
        said.append(f"{table.path}: {older} of the {len(known)} cells in it were run with other code than there is "
                    "now; delete their rows to have them run again, or see with `emul verify` whether they still hold")
    summaries = [(cell, summary_of(path, cell)) for cell in runs()]
    violated = [(cell, text) for cell, summary in summaries if isinstance(summary["invariants"], list)
                for text in summary["invariants"]]
    knowing = dict.fromkeys(cell.scheme for cell, summary in summaries if oracle_waits(summary))
    uses = [use for cell, summary in summaries if cell.key not in there and (use := summary.get("real_store"))]
    wanted = sum(use["found"] + use["missed"] for use in uses)
    return StudyOutcome(path, runs(), failed(), len(there), violated, sorted(said),
                        sum(use["found"] for use in uses) / wanted if wanted else None, list(knowing), len(known))


def _of_cells(texts: dict[str, str], cells: Sequence[Cell]) -> str:
    """The first of these warnings, by key of a cell, in the order of the cells, with the cells that gave them."""
    gave = [cell for cell in cells if cell.key in texts]
    text = texts[gave[0].key]
    if len(gave) == 1:
        return f"{gave[0].text}: {text}"
    return f"{text} (in {len(gave)} of {len(cells)} cells: {listed([cell.text for cell in gave], 3)})"


def summary_of(path: Path, cell: Cell) -> PlainDict:
    """The summary of a cell that has been run. Raises RecordError."""
    return read_json(path / CELLS / cell.key / SUMMARY)
