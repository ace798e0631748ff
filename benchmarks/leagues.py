"""The page docs/atlas.md, of the committed rows of the suite's leagues, and the check of a submission to one of them.

    python -m benchmarks.leagues                    the page, its figures, and the points that tuning chose
    python -m benchmarks.leagues --check FOLDER     its entry.toml, rows.csv and plug-ins: refused, or the ranks it has
    python -m benchmarks.leagues --again 0.05       this share of the rows of each whole league, of those that another
                                                    processor made, computed again on this one, then the page
"""

from __future__ import annotations

import argparse
import csv
import math
import random
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

from benchmarks import document, suite_tasks
from benchmarks.common import ROOT
from benchmarks.document import replaced
from benchmarks.finished import markdown
from emul import scenario
from emul.base.errors import EmulError
from emul.base.machine import processor
from emul.base.plain import PlainDict
from emul.base.units import duration_ns
from emul.engine.costs import load_costs, read_profile
from emul.learning.names import add_folder_of
from emul.registry import schemes as registry
from emul.scenario.params import scenario_keys
from emul.study import standings, verify
from emul.study.cells import asked
from emul.study.directory import StudyError
from emul.study.job import CellJob, PoolOnDemand, run_cell
from emul.study.league_runs import SPENT, read, row_of
from emul.study.leagues import SCORING, SUMS, TUNING, League, LeagueEntry, entries_of
from emul.study.standings import Row, Standing
from emul.study.suite import Suite, task_of

PAGE = ROOT / "docs" / "atlas.md"
DATA = ROOT / "docs" / "studies" / "data"
AGAIN = DATA / "league_again.csv"
TABLES = {file.stem.removeprefix("league_"): file for file in sorted(DATA.glob("league_*.csv"))
          if file != AGAIN}             # league -> its rows, of all tasks
AGAIN_COLUMNS = ("table", "key", "part", "network", "label", "point", "seed", "digest", "processor", "torch",
                 "revision", "made", "digest_again", "path")
FIGURES = ROOT / "docs" / "studies" / "figures"
DRAWN = {"plain": ("fedavg", "fedavg_patient", "fedasync")}     # the schemes in the figure of a league
CHECKED = 2             # rows of a submission that are computed again
ENOUGH = 0.9            # a rank correlation from which on two orders are called nearly the same
ARRIVED = 0.8           # where the baseline arrives on fewer of the seeds, the page says so


def whole(league: League, rows: list[Row]) -> bool:
    """True if every scheme has all seeds on every network that the league is tuned on; those that were added later,
    with prices of their own, need not."""
    return all(whole_on(league, rows, network) for network in league.networks)


def whole_on(league: League, rows: list[Row], network: str) -> bool:
    """The same of one network."""
    return {entry.label for entry in league.entries if not entry.sets} <= places(league, rows, network).keys()


def paragraphs(league: League, rows: list[Row]) -> Iterator[str]:
    """The table of a league that is whole, or how far it has come."""
    yield f"### `{league.name}`, {league.trained_on}"
    if not whole(league, rows):
        yield f"It is not whole yet: it has {len(rows)} runs of this definition."
        return
    found = {network: standings.standings(league, rows, network) for network in (*league.networks, *league.extended)
             if whole_on(league, rows, network)}
    yield (f'<a href="reports/league-{league.name}-{league.task}.html">Curves of its schemes</a>, on the built site. '
           "The schemes of the first rank, which the test does not tell apart:")
    yield "\n".join(f"- `{network}`, seconds to {standings.goal(league, rows, network)}: "
                    f"{first_rank(league, own, network)}." for network, own in found.items())
    yield markdown(("network", *standings.HEAD), ([network, *line] for network, own in found.items()
                                                  for line in standings.table_lines(own)))
    if league.epsilon:
        yield (f"What the runs of the table cost whom, the largest of a scheme (rule: {league.epsilon:g} in total for "
               "the client that loses most, with delta 1e-5):")
        yield markdown(("scheme", "epsilon in total, by observer"), spent(found, rows))
    yield "\n".join(f"- {line}" for line in [
        *(f"{network}: {standings.contrast_line(league, own)}" for network, own in found.items()
          if standings.contrast(league, own)),
        *(standings.agreement(league, rows, list(found)) if league.measure != SUMS else ()),    # times hardly vary
        *(line for network in found for line in standings.moved_lines(league, rows, network)),
        *(line for network in found for line in standings.given_up(league, rows, network)),
        standings.badge(league, rows)])


