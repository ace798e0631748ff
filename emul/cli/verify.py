"""`emul verify`."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from emul.base.errors import Problem, ScenarioError
from emul.cli.options import FAILED, Plugins, app

if TYPE_CHECKING:
    from emul.study.verify import RowVerdict


@app.command()
def verify(table: Annotated[Path, typer.Argument(metavar="FILE.csv", dir_okay=False, help=(
               "a table of `emul sweep --done`, or alike"))],
           cells: Annotated[int, typer.Option(min=0, help="how many cells; 0: all that the budget allows")] = 3,
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
    if renew:
        Done(table)                     # raises StudyError where there are columns that nobody here can make
    file = into or table.with_name(study.FILE)
    chosen = [row for row in study.read(table) if (keys is None or row["key"] in keys.split(","))
              and scenario in (None, row.get("scenario")) and scheme in (None, row["scheme"])]
    code = study.coder(table, plugin or ())
    old = sum(row["code"] != code(row) for row in chosen)
    now = origin()
    print(f"{table}: {len(chosen)} rows, {old} of them of other code than there is now; this is {now['revision']} on "
          f"{now['processor']}, torch {now['torch']}; rows made elsewhere are equal within {tolerance:g}", flush=True)
    counts: dict[str, int] = {}
    found = study.some(table, study.drawn(chosen, study.verdicts(file), code, draw or today()), workers, most=cells,
                       budget_s=None if budget is None else _seconds(budget), tolerance=tolerance, rounds=rounds,
                       tell=lambda text: steps.tell(text), modules=plugin or ())
    while True:
        with StepProgress() as steps:       # of one row: its verdict is printed where no line is drawn any more
            said = next(found, None)
        if said is None:
            break
        counts[said.verdict] = counts.get(said.verdict, 0) + 1
        print(_line(said), flush=True)
        if renew and study.renew(table, [said]):
            continue
        study.keep(file, table, [said])
    print(", ".join(f"{n} {verdict}" for verdict, n in sorted(counts.items())) or "no row was run", file=sys.stderr)
    if counts.get(study.DIFFERENT) and not renew:
        raise typer.Exit(FAILED)


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
