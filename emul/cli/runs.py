"""`emul run`, `check`, `profile`, `replay`, `salvage`."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from emul.base.plain import PlainDict
from emul.base.tracebacks import shown
from emul.cli.flower import ClientApp, FlowerApp, RunConfig, ServerApp, flower_scheme
from emul.cli.options import (
    BAD_INPUT,
    FAILED,
    Json,
    OnCluster,
    Plugins,
    ScenarioFile,
    Seed,
    SetFiles,
    Sets,
    WorkerCount,
    app,
    edits,
    expect_workers,
    fail_of,
    placed,
    print_failure,
)

if TYPE_CHECKING:
    from emul.engine import Result
    from emul.engine.session import Companion
    from emul.scenario import Scenario


@app.command()
def run(scenario: ScenarioFile,
        scheme: Annotated[str | None, typer.Option(help="only this scheme of the scenario, by label or name")] = None,
        workers: WorkerCount = None, on: OnCluster = None,
        out: Annotated[Path, typer.Option(help="directory in which the run directories are made")] = Path("runs"),
        seed: Seed = None, sets: Sets = None, set_file: SetFiles = None, plugin: Plugins = None,
        quiet: Annotated[bool, typer.Option("--quiet", help="no progress line")] = False,
        network: Annotated[Path | None, typer.Option(
            metavar="RUN", help="a run directory, or a table such as its network.parquet (CSV, too): links draw "
            "what they drew there")] = None,
        beyond: Annotated[str | None, typer.Option(
            help="with --network, what a link does that the record has no draw for: stream (its own model), repeat "
            "or error [default: stream]")] = None,
        store: Annotated[Path | None, typer.Option(
            metavar="DIR", help="a store of trainings that runs share, or none at all [default: $EMUL_STORE, else each "
            "run's own, in its directory until it is complete]")] = None,
        keep_trainings: Annotated[bool, typer.Option("--keep-trainings", help="keep the run's own for longer")] = False,
        what_if: Annotated[Path | None, typer.Option(
            metavar="RUN", help="take the trainings of that run where they are the same; say how many were")] = None,
        log: Annotated[list[str] | None, typer.Option(
            metavar="tensorboard|mlflow|wandb[=PLACE]", help="log curves while it runs: below a directory [default: "
            "runs/tensorboard, runs/wandb], or in an MLflow store; may be repeated")] = None,
        no_training: Annotated[bool, typer.Option("--no-training", help="times and bytes alone: every message is sent, "
                                                  "nothing is learned (training: skip)")] = False,
        flower: FlowerApp = None, server_app: ServerApp = None, client_app: ClientApp = None,
        run_config: RunConfig = None,
        as_json: Json = False) -> None:
    """Run every scheme of a scenario over the same network, and compare them."""
    expect_workers(on, workers)
    from emul import engine
    from emul import scenario as scenarios
    from emul.base.names import by_kind
    from emul.engine.keeping import trainings_of, unfinished_like
    from emul.record.progress import protection, rejections, table

    if beyond is not None and network is None:
        raise typer.BadParameter("is used only with --network", param_hint="--beyond")
    record = [] if network is None else [f"network={{replay: {json.dumps(str(network.absolute()))}, "
                                         f"beyond: {json.dumps(beyond or 'stream')}}}"]
    edited = [*flower_scheme(flower, server_app, client_app, run_config), *edits(sets, set_file), *record,
              *["training=skip"] * no_training]
    plan = scenarios.load(scenario, sets=edited, seed=seed, plugins=plugin or ())
    loop = None
    if what_if is not None and not plan.task:
        loop, plan = what_if, engine.on_network_of(plan, what_if)
    keeping = engine.Keeping.chosen(store, keep_trainings, [trainings_of(what_if)] if what_if and not loop else [])
    loggers: list[Companion] = []
    if log:                             # nothing of it is imported unless it is asked for
        from emul.report.live.loggers import logger

        loggers = [logger(one) for one in log]
    for unfinished in unfinished_like(out, plan):
        print(f"unfinished run of this scenario: emul resume {unfinished}", file=sys.stderr)
    results = engine.run(plan, scheme=scheme, workers=placed(on, workers), out=out, plugins=plugin or (), quiet=quiet,
                         keeping=keeping, companions=loggers, recalled=loop)
    for warning in by_kind(w for r in results for w in r.warnings):
        print(f"warning: {warning}", file=sys.stderr)
    summaries = [r.summary for r in results if r.summary is not None]
    if as_json:
        print(json.dumps({"kind": "run", "runs": [_document(r) for r in results]}, indent=2))
    elif summaries:
        print(table(summaries))
    for result in results:
        if result.directory is not None and not as_json:
            print(f"{result.scheme}: {result.directory}")
            for line in [] if result.summary is None else (*protection(result.summary), *rejections(result.summary)):
                print(f"{result.scheme}: {line}")
            if loop is not None and result.summary is not None:
                print(f"{result.scheme}: the loop of {loop} decides here as it did there")
            elif what_if is not None and result.summary is not None:
                print(f"{result.scheme}: {_share_found(result.summary['real_store'])}")
            if network is not None and result.summary is not None:
                print(f"{result.scheme}: {_not_held(result.summary['network_beyond'])}")
        if result.summary is not None and result.summary["first_failure"] and not result.summary["rounds"]:
            print(f"{result.scheme}: all rounds failed; the first: {result.summary['first_failure']}", file=sys.stderr)
        print_failure(result)
    fail_of(results)


def _share_found(use: PlainDict) -> str:
    """The share of trainings that a run on another network has found of an earlier one."""
    asked = use["found"] + use["missed"]
    if asked and not use["missed"]:
        return f"all {asked:,} trainings and evaluations were found: the curve over rounds is identical"
    return f"{use['found']:,} of {asked:,} trainings and evaluations were found, {use['missed']:,} differ"


def _not_held(beyond: dict[str, int]) -> str:
    """The draws that the record of a network did not hold.

    >>> _not_held({"lost": 3358, "up": 0}), _not_held({"lost": 0})
    ('not in the record: 3,358 lost', 'everything was in the record')
    """
    found = ", ".join(f"{count:,} {what}" for what, count in beyond.items() if count)
    return f"not in the record: {found}" if found else "everything was in the record"


def _document(result: Result) -> PlainDict:
    """One scheme's run for `--json`: its summary; of one that failed why, and the summary of what there is of it."""
    from emul.base.errors import EmulError
    from emul.record import salvage

    summary = result.summary
    if summary is None and result.directory is not None:
        with contextlib.suppress(EmulError):
            summary = salvage.unfinished(result.directory).summary
    return {"scheme": result.scheme, "directory": None if result.directory is None else str(result.directory),
            "summary": summary, "violated": list(result.violations), "error": result.error}


