"""The one reader of tables in text files (CSV): a header with names, then rows; every mistake with its line and column.

UTF-8, with or without a BOM, any ends of lines. Between cells stands `;`, a tab, `,` or `|`: the first of these that
the first line has (or what Excel's line `sep=;` says). With `;` or tabs a decimal comma is a decimal point. Lines that
begin with #, empty lines and empty cells at the ends of lines are left out, columns that nobody asks for are passed
over. A column of durations, rates or shares has its unit in its name (`t_ms`, `rate [kB/s]`, `loss_%`) or in each value
("20 ms").
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import TypeVar, overload

import numpy as np

from emul.base.errors import Problem, ScenarioError
from emul.base.files import MOST_BYTES, read_text
from emul.base.units import LARGEST, bandwidth_bps, bandwidth_unit, duration_ns, duration_unit

T = TypeVar("T")

MISSING = frozenset(("", "-", "--", "?", ".", "na", "n/a", "nan", "null", "none"))      # marks of no value, lower case
_SAME = {"t": ("t", "time", "timestamp"), "latitude": ("latitude", "lat"),          # words for one thing
         "longitude": ("longitude", "lon", "lng", "long"),
         "node": ("node", "node_id"), "client": ("client", "client_id"), "device": ("device", "device_id"),
         "t_on": ("t_on", "on", "start", "begin", "arrival"), "t_off": ("t_off", "off", "end", "stop", "departure")}
MOST_ROWS = 5_000_000
_ENOUGH = 20        # problems of one file, before reading it further helps nobody

_NUMBER = re.compile(r"[+-]?(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][+-]?\d{1,3})?", re.ASCII)
_MARKS = '"#; \t\r\v\f\x1c\x1d\x1e\x1f'    # a text with one of these is more than cells with a comma between them
_PLAIN = re.compile(r"(\d{1,40})(?:\.(\d{0,40}))?", re.ASCII)
_CELL = re.compile(rf"({_NUMBER.pattern})\s*(\S.*)?", re.ASCII)
_COMMA = re.compile(r"([+-]?\d*),(\d+(?:[eE][+-]?\d+)?)(\s*[^\d\s.,].*)?", re.ASCII)     # a number with one for a point
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?", re.ASCII)
_TITLE = re.compile(r"(.*?)(?:[ _]*[\[(]([^\])]{1,20})[\])]|[ _]([^ _]{1,12}))?", re.DOTALL)


class NoTable(ValueError):
    """(line, found, expected): the text is no table from there on."""

    def __init__(self, line: int, found: str, expected: str):
        super().__init__(f"line {line}: {found}: {expected}")
        self.problem = Problem("", found, expected, line)


def records(text: str, blanks: bool = False) -> Iterator[tuple[int, list[str]]]:
    """(line, cells) of each row, the header among them. blanks: where no separator stands, blanks separate.

    Raises NoTable.
    """
    lines = enumerate(io.StringIO(text, newline=None), 1)
    separator: str | None = None
    found = False
    rows = 0
    points, commas = set[int](), set[int]()         # columns that have numbers with a decimal point, or comma
    for number, line in lines:
        content = line.strip()
        if not content or content[0] == "#":
            continue
        if not found:
            said = re.fullmatch(r"sep=([,;\t|])", content)
            separator, found = said[1] if said else _separator(line, blanks), True
            if said:
                continue
        if '"' in line:
            try:
                cells = next(csv.reader(chain((line,), (more for _, more in lines)), delimiter=separator or " ",
                                        strict=True, skipinitialspace=separator is None))
            except csv.Error as error:
                raise NoTable(number, str(error)[:60], "expected values with a comma, ; or tab between them") from None
        else:
            cells = (line if separator == "\t" else content).split(separator)
        if " " in content or "\t" in content:
            cells = [cell.strip() for cell in cells]
        if not any(cells):
            continue
        if separator in (";", "\t"):
            for column, cell in enumerate(cells):
                if "," in cell and (match := _COMMA.fullmatch(cell)) is not None and (
                        separator == ";" or not _THOUSANDS.fullmatch(cell)):
                    cells[column] = f"{match[1]}.{match[2]}{match[3] or ''}"
                    commas.add(column)
                elif "." in cell and _NUMBER.fullmatch(cell):
                    points.add(column)
            if commas & points:         # 1,234 is then 1.234 or 1234: nobody can tell
                raise NoTable(number, ", ".join(cells)[:60], "expected one decimal mark in a column, comma or point")
        rows += 1
        if rows > MOST_ROWS:
            raise NoTable(number, "", f"expected at most {MOST_ROWS:,} rows")
        yield number, cells


def _separator(line: str, blanks: bool) -> str | None:
    bare = re.sub(r'"[^"]*"', "", line.strip("\n"))
    return next((one for one in ";\t,|" if one in bare), None if blanks else ",")


@lru_cache(maxsize=1024)
def title(name: str) -> tuple[str, str | None]:
    """(what a column holds, lower case and with _ for blanks; its unit, None: none) by its name in the header.

    >>> title("t_on_ms"), title("Throughput (Mbps)"), title("x_m"), title("bytes_per_s"), title("DL_bitrate")
    (('t_on', 'ms'), ('throughput', 'Mbps'), ('x_m', None), ('', 'bytes/s'), ('dl_bitrate', None))
    """
    written = re.sub(r"[ _]per[ _]", "/", name.strip())
    if _is_unit(written):
        return "", written
    match = _TITLE.fullmatch(written)
    word, unit = written, None
    if match is not None and (match[2] is not None or (match[3] is not None and _is_unit(match[3]))):
        word, unit = match[1], (match[2] or match[3]).strip()
    return re.sub(r"[\s_]+", "_", word.strip().lower()), unit


def _is_unit(text: str) -> bool:
    """True of units that names of columns end in: of durations, rates and shares."""
    if text in ("%", "percent", "pct"):
        return True
    return any(unit(text, usual=True) is not None for unit in (duration_unit, bandwidth_unit))


class PlainRows(Sequence[tuple[int, list[str]]]):
    """The rows of a text of nothing but cells with a comma between them, each made when it is asked for.

    cells: of all rows, one after the other. line: of the first.
    """

    # A run over a trace of a million rows takes 1.3 s of CPU and 616 MB so, and 3.9 s and 840 MB with a list of cells
    # for each row (two pairs; `benchmarks/bench_growth.py`).
    def __init__(self, cells: list[str], width: int, line: int):
        self._cells, self._width, self._line = cells, width, line

    @classmethod
    def of(cls, text: str) -> tuple[list[str], PlainRows] | None:
        """The header of a text and its rows; None: the text is not that plain, or a row has not the header's cells."""
        if (not text.isascii() or any(mark in text for mark in _MARKS) or "\n\n" in text or "\n," in text
                or text[:1] in ("", ",", "\n") or text.startswith("sep=")):
            return None
        first, _, rest = text.removesuffix("\n").partition("\n")
        header = first.split(",")
        if not rest or len(header) < 2 or not header[-1]:
            return None
        marks = np.frombuffer(rest.encode(), np.uint8)
        marks = np.append(marks[(marks == ord(",")) | (marks == ord("\n"))], np.uint8(ord("\n")))
        ends = np.full(len(header), ord(","), np.uint8)
        ends[-1] = ord("\n")
        count, left = divmod(len(marks), len(header))
        if left or count >= MOST_ROWS or not (marks.reshape(count, -1) == ends).all():
            return None
        return header, cls(rest.replace("\n", ",").split(","), len(header), 2)

    def __len__(self) -> int:
        return len(self._cells) // self._width

    @overload
    def __getitem__(self, place: int) -> tuple[int, list[str]]: ...

    @overload
    def __getitem__(self, place: slice) -> list[tuple[int, list[str]]]: ...

    def __getitem__(self, place: int | slice) -> tuple[int, list[str]] | list[tuple[int, list[str]]]:
        if isinstance(place, slice):
            return [self[one] for one in range(*place.indices(len(self)))]
        at = range(len(self))[place]
        return self._line + at, self._cells[at * self._width:(at + 1) * self._width]

    def column(self, at: int) -> list[str]:
        """The cells of a column, by its place."""
        return self._cells[at::self._width]