def first_rank(league: League, found: Sequence[Standing], network: str) -> str:
    """The schemes of the first rank with their medians; apart from these those that arrive on too few seeds."""
    first = [one for one in found if one.rank == 1]
    said = ", ".join(f"{one.label} {one.median:.3g}" for one in first if math.isfinite(one.median)) or "none"
    if late := [one.label for one in first if math.isinf(one.median)]:
        said += f"; not told from these, though on most seeds they do not arrive: {', '.join(late)}"
    base = next(one for one in found if one.label == league.baseline)
    if league.target_on not in ("", network):
        return said
    arrived = sum(map(math.isfinite, base.times.values()))
    if arrived < ARRIVED * len(base.times):
        said += f" (the baseline itself arrives on {arrived} of {len(base.times)} seeds: the target tells little)"
    return said


def spent(found: Mapping[str, Sequence[Standing]], rows: Sequence[Row]) -> Iterator[list[str]]:
    """[scheme, the largest epsilon in total by observer] of the scored runs on these networks."""
    for label in dict.fromkeys(one.label for own in found.values() for one in own):
        of: dict[str, str] = {}
        for row in rows:
            if row["label"] == label and row["part"] == SCORING and row["network"] in found:
                for one in row[SPENT].split(", "):
                    observer, _, value = one.rpartition(" ")
                    of[observer] = max(of.get(observer, value), value, key=lambda said: (
                        float(said) if said.replace(".", "").isdigit() else math.inf))
        yield [label, ", ".join(f"{observer} {value}" for observer, value in of.items())]


def leagues() -> Iterator[tuple[League, list[Row]]]:
    """All leagues with rows, task by task, in the order in which these came."""
    for name, table in TABLES.items():
        with table.open(newline="", encoding="utf-8") as lines:
            tasks = dict.fromkeys(row["task"] for row in csv.DictReader(lines))
        for task in tasks:
            league = League.of(name, task)
            yield league, read(table, league)


def block() -> str:
    """The tables and findings of all leagues."""
    said = [line for league, rows in leagues() for line in paragraphs(league, rows)]
    again = list(said_of_again())
    return "\n\n".join([*said, "### Whether ranks hold", *said_of_ranks(),
                        *(["### On another processor", *again] if again else []), *said_of_schemes()])


def said_of_ranks() -> Iterator[str]:
    """On how many networks of all leagues the same schemes lead on two sets of seeds, and the order of the schemes of
    one league on its tasks."""
    published = [(league, rows) for league, rows in leagues() if whole(league, rows)]
    both = [standings.repeated(league, rows, network) for league, rows in published if league.measure != SUMS
            for network in (*league.networks, *league.extended) if whole_on(league, rows, network)]
    high = sum(standings.spearman(one, other) >= ENOUGH for one, other, _ in both)
    yield (f"On two sets of seeds (ten others, or two halves of the ten) the same schemes lead on "
           f"{sum(same for *_, same in both)} of {len(both)} networks of all leagues but those of sums; "
           f"Spearman is {ENOUGH} or more on {high}.")
    for (one, a), (other, b) in combinations(published, 2):
        if one.name == other.name:
            found = {network: standings.spearman(standings.standings(one, a, network),
                                                 standings.standings(other, b, network)) for network in one.networks}
            yield f"`{one.name}`, {one.trained_on} and {other.trained_on}: Spearman " + ", ".join(
                f"{network} {value:.2f}" for network, value in found.items()) + "."


def scheme_lines() -> list[list[str]]:
    """[scheme, its leagues with rows here, those without, why it has none] of all registered."""
    published = {(league.name, label) for league, rows in leagues() if whole(league, rows)
                 for label in places(league, rows, league.networks[-1])}
    entered: dict[str, dict[str, bool]] = {}
    for file in sorted((Suite.of().folder / "leagues").glob("*.toml")):
        for entry in League.of(file.stem).entries:
            of = entered.setdefault(entry.parameters["name"], {})
            of[file.stem] = of.get(file.stem, False) or (file.stem, entry.label) in published
    with (Suite.of().folder / "leagues" / "without.csv").open(newline="", encoding="utf-8") as lines:
        without = {row["scheme"]: row["reason"] for row in csv.DictReader(lines)}
    return [[name, *(", ".join(one for one, has in entered.get(name, {}).items() if has == there)
                     for there in (True, False)), without.get(name, "")] for name in registry.known()]


