"""`emul explain`."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from emul.cli.options import Plugins, ScenarioFile, Seed, SetFiles, Sets, WorkerCount, app, edits


@app.command()
def explain(scenario: ScenarioFile,
            size: Annotated[str, typer.Option(help="of the message whose time is told")] = "1 MB",
            scheme: Annotated[str | None, typer.Option(help="only this scheme, by label or name")] = None,
            as_json: Annotated[bool, typer.Option("--json", help="everything as JSON")] = False,
            workers: WorkerCount = None,
            sets: Sets = None, set_file: SetFiles = None, seed: Seed = None, plugin: Plugins = None) -> None:
    """Tell routes, bottlenecks, losses, traffic of a round and memory of each scheme, without running the scenario."""
    from emul import preview
    from emul import scenario as scenarios
    from emul.base.units import size_bytes

    try:
        wanted = size_bytes(size)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--size") from None
    plan = scenarios.load(scenario, sets=edits(sets, set_file), seed=seed, plugins=plugin or ())
    explained = preview.explain(plan, wanted, scheme, plugin or (), workers)
    if as_json:
        print(json.dumps(explained, indent=1, ensure_ascii=False))
        return
    for title, cells in preview.tables(explained):
        _print_table(title, cells)
    for note in preview.notes(explained):
        print(note)


def _print_table(title: str, cells: list[list[str]]) -> None:
    """With rich on a terminal, else in plain columns."""
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table

        drawn = Table(title=title, title_justify="left")
        for name in cells[0]:
            drawn.add_column(name)
        for row in cells[1:]:
            drawn.add_row(*row)
        Console().print(drawn)
        return
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    print(title)
    for row in cells:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    print()
