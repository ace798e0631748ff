"""Two-line elements of satellites, and their places by SGP4 (the package `sgp4`, Vallado et al., AIAA 2006-6753).

A file has two lines for each satellite, and a line with its name before them, or none. Or it is a table or JSON of
orbit mean-elements messages (OMM), as CelesTrak has them; the two lines are made of these. The time 0 is the latest
epoch of the file. SGP4 gives places in the frame of the true equator and mean equinox (TEME). They are turned by
Greenwich mean sidereal time (IAU 1982); polar motion, at most 15 m on the ground, is left out.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import floor, log10
from pathlib import Path
from typing import Any

import numpy as np

from emul.base import tables
from emul.base.errors import Problem, ScenarioError
from emul.base.extras import optional
from emul.base.files import read_text
from emul.network.models.orbits import TURN, FloatArray, IntArray

_LENGTH = 69            # characters of a line
_ENOUGH = 20            # problems of one file
# The numbers without which there is no orbit, by line: name, first column from 0, and the one behind the last.
_NUMBERS = {"1": (("epoch", 18, 32),),
            "2": (("inclination", 8, 16), ("ascending node", 17, 25), ("eccentricity", 26, 33),
                  ("argument of perigee", 34, 42), ("mean anomaly", 43, 51), ("mean motion", 52, 63))}


@dataclass(frozen=True, slots=True)
class Elements:
    """Of one satellite: both lines as they stand, and the number of the first one in its file."""

    name: str
    first: str
    second: str
    line: int


def read_elements(path: Path) -> list[Elements]:
    """The satellites of a file. Raises ScenarioError with every line that is wrong."""
    try:
        content = read_text(path)
    except OSError as error:
        raise ScenarioError(str(path), [Problem("", error.strerror or "unreadable",
                                                "expected a file of two-line elements")]) from None
    problems: list[Problem] = []
    if "MEAN_MOTION" in content:
        satellites = _messages(content, path, problems)
    else:
        satellites = _pairs(content.splitlines(), problems)
    if not satellites and not problems:
        problems.append(Problem("", "no elements", "expected two lines for each satellite"))
    counts = Counter(one.name for one in satellites)
    satellites = [one if counts[one.name] == 1 else replace(one, name=f"{one.name} {one.first[2:7].strip()}")
                  for one in satellites]        # debris, for example: many of one name, each with a number of its own
    seen = dict[str, int]()
    for one in satellites:
        if one.name in seen:
            problems.append(Problem("", f'"{one.name}"', f"expected another name than in line {seen[one.name]}",
                one.line))
        seen.setdefault(one.name, one.line)
    if problems:
        raise ScenarioError(str(path), sorted(problems, key=lambda one: one.line or 0)[:_ENOUGH])
    return satellites


def _pairs(lines: Sequence[str], problems: list[Problem]) -> list[Elements]:
    """The satellites in two lines each. A line without its checksum gets it."""
    satellites: list[Elements] = []
    name, first, at = "", "", 0
    for number, text in enumerate(lines, 1):
        text = text.rstrip()
        if not text:
            continue
        if text[:2] in ("1 ", "2 ") and len(text) == _LENGTH - 1:
            text += str(checksum(text + "0"))
        if first:
            problems += _wrong(number, text, "2", first)
            satellites.append(Elements(name or f"sat{first[2:7].strip()}", first, text, at))
            name, first = "", ""
        elif text.startswith("1 ") and len(text) > _LENGTH // 2:
            problems += _wrong(number, text, "1", text)
            first, at = text, number
        elif not text.startswith("#"):
            if name:
                problems.append(Problem("", text[:40], f"expected line 1 of the elements of {name}", number))
            name = text.removeprefix("0 ").strip()
            if "->" in name:
                problems.append(Problem("", text[:40], 'expected a name without "->", which rules use', number))
    if first or (name and satellites):
        problems.append(Problem("", "the end of the file", "expected two lines of elements", len(lines)))
    return satellites


# Keys of an orbit mean-elements message: the width of the number in line 2, its decimals, and its bounds.
_MEANS = {"INCLINATION": (8, 4, 0, 180), "RA_OF_ASC_NODE": (8, 4, 0, 360), "ECCENTRICITY": (9, 7, 0, 0.9999999),
          "ARG_OF_PERICENTER": (8, 4, 0, 360), "MEAN_ANOMALY": (8, 4, 0, 360), "MEAN_MOTION": (11, 8, 1e-8, 20)}


def _messages(content: str, path: Path, problems: list[Problem]) -> list[Elements]:
    """The satellites of a table or a JSON list of orbit mean-elements messages. Raises ScenarioError."""
    rows: list[tuple[int, dict[str, object]]]
    if content.lstrip()[:1] in "[{":
        try:
            listed = json.loads(content)
        except (ValueError, RecursionError) as error:
            said = str(error).splitlines()[0][:80]
            raise ScenarioError(str(path), [Problem("", said, "is no readable JSON")]) from None
        rows = [(i, one if isinstance(one, dict) else {}) for i, one in enumerate(
            listed if isinstance(listed, list) else [listed], 1)]
    else:
        table = tables.parse(content, path)
        rows = [(line, dict(zip(table.header, cells, strict=True))) for line, cells in table.rows]
    satellites = []
    for line, row in rows:
        try:
            satellites.append(_of_message(line, row))
        except ValueError as error:
            place, found, expected = error.args
            problems.append(Problem(place, found, expected, line))
    return satellites


def _of_message(line: int, row: Mapping[str, object]) -> Elements:
    """Raises ValueError: place, found, expected."""
    def number(key: str, low: float, high: float) -> float:
        try:
            value = float(tables.finite(str(row[key]).strip()))
        except (KeyError, ValueError):
            raise ValueError(key, str(row.get(key, "nothing"))[:40], "expected a number") from None
        if not low <= value <= high:
            raise ValueError(key, str(row[key])[:40], f"expected a number from {low:g} to {high:g}")
        return value

    try:
        epoch = datetime.fromisoformat(str(row.get("EPOCH")))
    except ValueError:
        raise ValueError("EPOCH", str(row.get("EPOCH"))[:40], "expected a time such as 2026-11-26T12:00:00") from None
    since = epoch.replace(tzinfo=None) - datetime(epoch.year, 1, 1)
    day = 1 + since / timedelta(days=1)
    catalogue = int(number("NORAD_CAT_ID", 0, 339_999))
    high, low = divmod(catalogue, 10_000)
    name = f"{high if high < 10 else 'ABCDEFGHJKLMNPQRSTUVWXYZ'[high - 10]}{low:04d}"     # Alpha-5 from 100,000 on
    star = number("BSTAR", -9, 9) if row.get("BSTAR") not in (None, "") else 0.0
    power = 0 if star == 0 else floor(log10(abs(star))) + 1
    drag = f"{'-' if star < 0 else ' '}{min(99999, round(abs(star) * 10.0 ** (5 - power))):05d}{power:+d}"
    first = f"1 {name}U {'':8} {epoch.year % 100:02d}{day:012.8f}  .00000000  00000+0 {drag} 0    0"
    means = {key: f"{number(key, least, most):{width}.{decimals}f}"
             for key, (width, decimals, least, most) in _MEANS.items()}
    means["ECCENTRICITY"] = means["ECCENTRICITY"][2:]               # its decimals alone
    second = f"2 {name} {' '.join(means.values())}    0"
    said = str(row.get("OBJECT_NAME") or f"sat{catalogue}").strip()
    if "->" in said:
        raise ValueError("OBJECT_NAME", said[:40], 'expected a name without "->", which rules use')
    return Elements(said, first + str(checksum(first + "0")), second + str(checksum(second + "0")), line)


def _wrong(number: int, text: str, kind: str, first: str) -> Iterator[Problem]:
    if not text.startswith(f"{kind} "):
        yield Problem("", text[:40] or "nothing", f"expected line {kind} of elements", number)
    elif len(text) != _LENGTH or not text.isascii():
        yield Problem("", f"{len(text)} characters", f"expected the {_LENGTH} of a line of elements", number)
    elif text[-1] != str(checksum(text)):
        yield Problem("", f"checksum {text[-1]}", f"expected {checksum(text)}", number)
    elif text[2:7] != first[2:7]:
        yield Problem("", f"satellite {text[2:7]}", f"expected {first[2:7]}, as in line 1", number)
    else:
        for what, start, end in _NUMBERS[kind]:
            if not re.fullmatch(r" *\d+\.?\d*", text[start:end]):
                yield Problem(what, text[start:end], f"expected a number in columns {start + 1} to {end}", number)


def checksum(text: str) -> int:
    """The last digit of a line: the sum of the digits before it, a minus sign counting as 1, modulo 10.

    >>> checksum("1 25544U 98067A   08264.51782528 -.00002182  00000-0 -11606-4 0  2927")
    7
    """
    return sum(1 if c == "-" else int(c) if c.isdigit() else 0 for c in text[:_LENGTH - 1]) % 10


def sidereal(jd: float, fraction: float) -> float:
    """Greenwich mean sidereal time of a Julian date, rad (IAU 1982).

    >>> round(float(np.degrees(sidereal(2451545.0, 0.0))), 4)
    280.4606
    """
    t = (jd - 2451545.0 + fraction) / 36525
    seconds = 67310.54841 + (876600 * 3600 + 8640184.812866) * t + 0.093104 * t * t - 6.2e-6 * t ** 3
    return float(np.radians(seconds % 86400 / 240))


class Propagated:
    """Satellites by SGP4 from the latest epoch on: a `Motion`. Raises MissingExtra without the package `sgp4`."""

    def __init__(self, satellites: Sequence[Elements]):
        with optional("constellations from two-line elements need", "orbits"):
            from sgp4.api import Satrec

        self._names = [one.name for one in satellites]
        self._satellites: list[Any] = [Satrec.twoline2rv(one.first, one.second) for one in satellites]
        self._jd, self._fraction = max((one.jdsatepoch, one.jdsatepochF) for one in self._satellites)
        self._turned = sidereal(self._jd, self._fraction)

    @property
    def count(self) -> int:
        """As a `Motion` says."""
        return len(self._satellites)

    def places(self, who: IntArray, t_s: FloatArray) -> FloatArray:
        """As a `Motion` says. Raises ValueError naming a satellite that has no place then, such as one that has
        decayed."""
        found = np.empty((len(who), 3))
        order = np.argsort(who, kind="stable")
        for mine in np.split(order, np.flatnonzero(np.diff(who[order])) + 1) if len(who) else []:
            one = int(who[mine[0]])
            days = self._fraction + t_s[mine] / 86400
            errors, places, _ = self._satellites[one].sgp4_array(np.full(len(mine), self._jd), days)
            if errors.any():
                raise ValueError(f"{self._names[one]} has no place {t_s[mine][errors != 0][0]:.0f} s after the epoch")
            found[mine] = places
        angle = self._turned + TURN * t_s
        x, y = found[:, 0].copy(), found[:, 1].copy()
        found[:, 0] = np.cos(angle) * x + np.sin(angle) * y
        found[:, 1] = np.cos(angle) * y - np.sin(angle) * x
        return found