@dataclass
class TextTable:
    """A file's rows: `header`, and `rows` of (line, cells). Problems found while parsing gather in `problems`."""

    path: Path
    header: list[str]
    rows: Sequence[tuple[int, list[str]]]
    problems: list[Problem] = field(default_factory=list)
    header_line: int | None = None

    def find(self, name: str) -> str | None:
        """The column called `name`, whether or not its name has a unit; None where there is none.

        Raises ScenarioError if there are two.
        """
        if self.header.count(name) == 1:
            return name
        words = _SAME.get(name, (name,))
        found = [one for one in self.header
                 if one and (title(one)[0] in words or one.lower().replace(" ", "_") in words)]
        if len(found) > 1:
            self.problem(self.header_line, "", ", ".join(found)[:80], f"expected one column {name}")
            self.check()
        return found[0] if found else None

    def column(self, name: str, parse: Callable[[str], T]) -> list[T | None]:
        """The values of a column, parsed; None and a problem for each that `parse` refuses with a ValueError."""
        at = self.header.index(self.find(name) or name)
        values: list[T | None] = []
        for place, cell in enumerate(self.cells(at)):
            try:
                values.append(parse(cell))
            except ValueError as error:
                values.append(None)
                self.problem(self.rows[place][0], name, f'"{cell[:40]}"', str(error))
        return values

    def cells(self, at: int) -> Sequence[str]:
        """The cells of the column at a place of the header."""
        rows = self.rows
        return rows.column(at) if isinstance(rows, PlainRows) else [cells[at] for _, cells in rows]

    def _measured(self, name: str, word: str, what: str, reader: Callable[[Fraction | None], Callable[[str], T]],
                  factor: Callable[[str], Fraction | None]) -> list[T | None]:
        """The values of a column with a unit. word: a name of one, for errors; what: units of what; reader: of cells in
        the unit of the column."""
        written = self.find(name) or name
        unit = title(written)[1]
        one = None if unit is None else factor(unit)
        if unit is not None and one is None:
            self.problem(self.header_line, written, f'"{unit[:20]}"', f"expected a unit of {what}")
            return [None] * len(self.rows)
        before = len(self.problems)
        values = self.column(written, reader(one))
        bare = [p for p in self.problems[before:] if p.expected.endswith("the unit is missing")]
        if len(bare) > 1:               # one mistake, of the header, and not one of each row
            others = [p for p in self.problems[before:] if not p.expected.endswith("the unit is missing")]
            self.problems[before:] = [*others, replace(bare[0], expected=(
                f"{bare[0].expected}, here and in {len(bare) - 1} more; or in the name of the column, as in {word}"))]
        return values

    def durations(self, name: str) -> list[int | None]:
        """The values of a column of durations in ns."""
        return self._measured(name, f"{name}_ms", "time such as ms", durations_in, duration_unit)

    def rates(self, name: str) -> list[int | None]:
        """The values of a column of rates in bit/s."""
        return self._measured(name, f"{name}_mbps", "rates such as Mbit/s", rates_in, bandwidth_unit)

    def shares(self, name: str) -> list[float | None]:
        """The values of a column of shares, from 0 to 1."""
        return self._measured(name, f"{name}_%", "shares: none, or %", lambda unit: lambda text: share(text, unit),
                              lambda unit: Fraction(1, 100) if unit in ("%", "percent", "pct") else None)

    def unique(self, name: str) -> None:
        """Note a problem for each value of a column that an earlier row has."""
        at, seen = self.header.index(self.find(name) or name), set[str]()
        for line, cells in self.rows:
            if cells[at] in seen:
                self.problem(line, name, f'"{cells[at][:40]}"', "there already")
            seen.add(cells[at])

    def problem(self, line: int | None, place: str, found: str, expected: str) -> None:
        """Note what is wrong in a line, at `place`: a column, as a rule. `check` raises all at once."""
        self.problems.append(Problem((self.find(place) or place) if place else "", found, expected, line))

    def check(self) -> None:
        """Raises ScenarioError if there are problems; the first twenty of them."""
        if self.problems:
            raise ScenarioError(str(self.path), sorted(self.problems, key=lambda p: p.line or 0)[:_ENOUGH])


