"""`emul.sweep`, `emul.compare` and `emul.suite`: many runs, and what they say."""

from __future__ import annotations

import operator
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from emul.api import html
from emul.api.arguments import Names, edits, grid_of, listed, plain, refresh, require, seeds_of
from emul.api.runs import Run, load_run
from emul.base.errors import EmulError
from emul.base.extras import optional
from emul.scenario import Given
from emul.study import directory, suite_text, text
from emul.study.compare import compare as run_compare
from emul.study.comparison import Comparison
from emul.study.directory import StudyTables
from emul.study.runs import StudyOutcome as Ended
from emul.study.runs import Where, crowded, placed
from emul.study.suite import SuiteOutcome
from emul.study.suite import suite as run_suite
from emul.study.sweep import sweep as run_sweep

if TYPE_CHECKING:
    from emul.api.plots import StudyPlots

Engine = Literal["local", "ray"]


@dataclass(frozen=True, repr=False)
class Study(StudyTables):
    """A sweep, a comparison or a suite: its tables as frames, its runs, figures.

    said: of a comparison or a suite made in this process, what the command prints.
    """

    said: str = ""

    def run(self, directory: str) -> Run:
        """One run, by its `directory` in `results`. Raises RecordError."""
        return load_run(self.path / directory)

    @property
    def plot(self) -> StudyPlots:
        """Its figures: `study.plot.accuracy()` and others."""
        with optional("figures need", "report"):
            from emul.api.plots import StudyPlots

        return StudyPlots(self.path)

    def report(self, out: str | os.PathLike[str] | None = None) -> Path:
        """Write the report, one HTML file; its path. out: default `report.html` in the directory of the study."""
        from emul.report import write

        return write(self.path, None if out is None else Path(out))

    def __repr__(self) -> str:
        return f"<Study {self.study['kind']} of {self.study['scenario']}: {len(self.results)} runs, {self.path}>"

    def __str__(self) -> str:
        return self.said or self.results.to_string(index=False)

    def _repr_html_(self) -> str:
        shown = self.results.drop(columns=["name", "directory", "oracle_waits", "digest"], errors="ignore")
        return (html.text(self.said) if self.said else html.table(shown)) + html.text(str(self.path))


class StudyFailed(EmulError):
    """A cell did not come to its end, or violates an invariant. `study`: what there is of the others."""

    def __init__(self, said: str, study: Study | None):
        super().__init__(said)
        self.study = study


def load_study(path: str | os.PathLike[str]) -> Study:
    """Read the directory of a sweep, a comparison or a suite. Raises StudyError."""
    require(path=path)
    return Study(**vars(directory.load_study(path)))


def sweep(scenario: Given, grid: Mapping[str, Sequence[object]] | None = None, *, seeds: Sequence[int] | None = None,
          schemes: Names | None = None, jobs: int = 1, workers: int | None = None, engine: Engine = "local",
          set: Mapping[str, object] = {}, out: str | os.PathLike[str] | None = None,
          done: str | os.PathLike[str] | None = None, plugins: Names = (), quiet: bool = False) -> Study:
    """Run a scenario for every combination of values, seeds and schemes, as `emul sweep` does.

    grid: values by path, `{"links[1].outage.p": [0.1, 0.3]}`; default that of the scenario's section `sweep`. Called
    again with the same `out`, it runs what is missing. Raises ScenarioError before anything runs, StudyError if `out`
    cannot be used, and StudyFailed when all cells have ended and one has failed.
    """
    require(scenario=scenario, grid=grid, schemes=schemes, jobs=jobs, workers=workers, engine=engine, set=set, out=out,
            done=done, plugins=plugins, quiet=quiet)
    ended = run_sweep(scenario, _where(engine, jobs, workers, plugins, quiet), grid=grid_of(grid),
                      seeds=seeds_of(seeds), schemes=listed(schemes), sets=edits(set), out=_path(out), done=_path(done))
    return _study(ended)


def compare(scenario: Given, *, schemes: Names | None = None, seeds: Sequence[int] | None = None,
            target: float | None = None, jobs: int = 1, workers: int | None = None, engine: Engine = "local",
            set: Mapping[str, object] = {}, out: str | os.PathLike[str] | None = None,
            plugins: Names = (), quiet: bool = False) -> Study:
    """Run every scheme of a scenario on the same realisations, as `emul compare` does, and say what differs.

    target: the accuracy to reach. `study.differences` has the intervals, `print(study)` says what the command says.
    Raises as `sweep` does.
    """
    require(scenario=scenario, schemes=schemes, target=target, jobs=jobs, workers=workers, engine=engine, set=set,
            out=out, plugins=plugins, quiet=quiet)
    found = run_compare(scenario, _where(engine, jobs, workers, plugins, quiet), schemes=listed(schemes),
                        seeds=seeds_of(seeds), target=target, sets=edits(set), out=_path(out))
    return _study(found.study, found)


def suite(schemes: Names | None = None, *, networks: Names | None = None, task: str | os.PathLike[str] = "digits",
          seeds: Sequence[int] | None = None, baseline: str | None = None, target: float | None = None, jobs: int = 1,
          workers: int | None = None, engine: Engine = "local", set: Mapping[str, object] = {},
          out: str | os.PathLike[str] | None = None, done: str | os.PathLike[str] | None = None, plugins: Names = (),
          quiet: bool = False) -> Study:
    """Run schemes over the networks of the suite, as `emul suite` does, and say who is best where.

    schemes: labels of the suite's schemes, names of others, or scenario files, whose schemes are taken; None: all of
    the suite. task: one of the suite, or a scenario file. `study.suite` has a row for each network and scheme,
    `study.differences` what differs from the baseline; `print(study)` says what the command says. Raises as `sweep`.
    """
    require(schemes=schemes, networks=networks, task=task, baseline=baseline, target=target, jobs=jobs, workers=workers,
            engine=engine, set=set, out=out, done=done, plugins=plugins, quiet=quiet)
    found = run_suite(_where(engine, jobs, workers, plugins, quiet), schemes=listed(schemes), networks=listed(networks),
                      task=os.fspath(task), seeds=seeds_of(seeds), baseline=baseline, target=target, sets=edits(set),
                      out=_path(out), done=_path(done))
    return _study(found.study, found)


def _where(engine: Engine, jobs: int, workers: int | None, plugins: Names, quiet: bool) -> Where:
    refresh(listed(plugins))
    jobs, workers = operator.index(jobs), plain(workers)
    if engine == "local" and (warning := crowded(jobs, workers)):
        warnings.warn(warning, stacklevel=3)
    return placed(engine, jobs, workers, listed(plugins), quiet)


def _path(path: str | os.PathLike[str] | None) -> Path | None:
    return None if path is None else Path(path)


def _study(ended: Ended, found: Comparison | SuiteOutcome | None = None) -> Study:
    for warning in ended.warnings:
        warnings.warn(warning, stacklevel=3)
    said = ("" if found is None else suite_text.printed(found.results, found.badge) if isinstance(found, SuiteOutcome)
            else text.comparison(found))
    study = Study(**vars(directory.load_study(ended.path)), said=said)
    wrong = [f"{failure.cell.text} failed: {failure.error.strip().splitlines()[-1]}" for failure in ended.failed]
    wrong += [f"{cell.text}: invariant violated: {text}" for cell, text in ended.violated]
    if wrong:
        raise StudyFailed("\n".join(wrong), study)
    return study
