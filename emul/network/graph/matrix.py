"""Measured matrices: what lies between any two sites, from end to end, as pings, speed tests and clouds give it.

A file is square, with the names of the sites in the first line and the first column, in one of them or in neither, or
has one line a pair (`from,to,rtt_ms`). Latencies are round trips in ms and rates are in Mbit/s, each from the row to
the column, unless the file or the scenario says another unit or that latencies are one way. The diagonal is passed
over. If a pair was measured in one direction only, the other one has the same values. A pair without a latency has no
link.

The result is a graph whose edges are those links. A round trip says nothing of its two directions: each has half.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import networkx as nx

from emul.base.errors import Problem
from emul.base.names import listed
from emul.base.tables import NoTable, missing, records, title
from emul.base.units import LARGEST, bandwidth_unit, duration_unit
from emul.network.graph.reading import STATISTICS, ends_of
from emul.network.graph.topology import Measured, TopologyError, TopologySpec, shortened, unknown

Pairs = dict[tuple[str, str], Fraction]         # (from, to) -> ns or bit/s

_NOTHING = ("inf", "infinity", "timeout", "unreachable", "x", "*")      # beside the marks of all tables
_ROUND_TRIP = re.compile(r"rtt|round|ping")
_ONE_WAY = re.compile(r"one_?way|owd|latency|delay")
_RATE = re.compile(r"rate|bandwidth|throughput|goodput|capacity|speed|bps|bit/s")
_MIDDLE = re.compile(r"(?:^|[ _])(?:avg|average|mean|median|p50)(?:$|[ _\[(])")   # of least, mean and largest
_CELL = re.compile(r"([+-]?(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:[eE][+-]?\d{1,2})?)\s*([^\s\d.,+-].*)?", re.ASCII)
_APART = Fraction(1, 10)                        # two round trips of a pair that differ by more are told


class _File:
    """The values of one file: `names` in its order, `pairs`; `word` and `unit` are what its header says of them."""

    def __init__(self, spec: Measured, key: str, repeated: str | None):
        self.spec = spec
        self.names: list[str] = []
        self.pairs: Pairs = {}
        self.problems: list[Problem] = []
        self._of = {"matrix": (duration_unit, "ms", "a duration"), "rates": (bandwidth_unit, "Mbit/s", "a rate")}[key]
        self._key = key
        self._word = ""
        self._unit: str | None = None
        self._rule = None if repeated is None else STATISTICS[repeated]
        try:
            rows = list(records(_text(spec.file), blanks=True))
        except NoTable as error:
            rows, self.problems = [], [error.problem]
        if not rows and not self.problems:
            self._problem(None, "", "no rows", "expected a matrix, or lines such as from,to,rtt_ms")
        if rows:
            self._read(rows)
        if self.problems:
            raise TopologyError(str(spec.file), shortened(self.problems))

    @property
    def round_trip(self) -> bool:
        if self.spec.values is not None:
            return self.spec.values == "round_trip"
        return bool(_ROUND_TRIP.search(self._word)) or not _ONE_WAY.search(self._word)

    def _problem(self, line: int | None, place: str, found: str, expected: str) -> None:
        self.problems.append(Problem(place, found[:60], expected, line))

    def _read(self, rows: list[tuple[int, list[str]]]) -> None:
        head, below = rows[0][1], {cells[0] for _, cells in rows[1:]}
        ends = ends_of(head, letters=any(map(_says_what, head)) and not below & {*head})
        of_pairs = all(len(cells) == 3 and not _is_value(cells[0]) and not _is_value(cells[1]) for _, cells in rows)
        if ends is not None:
            self._list(rows, *ends)
        elif of_pairs and _is_value(rows[-1][1][2]):
            self._list(rows if not _is_value(rows[0][1][2]) else [(0, ["from", "to", ""]), *rows], 0, 1)
        else:
            self._square(rows)

    # --- one line a pair

    def _list(self, rows: list[tuple[int, list[str]]], source: int, target: int) -> None:
        head_line, head = rows[0]
        at = self._column(head_line, head, source, target)
        if at is None:
            return
        self._word, self._unit = title(head[at])
        found: dict[tuple[str, str], list[tuple[Fraction, int]]] = {}
        for line, cells in rows[1:]:
            if max(source, target) >= len(cells) or not cells[source] or not cells[target]:
                self._problem(line, "", ",".join(cells), "expected two sites")
                continue
            pair = cells[source], cells[target]
            self.names += [name for name in dict.fromkeys(pair) if name not in self.names]
            if pair[0] == pair[1]:
                continue
            value = self._value(line, f"{pair[0]}->{pair[1]}", cells[at] if at < len(cells) else "")
            if value is not None:
                found.setdefault(pair, []).append((value, line))
        for pair, values in found.items():
            alike = {value for value, _ in values}
            if len(alike) > 1 and self._rule is None:
                other = next(line for value, line in values if value != values[0][0])
                self._problem(other, f"{pair[0]}->{pair[1]}", f"line {values[0][1]} and line {other}", (
                    "say different values: expected every pair once in each direction, or topology.repeated: mean, "
                    "median or first"))
            else:
                self.pairs[pair] = values[0][0] if self._rule is None else Fraction(self._rule([v for v, _ in values]))

    def _column(self, line: int, head: list[str], source: int, target: int) -> int | None:
        """The column of the values, found by its name, or the only one that there is."""
        others = [i for i in range(len(head)) if i not in (source, target) and (head[i] or len(head) == 3)]
        kinds = (_RATE,) if self._key == "rates" else (_ROUND_TRIP, _ONE_WAY, _MIDDLE)
        for kind in kinds:
            named = [i for i in others if kind.search(head[i].lower())]
            middle = [i for i in named if _MIDDLE.search(head[i].lower())]
            if len(named) == 1 or len(middle) == 1:
                return (middle or named)[0]
            if named:
                self._problem(line, "", ", ".join(head[i] for i in named), "expected one such column")
                return None
        if len(others) == 1:
            return others[0]
        self._problem(line, "", ",".join(head), "expected a column such as " + (
            "rate_mbits" if self._key == "rates" else "rtt_ms or one_way_ms"))
        return None

    # --- square

    def _square(self, rows: list[tuple[int, list[str]]]) -> None:
        while len({len(cells) for _, cells in rows}) == 1 and not any(cells[-1] for _, cells in rows):
            rows = [(line, cells[:-1]) for line, cells in rows]     # a separator at the end of each line
        line, first = rows[0]
        width = max(len(cells) for _, cells in rows)
        below = [cells[0] for _, cells in rows[1:]]
        numbers = [[str(i) for i in range(begin, begin + len(rows) - 1)] for begin in (0, 1)]       # pandas', R's names
        # Names that are numbers, on both sides. The first line of a symmetric matrix without names reads the same from
        # left and from above, too, but has a value or a mark of none at its own diagonal, where names leave a blank or
        # have a word.
        both_sides = len(first) > 1 and sorted(first[1:]) == sorted({*below}) and (
            not _is_value(first[0]) or not first[0] or (below in numbers and not _CELL.fullmatch(first[0])))
        numbered = first in numbers or both_sides
        has_header = numbered or not all(map(_is_value, first[1:])) or len(rows) == width + 1
        body = rows[1:] if has_header else rows
        rows_named = (not all(map(_is_value, below)) or (numbered and first not in numbers) or len(first) < width
                      or (not has_header and width == len(rows) + 1))
        if not body:
            self._problem(line, "", ",".join(first), "expected a line for each site below the names")
            return
        if has_header and rows_named and len(first) == width:
            self._word, self._unit = title(first[0])
        columns = first[1:] if rows_named and len(first) == width else first
        if not has_header:
            columns = [cells[0] for _, cells in body] if rows_named else [f"site{i}" for i in range(1, len(body) + 1)]
        places = [cells[0] for _, cells in body] if rows_named else columns
        for names in (columns, places):
            twice = [name for i, name in enumerate(names) if name in names[:i] or not name]
            if twice:
                self._problem(line, "", twice[0] or "no name", "expected every site once, by its name")
        both, lines, heads = set(columns) & set(places), set(places), set(columns)
        dist = len(columns) == len(places) > 1 and (places[:-1] == columns[1:] or columns[:-1] == places[1:])   # as R's
        if len(places) != len(body) or (both and not (lines <= heads or heads <= lines or dist)):       # a typo
            odd = [name for name in [*places, *columns] if name not in both] or [f"{len(body)} lines"]
            self._problem(line, "", listed(odd, 5), f"expected the same {len(columns)} sites in lines and columns")
        if self.problems:
            return
        self.names = list(dict.fromkeys([*places, *columns]))
        values = [cells[1:] if rows_named else cells for _, cells in body]
        for cells in values:
            while len(cells) > len(columns) and not cells[-1]:
                cells.pop()
        n, lines_of = len(columns), dict[tuple[str, str], int]()
        if n > 1 and [len(cells) for cells in values] in ([*range(n, 0, -1)], [*range(n - 1, -1, -1)]):
            values = [[""] * (n - len(cells)) + cells for cells in values]      # the upper triangle, moved to the left
        for place, (line, _), cells in zip(places, body, values, strict=True):
            if len(cells) > n:
                self._problem(line, place, f"{len(cells)} values", f"expected {n}, one a site")
                continue
            for column, text in zip(columns, cells, strict=False):      # shorter: a triangle
                value = None if place == column else self._value(line, f"{place}->{column}", text, zero=True)
                if value is not None:
                    self.pairs[place, column] = value
                    lines_of[place, column] = line
        if places == columns:
            self._drop_triangle_of_zeros(places)
        for (a, b), value in self.pairs.items():
            if not value and self._key == "rates":
                self._refuse_bound(lines_of[a, b], f"{a}->{b}", "0")

    def _drop_triangle_of_zeros(self, names: Sequence[str]) -> None:
        """`numpy.triu` leaves zeros below the diagonal: nothing was measured there."""
        at = {name: i for i, name in enumerate(names)}
        halves = [[pair for pair in self.pairs if (at[pair[0]] < at[pair[1]]) == upper] for upper in (True, False)]
        zeros = [not any(self.pairs[pair] for pair in half) for half in halves]
        if zeros[0] != zeros[1]:
            for pair in halves[zeros.index(True)]:
                del self.pairs[pair]

    def _value(self, line: int, place: str, text: str, zero: bool = False) -> Fraction | None:
        """ns or bit/s; None where nothing was measured. zero: also a rate may be 0."""
        unit_of, usual, what = self._of
        if missing(text) or text.lower() in _NOTHING:
            return None
        match = _CELL.fullmatch(text)
        unit = self.spec.unit or self._unit or usual if match is None or match[2] is None else match[2]
        factor = unit_of(unit)
        if match is None or factor is None:
            self._problem(line, place, text, f"expected {what} such as 20 {usual} or 20, or - where none was measured")
            return None
        value = Fraction(match[1]) * factor
        if not (value > 0 or (value == 0 and (zero or self._key == "matrix"))) or value > LARGEST:
            self._refuse_bound(line, place, text)
            return None
        return value

    def _refuse_bound(self, line: int, place: str, text: str) -> None:
        bound = "of 0 or more" if self._key == "matrix" else "above 0"
        self._problem(line, place, text, f"expected {self._of[2]} {bound}, or - where none was measured")


def _text(path: Path) -> str:
    from emul.base.files import read_text

    try:
        return read_text(path)
    except OSError as error:
        raise TopologyError(str(path), [Problem("", error.strerror or "unreadable", "expected a matrix")]) from None


def _is_value(text: str) -> bool:
    """True of a number with or without a unit, and of marks of none; an address or a name that begins with digits is
    none."""
    match = _CELL.fullmatch(text)
    return missing(text) or text.lower() in _NOTHING or (match is not None and (
        match[2] is None or duration_unit(match[2]) is not None or bandwidth_unit(match[2]) is not None))


def _says_what(name: str) -> bool:
    """True of names of columns of measurements."""
    kinds = (_ROUND_TRIP, _ONE_WAY, _RATE, _MIDDLE)
    return title(name)[1] is not None or any(kind.search(name.lower()) for kind in kinds)


def matrix_graph(spec: TopologySpec) -> tuple[nx.DiGraph, list[str]]:
    """The graph of end-to-end links, with what its files leave open. Raises TopologyError."""
    assert spec.matrix is not None
    late = _File(spec.matrix, "matrix", spec.repeated)
    rates = None if spec.rates is None else _File(spec.rates, "rates", spec.repeated)
    if rates is not None:
        unnamed = list(rates.names) == [f"site{i}" for i in range(1, len(late.names) + 1)]
        at = dict(zip(rates.names, late.names if unnamed else rates.names, strict=True))
        strange = [name for name in at.values() if name not in late.names]
        if strange:
            raise TopologyError(str(rates.spec.file), shortened([
                Problem("", name, unknown(name, late.names, f"site of {late.spec.file.name}")) for name in strange]))
        rates.pairs = {(at[u], at[v]): value for (u, v), value in rates.pairs.items()}
    graph = nx.DiGraph()
    graph.add_nodes_from((name, {"label": name}) for name in late.names)
    without: list[str] = []
    apart: list[tuple[Fraction, str]] = []
    for i, u in enumerate(late.names):
        for v in late.names[i + 1:]:
            there, back = late.pairs.get((u, v)), late.pairs.get((v, u))
            there, back = back if there is None else there, there if back is None else back
            if there is None or back is None:
                without.append(f"{u}-{v}")
                continue
            if late.round_trip:
                if abs(there - back) > _APART * max(there, back):
                    apart.append((abs(there - back), f"{u}-{v}"))
                whole = round((there + back) / 2)
                ways = whole // 2, whole - whole // 2           # to the nanosecond as measured
            else:
                ways = round(there), round(back)
            for (a, b), latency in zip(((u, v), (v, u)), ways, strict=True):
                graph.add_edge(a, b, latency_ns=latency)
                rate = None if rates is None else rates.pairs.get((a, b), rates.pairs.get((b, a)))
                if rate is not None:
                    graph.edges[a, b]["bandwidth_bps"] = max(1, round(rate))
    notes = []
    if without:
        notes.append(f"{late.spec.file}: nothing was measured between {listed(without, 5)}: no link is there")
    if apart:
        notes.append(f"{late.spec.file}: the two round trips of {len(apart)} pairs differ by more than 10 %, most of "
                     f"all {max(apart)[1]}: their mean counts; if they are one way, say matrix: {{file: ..., "
                     "values: one_way}")
    return graph, notes
