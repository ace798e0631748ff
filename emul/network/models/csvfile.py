"""CSV files of traces and measurements: a header with names, then rows; every mistake with its line and column.

A column of durations has its unit in the name (`t_ms`, `latency_us`) or in each value ("20 ms"). Lines that begin
with # and empty lines are left out.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TypeVar

from emul.base.errors import Problem, ScenarioError
from emul.base.units import LARGEST, duration_ns

T = TypeVar("T")

UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1, "min": 60 * 10**9, "h": 3600 * 10**9}
_ENOUGH = 20        # problems of one file, before reading it further helps nobody


@dataclass
class CsvFile:
    """A file's rows: `header`, and `rows` of (line, cells). Problems found while parsing gather in `problems`."""

    path: Path
    header: list[str]
    rows: list[tuple[int, list[str]]]
    problems: list[Problem] = field(default_factory=list)
    header_line: int | None = None

    def find(self, name: str) -> str | None:
        """The column called `name`, or `name_ms` and the like; None where there is none."""
        return next((h for h in self.header if h == name or (h.startswith(f"{name}_") and h[len(name) + 1:] in UNITS)),
                    None)

    def column(self, name: str, parse: Callable[[str], T]) -> list[T | None]:
        """The values of a column, parsed; None and a problem for each that `parse` refuses with a ValueError."""
        at = self.header.index(name)
        values: list[T | None] = []
        for line, cells in self.rows:
            try:
                values.append(parse(cells[at]))
            except ValueError as error:
                values.append(None)
                self.problem(line, name, f'"{cells[at][:40]}"', str(error))
        return values

    def durations(self, name: str) -> list[int | None]:
        """The values of the column of durations `name` (as `find` gives it) in ns."""
        unit = UNITS.get(name.rpartition("_")[2]) if "_" in name else None
        return self.column(name, lambda text: duration(text, unit))

    def unique(self, name: str) -> None:
        """Note a problem for each value of a column that an earlier row has."""
        at, seen = self.header.index(name), set[str]()
        for line, cells in self.rows:
            if cells[at] in seen:
                self.problem(line, name, f'"{cells[at][:40]}"', "there already")
            seen.add(cells[at])

    def problem(self, line: int | None, place: str, found: str, expected: str) -> None:
        """Note what is wrong in a line, at `place`: a column, as a rule. `check` raises all at once."""
        self.problems.append(Problem(place, found, expected, line))

    def check(self) -> None:
        """Raises ScenarioError if there are problems; the first twenty of them."""
        if self.problems:
            raise ScenarioError(str(self.path), sorted(self.problems, key=lambda p: p.line or 0)[:_ENOUGH])


def rows(path: Path) -> CsvFile:
    """The header of a file and its rows, each as long as the header. Raises ScenarioError."""
    def wrong(line: int | None, found: str, expected: str) -> ScenarioError:
        return ScenarioError(str(path), [Problem("", found, expected, line)])

    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise wrong(None, error.strerror or "unreadable", "expected a CSV file") from None
    except ValueError:
        raise wrong(None, "no UTF-8 text", "expected a CSV file") from None
    found: list[tuple[int, list[str]]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            try:
                found += [(number, [cell.strip() for cell in cells]) for cells in csv.reader([line], strict=True)]
            except csv.Error as error:
                raise wrong(number, str(error)[:60], "expected comma-separated values") from None
    if not found:
        return CsvFile(path, [], [])
    first, header = found[0]
    table = CsvFile(path, header, found[1:], header_line=first)
    for number, cells in table.rows:
        if len(cells) != len(header):
            table.problem(number, "", f"{len(cells)} values", f"expected {len(header)}, as the header has")
    table.check()
    return table


def read(path: Path, *forms: Sequence[str]) -> CsvFile:
    """The rows of a file whose header has the columns of one of `forms`, in any order. Raises ScenarioError.

    A column of a form ending in "=" is a duration: "t=" stands for t, t_s, t_ms, ... .
    """
    found = rows(path)
    header = found.header
    expected = "expected a header with the columns " + " or ".join(
        ", ".join(n.replace("=", "_s (or _ms, ...)") for n in form) for form in forms)
    if not header:
        found.problem(None, "", "no rows", expected)
    elif len(set(header)) < len(header) or not any(_fits(found, form) for form in forms):
        found.problem(found.header_line, "", ",".join(header)[:80], expected)
    elif not found.rows:
        found.problem(found.header_line, "", "no rows", "expected at least one row below the header")
    found.check()
    return found


def _fits(found: CsvFile, form: Sequence[str]) -> bool:
    names = [found.find(name[:-1]) if name.endswith("=") else name for name in form]
    return set(names) == set(found.header)


def duration(text: str, unit: int | None) -> int:
    """Nanoseconds in "20 ms", or in a plain number of the column's unit. Raises ValueError: what is expected."""
    if unit is not None:
        number = finite(text)
        result = round(number * unit)
        if not 0 <= result <= LARGEST:
            raise ValueError("expected a duration of 0 or more, below 2^63 ns")
        return result
    return duration_ns(text)


def finite(text: str) -> Fraction:
    """A plain number, exactly. Raises ValueError."""
    try:
        if len(text) > 40 or not math.isfinite(float(text)):
            raise ValueError
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise ValueError("expected a number") from None


def amount(text: str, *, unit: str = "a number", below: float = math.inf) -> float:
    """A finite number, 0 or above. Raises ValueError: what is expected, in `unit`."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not (math.isfinite(found) and 0 <= found < below):
        raise ValueError(f"expected {unit}, 0 or above")
    return found


def stamp(path: Path) -> tuple[int, int] | None:
    """The mark that changes when the file does: its time and size; None where there is none."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size


def in_short(error: ScenarioError) -> tuple[str, str]:
    """(found, expected) of a file's first problem, for the place that names the file."""
    first = error.problems[0]
    where = ", ".join(part for part in (f"line {first.line}" if first.line else "", first.place, first.found) if part)
    more = f" ({len(error.problems) - 1} more)" if len(error.problems) > 1 else ""
    return f"{error.file}: {where}", first.expected + more


def ascending(found: CsvFile, name: str, times: Sequence[int | float | None], *, least: int | float = 0) -> None:
    """Note a problem for the first row unless it is `least`, and for each that is not above the one before."""
    before: int | float | None = None
    for (line, cells), t in zip(found.rows, times, strict=True):
        if t is None:
            continue
        text = f'"{cells[found.header.index(name)][:40]}"'
        if before is None and t != least:
            found.problem(line, name, text, f"expected {least}: the first row says what holds from the beginning")
        elif before is not None and t == before:
            found.problem(line, name, text, "expected each only once: the row before has the same")
        elif before is not None and t < before:
            found.problem(line, name, text, "expected rows in ascending order")
        before = t
