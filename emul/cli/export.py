"""`emul export`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from emul.base.errors import Problem, ScenarioError
from emul.cli.options import Plugins, app

Result = TypeVar("Result")


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
    from emul.record.marks import incomplete
    from emul.record.progress import StepProgress
    from emul.record.salvage import is_unfinished, unfinished
    from emul.report import export as formats

    if perfetto is None and tensorboard is None and mlflow is None and wandb is None and model is None:
        raise ScenarioError("command line", [Problem(
            "", "", "expected --perfetto, --tensorboard, --mlflow, --wandb or --model")])
    if is_unfinished(directory):
        print(f"{directory}: {incomplete(unfinished(directory).summary)}", file=sys.stderr)
    if perfetto is not None:
        with StepProgress() as steps:
            events = formats.perfetto(directory, perfetto, steps.tell)
        print(f"{perfetto}: {events} events; open it in https://ui.perfetto.dev")
    if tensorboard is not None:
        made = _told(f"writing event files below {tensorboard}", lambda: formats.tensorboard(directory, tensorboard))
        print(f"{made}: look at it with `tensorboard --logdir {tensorboard}`")
    if mlflow is not None:
        number = _told(f"logging {directory} to {mlflow}", lambda: formats.mlflow(directory, mlflow))
        print(f"{mlflow}: run {number}")
    if wandb is not None:
        place = _told(f"writing an offline run below {wandb}", lambda: formats.wandb(directory, wandb))
        print(f"{place}: `wandb sync {place}` sends it")
    if model is not None:
        from emul.engine.reopening import save, whole

        count = _told(f"writing the model of {directory}", lambda: save(whole(directory, node, plugins=plugin), model))
        print(f"{model}: {count:,} numbers")


def _told(text: str, work: Callable[[], Result]) -> Result:
    """The result of `work`; on stderr `text`, if it takes long."""
    from emul.record.progress import StepProgress

    with StepProgress() as steps:
        steps.tell(text)
        return work()
