"""The page docs/atlas.md, of the committed rows of the suite's leagues: python -m benchmarks.leagues"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator

from benchmarks import document
from benchmarks.common import ROOT
from benchmarks.document import replaced
from benchmarks.finished import markdown
from emul.study import standings
from emul.study.league_runs import read
from emul.study.leagues import League
from emul.study.standings import Row

PAGE = ROOT / "docs" / "atlas.md"
TABLES = {"plain": ROOT / "docs" / "studies" / "data" / "league_plain.csv"}      # league -> its rows, of all tasks


def whole(league: League, rows: list[Row]) -> bool:
    """True if every scheme has all seeds on every network that the league is tuned on."""
    return all(len(standings.standings(league, rows, network)) == len(league.entries) for network in league.networks)


def paragraphs(league: League, rows: list[Row]) -> Iterator[str]:
    """The tables of a league that is whole, or how far it has come."""
    if not whole(league, rows):
        yield f"`{league.name}` with `{league.task}` is not whole yet: it has {len(rows)} runs of this definition."
        return
    for network in (*league.networks, *league.extended):
        found = standings.standings(league, rows, network)
        if found:
            yield f"`{league.name}`, `{league.task}`, `{network}`: seconds to " \
                  f"{100 * standings.target_of(league, rows, network):.1f} %."
            yield markdown(standings.HEAD, standings.table_lines(found))
    yield "\n".join(f"- {line}" for line in standings.findings(league, rows))


def block() -> str:
    """All leagues, task by task, in the order in which their rows came."""
    said = []
    for name, table in TABLES.items():
        if not table.is_file():
            said.append(f"`{name}` has no run yet.")
            continue
        with table.open(newline="", encoding="utf-8") as lines:
            tasks = dict.fromkeys(row["task"] for row in csv.DictReader(lines))
        for task in tasks:
            league = League.of(name, task)
            said += paragraphs(league, read(table, league))
    return "\n\n".join(said)


def filled(text: str) -> str:
    """The text of the page with its block made anew."""
    return replaced(text, "leagues", block())


def main() -> None:
    """The command line."""
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0]).parse_args()
    document.save(PAGE, filled(document.read(PAGE)))


if __name__ == "__main__":
    main()
