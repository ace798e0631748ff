"""The parts of every figure of a report: the figure itself, its data by name, colours, units.

A chart refers to its data by name, so that the page can hold them packed and a round can be exchanged for another.
Colours are tokens of `emul.report.palette`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import altair as alt
import pandas as pd

from emul.base.plain import PlainDict

KIND_COLOURS = ["$s1", "$s4", "$late", "$lost"]         # of `data.KINDS`


@dataclass(frozen=True)
class Shown:
    """The content of a figure for one of the things among which a reader chooses. `tokens`: as of `Figure`."""

    text: str
    tokens: PlainDict
    height: int
    frames: dict[str, pd.DataFrame]
    table: pd.DataFrame


@dataclass(frozen=True)
class Choice:
    """A list to choose from, for one figure or several: shown[figure][one of the labels]. `first`: shown at first."""

    labels: list[str]
    first: int
    shown: list[list[Shown]]


@dataclass(frozen=True)
class Figure:
    """A chart with all that a page, a file and a reader without eyes need.

    key: its name in file names and links. text: what it shows and how to read it. words: what is to be seen in it.
    frames: the data it names. table: the same for readers and for CSV. tokens: what it is filled with besides colours.
    least_width: px, below which it scrolls. more: further data, by name, for files. elastic: its height may shrink with
    its width, since it has no rows.
    """

    key: str
    title: str
    text: str
    words: str
    chart: alt.TopLevelMixin
    frames: dict[str, pd.DataFrame]
    table: pd.DataFrame
    tokens: PlainDict = field(default_factory=dict)
    height: int | None = None
    least_width: int = 280
    more: dict[str, pd.DataFrame] = field(default_factory=dict)
    elastic: bool = False

    def spec(self) -> PlainDict:
        """The chart in Vega-Lite, without its data and without addresses of schemas."""
        spec = self.chart.to_dict(validate=False)
        for key in ("$schema", "datasets", "config"):
            spec.pop(key, None)
        if self.height is not None:
            spec["height"] = self.height
        return spec


class _NamedChart(alt.Chart):
    """Makes channels of texts such as "mean:Q" itself: Altair compares all classes of its schema for each of them, and
    that was a third of what the figures of a page took."""

    def encode(self, *args: object, **channels: object) -> Self:
        made: dict[str, Any] = {key: _channel(key, given) for key, given in channels.items()}
        return super().encode(*args, **made)


def _channel(key: str, given: object) -> object:
    if isinstance(given, list):
        return [_channel(key, one) for one in given]
    return getattr(alt, key[0].upper() + key[1:])(given) if isinstance(given, str) else given


def named(name: str) -> alt.Chart:
    """A chart of the data of this name in `Figure.frames`."""
    return _NamedChart(alt.NamedData(name=name))


def whole(chart: Any, **size: Any) -> Any:
    """The chart as wide as its place on the page."""
    return chart.properties(width="container", autosize=alt.AutoSizeParams(type="fit-x", contains="padding"), **size)


def in_rows(chart: Any, rows: int, px: int = 22, least: int = 2) -> Any:
    """The same with a row, px high, for each of so many names; as high as `least` rows where they are fewer."""
    return whole(chart, height=px * max(least, rows))


def around(values: Sequence[float]) -> alt.Scale:
    """A scale that need not begin at 0. Of values that are all equal it has room on both sides: else Vega has a single
    tick, which it labels "0" for want of digits that differ."""
    known = [float(value) for value in values if value == value]
    if not known or min(known) < max(known):
        return alt.Scale(zero=False)
    room = abs(known[0]) / 10
    return alt.Scale(domain=[known[0] - room, known[0] + room] if room else [0, 1], zero=False)


def coloured(field: str, domain: list[str], colours: list[str], title: str | None = None, **more: Any) -> alt.Color:
    """A colour encoding of names, each with its token."""
    return alt.Color(f"{field}:N", title=title, scale=alt.Scale(domain=domain, range=colours), **more)


def row_axis(field: str, order: Sequence[str] | alt.SortField, width: int = 220) -> alt.Y:
    """The axis of a chart with a row a name, from top to bottom in this order; px that a name may take."""
    return alt.Y(f"{field}:N", title=None, sort=order, axis=alt.Axis(labelLimit=width))


def round_axis(first: int, last: int) -> alt.Axis:
    """Ticks at whole rounds; `tickMinStep` does not see to that where a run has few."""
    return alt.Axis(tickCount=max(1, min(int(last - first), 10)))


def ranked(values: pd.Series, names: Iterable[str]) -> pd.Series:
    """The place of each value among the names: the column `rank`, by which `stacked` orders its parts. Vega orders them
    by the alphabet otherwise."""
    return values.map({name: place for place, name in enumerate(names)})


def stacked(chart: alt.Chart, y: alt.Y, x: alt.X, parts: str, names: Iterable[str], colours: list[str],
            tooltip: list[str | alt.Tooltip], columns: int = 2) -> alt.Chart:
    """Bars along x, a row each, of `parts` one after the other by their `rank`. columns: of the legend above them."""
    return chart.mark_bar().encode(
        y=y, x=x, color=coloured(parts, list(names), colours, legend=alt.Legend(columns=columns, title=None)),
        order=alt.Order("rank:Q"), tooltip=tooltip)


def columns(names: Sequence[str]) -> int:
    """Of a legend above a narrow chart, so that its names fit.

    >>> columns(["fedavg", "secagg"]), columns(["outage.p = 0.1, threshold = 3"])
    (3, 2)
    """
    return max(1, min(3, 70 // (5 + max(map(len, names), default=0))))


def amount(value: float, unit: str) -> str:
    """A number with its unit, as a sentence has it."""
    return f"{value:.4g} {unit}"


def byte_unit(most: float) -> tuple[str, float]:
    """The unit for an axis of bytes that goes up to `most`, and its bytes.

    >>> byte_unit(14_632), byte_unit(999)
    (('kB', 1000.0), ('B', 1.0))
    """
    return next(((unit, size) for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)) if most >= size), ("B", 1.0))


def slug(text: str) -> str:
    """Lower-case letters and digits with dashes between them, for names of files and anchors; "run" where nothing is
    left."""
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-").lower() or "run"


def slugs(names: Sequence[str]) -> list[str]:
    """A slug for each name, no two alike.

    >>> slugs(["a b", "A-b", "c"])
    ['a-b', 'a-b-2', 'c']
    """
    found: list[str] = []
    for name in names:
        first = slug(name)
        more = (f"{first}-{k}" for k in itertools.count(2))
        found.append(first if first not in found else next(one for one in more if one not in found))
    return found
