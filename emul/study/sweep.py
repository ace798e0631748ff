"""`emul sweep`: every combination of values, seeds and schemes; what has been run is not run again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from emul import scenario
from emul.study import tables
from emul.study.cells import Cell, cells, check_grid
from emul.study.directory import Failure, opened, write_study, write_table
from emul.study.done import Done
from emul.study.runs import Study, Where, complete


def sweep(given: scenario.Given, where: Where, *, grid: Mapping[str, Sequence[Any]] | None = None,
          seeds: Sequence[int] | None = None, schemes: Sequence[str] = (), sets: Sequence[scenario.Edit] = (),
          out: Path | None = None, done: Path | None = None) -> Study:
    """Run the sweep of a scenario into `out` (default: `runs/<name>-sweep`), and write its tables.

    grid, seeds, schemes: in place of those of the scenario's section `sweep`. done: a table of cells that are not
    run again, to which this adds (`emul.study.done`). Raises ScenarioError, before anything
    runs, if any combination is no sound scenario, and StudyError if `out` cannot be used.
    """
    base = scenario.load(given, sets, plugins=where.plugins)
    said = base.sweep or scenario.Sweep()
    check_grid(said.grid, scenario.named(given))
    grid = dict(said.grid if grid is None else grid)
    seeds = said.seeds if seeds is None else seeds
    table = None if done is None else Done(done, tuple(where.plugins))
    found = cells(given, grid, seeds, schemes or said.schemes, sets, where.plugins)
    out = out or Path("runs") / f"{base.name}-sweep"

    def save(runs: list[Cell], failed: list[Failure]) -> None:
        write_table(out, "results", tables.results(out, runs, list(grid)))
        write_study(out, "sweep", base.name, grid, [base.seed] if seeds is None else seeds, runs, failed)

    with opened(out):
        return complete(out, found, where, save, table)
