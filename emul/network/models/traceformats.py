"""Formats of traces of bandwidth: what their texts say, and how they are written.

CSV with a column of times and one of bandwidths, whose units stand in the header or in the values; SimGrid's profiles,
`t value` in BYTES a second; Mahimahi's traces, a line for each chance to send a packet (`profiles.opportunities`); and,
to be read only, logs of measurements. A trace begins with its first row, whatever time that has.
"""

from __future__ import annotations

import difflib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fractions import Fraction
from itertools import islice, pairwise
from operator import lt
from pathlib import Path

from emul.base import tables, units
from emul.base.errors import Problem, ScenarioError
from emul.network.models.profiles import OPPORTUNITY_BYTES, WORK_PER_BYTE, PiecewiseConstant, bins, opportunities

WRITTEN = ("csv", "mahimahi", "simgrid")                        # and read
FORMATS = (*WRITTEN, "plain", "bytelog", "iperf")

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


@dataclass(frozen=True, slots=True)
class TraceColumns:
    """The choice that a scenario makes of a file's columns; None: it makes none.

    name: which trace of a CSV file with several. time, column: those of the times and of the rates, with their units
    where the header does not say them ("DL_bitrate [kbit/s]"). gaps: what holds where there is no rate, "hold": the one
    before, "off": 0.
    """

    name: str | None = None
    time: str | None = None
    column: str | None = None
    gaps: str | None = None


GAPS = ("hold", "off")


def parse_trace(text: str, file: str, format: str, columns: TraceColumns | None = None) -> Trace:
    """The trace in a text in one of FORMATS; `file` heads the errors. Raises ScenarioError with the lines."""
    found: list[Problem] = []
    try:
        trace = _PARSERS[format](text, columns or TraceColumns(), found)
    except tables.NoTable as error:
        found.append(error.problem)
        trace = None
    except ScenarioError as error:          # of the table, which does not know the file
        raise ScenarioError(file, few(error.problems)) from None
    if found or trace is None:
        raise ScenarioError(file, few(found))
    return trace


def few(found: list[Problem]) -> list[Problem]:
    """At most 20 problems, and how many more there are: a file may have one in each of its lines."""
    more = len(found) - _MOST_PROBLEMS
    return [*found[:_MOST_PROBLEMS], Problem("", "", f"and {more} more")] if more > 0 else found


def _mahimahi(text: str, columns: TraceColumns, found: list[Problem]) -> Trace | None:
    stamps: list[int] = []
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line[0] == "#":
            continue
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


def _simgrid(text: str, columns: TraceColumns, found: list[Problem]) -> Trace | None:
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
_DATE = re.compile(r"(\d{4})[-./](\d\d?)[-./](\d\d?)[T _](\d\d?)[:.](\d\d)(?:[:.](\d\d)([.,]\d{1,9})?)?"
                   r"(?: ?(Z|UTC|[+-]\d\d:?\d\d))?", re.ASCII)
_TIME_NAMES = ("t", "time", "timestamp", "seconds")
_RATE_NAMES = ("bandwidth", "capacity", "bw", "datarate", "data_rate", "rate", "throughput", "bitrate", "goodput")
_NAME_NAMES = ("trace", "name")
_EPOCHS = ((10**9, 10**9), (10**12, 10**6), (10**15, 10**3), (10**18, 1))     # (a time of 2001, ns in its unit)
_S = 10**9


