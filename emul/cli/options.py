"""The console application, its exit codes, and the options that several commands share."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from emul.engine.session import Result
    from emul.workers.cluster import Cluster

OK, FAILED, BAD_INPUT, VIOLATED, INTERRUPTED, TERMINATED = 0, 1, 2, 3, 130, 143

app = typer.Typer(no_args_is_help=True, suggest_commands=False, rich_markup_mode=None, pretty_exceptions_enable=False,
                  help="A network emulator for federated learning.")

ScenarioFile = Annotated[Path, typer.Argument(metavar="SCENARIO", help="scenario file (YAML)")]
Sets = Annotated[list[str] | None, typer.Option("--set", metavar="PATH=VALUE",
                                                help='change one value, e.g. "stop.rounds=5"; may be repeated')]
SetFiles = Annotated[list[Path] | None, typer.Option(
    "--set-file", metavar="FILE", help="put the values of another file (YAML) on top, as `extends` does; before --set; "
    "may be repeated")]
Seed = Annotated[int | None, typer.Option(help="seed of every random choice, instead of the scenario's")]
Plugins = Annotated[list[str] | None, typer.Option("--plugin", metavar="MODULE",
                                                   help="module with a scheme of your own; may be repeated")]
WorkerCount = Annotated[int | None, typer.Option(
    min=0, help="worker processes; 0: none, everything in this process [default: one a core]")]
OnCluster = Annotated[str | None, typer.Option("--on", metavar="slurm|ray:auto|ray://HOST:PORT", help=(
    "workers in the allocation of Slurm that this is in, or on the machines of a Ray cluster (needs emul[ray]): the "
    "one that runs here, or by its client's address; ?cpus=N&gpus=N after it says what each worker is given [default: "
    "1 and 0]"))]
Json = Annotated[bool, typer.Option("--json", help="the result as JSON on stdout, in place of text")]


def expect_workers(on: str | None, workers: int | None) -> None:
    """Before a command's own imports: torch is imported beside them, for workers that will be processes of this
    machine."""
    if on is None and workers != 0:
        from emul.workers import forks

        forks.begin_ahead()


def placed(on: str | None, workers: int | None) -> int | Cluster | None:
    """The machines of the workers. Raises ScenarioError."""
    if on is None:
        return workers
    from emul.workers.cluster import cluster

    return cluster(on, workers)


def edits(sets: list[str] | None, files: list[Path] | None) -> list[str | Path]:
    """Changes of a scenario, in this order: files first, so that --set has the last word."""
    return [*(files or ()), *(sets or ())]


def print_failure(result: Result) -> None:
    """The error of a run, and the invariants that it violates, on stderr."""
    if result.error is not None:
        print(f"{result.scheme} failed: {result.error.rstrip()}", file=sys.stderr)
    for violation in result.violations:
        print(f"{result.scheme}: invariant violated: {violation}", file=sys.stderr)


def fail_of(results: Sequence[Result]) -> None:
    """End the command with the exit code of these runs, unless all of them are sound."""
    if any(result.violations for result in results):
        raise typer.Exit(VIOLATED)
    if any(result.error is not None for result in results):
        raise typer.Exit(FAILED)
