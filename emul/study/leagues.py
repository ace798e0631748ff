"""`emul suite --league`: schemes of one kind of accuracy, tuned by one protocol, scored on seeds that tuned nothing.

A league is a file `leagues/NAME.toml` of the suite's folder. Each of its entries has a space: parameters of the scheme,
paths of the scenario, and `waiting`, all timeouts of the scheme in units of the network. Point 0 is the defaults, the
others are a quasi-random sequence. One point is chosen for all networks together, at half length, on seeds of its own
(`emul.study.standings`); then it is scored. Results are rows of one table. All that is said is computed from the rows,
so a league goes on where it was, on any machine.

Martin Roberts, The Unreasonable Effectiveness of Quasirandom Sequences, 2018 (the sequence R_d).
"""

from __future__ import annotations

import csv
import json
import math
import shutil
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path

import numpy as np

from emul.base.files import write_atomically
from emul.base.plain import PlainDict, PlainMapping
from emul.record.rundir import SUMMARY, read_json
from emul.registry import schemes as registry
from emul.scenario.params import scenario_keys
from emul.study import tables
from emul.study.cells import Cell, cells
from emul.study.directory import StudyError, opened
from emul.study.done import AGAIN, again
from emul.study.job import CELLS, CellEvent, CellJob
from emul.study.runs import StudyProgress, Where
from emul.study.standings import (
    HEAD,
    LEADERBOARD,
    SCORING,
    TUNING,
    Row,
    chosen,
    curves,
    findings,
    leaderboard,
    standings,
    table_lines,
)
from emul.study.suite import Suite, free, seconds, task_of

WAITING = "waiting"                 # the key of a space that is all timeouts of the scheme, in units of the network
POINTS_OF_PATH = 60                 # observations that a row keeps of a run
COLUMNS = (*AGAIN, "league", "task", "definition", "part", "network", "label", "point", "accuracy_of", "accuracy",
           "rounds", "rounds_failed", "virtual_s", "bytes", "oracle_waits", "path")


@dataclass(frozen=True)
class Range:
    """The values of one dimension of a space, even in their logarithm; whole: integers."""

    low: float
    high: float
    default: float
    whole: bool = False

    def at(self, share: float) -> float:
        """The value at a share of the range, from 0 to 1."""
        value = self.low * (self.high / self.low) ** share
        return round(value) if self.whole else float(f"{value:.3g}")


@dataclass(frozen=True)
class LeagueEntry:
    """A scheme in a league. parameters: as a scenario has them. every: rounds between two evaluations."""

    label: str
    parameters: PlainDict
    space: dict[str, Range]
    points: int
    every: int = 1

    def values(self, point: int, first: int) -> dict[str, float]:
        """The values of a point by key of the space: the defaults, or place first + point - 1 of the sequence R_d."""
        if point == 0:
            return {key: one.default for key, one in self.space.items()}
        ratio = 2.0
        for _ in range(60):         # the root above 1 of x^(d + 1) = x + 1
            ratio = (1 + ratio) ** (1 / (len(self.space) + 1))
        place = first + point - 1
        return {key: one.at((0.5 + place * ratio ** -(d + 1)) % 1) for d, (key, one) in enumerate(self.space.items())}


@dataclass(frozen=True)
class League:
    """What a file of a league says, for one task. definition: a hash of all that decides its rows' meaning."""

    name: str
    suite: Suite
    task: str
    accuracy_of: str
    networks: tuple[str, ...]
    extended: tuple[str, ...]
    baseline: str
    target: float
    units: float
    seeds: tuple[int, ...]
    tuning_seeds: tuple[int, ...]
    first: int
    sets: tuple[str, ...]
    entries: tuple[LeagueEntry, ...]
    definition: str

    @classmethod
    def of(cls, name: str, task: str | None = None, folder: Path | None = None) -> League:
        """That of the suite. task: in place of its own. Raises StudyError for a league that there is not."""
        suite = Suite.of(folder)
        file = suite.folder / "leagues" / f"{name}.toml"
        if not file.is_file():
            known = sorted(one.stem for one in file.parent.glob("*.toml"))
            raise StudyError(f"--league {name}: no such league; there are {', '.join(known) or 'none'}")
        said = tomllib.loads(file.read_text(encoding="utf-8"))
        task = task or said["task"]
        units = suite.units(task)
        lacking = [network for network in (*said["networks"], *said.get("extended", ())) if network not in units]
        if lacking:
            raise StudyError(f"task {task}: has no unit for {', '.join(lacking)}: leagues run on tasks of the suite")
        common = {key: Range(**one) for key, one in said["space"].items()}
        entries = []
        for one in said["entries"]:
            parameters = dict(one)
            own = {key: Range(**each) for key, each in parameters.pop("space", {}).items()}
            points, every = parameters.pop("points", said["tuning"]["points"]), parameters.pop("every", 1)
            entries.append(LeagueEntry(one.get("label", one["name"]), parameters, common | own, points, every))
        definition = json.dumps([suite.version, task, units, said], sort_keys=True)
        return cls(name, suite, task, said["accuracy_of"], tuple(said["networks"]), tuple(said.get("extended", ())),
                   said["baseline"], said["target"], said["units"], tuple(said["seeds"]),
                   tuple(said["tuning"]["seeds"]), said["tuning"]["first"], tuple(said.get("sets", ())),
                   tuple(entries), blake2b(definition.encode(), digest_size=6).hexdigest())

    def cells(self, entry: LeagueEntry, point: int, network: str, part: str) -> list[Cell]:
        """One cell a seed. Raises ScenarioError, and StudyError for one whose computations cost nothing."""
        unit = self.suite.units(self.task)[network]
        length = self.units * unit * (0.5 if part == TUNING else 1)
        values = entry.values(point, self.first)
        found = registry.find(entry.parameters["name"])
        waits = {key: seconds(values[WAITING] * unit) for key, field in scenario_keys(found.params).items()
                 if field.name in found.timeouts}
        own = {key: value for key, value in values.items() if key != WAITING and "." not in key}
        scheme = {**waits, **entry.parameters, **own}
        edits = [*task_of(self.suite, self.task).edits, *self.sets,
                 f"schemes=[{json.dumps(scheme)}]", f"stop={{rounds: 100000, virtual_time: {seconds(length)}}}",
                 f"evaluation={{every: {entry.every}}}",
                 *(f"{key}={value:g}" for key, value in values.items() if "." in key)]
        seeds = self.tuning_seeds if part == TUNING else self.seeds
        made = cells(self.suite.networks[network], {}, seeds, (), edits)
        if reason := free(made[0].scenario):
            raise StudyError(f"{entry.label} on {network}: {reason}")
        return [replace(cell, network=network, scheme=entry.label) for cell in made]


