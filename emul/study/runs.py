"""The runs of a study: those that are missing are run, whatever becomes of one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from emul.base.names import kind_of, listed
from emul.base.plain import PlainDict
from emul.record.marks import oracle_waits
from emul.record.rundir import SUMMARY, read_json
from emul.study.cells import Cell
from emul.study.directory import Failure, finished
from emul.study.done import Done
from emul.study.engines import Engine
from emul.study.job import CELLS, CellEvent, CellJob
from emul.study.progress import StudyProgress


@dataclass(frozen=True)
class Where:
    """The place and the way in which the cells of a study run. `workers`: processes a cell; 0: none, within the process
    that runs it."""

    engine: Engine
    workers: int = 1
    plugins: tuple[str, ...] = ()
    quiet: bool = True


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
        # after an interrupt: what ended meanwhile, and of which nothing was told any more
        done |= {cell.key for cell in cells if cell.key not in errors and finished(path, cell)}
        save(runs(), failed())
        keep(runs())
    said = [_of_cells(texts, cells) for texts in warnings.values()]
    if table is not None and (older := table.older(known)):
        said.append(f"{table.path}: {older} of the {len(known)} cells in it were run with other code than there is "
                    "now; delete their rows to have them run again, or see with `emul verify` whether they still hold")
    summaries = [(cell, summary_of(path, cell)) for cell in runs()]
    violated = [(cell, text) for cell, summary in summaries for text in _violations(summary)]
    knowing = dict.fromkeys(cell.scheme for cell, summary in summaries if oracle_waits(summary))
    return StudyOutcome(path, runs(), failed(), len(there), violated, sorted(said),
                        _from_store(path, runs(), there), list(knowing), len(known))


def _of_cells(texts: dict[str, str], cells: Sequence[Cell]) -> str:
    """The first of these warnings, by key of a cell, in the order of the cells, with the cells that gave them."""
    gave = [cell for cell in cells if cell.key in texts]
    text = texts[gave[0].key]
    if len(gave) == 1:
        return f"{gave[0].text}: {text}"
    return f"{text} (in {len(gave)} of {len(cells)} cells: {listed([cell.text for cell in gave], 3)})"


def _from_store(path: Path, runs: Sequence[Cell], there: set[str]) -> float | None:
    """Share of the trainings and evaluations of the runs made now that were found in the store; None: there is none."""
    uses = [use for cell in runs if cell.key not in there and (use := summary_of(path, cell).get("real_store"))]
    asked = sum(use["found"] + use["missed"] for use in uses)
    return sum(use["found"] for use in uses) / asked if asked else None


def summary_of(path: Path, cell: Cell) -> PlainDict:
    """The summary of a cell that has been run. Raises RecordError."""
    return read_json(path / CELLS / cell.key / SUMMARY)


def _violations(summary: dict[str, object]) -> list[str]:
    held = summary["invariants"]
    return held if isinstance(held, list) else []
