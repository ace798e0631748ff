"""Finished cells of sweeps, rows of `emul sweep --done`, as the tables of a page."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from emul.study.done import AGAIN

Row = Mapping[str, str]
NOTHING = "No cell of it was run so far."
Setting = tuple[str, Mapping[str, Any]]      # scenario, values of its grid


def of(rows: Iterable[Row], setting: Setting, scheme: str) -> list[Row]:
    """The cells of a scheme there, by seed."""
    found = [row for row in rows if row["scheme"] == scheme and setting_of(row) == setting]
    return sorted(found, key=lambda row: int(row["seed"]))


def setting_of(row: Row) -> Setting:
    return row["scenario"], json.loads(row["values"] or "{}")


def again(tables: Iterable[Path]) -> dict[str, dict[str, str]]:
    """Digest -> what makes this run again (`emul.study.done.AGAIN`), of tables of `emul sweep --done`: for rows with
    other columns."""
    found: dict[str, dict[str, str]] = {}
    for table in tables:
        with table.open(newline="", encoding="utf-8") as lines:
            found |= {row["digest"]: {name: row[name] for name in AGAIN} for row in csv.DictReader(lines)}
    return found


def swept(scenario: Path, out: Path, done: Path, **of: Any) -> None:
    """A sweep in this process, `of`: other arguments of `emul.study.sweep.sweep`. Raises RuntimeError, with the errors
    of all cells that failed, so that no table of a page is of fewer seeds than it says."""
    from emul.study.runs import placed
    from emul.study.sweep import sweep

    failed = sweep(scenario, placed("local", 1, 0, (), True), out=out, done=done, **of).failed
    if failed:
        raise RuntimeError("\n".join(f"{out}: {one.cell.scheme}, seed {one.cell.seed}: {one.error}" for one in failed))


def curve(rounds: Iterable[int], accuracies: Iterable[float]) -> str:
    """As the rows of `emul sweep --done` have it."""
    return " ".join(f"{round_}:{accuracy:.5g}" for round_, accuracy in zip(rounds, accuracies, strict=True))


def plain(value: float) -> str:
    """Three digits without an exponent."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def markdown(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table. An empty head is one space, as the pages written by hand have it."""
    shown = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([f"| {' | '.join(head)} |".replace("|  |", "| |"), "|---" * len(head) + "|", *shown])


def run(rows: Sequence[Row]) -> str:
    """The cells that there are."""
    seeds: dict[tuple[str, str], dict[str, list[str]]] = {}
    for row in rows:
        scenario, values = setting_of(row)
        grid = ", ".join(f"{path.rpartition('.')[2]} {value}" for path, value in values.items())
        seeds.setdefault((scenario, grid), {}).setdefault(",".join(_seeds(rows, row)), []).append(row["scheme"])
    return markdown(["scenario", "of its grid", "schemes by seeds"], (
        [f"`{scenario}`", grid, "; ".join(f"{name}: {', '.join(f'`{s}`' for s in dict.fromkeys(schemes))}"
                                          for name, schemes in sorted(found.items()))]
        for (scenario, grid), found in sorted(seeds.items())))


def _seeds(rows: Sequence[Row], like: Row) -> list[str]:
    return [row["seed"] for row in of(rows, setting_of(like), like["scheme"])]
