"""Latencies that vary from message to message: each a quantile function of one keyed draw, index (round, k).

A constant latency stays a plain integer of ns. A distribution is cut below at `min_ns` (0 by default), and what it
can fall to is `least_ns`: the kernel's lookahead rests on it, so a larger minimum makes a run faster.

A new law is a specification (a frozen dataclass with its checks in `problem`) and a `LatencyLaw`, which `law` makes of
it. `emul.scenario.links` reads it from a file and writes it back: `LatencySection`, `latency_spec`, `latency_document`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import exp, floor
from pathlib import Path
from statistics import NormalDist
from typing import Literal, Protocol, TypeAlias, get_args

from emul.base import tables
from emul.base.errors import Problem, ScenarioError
from emul.base.files import read_text
from emul.base.plain import is_count, is_number
from emul.base.streams import key64, uniform_at
from emul.base.units import LARGEST, format_duration
from emul.network.models.pieces import Pieces, too_short

Around = Literal["uniform", "normal", "pareto", "paretonormal"]
AROUND: tuple[str, ...] = get_args(Around)

_normal = NormalDist().inv_cdf
_HALF_STEP = 2.0**-54           # moves a draw of [0, 1), a multiple of 2^-53, into (0, 1)
_TABLE = 1 / 8192               # netem's tables have 4096 entries, at the middles of their quantiles
_CUT = -_normal(_TABLE)         # so their normal distribution ends at 3.668 standard deviations


@dataclass(frozen=True, slots=True)
class JitterSpec:
    """`mean_ns` and `jitter_ns` as netem takes them: uniform in mean +- jitter; else a table times jitter.

    normal: jitter is the standard deviation. pareto and paretonormal: it is not, theirs are 0.82 and 0.83 of it.
    """

    distribution: Around
    mean_ns: int
    jitter_ns: int
    min_ns: int = 0
    reorder: bool = False


@dataclass(frozen=True, slots=True)
class LognormalSpec:
    """median * exp(sigma * standard normal); the mean is median * exp(sigma^2 / 2)."""

    median_ns: int
    sigma: float
    min_ns: int = 0
    reorder: bool = False


@dataclass(frozen=True, slots=True)
class EmpiricalSpec:
    """Measured latencies from a CSV file: a column of them, or a table of quantiles, `quantile,latency_ms`."""

    file: Path
    min_ns: int = 0
    reorder: bool = False


@dataclass(frozen=True, slots=True)
class LatencyTraceSpec:
    """Latencies over time from a CSV file: columns of times and latencies. loop: it begins anew at its last row."""

    file: Path
    loop: bool = False
    min_ns: int = 0


LatencySpec: TypeAlias = JitterSpec | LognormalSpec | EmpiricalSpec | LatencyTraceSpec
SPECS = (JitterSpec, LognormalSpec, EmpiricalSpec, LatencyTraceSpec)


class LatencyLaw(Protocol):
    """A distribution in ns: its quantile function, its lower end, median and mean before it is cut at a minimum."""

    def quantile(self, u: float) -> float:
        """The value that a share u, in (0, 1), lies below."""
        ...

    @property
    def least(self) -> float:
        """The lower end in ns; it may be negative, for `Latency` cuts it at a minimum."""
        ...

    @property
    def mean(self) -> float:
        """In ns, before that cut."""
        ...


class Latency:
    """A latency drawn for each message. `reorder`: a later message may overtake an earlier one."""

    __slots__ = ("_key", "_quantile", "least_ns", "mean_ns", "reorder", "typical_ns")

    def __init__(self, law: LatencyLaw, min_ns: int, reorder: bool, key: int):
        self._key = key
        self._quantile = law.quantile
        self.least_ns = max(min_ns, floor(law.least), 0)
        self.typical_ns = max(self.least_ns, round(law.quantile(0.5)))
        self.mean_ns = max(self.least_ns, round(law.mean))      # without the cut, which moves it little or not at all
        self.reorder = reorder

    def draw(self, round: int, k: int) -> int:
        """The latency in ns of the k-th message (from 0) offered in `round`. Pure; at least `least_ns`."""
        ns = int(self._quantile(uniform_at(self._key, (round << 32) | k) + _HALF_STEP) + 0.5)
        return ns if ns > self.least_ns else self.least_ns


class LatencyOverTime:
    """A latency that depends on when a transmission ends, and on no draw."""

    __slots__ = ("_steps", "least_ns", "mean_ns", "typical_ns")

    def __init__(self, steps: Pieces[float]):
        self._steps = steps
        self.least_ns = int(min(steps.values))
        self.mean_ns = round(steps.mean())
        self.typical_ns = int(sorted(steps.values)[(len(steps.values) - 1) // 2])

    def latency_at(self, t_ns: int) -> int:
        """The latency of a transmission that ends at `t_ns`."""
        return int(self._steps.value_at(t_ns))


@dataclass(frozen=True, slots=True)
class UniformLatency:
    """Uniform in mean +- jitter."""

    mean: float
    jitter: float

    def quantile(self, u: float) -> float:
        return self.mean + self.jitter * (2 * u - 1)

    @property
    def least(self) -> float:
        return self.mean - self.jitter


@dataclass(frozen=True, slots=True)
class NetemNormal:
    """Normal, cut at +-3.668 standard deviations, where netem's table ends."""

    mean: float
    deviation: float

    def quantile(self, u: float) -> float:
        """In ns; what is rarer than 1 in 8192 at either end counts as that."""
        return self.mean + self.deviation * _cut_normal(u)

    @property
    def least(self) -> float:
        """mean - 3.668 deviations."""
        return self.mean - self.deviation * _CUT


