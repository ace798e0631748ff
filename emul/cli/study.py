"""`emul sweep`, `compare`, `suite`, `recovery`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from emul.base.errors import Problem, ScenarioError
from emul.base.extras import optional
from emul.base.plain import PlainDict
from emul.cli.flower import ClientApp, FlowerApp, RunConfig, ServerApp, flower_entry
from emul.cli.options import FAILED, VIOLATED, Json, Plugins, ScenarioFile, SetFiles, Sets, app, edits

if TYPE_CHECKING:
    from emul.study.runs import StudyOutcome, Where
    from emul.study.sweep import Shard


Seeds = Annotated[str | None, typer.Option(metavar="SEEDS", help="0:5 is 0..4; or 1,2,7 [default: the scenario's]")]
Schemes = Annotated[str | None, typer.Option(metavar="A,B", help=(
    "only these schemes, by label or name [default: all of the scenario]"))]
Jobs = Annotated[int, typer.Option(min=1, help="runs beside each other, each in a process with its own workers")]
WorkersEach = Annotated[int | None, typer.Option("--workers", min=0, help=(
    "worker processes of each run; 0: none [default: the cores, divided by the jobs; 1 with Ray]"))]
Placing = Annotated[str, typer.Option("--engine", metavar="local|ray", help=(
    "where runs are placed: processes of this machine, or tasks of a Ray cluster (needs emul[ray])"))]
Quiet = Annotated[bool, typer.Option("--quiet", help="no progress")]


@app.command()
def sweep(scenario: ScenarioFile,
          grid: Annotated[list[str] | None, typer.Option(metavar="PATH=V1,V2", help=(
              'values of one path, e.g. "links[1].outage.p=0.1,0.3"; may be repeated: every combination is run'
              " [default: the scenario's section sweep]"))] = None,
          seeds: Seeds = None, schemes: Schemes = None, jobs: Jobs = 1, workers: WorkersEach = None,
          engine: Placing = "local",
          out: Annotated[Path | None, typer.Option(help="directory of the study [default: runs/NAME-sweep]")] = None,
          done: Annotated[Path | None, typer.Option(metavar="CSV", dir_okay=False, help=(
              "cells with a row in this table are not run; each that ends gets one"))] = None,
          shard: Annotated[str | None, typer.Option(metavar="K/N", help=(
              "run part K of N alone, such as one task of an array job; --collect puts them together"))] = None,
          collect: Annotated[list[Path] | None, typer.Option(metavar="STUDY", file_okay=False, help=(
              "take the finished runs of that directory of a sweep, and run nothing; may be repeated"))] = None,
          sets: Sets = None, set_file: SetFiles = None, plugin: Plugins = None,
          quiet: Quiet = False, as_json: Json = False) -> None:
    """Run a scenario for every combination of values, seeds and schemes. Started again, it runs what is missing."""
    from emul.record.marks import MARK, NOTE
    from emul.study.cells import parse_grid
    from emul.study.sweep import sweep as run_sweep

    where = where_of(engine, jobs, workers, plugin, quiet)
    study = run_sweep(scenario, where, grid=parse_grid(grid) if grid else None, seeds=seeds_of(seeds),
                      schemes=names_of(schemes), sets=edits(sets, set_file), out=out, done=done,
                      shard=shard_of(shard), collected=collect or ())
    if as_json:
        print(json.dumps({"kind": "sweep", **document_of(study)}, indent=2))
    else:
        print(f"{len(study.runs)} runs" + (f", {study.found} of them there before" if study.found else "")
              + (f", {study.known} more known from {done}" if study.known else "")
              + f": {study.path}{known_share(study)}")
        if study.knowing:
            print(f"{', '.join(label + MARK for label in study.knowing)}: {NOTE}")
    end_study(study)


@app.command()
def compare(scenario: Annotated[list[Path], typer.Argument(metavar="SCENARIO|RUN...", help=(
                "scenario file (YAML), or the run directories of two loops or more"))],
            schemes: Schemes = None, seeds: Seeds = None,
            target: Annotated[float | None, typer.Option(min=0, max=1, help=(
                "accuracy to reach [default: stop.accuracy, else 95 % of the lowest final accuracy]"))] = None,
            jobs: Jobs = 1, workers: WorkersEach = None, engine: Placing = "local",
            out: Annotated[Path | None, typer.Option(help=(
                "directory of the study [default: runs/NAME-compare]"))] = None,
            report: Annotated[bool, typer.Option("--report/--no-report", help="write the report")] = True,
            sets: Sets = None, set_file: SetFiles = None, plugin: Plugins = None,
            quiet: Quiet = False, as_json: Json = False) -> None:
    """Run every scheme of a scenario on the same realisations, and say what differs (or of runs), with intervals."""
    from emul.study import text
    from emul.study.compare import compare as run_compare
    from emul.study.compare import compare_runs
    from emul.study.comparison import document

    require(report)
    if len(scenario) > 1 or scenario[0].is_dir():
        found = compare_runs(scenario, target, out)
    else:
        found = run_compare(scenario[0], where_of(engine, jobs, workers, plugin, quiet), schemes=names_of(schemes),
                            seeds=seeds_of(seeds), target=target, sets=edits(sets, set_file), out=out)
    written = None
    if report and found.study.runs:
        written = write_report(found.study.path, quiet)
    if as_json:
        print(json.dumps({"kind": "compare", **document_of(found.study), **document(found),
                          "report": None if written is None else str(written)}, indent=2))
    else:
        print(text.comparison(found))
        print(f"\n{found.study.path}" + ("" if written is None else f"\n{written}"))
    end_study(found.study)


def require(report: bool) -> None:
    """The tables that a comparison needs once all has been run. Raises MissingExtra, before anything is."""
    with optional("confidence intervals need", "stats"):
        import scipy.stats  # noqa: F401
    if report:
        with optional("a report (else give --no-report) needs", "report"):
            import altair  # noqa: F401
            import vl_convert  # noqa: F401


def known_share(study: StudyOutcome) -> str:
    """A line that says how many trainings were reused from another cell."""
    return "" if study.from_store is None else (
        f"; {study.from_store:.0%} of trainings and evaluations were taken from the study's store")


def write_report(study: Path, quiet: bool) -> Path:
    """Write the page of a study; on stderr the steps, if that takes long and is not to be quiet."""
    from emul.record.progress import StepProgress
    from emul.report import write

    if quiet:
        return write(study)
    with StepProgress() as steps:
        return write(study, tell=steps.tell)


def where_of(engine: str, jobs: int, workers: int | None, plugin: Sequence[str] | None, quiet: bool) -> Where:
    """The place of the runs: engine, processes, workers of each. Warns if they would want more cores than there are."""
    from emul.study.runs import crowded, placed

    if engine not in ("local", "ray"):
        raise ScenarioError("command line", [Problem("--engine", f'"{engine}"', "expected local or ray")])
    if engine == "local" and (warning := crowded(jobs, workers)):
        print(f"warning: {warning}", file=sys.stderr)
    return placed(engine, jobs, workers, plugin or (), quiet)


def seeds_of(text: str | None) -> tuple[int, ...] | None:
    from emul.scenario import parse_seeds

    try:
        return None if text is None else parse_seeds(text)
    except ValueError as e:
        raise ScenarioError("command line", [Problem("--seeds", f'"{text}"', str(e))]) from None


def shard_of(text: str | None) -> Shard | None:
    from emul.study.sweep import shard

    try:
        return None if text is None else shard(text)
    except ValueError as e:
        raise ScenarioError("command line", [Problem("--shard", f'"{text}"', str(e))]) from None


def names_of(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def document_of(study: StudyOutcome) -> PlainDict:
    """The fields that `--json` has for any study."""
    from emul.study.directory import entry
    from emul.study.runs import summary_of

    runs = [{**entry(cell), **{key: summary_of(study.path, cell)[key] for key in (
        "accuracy", "rounds", "rounds_failed", "virtual_seconds", "bytes_total", "digest")}} for cell in study.runs]
    return {"directory": str(study.path), "runs": runs, "found_before": study.found,
            "knowing_fates": study.knowing,
            "failed": [{**entry(f.cell), "error": f.error} for f in study.failed],
            "violated": [{**entry(cell), "invariant": said} for cell, said in study.violated]}


def end_study(study: StudyOutcome) -> None:
    """Name what went wrong, on stderr, and leave with the exit code for it."""
    for warning in study.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    for failure in study.failed:        # a traceback each would bury their names; study.json has them whole
        lines = [line.strip() for line in failure.error.strip().splitlines()] or ["no reason given"]
        print(f"{failure.cell.text} failed: " + " ... ".join(dict.fromkeys([lines[0], lines[-1]])), file=sys.stderr)
    for cell, said in study.violated:
        print(f"{cell.text}: invariant violated: {said}", file=sys.stderr)
    if study.violated:
        raise typer.Exit(VIOLATED)
    if study.failed:
        raise typer.Exit(FAILED)


@app.command()
def suite(schemes: Annotated[str | None, typer.Option(metavar="A,B", help=(
              "labels of the suite's schemes, names of others (every: all that there are), or scenario files, whose "
              "schemes are taken; with --league labels of its entries, or TOML files of further ones [default: all of "
              "the suite or league]"))] = None,
          networks: Annotated[str | None, typer.Option("--networks", "--network", metavar="A,B",
                                                       help="[default: all]")] = None,
          league: Annotated[str | None, typer.Option(metavar="NAME", help=(
              "a league of the suite: its schemes tuned and ranked by its rules; rows go into --done, and what has one "
              "is not run"))] = None,
          moved: Annotated[bool, typer.Option("--moved", help=(
              "with --league: also on each network with each of its assumed numbers halved and doubled, and say where "
              "the first rank changes"))] = False,
          replicate: Annotated[bool, typer.Option("--replicate", help=(
              "with --league: also on other seeds, and say whether the same schemes lead"))] = False,
          task: Annotated[str | None, typer.Option(metavar="NAME|FILE", help=(
              "a task of the suite, or a scenario file: its task, and its stop.accuracy as the target [default: "
              "digits, or the league's]"))] = None,
          seeds: Annotated[str | None, typer.Option(metavar="SEEDS", help=(
              "0:5 is 0..4; or 1,2,7 [default: 0:3]"))] = None,
          baseline: Annotated[str | None, typer.Option(metavar="SCHEME", help=(
              "what the others are compared with [default: the first scheme]"))] = None,
          target: Annotated[float | None, typer.Option(min=0, max=1, help=(
              "accuracy to reach [default: the task's]"))] = None,
          jobs: Jobs = 1, workers: WorkersEach = None, engine: Placing = "local",
          out: Annotated[Path | None, typer.Option(help="directory of the study [default: runs/suite-TASK]")] = None,
          done: Annotated[Path | None, typer.Option(metavar="CSV", dir_okay=False, help=(
              "cells with a row in this table are not run; each that ends gets one"))] = None,
          shard: Annotated[str | None, typer.Option(metavar="K/N", help=(
              "run part K of N alone, such as one task of an array job; --collect puts them together"))] = None,
          collect: Annotated[list[Path] | None, typer.Option(metavar="STUDY", file_okay=False, help=(
              "take the finished runs of that directory of a suite, and run nothing; may be repeated"))] = None,
          report: Annotated[bool, typer.Option("--report/--no-report", help="write the page")] = True,
          flower: FlowerApp = None, server_app: ServerApp = None, client_app: ClientApp = None,
          run_config: RunConfig = None,
          sets: Sets = None, set_file: SetFiles = None, plugin: Plugins = None,
          quiet: Quiet = False, as_json: Json = False) -> None:
    """Run schemes over the suite's networks: who is best where. Started again, it runs what is missing."""
    from emul.study import suite_text
    from emul.study.suite import suite as run_suite

    unused = {"--moved": moved, "--replicate": replicate} if league is None else {
        "--seeds": seeds, "--baseline": baseline, "--target": target, "--shard": shard, "--collect": collect,
        "--set": sets, "--set-file": set_file, "--flower": flower, "--server": server_app,
        "--client": client_app, "--run-config": run_config, "--json": as_json}
    if wrong := next((name for name, given in unused.items() if given), None):
        raise typer.BadParameter(f"is not used with{'out' if league is None else ''} --league", param_hint=wrong)
    require(report)
    where = where_of(engine, jobs, workers, plugin, quiet)
    if league is not None:
        _league(league, where, task, names_of(networks), names_of(schemes), out, done, report, moved,
                replicate)
        return
    entry = flower_entry(flower, server_app, client_app, run_config)
    found = run_suite(where, schemes=names_of(schemes), more=[] if entry is None else [entry],
                      networks=names_of(networks), task=task or "digits", seeds=seeds_of(seeds), baseline=baseline,
                      target=target, sets=edits(sets, set_file), out=out, done=done,
                      shard=shard_of(shard), collected=collect or ())
    written = None
    if report and found.study.runs:
        written = write_report(found.study.path, quiet)
    if as_json:
        print(json.dumps({"kind": "suite", **document_of(found.study),
                          **suite_text.document(found.results, found.badge),
                          "report": None if written is None else str(written)}, indent=2))
    else:
        print(suite_text.printed(found.results, found.badge))
        known = f", {found.study.known} more known from {done}" if found.study.known else ""
        print(f"\n{len(found.study.runs)} runs{known}: {found.study.path}{known_share(found.study)}"
              + ("" if written is None else f"\n{written}"))
    end_study(found.study)


