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
    from emul.network.models.traceformats import Trace, TraceColumns

trace = typer.Typer(no_args_is_help=True, help="Traces of bandwidth and of availability.")
app.add_typer(trace, name="trace")

TraceFile = Annotated[Path, typer.Argument(metavar="FILE", help="a trace")]
Format = Annotated[str | None, typer.Option(
    "--format", help="csv, mahimahi, simgrid, plain, bytelog or iperf [default: by the file's name]")]
To = Annotated[str | None, typer.Option(help="csv, mahimahi or simgrid; availability for FedScale's JSON "
                                             "[default: by the name of OUT]")]
Out = Annotated[Path, typer.Option("--out", "-o", help="file to write")]
Name = Annotated[str | None, typer.Option(help="which trace of a CSV file that has several")]
Time = Annotated[str | None, typer.Option(help='a CSV file\'s column of times, such as "seq [s]"')]
Column = Annotated[str | None, typer.Option(help='its column of rates, such as "DL_bitrate [kbit/s]"')]
Gaps = Annotated[str | None, typer.Option(help="where there is no rate: hold (the one before) or off (0)")]


@trace.command(name="summary")
def summarise(file: TraceFile, format: Format = None, name: Name = None, time: Time = None,
              column: Column = None, gaps: Gaps = None,
              below: Annotated[list[str] | None, typer.Option(help="a bandwidth; may be repeated")] = None,
              as_json: Json = False) -> None:
    """Tell a trace's length, mean, percentiles, the time that it is off, and the time below some bandwidths; of one of
    availability how much of the time its nodes are there, and for how long."""
    from emul.base.units import bandwidth_bps, format_bandwidth
    from emul.network.models.churn import availability_summary, holds_availability, read_availability
    from emul.network.models.traceformats import TraceColumns
    from emul.network.models.traces import text_of
    from emul.network.models.tracetools import PERCENTILES, summary

    try:
        thresholds = [bandwidth_bps(text) for text in below or ()]
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--below") from None
    if format is None and holds_availability(text_of(file)):
        there = availability_summary(read_availability(file))
        _print(json.dumps(asdict(there), indent=1) if as_json else there.lines())
        return
    trace = _read(file, format, TraceColumns(name, time, column, gaps))
    found = summary(trace, thresholds)
    if as_json:
        print(json.dumps(asdict(found), indent=1))
        return
    lines = [("length", f"{found.length_s:g} s in {found.pieces} pieces"),
             ("mean", format_bandwidth(round(found.mean_bps))), ("least", format_bandwidth(found.least_bps))]
    lines += [(f"{p} %", format_bandwidth(rate)) for p, rate in zip(PERCENTILES, found.percentiles_bps, strict=True)]
    lines += [("most", format_bandwidth(found.most_bps)),
              ("off", f"{found.off:.2%} of the time, {found.off_s:g} s on average; on for {found.on_s:g} s")]
    lines += [(f"below {format_bandwidth(t)}", f"{share:.2%} of the time") for t, share in found.below.items()]
    if trace.length_ns and trace.times_ns[-1] == trace.length_ns:
        last = format_bandwidth(trace.rates_bps[-1])
        lines.append(("loop", f"begins anew at {found.length_s:g} s; the last row's {last} holds only without loop, or "
                              "with a longer period"))
    _print(lines)


def _print(lines: str | list[tuple[str, str]]) -> None:
    if isinstance(lines, str):
        print(lines)
        return
    width = max(len(head) for head, _ in lines)
    for head, text in lines:
        print(f"{head:{width}}  {text}")


def _read(file: Path, format: str | None, columns: TraceColumns) -> Trace:
    """The trace, if the options fit the format. Raises BadParameter, ScenarioError."""
    from emul.network.models.traces import TraceSpec, misplaced

    spec = TraceSpec(file, format, name=columns.name, time=columns.time, column=columns.column, gaps=columns.gaps)
    if (wrong := misplaced(spec)) is not None and wrong[0] != "format":
        raise typer.BadParameter(f"{wrong[1]}: {wrong[2]}", param_hint=f"--{wrong[0]}")
    return spec.trace()


@trace.command()
def convert(file: TraceFile, out: Out, to: To = None, format: Format = None, name: Name = None,
            time: Time = None, column: Column = None, gaps: Gaps = None,
            step: Annotated[str | None, typer.Option(help="means over so long, such as 100 ms")] = None) -> None:
    """Write a trace in another format, or at a coarser step."""
    from emul.base.units import duration_ns
    from emul.network.models import churn
    from emul.network.models.traceformats import TraceColumns
    from emul.network.models.tracetools import resampled

    if to == "availability":
        _write(out, churn.availability_csv(churn.read_availability(file)))
        return
    found = _read(file, format, TraceColumns(name, time, column, gaps))
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
    from emul.network.models.traceformats import WRITTEN, formatted
    from emul.network.models.traces import format_of

    kind = to or format_of(out)
    if kind not in WRITTEN:
        raise typer.BadParameter(f"{kind or out.name}: expected one of {', '.join(WRITTEN)}", param_hint="--to")
    _write(out, formatted(made, kind))


def _write(out: Path, text: str) -> None:
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        problem = Problem("", str(error.strerror), "expected a file that can be written")
        raise ScenarioError(str(out), [problem]) from None
    print(f"written: {out}")
