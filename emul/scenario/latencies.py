"""`latency` of a link where it is a distribution: its model, the specification it stands for, and back to YAML."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import PlainValidator

from emul.base.units import duration_ns, format_duration
from emul.network.models.latency import AROUND, EmpiricalSpec, JitterSpec, LatencySpec, LatencyTraceSpec, LognormalSpec
from emul.scenario.sections import Section, absolute, duration_text, given, without_none
from emul.scenario.values import Duration, PositiveDuration, Quantity, Text, number, one_of
from emul.scenario.wording import MISSING, Finding

# distribution -> the keys that it needs; all use `min` and `reorder`
_KEYS: dict[str, tuple[str, ...]] = {**{name: ("mean", "jitter") for name in AROUND}, "lognormal": ("median", "sigma"),
                                     "empirical": ("file",), "trace": ("file",)}


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("expected true or false")
    return value


class LatencySection(Section):
    distribution: Annotated[str, one_of(*_KEYS, what="distribution")]
    mean: Duration | None = None
    jitter: Duration | None = None
    median: PositiveDuration | None = None
    sigma: Annotated[float, number("a number above 0, at most 20", lambda x: 0 < x <= 20)] | None = None
    file: Text | None = None
    loop: Annotated[bool, PlainValidator(_flag, json_schema_input_type=bool)] | None = None
    min: Duration | None = None
    reorder: Annotated[bool, PlainValidator(_flag, json_schema_input_type=bool)] | None = None

    def wrong(self) -> list[Finding]:
        """Keys that its distribution needs and has not, or has and does not use."""
        needs = _KEYS[self.distribution]
        found: list[Finding] = [((name,), MISSING, f"is needed by distribution: {self.distribution}")
                                for name in needs if getattr(self, name) is None]
        useless = [name for name in given(self, "mean", "jitter", "median", "sigma", "file") if name not in needs]
        useless += given(self, "reorder") if self.distribution == "trace" else given(self, "loop")
        return found + [((name,), "", f"is not used by distribution: {self.distribution}") for name in useless]


def latency_value(value: object) -> int | LatencySection:
    """A constant in ns, or a distribution."""
    return LatencySection.model_validate(value) if isinstance(value, dict) else duration_ns(value)


AnyLatency = Annotated[LatencySection | int,
                       PlainValidator(latency_value, json_schema_input_type=LatencySection | Quantity)]


def latency_spec(value: int | LatencySection | None, base: Path) -> int | LatencySpec | None:
    """The latency as the network takes it; a file is looked for in `base`."""
    if not isinstance(value, LatencySection):
        return value
    if value.distribution == "trace":
        return LatencyTraceSpec(cast(Path, absolute(value.file, base)), bool(value.loop), value.min or 0)
    common = value.min or 0, bool(value.reorder)
    if value.file is not None:
        return EmpiricalSpec(cast(Path, absolute(value.file, base)), *common)
    if value.median is not None and value.sigma is not None:
        return LognormalSpec(value.median, value.sigma, *common)
    return JitterSpec(cast(Any, value.distribution), value.mean or 0, value.jitter or 0, *common)


def latency_document(spec: int | LatencySpec | None) -> object:
    """A constant as text, a distribution as a mapping; None where nothing is said."""
    if spec is None or isinstance(spec, int):
        return duration_text(spec)
    if isinstance(spec, LatencyTraceSpec):
        return without_none(distribution="trace", file=str(spec.file), loop=spec.loop or None,
                            min=duration_text(spec.min_ns or None))
    if isinstance(spec, EmpiricalSpec):
        said = without_none(distribution="empirical", file=str(spec.file))
    elif isinstance(spec, LognormalSpec):
        said = without_none(distribution="lognormal", median=format_duration(spec.median_ns), sigma=spec.sigma)
    else:
        said = without_none(distribution=spec.distribution, mean=format_duration(spec.mean_ns),
                            jitter=format_duration(spec.jitter_ns))
    return said | without_none(min=duration_text(spec.min_ns or None), reorder=spec.reorder or None)
