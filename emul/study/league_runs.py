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
from emul.study.leagues import LIKELIHOOD, REPLICATE, SCORING, SUMS, TUNING, League, LeagueEntry
from emul.study.runs import StudyProgress, Where
from emul.study.standings import (
    HEAD,
    LEADERBOARD,
    WHY,
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
SPENT = "epsilon_in_total"          # a column of leagues with a budget of privacy
WITHIN = 0.01                       # the share by which what a run spent may differ from the budget


# --- rows -------------------------------------------------------------------------------------------------------------

def columns(league: League) -> tuple[str, ...]:
    """Those of the table of a league."""
    return (*COLUMNS, *([SPENT] if league.epsilon else []), *([WHY] if league.measure == SUMS else []))


def read(table: Path, league: League) -> list[Row]:
    """The rows of a league in a table; those of other leagues and tasks, and of what was defined otherwise, are passed
    over. Raises StudyError for another kind of accuracy, and for a run that did not spend the league's epsilon."""
    if not table.is_file():
        return []
    text = table.read_text(encoding="utf-8")
    reader = csv.DictReader(text[:text.rfind("\n") + 1].splitlines())       # the last row may have been cut
    if tuple(reader.fieldnames or ()) != columns(league):
        raise StudyError(f"{table}: is no table of a league")
    meanings = league.meanings()
    mine: list[Row] = [row for row in reader if (row["league"], row["task"]) == (league.name, league.task)
                       and row["definition"] == meanings.get((row["label"], row["network"]))]
    wrong = {row["label"]: row["accuracy_of"] for row in mine
             if row["accuracy_of"] != league.accuracy_of and row["path"]}     # what observed none has no kind
    if wrong:
        raise StudyError(f"{table}: league {league.name} has {league.accuracy_of} accuracy; " + ", ".join(
            f"that of {label} is {kind or 'none'}" for label, kind in wrong.items()))
    spent = {row["label"]: row[SPENT] for row in mine
             if league.epsilon and not abs(largest(row[SPENT]) - league.epsilon) <= WITHIN * league.epsilon}
    if spent:
        raise StudyError(f"{table}: league {league.name} has a total epsilon of {league.epsilon:g}; " + ", ".join(
            f"that of {label} is {said or 'none'}" for label, said in spent.items()))
    return mine


def largest(spent: str) -> float:
    """The largest epsilon of those by observer that are bounded; not a number: none is.

    >>> largest("server unbounded, client 7.98")
    7.98
    """
    found = [float(word) for one in spent.split(", ") if (word := one.rpartition(" ")[2]).replace(".", "").isdigit()]
    return max(found, default=math.nan)


def row_of(table: Path, study: Path, cell: Cell, league: League, part: str, point: int,
           plugins: Sequence[str] = ()) -> PlainDict:
    """The row of a cell that was run in the study."""
    summary = read_json(study / CELLS / cell.key / SUMMARY)
    result = tables.result(study, cell, summary)
    path = sum_of(result) if league.measure == SUMS else path_in(study, cell, league.measure)
    said = {name: result[name] for name in ("accuracy", "rounds", "rounds_failed", "virtual_s", "bytes",
                                            "oracle_waits")}
    said = {name: f"{value:.6g}" if isinstance(value, float) else value for name, value in said.items()}
    return {**again(table, study, cell, plugins), "league": league.name, "task": league.task,
            "definition": league.meanings()[cell.scheme, cell.network], "part": part, "network": cell.network,
            "label": cell.scheme, "point": point, "accuracy_of": result["accuracy_of"], **said, "path": path,
            **({SPENT: result["epsilon_in_total"]} if league.epsilon else {}),
            **({WHY: summary["first_failure"] or ""} if league.measure == SUMS else {})}


def path_in(study: Path, cell: Cell, measure: str) -> str:
    """seconds:MB:value of the observations of a run within its time: each that beats all before it, so that the time
    to any target is exact, and some others."""
    curve, limit = tables.curve(study / CELLS / cell.key), cell.scenario.stop.virtual_time_ns
    curve = curve[curve["virtual_s"] <= (math.inf if limit is None else limit / 1e9)]
    values = (np.exp(-curve["loss"]) if measure == LIKELIHOOD else curve["accuracy"]).to_numpy()
    before = np.maximum.accumulate(np.concatenate([[-math.inf], values]))[:-1]
    kept = np.union1d(np.flatnonzero(values > before), np.linspace(
        0, len(values) - 1, min(len(values), POINTS_OF_PATH)).astype(int))
    return " ".join(f"{s:.6g}:{mb:.5g}:{value:.4g}" for s, mb, value in zip(
        curve["virtual_s"].to_numpy()[kept], curve["mb"].to_numpy()[kept], values[kept], strict=True))


def sum_of(result: PlainMapping) -> str:
    """The path of a run that is one sum; "": it was given up."""
    return f"{result['virtual_s']:.6g}:{result['bytes'] / 1e6:.5g}:1" if result["rounds"] else ""


# --- runs -------------------------------------------------------------------------------------------------------------

def run(league: League, where: Where, table: Path, out: Path, networks: Sequence[str] = (),
        wanted: Sequence[str] = (), replicate: bool = False) -> list[Row]:
    """Run what the table lacks of a league, entry by entry: its tuning, then its scoring. Each run that ends is a row
    at once, and its directory is removed. Returns all rows.

    networks: scored alone, also those of `Suite.moved`; tuning is for all of the league in any case, and is not run
    where its result is published. wanted: labels of entries; the baseline is run, too. replicate: also the scoring on
    the other seeds of the league. Raises ScenarioError for a
    network without a unit, and StudyError for a run that failed, such as one with a computation that has no price.
    """
    require_known("--networks", "network of the suite", networks, league.unit_s())
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
                places = dict.fromkeys((*scored, *((league.target_on,) if league.target_on and (
                    entry.label == league.baseline) else ())))
                _run(league, where, table, out, entry, [(part, point, network) for network in places for part in (
                    SCORING, *([REPLICATE] if replicate and league.replicate else []))])
    return read(table, league)


def _run(league: League, where: Where, table: Path, out: Path, entry: LeagueEntry,
         asked: Sequence[tuple[str, int, str]]) -> None:
    there = {(row["part"], int(row["point"]), row["network"], int(row["seed"])) for row in read(table, league)
             if row["label"] == entry.label}
    todo: dict[str, tuple[Cell, str, int]] = {}
    total = 0
    for part, point, network in asked:
        seeds = league.seeds_of(part)
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
            keep(table, row_of(table, out, cell, league, part, point, where.plugins), columns(league))
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


def keep(table: Path, row: PlainMapping, columns: Sequence[str]) -> None:
    """Append a row, in place of one that was cut."""
    table.parent.mkdir(parents=True, exist_ok=True)
    with table.open("a+", newline="", encoding="utf-8") as file:
        whole = table.read_bytes().rfind(b"\n") + 1
        file.truncate(whole)
        writer = csv.DictWriter(file, columns, lineterminator="\n")
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

    from emul.report import palette
    from emul.report.drawing import Figure, columns, named, whole
    from emul.report.page import Part, render

    parts = []
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
            legend = alt.Legend(columns=columns(order), symbolType="stroke", symbolStrokeWidth=2.4, values=labels)
            colours = alt.Scale(domain=order, range=palette.series(len(order)))
            mine = frame[frame["series"].isin(labels)]
            chart = named("curves").mark_line().encode(
                x=alt.X("virtual_s:Q", title="virtual seconds"),
                color=alt.Color("series:N", title=None, legend=legend, scale=colours),
                strokeDash=alt.StrokeDash("series:N", title=None, legend=legend, scale=alt.Scale(domain=order)),
                y=alt.Y("accuracy:Q", title="accuracy", scale=alt.Scale(zero=False)))
            figures.append(Figure(f"{key}-{network}", title, text, f"Lines of {', '.join(labels)}.",
                                  whole(chart, height=300), {"curves": mine}, mine))
        parts.append(Part(network, network, figures, tables=[(
            "", pd.DataFrame(table_lines(found), columns=list(HEAD)))]))
    parts.append(Part("agreement", "What the tables rest on", answer=[*findings(league, rows, networks)]))
    return render(f"Suite {league.suite.version}, league {league.name}: {league.trained_on}", parts)