# --- rows -------------------------------------------------------------------------------------------------------------

def read(table: Path, league: League) -> list[Row]:
    """The rows of a league in a table; those of other leagues, tasks and definitions are passed over."""
    if not table.is_file():
        return []
    with table.open(newline="", encoding="utf-8") as lines:
        reader = csv.DictReader(lines)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise StudyError(f"{table}: is no table of a league")
        rows = [row for row in reader if None not in row.values() and None not in row]     # the last may have been cut
    mine: list[Row] = [row for row in rows if (row["league"], row["task"], row["definition"]) == (
        league.name, league.task, league.definition)]
    wrong = {row["label"]: row["accuracy_of"] for row in mine if row["accuracy_of"] != league.accuracy_of}
    if wrong:
        raise StudyError(f"{table}: league {league.name} has {league.accuracy_of} accuracy; " + ", ".join(
            f"that of {label} is {kind or 'none'}" for label, kind in wrong.items()))
    return mine


def row_of(table: Path, study: Path, cell: Cell, league: League, part: str, point: int) -> PlainDict:
    """The row of a cell that was run in the study."""
    summary = read_json(study / CELLS / cell.key / SUMMARY)
    result, curve = tables.result(study, cell, summary), tables.curve(study / CELLS / cell.key)
    limit = cell.scenario.stop.virtual_time_ns
    curve = curve[curve["virtual_s"] <= (math.inf if limit is None else limit / 1e9)]
    kept = curve.iloc[np.unique(np.linspace(0, len(curve) - 1, min(len(curve), POINTS_OF_PATH)).astype(int))]
    path = " ".join(f"{s:.6g}:{mb:.5g}:{a:.4g}" for s, mb, a in zip(
        kept["virtual_s"], kept["mb"], kept["accuracy"], strict=True))
    said = {name: result[name] for name in ("accuracy", "rounds", "rounds_failed", "virtual_s", "bytes",
                                            "oracle_waits")}
    said = {name: f"{value:.6g}" if isinstance(value, float) else value for name, value in said.items()}
    return {**again(table, study, cell), "league": league.name, "task": league.task, "definition": league.definition,
            "part": part, "network": cell.network, "label": cell.scheme, "point": point,
            "accuracy_of": result["accuracy_of"], **said, "path": path}


# --- runs -------------------------------------------------------------------------------------------------------------

def run(league: League, where: Where, table: Path, out: Path, networks: Sequence[str] = (),
        wanted: Sequence[str] = ()) -> list[Row]:
    """Run what the table lacks of a league, entry by entry: its tuning, then its scoring. Each run that ends is a row
    at once, and its directory is removed. Returns all rows.

    networks: scored alone; tuning is for all of the league in any case. wanted: labels of entries; the baseline is run,
    too. Raises StudyError for a run that failed, such as one with a computation that has no price.
    """
    scored = networks or (*league.networks, *league.extended)
    with opened(out, f"suite {league.suite.version} league {league.name}"):
        for entry in league.entries:
            if wanted and entry.label not in (*wanted, league.baseline):
                continue
            if entry.points > 1:
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
            todo |= {cell.key: (cell, part, point) for cell in league.cells(entry, point, network, part)
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
            keep(table, row_of(table, out, cell, league, part, point))
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
    """Append a row; a row that was cut before it is ended."""
    table.parent.mkdir(parents=True, exist_ok=True)
    with table.open("a+", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if not file.tell():
            writer.writeheader()
        elif not table.read_bytes().endswith(b"\n"):
            file.write("\n")
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
        frame = pd.DataFrame(curves(league, rows, network))
        order = [one.label for one in found]
        colour, _ = scheme_marks(order, order)
        chart = named("curves").mark_line().encode(
            x=alt.X("virtual_s:Q", title="virtual seconds"), color=colour,
            y=alt.Y("accuracy:Q", title="accuracy", scale=alt.Scale(zero=False)))
        figure = Figure(f"curves-{network}", "Accuracy over time", "A line is the median over the seeds.",
                        f"Lines of {', '.join(order)}.", whole(chart, height=300),
                        {"curves": frame.rename(columns={"scheme": "series"})}, frame)
        parts.append(Part(network, network, [figure], tables=[(
            "", pd.DataFrame(table_lines(found), columns=list(HEAD)))]))
    return render(f"Suite {league.suite.version}, league {league.name}: {league.task}", parts)