def said_of_schemes() -> Iterator[str]:
    """The numbers of schemes with a row and without, and a table of all."""
    lines = scheme_lines()
    row, entry = sum(bool(line[1]) for line in lines), sum(not line[1] and bool(line[2]) for line in lines)
    yield "### All schemes"
    yield (f"Of {len(lines)} registered schemes {row} have a row, {entry} an entry in a league that is not whole, and "
           f"{len(lines) - row - entry} have none for a reason.")
    yield markdown(("scheme", "with rows in", "not whole yet in", "why not"), lines)


def filled(text: str) -> str:
    """The text of the page with its block made anew."""
    return replaced(text, "leagues", block())


def points(league: League, rows: list[Row]) -> Iterator[dict[str, str]]:
    """The points that the tuning of a whole league chose, as `League.published` reads them."""
    if whole(league, rows):
        for label, point in standings.chosen(league, rows).items():
            yield {"task": league.task, "label": label, "definition": league.meanings()[label, league.networks[0]],
                   "point": str(point)}


def write_leaderboard() -> None:
    """All leagues' rows in one table."""
    with (DATA.parent / "leaderboard.csv").open("w", newline="", encoding="utf-8") as out:
        writer = csv.DictWriter(out, standings.LEADERBOARD, lineterminator="\n")
        writer.writeheader()
        for league, rows in leagues():
            if whole(league, rows):
                writer.writerows(standings.leaderboard(league, rows))


def write_points() -> None:
    """A file a league, with a line for each task and scheme."""
    found: dict[str, list[dict[str, str]]] = {}
    for league, rows in leagues():
        found.setdefault(league.name, []).extend(points(league, rows))
    for name, lines in found.items():
        if lines:
            file = League.of(name).suite.folder / "leagues" / f"{name}.points.csv"
            with file.open("w", newline="", encoding="utf-8") as out:
                writer = csv.DictWriter(out, list(lines[0]), lineterminator="\n")
                writer.writeheader()
                writer.writerows(lines)


def draw() -> None:
    """The median accuracy over time of a few schemes, a panel a network, as SVG; of each league that is whole."""
    import altair as alt
    import pandas as pd

    for league, rows in leagues():
        if whole(league, rows) and league.name in DRAWN:
            panels, below = [], alt.Legend(orient="bottom", direction="horizontal", labelFontSize=13, labelLimit=0,
                                           symbolSize=400, symbolStrokeWidth=2)     # beside, long names are cut
            for network in league.networks:
                curves = pd.DataFrame(standings.curves(league, rows, network))
                panels.append(alt.Chart(curves[curves["scheme"].isin(DRAWN[league.name])]).mark_line().encode(
                    x=alt.X("virtual_s:Q", title="virtual seconds", axis=alt.Axis(tickCount=5)),
                    color=alt.Color("scheme:N", title=None, legend=below),
                    strokeDash=alt.StrokeDash("scheme:N", title=None, legend=below),    # one may lie upon another
                    y=alt.Y("accuracy:Q", title="median accuracy", scale=alt.Scale(zero=False))).properties(
                        width=250, height=180, title=network))
            alt.concat(*panels, columns=2).save(FIGURES / f"league-{league.name}-{league.task}.svg")


# --- rows computed again ----------------------------------------------------------------------------------------------

