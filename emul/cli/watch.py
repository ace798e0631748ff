"""`emul watch`."""

from __future__ import annotations

import time
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from emul.base.extras import optional
from emul.cli.options import app


@app.command()
def watch(directory: Annotated[Path, typer.Argument(metavar="RUN", help="a run directory, of a run that goes or not")],
          port: Annotated[int, typer.Option(min=0, max=65535, help="port on loopback [default: any that is free]")] = 0,
          browser: Annotated[bool, typer.Option("--open", help="open the page in a browser")] = False) -> None:
    """Show a run while it goes, on a page of this machine; it ends with the run's report. Ctrl-C ends it."""
    from emul.record.journal import RecordError
    with optional("the page of a run needs", "report"):
        from emul.report.live.server import Watching
    from emul.record.rundir import INCOMPLETE, SUMMARY

    if not any((directory / name).exists() for name in (INCOMPLETE, SUMMARY)):
        raise RecordError(f"{directory}: no directory of a run")
    with Watching(directory, port) as watching:
        print(watching.url, flush=True)
        if browser:
            webbrowser.open(watching.url)
        while True:
            time.sleep(3600)