def rows(path: Path, most: int = MOST_BYTES) -> TextTable:
    """The header of a file of at most `most` bytes and its rows, each as long as the header. Raises ScenarioError."""
    try:
        return parse(read_text(path, most), path)
    except OSError as error:
        raise ScenarioError(str(path), [Problem("", error.strerror or "unreadable", "expected a CSV file")]) from None


def parse(text: str, path: Path) -> TextTable:
    """As `rows`, of a text; `path` heads the errors."""
    plain = PlainRows.of(text)
    if plain is not None:
        return TextTable(path, *plain, header_line=1)
    try:
        found = list(records(text))
    except NoTable as error:
        raise ScenarioError(str(path), [error.problem]) from None
    if not found:
        return TextTable(path, [], [])
    first, header = found[0]
    while header and not header[-1]:            # a separator at the end of the line
        header.pop()
    width = len(header)
    table = TextTable(path, header, found[1:], header_line=first)
    for number, cells in table.rows:
        if len(cells) > width and not any(cells[width:]):
            del cells[width:]
        if len(cells) != width:
            table.problem(number, "", f"{len(cells)} values", f"expected {width}, as the header has")
    table.check()
    return table


def read(path: Path, *forms: Sequence[str]) -> TextTable:
    """The rows of a file whose header has the columns of one of `forms`, in any order. Raises ScenarioError.

    A column of a form ending in "=" has a unit, the first of those behind it as a rule: "t=s" stands for t, t_s, t_ms,
    "Time (s)". Of several forms that fit the one with most columns counts; if two have columns that
    the other lacks, nobody can tell which of them is meant.
    """
    return require(rows(path), *forms)


