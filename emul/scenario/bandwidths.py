"""`bandwidth` of a link where it is a trace: its model, the specification it stands for, and back to YAML."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import PlainValidator

from emul.base.units import format_bandwidth
from emul.network.models.traceformats import FORMATS, GAPS
from emul.network.models.traces import TraceSpec
from emul.scenario.sections import Section, absolute, duration_text, file_digest, without_none
from emul.scenario.values import Positive, Quantity, Stay, Text, bandwidth, one_of


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("expected true or false")
    return value


class BandwidthTrace(Section):
    trace: Text
    format: Annotated[str, one_of(*FORMATS, what="format")] | None = None
    loop: Annotated[bool, PlainValidator(_flag, json_schema_input_type=bool)] | None = None
    period: Stay | None = None
    name: Text | None = None
    take: Annotated[str, one_of("drawn", what="way")] | None = None
    scale: Positive | None = None
    time: Text | None = None
    column: Text | None = None
    gaps: Annotated[str, one_of(*GAPS, what="rule")] | None = None
    sha256: Text | None = None


def bandwidth_value(value: object) -> int | str | BandwidthTrace:
    """A constant in bit/s, "infinite", or a trace."""
    return BandwidthTrace.model_validate(value) if isinstance(value, dict) else bandwidth(value)


AnyBandwidth = Annotated[BandwidthTrace | int | str, PlainValidator(
    bandwidth_value, json_schema_input_type=BandwidthTrace | Quantity | Literal["infinite"])]


def bandwidth_spec(value: int | str | BandwidthTrace | None, base: Path) -> Any:
    """The bandwidth as the network takes it; a file is looked for in `base`."""
    if not isinstance(value, BandwidthTrace):
        return value
    return TraceSpec(cast(Path, absolute(value.trace, base)), value.format, value.loop, value.period, value.name,
                     value.sha256, value.take == "drawn", scale=value.scale or 1.0, time=value.time,
                     column=value.column, gaps=value.gaps)


def bandwidth_document(value: object) -> object:
    """A constant as text, a trace with the digest of its file; read again it is the same."""
    if isinstance(value, TraceSpec):
        return without_none(trace=str(value.file), format=value.format, loop=value.loop,
                            period=duration_text(value.period_ns), name=value.name,
                            take="drawn" if value.drawn else None,
                            scale=None if value.scale == 1 else value.scale, time=value.time, column=value.column,
                            gaps=value.gaps, sha256=file_digest(value.file))
    return format_bandwidth(value) if isinstance(value, int) else value
