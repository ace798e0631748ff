"""`emul export`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from emul.base.errors import Problem, ScenarioError
from emul.cli.options import Plugins, app


@app.command()
def export(directory: Annotated[Path, typer.Argument(metavar="RUN", help="a run directory")],
           perfetto: Annotated[Path | None, typer.Option(metavar="FILE", help=(
               "trace events for ui.perfetto.dev or chrome://tracing (JSON)"))] = None,
           tensorboard: Annotated[Path | None, typer.Option(metavar="DIR", help=(
               "event files below DIR (needs emul[tensorboard])"))] = None,
           mlflow: Annotated[str | None, typer.Option(metavar="URI", help=(
               "an MLflow store (needs emul[mlflow])"))] = None,
           wandb: Annotated[Path | None, typer.Option(metavar="DIR", help=(
               "an offline run of Weights & Biases below DIR (needs emul[wandb])"))] = None,
           model: Annotated[Path | None, typer.Option(metavar="FILE", help=(
               "the whole model, with what was frozen (safetensors)"))] = None,
           node: Annotated[str | None, typer.Option(help=(
               "with --model, whose [default: of the only node that decides]"))] = None,
           plugin: Plugins = None) -> None:
    """Write a run in the format of other tools."""
    from emul.record import export as formats
    from emul.record.marks import incomplete
    from emul.record.salvage import is_unfinished, unfinished

    if perfetto is None and tensorboard is None and mlflow is None and wandb is None and model is None:
        raise ScenarioError("command line", [Problem(
            "", "", "expected --perfetto, --tensorboard, --mlflow, --wandb or --model")])
    if is_unfinished(directory):
        print(f"{directory}: {incomplete(unfinished(directory).summary)}", file=sys.stderr)
    if perfetto is not None:
        print(f"{perfetto}: {formats.perfetto(directory, perfetto)} events; open it in https://ui.perfetto.dev")
    if tensorboard is not None:
        print(f"{formats.tensorboard(directory, tensorboard)}: look at it with `tensorboard --logdir {tensorboard}`")
    if mlflow is not None:
        print(f"{mlflow}: run {formats.mlflow(directory, mlflow)}")
    if wandb is not None:
        place = formats.wandb(directory, wandb)
        print(f"{place}: `wandb sync {place}` sends it")
    if model is not None:
        from emul.engine.whole import save, whole

        print(f"{model}: {save(whole(directory, node, plugins=plugin), model):,} numbers")
