"""The commands.

Exit codes: 0 ok, 1 a run failed or a replay differs, 2 bad input, 3 an invariant is violated, 130 interrupted.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from emul import __version__
from emul.base.errors import EmulError, ScenarioError

OK, FAILED, BAD_INPUT, VIOLATED, INTERRUPTED = 0, 1, 2, 3, 130

app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False,
                  help="A network emulator for federated learning.")

ScenarioFile = Annotated[Path, typer.Argument(metavar="SCENARIO", help="scenario file (YAML)")]
Sets = Annotated[list[str] | None, typer.Option("--set", metavar="PATH=VALUE",
                                                help='change one value, e.g. "stop.rounds=5"; may be repeated')]
Seed = Annotated[int | None, typer.Option(help="seed of every random choice, instead of the scenario's")]
Plugins = Annotated[list[str] | None, typer.Option("--plugin", metavar="MODULE",
                                                   help="module with a scheme of your own; may be repeated")]
WorkerCount = Annotated[int | None, typer.Option(
    min=0, help="worker processes; 0: none, everything in this process [default: one a core]")]


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="print the version and exit")] = False) -> None:
    if version:
        print(f"emul {__version__}")
        raise typer.Exit


@app.command()
def run(scenario: ScenarioFile,
        scheme: Annotated[str | None, typer.Option(help="only this scheme of the scenario")] = None,
        workers: WorkerCount = None,
        out: Annotated[Path, typer.Option(help="directory in which the run directories are made")] = Path("runs"),
        seed: Seed = None, sets: Sets = None, plugin: Plugins = None,
        quiet: Annotated[bool, typer.Option("--quiet", help="no progress line")] = False,
        ) -> None:
    """Run every scheme of a scenario over the same network, and compare them."""
    from emul import engine
    from emul import scenario as scenarios
    from emul.record.progress import table

    plan = scenarios.load(scenario, sets=sets or (), seed=seed, plugins=plugin or ())
    results = engine.run(plan, scheme=scheme, workers=workers, out=out, plugins=plugin or (), quiet=quiet)
    for warning in sorted({w for r in results for w in r.warnings}):
        print(f"warning: {warning}", file=sys.stderr)
    summaries = [r.summary for r in results if r.summary is not None]
    if summaries:
        print(table(summaries))
    for result in results:
        if result.directory is not None:
            print(f"{result.scheme}: {result.directory}")
        if result.error is not None:
            print(f"{result.scheme} failed: {result.error}", file=sys.stderr)
        for violation in result.violations:
            print(f"{result.scheme}: invariant violated: {violation}", file=sys.stderr)
    if any(r.violations for r in results):
        raise typer.Exit(VIOLATED)
    if any(r.error is not None for r in results):
        raise typer.Exit(FAILED)


@app.command()
def check(scenario: ScenarioFile, sets: Sets = None, seed: Seed = None, plugin: Plugins = None) -> None:
    """Check a scenario file and everything it names, without running it."""
    from emul import engine
    from emul import scenario as scenarios

    plan = scenarios.load(scenario, sets=sets or (), seed=seed, plugins=plugin or ())
    warnings: set[str] = set()
    for name, raw in plan.schemes:
        warnings |= set(engine.wire(plan, name, raw, plugins=plugin or ()).warnings)
    for warning in sorted(warnings):
        print(f"warning: {warning}")
    names = ", ".join(name for name, _ in plan.schemes)
    print(f"{scenario}: ok; schemes: {names}")


@app.command()
def profile(scenario: ScenarioFile,
            out: Annotated[Path, typer.Option("--out", "-o", help="profile to write (JSON)")],
            sets: Sets = None, seed: Seed = None, plugin: Plugins = None,
            repeat: Annotated[int, typer.Option(min=1, help="runs to measure; the quietest measurements count")] = 3,
            ) -> None:
    """Measure what each computation costs on this machine, for `compute: {mode: profile}`."""
    from emul import engine
    from emul import scenario as scenarios

    plan = scenarios.load(scenario, sets=[*(sets or ()), "compute={mode: measured}"], seed=seed, plugins=plugin or ())
    for key, (a, b) in engine.profile(plan, out, plugins=plugin or (), repeat=repeat).items():
        print(f"{key:40} {a * 1e3:12.4f} ms" + (f" + {b * 1e9:.3f} ns x work" if b else ""))
    print(f"written: {out}")


@app.command()
def replay(directory: Annotated[Path, typer.Argument(metavar="RUN", help="a run directory")],
           workers: WorkerCount = None, plugin: Plugins = None) -> None:
    """Compute a run again from its own directory and compare journal and models."""
    from emul import engine

    digest = engine.replay(directory, workers=workers, plugins=plugin or ())
    print(f"{directory}: identical, digest {digest}")


@app.command(name="schemes")
def list_schemes(plugin: Plugins = None) -> None:
    """List the schemes, ours and installed ones, with their parameters."""
    from emul import schemes
    from emul.scenario.params import scenario_keys

    for name in schemes.known(plugin or ()):
        try:
            module = schemes.find(name, plugin or ())
        except EmulError as e:
            print(f"{name}: {e}")
            continue
        head = (module.__doc__ or "").strip().splitlines()
        print(f"{name}: {head[0] if head else ''}")
        parameters = ", ".join(scenario_keys(module.Params))
        print(f"    roles: {', '.join(module.ROLES)}; parameters: {parameters or 'none'}")


@app.command(name="new-scheme")
def new_scheme(name: Annotated[str, typer.Argument(help="name of the scheme, a Python identifier")],
               directory: Annotated[Path, typer.Option("--dir", help="where to write the files")] = Path(),
               ) -> None:
    """Write a runnable scheme of your own, a scenario for it, and its test."""
    from emul import templates

    for path in templates.write(name, directory):
        print(f"written: {path}")
    # plug-ins are imported from where the user is
    there = "" if directory == Path() else f"cd {directory} && "
    print(f"run it:  {there}emul run {name}.yaml --plugin {name}")


def _about_input(error: EmulError) -> bool:
    """Whether it says that something does not exist, or cannot be used, that the command line names."""
    from emul.record.journal import RecordError
    from emul.templates import TemplateError

    return isinstance(error, (RecordError, TemplateError))


def main() -> None:
    """Entry point of the console script: errors that a user can mend are printed, never their traceback."""
    sys.path.insert(0, "")          # plug-ins lie where the user is
    try:
        code = app(standalone_mode=False)
    except (typer.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except ScenarioError as e:
        print(e, file=sys.stderr)
        sys.exit(BAD_INPUT)
    except EmulError as e:
        print(e, file=sys.stderr)
        sys.exit(BAD_INPUT if _about_input(e) else FAILED)
    except Exception as e:
        if not hasattr(e, "show"):  # else an error of the command line itself
            raise
        e.show()
        sys.exit(BAD_INPUT)
    if code == INTERRUPTED:         # newer versions of typer return it instead of raising
        print("interrupted", file=sys.stderr)
    sys.exit(code or OK)
