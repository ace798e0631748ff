"""Absences of nodes: endless alternations of up and down as pure functions of (seed, node), and traces of them.

A node's absences are an iterator of (down at, up at) in ns, ascending and apart; `up at` None: for good. Nothing is
drawn ahead: an iterator is asked for the next absence when the last has begun, and its k-th sojourn is drawn from a
stream keyed by seed, purpose and the node's name at the index k, so every scheme meets the same absences.

Exponential sojourns are unrealistic: Stutzbach and Rejaie (IMC 2006) found Weibull sessions with shapes of 0.34 to
0.59 in peer-to-peer networks.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import count, pairwise
from pathlib import Path
from statistics import fmean, median
from typing import TypeAlias

from emul.base import tables, units
from emul.base.errors import Problem, ScenarioError
from emul.base.files import read_text
from emul.base.plain import is_number
from emul.base.streams import generator, key64, uniform_at
from emul.network.models.laws import Exponential, Fixed, LogNormal, Weibull
from emul.network.models.pieces import too_short
from emul.network.models.profiles import NEVER
from emul.network.models.traceformats import date_ns, few, shown

Absences: TypeAlias = Iterator[tuple[int, int | None]]

_JOINED = 10_000        # absences in a row: 0.1 s of real time for each node


Law: TypeAlias = Exponential | Weibull | LogNormal | Fixed         # of durations in ns


# --- models ---------------------------------------------------------------------------------------------------------

def alternating(up: Law, down: Law, seed: int, node: str, stationary: bool = True) -> Absences:
    """Up and down in turn, all sojourns independent (an alternating renewal process).

    stationary: the state at 0 is drawn by the share of time, mean up / (mean up + mean down), and what is left of its
    sojourn by the stationary law; else every node begins with a whole sojourn up.
    """
    # Nobody knows when a run ends, so this is an iterator and no list up to a horizon. Each node has a stream of its
    # own: one node more shifts no draw of the others (`test_absences_are_apart_and_a_pure_function_of_seed_and_name`).
    ups, downs = _durations(up, seed, "churn/up", node), _durations(down, seed, "churn/down", node)
    now = 0
    if not stationary:
        now = next(ups)
    else:
        start = key64(seed, "churn/start", node)
        is_up = uniform_at(start, 0) < up.mean / (up.mean + down.mean)
        length = (up if is_up else down).biased(uniform_at(start, 1), generator(seed, "churn/start", node))
        now = _whole(length * (1 - uniform_at(start, 2)))
        if not is_up:
            yield 0, _until(now)
            now += next(ups)
    while now < NEVER:
        until = now + next(downs)
        yield now, _until(until)
        now = until + next(ups)


def _durations(law: Law, seed: int, purpose: str, name: str) -> Iterator[int]:
    """Whole ns, at least 1."""
    key = key64(seed, purpose, name)
    return (_whole(law.quantile(uniform_at(key, index))) for index in count())


def _whole(ns: float) -> int:
    return max(1, round(ns)) if ns < NEVER else NEVER


def _until(time: int) -> int | None:
    return time if time < NEVER else None


@dataclass(frozen=True, slots=True)
class Diurnal:
    """The share of nodes that are up at t is mean + amplitude * sin(2 pi t / period).

    spread: nodes live in different time zones, whose days begin within so large a part of a period: each node's own
    t is shifted by a uniform draw. The amplitude of the share is then smaller, by sin(pi spread) / (pi spread).
    """

    mean: float
    amplitude: float
    period_ns: int
    spread: float = 0.0

    def absences(self, seed: int, node: str) -> Absences:
        """A node has one stretch of availability a day, around the day's peak. Its length is drawn at every trough: it
        is up while the sine is above its draw, so at any time the share is the sine."""
        key = key64(seed, "churn/day", node)
        shift = (uniform_at(key, 0) - 0.5) * self.spread * self.period_ns
        return _joined(self._days(key, shift))

    def _days(self, key: int, shift: float) -> Absences:
        for day in count():
            trough = round((day - 1.25) * self.period_ns + shift)       # the first one is before 0
            following = round((day - 0.25) * self.period_ns + shift)
            if trough >= NEVER:
                return
            height = uniform_at(key, day + 1) - self.mean
            if height >= self.amplitude:
                yield trough, following
            elif height > -self.amplitude:
                rise = math.asin(height / self.amplitude) / (2 * math.pi)       # in periods, from -1/4 to 1/4
                yield trough, round((day - 1 + rise) * self.period_ns + shift)
                yield round((day - 0.5 - rise) * self.period_ns + shift), following


@dataclass(frozen=True, slots=True)
class Shocks:
    """Failures of a group: `every` so long a shock comes, at which each member fails with probability `p`, for a time
    drawn from `down`. `correlation`: between any two members at one shock.

    With the probability sqrt(correlation) a member follows the group's own draw, else its own. So the number of
    members that fail at a shock has the variance n p (1 - p) [1 + (n - 1) correlation].
    """

    every: Law
    down: Law
    p: float = 1.0
    correlation: float = 0.0

    @property
    def expected_up(self) -> float:
        """About the share of time that a member is there: as many of its failures are under way at any time as their
        mean says, by Poisson's law; exact for exponential `every`, and for fixed times."""
        load = self.p * self.down.mean / self.every.mean
        if isinstance(self.every, Fixed) and isinstance(self.down, Fixed) and self.p == 1:
            return max(0.0, 1 - load)
        return math.exp(-load)

    def absences(self, seed: int, group: str, node: str, until_ns: int = NEVER) -> Absences:
        """Those of one member; a shock during an absence prolongs it, if it is the longer one. `until_ns`:
        the end of the run, at which an absence that still goes on is for good."""
        return _joined(self._failures(seed, group, node), until_ns)

    def hit(self, seed: int, group: str, node: str, shock: int) -> bool:
        """True if the member fails at shock number `shock`, from 0."""
        own = key64(seed, "churn/member", group, node)
        if uniform_at(own, 2 * shock) < math.sqrt(self.correlation):
            return uniform_at(key64(seed, "churn/group", group), shock) < self.p
        return uniform_at(own, 2 * shock + 1) < self.p

    def _failures(self, seed: int, group: str, node: str) -> Absences:
        now = 0
        downs = _durations(self.down, seed, "churn/repair", f"{group} {node}")
        for shock, wait in enumerate(_durations(self.every, seed, "churn/shock", group)):
            now += wait
            if now >= NEVER:
                return
            length = next(downs)                # drawn at every shock, so that the k-th is that of the k-th shock
            if self.hit(seed, group, node, shock):
                yield now, _until(now + length)


