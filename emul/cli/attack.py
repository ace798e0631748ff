"""`emul attack`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from emul.cli.options import Json, Plugins, app

_SHOWN = 40                         # rows that are printed


@app.command()
def attack(directory: Annotated[Path, typer.Argument(metavar="RUN", help="a run directory")],
           by: Annotated[str | None, typer.Option(metavar="NAME", help="which attack [default: list them]")] = None,
           sets: Annotated[list[str] | None, typer.Option("--set", metavar="PARAMETER=VALUE", help=(
               "a parameter of the attack; may be repeated"))] = None,
           label: Annotated[str | None, typer.Option(help="what the result is called [default: NAME]")] = None,
           plugin: Plugins = None, as_json: Json = False) -> None:
    """Attack the privacy of a run that has ended, on what it has kept; the result stands beside its tables."""
    from emul.engine.reopening import attack as attacked
    from emul.record.progress import StepProgress
    from emul.scenario.edits import parameters_of

    if by is None:
        print(_listed(plugin or ()))
        return
    with StepProgress() as steps:
        steps.tell(f"attacking {directory} by {by}")
        found = attacked(directory, by, parameters_of(sets or ()), plugin, label)
    if as_json:
        print(json.dumps({"kind": "attack", **found.about, "rows": json.loads(found.rows.to_json(orient="records"))},
                         indent=2))
        return
    print(found.rows.head(_SHOWN).to_string(index=False, float_format=lambda x: f"{x:.4g}"))
    if len(found.rows) > _SHOWN:
        print(f"... {len(found.rows) - _SHOWN:,} more rows")
    print(f"written: {directory / 'attacks' / found.label}.csv")
    if found.pictures:
        print(f"         {len(found.pictures)} pictures in {found.pictures[0][1].parent}; emul report shows them")


def _listed(plugins: Sequence[str]) -> str:
    """The attacks that there are, with their parameters."""
    from emul.engine.reopening import headline
    from emul.registry import attacks
    from emul.scenario.params import scenario_keys

    def entry(name: str, made: Any) -> str:
        keys = ", ".join(scenario_keys(attacks.parameters(made)))
        return f"{name}: {headline(made)}\n    parameters: {keys or 'none'}"

    return "\n".join(entry(name, made) for name, made in attacks.known(attacks.PRIVACY, plugins).items())