@app.command()
def check(scenario: Annotated[Path | None, typer.Argument(metavar="[SCENARIO]", show_default=False,
                                                          help="scenario file (YAML)")] = None,
          device: Annotated[str | None, typer.Option(metavar="cpu|cuda|cuda:1", help=(
              "try a device out: train, evaluate and compare with the CPU, on the scenario's task, or without a "
              "scenario on a small one"))] = None,
          sets: Sets = None, set_file: SetFiles = None, seed: Seed = None, plugin: Plugins = None) -> None:
    """Check a scenario file and everything it names, without running it; or a device."""
    from emul.scenario import load

    if scenario is None and device is None:
        raise typer.BadParameter("expected a scenario, or --device", param_hint="SCENARIO")
    plan = None if scenario is None else load(scenario, sets=edits(sets, set_file), seed=seed, plugins=plugin or ())
    if plan is not None:
        from emul.api.calls import checked

        print(shown(str(checked(plan, str(scenario), plugin or ()))))
    if device is not None:
        _try(device, plan, plugin or ())


def _try(device: str, plan: Scenario | None, plugins: Sequence[str]) -> None:
    from emul.api.calls import tried
    from emul.learning.device import DeviceError

    try:
        found = tried(device, plan, plugins)
    except DeviceError as e:
        print(e, file=sys.stderr)
        raise typer.Exit(BAD_INPUT) from None
    print(found)
    if not found.ok:
        raise typer.Exit(FAILED)


