"""Formats of traces of bandwidth: what their texts say, and how they are written.

CSV with a column of times and one of bandwidths, whose units stand in the header or in the values; SimGrid's profiles,
`t value` in BYTES a second; Mahimahi's traces, a line for each chance to send a packet (`profiles.opportunities`).
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache

from emul.base import units
from emul.base.errors import Problem, ScenarioError
from emul.network.models.profiles import OPPORTUNITY_BYTES, WORK_PER_BYTE, PiecewiseConstant, bins, opportunities

FORMATS = ("csv", "mahimahi", "simgrid")

_MS = 10**6
_MOST_PROBLEMS = 20


@dataclass(frozen=True)
class Trace:
    """The rates in a file: `rates_bps[i]` from `times_ns[i]` on, for `length_ns` in all.

    period_ns: after it, by the format itself, the trace begins anew. stamps_ms: the lines of a Mahimahi trace.
    """

    times_ns: tuple[int, ...]
    rates_bps: tuple[int, ...]
    length_ns: int
    period_ns: int | None = None
    stamps_ms: tuple[int, ...] = field(default=(), repr=False)

    def service(self, loop: bool | None = None, period_ns: int | None = None) -> PiecewiseConstant:
        """loop None: as the file says. A loop without `period_ns` begins anew at the file's, or at its end."""
        if loop is None:
            loop = self.period_ns is not None
        if loop and self.stamps_ms and period_ns is None:
            return opportunities(self.stamps_ms)
        return PiecewiseConstant(self.times_ns, self.rates_bps,
                                 (period_ns or self.period_ns or self.length_ns) if loop else None)

    def from_time(self, start_ns: int) -> Trace:
        """The trace from `start_ns` on, and then its part before that: the same laps, begun elsewhere.

        >>> Trace((0, 4), (5, 7), 10).from_time(6)
        Trace(times_ns=(0, 4, 8), rates_bps=(7, 5, 7), length_ns=10, period_ns=None)
        """
        ends = (*self.times_ns[1:], self.length_ns)
        pieces = [(begin, end, rate) for begin, end, rate in zip(self.times_ns, ends, self.rates_bps, strict=True)
                  if end > begin]
        after = [(max(begin, start_ns) - start_ns, rate) for begin, end, rate in pieces if end > start_ns]
        before = [(begin - start_ns + self.length_ns, rate) for begin, end, rate in pieces if begin < start_ns]
        times, rates = zip(*after, *before, strict=True)
        return Trace(times, rates, self.length_ns, self.period_ns)

    def scaled(self, factor: float) -> Trace:
        """Every rate multiplied by `factor`, rounded to bit/s."""
        return Trace(self.times_ns, tuple(round(rate * factor) for rate in self.rates_bps), self.length_ns,
                     self.period_ns)

    def pieces(self) -> Iterator[tuple[int, int]]:
        """(duration ns, bit/s) of every piece up to the end; of a trace without length, one of a second."""
        for begin, end, rate in zip(self.times_ns, (*self.times_ns[1:], self.length_ns), self.rates_bps, strict=True):
            if end > begin:
                yield end - begin, rate
        if not self.length_ns:
            yield 10**9, self.rates_bps[0]


def parse_trace(text: str, file: str, format: str, name: str | None = None) -> Trace:
    """The trace in a text in one of FORMATS; `file` heads the errors. name: which of a CSV file with several.

    Raises ScenarioError with the lines.
    """
    found: list[Problem] = []
    trace = _PARSERS[format](text, name, found)
    if found or trace is None:
        raise ScenarioError(file, few(found))
    return trace


def few(found: list[Problem]) -> list[Problem]:
    """At most 20 problems, and how many more there are: a file may have one in each of its lines."""
    more = len(found) - _MOST_PROBLEMS
    return [*found[:_MOST_PROBLEMS], Problem("", "", f"and {more} more")] if more > 0 else found


