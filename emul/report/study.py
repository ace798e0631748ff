"""Several runs: the directories that `emul sweep` and `emul compare` write, and plain lists of run directories.

Files of a study directory: study.json, results.parquet, and of a comparison curves.parquet and differences.parquet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from emul.base.plain import PlainDict
from emul.record import rundir, salvage
from emul.record.journal import RecordError
from emul.record.marks import among, in_words, incomplete, oracle_waits
from emul.record.tables import read_table

STUDY = "study.json"
FORMAT = 1


@dataclass(frozen=True)
class StudyMember:
    """One run of a study. `series`: the name that it shares with the other seeds of the same thing."""

    path: Path
    series: str
    seed: int | None
    values: PlainDict
    summary: PlainDict

    @cached_property
    def stop(self) -> PlainDict:
        """The limits of the run, as its scenario says. Raises RecordError."""
        file = self.path / rundir.SCENARIO
        return dict(rundir.read_section(file, "stop") or {}) if file.is_file() else {}


@dataclass(frozen=True)
class Target:
    """Accuracies to reach, one a kind of accuracy, and what it took. reached: series, target, seeds (that reached it),
    of (how many there are), and the means virtual_s and mb over those that did, each with its _low and _high."""

    reached: pd.DataFrame

    @property
    def accuracies(self) -> list[float]:
        """The targets, ascending."""
        return sorted({float(value) for value in self.reached["target"]})


@dataclass(frozen=True)
class StudyRuns:
    """Several runs. kind: "sweep", "compare", or "runs" for a plain list of run directories."""

    path: Path
    kind: str
    name: str
    members: list[StudyMember]
    failed: list[dict[str, object]] = field(default_factory=list)
    grid: dict[str, list[Any]] = field(default_factory=dict)
    seeds: list[int] = field(default_factory=list)
    curves: pd.DataFrame | None = None
    differences: pd.DataFrame | None = None
    target: Target | None = None
    answer: list[str] = field(default_factory=list)         # of a comparison, as the command printed it

    def representatives(self) -> list[StudyMember]:
        """The first run of every series, by seed: what is shown in detail."""
        found: dict[str, StudyMember] = {}
        for member in sorted(self.members, key=lambda m: -1 if m.seed is None else m.seed):
            found.setdefault(member.series, member)
        return [found[name] for name in dict.fromkeys(m.series for m in self.members)]


def knowing(found: StudyRuns) -> list[str]:
    """Series of which a run has waits that know fates."""
    return list(dict.fromkeys(m.series for m in found.members if oracle_waits(m.summary)))


def kinds_of(found: StudyRuns) -> list[str]:
    """The kinds of accuracy of its runs, in words; "": of a run of before emul said it."""
    return list(dict.fromkeys(in_words(m.summary.get("accuracy_of")) for m in found.members
                              if m.summary["accuracy"] is not None))


def marked(found: StudyRuns) -> StudyRuns:
    """The study with the mark of such waits at the names of its series, in every frame; and where runs have several
    kinds of accuracy, with the kind of each: such accuracies are not to be compared."""
    marked_ones, several = knowing(found), len(kinds_of(found)) > 1
    names = {m.series: among(m.series, marked_ones) + (
        f" ({in_words(m.summary['accuracy_of'])})" if several and m.summary.get("accuracy_of") else "")
        for m in found.members}

    def renamed(frame: pd.DataFrame | None, *columns: str) -> pd.DataFrame | None:
        return None if frame is None else frame.assign(**{c: frame[c].replace(names) for c in columns})

    return replace(found, members=[replace(m, series=names[m.series]) for m in found.members],
                   curves=renamed(found.curves, "scheme"),
                   differences=renamed(found.differences, "scheme", "baseline"),
                   target=found.target and replace(found.target, reached=found.target.reached.assign(
                       series=found.target.reached["series"].replace(names))))


def is_study(path: Path) -> bool:
    """True if the directory has the file that a study leaves when it is written."""
    return (path / STUDY).is_file()


def is_run(path: Path) -> bool:
    """True if it is the directory of a run: of one that has ended it has a summary, else a journal."""
    return (path / (rundir.JOURNAL if salvage.is_unfinished(path) else rundir.SUMMARY)).is_file()


def open_study(path: Path) -> StudyRuns:
    """Read a study directory. Raises RecordError for what is none."""
    file = path / STUDY
    found = rundir.read_json(file)
    if found.get("emul_study") != FORMAT:
        raise RecordError(f"{file}: expected emul_study {FORMAT}")
    members = []
    for entry in found.get("runs", []):
        folder = path / entry["directory"]
        if is_run(folder) and not salvage.is_unfinished(folder):    # a study that goes on lists what it has
            series = ", ".join(filter(None, [entry.get("network"), str(entry["scheme"])]))
            members.append(StudyMember(folder, series, entry.get("seed"), dict(entry.get("values") or {}),
                                       summary_of(folder)))
    if not members:
        raise RecordError(f"{path}: no run of this study has ended")
    failed = [{**entry, **_until(path / str(entry.get("directory")))} for entry in found.get("failed", [])]
    kind = str(found.get("kind"))       # the tables of a suite have other columns: `emul.report.suite`
    curves, differences, metrics = (
        read_table(table).to_pandas() if kind == "compare" and (table := path / f"{name}.parquet").is_file() else None
        for name in ("curves", "differences", "metrics"))
    return StudyRuns(path, kind, str(found.get("scenario")), members, failed,
                     {str(k): list(v) for k, v in (found.get("grid") or {}).items()}, list(found.get("seeds") or []),
                     curves, differences, _target(found.get("targets"), metrics),
                     [str(text) for text in found.get("answer") or ()])


def _target(targets: Any, metrics: pd.DataFrame | None) -> Target | None:
    """The targets of a comparison by scheme, and the means of what it took each."""
    if not targets or metrics is None:
        return None
    took = [metrics[metrics["metric"] == metric].groupby("scheme", sort=False)["value"]
            for metric in ("time_to_target", "bytes_to_target")]
    reached = pd.DataFrame({
        "target": pd.Series(targets, dtype=float), "seeds": took[0].count(), "of": took[0].size(), **{
        f"{name}{end}": getattr(values, how)() for name, values in zip(("virtual_s", "mb"), took, strict=True)
        for end, how in (("", "mean"), ("_low", "min"), ("_high", "max"))}})
    return Target(reached.dropna(subset=["target"]).rename_axis("series").reset_index())


def _until(folder: Path) -> dict[str, object]:
    """The progress of a cell that did not come to its end, from its journal."""
    try:
        summary = salvage.unfinished(folder).summary
    except RecordError as error:
        return {"incomplete": str(error)}
    return {"incomplete": incomplete(summary), "accuracy": summary["accuracy"]}


def summary_of(folder: Path) -> PlainDict:
    """The summary of a run directory, of a run that has not ended as well. Raises RecordError for what is no JSON."""
    if salvage.is_unfinished(folder):
        return salvage.unfinished(folder).summary
    return rundir.read_json(folder / rundir.SUMMARY)


def of_runs(folders: Sequence[Path]) -> StudyRuns:
    """Run directories side by side. A series is a scheme; where a scheme comes twice with one seed, a directory."""
    summaries = [summary_of(folder) for folder in folders]
    names = [str(rundir.read_section(file, "name")) if (file := folder / rundir.SCENARIO).is_file() else ""
             for folder in folders]
    several = len(set(names)) > 1
    series = [f"{name}, {s['label']}" if several else str(s["label"])
              for name, s in zip(names, summaries, strict=True)]
    seeds = [s.get("seed") for s in summaries]
    pairs = list(zip(series, seeds, strict=True))
    if len(set(pairs)) < len(pairs):
        series = [folder.resolve().name for folder in folders]
        if len(set(series)) < len(series):
            series = ["/".join(folder.resolve().parts[-2:]) for folder in folders]
    series = [f"{name} (INCOMPLETE)" if incomplete(s) else name for name, s in zip(series, summaries, strict=True)]
    members = [StudyMember(folder, name, seed, {}, summary)
               for folder, name, seed, summary in zip(folders, series, seeds, summaries, strict=True)]
    return StudyRuns(folders[0].resolve().parent, "runs", ", ".join(dict.fromkeys(names)), members)


def runs_in(path: Path) -> list[Path]:
    """The directories of runs in `path`, ordered by their number after the name, then by name."""
    return sorted((p for p in path.iterdir() if is_run(p)), key=_order) if path.is_dir() else []


def _order(path: Path) -> tuple[str, int, str]:
    stem, _, number = path.name.rpartition("-")
    return (stem, int(number), "") if number.isdigit() else (path.name, 0, path.name)
