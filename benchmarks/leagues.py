"""The page docs/atlas.md, of the committed rows of the suite's leagues, and the check of a submission to one of them.

    python -m benchmarks.leagues                    the page, its figures, and the points that tuning chose
    python -m benchmarks.leagues --check FOLDER     its entry.toml, rows.csv and plug-ins: refused, or the ranks it has
"""

from __future__ import annotations

import argparse
import csv
import random
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import document
from benchmarks.common import ROOT
from benchmarks.document import replaced
from benchmarks.finished import markdown
from emul.base.errors import EmulError
from emul.learning.names import add_folder_of
from emul.study import standings, verify
from emul.study.cells import asked
from emul.study.directory import StudyError
from emul.study.league_runs import read
from emul.study.leagues import SCORING, TUNING, League, LeagueEntry, entries_of
from emul.study.standings import Row

PAGE = ROOT / "docs" / "atlas.md"
TABLES = {"plain": ROOT / "docs" / "studies" / "data" / "league_plain.csv"}      # league -> its rows, of all tasks
FIGURES = ROOT / "docs" / "studies" / "figures"
DRAWN = {"plain": ("fedavg", "fedavg_patient", "fedasync")}     # the schemes in the figure of a league
CHECKED = 2             # rows of a submission that are computed again


def whole(league: League, rows: list[Row]) -> bool:
    """True if every scheme has all seeds on every network that the league is tuned on."""
    return all(len(standings.standings(league, rows, network)) == len(league.entries) for network in league.networks)


def paragraphs(league: League, rows: list[Row]) -> Iterator[str]:
    """The table of a league that is whole, or how far it has come."""
    if not whole(league, rows):
        yield f"`{league.name}` with `{league.task}` is not whole yet: it has {len(rows)} runs of this definition."
        return
    found = {network: own for network in (*league.networks, *league.extended)
             if len(own := standings.standings(league, rows, network)) == len(league.entries)}
    first = "\n".join(
        f"- `{network}`, seconds to {100 * standings.target_of(league, rows, network):.1f} %: "
        + ", ".join(f"{one.label} {one.median:.3g}" for one in own if one.rank == 1) + "."
        for network, own in found.items())
    yield f"`{league.name}`, `{league.task}`: the schemes of the first rank, which the test does not tell apart."
    yield first
    yield markdown(("network", *standings.HEAD), ([network, *line] for network, own in found.items()
                                                  for line in standings.table_lines(own)))
    yield "\n".join(f"- {line}" for line in [
        *(f"{network}: {standings.contrast_line(league, own)}" for network, own in found.items()
          if standings.contrast(league, own)),
        *standings.agreement(league, rows, list(found)),
        *(line for network in found for line in standings.moved_lines(league, rows, network)),
        standings.badge(league, rows)])


def leagues() -> Iterator[tuple[League, list[Row]]]:
    """All leagues with rows, task by task, in the order in which these came."""
    for name, table in TABLES.items():
        if table.is_file():
            with table.open(newline="", encoding="utf-8") as lines:
                tasks = dict.fromkeys(row["task"] for row in csv.DictReader(lines))
            for task in tasks:
                league = League.of(name, task)
                yield league, read(table, league)


def block() -> str:
    """The tables and findings of all leagues."""
    said = [line for league, rows in leagues() for line in paragraphs(league, rows)]
    return "\n\n".join([*said, *(f"`{name}` has no run yet." for name, table in TABLES.items() if not table.is_file())])


def filled(text: str) -> str:
    """The text of the page with its block made anew."""
    return replaced(text, "leagues", block())


def points(league: League, rows: list[Row]) -> Iterator[dict[str, str]]:
    """The points that the tuning of a whole league chose, as `League.published` reads them."""
    if whole(league, rows):
        for label, point in standings.chosen(league, rows).items():
            yield {"task": league.task, "label": label, "definition": league.meanings()[label, league.networks[0]],
                   "point": str(point)}


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
        if whole(league, rows):
            panels, below = [], alt.Legend(orient="bottom", direction="horizontal")     # beside, long names are cut
            for network in league.networks:
                curves = pd.DataFrame(standings.curves(league, rows, network))
                panels.append(alt.Chart(curves[curves["scheme"].isin(DRAWN[league.name])]).mark_line().encode(
                    x=alt.X("virtual_s:Q", title="virtual seconds", axis=alt.Axis(tickCount=5)),
                    color=alt.Color("scheme:N", title=None, legend=below),
                    y=alt.Y("accuracy:Q", scale=alt.Scale(zero=False))).properties(
                        width=250, height=180, title=network))
            alt.concat(*panels, columns=2).save(FIGURES / f"league-{league.name}-{league.task}.svg")


# --- submissions ------------------------------------------------------------------------------------------------------

def check(folder: Path) -> list[str]:
    """The places of a submission, network by network. Raises StudyError with the reason for one that is refused."""
    entry_file, table = folder / "entry.toml", folder / "rows.csv"
    said = tomllib.loads(entry_file.read_text(encoding="utf-8"))
    plugins = said.get("plugins", [])
    for plugin in plugins:
        add_folder_of(plugin, folder)
    league = League.of(said["league"], said["task"], more=[entry_file])
    own = {entry.get("label", entry["name"]) for entry in entries_of(entry_file)}
    rows = read(table, league)
    for entry in (one for one in league.entries if one.label in own):
        expect_rows(league, entry, [row for row in rows if row["label"] == entry.label], plugins)
    mine = [row for row in rows if row["label"] in own]
    drawn = [(table, row) for row in random.SystemRandom().sample(mine, CHECKED)]
    for (_, row), (_, verdict) in zip(drawn, verify.some(drawn, 0, most={}, modules=plugins), strict=True):
        if verdict.verdict not in (verify.EQUAL, verify.IN_VALUES):
            raise StudyError(f"{row['label']} on {row['network']}, seed {row['seed']}: {verdict.verdict}: "
                             f"{verdict.detail}")
    committed = [row for row in read(TABLES[league.name], league) if row["label"] not in own]
    return [f"{network}: {one.label} has rank {one.rank} of {len(found)} schemes" for network in league.networks
            for found in [standings.standings(league, [*committed, *mine], network)] for one in found
            if one.label in own]


def expect_rows(league: League, entry: LeagueEntry, rows: Sequence[Row], plugins: Sequence[str]) -> None:
    """Raises StudyError unless these are the rows that the rules ask for: all of tuning, then those of the point that
    it chose, each with the key of its cell."""
    there = {(row["part"], int(row["point"]), row["network"], row["key"]) for row in rows}
    if len(there) < len(rows):
        raise StudyError(f"{entry.label}: has rows twice")
    wanted = {(TUNING, point, network) for point in range(entry.points) for network in league.networks}
    point = standings.chosen(league, [*read(TABLES[league.name], league), *rows]).get(entry.label)
    wanted |= {(SCORING, point, network) for network in league.networks if point is not None}
    keys = {(part, at, network, asked(cell.scenario, plugins)) for part, at, network in wanted
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
    said = parser.parse_args()
    if said.check is not None:
        try:
            print("\n".join(check(said.check)))
        except EmulError as error:
            sys.exit(f"refused: {error}")
        return
    write_points()
    draw()
    document.save(PAGE, filled(document.read(PAGE)))


if __name__ == "__main__":
    main()