def require(found: TextTable, *forms: Sequence[str]) -> TextTable:
    """The table, whose header has the columns of one of `forms`, as in `read`. Raises ScenarioError."""
    expected = "expected a header with the columns " + " or ".join(
        ", ".join(n.replace("=", "_") + " (or another unit)" * ("=" in n) for n in form) for form in forms)
    names = [{name.partition("=")[0] for name in form} for form in forms]
    fitting = [each for each in names if all(found.find(name) for name in each)]
    if not found.header:
        found.problem(None, "", "no rows", expected)
    elif not fitting:
        found.problem(found.header_line, "", ",".join(found.header)[:80], expected)
    elif set[str]().union(*fitting) not in fitting:
        found.problem(found.header_line, "", ",".join(found.header)[:80], expected + ", not both")
    elif not found.rows:
        found.problem(found.header_line, "", "no rows", "expected at least one row below the header")
    found.check()
    return found


# --- cells ----------------------------------------------------------------------------------------------------------

def missing(text: str) -> bool:
    """True of an empty cell and of the marks that stand for no value.

    >>> missing("-"), missing("NaN"), missing("0")
    (True, True, False)
    """
    return text.lower() in MISSING


def finite(text: str) -> Fraction:
    """A plain number, exactly, with an exponent of at most three digits. Raises ValueError."""
    if not _NUMBER.fullmatch(text) or not math.isfinite(float(text)):
        raise ValueError("expected a number" + (
            ", found none" if missing(text) else " without marks of thousands" if _THOUSANDS.fullmatch(text) else ""))
    return Fraction(text)


def amount(text: str, *, unit: str = "a number", below: float = math.inf) -> float:
    """A finite number, 0 or above. Raises ValueError: what is expected, in `unit`."""
    found = float(finite(text)) if _NUMBER.fullmatch(text) else math.nan
    if not (math.isfinite(found) and 0 <= found < below):
        raise ValueError(f"expected {unit}, 0 or above")
    return found


def share(text: str, unit: Fraction | None = None) -> float:
    """A number in [0, 1], or as 30%; in parts of `unit` where that is given. Raises ValueError."""
    match = _CELL.fullmatch(text)
    found = math.nan
    if match is not None and match[2] in (None, "%"):
        found = float(finite(match[1]) * (unit or (Fraction(1, 100) if match[2] else 1)))
    if not 0 <= found <= 1:
        raise ValueError("expected a probability in [0, 1], or in %")
    return found


def duration(text: str, unit: Fraction | None) -> int:
    """Nanoseconds in "20 ms", or in a plain number of the column's unit in ns. Raises ValueError: what is expected."""
    return _quantity(text, unit, duration_unit, duration_ns, "a duration of 0 or more, below 2^63 ns")