def _joined(absences: Absences, until_ns: int = NEVER) -> Absences:
    """Absences that begin in the order of time, from 0 on, those that overlap or touch as one.

    One that goes on at `until_ns`, or consists of more than `_JOINED`, is for good: where absences come faster than
    they end the next gap may be in a million years, and to look for it would never end.
    """
    waiting: tuple[int, int | None] | None = None
    joined = 0
    for begin, end in absences:
        if end is not None and end <= max(begin, 0):
            continue
        begin = max(begin, 0)
        if waiting is None:
            waiting = begin, end
        elif waiting[1] is None:
            break
        elif begin <= waiting[1]:
            joined += 1
            ends = end is not None and joined <= _JOINED and waiting[1] < until_ns
            waiting = waiting[0], max(end or 0, waiting[1]) if ends else None
        else:
            yield waiting
            waiting, joined = (begin, end), 0
    if waiting is not None:
        yield waiting


# --- traces ---------------------------------------------------------------------------------------------------------

@dataclass(frozen=True, slots=True)
class Schedule:
    """The presence of a node: intervals (from, to) in ns, ascending, apart. With a period all comes again, else the
    node is gone for good after the last."""

    present: tuple[tuple[int, int], ...]
    period_ns: int | None = None

    def from_time(self, offset_ns: int) -> Schedule:
        """As it is from `offset_ns` on, which is then 0: with a period the laps go on, without one all before is gone.

        >>> Schedule(((0, 3), (8, 10)), 10).from_time(9)
        Schedule(present=((0, 4), (9, 10)), period_ns=10)
        """
        if self.period_ns is None:
            return Schedule(tuple((max(0, on - offset_ns), off if off >= NEVER else off - offset_ns)
                                  for on, off in self.present if off > offset_ns))
        shift, found = offset_ns % self.period_ns, list[tuple[int, int]]()
        cut = [edge for on, off in self.present for edge in (
            [(on, off)] if not on < shift < off else [(on, shift), (shift, off)])]
        for on, off in sorted(((on - shift) % self.period_ns, (on - shift) % self.period_ns + off - on)
                              for on, off in cut):
            if found and found[-1][1] == on:
                found[-1] = found[-1][0], off
            else:
                found.append((on, off))
        return Schedule(tuple(found), self.period_ns)

    def absences(self) -> Absences:
        """The times outside the intervals, from 0 on: endless with a period, else the last one is for good."""
        return _joined(self._gaps())

    def _gaps(self) -> Absences:
        if not self.present:
            yield 0, None
            return
        edges = [0, *(t for interval in self.present for t in interval)]
        gaps = list(zip(edges[::2], edges[1::2], strict=False))
        if self.period_ns is None:
            yield from gaps
            if edges[-1] < NEVER:
                yield edges[-1], None
            return
        gaps.append((edges[-1], self.period_ns))
        gaps = [(begin, end) for begin, end in gaps if begin < end]
        lap = 0
        while gaps and lap < NEVER:
            for begin, end in gaps:
                yield lap + begin, lap + end
            lap += self.period_ns


