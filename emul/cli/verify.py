"""`emul verify`."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from emul.base.errors import Problem, ScenarioError
from emul.cli.options import FAILED, Plugins, app

if TYPE_CHECKING:
    from emul.study.verify import RowVerdict


@app.command()
def verify(table: Annotated[Path | None, typer.Argument(metavar="[FILE.csv]", dir_okay=False, help=(
               "a table of `emul sweep --done`, or alike"))] = None,
           every: Annotated[bool, typer.Option("--all", help=(
               "in place of FILE.csv: of each table of cells here and below a tenth of its rows, those whose verdict "
               "is oldest; ten times make every row again"))] = False,
           cells: Annotated[int | None, typer.Option(min=0, help=(
               "how many cells of a table; 0: all that the budget allows [default: 3; with --all a tenth]"))] = None,
           budget: Annotated[str | None, typer.Option(metavar="TIME", help=(
               "begin no further cell after this time, and none that took longer than what is left, e.g. 10m"))] = None,
           tolerance: Annotated[float, typer.Option(min=0, max=1, help=(
               "within which numbers of a row that was made on another processor, or with another torch, are equal: "
               "accuracies to so much, other numbers to this share"))] = 0.02,
           rounds: Annotated[int | None, typer.Option(min=1, help=(
               "compute the first rounds alone, and compare their accuracies with those of the row"))] = None,
           keys: Annotated[str | None, typer.Option("--keys", metavar="A,B", help="these rows and no others")] = None,
           scenario: Annotated[str | None, typer.Option(metavar="NAME", help="rows of this scenario alone")] = None,
           scheme: Annotated[str | None, typer.Option(metavar="LABEL", help="rows of this scheme alone")] = None,
           draw: Annotated[str | None, typer.Option(metavar="TEXT", help=(
               "rows that are alike are drawn by this text [default: the day]"))] = None,
           into: Annotated[Path | None, typer.Option(metavar="CSV", dir_okay=False, help=(
               "where verdicts are kept [default: verified.csv beside the table]"))] = None,
           renew: Annotated[bool, typer.Option("--renew", help=(
               "replace each row whose digest is another one by what came out, in place of a verdict"))] = False,
           workers: Annotated[int, typer.Option(min=0, help="worker processes of each run; 0: none")] = 1,
           plugin: Plugins = None) -> None:
    """Compute published cells again, those whose code differs first, and say whether they are what they were."""
    from emul.record.progress import StepProgress
    from emul.study import verify as study
    from emul.study.done import Done
    from emul.study.job import origin, today

    if renew and rounds is not None:
        raise ScenarioError("command line", [Problem("--renew", "", "needs whole runs: leave out --rounds")])
    if (table is None) != every:
        raise ScenarioError("command line", [Problem("FILE.csv", "", "expected a table, or --all in its place")])
    tables = [table] if table is not None else study.tables_below(Path())
    if renew:
        for file in tables:
            Done(file)                  # raises StudyError where there are columns that nobody here can make
    chosen = {file: [row for row in study.read(file) if (keys is None or row["key"] in keys.split(","))
                     and scenario in (None, row.get("scenario")) and scheme in (None, row["scheme"])]
              for file in tables}
    before = {file: study.verdicts(into or file.with_name(study.FILE)) for file in tables}
    now = origin()
    here = (f"this is {now['revision']} on {now['processor']}, torch {now['torch']}; rows made elsewhere are equal "
            f"within {tolerance:g}")
    if table is None:
        most = {file: -(-len(rows) // study.PARTS) for file, rows in chosen.items()}
        order = study.by_age({file: (rows, before[file]) for file, rows in chosen.items()}, draw or today())
        for file, rows in chosen.items():
            print(f"{file}: {most[file]} of {len(rows)} rows, {_never(rows, before[file])} had no verdict")
        print(here, flush=True)
    else:
        code, most = study.coder(table, plugin or ()), {table: 3}
        old = sum(row["code"] != code(row) for row in chosen[table])
        print(f"{table}: {len(chosen[table])} rows, {old} of them of other code than there is now; {here}", flush=True)
        order = [(table, row) for row in study.drawn(chosen[table], before[table], code, draw or today())]
    if cells is not None:
        most = dict.fromkeys(tables, cells) if cells else {}
    counts: dict[str, int] = {}
    found = study.some(order, workers, most=most, budget_s=None if budget is None else _seconds(budget),
                       tolerance=tolerance, rounds=rounds, tell=lambda text: steps.tell(text), modules=plugin or ())
    while True:
        with StepProgress() as steps:       # of one row: its verdict is printed where no line is drawn any more
            ended = next(found, None)
        if ended is None:
            break
        file, said = ended
        counts[said.verdict] = counts.get(said.verdict, 0) + 1
        print(_line(said), flush=True)
        if renew and study.renew(file, [said]):
            continue
        study.keep(into or file.with_name(study.FILE), file, [said])
    print(", ".join(f"{n} {verdict}" for verdict, n in sorted(counts.items())) or "no row was run", file=sys.stderr)
    left = sum(most.values()) - sum(counts.values()) + counts.get(study.NOT_RUN, 0)
    if every and left > 0:
        print(f"{left} rows of this part were not reached", file=sys.stderr)
    if counts.get(study.DIFFERENT) and not renew:
        raise typer.Exit(FAILED)


def _never(rows: Sequence[Mapping[str, str]], before: Sequence[Mapping[str, str]]) -> int:
    """Rows that stand without a verdict."""
    known = {(verdict["key"], verdict["digest"]) for verdict in before}
    return sum((row["key"], row["digest"]) not in known for row in rows)


def _line(said: RowVerdict) -> str:
    row = said.row
    where = "" if said.round is None else f"; from round {said.round} on"
    what = f": {said.detail}" if said.detail else ""
    return (f"{said.verdict}: {row.get('scenario') or row['file']} {row['scheme']} seed {row['seed']} {row['values']}"
            f"{where}{what} ({said.seconds:.0f} s)")


def _seconds(text: str) -> float:
    from emul.base.units import duration_ns

    try:
        return duration_ns(re.sub(r"(?<=\d) ?m$", " min", text)) / 1e9
    except ValueError as e:
        raise ScenarioError("command line", [Problem("--budget", f'"{text}"', str(e))]) from None
