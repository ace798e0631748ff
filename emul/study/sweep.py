"""`emul sweep`: every combination of values, seeds and schemes; what has been run is not run again."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from emul import scenario
from emul.base.extras import MissingExtra
from emul.base.files import write_atomically
from emul.record.marks import in_words
from emul.study import tables
from emul.study.cells import Cell, cells, check_grid
from emul.study.directory import Failure, StudyError, finished, opened, write_study, write_table
from emul.study.done import Done
from emul.study.job import CELLS
from emul.study.runs import StudyOutcome, Where, complete
from emul.study.stats import ends
from emul.study.text import escaped, tabular

if TYPE_CHECKING:
    import pandas as pd


_MEASURES = {"accuracy": "accuracy", "rounds_failed": "failed rounds", "virtual_s": "virtual s", "bytes": "MB"}


def latex(results: pd.DataFrame, grid: Sequence[str]) -> str:
    """The results for a paper: a line a scheme and combination of values, means over seeds with half the width of
    their 95 % intervals by Student's t, if scipy is there."""
    rows = [["scheme", *map(escaped, grid), "seeds", "accuracy of", *_MEASURES.values()]]
    for values, mine in results.groupby(["scheme", *grid], sort=False, dropna=False):
        cells = [*map(escaped, map(str, values)), str(len(mine)), in_words(mine["accuracy_of"].iloc[0]) or "--"]
        for name in _MEASURES:
            known = [float(value) / (1e6 if name == "bytes" else 1) for value in mine[name].dropna()]
            try:
                low, high = ends(known)
            except MissingExtra:
                low = high = None
            said = f"{np.mean(known):.3g}" if known else "--"
            cells.append(said if low is None or high is None else rf"{said} $\pm$ {(high - low) / 2:.2g}")
        rows.append(cells)
    return tabular(rows, "means over seeds, 95 % intervals by Student's t from 3 seeds on")


def sweep(given: scenario.Given, where: Where, *, grid: Mapping[str, Sequence[object]] | None = None,
          seeds: Sequence[int] | None = None, schemes: Sequence[str] = (), sets: Sequence[scenario.Edit] = (),
          out: Path | None = None, done: Path | None = None, shard: Shard | None = None,
          collected: Sequence[Path] = ()) -> StudyOutcome:
    """Run the sweep of a scenario into `out` (default: `runs/<name>-sweep`), and write its tables.

    grid, seeds, schemes: in place of those of the scenario's section `sweep`. done: a table of cells that are not
    run again, to which this adds (`emul.study.done`). shard: run this part of the cells alone (default of `out`: with
    `-3of16` at its end). collected: studies whose finished cells are copied; then nothing is run. Raises ScenarioError,
    before anything runs, if any combination is no sound scenario, and StudyError if `out` cannot be used.
    """
    base = scenario.load(given, sets, plugins=where.plugins)
    said = base.sweep or scenario.Sweep()
    check_grid(said.grid, scenario.named(given))
    grid = dict(said.grid if grid is None else grid)
    seeds = said.seeds if seeds is None else seeds
    table = None if done is None else Done(done, tuple(where.plugins))
    found = cells(given, grid, seeds, schemes or said.schemes, sets, where.plugins)
    out = out or Path("runs") / (f"{base.name}-sweep" + ("" if shard is None else f"-{shard.number}of{shard.of}"))
    if shard is not None:
        found = shard.part(found)

    results: pd.DataFrame

    def save(runs: list[Cell], failed: list[Failure]) -> None:
        nonlocal results
        results = tables.results(out, runs, list(grid))
        write_table(out, "results", results)
        write_study(out, "sweep", base.name, grid, [base.seed] if seeds is None else seeds, runs, failed)

    with opened(out, base.name):
        there = found
        if collected:
            collect(out, found, collected)
            there = [cell for cell in found if finished(out, cell)]
        study = complete(out, there, where, save, table)
        with write_atomically(out / "sweep.tex") as temporary:
            temporary.write_text(latex(results, list(grid)), encoding="utf-8")
        missing = len(found) - len(there)
        if not missing:
            return study
        left = f"{missing} of {len(found)} cells are in none of these studies; without --collect the command runs them"
        return replace(study, warnings=[*study.warnings, left])


# --- in parts, on machines that share nothing but a checkout or a wheel: run by shard, collected afterwards -----------

@dataclass(frozen=True)
class Shard:
    """Part `number` of `of`, from 1 on."""

    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def part(self, cells: Sequence[Cell]) -> list[Cell]:
        """Its cells. All shards together have each once, in numbers that differ by one at most; cells of one scheme
        and seed, whose trainings may be the same, stay together as far as that lets them."""
        ordered = sorted(cells, key=lambda cell: (cell.scheme, cell.seed))      # stable: values as the grid has them
        begin, end = (len(ordered) * k // self.of for k in (self.number - 1, self.number))
        mine = {cell.key for cell in ordered[begin:end]}
        return [cell for cell in cells if cell.key in mine]


def shard(text: str) -> Shard:
    """
    >>> shard("3/16")
    Shard(number=3, of=16)

    Raises ValueError.
    """
    found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text.strip())
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise ValueError("expected a part and their number, such as 3/16")
    return Shard(int(found[1]), int(found[2]))


def collect(path: Path, cells: Sequence[Cell], studies: Sequence[Path]) -> int:
    """Copy into the study at `path`, which is opened, the finished runs of its cells that others have; how many.

    A copy is there whole or not at all. Raises StudyError for a folder that is no study.
    """
    for other in studies:
        if not (other / CELLS).is_dir():
            raise StudyError(f"{other}: no directory of a study, such as `emul sweep --shard` makes")
    copied = 0
    for cell in cells:
        source = next((other for other in studies if finished(other, cell)), None)
        if source is None or finished(path, cell):
            continue
        target, temporary = (path / CELLS / name for name in (cell.key, f".{cell.key}.tmp"))
        shutil.rmtree(target, ignore_errors=True)           # an unfinished run
        shutil.copytree(source / CELLS / cell.key, temporary)
        temporary.rename(target)
        copied += 1
    return copied