@dataclass(frozen=True, slots=True)
class NetemPareto:
    """netem's: centre + jitter * min(4, 4/3 (u^(-1/3) - 3/2)), a Pareto law of shape 3, centred and cut at 4 jitter."""

    centre: float
    jitter: float

    def quantile(self, u: float) -> float:
        return self.centre + self.jitter * _pareto(u)

    @property
    def least(self) -> float:
        """At u = 0: 2/3 of the jitter below the centre."""
        return self.centre - self.jitter * 2 / 3

    @property
    def mean(self) -> float:
        """0.033 jitter below the centre, since what lies beyond 4 jitter is cut."""
        return self.centre + self.jitter * _PARETO_MEAN


@dataclass(frozen=True, slots=True)
class ParetoNormal:
    """netem's: a quarter of the normal table and three quarters of the Pareto one, both of the same draw."""

    centre: float
    jitter: float

    def quantile(self, u: float) -> float:
        return self.centre + self.jitter * (0.25 * _cut_normal(u) + 0.75 * _pareto(u))

    @property
    def least(self) -> float:
        """At u = 0, where both tables have their least entries."""
        return self.centre - self.jitter * (0.25 * _CUT + 0.5)

    @property
    def mean(self) -> float:
        """0.025 jitter below the centre: of the Pareto part, for the normal one is symmetric."""
        return self.centre + self.jitter * 0.75 * _PARETO_MEAN


@dataclass(frozen=True, slots=True)
class Lognormal:
    """median * exp(sigma * standard normal), not cut above."""

    median: float
    sigma: float

    def quantile(self, u: float) -> float:
        return self.median * exp(self.sigma * _normal(u))

    @property
    def least(self) -> float:
        return 0.0

    @property
    def mean(self) -> float:
        return self.median * exp(self.sigma**2 / 2)


@dataclass(frozen=True, slots=True)
class Empirical:
    """The values measured, each as often as the others."""

    values: Sequence[int]           # ascending

    def quantile(self, u: float) -> float:
        """The value number floor(u n) of n, from 0: nothing is interpolated."""
        return self.values[int(u * len(self.values))]

    @property
    def least(self) -> float:
        return self.values[0]

    @property
    def mean(self) -> float:
        return sum(self.values) / len(self.values)


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Linear between the quantiles that are given, the first at 0 and the last at 1."""

    shares: Sequence[float]
    values: Sequence[int]

    def quantile(self, u: float) -> float:
        high = next(i for i, share in enumerate(self.shares) if share >= u)
        low = max(0, high - 1)
        if high == low:
            return self.values[low]
        part = (u - self.shares[low]) / (self.shares[high] - self.shares[low])
        return self.values[low] + part * (self.values[high] - self.values[low])

    @property
    def least(self) -> float:
        """The latency of share 0."""
        return self.values[0]

    @property
    def mean(self) -> float:
        """Exact: the integral of the piecewise linear quantile function."""
        points = list(zip(self.shares, self.values, strict=True))
        return sum((q - p) * (a + b) / 2 for (p, a), (q, b) in pairwise(points))


def _cut_normal(u: float) -> float:
    """The normal quantile as netem's table has it, which ends at its outermost entries."""
    return _normal(min(max(u, _TABLE), 1 - _TABLE))


