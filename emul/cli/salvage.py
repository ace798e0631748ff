"""`emul salvage`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from emul.cli.options import BAD_INPUT, Json, app


@app.command()
def salvage(runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="run directories that are INCOMPLETE")],
            as_json: Json = False) -> None:
    """Write tables and summary of runs that were interrupted, killed or failed, up to the last whole row."""
    from emul.base.errors import EmulError
    from emul.record import salvage as salvaging
    from emul.record.marks import incomplete
    from emul.record.progress import table

    found, wrong = {}, []
    for run in runs:
        try:
            found[run] = salvaging.write(run)
        except EmulError as e:                      # the others can be had all the same
            wrong.append(str(e))
    if as_json:
        print(json.dumps({"kind": "salvage", "runs": [{"directory": str(run), "summary": summary}
                                                      for run, summary in found.items()]}, indent=2))
    elif found:
        print(table(list(found.values())))
        for run, summary in found.items():
            print(f"{run}: {incomplete(summary)}")
    for text in wrong:
        print(text, file=sys.stderr)
    if wrong:
        raise typer.Exit(BAD_INPUT)