def read_availability(path: Path, period_ns: int | None = None, offset_ns: int = 0) -> dict[str, Schedule]:
    """{node: when it is there} from a CSV file, from JSON as FedScale has it, or from lines "node: on, [54, 890]".

    period_ns: of nodes for which the file has none. offset_ns: the time of the file at which a run begins. Dates, and
    seconds since 1970 unless `offset_ns` is such a time, count from the first of the file. Raises ScenarioError with
    the lines.
    """
    try:
        text = read_text(path)
    except OSError as error:
        raise ScenarioError(str(path), [Problem("", error.strerror or "unreadable", "expected a trace of availability, "
                                                "a text file")]) from None
    if text.lstrip()[:1] == "{":
        found = from_fedscale(text, str(path))
    elif _TOGGLES.match(_first_line(text)):
        found = _toggles(text, path, period_ns)
    else:
        found = _rows(path, period_ns, offset_ns)
    short = [Problem(shown(name), units.format_duration(one.period_ns), expected) for name, one in found.items()
             if one.period_ns is not None and (expected := too_short(one.period_ns, len(one.present), "stays"))]
    if short:
        raise ScenarioError(str(path), few(short))
    return {name: one.from_time(offset_ns) for name, one in found.items()} if offset_ns else found


def holds_availability(text: str) -> bool:
    """True if a text is a trace of availability, and none of bandwidth, by its looks."""
    if text.lstrip()[:1] == "{":
        return '"inactive"' in text
    line = _first_line(text)
    return _TOGGLES.match(line) is not None or re.search(r"\bt_?off|\b(node|client|device).*\b(off|end|stop|departure)",
                                                         line, re.I) is not None


def _first_line(text: str) -> str:
    return next((line for line in text[:4000].splitlines() if line.strip() and line.lstrip()[0] != "#"), "")


_SINCE_1970 = 3 * 10**17    # ns: a time of 1979 and later, and 9 years of a run


def _times(file: tables.TextTable, name: str) -> list[int | None]:
    """The values of a column in ns: durations, or dates."""
    column = file.find(name) or name
    at = file.header.index(column)
    if tables.title(column)[1] is not None or all(date_ns(cells[at]) is None for _, cells in file.rows):
        return file.durations(name)

    def read(text: str) -> int:
        if text == "0":             # in the place of an end that is open
            return 0
        date = date_ns(text)
        if date is None or date < 0:
            raise ValueError("expected a date such as 2026-05-01T08:00:00Z, as other rows have")
        return date
    return file.column(column, read)