def _pareto(u: float) -> float:
    # a large draw is a large latency, as in the other laws: so two laws on one seed are comonotone
    return min(4.0, 4 / 3 * ((1 - u) ** (-1 / 3) - 1.5))


# the mean of `_pareto`: the share above the cut, at (4.5)^-3, loses what lies beyond 4
_PARETO_MEAN = 4 * 4.5**-3 - 4 / 3 * (1.5 * 4.5**-2 - 1.5 * 4.5**-3)


def law(spec: JitterSpec | LognormalSpec | EmpiricalSpec) -> LatencyLaw:
    """The distribution of a spec. Raises ScenarioError for a file that cannot be read."""
    return _law(spec, tables.stamp(spec.file) if isinstance(spec, EmpiricalSpec) else None)


@lru_cache(maxsize=256)
def _law(spec: JitterSpec | LognormalSpec | EmpiricalSpec, stamp: tuple[int, int] | None) -> LatencyLaw:
    # once for all the links that a rule matches; a file that has changed is read again
    if isinstance(spec, LognormalSpec):
        return Lognormal(spec.median_ns, spec.sigma)
    if isinstance(spec, EmpiricalSpec):
        return read_empirical(spec.file)
    laws: dict[str, type[UniformLatency] | type[NetemNormal] | type[NetemPareto] | type[ParetoNormal]] = {
        "uniform": UniformLatency, "normal": NetemNormal, "pareto": NetemPareto, "paretonormal": ParetoNormal}
    return laws[spec.distribution](spec.mean_ns, spec.jitter_ns)


def latency(spec: int | LatencySpec | None, seed: int, src: str, dst: str) -> int | Latency | LatencyOverTime:
    """The latency of a link: a constant in ns, 0 where nothing is said, a distribution with its stream, or a trace."""
    if spec is None:
        return 0
    if isinstance(spec, int):
        return spec
    if isinstance(spec, LatencyTraceSpec):
        return _over_time(spec, tables.stamp(spec.file))
    return Latency(law(spec), spec.min_ns, spec.reorder, key64(seed, "latency", src, dst))


def least_ns(spec: int | LatencySpec | None) -> int:
    """The least latency that a link of this specification can have."""
    return 0 if spec is None else spec if isinstance(spec, int) else _bounds(spec).least_ns


def typical_ns(spec: int | LatencySpec | None) -> int:
    """The median latency: what routes are chosen by."""
    return 0 if spec is None else spec if isinstance(spec, int) else _bounds(spec).typical_ns


def _bounds(spec: LatencySpec) -> Latency | LatencyOverTime:
    found = latency(spec, 0, "", "")
    assert not isinstance(found, int)
    return found


# --- what a specification may hold ----------------------------------------------------------------------------------

def problem(spec: LatencySpec) -> tuple[str, str, str] | None:
    """(field, found, expected) of the first thing wrong with a spec, None where it is sound. Reads a file of values."""
    found = _durations(min=spec.min_ns)
    if isinstance(spec, JitterSpec):
        if spec.distribution not in AROUND:
            return "distribution", repr(spec.distribution), f"expected one of {', '.join(AROUND)}"
        found = found or _durations(mean=spec.mean_ns, jitter=spec.jitter_ns)
    elif isinstance(spec, LognormalSpec):
        found = found or _durations(median=spec.median_ns)
        if found is None and not (is_number(spec.sigma) and 0 < spec.sigma <= _SIGMA):
            found = "sigma", repr(spec.sigma), f"expected a number above 0, at most {_SIGMA}"
    if found is None and isinstance(spec, EmpiricalSpec | LatencyTraceSpec):
        try:
            latency(spec, 0, "", "")
        except ScenarioError as error:
            found = ("file", *tables.in_short(error))
    return found


