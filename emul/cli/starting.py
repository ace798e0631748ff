"""`emul init`, `emul schema`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from emul.cli.options import Plugins, app


@app.command()
def init(directory: Annotated[Path, typer.Argument(metavar="DIR", help="where to put it; made if need be")]) -> None:
    """Put scenarios, profiles, topologies and traces to start from into a folder, with the schema of scenario files and
    the versions of packages that emul is tested with."""
    from emul.templates import write_starter

    written = write_starter(directory)
    there = "" if directory == Path() else f"cd {directory} && "
    print(f"{directory}: {len(written)} files: scenarios, their profiles, topologies, traces, the schema for editors, "
          "constraints.txt for pip (-c)")
    print(f"run one: {there}emul run scenarios/quickstart.yaml")


@app.command()
def schema(plugin: Plugins = None) -> None:
    """Print the JSON schema of scenario files, for editors: `emul schema > emul.schema.json`."""
    from emul.scenario.schema import schema as made

    print(json.dumps(made(plugin or ()), indent=1, ensure_ascii=False))