def _mahimahi(text: str, name: str | None, found: list[Problem]) -> Trace | None:
    stamps: list[int] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not (line.isdigit() and line.isascii() and len(line) <= 15):
            found.append(Problem("", shown(line), "expected a whole number of milliseconds", number))
        elif stamps and int(line) < stamps[-1]:
            found.append(Problem("", line, f"expected times that do not descend; the line before has {stamps[-1]}",
                                 number))
        else:
            stamps.append(int(line))
    if not found and (not stamps or stamps[-1] == 0):
        found.append(Problem("", "an empty trace" if not stamps else "0", "expected a last time above 0"))
    if found:
        return None
    counts = Counter(max(stamp, 1) for stamp in stamps)
    length = stamps[-1] * _MS
    times, rates = bins(counts, 1, stamps[-1])
    return Trace(tuple(times), tuple(rates), length, length, tuple(stamps))


def _simgrid(text: str, name: str | None, found: list[Problem]) -> Trace | None:
    """ProfileBuilder of SimGrid 3.32 and later: LOOPAFTER x repeats x seconds after the last time, PERIODICITY p after
    p seconds. Of two values at one time the later counts."""
    points: dict[int, int] = {}
    last = -1
    loop_after: int | None = None
    period: int | None = None
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line[0] in "#%":
            continue
        words = line.split()
        if words[0] in ("LOOPAFTER", "PERIODICITY") and len(words) == 2:
            ns = _whole(words[1], 10**9)
            if ns is None:
                found.append(Problem(words[0], shown(words[1]), "expected a number of seconds, 0 or more", number))
            elif words[0] == "LOOPAFTER":
                loop_after = ns
            else:
                period = ns
            continue
        time = _whole(words[0], 10**9)
        rate = _whole(words[1], 8) if len(words) == 2 else None
        if time is None or rate is None:
            found.append(Problem("", shown(line), 'expected "t value", seconds and bytes a second', number))
        elif time < last:
            found.append(Problem("", shown(words[0]), "expected times that do not descend", number))
        elif last < 0 and time > 0:
            found.append(Problem("", shown(words[0]), "expected the time 0 first: before it SimGrid takes the link's "
                                 "own bandwidth, and here the profile is that", number))
        else:
            points[time] = rate
            last = time
    if not found and not points:
        found.append(Problem("", "no line", 'expected lines "t value", seconds and bytes a second'))
    if not found and loop_after is not None and period is not None:
        found.append(Problem("", "LOOPAFTER and PERIODICITY", "expected one of them"))
    if loop_after is not None:
        period = last + loop_after
    if not found and period is not None and (period < last or period == 0):
        found.append(Problem("PERIODICITY", "", f"expected at least the last time, {last / 1e9:g} s, and more than 0"))
    if found:
        return None
    times = tuple(points)
    return Trace(times, tuple(points.values()), period or times[-1], period)


def _whole(text: str, factor: int) -> int | None:
    """`text`, a number of 0 or more, times `factor`, rounded; None if it is no such number."""
    if not re.fullmatch(_NUMBER, text, re.ASCII) or text[0] == "-":
        return None
    value = round(Fraction(text) * factor)
    return value if value <= units.LARGEST else None


# --- CSV ------------------------------------------------------------------------------------------------------------

_NUMBER = r"[+-]?(?:[0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})(?:[eE][+-]?[0-9]{1,2})?"
_CELL = re.compile(rf"({_NUMBER})\s*(\S.*)?", re.ASCII)
_HEAD = re.compile(r"([a-z]+?)(?:[ _]*[\[(]([^\])]{1,20})[\])]|_([a-z/]{1,20}))?", re.IGNORECASE)
_TIME_NAMES = ("t", "time", "timestamp")
_RATE_NAMES = ("bandwidth", "capacity", "bw", "datarate", "rate", "throughput")
_BITS = {"bps": "bit/s", "kbps": "kbit/s", "mbps": "Mbit/s", "gbps": "Gbit/s"}      # as all headers mean them
_NAME_NAMES = ("trace", "name")