def _csv(text: str, columns: TraceColumns, found: list[Problem]) -> Trace | None:
    table = tables.parse(text, Path())
    if not table.rows:
        found.append(Problem("", "no row" if table.header else "an empty file",
                             'expected a header such as "t_s,bandwidth_mbps" and at least one row below it'))
        return None
    if all(re.fullmatch(_NUMBER, cell) for cell in table.header):
        found.append(Problem("header", shown(",".join(table.header)), 'expected a header such as "t_s,bandwidth_mbps", '
                             "or format: plain for two columns of seconds and Mbit/s", table.header_line))
        return None
    name_column = next((one for one in table.header if one.lower() in _NAME_NAMES), None)
    if name_column is not None:
        at = table.header.index(name_column)
        there = dict.fromkeys(table.cells(at))
        table.rows = [(line, cells) for line, cells in table.rows if cells[at] == columns.name]
        if not table.rows:
            some = ", ".join(shown(known) for known in list(there)[:8]) + (", ..." if len(there) > 8 else "")
            found.append(Problem("name", "missing" if columns.name is None else shown(columns.name),
                                 f"expected the name of a trace in the file: {some}"))
            return None
    elif columns.name is not None:
        found.append(Problem("name", shown(columns.name), 'the file has no column "trace"'))
        return None
    time = _chosen(table, columns.time, "time", _TIME_NAMES, units.duration_unit)
    rate = _chosen(table, columns.column, "column", _RATE_NAMES, units.bandwidth_unit)
    times = table.column(time[0], _instants(table, *time))
    rates = table.column(rate[0], _rate_of(table, *rate, columns.gaps))
    known = [t for t in times if t is not None]
    if not all(map(lt, known, islice(known, 1, None))):
        lines = [line for (line, _), t in zip(table.rows, times, strict=True) if t is not None]
        for line, (before, t) in zip(lines[1:], pairwise(known), strict=True):
            if t <= before:
                table.problem(line, time[0], f"{(t - known[0]) / _S:.12g} s after the first", (
                    "expected each time only once" if t == before else "expected times that ascend"))
    table.check()
    begins, kept = known, [rate for rate in rates if rate is not None]       # of each row: else there is a problem
    if min(kept) < 0:
        pairs = _without_gaps(list(zip(begins, kept, strict=True)), columns.gaps)
        if not pairs:
            found.append(Problem(rate[0], "no value", "expected a rate in at least one row"))
            return None
        begins, kept = [t for t, _ in pairs], [r for _, r in pairs]
    begin = begins[0]
    # the last row says when the trace ends, also where it has no rate of its own
    return Trace(tuple([t - begin for t in begins] if begin else begins), tuple(kept), known[-1] - begin)


def _without_gaps(rows: list[tuple[int, int]], gaps: str | None) -> list[tuple[int, int]]:
    """The rows with a rate for each; those without one (-1) are left out, or 0, as `gaps` says."""
    return [(t, 0) if rate < 0 else (t, rate) for t, rate in rows if rate >= 0 or gaps == "off"]


def _chosen(table: tables.TextTable, said: str | None, key: str, words: tuple[str, ...],
            unit_of: Callable[[str], Fraction | None]) -> tuple[str, Fraction | None]:
    """(column, ns or bit/s in one of its unit; None: units in the values): the one that is said, else the only one that
    it can be. Raises ScenarioError."""
    header = [one for one in table.header if one]
    if said is not None:
        word, unit = (said, tables.title(said)[1]) if said in header else tables.title(said)
        place = word if word in header else next((one for one in header if one.lower().replace(" ", "_") == word), None)
        place = place or table.find(word)
        if place is None:
            near = difflib.get_close_matches(said, header, 1)
            hint = f'; did you mean "{near[0]}"?' if near else f", one of {', '.join(header)[:200]}"
            raise ScenarioError("", [Problem(key, shown(said), f"expected the name of a column{hint}")])
        unit = unit or tables.title(place)[1]
    else:
        measured = [one for one in header if (own := tables.title(one)[1]) is not None and unit_of(own) is not None]
        named = [one for one in header if tables.title(one)[0] in words]
        can = named or measured if key == "time" else list(dict.fromkeys([*named, *measured]))
        plainly = [one for one in can if tables.title(one)[0] == "bandwidth"]
        can = plainly if len(plainly) == 1 else can
        parse: Callable[[object], int] = units.duration_ns if key == "time" else units.bandwidth_bps
        for one in header if not can else ():           # a name and something that is no unit
            word, _, unit = one.rpartition("_")
            if word.lower() in words:
                try:
                    parse(f"1 {unit}")
                except ValueError as error:
                    raise ScenarioError("", [Problem("header", shown(one), str(error), table.header_line)]) from None
        if len(can) != 1:
            expected = (f"expected one column of {'times' if key == 'time' else 'rates'}: say which with "
                        f'{key}: "{can[0]}"' if can else 'expected a column t and a column bandwidth, as in '
                        f'"t_s,bandwidth_mbps"; or say which with {key}, such as {key}: "'
                        + ('Timestamp [s]"' if key == "time" else 'DL_bitrate [kbit/s]"'))
            raise ScenarioError("", [Problem("header", shown(", ".join(can or header)), expected, table.header_line)])
        place, unit = can[0], tables.title(can[0])[1]
    factor = None if unit is None else unit_of(unit)
    if unit is not None and factor is None:
        some = "s or ms" if key == "time" else "Mbit/s, mbps or kB/s"
        raise ScenarioError("", [Problem(place, shown(unit), f"expected a unit such as {some}", table.header_line)])
    return place, factor


