"""`emul resume`, `emul store`."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from emul.cli.options import (
    FAILED,
    Json,
    OnCluster,
    Plugins,
    WorkerCount,
    app,
    expect_workers,
    fail_of,
    placed,
    print_failure,
)

store_app = typer.Typer(no_args_is_help=True, help="Look after a store of trainings.")
app.add_typer(store_app, name="store")

Folder = Annotated[Path | None, typer.Argument(metavar="DIR", help="the store [default: $EMUL_STORE]")]


@app.command()
def resume(runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="run directories that are INCOMPLETE")],
           workers: WorkerCount = None, on: OnCluster = None, plugin: Plugins = None,
           quiet: Annotated[bool, typer.Option("--quiet", help="no progress line")] = False) -> None:
    """Go on with runs that were interrupted or killed, and with the schemes that their commands had not begun."""
    expect_workers(on, workers)
    from emul import engine
    from emul.record.progress import protection, rejections, table

    results = [result for run in runs
               for result in engine.resume(run, workers=placed(on, workers), plugins=plugin, quiet=quiet)]
    summaries = [r.summary for r in results if r.summary is not None]
    if summaries:
        print(table(summaries))
    for result in results:
        print(f"{result.scheme}: {result.directory}")
        for line in [] if result.summary is None else (*protection(result.summary), *rejections(result.summary)):
            print(f"{result.scheme}: {line}")
        print_failure(result)
    fail_of(results)


@store_app.command()
def summary(folder: Folder = None, as_json: Json = False) -> None:
    """Say what a store holds."""
    from emul import store
    from emul.base.units import format_size

    place = _place(folder)
    found = store.summary(place)
    unused_s = None if found.oldest is None else max(0.0, time.time() - found.oldest)       # noqa: TID251
    if as_json:
        print(json.dumps({"store": str(place), "segments": found.segments, "entries": found.entries,
                          "bytes": found.size_bytes, "unused_s": unused_s}))
        return
    print(f"{place}: {found.entries:,} results, {format_size(found.size_bytes)} in {found.segments} segments"
          + ("" if unused_s is None else f"; what goes first was used {unused_s / 3600:.1f} h ago"))


@store_app.command()
def clean(folder: Folder = None,
          limit: Annotated[str, typer.Option(help="keep at most so much; 0 empties the store")] = "0 B") -> None:
    """Remove what was not used for longest."""
    from emul import store
    from emul.base.units import format_size, size_bytes

    try:
        most = size_bytes(limit)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--limit") from None
    done = store.clean(_place(folder), most)
    print(f"{done.removed} segments removed, {format_size(done.freed_bytes)} freed, "
          f"{format_size(done.left_bytes)} left")


@store_app.command()
def verify(folder: Folder = None) -> None:
    """Read every result and check it; what is damaged is never used, and only costs its place."""
    from emul import store

    place = _place(folder)
    damages = list(store.verify(place))
    for damage in damages:
        print(damage, file=sys.stderr)
    print(f"{place}: {store.summary(place).entries:,} results, {len(damages)} damaged places")
    if damages:
        raise typer.Exit(FAILED)


def _place(folder: Path | None) -> Path:
    from emul.engine.keeping import Keeping
    from emul.store import StoreError

    place = Keeping.chosen(folder).store
    if place is None:
        raise StoreError("which store? Name its folder, or set EMUL_STORE")
    return place