def _league(name: str, where: Where, task: str | None, networks: Sequence[str], wanted: Sequence[str],
            out: Path | None, done: Path | None, report: bool, moved: bool, replicate: bool) -> None:
    from emul.study import standings
    from emul.study.league_runs import page, run, write_leaderboard
    from emul.study.leagues import League, entries_of

    files = [Path(one) for one in wanted if one.endswith(".toml")]
    league = League.of(name, task, more=files)
    wanted = [*(one for one in wanted if not one.endswith(".toml")),
              *(str(entry.get("label", entry["name"])) for file in files for entry in entries_of(file))]
    asked = networks or (league.networks if moved else ())
    if moved:
        networks = [*asked, *(name for name, (of, _) in league.suite.moved().items() if of in asked)]
    out = out or Path("runs") / f"league-{name}-{league.task}"
    rows = run(league, where, done or out / "rows.csv", out, networks, wanted, replicate)
    print("\n".join([*standings.lines(league, rows, asked), *(
        line for network in (asked if moved else ()) for line in standings.moved_lines(league, rows, network))]))
    write_leaderboard(league, rows, out / "leaderboard.csv")
    print(f"\n{out / 'leaderboard.csv'}")
    if report:
        (out / "league.html").write_text(page(league, rows, asked), encoding="utf-8")
        print(out / "league.html")


@app.command()
def recovery(schemes: Annotated[list[str] | None, typer.Argument(metavar="SCHEME", help=(
                 "[default: all that leave something for an auditor]"))] = None,
             out: Annotated[Path | None, typer.Option(help="a file: also write the matrix there, as HTML")] = None,
             plugin: Plugins = None) -> None:
    """Drop clients out at every stage of secure aggregation, and say whether each sum is right."""
    from emul.study import recovery as study

    plugins = plugin or ()
    names = schemes or study.audited(plugins)
    found = study.matrix(names, plugins, tell=lambda name: print(f"{name} ...", file=sys.stderr))
    print(study.text(found))
    if out is not None:
        out.write_text(study.page(found), encoding="utf-8")
        print(f"\n{out}")
    if study.bad(found):
        raise typer.Exit(FAILED)