def _first_bare(table: tables.TextTable, column: str) -> str | None:
    """The first cell of a column that is a plain number, but 0, which needs no unit."""
    at = table.header.index(column)
    return next((cells[at] for _, cells in table.rows if re.fullmatch(_NUMBER, cells[at]) and float(cells[at])), None)


def _instants(table: tables.TextTable, column: str, unit: Fraction | None) -> Callable[[str], int]:
    """A function that reads a column of times in ns: of its unit, dates, or, without a unit, times of the Unix epoch.
    Raises ScenarioError where there is no unit."""
    first = _first_bare(table, column)
    if unit is None and first is not None:
        unit = next((Fraction(ns) for least, ns in _EPOCHS if least <= float(first) < 5 * least), None)
        if unit is None:
            raise ScenarioError("", [Problem(column, shown(first), (
                f'expected a unit: {column}_s or {column}_ms in the header, "20 ms" in the values, or '
                f'time: "{column} [s]"'), table.header_line)])

    if unit is not None:
        return tables.durations_in(unit)

    def read(text: str) -> int:
        date = date_ns(text)
        return tables.duration(text, None) if date is None else date
    return read


def date_ns(text: str) -> int | None:
    """ns from 1970 to a date, in UTC unless it says its zone; None where the text is none. Raises ValueError: there is
    no such day or time of day.

    >>> date_ns("1970-01-01T01:00:02.5+01:00"), date_ns("1970.01.01 00:01"), date_ns("70 s")
    (2500000000, 60000000000, None)
    """
    match = _DATE.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    zone = match[8] if match[8] and match[8][0] in "+-" else "+0000"
    shift = int(zone[1:3]) * 3600 + int(zone[-2:]) * 60
    whole = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    past = int((match[7] or ".0")[1:].ljust(9, "0"))
    return (round(whole.timestamp()) - (shift if zone[0] == "+" else -shift)) * _S + past


def _rate_of(table: tables.TextTable, column: str, unit: Fraction | None, gaps: str | None) -> Callable[[str], int]:
    """A function that reads a column of rates in bit/s; -1 stands for none. Raises ScenarioError where there is no
    unit."""
    first = _first_bare(table, column)
    if unit is None and first is not None:
        raise ScenarioError("", [Problem(column, shown(first), (
            f'expected a unit: {column}_mbps in the header, "5 Mbit/s" in the values, or column: "{column} [Mbit/s]"'),
            table.header_line)])

    measured = tables.rates_in(unit)

    def read(text: str) -> int:
        if text[:1].isdigit() or not tables.missing(text):
            return measured(text)
        if gaps is None:
            raise ValueError("expected a rate; gaps: hold goes on with the one before, gaps: off is 0")
        return -1
    return read


def names_in(text: str) -> list[str | None]:
    """The names in the column `trace` of a CSV text, each once, in their order; [None] without such a column."""
    try:
        table = tables.parse(text, Path())
    except ScenarioError:
        return [None]
    place = next((i for i, cell in enumerate(table.header) if cell.lower() in _NAME_NAMES), None)
    return [None] if place is None else list(dict.fromkeys(cells[place] for _, cells in table.rows))


