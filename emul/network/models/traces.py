"""Traces of bandwidth in files: what a scenario says of one, and what its file holds.

The formats are described in `emul.network.models.traceformats`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from emul.base import units
from emul.base.errors import Problem, ScenarioError
from emul.base.files import read_limited, read_text
from emul.base.streams import key64, uniform_at
from emul.base.tables import in_short, stamp
from emul.network.models.pieces import too_short
from emul.network.models.profiles import Begun, PiecewiseConstant
from emul.network.models.traceformats import FORMATS, GAPS, Trace, TraceColumns, looks_like, names_in, parse_trace

_STARTS = 64            # times at which a drawn trace may begin, equally far apart: links that drew the same share it
_SUFFIXES = {".csv": "csv", ".tsv": "csv", ".up": "mahimahi", ".down": "mahimahi", ".mahimahi": "mahimahi",
             ".simgrid": "simgrid", ".profile": "simgrid", ".json": "iperf"}


@dataclass(frozen=True, slots=True)
class TraceSpec:
    """A bandwidth that a file gives. format None: by the name of the file. loop None: as the file says.

    name: which trace of a CSV file with several. sha256: of the contents as they were, checked where it is given.
    drawn: each link has one of the file's traces, or the one called `name`, from a time of its own on; it then begins
    anew at its end. Both are drawn by the seed and the names of the link's ends (`of`). start_ns: that time. time,
    column, gaps: as in `TraceColumns`.
    """

    file: Path
    format: str | None = None
    loop: bool | None = None
    period_ns: int | None = None
    name: str | None = None
    sha256: str | None = field(default=None, compare=False)
    drawn: bool = False
    start_ns: int = 0
    scale: float = 1.0              # every rate is multiplied by it
    time: str | None = None
    column: str | None = None
    gaps: str | None = None

    def of(self, seed: int, source: str, destination: str) -> TraceSpec:
        """The trace that one link follows. Raises ScenarioError."""
        if not self.drawn:
            return self
        key, names = key64(seed, "trace", source, destination), self.names()
        name = names[int(uniform_at(key, 0) * len(names))]
        length = self._named(name).length_ns
        return self._one(name, int(uniform_at(key, 1) * _STARTS) * length // _STARTS)

    def names(self) -> list[str | None]:
        """The traces that a link may follow; None: the only one that the file has. Raises ScenarioError."""
        return [self.name] if self.name is not None else trace_names(self.file, self.format)

    def _one(self, name: str | None, start_ns: int) -> TraceSpec:
        says_it = (self.format or format_of(self.file)) in ("mahimahi", "simgrid")
        return replace(self, name=name, drawn=False, loop=None if says_it else True, start_ns=start_ns)

    def trace(self) -> Trace:
        """The trace of the file, as it stands there. Raises ScenarioError."""
        return self._named(self.name)

    def _named(self, name: str | None) -> Trace:
        return read_trace(self.file, self.format, columns=TraceColumns(name, self.time, self.column, self.gaps))

    def service(self) -> PiecewiseConstant | Begun:
        """Of a trace that is not `drawn`. Raises ScenarioError."""
        return _service(self, stamp(self.file))

    def __float__(self) -> float:
        """The mean of the rate, bit/s: what estimates take for the bandwidth. Of drawn ones the mean over all."""
        if not self.drawn:
            return self.service().mean_bps
        each = [float(self._one(name, 0)) for name in self.names()]
        return sum(each) / len(each)


@lru_cache(maxsize=1024)                # one for all the links that a rule matches, or that have drawn the same
def _service(spec: TraceSpec, stamp: tuple[int, int] | None) -> PiecewiseConstant | Begun:
    if not spec.start_ns:
        return _pieces(spec, stamp, True)
    return Begun(_pieces(replace(spec, start_ns=0), stamp, False), spec.start_ns)


@lru_cache(maxsize=1024)
def _pieces(spec: TraceSpec, stamp: tuple[int, int] | None, packets: bool) -> PiecewiseConstant:
    """packets: of a Mahimahi trace, as its packets leave; else its rates."""
    trace = spec.trace() if packets else replace(spec.trace(), stamps_ms=())
    return (trace.scaled(spec.scale) if spec.scale != 1 else trace).service(spec.loop, spec.period_ns)


def misplaced(spec: TraceSpec) -> tuple[str, str, str] | None:
    """(field, found, expected) of the first thing that does not fit the format of the file. Reads no trace."""
    kind = spec.format or format_of(spec.file)
    if kind not in FORMATS:
        return ("format", *_no_format(spec.file, kind))
    if spec.drawn and (spec.loop is not None or spec.period_ns is not None):
        return ("loop" if spec.loop is not None else "period", "",
                "is not used with take: drawn, where a trace begins anew at its end")
    if spec.name is not None and kind != "csv":
        return "name", repr(spec.name), "is used only with a CSV file of several traces"
    for key, value in (("time", spec.time), ("column", spec.column)):
        if value is not None and kind != "csv":
            return key, repr(value), "is used only with a CSV file"
    if spec.gaps is not None and spec.gaps not in GAPS:
        return "gaps", repr(spec.gaps), f"expected one of {', '.join(GAPS)}"
    if spec.gaps is not None and kind in ("mahimahi", "simgrid"):
        return "gaps", repr(spec.gaps), "is not used by this format, which has no gaps"
    if kind == "mahimahi" and (spec.loop is False or spec.period_ns is not None):
        return ("loop" if spec.loop is False else "period", "",
                "is not used by a Mahimahi trace: it begins anew at its last timestamp")
    if kind == "simgrid" and (spec.loop is not None or spec.period_ns is not None):
        return ("loop" if spec.loop is not None else "period", "",
                "is not used by a SimGrid profile: its LOOPAFTER or PERIODICITY says it")
    if spec.period_ns is not None and not spec.loop:
        return "period", units.format_duration(spec.period_ns), "is used only with loop: true"
    return None


def problem(spec: TraceSpec) -> tuple[str, str, str] | None:
    """(field, found, expected) of the first thing that keeps a link from following this trace. Reads the file."""
    if (wrong := misplaced(spec)) is not None:
        return wrong
    try:
        if spec.drawn:
            return _drawn_problem(spec)
        trace = spec.trace()
    except ScenarioError as error:
        return ("trace", *in_short(error))
    if spec.period_ns is not None and spec.period_ns < trace.times_ns[-1]:
        return "period", units.format_duration(spec.period_ns), (
            f"expected at least the trace's last time, {units.format_duration(trace.times_ns[-1])}")
    if spec.sha256 is not None and spec.sha256 != digest(spec.file):
        return "sha256", f"{digest(spec.file)[:16]}...", (
            f"expected {spec.sha256[:16]}...: the file is not the one that this scenario was resolved with")
    if not any(trace.rates_bps):
        return "trace", "0 bit/s", "expected a trace that lets something through"
    lap_ns = (spec.period_ns or trace.period_ns or trace.length_ns) if spec.loop or trace.period_ns else None
    if lap_ns is not None and (expected := too_short(lap_ns, len(trace.times_ns), "rates")):
        return "loop", units.format_duration(lap_ns), expected
    return None


def _drawn_problem(spec: TraceSpec) -> tuple[str, str, str] | None:
    """Of traces that are drawn: every one of them must last, and let something through. Raises ScenarioError."""
    for name in spec.names():
        trace = spec._named(name)
        if not trace.length_ns or not any(rate for ns, rate in trace.pieces() if ns):
            return "trace", f"{name or 'the trace'}: {trace.length_ns / 1e9:g} s", (
                "expected traces that last and let something through")
        if expected := too_short(trace.length_ns, len(trace.times_ns), "rates"):
            return "trace", f"{name or 'the trace'}: {units.format_duration(trace.length_ns)}", expected
    if spec.sha256 is not None and spec.sha256 != digest(spec.file):
        return "sha256", f"{digest(spec.file)[:16]}...", (
            f"expected {spec.sha256[:16]}...: the file is not the one that this scenario was resolved with")
    return None


def trace_names(path: Path, format: str | None = None) -> list[str | None]:
    """The traces of a file in the order in which they stand; [None] of one without names. Raises ScenarioError."""
    return list(_names(path, stamp(path))) if (format or format_of(path)) == "csv" else [None]


@lru_cache(maxsize=128)
def _names(path: Path, stamp: tuple[int, int] | None) -> list[str | None]:
    return names_in(text_of(path))


def format_of(path: Path) -> str | None:
    """The format that the name of a file tells, None if it tells none."""
    return _SUFFIXES.get(path.suffix.lower())


def digest(path: Path) -> str:
    """SHA-256 of a file's contents. Raises OSError."""
    return _digest(path, stamp(path))


