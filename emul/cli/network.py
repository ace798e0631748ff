"""`emul explain`, `emul network from-matrix`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from emul.base.tracebacks import shown
from emul.cli.options import Plugins, ScenarioFile, Seed, SetFiles, Sets, WorkerCount, app, edits

network = typer.Typer(no_args_is_help=True, help="Networks from measurements.")
app.add_typer(network, name="network")


@network.command(name="from-matrix")
def from_matrix(matrix: Annotated[Path, typer.Argument(help=(
                    "latencies between sites: a square table with their names, or lines such as from,to,rtt_ms"))],
                rates: Annotated[Path | None, typer.Option(help="rates between sites, in the same forms")] = None,
                out: Annotated[Path, typer.Option("--out", "-o", help="file to write")] = Path("scenario.yaml"),
                server: Annotated[str | None, typer.Option(help=(
                    "the site that serves [default: the one with the least round trips to all others]"))] = None,
                peers: Annotated[bool, typer.Option("--peers", help="all sites are peers; nobody serves")] = False,
                one_way: Annotated[bool, typer.Option("--one-way", help="latencies are no round trips")] = False,
                unit: Annotated[str | None, typer.Option(help="of bare numbers of the matrix [default: ms]")] = None,
                ) -> None:
    """Write a scenario whose network is a measured matrix: links from end to end, and nobody forwards."""
    from emul import scenario as scenarios
    from emul.base.errors import InputError
    from emul.templates import scenario_of_matrix

    if peers and server is not None:
        raise typer.BadParameter("is not used with --server", param_hint="--peers")
    text, said = scenario_of_matrix(matrix, rates, out, server, peers, one_way, unit)
    try:
        with out.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InputError(f"{out}: exists already; nothing was written. Expected another file (-o)") from None
    scenarios.load(out)
    print(said)
    print(f"written: {out}")
    print(f"run it: emul run {out}")


@app.command()
def explain(scenario: ScenarioFile,
            size: Annotated[str, typer.Option(help="of the message whose time is told")] = "1 MB",
            scheme: Annotated[str | None, typer.Option(help="only this scheme, by label or name")] = None,
            as_json: Annotated[bool, typer.Option("--json", help="everything as JSON")] = False,
            workers: WorkerCount = None,
            sets: Sets = None, set_file: SetFiles = None, seed: Seed = None, plugin: Plugins = None) -> None:
    """Tell routes, bottlenecks, losses, traffic of a round and memory of each scheme, without running the scenario."""
    from emul import scenario as scenarios
    from emul.base.units import size_bytes
    from emul.preview import explain as preview

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
        print_table(title, cells)
    for note in preview.notes(explained):
        print(note)


def print_table(title: str, cells: list[list[str]]) -> None:
    """With rich on a terminal, else in plain columns. Control characters, which a table of a stranger's may have, are
    printed as escapes."""
    cells = [list(map(shown, row)) for row in cells]
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