# --- other programs' logs -------------------------------------------------------------------------------------------

@dataclass(frozen=True, slots=True)
class _Measured:
    """A rate that was measured from begin to end."""

    line: int | None
    begin_ns: int
    end_ns: int
    bps: int


def _plain(text: str, columns: TraceColumns, found: list[Problem]) -> Trace | None:
    """Two columns without a header, seconds and Mbit/s: Pensieve's "cooked" traces. A rate holds from its time on."""
    rows: list[tuple[int, int]] = []
    seconds, megabits = tables.durations_in(Fraction(_S)), tables.rates_in(Fraction(10**6))
    for line, cells in tables.records(text, blanks=True):
        if len(cells) != 2:
            found.append(Problem("", f"{len(cells)} values", "expected two, seconds and Mbit/s", line))
            continue
        try:
            time = seconds(cells[0])
            rate = -1 if tables.missing(cells[1]) and columns.gaps else megabits(cells[1])
        except ValueError as error:
            found.append(Problem("", shown(" ".join(cells)), str(error), line))
            continue
        if rows and time <= rows[-1][0]:
            found.append(Problem("", shown(cells[0]), "expected times that ascend", line))
        rows.append((time, rate))
    kept = _without_gaps(rows, columns.gaps)
    if not kept and not found:
        found.append(Problem("", "no row", "expected two columns, seconds and Mbit/s"))
    if found:
        return None
    return Trace(tuple(t - kept[0][0] for t, _ in kept), tuple(r for _, r in kept), rows[-1][0] - kept[0][0])


def _bytelog(text: str, columns: TraceColumns, found: list[Problem]) -> Trace | None:
    """Six columns without a header, as in the logs of 3G in Norway (Riiser et al., MMSys 2013) and of 4G in Ghent (van
    der Hooft et al., 2016): time of day, ms since the start, latitude, longitude, bytes and ms since the last row.
    """
    pieces = []
    for line, cells in tables.records(text, blanks=True):
        try:
            if len(cells) != 6:
                raise ValueError("expected six: time, ms, latitude, longitude, bytes, ms since the last row")
            end, size, took = (tables.finite(cells[i]) for i in (1, 4, 5))
            if size < 0 or took <= 0 or max(end, size) > units.LARGEST / _MS:
                raise ValueError("expected bytes of 0 or more, in more than 0 ms")
        except ValueError as error:
            found.append(Problem("", shown(" ".join(cells)), str(error), line))
            continue
        pieces.append(_Measured(line, round((end - took) * _MS), round(end * _MS), round(size * 8000 / took)))
    return None if found else _joined(pieces, columns.gaps, found)


_INTERVAL = re.compile(r"\[ *(SUM|\d+)\]\s*([\d.]+)\s*-\s*([\d.]+)\s+sec\s+[\d.]+ ?\w+\s+([\d.]+) ?(\w+/sec)(.*)")