@lru_cache(maxsize=256)
def _digest(path: Path, stamp: tuple[int, int] | None) -> str:
    return hashlib.sha256(read_limited(path, 2**30)).hexdigest()        # the largest, a contact plan, has 2^29


def _no_format(path: Path, kind: str | None) -> tuple[str, str]:
    """(found, expected) where neither the name of a file nor a word tells its format."""
    try:
        looks = looks_like(read_text(path))
    except OSError as error:
        looks = f"; the file: {error.strerror}"
    return "missing" if kind is None else repr(kind), f"expected one of {', '.join(FORMATS)}{looks}"


def read_trace(path: Path, format: str | None = None, columns: TraceColumns | None = None) -> Trace:
    """The trace in a file. Raises ScenarioError with its lines."""
    kind = format or format_of(path)
    if kind not in FORMATS:
        raise ScenarioError(str(path), [Problem("format", *_no_format(path, kind))])
    return _read(path, kind, columns or TraceColumns(), stamp(path))


@lru_cache(maxsize=512)                 # a rule's trace is asked for by every link that it matches
def _read(path: Path, kind: str, columns: TraceColumns, stamp: tuple[int, int] | None) -> Trace:
    return parse_trace(text_of(path), str(path), kind, columns)


def text_of(path: Path) -> str:
    """The text of a trace's file. Raises ScenarioError."""
    try:
        return read_text(path)
    except OSError as error:
        raise ScenarioError(str(path), [Problem("", error.strerror or "unreadable", "expected a trace")]) from None