def _csv(text: str, name: str | None, found: list[Problem]) -> Trace | None:
    rows = rows_of(text, found, "t_s,bandwidth_mbps")
    if not rows:
        return None
    columns = _columns(*rows[0], name, found)
    if columns is None:
        return None
    (time_column, time_unit), (rate_column, rate_unit), name_column = columns
    times: list[int] = []
    rates: list[int] = []
    for number, row in rows[1:]:
        if len(row) != len(rows[0][1]):
            found.append(Problem("", f"{len(row)} columns", f"expected {len(rows[0][1])}, as the header has", number))
            continue
        if name_column is not None and row[name_column].strip() != name:
            continue
        time = quantity(row[time_column], time_unit, "t", units.duration_ns, number, found)
        rate = quantity(row[rate_column], rate_unit, "bandwidth", units.bandwidth_bps, number, found)
        if time is None or rate is None:
            continue
        if times and time <= times[-1]:
            found.append(Problem("t", shown(row[time_column]), "expected times that ascend", number))
        elif not times and time:
            found.append(Problem("t", shown(row[time_column]), "expected the first time to be 0", number))
        else:
            times.append(time)
            rates.append(rate)
    if not found and not times:
        if name_column is not None:
            there = dict.fromkeys(row[name_column].strip() for _, row in rows[1:] if len(row) > name_column)
            some = ", ".join(shown(known) for known in list(there)[:8]) + (", ..." if len(there) > 8 else "")
            found.append(Problem("name", "missing" if name is None else shown(name),
                                 f"expected the name of a trace in the file: {some}"))
        else:
            found.append(Problem("", "no row", "expected at least one row below the header"))
    return None if found else Trace(tuple(times), tuple(rates), times[-1])


def names_in(text: str) -> list[str | None]:
    """The names in the column `trace` of a CSV text, each once, in their order; [None] without such a column."""
    rows = rows_of(text, [], "")
    header = rows[0][1] if rows else []
    place = next((i for i, cell in enumerate(header) if cell.strip().lower() in _NAME_NAMES), None)
    if place is None:
        return [None]
    return list(dict.fromkeys(row[place].strip() for _, row in rows[1:] if len(row) > place))


def rows_of(text: str, found: list[Problem], header: str) -> list[tuple[int, list[str]]]:
    """(line, cells) of every row of a CSV text, comments and blank lines left out; none if it is no CSV."""
    rows = []
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        for row in reader:
            if row and (row[0][:1] not in _UNUSUAL or (
                    any(cell.strip() for cell in row) and not row[0].lstrip().startswith("#"))):
                rows.append((reader.line_num, row))
    except csv.Error as error:
        found.append(Problem("", str(error), "is no readable CSV", reader.line_num))
        return []
    if not rows:
        found.append(Problem("", "an empty file", f'expected a header such as "{header}"'))
    return rows


_UNUSUAL = ("", " ", "\t", "#")         # first characters of a first cell whose row may be none

_Column = tuple[int, Fraction | None]       # its index, and base units in one of its unit; None: units in the values


def _columns(line: int, header: list[str], name: str | None, found: list[Problem],
             ) -> tuple[_Column, _Column, int | None] | None:
    time: _Column | None = None
    rate: _Column | None = None
    name_column: int | None = None
    for place, cell in enumerate(header):
        written = cell.strip()
        if written.lower() in _NAME_NAMES:
            name_column = place
            continue
        match = _HEAD.fullmatch(written)
        word, unit = (match[1].lower(), match[2] or match[3]) if match else ("", None)
        if word in _BITS and unit is None:
            word, unit = "bandwidth", word
        parse = units.duration_ns if word in _TIME_NAMES else units.bandwidth_bps if word in _RATE_NAMES else None
        if parse is None:
            continue
        factor = None
        if unit is not None:
            factor = unit_factor(unit.strip(), parse)
            if factor is None:
                some = "s or ms" if word in _TIME_NAMES else "Mbit/s, mbps or kB/s"
                found.append(Problem(f"column {place + 1}", shown(written), f"expected a unit such as {some}", line))
                return None
        if word in _TIME_NAMES:
            time = time or (place, factor)
        else:
            rate = rate or (place, factor)
    if time is None or rate is None:
        found.append(Problem("header", shown(",".join(header)), 'expected a column t and a column bandwidth, as in '
                             '"t_s,bandwidth_mbps" or, with units in the values, "t,bandwidth"', line))
        return None
    if name is not None and name_column is None:
        found.append(Problem("name", shown(name), 'the file has no column "trace"'))
        return None
    return time, rate, name_column