@app.command()
def profile(scenario: ScenarioFile,
            out: Annotated[Path, typer.Option("--out", "-o", help="profile to write (JSON)")],
            sets: Sets = None, set_file: SetFiles = None, seed: Seed = None, plugin: Plugins = None,
            repeat: Annotated[int, typer.Option(min=1, help="runs of each scheme; medians count")
                              ] = 3,
            ) -> None:
    """Measure what each computation costs on this machine, for `compute: {mode: profile}`."""
    from emul import engine
    from emul import scenario as scenarios
    from emul.record.progress import StepProgress

    # The rest of `compute`, such as the device, is measured as it is; a file of costs may be the one to be written. The
    # scenario is loaded without costs, since `measured` refuses devices without a speed, and a profile needs no speed.
    without_costs = [f"compute.{key}={value}" for key, value in (
        ("mode", "zero"), ("file", "null"), ("trace", "null"), ("take", "null"), ("default", "null"))]
    plan = scenarios.load(scenario, sets=[*edits(sets, set_file), *without_costs], seed=seed, plugins=plugin or ())
    plan = replace(plan, compute=replace(plan.compute, mode="measured"))
    with StepProgress() as steps:
        measured = engine.profile(plan, out, plugins=plugin or (), repeat=repeat, tell=steps.tell)
    for key, found in measured.items():
        cost = f"{found.a * 1e3:12.4f} ms" + (f" + {found.b * 1e9:.3f} ns x work" if found.b else "")
        alike = f", one cost with {', '.join(found.alike)}" if found.alike else ""
        print(f"{key:40} {cost}  (quartiles x {found.spread[0]:.2f} to x {found.spread[1]:.2f}{alike})")
    print(f"written: {out}")


@app.command()
def replay(directory: Annotated[Path, typer.Argument(metavar="RUN", help="a run directory")],
           workers: WorkerCount = None, on: OnCluster = None, plugin: Plugins = None) -> None:
    """Compute a run again from its own directory and compare journal and models."""
    expect_workers(on, workers)
    from emul import engine
    from emul.record.progress import StepProgress

    differ: list[str] = []
    with StepProgress() as steps:
        steps.tell(f"computing {directory} again")
        digest = engine.replay(directory, workers=placed(on, workers), plugins=plugin or (), tell=differ.append,
                               step=steps.tell)
    same = "identical in all but values" if differ else "identical"
    print(f"{directory}: {same}, digest {digest}")
    for where in differ:
        print(where)


@app.command()
def salvage(runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="run directories that are INCOMPLETE")],
            as_json: Json = False) -> None:
    """Write tables and summary of runs that were interrupted, killed or failed, up to the last whole row."""
    from emul.base.errors import EmulError
    from emul.record import salvage as salvaging
    from emul.record.marks import incomplete
    from emul.record.progress import table

    found, wrong = {}, []
    for run in runs:
        try:
            found[run] = salvaging.write(run)
        except EmulError as e:                      # the others can be had all the same
            wrong.append(str(e))
    if as_json:
        print(json.dumps({"kind": "salvage", "runs": [{"directory": str(run), "summary": summary}
                                                      for run, summary in found.items()]}, indent=2))
    elif found:
        print(table(list(found.values())))
        for run, summary in found.items():
            print(f"{run}: {incomplete(summary)}")
    for text in wrong:
        print(text, file=sys.stderr)
    if wrong:
        raise typer.Exit(BAD_INPUT)
