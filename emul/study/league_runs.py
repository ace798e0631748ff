"""The runs of a league, and its page: each run is a row as soon as it ends, and all that is said is computed from rows.

So a league goes on where it was, on any machine.
"""

from __future__ import annotations

import csv
import math
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from emul.base.files import write_atomically
from emul.base.plain import PlainDict, PlainMapping
from emul.record.rundir import SUMMARY, read_json
from emul.study import tables
from emul.study.cells import Cell
from emul.study.directory import StudyError, opened
from emul.study.done import AGAIN, again
from emul.study.job import CELLS, CellEvent, CellJob
from emul.study.leagues import SCORING, TUNING, League, LeagueEntry
from emul.study.runs import StudyProgress, Where
from emul.study.standings import (
    HEAD,
    LEADERBOARD,
    Row,
    chosen,
    contrast,
    contrast_line,
    curves,
    findings,
    leaderboard,
    standings,
    table_lines,
)
from emul.study.suite import require_known

POINTS_OF_PATH = 30                 # observations that a row keeps of a run, beside those that beat all before them
COLUMNS = (*AGAIN, "league", "task", "definition", "part", "network", "label", "point", "accuracy_of", "accuracy",
           "rounds", "rounds_failed", "virtual_s", "bytes", "oracle_waits", "path")


# --- rows -------------------------------------------------------------------------------------------------------------

def read(table: Path, league: League) -> list[Row]:
    """The rows of a league in a table; those of other leagues and tasks, and of what was defined otherwise, are passed
    over."""
    if not table.is_file():
        return []
    text = table.read_text(encoding="utf-8")
    reader = csv.DictReader(text[:text.rfind("\n") + 1].splitlines())       # the last row may have been cut
    if tuple(reader.fieldnames or ()) != COLUMNS:
        raise StudyError(f"{table}: is no table of a league")
    meanings = league.meanings()
    mine: list[Row] = [row for row in reader if (row["league"], row["task"]) == (league.name, league.task)
                       and row["definition"] == meanings.get((row["label"], row["network"]))]
    wrong = {row["label"]: row["accuracy_of"] for row in mine if row["accuracy_of"] != league.accuracy_of}
    if wrong:
        raise StudyError(f"{table}: league {league.name} has {league.accuracy_of} accuracy; " + ", ".join(
            f"that of {label} is {kind or 'none'}" for label, kind in wrong.items()))
    return mine


def row_of(table: Path, study: Path, cell: Cell, league: League, part: str, point: int,
           plugins: Sequence[str] = ()) -> PlainDict:
    """The row of a cell that was run in the study.

    Its path has each observation that beats all before it, so that the time to any target is exact, and some others.
    """
    summary = read_json(study / CELLS / cell.key / SUMMARY)
    result, curve = tables.result(study, cell, summary), tables.curve(study / CELLS / cell.key)
    limit = cell.scenario.stop.virtual_time_ns
    curve = curve[curve["virtual_s"] <= (math.inf if limit is None else limit / 1e9)]
    before = np.maximum.accumulate(np.concatenate([[-math.inf], curve["accuracy"].to_numpy()]))[:-1]
    kept = curve.iloc[np.union1d(np.flatnonzero(curve["accuracy"] > before), np.linspace(
        0, len(curve) - 1, min(len(curve), POINTS_OF_PATH)).astype(int))]
    path = " ".join(f"{s:.6g}:{mb:.5g}:{a:.4g}" for s, mb, a in zip(
        kept["virtual_s"], kept["mb"], kept["accuracy"], strict=True))
    said = {name: result[name] for name in ("accuracy", "rounds", "rounds_failed", "virtual_s", "bytes",
                                            "oracle_waits")}
    said = {name: f"{value:.6g}" if isinstance(value, float) else value for name, value in said.items()}
    return {**again(table, study, cell, plugins), "league": league.name, "task": league.task,
            "definition": league.meanings()[cell.scheme, cell.network], "part": part, "network": cell.network,
            "label": cell.scheme, "point": point, "accuracy_of": result["accuracy_of"], **said, "path": path}


# --- runs -------------------------------------------------------------------------------------------------------------

def run(league: League, where: Where, table: Path, out: Path, networks: Sequence[str] = (),
        wanted: Sequence[str] = ()) -> list[Row]:
    """Run what the table lacks of a league, entry by entry: its tuning, then its scoring. Each run that ends is a row
    at once, and its directory is removed. Returns all rows.

    networks: scored alone, also those of `Suite.moved`; tuning is for all of the league in any case, and is not run
    where its result is published. wanted: labels of entries; the baseline is run, too. Raises ScenarioError for a
    network without a unit, and StudyError for a run that failed, such as one with a computation that has no price.
    """
    require_known("--networks", "network of the suite", networks, league.suite.units(league.task))
    require_known("--schemes", "scheme of the league", wanted, [entry.label for entry in league.entries])
    scored = networks or (*league.networks, *league.extended)
    asked = [entry for entry in league.entries if not wanted or entry.label in (*wanted, league.baseline)]
    tuned = {entry.label for entry in asked if entry.points > 1} - {*league.published()}
    if tuned:                       # the baseline's tuning sets the goal of all
        tuned.add(league.baseline)
    with opened(out, f"suite {league.suite.version} league {league.name}"):
        for entry in asked:
            if entry.label in tuned:
                _run(league, where, table, out, entry, [(TUNING, point, network) for point in range(entry.points)
                                                        for network in league.networks])
            point = chosen(league, read(table, league)).get(entry.label)
            if point is not None:
                _run(league, where, table, out, entry, [(SCORING, point, network) for network in scored])
    return read(table, league)


