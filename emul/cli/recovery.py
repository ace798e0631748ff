"""`emul recovery`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from emul.cli.options import FAILED, Plugins, app


@app.command()
def recovery(schemes: Annotated[list[str] | None, typer.Argument(metavar="SCHEME", help=(
                 "[default: all that leave something for an auditor]"))] = None,
             out: Annotated[Path | None, typer.Option(help="a file: also write the matrix there, as HTML")] = None,
             plugin: Plugins = None) -> None:
    """Drop clients out at every stage of secure aggregation, and say whether each sum is right."""
    from emul.study import recovery as study

    plugins = plugin or ()
    names = schemes or study.audited(plugins)
    found = study.matrix(names, plugins, tell=lambda name: print(f"{name} ...", file=sys.stderr))
    print(study.text(found))
    if out is not None:
        out.write_text(study.page(found), encoding="utf-8")
        print(f"\n{out}")
    if study.bad(found):
        raise typer.Exit(FAILED)
