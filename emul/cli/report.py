"""`emul report`, `watch`."""

from __future__ import annotations

import time
import webbrowser
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from emul.base.extras import optional
from emul.cli.options import app


class FigureWidth(StrEnum):
    """The width of figures that are written as files."""

    page = "page"
    column = "column"


@app.command()
def report(paths: Annotated[list[Path], typer.Argument(
               metavar="RUN|STUDY...", help="a run directory, a directory of runs, that of a comparison, a sweep or a "
                                            "suite; or several run directories, which are put side by side")],
           out: Annotated[Path | None, typer.Option(
               "--out", "-o", help="file to write [default: report.html in the directory]")] = None,
           figures: Annotated[Path | None, typer.Option(
               help="directory for every figure as PNG, SVG, PDF and CSV")] = None,
           size: Annotated[FigureWidth, typer.Option(
               help="of those files: as wide as a page, or as a column of two, with text of 7 and 8 pt",
           )] = FigureWidth.page,
           font: Annotated[str, typer.Option(
               help="of those files: a font of this system [default: that of the page]")] = "") -> None:
    """Write a report, one HTML file that needs no network, of a run, several runs, a comparison, a sweep or a suite."""
    from emul.record.progress import StepProgress
    from emul.report import write

    if font:
        with optional("figures need", "report"):
            from emul.report.files import require_font
        try:
            require_font(font)
        except ValueError as e:
            raise typer.BadParameter(str(e), param_hint="--font") from None
    with StepProgress() as steps:
        file = write(paths[0] if len(paths) == 1 else paths, out, figures, size, font, steps.tell)
    print(f"written: {file}")
    if figures is not None:
        print(f"figures: {figures}")


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
