"""Contact plans: the spans of time in which a link transmits, each with a rate and a latency, known beforehand.

A plan is a CSV file with a row for each contact of a link in one direction:

    start_s,end_s,source,destination,rate_mbps,latency_ms
    0,60,satellite,station,10,10
    600,660,satellite,station,10,8.5

A link that the plan names transmits only within its contacts; the plan gives its rate and its latency. The rows of a
link ascend in time. They may touch, and they do not overlap. An end that is empty or `inf` is the end of time.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from emul.base import tables
from emul.base.errors import Problem, ScenarioError
from emul.base.files import read_text
from emul.base.units import LARGEST, bandwidth_unit, duration_unit
from emul.network.models.constellations import ConstellationSpec
from emul.network.models.latency import LatencyOverTime
from emul.network.models.planformats import PlanRow, ion_rows
from emul.network.models.profiles import NEVER, WORK_PER_BYTE
from emul.network.models.traces import digest

COLUMNS = ("start_s", "end_s", "source", "destination", "rate_mbps", "latency_ms")
Gap = Literal["hold", "again", "drop"]
GAPS: tuple[str, ...] = get_args(Gap)
Fate = Gap | Literal["return"]      # of what a contact cuts; "return": as `ContactSpec` says, with routes "earliest"
Routing = Literal["fixed", "earliest"]
ROUTINGS: tuple[str, ...] = get_args(Routing)
PlanFormat = Literal["csv", "ion"]
PLAN_FORMATS: tuple[str, ...] = get_args(PlanFormat)
INFINITE_BPS = 10**18           # stands for an infinite bandwidth that a fault sets within contacts
_ENOUGH = 20            # problems of one file, before reading it further helps nobody
_REMEMBERED = 10_000    # texts of numbers
MOST_BYTES = 512 * 2**20        # of a plan: some 10^7 contacts


@dataclass(frozen=True)
class ContactSpec:
    """The `contacts` of a scenario: those of a file, or of the constellation that is the topology. sha256: of the file
    as it was, checked where it is given. step_ns: of the latencies of a constellation.

    gap "hold": a message that a contact cuts goes on in the next one. "again": it is sent again from its start there.
    "drop": it is lost, as is one whose turn comes outside of contacts. routes "fixed": the shortest by median
    latencies. "earliest": at each vertex the one that is soonest at the target, by the plan (module
    `emul.network.graph.earliest`). There "again" gives back what a contact cuts, and what waits
    behind it, to the vertex where it is, for another way.
    """

    file: Path | None = None
    gap: Gap = "hold"
    sha256: str | None = field(default=None, compare=False)
    routes: Routing = "fixed"
    format: PlanFormat = "csv"
    constellation: ConstellationSpec | None = None
    step_ns: int | None = None


class Contacts:
    """The contacts of one link in one direction: a `VaryingRate`, 0 bit/s outside of the contacts, and the latency.

    Times and latencies in ns, rates in bit/s; all four arrays have one entry for each contact, in the order of time.
    gap: the fate of what a contact cuts, as in `ContactSpec`.
    """

    # These are pieces, too, but no `PiecewiseConstant`: that would need a piece for each gap and three lists of
    # integers, four times the memory of a plan of 10^7 contacts. Searches for routes read the same arrays.

    def __init__(self, begins: array[int], ends: array[int], rates_bps: array[int], latencies_ns: array[int],
                 line: int | None = None, gap: Fate = "hold"):
        self.begins = begins
        self.ends = ends
        self.rates_bps = rates_bps
        self.latencies_ns = latencies_ns
        self.line = line                            # of its first row, in the file
        self.gap: Fate = gap

    def __len__(self) -> int:
        return len(self.begins)

    def at_rate(self, bandwidth_bps: int | float) -> Contacts:
        """The same contacts at one other rate, of whole bit/s and at least one."""
        rates = array("q", [max(1, round(bandwidth_bps))]) * len(self)
        return Contacts(self.begins, self.ends, rates, self.latencies_ns, self.line, self.gap)

    def with_gap(self, gap: Fate) -> Contacts:
        """The same contacts; what they cut has another fate."""
        return Contacts(self.begins, self.ends, self.rates_bps, self.latencies_ns, self.line, gap)

    # --- latencies ---

    @cached_property
    def least_ns(self) -> int:
        """The least latency over all contacts: the kernel looks ahead that far."""
        return min(self.latencies_ns)

    @cached_property
    def typical_ns(self) -> int:
        """The median latency of the contacts, the lower one of two: by these routes are chosen."""
        return sorted(self.latencies_ns)[(len(self) - 1) // 2]

    def latency_at(self, t_ns: int) -> int:
        """The latency of a transmission that ends at `t_ns`: at the end of a contact still that of this contact.

        Outside of contacts that of the next one, behind the last one that of the last.
        """
        i = bisect_left(self.begins, t_ns) - 1      # the last one that began before
        if i < 0 or (t_ns > self.ends[i] and i + 1 < len(self)):
            i += 1
        return self.latencies_ns[i]

    # --- rates ---

    @cached_property
    def _work(self) -> list[int]:
        """The work that could have left before each contact, and in all, in bit ns/s. Made when a link first sends."""
        work = [0]
        for begin, end, rate in zip(self.begins, self.ends, self.rates_bps, strict=True):
            work.append(work[-1] + rate * (end - begin))
        return work

    @cached_property
    def mean_bps(self) -> int:
        """The mean rate within the contacts; of contacts without an end that rate."""
        if self.ends[-1] == NEVER or min(self.rates_bps) == max(self.rates_bps):
            return self.rates_bps[-1]
        return round(Fraction(self._work[-1], self.up_ns))

    @property
    def up_ns(self) -> int:
        """The length of all contacts together."""
        return sum(self.ends) - sum(self.begins)

    def opens(self, t_ns: int) -> int:
        """The first time from `t_ns` on that lies in a contact; NEVER: none does."""
        i = bisect_right(self.ends, t_ns)           # the first one that has not ended
        return max(t_ns, self.begins[i]) if i < len(self) else NEVER

    def lasts(self, t_ns: int) -> int:
        """The end of the contact at `t_ns`, and of those that touch it without a gap; `t_ns` outside of contacts."""
        i = bisect_right(self.begins, t_ns) - 1
        if i < 0 or t_ns >= self.ends[i]:
            return t_ns
        while i + 1 < len(self) and self.begins[i + 1] == self.ends[i]:
            i += 1
        return self.ends[i]

    def cuts(self, t_ns: int) -> int:
        """The time at which a flow that comes to a link at `t_ns` is taken off it, if it has not ended; NEVER: it is
        not."""
        if self.gap == "hold":
            return max(t_ns, self.ends[-1])
        if self.gap == "drop":
            return self.lasts(t_ns)
        opens = self.opens(t_ns)
        return t_ns if opens >= NEVER else self.lasts(opens)

    def over(self, t_ns: int) -> bool:
        """True if nothing is carried from `t_ns` on."""
        return t_ns >= self.ends[-1]

    @cached_property
    def _most(self) -> list[int]:
        """The most work between two gaps from the begin of each contact on, and 0 behind the last one."""
        most, run = [0], 0
        for i in reversed(range(len(self))):
            touches = i + 1 < len(self) and self.begins[i + 1] == self.ends[i]
            run = self.rates_bps[i] * (self.ends[i] - self.begins[i]) + (run if touches else 0)
            most.append(max(most[-1], run))
        return most[::-1]

    def may_hold(self, size_bytes: int, t_ns: int) -> bool:
        """False if no contact from `t_ns` on is long enough for so many bytes, with those that touch it."""
        return self._most[bisect_right(self.ends, t_ns)] >= size_bytes * WORK_PER_BYTE

    def rate_at(self, t_ns: int) -> int:
        """As a `VaryingRate` says."""
        i = bisect_right(self.begins, t_ns) - 1
        return self.rates_bps[i] if i >= 0 and t_ns < self.ends[i] else 0

    def next_change(self, t_ns: int) -> int | None:
        """As a `VaryingRate` says: where one contact touches the next at the same rate, that is no change."""
        i = bisect_right(self.ends, t_ns)
        if i == len(self):
            return None
        if t_ns < self.begins[i]:
            return self.begins[i]
        while (i + 1 < len(self) and self.begins[i + 1] == self.ends[i]
               and self.rates_bps[i + 1] == self.rates_bps[i]):
            i += 1
        return None if self.ends[i] == NEVER else self.ends[i]

    def _work_at(self, t_ns: int) -> int:
        i = bisect_right(self.begins, t_ns) - 1
        return 0 if i < 0 else self._work[i] + self.rates_bps[i] * (min(t_ns, self.ends[i]) - self.begins[i])

    def finish(self, start_ns: int, size_bytes: int | Fraction) -> int:
        """As a `VaryingRate` says; what has no bytes leaves as soon as there is a contact."""
        if size_bytes <= 0:
            return self.opens(start_ns)
        work = self._work_at(start_ns) + size_bytes * WORK_PER_BYTE
        i = bisect_left(self._work, work) - 1
        if i == len(self):
            return NEVER
        return min(NEVER, self.begins[i] - int((self._work[i] - work) // self.rates_bps[i]))

    def sent_bytes(self, start_ns: int, now_ns: int) -> Fraction:
        """As a `VaryingRate` says."""
        return Fraction(self._work_at(now_ns) - self._work_at(start_ns), WORK_PER_BYTE)


Plan = Mapping[tuple[str, str], Contacts]           # (source, destination) -> contacts
TimedLatency: TypeAlias = Contacts | LatencyOverTime        # by the time at which a transmission ends, without a draw


def read_plan(spec: ContactSpec) -> Plan:
    """The contacts of each link that the file names; none without a file. Raises ScenarioError with every line that is
    wrong."""
    if spec.file is None:
        return {}
    return _read(spec.file, tables.stamp(spec.file), spec.format)


def problem(spec: ContactSpec) -> tuple[str, str] | None:
    """(found, expected) where the file is not the one that the scenario was resolved with."""
    if spec.file is None or spec.sha256 is None or spec.sha256 == digest(spec.file):
        return None
    return f"{digest(spec.file)[:16]}...", (
        f"expected {spec.sha256[:16]}...: the file is not the one that this scenario was resolved with")


@lru_cache(maxsize=2)
def _read(path: Path, stamp: tuple[int, int] | None, form: PlanFormat) -> Plan:
    # once for the schemes of a scenario; a file that has changed is read again
    try:
        text = read_text(path, MOST_BYTES)
    except OSError as error:
        raise ScenarioError(str(path), [Problem("", error.strerror or "unreadable",
                                                "expected a contact plan, a text file")]) from None
    reading = _PlanReading(path)
    if form == "ion":
        return reading.taken(ion_rows(enumerate(text.splitlines(), 1), reading.wrong))
    return reading.read(text)


class _PlanReading:
    """The rows as they come; all that is wrong, at the end."""

    def __init__(self, path: Path):
        self._path = path
        self._problems: list[Problem] = []
        self._links: dict[tuple[str, str], Contacts] = {}
        self._rates: dict[str, int] = {}            # those that were read before: few come again and again
        self._latencies: dict[str, int] = {}
        self._titles: dict[str, str] = {}           # the names of columns, with their units

    def read(self, text: str) -> Plan:
        """The plan in a table. Raises ScenarioError."""
        rows = tables.records(text)
        try:
            line, header = next(rows, (None, []))
            if line is not None:
                while header and not header[-1]:        # a separator at the end of the line
                    header.pop()
                places, parse = self._columns(tables.TextTable(self._path, header, [], header_line=line))
                for line, cells in rows:
                    if len(cells) < len(header) or any(cells[len(header):]):
                        self.wrong(line, "", f"{len(cells)} values", f"expected {len(header)}, as the header has")
                    else:
                        self._take(line, [cells[i] for i in places], parse)
                    if len(self._problems) >= _ENOUGH:
                        break
        except tables.NoTable as error:
            self._problems.append(error.problem)
        if not self._links and not self._problems:
            self.wrong(None, "", "no rows", f"expected the header {','.join(COLUMNS)} and at least one row below it")
        if self._problems:
            raise ScenarioError(str(self._path), self._problems)
        return self._links

    def taken(self, rows: Iterable[PlanRow]) -> Plan:
        """The plan of rows in the order of time. Raises ScenarioError with all that is wrong so far."""
        for line, source, destination, begin, end, rate, latency in rows:
            self._add(line, source, destination, begin, end, rate, latency)
        if not self._links and not self._problems:
            self.wrong(None, "", "no contacts", "expected at least one")
        if self._problems:
            raise ScenarioError(str(self._path), sorted(self._problems, key=lambda one: one.line or 0)[:_ENOUGH])
        return self._links

    def _columns(self, table: tables.TextTable) -> tuple[list[int], list[Callable[[str], int]]]:
        """(the places of the six columns, what reads the four of them that are numbers). Raises ScenarioError."""
        names = ("start", "end", "source", "destination", "rate", "latency")
        titles = [table.find(name) for name in names]
        self._titles = {name: written or name for name, written in zip(names, titles, strict=True)}
        units = [tables.title(name or "")[1] for name in titles]
        parse = [_reader(unit, "rate" if i == 4 else "time") for i, unit in enumerate(units) if i not in (2, 3)]
        if None in titles or None in parse:
            self.wrong(table.header_line, "", ",".join(table.header)[:80],
                       f"expected a header with the columns {', '.join(COLUMNS)}, or other units")
            raise ScenarioError(str(self._path), self._problems)
        return [table.header.index(name) for name in titles if name], [one for one in parse if one]

    def _take(self, line: int, cells: list[str], parse: list[Callable[[str], int]]) -> None:
        """One row, its cells in the order of COLUMNS; one of a vertex with itself says nothing of a link."""
        begin_text, end_text, source, destination, rate_text, latency_text = cells
        begin = self._number(line, "start", begin_text, parse[0])
        end = NEVER if end_text in ("", "inf") else self._number(line, "end", end_text, parse[1])
        rate, latency = self._rates.get(rate_text), self._latencies.get(latency_text)
        if rate is None:
            rate = self._number(line, "rate", rate_text, parse[2], self._rates)
        if latency is None:
            latency = self._number(line, "latency", latency_text, parse[3], self._latencies)
        if not source or not destination:
            self.wrong(line, "destination" if source else "source", "nothing", "expected the name of a vertex")
        elif begin is None or end is None or rate is None or latency is None or source == destination:
            return
        elif rate == 0:
            self.wrong(line, self._titles["rate"], rate_text, "expected a rate of at least 1 bit/s")
        elif end <= begin:
            self.wrong(line, self._titles["end"], end_text, f"expected more than {self._titles['start']}, {begin_text}")
        else:
            self._add(line, source, destination, begin, end, rate, latency)

    def _add(self, line: int, source: str, destination: str, begin: int, end: int, rate: int, latency: int) -> bool:
        link = self._links.get((source, destination))
        if link is None:
            link = self._links[source, destination] = Contacts(
                array("q"), array("q"), array("q"), array("q"), line)
        elif begin < link.ends[-1]:
            end_text = "inf" if link.ends[-1] == NEVER else f"{link.ends[-1] / 1e9:.12g}"
            self.wrong(line, "start_s", f"{begin / 1e9:.12g}", (
                f"expected rows of {source} -> {destination} in the order of time, without an overlap: the row before "
                f"is of [{link.begins[-1] / 1e9:.12g}, {end_text}]"))
            return False
        link.begins.append(begin)
        link.ends.append(end)
        link.rates_bps.append(rate)
        link.latencies_ns.append(latency)
        return True

    def _number(self, line: int, column: str, text: str, parse: Callable[[str], int],
                known: dict[str, int] | None = None) -> int | None:
        """The number in a cell, which `known` then has; None and a problem where there is none."""
        expected = "expected a number, 0 or more"
        try:
            found = parse(text)
        except ValueError as error:
            found = -1
            if "the unit is missing" in str(error):
                expected = f"{error}; or in the name of the column, as in {', '.join(COLUMNS)}"
        if not 0 <= found <= LARGEST:
            self.wrong(line, self._titles[column], f'"{text[:40]}"', expected)
            return None
        if known is not None and len(known) < _REMEMBERED:
            known[text] = found
        return found

    def wrong(self, line: int | None, place: str, found: str, expected: str) -> None:
        """Note a mistake of the file."""
        self._problems.append(Problem(place, found, expected, line))


def _exactly(text: str, decimals: int) -> int:
    """The number in a text of digits with at most so many decimals, times 10^decimals. Raises ValueError."""
    whole, _, rest = text.partition(".")
    if len(rest) > decimals or "_" in text:
        raise ValueError("no digits, or too many")
    return int(whole + rest.ljust(decimals, "0"))


def _reader(unit: str | None, what: str) -> Callable[[str], int] | None:
    """A function that reads the cells of a column of this unit; None: it is no unit. Without one the cells have theirs.

    A number with few decimals of a unit that is a power of ten: 0.4 us; by a Fraction 3 us, and plans have many rows.
    """
    parse, factor_of = (tables.rate, bandwidth_unit) if what == "rate" else (tables.duration, duration_unit)
    factor = None if unit is None else factor_of(unit)
    if unit is not None and factor is None:
        return None
    decimals = 0 if factor is None else len(str(factor)) - 1
    tens = factor == 10**decimals

    def read(text: str) -> int:
        try:
            if tens:
                return _exactly(text, decimals)
        except ValueError:
            pass                                                # as 1e3, or with more decimals
        return parse(text, factor)
    return read
