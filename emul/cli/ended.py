"""Commands on a run that has ended: `emul attack`, `evaluate`, `export`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from emul.base.errors import Problem, ScenarioError
from emul.cli.options import FAILED, Json, Plugins, app

if TYPE_CHECKING:
    from emul.engine.evaluating import RoundModels


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
                else _numbers(one.values))
        print(f"{one.node}, round {one.round}: {said or 'poisoned: not evaluated'}")
    if found.mean is not None:
        print(f"mean of {len(found.models)} models, round {found.round}: {_numbers(found.mean)}")
    if found.accuracy is None:
        return
    told = "" if found.expected is None else ", as in the summary" if found.accuracy == found.expected else (
        f", but {found.expected!r} in the summary: another machine, other packages, or other data of that name")
    print(f"accuracy {found.accuracy!r}{told}")


def _numbers(values: Mapping[str, float]) -> str:
    return "  ".join(f"{name} {value:.6g}" for name, value in values.items())


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
        made = _tell(f"writing event files below {tensorboard}", lambda: formats.tensorboard(directory, tensorboard))
        print(f"{made}: look at it with `tensorboard --logdir {tensorboard}`")
    if mlflow is not None:
        number = _tell(f"logging {directory} to {mlflow}", lambda: formats.mlflow(directory, mlflow))
        print(f"{mlflow}: run {number}")
    if wandb is not None:
        place = _tell(f"writing an offline run below {wandb}", lambda: formats.wandb(directory, wandb))
        print(f"{place}: `wandb sync {place}` sends it")
    if model is not None:
        from emul.engine.reopening import save, whole

        count = _tell(f"writing the model of {directory}", lambda: save(whole(directory, node, plugins=plugin), model))
        print(f"{model}: {count:,} numbers")


def _tell(text: str, work: Callable[[], Result]) -> Result:
    """The result of `work`; on stderr `text`, if it takes long."""
    from emul.record.progress import StepProgress

    with StepProgress() as steps:
        steps.tell(text)
        return work()
