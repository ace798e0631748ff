"""benchmarks/thresholds.toml: ratios that must not fall, whatever the machine.

    [[threshold]]
    benchmark = "kernel"                    # its table
    figure = "PHOLD, 1,000 nodes, 1 worker"
    over = "PHOLD, 1,000 nodes, in process" # divided by this figure of the same table and unit,
    per = "python"                          # or by the yardstick of that table: steps of plain Python a CPU second
    at_least = 1.2                          # or at_most
    tolerance = 0.25                        # a share of the value: falls below 0.9
    reason = "why this value"

Without `over` and `per` the figure must itself be a ratio: its unit is "x", "%" or none.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common import Figure, Table, shown

FILE = Path(__file__).with_name("thresholds.toml")
RATIOS = ("x", "%", "")
_KEYS = {"benchmark": str, "figure": str, "over": str, "per": str, "at_least": float, "at_most": float,
         "tolerance": float, "reason": str}


class ThresholdError(Exception):
    """The file is not what it should be, or names a figure that is none."""


@dataclass(frozen=True)
class Threshold:
    benchmark: str
    figure: str
    tolerance: float
    reason: str
    over: str | None = None
    per: str | None = None
    at_least: float | None = None
    at_most: float | None = None

    @property
    def limit(self) -> float:
        """The value with its tolerance."""
        if self.at_least is not None:
            return self.at_least * (1 - self.tolerance)
        return (self.at_most or 0.0) * (1 + self.tolerance)

    @property
    def name(self) -> str:
        return f"{self.benchmark}: {self.figure}" + (f" / {self.over}" if self.over else "") + (
            " / yardstick" if self.per else "")

    def holds(self, ratio: float) -> bool:
        return ratio >= self.limit if self.at_least is not None else ratio <= self.limit


def load(path: Path = FILE) -> list[Threshold]:
    """Raises ThresholdError naming the entry."""
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("threshold", [])
    return [_checked(number, entry) for number, entry in enumerate(entries, 1)]


def _checked(number: int, entry: Mapping[str, object]) -> Threshold:
    def wrong(what: str) -> ThresholdError:
        return ThresholdError(f"threshold {number} ({entry.get('figure', '?')}): {what}")

    for key, value in entry.items():
        if key not in _KEYS:
            raise wrong(f"unknown key {key}")
        if not isinstance(value, (int, float) if _KEYS[key] is float else str) or isinstance(value, bool):
            raise wrong(f"{key}: found {value!r}")
    missing = [key for key in ("benchmark", "figure", "tolerance", "reason") if key not in entry]
    if missing:
        raise wrong(f"expected {', '.join(missing)}")
    if ("at_least" in entry) == ("at_most" in entry):
        raise wrong("expected at_least or at_most, one of them")
    if "over" in entry and "per" in entry:
        raise wrong("expected over or per, not both")
    if entry.get("per", "python") != "python":
        raise wrong(f'per: expected "python", found {entry["per"]!r}')
    if not 0 <= float(str(entry["tolerance"])) < 1:
        raise wrong("tolerance: expected a share of the value in [0, 1)")
    return Threshold(**entry)       # type: ignore[arg-type]


def ratio(threshold: Threshold, table: Table) -> float:
    """The figure in the table. Raises ThresholdError where it has no such figure, or no ratio comes out."""
    figure = _figure(threshold, table, threshold.figure)
    if threshold.per is not None:
        return figure.value / table.yardstick
    if threshold.over is not None:
        base = _figure(threshold, table, threshold.over)
        if base.unit != figure.unit:
            raise ThresholdError(f"{threshold.name}: {figure.unit} over {base.unit} is no ratio")
        return figure.value / base.value
    if figure.unit not in RATIOS:
        raise ThresholdError(f"{threshold.name}: in {figure.unit}, which depends on the machine; expected over or per")
    return figure.value


def _figure(threshold: Threshold, table: Table, name: str) -> Figure:
    for figure in table.figures:
        if figure.name == name:
            return figure
    raise ThresholdError(f'{threshold.name}: there is no figure "{name}"')


def check(thresholds: Sequence[Threshold], tables: Sequence[Table]) -> tuple[list[str], list[str]]:
    """(what holds, what fell), a sentence each, of the benchmarks that were run to their end."""
    held: list[str] = []
    fell: list[str] = []
    run = {table.name: table for table in tables if table.error is None}
    for threshold in thresholds:
        if threshold.benchmark not in run:
            continue
        try:
            value = ratio(threshold, run[threshold.benchmark])
        except ThresholdError as e:
            fell.append(str(e))
            continue
        bound = ">=" if threshold.at_least is not None else "<="
        aim = threshold.at_least if threshold.at_least is not None else threshold.at_most
        sentence = (f"{threshold.name}: {shown(value)}, expected {bound} {shown(aim or 0.0)} "
                    f"(with tolerance {shown(threshold.limit)}): {threshold.reason}")
        (held if threshold.holds(value) else fell).append(sentence)
    return held, fell