def compute_again(share: float, seed: int) -> None:
    """Draw rows of each whole league, of those that another processor made, compute them again and keep what came out.
    The rows of leagues without such ones are kept."""
    found: list[PlainDict] = []
    for league, rows in leagues():
        table = TABLES[league.name]
        others = [row for row in rows if not processor().startswith(row["processor"])]
        if not others or not whole(league, rows):
            continue
        with PoolOnDemand(0) as pool:
            for row in random.Random(seed).sample(others, min(len(others), round(share * len(rows)))):
                came = again(table, league, row, pool)
                found.append({name: row.get(name, "") for name in AGAIN_COLUMNS} | {
                    **{name: came[name] for name in ("torch", "revision", "made", "path")}, "table": table.name,
                    "processor": processor(), "digest_again": came["digest"]})
                print(f"{len(found)} {row['network']} {row['label']}", flush=True)
    kept = [row for row in read_again() if row["table"] not in {one["table"] for one in found}]
    with AGAIN.open("w", newline="", encoding="utf-8") as out:
        writer = csv.DictWriter(out, AGAIN_COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows([*kept, *found])


def again(table: Path, league: League, row: Row, pool: PoolOnDemand) -> PlainDict:
    """The row as it comes out now. Raises StudyError."""
    cell, _ = verify.defaults(verify.cell_of(table, row), row)
    cell = replace(cell, network=row["network"], scheme=row["label"])
    with tempfile.TemporaryDirectory() as folder:
        event = run_cell(CellJob(cell.key, cell.scenario.resolved(), folder, store="none"), pool, lambda _: None)
        if event.error is not None:
            raise StudyError(event.error)
        return row_of(table, Path(folder), cell, league, row["part"], int(row["point"]))


def read_again() -> list[dict[str, str]]:
    """The rows that were computed again."""
    if not AGAIN.is_file():
        return []
    with AGAIN.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def said_of_again() -> Iterator[str]:
    """The number of rows that came out the same, and the networks whose ranks or points change by the others."""
    came = read_again()
    for league, rows in leagues():
        keys = {row["key"] for row in rows}
        mine = {row["key"]: row for row in came if row["table"] == TABLES[league.name].name and row["key"] in keys}
        if not mine:
            continue
        new = [{**row, "path": mine[row["key"]]["path"]} if row["key"] in mine else row for row in rows]
        moved = [network for network in (*league.networks, *league.extended) if places(league, rows, network) != places(
            league, new, network)]
        same = sum(row["digest"] == row["digest_again"] for row in mine.values())
        curves = sum(row["path"] == mine[row["key"]]["path"] for row in rows if row["key"] in mine)
        here = ", ".join(dict.fromkeys(row["processor"] for row in mine.values()))
        there = ", ".join(dict.fromkeys(row["processor"] for row in rows if row["key"] in mine))
        yield (f"{len(mine)} of {len(rows)} rows of `{league.name}`, made on {there}, were computed again on {here}: "
               f"{same} have the same digest, {curves} the same curve. "
               + (f"Ranks change on {', '.join(moved)}." if moved else "No scheme's rank changes.")
               + ("" if standings.chosen(league, rows) == standings.chosen(league, new) else " Tuned points change."))


def places(league: League, rows: Sequence[Row], network: str) -> dict[str, int]:
    """Label -> rank."""
    return {one.label: one.rank for one in standings.standings(league, rows, network)}


# --- submissions ------------------------------------------------------------------------------------------------------

def check(folder: Path) -> list[str]:
    """That a submission is accepted, and its places, network by network. Raises StudyError with the reason for one that
    is refused."""
    entry_file, table = folder / "entry.toml", folder / "rows.csv"
    said = tomllib.loads(entry_file.read_text(encoding="utf-8"))
    plugins = said.get("plugins", [])
    for plugin in plugins:
        add_folder_of(plugin, folder)
    if problems := [f"{entry_file}: {entry.get('label', entry['name'])}: {problem}" for entry in entries_of(entry_file)
                    for problem in against_rules(League.of(said["league"], said["task"]), entry, plugins)]:
        raise StudyError("\n".join(problems))
    league = League.of(said["league"], said["task"], more=[entry_file])
    own = {entry.get("label", entry["name"]) for entry in entries_of(entry_file)}
    rows = read(table, league)
    for entry in (one for one in league.entries if one.label in own):
        expect_rows(league, entry, [row for row in rows if row["label"] == entry.label], plugins)
        expect_price(league, entry, plugins)
    mine = [row for row in rows if row["label"] in own]
    drawn = [(table, row) for row in random.SystemRandom().sample(mine, CHECKED)]
    for (_, row), (_, verdict) in zip(drawn, verify.some(drawn, 0, most={}, modules=plugins), strict=True):
        if verdict.verdict not in (verify.EQUAL, verify.IN_VALUES):
            raise StudyError(f"{row['label']} on {row['network']}, seed {row['seed']}: {verdict.verdict}: "
                             f"{verdict.detail}")
    committed = [row for row in read(TABLES[league.name], league) if row["label"] not in own]
    again = " and ".join(f"{row['label']} on {row['network']} with seed {row['seed']}" for _, row in drawn)
    return [f"accepted: {len(mine)} rows; {again} computed again",
            *(f"{network}: {one.label} has rank {one.rank} of {len(found)} schemes" for network in league.networks
              for found in [standings.standings(league, [*committed, *mine], network)] for one in found
              if one.label in own)]


def against_rules(league: League, entry: PlainDict, plugins: Sequence[str]) -> Iterator[str]:
    """The lines of an entry of a submission that would tune or place it otherwise than all others."""
    for key, what in (("sets", "an entry of a submission leaves the networks as they are"),
                      ("points", "an entry of a submission has as many points as all others"),
                      ("task", "it stands above the entries")):
        if key in entry:
            yield f"{key}: {what}"
    if entry.get("label", entry["name"]) in {one.label for one in league.entries}:
        yield "label: the league has a scheme with this label"
    found = registry.find(entry["name"], plugins)
    for key, field in scenario_keys(found.params).items():
        if key in entry and field.name in found.timeouts:
            yield f"{key}: is a timeout, which the space sets by `waiting`"
    shared = {key for one in league.entries for key in one.space if "." in key}
    for key, each in entry.get("space", {}).items():
        if "." in key and key not in shared:
            yield f"space: {key}: is no parameter of a scheme; networks and task stay as they are"
        if each and not each["low"] < each["high"]:
            yield f"space: {key}: expected low below high: a space has ranges, no values"


def expect_price(league: League, entry: LeagueEntry, plugins: Sequence[str]) -> None:
    """Raises StudyError for an entry whose stated price is below half of what one of its computations takes here, in
    the seconds of the league's prices: those of its baseline are measured beside it. The part of a cost that grows with
    the work is left out: a price has none."""
    if not entry.price:
        return
    base = next(one for one in league.entries if one.label == league.baseline)
    with tempfile.TemporaryDirectory() as folder:
        network, file = league.suite.networks[league.networks[0].partition(":")[0]], Path(folder, "costs.json")
        priced = scenario.load(network, [*task_of(league.suite, league.task).edits, *league.sets], check=False)
        known = load_costs(priced).profile
        suite_tasks.measure([base.parameters, entry.parameters], suite_tasks.learnt(league), file, network, plugins)
        measured = {key: a for key, (a, _) in read_profile(file).items()}
    beside = max((key for key in measured if key in known), key=lambda key: known[key][0])
    scale = known[beside][0] / measured[beside]
    dear = {key: scale * cost for key, cost in measured.items() if key not in known
            and not (key.endswith("/train") and "training=skip" in league.sets)}
    stated = duration_ns(entry.price) / 1e9
    if low := {key: cost for key, cost in dear.items() if stated < cost / 2}:
        raise StudyError(f"{entry.label}: price: {entry.price} is too low: " + ", ".join(
            f"{key} takes {1e3 * cost:.3g} ms" for key, cost in low.items()))


def expect_rows(league: League, entry: LeagueEntry, rows: Sequence[Row], plugins: Sequence[str]) -> None:
    """Raises StudyError unless these are the rows that the rules ask for: all of tuning, then those of the point that
    it chose, each with the key of its cell."""
    there = {(row["part"], int(row["point"]), row["network"], row["key"]) for row in rows}
    if len(there) < len(rows):
        raise StudyError(f"{entry.label}: has rows twice")
    wanted = {(TUNING, point, network) for point in range(entry.points) for network in league.networks}
    point = standings.chosen(league, [*read(TABLES[league.name], league), *rows]).get(entry.label)
    wanted |= {(SCORING, point, network) for network in league.networks if point is not None}
    keys = {(part, at, network, asked(cell.scenario)) for part, at, network in wanted
            for cell in league.cells(entry, at, network, part, plugins)}
    asked_for = {one for one in there if one[2] in league.networks}
    if missing := keys - asked_for:
        part, at, network, _ = min(missing)
        raise StudyError(f"{entry.label}: lacks {len(missing)} rows, such as {part} of point {at} on {network}")
    if more := asked_for - keys:
        part, at, network, _ = min(more)
        raise StudyError(f"{entry.label}: has {len(more)} rows that the rules do not ask for, such as {part} of "
                                f"point {at} on {network}; the chosen point is {point}")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", type=Path, metavar="FOLDER")
    parser.add_argument("--again", type=float, metavar="SHARE")
    parser.add_argument("--seed", type=int, default=0, help="of the draw of --again")
    said = parser.parse_args()
    if said.again is not None:
        compute_again(said.again, said.seed)
    if said.check is not None:
        try:
            print("\n".join(check(said.check)))
        except EmulError as error:
            sys.exit(f"refused: {error}")
        return
    write_points()
    write_leaderboard()
    draw()
    document.save(PAGE, filled(document.read(PAGE)))


if __name__ == "__main__":
    main()