def _iperf(text: str, columns: TraceColumns, found: list[Problem]) -> Trace | None:
    """iperf3's JSON (`intervals[].sum`, those that it has omitted left out), or what iperf writes for people."""
    pieces: list[_Measured] = []
    if text.lstrip()[:1] == "{":
        try:
            content = json.loads(text)
            for one in content["intervals"]:
                each = one["sum"]
                if not each.get("omitted"):
                    begin, end, rate = (float(each[key]) for key in ("start", "end", "bits_per_second"))
                    if not (0 <= begin < end < 1e9 and 0 <= rate < 1e18):
                        raise ValueError(f"{begin} to {end} s, {rate} bit/s")
                    pieces.append(_Measured(None, round(begin * _S), round(end * _S), round(rate)))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            found.append(Problem("intervals", f"{type(error).__name__}: {error}"[:80],
                                 "expected the JSON of iperf3 -J, with intervals[].sum"))
            return None
    else:
        lines = [(number, match) for number, line in enumerate(text.splitlines(), 1)
                 if (match := _INTERVAL.search(line)) is not None and "omitted" not in match[6]]
        who = {match[1] for _, match in lines}
        for number, match in lines:
            # its K, M and G of bytes are powers of 1024, and those of bits of 1000 (units.c of iperf3, Locale.c of 2)
            binary = re.fullmatch(r"([KMGT])Bytes/sec", match[5])
            factor = units.bandwidth_unit(f"{binary[1]}iB/s" if binary else match[5])
            start, stop, speed = (tables.finite(match[i]) for i in (2, 3, 4))
            if match[1] != ("SUM" if "SUM" in who else match[1]) or (pieces and start * _S < pieces[-1].end_ns):
                continue                    # of one stream of several; or what sums up the whole at the end
            if factor is None or len(who - {"SUM"}) > 1 > len(who & {"SUM"}):
                found.append(Problem("", shown(match[0]), "expected rates in bits/sec of one stream, or of [SUM]",
                                     number))
                return None
            pieces.append(_Measured(number, round(start * _S), round(stop * _S), round(speed * factor)))
    return _joined(pieces, columns.gaps, found)


def _joined(pieces: list[_Measured], gaps: str | None, found: list[Problem]) -> Trace | None:
    """Pieces one after the other, the first at 0. A twentieth of a piece between two is no gap: clocks are not so
    exact."""
    if not pieces:
        found.append(Problem("", "no interval", "expected at least one"))
        return None
    times: list[int] = []
    rates: list[int] = []
    first = end = pieces[0].begin_ns
    for one in pieces:
        near = (one.end_ns - one.begin_ns) // 20
        if one.begin_ns < end - near or one.end_ns <= end:
            found.append(Problem("", f"{one.begin_ns / _S:g} s", (
                f"expected intervals one after the other; that before ends at {end / _S:g} s"), one.line))
        elif one.begin_ns > end + near:
            if gaps is None:
                found.append(Problem("", f"no rate from {end / _S:g} s to {one.begin_ns / _S:g} s", (
                    "expected intervals without a gap; gaps: hold goes on with the rate before, gaps: off is 0"),
                    one.line))
            elif gaps == "off":
                times.append(end - first)
                rates.append(0)
            end = one.begin_ns
        times.append(end - first)
        rates.append(one.bps)
        end = max(end, one.end_ns)
    return None if found else Trace(tuple(times), tuple(rates), end - first)


def looks_like(text: str) -> str:
    """The format that a text has by its looks, to be said: two plain columns, for example, may be of several."""
    lines = [line for line in text[:4000].splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if not lines or "\0" in lines[0]:
        return ""
    words = re.split(r"[\s,;]+", lines[0].strip())
    numbers = all(re.fullmatch(_NUMBER, word) for word in words)
    if lines[0].lstrip()[0] in "{[" or _INTERVAL.search(text[:4000]):
        guess = "iperf"
    elif words[0] in ("PERIODICITY", "LOOPAFTER"):
        guess = "simgrid"
    elif numbers:
        guess = {1: "mahimahi", 2: "plain (seconds and Mbit/s) or simgrid (seconds and bytes/s)", 6: "bytelog"}.get(
            len(words), "")
    else:
        guess = "csv" if len(words) > 1 else ""
    return f"; it looks like {guess}" if guess else ""


def shown(text: str) -> str:
    """A cell as an error shows it."""
    clean = "".join(c if c.isprintable() else "\ufffd" for c in text[:41])
    return f'"{clean if len(clean) <= 40 else clean[:37] + "..."}"'


_PARSERS: dict[str, Callable[[str, TraceColumns, list[Problem]], Trace | None]] = {
    "csv": _csv, "mahimahi": _mahimahi, "simgrid": _simgrid, "plain": _plain, "bytelog": _bytelog, "iperf": _iperf}


# --- writing --------------------------------------------------------------------------------------------------------

def formatted(trace: Trace, format: str) -> str:
    """The text of a file in one of WRITTEN.

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