def _rows(path: Path, period_ns: int | None, offset_ns: int = 0) -> dict[str, Schedule]:
    """Of a CSV file with the columns node, t_on, t_off and perhaps period. Units stand in the header (`t_on_s`) or in
    the values, which may be dates. An end that is empty or inf is none, and a row that ends as it begins says that the
    node is in the file."""
    file = tables.rows(path)
    who = next((one for one in ("node", "client", "device") if file.find(one)), "node")
    tables.require(file, (who, "t_on=s", "t_off=s"), (who, "t_on=s", "t_off=s", "period=s"))
    off_at = file.header.index(file.find("t_off") or "")
    open_ended = [tables.missing(cells[off_at]) or cells[off_at].lower() == "inf" for _, cells in file.rows]
    file.rows = [(line, [*cells[:off_at], "0", *cells[off_at + 1:]] if is_open else cells)
                 for (line, cells), is_open in zip(file.rows, open_ended, strict=True)]
    nodes, ons, offs = file.column(who, str), _times(file, "t_on"), _times(file, "t_off")
    first = min((on for on in ons if on is not None), default=0)
    if first >= _SINCE_1970 > offset_ns:
        ons = [None if on is None else on - first for on in ons]
        offs = [None if off is None else off - first for off in offs]
    own = file.durations("period") if file.find("period") else None
    present: dict[str, list[tuple[int, int]]] = {name: [] for name in nodes if name is not None}
    periods: dict[str, int | None] = {}
    for i in sorted(range(len(file.rows)), key=lambda i: ons[i] or 0):
        line = file.rows[i][0]
        name, on, off = nodes[i], ons[i], NEVER if open_ended[i] else offs[i]
        period = period_ns if own is None else own[i]
        if name is None or on is None or off is None or (period is None and own is not None):
            continue
        before = present[name]
        if periods.setdefault(name, period) != period:
            file.problem(line, "period", _text(period), f"expected one period for {name}: {_text(periods[name])}")
        elif off < on:
            file.problem(line, "t_off", _text(off), "expected a time after t_on")
        elif before and on < before[-1][1]:
            file.problem(line, "t_on", _text(on), f"expected a time after the row before of {name} has ended")
        elif period is not None and off > period:
            file.problem(line, "t_off", "none" if open_ended[i] else _text(off),
                         f"expected a time within the period, {_text(period)}")
        elif off > on:
            before.append((on, off))
    file.check()
    return {name: Schedule(tuple(intervals), periods[name]) for name, intervals in present.items()}


_TOGGLES = re.compile(r"\s*([^\s:]+)\s*:\s*(on|off)\b\s*,?\s*\[([^\]]*)\]\s*,?\s*$", re.IGNORECASE)