@lru_cache(maxsize=256)
def unit_factor(unit: str, parse: Callable[[object], int]) -> Fraction | None:
    """ns or bit/s, as `parse` counts them, in one `unit`; None where `parse` does not know it."""
    try:
        return Fraction(parse(f"1 {_BITS.get(unit.lower(), unit)}"))
    except ValueError:
        return None


def quantity(cell: str, factor: Fraction | None, column: str, parse: Callable[[object], int], line: int,
              found: list[Problem]) -> int | None:
    """A cell as ns or bit/s, rounded; `factor`: base units in one of its unit, None where the cell has the unit."""
    match = _CELL.fullmatch(cell.strip())
    unit = match[2] if match else None
    if match is not None and (factor is None) == (unit is not None):
        factor = unit_factor(unit, parse) if unit is not None else factor
        if factor is not None:
            value = Fraction(match[1]) * factor
            if 0 <= value <= units.LARGEST:
                return round(value)
    what, example = ("a time", "20 ms") if parse is units.duration_ns else ("a bandwidth", "5 Mbit/s")
    if factor is None:
        what += f' of 0 or more with its unit, such as "{example}"'
    else:
        what += " of 0 or more" + (", without a unit: the header has it" if unit is not None else "")
    found.append(Problem(column, shown(cell), f"expected {what}", line))
    return None


def shown(text: str) -> str:
    """A cell as an error shows it."""
    clean = "".join(c if c.isprintable() else "\ufffd" for c in text[:41])
    return f'"{clean if len(clean) <= 40 else clean[:37] + "..."}"'


_PARSERS: dict[str, Callable[[str, str | None, list[Problem]], Trace | None]] = {
    "csv": _csv, "mahimahi": _mahimahi, "simgrid": _simgrid}


# --- writing --------------------------------------------------------------------------------------------------------

def formatted(trace: Trace, format: str) -> str:
    """The text of a file in one of FORMATS.

    csv and simgrid are exact. A last row of CSV at the trace's end says when it begins anew. A Mahimahi trace has whole
    packets and milliseconds: packet n stands in the millisecond by which n packets have left, their number is the
    trace's rounded, and the last stands at its end.
    """
    rows = list(zip(trace.times_ns, trace.rates_bps, strict=True))
    if format == "csv":
        if trace.length_ns > trace.times_ns[-1]:
            rows.append((trace.length_ns, trace.rates_bps[0]))
        lines = (f"{_seconds(t)},{_decimal(Fraction(rate, 10**6))}\n" for t, rate in rows)
        return "t_s,bandwidth_mbps\n" + "".join(lines)
    if format == "simgrid":
        head = "" if trace.period_ns is None else f"PERIODICITY {_seconds(trace.period_ns)}\n"
        return head + "".join(f"{_seconds(t)} {_decimal(Fraction(rate, 8))}\n" for t, rate in rows)
    return "".join(f"{stamp}\n" for stamp in _stamps(trace))


def _stamps(trace: Trace) -> list[int]:
    service = PiecewiseConstant(trace.times_ns, trace.rates_bps)
    packet = OPPORTUNITY_BYTES * WORK_PER_BYTE
    end = max(1, -(-trace.length_ns // _MS))
    count = max(1, (2 * service.work_at(trace.length_ns) + packet) // (2 * packet))
    return [max(1, -(-service.time_of(n * packet) // _MS)) for n in range(1, count)] + [end]


def _seconds(ns: int) -> str:
    return _decimal(Fraction(ns, 10**9))


def _decimal(value: Fraction) -> str:
    """Exactly: the denominators here divide a power of ten."""
    digits = 0
    while (value * 10**digits).denominator != 1:
        digits += 1
    text = str((value * 10**digits).numerator).rjust(digits + 1, "0")
    return f"{text[:-digits]}.{text[-digits:]}" if digits else text