_SIGMA = 20         # of a lognormal law: beyond it draws leave what 64 bits of nanoseconds hold


def _durations(**values: object) -> tuple[str, str, str] | None:
    for name, value in values.items():
        if not is_count(value, 0) or value > LARGEST:
            return name, repr(value), "expected a duration, 0 or more"
    return None


_PING = re.compile(r"(?:^\[(\d+\.\d+)\] )?.*\btime[=<]([\d.]+) ?ms", re.MULTILINE)


def _pings(file: Path) -> list[tuple[str | None, int]]:
    """(time that `ping -D` has written, half of the round trip in ns) of each answer; none: it is no output of ping."""
    try:
        text = read_text(file)
    except OSError:
        return []                   # told where it is read as a table
    return [(match[1], round(tables.finite(match[2]) * 500_000)) for match in _PING.finditer(text)]


def _halves(found: tables.TextTable) -> list[int | None]:
    """The column `latency`; of a column `rtt`, round trips, half of each."""
    if found.find("latency"):
        return found.durations("latency")
    return [None if ns is None else round(ns / 2) for ns in found.durations("rtt")]


def read_empirical(file: Path) -> Empirical | Quantiles:
    """The law of a CSV file with a column `latency` (with its unit), or `quantile` and `latency`; or of ping's output.

    A column `rtt` and ping have round trips: half of each counts. Quantiles ascend from 0 to 1, and their latencies do
    not fall. Raises ScenarioError with line and column.
    """
    if pings := _pings(file):
        return Empirical(sorted(ns for _, ns in pings))
    found = tables.read(file, ("latency=ms",), ("quantile", "latency=ms"), ("rtt=ms",), ("quantile", "rtt=ms"))
    values = _halves(found)
    if found.find("quantile") is None:
        found.check()
        return Empirical(sorted(v for v in values if v is not None))
    shares = found.shares("quantile")
    tables.ascending(found, "quantile", shares)
    if shares[-1] is not None and shares[-1] != 1:
        found.problem(found.rows[-1][0], "quantile", str(shares[-1]), "expected 1 in the last row")
    for (line, _), before, value in zip(found.rows[1:], values, values[1:], strict=False):
        if value is not None and before is not None and value < before:
            found.problem(line, "latency", str(value), "expected no less than in the row before")
    found.check()
    return Quantiles([s for s in shares if s is not None], [v for v in values if v is not None])


@lru_cache(maxsize=256)
def _over_time(spec: LatencyTraceSpec, stamp: tuple[int, int] | None) -> LatencyOverTime:
    """A row holds until the next one; the first counts as 0. Raises ScenarioError with line and column."""
    if pings := _pings(spec.file):
        if any(time is None for time, _ in pings):
            raise ScenarioError(str(spec.file), [Problem("", "no times", "expected what ping -D prints, or CSV")])
        times: list[int | None] = [round(tables.finite(time or "0") * 10**9) for time, _ in pings]
        values: list[int | None] = [ns for _, ns in pings]
        found = tables.TextTable(spec.file, ["t"], [(i, [str(time)]) for i, (time, _) in enumerate(pings, 1)])
    else:
        found = tables.read(spec.file, ("t=s", "latency=ms"), ("t=s", "rtt=ms"))
        times, values = found.durations("t"), _halves(found)
    tables.ascending(found, "t", times, least=times[0] or 0)
    if spec.loop and len(times) < 2:
        found.problem(None, "", "1 row", "expected two or more: with loop the last row says where it ends")
    found.check()
    known = [(t, float(max(ns, spec.min_ns))) for t, ns in zip(times, values, strict=True)
             if t is not None and ns is not None]
    starts, levels = [t - known[0][0] for t, _ in known], [ns for _, ns in known]
    if spec.loop and (expected := too_short(starts[-1], len(starts) - 1)):
        found.problem(None, "", format_duration(starts[-1]), f"{expected}: with loop it ends there")
        found.check()
    return LatencyOverTime(Pieces(starts[:-1], levels[:-1], starts[-1]) if spec.loop else
                           Pieces(starts, levels))
