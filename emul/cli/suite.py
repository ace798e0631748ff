"""`emul suite`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from emul.cli.flower import ClientApp, FlowerApp, RunConfig, ServerApp, flower_entry
from emul.cli.options import Json, Plugins, SetFiles, Sets, app, edits
from emul.cli.study import (
    Jobs,
    Placing,
    Quiet,
    WorkersEach,
    document_of,
    end_study,
    known_share,
    names_of,
    require,
    seeds_of,
    shard_of,
    where_of,
    write_report,
)


@app.command()
def suite(schemes: Annotated[str | None, typer.Option(metavar="A,B", help=(
              "labels of the suite's schemes, names of others (every: all that there are), or scenario files, whose "
              "schemes are taken [default: all of the suite]"))] = None,
          networks: Annotated[str | None, typer.Option(metavar="A,B", help="[default: all]")] = None,
          task: Annotated[str, typer.Option(metavar="NAME|FILE", help=(
              "a task of the suite, or a scenario file: its task, and its stop.accuracy as the target"))] = "digits",
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

    require(report)
    where = where_of(engine, jobs, workers, plugin, quiet)
    entry = flower_entry(flower, server_app, client_app, run_config)
    found = run_suite(where, schemes=names_of(schemes), more=[] if entry is None else [entry],
                      networks=names_of(networks), task=task, seeds=seeds_of(seeds), baseline=baseline, target=target,
                      sets=edits(sets, set_file), out=out, done=done, shard=shard_of(shard), collected=collect or ())
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
