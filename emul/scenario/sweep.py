"""`sweep`: what `emul sweep` varies; its model and the plain values it stands for. A run does not look at it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, PlainValidator

from emul.scenario.sections import Section
from emul.scenario.values import Text, Written

MOST_SEEDS = 1_000_000
_RANGE = re.compile(r"(\d{1,18})(?::(\d{1,18}))?", re.ASCII)
_SEEDS = "expected seeds such as 0:5, which are 0..4, or 1,2,7"


@dataclass(frozen=True)
class Sweep:
    """Values by path, as `--set` writes it; seeds (None: the scenario's) and schemes (empty: all)."""

    grid: dict[str, list[Any]] = field(default_factory=dict)
    seeds: tuple[int, ...] | None = None
    schemes: tuple[str, ...] = ()


def parse_seeds(text: str) -> tuple[int, ...]:
    """Seeds in the order written, each once. Raises ValueError.

    >>> parse_seeds("0:3,7")
    (0, 1, 2, 7)
    """
    found: dict[int, None] = {}
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise ValueError(_SEEDS)
        first = int(match[1])
        end = first + 1 if match[2] is None else int(match[2])
        if end <= first:
            raise ValueError(f"{_SEEDS}: {part.strip()} holds none")
        if end - first > MOST_SEEDS:
            raise ValueError(f"expected at most {MOST_SEEDS} seeds")
        found |= dict.fromkeys(range(first, end))
    return tuple(found)


def seeds_of(value: object) -> tuple[int, ...]:
    """Seeds as a scenario says them, text, a number or a list, each once. Raises ValueError.

    >>> seeds_of([3, 1, 3])
    (3, 1)
    """
    if isinstance(value, str):
        return parse_seeds(value)
    entries = value if isinstance(value, list) and value else [value]
    if not all(isinstance(v, int) and not isinstance(v, bool) and 0 <= v < 2**63 for v in entries):
        raise ValueError(_SEEDS)
    return tuple(dict.fromkeys(entries))


def _values(value: object) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise ValueError("expected a list of values")
    return value


class SweepRule(Section):
    grid: dict[str, Annotated[list[Any], PlainValidator(_values, json_schema_input_type=list[Any])]] = Field(default={})
    seeds: Annotated[tuple[int, ...], PlainValidator(
        seeds_of, json_schema_input_type=list[int] | Written)] | None = None
    schemes: Annotated[list[Text], Field(min_length=1)] | None = None


def sweep_values(rule: SweepRule | None, base: Path) -> Sweep | None:
    return None if rule is None else Sweep(dict(rule.grid), rule.seeds, tuple(rule.schemes or ()))