def _run(league: League, where: Where, table: Path, out: Path, entry: LeagueEntry,
         asked: Sequence[tuple[str, int, str]]) -> None:
    there = {(row["part"], int(row["point"]), row["network"], int(row["seed"])) for row in read(table, league)
             if row["label"] == entry.label}
    todo: dict[str, tuple[Cell, str, int]] = {}
    total = 0
    for part, point, network in asked:
        seeds = league.tuning_seeds if part == TUNING else league.seeds
        total += len(seeds)
        missing = [seed for seed in seeds if (part, point, network, seed) not in there]
        if missing:
            todo |= {cell.key: (cell, part, point) for cell in league.cells(entry, point, network, part, where.plugins)
                     if cell.seed in missing}
    progress = StudyProgress(total, len(todo), where.quiet)
    failed: list[str] = []

    def tell(event: CellEvent) -> None:
        cell, part, point = todo[event.key]
        if not event.done:
            progress.moved(cell, event)
            return
        directory = out / CELLS / event.key
        summary = read_json(directory / SUMMARY) if event.error is None else None
        if event.error is None:
            keep(table, row_of(table, out, cell, league, part, point, where.plugins))
        else:
            said = [line.strip() for line in event.error.strip().splitlines()]
            failed.append(f"{cell.text}: " + " ... ".join(dict.fromkeys([said[0], said[-1]])))
        progress.ended(cell, event, summary)
        shutil.rmtree(directory, ignore_errors=True)

    try:
        where.engine([CellJob(key, cell.scenario.resolved(), str(out.resolve()), list(where.plugins), where.workers,
                              store="none") for key, (cell, _, _) in todo.items()], tell)
    finally:
        progress.close()
    if failed:
        raise StudyError("\n".join(failed))


def keep(table: Path, row: PlainMapping) -> None:
    """Append a row, in place of one that was cut."""
    table.parent.mkdir(parents=True, exist_ok=True)
    with table.open("a+", newline="", encoding="utf-8") as file:
        whole = table.read_bytes().rfind(b"\n") + 1
        file.truncate(whole)
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if not whole:
            writer.writeheader()
        writer.writerow(row)


# --- files ------------------------------------------------------------------------------------------------------------

def write_leaderboard(league: League, rows: Sequence[Row], file: Path) -> None:
    """A row for each scheme and network that is whole."""
    with write_atomically(file) as temporary, temporary.open("w", newline="", encoding="utf-8") as lines:
        writer = csv.DictWriter(lines, LEADERBOARD, lineterminator="\n")
        writer.writeheader()
        writer.writerows(leaderboard(league, rows))


def page(league: League, rows: Sequence[Row], networks: Sequence[str] = ()) -> str:
    """The page of a league: of each network its curves and its table."""
    import altair as alt
    import pandas as pd

    from emul.report.drawing import Figure, named, whole
    from emul.report.page import Part, render
    from emul.report.tradeoffs import scheme_marks

    parts = [Part("agreement", "What the table rests on", text=". ".join(findings(league, rows, networks)) + ".")]
    for network in networks or (*league.networks, *league.extended):
        found = standings(league, rows, network)
        if not found:
            continue
        frame = pd.DataFrame(curves(league, rows, network)).rename(columns={"scheme": "series"})
        order = [one.label for one in found]
        shown = [("curves", "Accuracy over time", "A line is the median over the seeds.", order)]
        if beside := [one.label for one in contrast(league, found)]:
            shown.append(("contrast", f"{beside[0]} and {beside[1]}", contrast_line(league, found) + ".", beside))
        figures = []
        for key, title, text, labels in shown:
            mine = frame[frame["series"].isin(labels)]
            chart = named("curves").mark_line().encode(
                x=alt.X("virtual_s:Q", title="virtual seconds"), color=scheme_marks(order, labels)[0],
                y=alt.Y("accuracy:Q", title="accuracy", scale=alt.Scale(zero=False)))
            figures.append(Figure(f"{key}-{network}", title, text, f"Lines of {', '.join(labels)}.",
                                  whole(chart, height=300), {"curves": mine}, mine))
        parts.append(Part(network, network, figures, tables=[(
            "", pd.DataFrame(table_lines(found), columns=list(HEAD)))]))
    return render(f"Suite {league.suite.version}, league {league.name}: {league.task}", parts)