def _toggles(text: str, path: Path, period_ns: int | None) -> dict[str, Schedule]:
    """Lines "node: on, [54, 890, 2042]": the state at 0, and the seconds at which it changes. Raises ScenarioError."""
    found: list[Problem] = []
    schedules: dict[str, Schedule] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _TOGGLES.match(line)
        if match is None:
            found.append(Problem("", shown(line), 'expected a line such as "node: on, [54, 890, 2042]"', number))
            continue
        name, state, listed = match.groups()
        try:
            times = [tables.duration(one.strip(), Fraction(10**9)) for one in listed.split(",") if one.strip()]
        except ValueError as error:
            found.append(Problem(name, shown(listed), str(error), number))
            continue
        if any(b <= a for a, b in pairwise(times)) or (period_ns is not None and times and times[-1] > period_ns):
            found.append(Problem(name, shown(listed), "expected times that ascend" + (
                "" if period_ns is None else f", up to the period {_text(period_ns)}"), number))
        if name in schedules:
            found.append(Problem(name, shown(line), "there already", number))
        edges = [*([0] if state.lower() == "on" else []), *times]
        if len(edges) % 2:
            edges.append(NEVER if period_ns is None else period_ns)
        schedules[name] = Schedule(tuple((a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if b > a),
                                   period_ns)
    if found:
        raise ScenarioError(str(path), few(found))
    return schedules


def _text(ns: int | None) -> str:
    return "none" if ns is None else units.format_duration(ns)


@dataclass(frozen=True)
class AvailabilitySummary:
    """Of a file: how many nodes it has, over which time (the period, else the last time that it names), how many are
    there at all, the share of the time that they are there (mean, least and most over the nodes), and how long a
    presence is. Times in s."""

    nodes: int
    never: int
    length_s: float
    repeats: bool
    mean: float
    least: float
    most: float
    presences: int
    presence_mean_s: float
    presence_median_s: float

    def lines(self) -> list[tuple[str, str]]:
        """(what, how much), for people."""
        return [("nodes", f"{self.nodes}, {self.never} of them never there"),
                ("length", f"{self.length_s:g} s, " + ("after which it begins anew" if self.repeats else "once")),
                ("there", f"{self.mean:.2%} of the time; of the nodes from {self.least:.2%} to {self.most:.2%}"),
                ("presences", f"{self.presences}, of {self.presence_mean_s:g} s in mean, {self.presence_median_s:g} s "
                              "in the median")]


def availability_summary(schedules: Mapping[str, Schedule]) -> AvailabilitySummary:
    """Of what a file says; a presence without an end lasts up to the last time that the file names."""
    last = max((t for one in schedules.values() for pair in one.present for t in pair if t < NEVER), default=0)
    shares, lengths = [], list[int]()
    for one in schedules.values():
        mine = [min(off, one.period_ns or last) - on for on, off in one.present]
        shares.append(sum(mine) / (one.period_ns or last or 1))
        lengths += mine
    periods = [one.period_ns for one in schedules.values() if one.period_ns is not None]
    return AvailabilitySummary(
        len(schedules), sum(not one.present for one in schedules.values()), max(periods, default=last) / 1e9,
        bool(periods), fmean(shares), min(shares), max(shares), len(lengths),
        fmean(lengths) / 1e9 if lengths else 0.0, median(lengths) / 1e9 if lengths else 0.0)


def from_fedscale(text: str, file: str) -> dict[str, Schedule]:
    """Schedules from JSON of the shape {client: {"active": [..], "inactive": [..], "finish_time": ..}}, in seconds.

    The behaviour traces of Yang et al. (WWW 2021), FedScale's device availability: a client is there from an active
    time to the next inactive one, and all comes again after finish_time. If the first time of all is inactive, it is
    there from 0 on; if the last is active, until finish_time. Without times it is never there. FedScale ships its file
    as a pickle, which emul does not read: turn it into JSON with FedScale's own tools. Raises ScenarioError.
    """
    found: list[Problem] = []
    schedules: dict[str, Schedule] = {}
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ScenarioError(file, [Problem("", str(error).splitlines()[0][:80], "is no readable JSON")]) from None
    if not isinstance(content, dict) or not content:
        raise ScenarioError(file, [Problem("", type(content).__name__, "expected {client: {active: [..], ...}}")])
    for client, entry in content.items():
        place = shown(client)
        times = [_seconds(entry.get(key)) if isinstance(entry, dict) else None for key in ("active", "inactive")]
        end = _seconds([entry.get("finish_time")]) if isinstance(entry, dict) else None
        active, inactive = times
        if active is None or inactive is None or not end or not end[0]:
            found.append(Problem(place, "", "expected lists of seconds, active and inactive, and a number finish_time"))
            continue
        if len(active) == len(inactive) and all(a <= b for a, b in zip(active, inactive, strict=True)):
            pairs = sorted(zip(active, inactive, strict=True))
        else:
            edges = sorted([*((t, True) for t in active), *((t, False) for t in inactive)])
            if any(before[1] == after[1] for before, after in pairwise(edges)):
                found.append(Problem(place, "", "expected active and inactive times in turn"))
                continue
            whole = [*([0] if edges and not edges[0][1] else []), *(t for t, _ in edges)]
            pairs = list(zip(whole[::2], [*whole[1::2], end[0]], strict=False))
        if any(after[0] < before[1] for before, after in pairwise(pairs)):
            found.append(Problem(place, "", "expected times of presence that do not overlap"))
            continue
        present = tuple((on, min(off, end[0])) for on, off in pairs if on < min(off, end[0]))
        schedules[client] = Schedule(present, end[0])
    if found:
        raise ScenarioError(file, few(found))
    return schedules


def _seconds(values: object) -> list[int] | None:
    """Numbers of seconds as ns; None if they are none."""
    if not isinstance(values, list) or not all(
            is_number(v) and 0 <= v < units.LARGEST / 1e9 for v in values):
        return None
    return [round(Fraction(v) * 10**9) for v in values]


def availability_csv(schedules: Mapping[str, Schedule]) -> str:
    """The text of a CSV file that `read_availability` reads back: in whole seconds if all times are such, else ns."""
    times = [t for s in schedules.values() for t in (*(t for one in s.present for t in one if t < NEVER),
                                                    s.period_ns or 0)]
    unit, size = ("ns", 1) if any(t % 10**9 for t in times) else ("s", 10**9)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    periods = any(s.period_ns is not None for s in schedules.values())
    writer.writerow(["node", f"t_on_{unit}", f"t_off_{unit}", *([f"period_{unit}"] if periods else [])])
    for name, schedule in schedules.items():
        period = "" if schedule.period_ns is None else str(schedule.period_ns // size)
        for on, off in schedule.present or ((0, 0),):
            end = "inf" if off >= NEVER else off // size
            writer.writerow([name, on // size, end, *([period] if periods else [])])
    return out.getvalue()
