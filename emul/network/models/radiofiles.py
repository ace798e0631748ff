"""The files of `radio`: places, walks that were recorded, and tables of rates, all CSV.

    name,x_m,y_m            places
    t_s,name,x_m,y_m        walks (t_ms, ...; without `name`: one for all that match), straight between the rows
    least_dbm,rate_mbps     rates, ascending
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from emul.base import tables
from emul.base.errors import ScenarioError
from emul.base.files import read_text
from emul.network.models.radio import RATES, Attach, LogDistance, Move, RadioModel, RadioPlace, Steps
from emul.network.models.traces import digest
from emul.network.models.walks import Walk, Waypoints, along

T = TypeVar("T")
Points = Mapping[str, Sequence[tuple[int, float, float]]]
_MOST_M = 1e9


@dataclass(frozen=True)
class RadioFile:
    """A file that `radio` names. sha256: of the file as it was, checked where it is given."""

    file: Path
    sha256: str | None = field(default=None, compare=False)


@dataclass(frozen=True)
class MoveSpec:
    """As `Move`, with the file of a trace in place of its points."""

    match: str
    waypoint: Waypoints | None = None
    trace: RadioFile | None = None
    at: tuple[float, float] | None = None
    in_turn: bool = False


@dataclass(frozen=True)
class RadioSpec:
    """The `radio` of a scenario, with its files not read. rates: a name of RATES, or a file."""

    spots: RadioFile
    moves: tuple[MoveSpec, ...]
    loss: LogDistance
    rates: str | RadioFile
    power_dbm: float
    attach: Attach | None = None

    def files(self) -> Iterator[tuple[tuple[str | int, ...], RadioFile, Callable[[Path], object]]]:
        """(where it is named, file, what reads it) of all files."""
        yield ("places",), self.spots, read_places
        for i, move in enumerate(self.moves):
            if move.trace is not None:
                yield ("move", i, "trace"), move.trace, read_walks
        if isinstance(self.rates, RadioFile):
            yield ("rates", "file"), self.rates, read_rates


def read_radio(spec: RadioSpec) -> RadioModel:
    """The radio with what its files say. Raises ScenarioError with every line of the first file that is wrong."""
    moves = tuple(Move(one.match, one.waypoint, None if one.trace is None else read_walks(one.trace.file), one.at,
                       one.in_turn)
                  for one in spec.moves)
    rates = RATES[spec.rates] if isinstance(spec.rates, str) else read_rates(spec.rates.file)
    return RadioModel(read_places(spec.spots.file), moves, spec.loss, rates, spec.power_dbm, spec.attach)


def problems(spec: RadioSpec) -> list[tuple[tuple[str | int, ...], str, str]]:
    """(where, found, expected) of everything that is wrong with the files, line by line."""
    found: list[tuple[tuple[str | int, ...], str, str]] = []
    for place, one, read in spec.files():
        try:
            read(one.file)
        except ScenarioError as error:
            found += [(place, ", ".join(part for part in (
                one.file.name, f"line {bad.line}" if bad.line else "", bad.place, bad.found) if part), bad.expected)
                for bad in error.problems]
            continue
        if one.sha256 is not None and one.sha256 != digest(one.file):
            found.append((place, f"{digest(one.file)[:16]}...", f"expected {one.sha256[:16]}...: the file is not the "
                          "one that this scenario was resolved with"))
    return found


def read_places(file: Path) -> tuple[RadioPlace, ...]:
    """The places, in the order of the file. Raises ScenarioError."""
    return _read_places(file, tables.stamp(file))


def read_walks(file: Path) -> Points:
    """Name ("": all) -> (ns, x, y), ascending in time. Raises ScenarioError."""
    return _read_walks(file, tables.stamp(file))


def read_rates(file: Path) -> Steps:
    """(least dBm, bit/s), both ascending. Raises ScenarioError."""
    return _read_rates(file, tables.stamp(file))


@lru_cache(maxsize=4)
def _read_places(file: Path, stamp: tuple[int, int] | None) -> tuple[RadioPlace, ...]:
    # once for the schemes of a scenario; a file that has changed is read again
    table = tables.read(file, ("name", "x_m", "y_m"))
    names = table.column("name", _name)
    xs, ys = (table.column(column, _metres) for column in ("x_m", "y_m"))
    table.unique("name")
    table.check()
    return tuple(RadioPlace(str(name), _sound(x), _sound(y)) for name, x, y in zip(names, xs, ys, strict=True))


_NS2 = re.compile(r'\s*\$node_\((\w+)\) set ([XYZ])_ (\S+)\s*|'
                  r'\s*\$ns_ at (\S+) "\$node_\((\w+)\) setdest (\S+) (\S+) (\S+)"\s*')


def _ns2(text: str, file: Path) -> Points:
    """A scenario of ns-2: the places where nodes begin, and the times at which they set out for a point, at a speed in
    m/s. A node that is on its way turns where it is then. Other lines are passed over. Raises ScenarioError."""
    starts: dict[str, dict[str, float]] = {}
    found: dict[str, list[tuple[int, float, float]]] = {}
    problems = tables.TextTable(file, [], [])
    for line, said in enumerate(text.splitlines(), 1):
        match = _NS2.fullmatch(said)
        if match is None:
            continue
        try:
            if match[1]:
                starts.setdefault(match[1], {})[match[2]] = _metres(match[3])
                continue
            t, name = round(tables.finite(match[4]) * 10**9), match[5]
            x, y, speed = _metres(match[6]), _metres(match[7]), _metres(match[8])
        except ValueError as error:
            problems.problem(line, "", said.strip()[:40], str(error))
            continue
        begin = starts.get(name, {})
        points = found.setdefault(name, [(0, begin.get("X", 0.0), begin.get("Y", 0.0))])
        if t < 0 or speed < 0 or (len(points) > 1 and t < points[-2][0]):
            problems.problem(line, "", said.strip()[:40], "expected ascending times, and speeds of 0 or more")
            continue
        here = Walk(along(points)).position(t)
        while points and points[-1][0] >= t:            # it turns before it is there
            points.pop()
        points.append((t, *here))
        length = math.dist(here, (x, y))
        if speed and length:
            points.append((t + max(1, round(length / speed * 1e9)), x, y))
    for name, begin in starts.items():
        found.setdefault(name, [(0, begin.get("X", 0.0), begin.get("Y", 0.0))])
    problems.check()
    return found


# the columns of SUMO's floating car data, as its xml2csv writes them
_SUMO = {"timestep_time": "t_s", "vehicle_id": "name", "vehicle_x": "x_m", "vehicle_y": "y_m"}


@lru_cache(maxsize=4)
def _read_walks(file: Path, stamp: tuple[int, int] | None) -> Points:
    try:
        text = read_text(file)
    except OSError:
        text = ""                   # told where it is read as a table
    if "setdest" in text:
        return _ns2(text, file)
    table = tables.read(file, ("t=s", "name", "x_m", "y_m"), ("t=s", "x_m", "y_m"), tuple(_SUMO))
    table.header = [_SUMO.get(name, name) for name in table.header]
    times, names = table.durations("t"), ["" for _ in table.rows]
    if table.find("name"):
        names = [name or "" for name in table.column("name", _name)]
    xs, ys = (table.column(column, _metres) for column in ("x_m", "y_m"))
    found: dict[str, list[tuple[int, float, float]]] = {}
    for (line, _), t, name, x, y in zip(table.rows, times, names, xs, ys, strict=True):
        if t is None or x is None or y is None:
            continue
        points = found.setdefault(name, [])
        if points and t <= points[-1][0]:
            table.problem(line, "t", f"{t / 1e9:.12g} s", "expected rows of one walk in ascending order of time")
        points.append((t, x, y))
    table.check()
    return found


@lru_cache(maxsize=4)
def _read_rates(file: Path, stamp: tuple[int, int] | None) -> Steps:
    table = tables.read(file, ("least_dbm", "rate_mbps"))
    powers, rates = table.column("least_dbm", _power), table.column("rate_mbps", _rate)
    found: list[tuple[float, int]] = []
    for (line, _), power, rate in zip(table.rows, powers, rates, strict=True):
        if power is None or rate is None:
            continue
        if found and (power <= found[-1][0] or rate <= found[-1][1]):
            table.problem(line, "", f"{power:g} dBm, {rate / 1e6:g} Mbit/s",
                          "expected rows in which both powers and rates ascend")
        found.append((power, rate))
    table.check()
    return tuple(found)


def _name(text: str) -> str:
    if not text:
        raise ValueError("expected a name")
    return text


def _within(text: str, most: float, unit: str) -> float:
    found = float(tables.finite(text))
    if not math.isfinite(found) or abs(found) > most:
        raise ValueError(f"expected a number of {unit}, at most {most:g} in magnitude")
    return found


def _metres(text: str) -> float:
    return _within(text, _MOST_M, "m")


def _power(text: str) -> float:
    return _within(text, 1000, "dBm")


def _rate(text: str) -> int:
    found = round(_within(text, 1e9, "Mbit/s") * 1e6)
    if found < 1:
        raise ValueError("expected a rate of at least 1 bit/s")
    return found


def _sound(value: T | None) -> T:
    assert value is not None
    return value
