"""`emul trace summary`, `convert`, `generate`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from emul.base.errors import Problem, ScenarioError
from emul.cli.options import Json, app

if TYPE_CHECKING:
    from emul.network.models.traceformats import Trace

trace = typer.Typer(no_args_is_help=True, help="Traces of bandwidth (csv, mahimahi, simgrid) and of availability.")
app.add_typer(trace, name="trace")

TraceFile = Annotated[Path, typer.Argument(metavar="FILE", help="a trace")]
Format = Annotated[str | None, typer.Option("--format", help="csv, mahimahi or simgrid [default: by the file's name]")]
To = Annotated[str | None, typer.Option(help="csv, mahimahi or simgrid; availability for FedScale's JSON "
                                             "[default: by the name of OUT]")]
Out = Annotated[Path, typer.Option("--out", "-o", help="file to write")]
Name = Annotated[str | None, typer.Option(help="which trace of a CSV file that has several")]


@trace.command(name="summary")
def summarise(file: TraceFile, format: Format = None, name: Name = None,
              below: Annotated[list[str] | None, typer.Option(help="a bandwidth; may be repeated")] = None,
              as_json: Json = False) -> None:
    """Tell a trace's length, mean, percentiles, the time that it is off, and the time below some bandwidths."""
    from emul.base.units import bandwidth_bps, format_bandwidth
    from emul.network.models.traces import read_trace
    from emul.network.models.tracetools import PERCENTILES, summary

    try:
        thresholds = [bandwidth_bps(text) for text in below or ()]
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--below") from None
    found = summary(read_trace(file, format, name), thresholds)
    if as_json:
        print(json.dumps(asdict(found), indent=1))
        return
    lines = [("length", f"{found.length_s:g} s in {found.pieces} pieces"),
             ("mean", format_bandwidth(round(found.mean_bps))), ("least", format_bandwidth(found.least_bps))]
    lines += [(f"{p} %", format_bandwidth(rate)) for p, rate in zip(PERCENTILES, found.percentiles_bps, strict=True)]
    lines += [("most", format_bandwidth(found.most_bps)),
              ("off", f"{found.off:.2%} of the time, {found.off_s:g} s on average; on for {found.on_s:g} s")]
    lines += [(f"below {format_bandwidth(t)}", f"{share:.2%} of the time") for t, share in found.below.items()]
    width = max(len(head) for head, _ in lines)
    for head, text in lines:
        print(f"{head:{width}}  {text}")


@trace.command()
def convert(file: TraceFile, out: Out, to: To = None, format: Format = None, name: Name = None,
            step: Annotated[str | None, typer.Option(help="means over so long, such as 100 ms")] = None) -> None:
    """Write a trace in another format, or at a coarser step."""
    from emul.base.units import duration_ns
    from emul.network.models import churn
    from emul.network.models.traces import read_trace, text_of
    from emul.network.models.tracetools import resampled

    if to == "availability":
        try:
            schedules = churn.from_fedscale(text_of(file), str(file))
        except OSError as error:
            raise ScenarioError(str(file), [Problem("", str(error.strerror), "expected a JSON file")]) from None
        _write(out, churn.availability_csv(schedules))
        return
    found = read_trace(file, format, name)
    if step is not None:
        try:
            found = resampled(found, max(1, duration_ns(step)))
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--step") from None
    _write_trace(found, out, to)


@trace.command()
def generate(model: Annotated[str, typer.Argument(help=(
                 "constant, on_off, random_walk, markov, sine, poisson; sessions"))],
             out: Out,
             parameters: Annotated[list[str] | None, typer.Argument(
                 metavar="NAME=VALUE...", help='such as high="20 Mbit/s" down="2 s" length="10 min"')] = None,
             to: To = None, seed: Annotated[int, typer.Option(min=0, help="of the model's draws")] = 0) -> None:
    """Write a trace made by a model, of bandwidth, or by `sessions` of availability. If one is wrong, all parameters
    are told.

    \b
    constant     rate; length=10 min
    on_off       high, up, down; low=0, length=10 min
    random_walk  mean; sigma=0.1, range=4, step=1 s, length=10 min
    markov       rates, hold; length=10 min
    sine         mean, amplitude; period=24 h, step=10 min, length=24 h
    poisson      mean; length=10 min
    sessions     nodes=100, mean=0.25, amplitude=0.7, short=0.7, sigma=1.5, day=24 h, length=24 h

    Before the semicolon is what a model needs, after it what it takes if nothing is said.
    """
    from emul.network.models import churn, sessions, tracetools

    models = {**tracetools.MODELS, "sessions": sessions.PARAMETERS}
    if model not in models:
        raise typer.BadParameter(f'"{model}": expected one of {", ".join(models)}', param_hint="MODEL")
    given: dict[str, str] = {}
    for text in parameters or ():
        key, equals, value = text.partition("=")
        if not equals:
            raise typer.BadParameter(f'"{text}": expected NAME=VALUE with one of {", ".join(models[model])}')
        given[key.strip()] = value.strip()
    try:
        if model == "sessions":
            _write(out, churn.availability_csv(sessions.schedules(given, seed)))
        else:
            _write_trace(tracetools.generate(model, given, seed), out, to)
    except ValueError as error:
        known = "".join(f"\n  {line}" for line in tracetools.explained(model, models))
        raise typer.BadParameter(f"{error}\n{model} has{known}") from None


def _write_trace(made: Trace, out: Path, to: str | None) -> None:
    from emul.network.models.traceformats import FORMATS, formatted
    from emul.network.models.traces import format_of

    kind = to or format_of(out)
    if kind not in FORMATS:
        raise typer.BadParameter(f"{kind or out.name}: expected one of {', '.join(FORMATS)}", param_hint="--to")
    _write(out, formatted(made, kind))


def _write(out: Path, text: str) -> None:
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        problem = Problem("", str(error.strerror), "expected a file that can be written")
        raise ScenarioError(str(out), [problem]) from None
    print(f"written: {out}")
