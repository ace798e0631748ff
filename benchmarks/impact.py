"""The effect of an attack on a scheme, from a run with it and one without: accuracies, their loss, whose updates
counted.

    NA, FA, MA      accuracy without the attack at the end; with it at the end, and at best
    AIR             (2 NA - FA - MA) / (2 NA), the accuracy impact rate of Li et al., AAAI-25, as printed
    drop            NA - (FA + MA) / 2, which fits more of their values than AIR does
    ASR             of the attackers' updates, the share that the rule gave weight; 1 where a rule gives no weights
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from emul.base.plain import PlainDict


@dataclass(frozen=True)
class Impact:
    """One run under attack, against that of the same scheme, seed and values without."""

    na: float
    fa: float
    ma: float
    asr: float
    honest: float                       # of the honest updates, the share that was given weight
    backdoor: float | None = None       # test samples with the trigger that are taken for the target

    @property
    def air(self) -> float:
        """As printed; nan without an accuracy to lose."""
        return (2 * self.na - self.fa - self.ma) / (2 * self.na) if self.na else float("nan")

    @property
    def drop(self) -> float:
        """In accuracy, as it should be told."""
        return self.na - (self.fa + self.ma) / 2


def impacts(rows: Sequence[Mapping[str, str]]) -> list[tuple[Mapping[str, str], Impact]]:
    """(row, its impact) of each row of a table of `emul sweep --done` with a counterpart without an attack, `attacks`
    being a key of the grid; a run without an attack is its own counterpart."""
    clean = {_place(row): float(row["accuracy"]) for row in rows if not attacked(row)}
    return [(row, _impact(row, clean[_place(row)])) for row in rows if row["accuracy"] and _place(row) in clean]


def until(rows: Sequence[Mapping[str, str]], rounds: int) -> list[Mapping[str, str]]:
    """Rows as if their runs had ended after so many rounds, by their curves, so that runs of different length can stand
    in one table: the shortest of each scenario, scheme, seed and values that was long enough. A mean over rounds stays
    that of all.
    """
    found: dict[tuple[str, ...], Mapping[str, str]] = {}
    for row in sorted((row for row in rows if length(row) >= rounds), key=length):
        points = [point for point in row["curve"].split() if int(point.partition(":")[0]) <= rounds]
        seen = [point.partition(":")[2] for point in points]
        if seen:
            cut = {**row, "accuracy": seen[-1], "best_accuracy": max(seen, key=float), "curve": " ".join(points)}
            found.setdefault(_cell(row), cut)
    return list(found.values())


def evened(rows: Sequence[Mapping[str, str]]) -> tuple[list[Mapping[str, str]], int]:
    """(rows as if all cells had ended when the shortest did, that round); a cell is as long as its longest run."""
    longest: dict[tuple[str, ...], int] = {}
    for row in rows:
        longest[_cell(row)] = max(longest.get(_cell(row), 0), length(row))
    rounds = min(longest.values(), default=0)
    return until(rows, rounds), rounds


def length(row: Mapping[str, str]) -> int:
    """Rounds that a run has had, those that failed included."""
    return int(row["rounds"]) + int(row["rounds_failed"])


def attacked(row: Mapping[str, str]) -> list[Any]:
    """The attacks of a row; [] without any."""
    found = _values(row).get("attacks")
    return json.loads(found) if isinstance(found, str) else found or []


def _values(row: Mapping[str, str]) -> PlainDict:
    return dict(json.loads(row["values"] or "{}"))


def _place(row: Mapping[str, str]) -> tuple[str, ...]:
    others = {key: value for key, value in _values(row).items() if key != "attacks"}
    return row["scenario"], row["scheme"], row["seed"], json.dumps(others, sort_keys=True)


def _cell(row: Mapping[str, str]) -> tuple[str, ...]:
    return (*_place(row), json.dumps(attacked(row)))


def _impact(row: Mapping[str, str], na: float) -> Impact:
    means: Mapping[str, float] = json.loads(row["means"] or "{}")
    bad, kept = means.get("attackers_judged", 0.0), means.get("attackers_kept", 0.0)
    good = means.get("judged", 0.0) - bad
    return Impact(na, float(row["accuracy"]), float(row["best_accuracy"]), kept / bad if bad else 1.0,
                  (means["kept"] - kept) / good if good else 1.0,
                  float(row["attack_success"]) if row["attack_success"] else None)


def mean(values: Sequence[Impact], of: Callable[[Impact], float]) -> float:
    """Over seeds."""
    return sum(map(of, values)) / len(values)