def rate(text: str, unit: Fraction | None) -> int:
    """bit/s in "5 Mbit/s", or in a plain number of the column's unit in bit/s. Raises ValueError: what is expected."""
    return _quantity(text, unit, bandwidth_unit, bandwidth_bps, "a rate of 0 or more, below 2^63 bit/s")


def durations_in(unit: Fraction | None) -> Callable[[str], int]:
    """A function that reads the cells of a column as `duration` does, but faster."""
    return _plainly(unit, lambda text: duration(text, unit))


def rates_in(unit: Fraction | None) -> Callable[[str], int]:
    """A function that reads the cells of a column as `rate` does, but faster."""
    return _plainly(unit, lambda text: rate(text, unit))


def _plainly(unit: Fraction | None, otherwise: Callable[[str], int]) -> Callable[[str], int]:
    """A function that reads plain numbers of `unit`, and leaves each other cell to `otherwise`."""
    # In integers, since nearly all cells are such numbers: a cell with three decimals takes 1.2 us so, one without 0.3,
    # and by a fraction both take 7 (beside other load).
    if unit is None:
        return otherwise
    scales = [(unit / 10**decimals).as_integer_ratio() for decimals in range(41)]
    whole = scales[0][0] if scales[0][1] == 1 else 0
    match = _PLAIN.fullmatch

    def read(text: str) -> int:
        if whole and text.isdigit() and text.isascii() and len(text) < 10:
            result = int(text) * whole
        else:
            plain = match(text)
            if plain is None:
                return otherwise(text)
            digits, decimals = plain.groups("")
            over, under = scales[len(decimals)]
            result, rest = divmod(int(digits + decimals) * over, under)
            if rest:
                result += 2 * rest > under or (2 * rest == under and result % 2)    # half to even, as `round` does
        return result if result <= LARGEST else otherwise(text)         # which says so
    return read


def _quantity(text: str, unit: Fraction | None, factor: Callable[[str], Fraction | None],
              exact: Callable[[object], int], expected: str) -> int:
    """Rounded to whole ns or bit/s: measured values need not be whole."""
    match = _CELL.fullmatch(text)
    if unit is None:
        own = factor(match[2]) if match is not None and match[2] else None
        if match is None or own is None:
            return exact(text)
        unit, text = own, match[1]
    elif match is not None and match[2] and re.fullmatch(r"[A-Za-zµμ%/ ]+", match[2]):
        raise ValueError(f"expected {expected}, without a unit: the header has it")
    result = round(finite(text) * unit)
    if not 0 <= result <= LARGEST:
        raise ValueError(f"expected {expected}")
    return result


# --- files ----------------------------------------------------------------------------------------------------------

def stamp(path: Path) -> tuple[int, int] | None:
    """The mark that changes when the file does: its time and size; None where there is none."""
    try:
        stat = path.stat()
    except (OSError, ValueError):           # ValueError: a name with a null byte
        return None
    return stat.st_mtime_ns, stat.st_size


def in_short(error: ScenarioError) -> tuple[str, str]:
    """(found, expected) of a file's first problem, for the place that names the file."""
    first = error.problems[0]
    where = ", ".join(part for part in (f"line {first.line}" if first.line else "", first.place, first.found) if part)
    more = f" ({len(error.problems) - 1} more)" if len(error.problems) > 1 else ""
    return f"{error.file}: {where}", first.expected + more


def ascending(found: TextTable, name: str, times: Sequence[int | float | None], *, least: int | float = 0) -> None:
    """Note a problem for the first row unless it is `least`, and for each that is not above the one before."""
    before: int | float | None = None
    column = found.find(name) or name
    for (line, cells), t in zip(found.rows, times, strict=True):
        if t is None:
            continue
        text = f'"{cells[found.header.index(column)][:40]}"'
        if before is None and t != least:
            found.problem(line, column, text, f"expected {least}: the first row says what holds from the beginning")
        elif before is not None and t == before:
            found.problem(line, column, text, "expected each only once: the row before has the same")
        elif before is not None and t < before:
            found.problem(line, column, text, "expected rows in ascending order")
        before = t
