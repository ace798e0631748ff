"""`emul evaluate`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from emul.cli.options import FAILED, Json, Plugins, app

if TYPE_CHECKING:
    from emul.engine.evaluating import RoundModels


@app.command()
def evaluate(directory: Annotated[Path, typer.Argument(metavar="RUN", help="a run directory")],
             data: Annotated[str | None, typer.Option(metavar="SET", help=(
                 'other data: the name of a set, or as `task.data` has it, e.g. "{set: fashion-mnist}"'))] = None,
             round_: Annotated[int | None, typer.Option("--round", help=(
                 "models of this round [default: the last that was evaluated]"))] = None,
             plugin: Plugins = None, as_json: Json = False) -> None:
    """Evaluate the models that a run has kept: again as the run did, or on other data."""
    from emul.engine.evaluating import evaluate as evaluated
    from emul.record.progress import StepProgress

    with StepProgress() as steps:
        steps.tell(f"evaluating the models of {directory}")
        found = evaluated(directory, data, round_, plugin)
    if as_json:
        print(json.dumps({"kind": "evaluation", **asdict(found)}, indent=2))
    else:
        _print(found)
    if found.expected is not None and found.accuracy != found.expected:
        raise typer.Exit(FAILED)


def _print(found: RoundModels) -> None:
    for one in found.models:
        said = ("evaluated by its scheme with more than its model: not again" if one.values is None
                else _said(one.values))
        print(f"{one.node}, round {one.round}: {said or 'poisoned: not evaluated'}")
    if found.mean is not None:
        print(f"mean of {len(found.models)} models, round {found.round}: {_said(found.mean)}")
    if found.accuracy is None:
        return
    told = "" if found.expected is None else ", as in the summary" if found.accuracy == found.expected else (
        f", but {found.expected!r} in the summary: another machine, other packages, or other data of that name")
    print(f"accuracy {found.accuracy!r}{told}")


def _said(values: Mapping[str, float]) -> str:
    return "  ".join(f"{name} {value:.6g}" for name, value in values.items())
