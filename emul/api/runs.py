"""Runs as values: tables, models, figures, and how a notebook shows them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from emul import scenario as scenarios
from emul.api import html
from emul.api.arguments import Names, listed, require
from emul.base.errors import EmulError
from emul.base.extras import optional
from emul.engine import Result
from emul.record import load as recorded
from emul.record.journal import RecordError
from emul.record.load import OpenedRun, RunTables, opened
from emul.record.progress import table
from emul.record.rundir import SCENARIO
from emul.scenario import Scenario

if TYPE_CHECKING:
    import pandas as pd
    from torch import nn

    from emul.api.plots import RunPlots, RunsPlots


class Run(RunTables):
    """One scheme's run: its tables as frames, models, figures. Tables are read when they are asked for.

    error: why it failed, and `violations`: invariants that do not hold; both are of runs made in this process.
    """

    def __init__(self, tables: RunTables, error: str | None = None, violations: Sequence[str] = (),
                 warnings: Sequence[str] = ()):
        super().__init__(tables.path, tables.summary, tables.read, tables.plugins)
        self.error, self.violations, self.warnings = error, list(violations), list(warnings)

    @property
    def scheme(self) -> str:
        """Its label: the scheme's name, where the scenario gives no other."""
        return str(self.summary["label"])

    @property
    def digest(self) -> str | None:
        """Of journal and models: equal where a run was the same. None: it did not come to its end."""
        return self.summary.get("digest")

    @property
    def accuracy(self) -> float | None:
        """The last one observed; None: none was."""
        found: float | None = self.summary["accuracy"]
        return found

    @cached_property
    def scenario(self) -> Scenario:
        """The scenario that it ran, resolved; the plug-ins are not asked. Raises ScenarioError."""
        return scenarios.load(self.path / SCENARIO, check=False)

    def module(self, node: str | None = None, round_: int | None = None, plugins: Names = ()) -> nn.Module:
        """The model that a node left as a module of torch, with the parameters that were frozen, which `model` has not.

        plugins: the modules that it was run with, unless it was run by this process. Raises KeptError: it left none;
        RecordError: no task's model, or such modules are not given.
        """
        from emul.engine.reopening import whole

        return whole(self.path, node, round_, listed(plugins) or self.plugins)

    @property
    def plot(self) -> RunPlots:
        """Its figures: `run.plot.accuracy()` and others."""
        with optional("figures need", "report"):
            from emul.api.plots import RunPlots

        return RunPlots(self.path)

    def report(self, out: str | os.PathLike[str] | None = None) -> Path:
        """Write the report of the run, one HTML file; its path. out: default `report.html` in the run directory."""
        from emul.report import write

        return write(self.path, None if out is None else Path(out))

    def __repr__(self) -> str:
        return f"<Run {self.scheme}: {self.path}{' FAILED' if self.error else ''}>"

    def _repr_html_(self) -> str:
        return _shown([self]) + html.text(self.error or str(self.path))


class Runs(list[Run]):
    """The runs of a scenario's schemes, in their order."""

    def __init__(self, runs: Iterable[Run] = ()):
        super().__init__(runs)

    @property
    def table(self) -> pd.DataFrame:
        """One row a run: what its summary says of accuracy, time, bytes and losses."""
        import pandas as pd

        names = ("rounds", "rounds_failed", "accuracy", "virtual_seconds", "bytes_total", "messages_sent",
                 "messages_lost", "real_seconds", "digest")
        return pd.DataFrame([{"scheme": run.scheme, **{name: run.summary.get(name) for name in names},
                              "directory": str(run.path)} for run in self])

    @property
    def plot(self) -> RunsPlots:
        """Figures of all of them: `runs.plot.accuracy()` and others."""
        with optional("figures need", "report"):
            from emul.api.plots import RunsPlots

        return RunsPlots([run.path for run in self])

    def of(self, scheme: str) -> Run:
        """The run of a scheme, by its label. Raises KeyError."""
        found = [run for run in self if run.scheme == scheme]
        if not found:
            raise KeyError(f"no run of {scheme}; there are: {', '.join(run.scheme for run in self)}")
        return found[0]

    def __str__(self) -> str:
        return table([run.summary for run in self]) if self else "no runs"

    def _repr_html_(self) -> str:
        return _shown(self)


class RunFailed(EmulError):
    """A run did not come to its end, or violates an invariant. `runs`: all of the call, as far as they came."""

    def __init__(self, said: str, runs: Runs):
        super().__init__(said)
        self.runs = runs


def load_run(path: str | os.PathLike[str]) -> Run:
    """Read a run directory. One of a run that has not ended is read from its journal, with a warning IncompleteRun.

    Raises RecordError: not a run directory, or files are damaged.
    """
    require(path=path)
    return Run(recorded.load_run(path))


def runs_of(results: Sequence[Result], plugins: Sequence[str] = ()) -> Runs:
    """The runs of one call, made with these plug-ins. Raises RunFailed."""
    runs = Runs(Run(_tables(result, plugins), result.error, result.violations, result.warnings) for result in results
                if result.directory is not None)
    said = [f"{r.scheme} failed: {r.error}" for r in results if r.error is not None]
    said += [f"{r.scheme}: invariant violated: {text}" for r in results for text in r.violations]
    if said:
        raise RunFailed("\n".join(said), runs)
    return runs


def _tables(result: Result, plugins: Sequence[str]) -> RunTables:
    """Those of a run that has just ended; of one that failed, what its journal says."""
    assert result.directory is not None
    path = result.directory
    try:
        record = opened(path, ()) if result.summary is None else OpenedRun(path, result.summary, None)
    except RecordError:                     # its journal holds nothing
        record = OpenedRun(path, {"label": result.scheme, "accuracy": None}, None)
    return RunTables(path, record.summary, record.table, plugins)


def _shown(runs: Sequence[Run]) -> str:
    """As the command's table."""
    lines = [run.summary for run in runs if "rounds" in run.summary]
    return html.text(table(lines)) if lines else ""
