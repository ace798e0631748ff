"""Costs that a profile lacks, as one round of each scheme asks for them.

The round is run without training, but with the model, for which torch is loaded: two seconds. Its result is kept in
`$XDG_CACHE_HOME/emul/asked` (or `~/.cache/emul/asked`), under a key made of the scenario, the files that it names and
the code, so that the next check of the scenario needs neither.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from hashlib import blake2b
from pathlib import Path

import msgspec

from emul import engine
from emul.base.files import write_atomically
from emul.engine.costs import Charge, unequal
from emul.scenario import Scenario
from emul.study import cells

_CODE = Path(__file__).parents[1]


def missing(plan: Scenario, plugins: Sequence[str] = ()) -> list[str]:
    """Entries that the profile of a scenario lacks; [] where it has none, or all. Raises ScenarioError."""
    return looked_at(plan, plugins)[0]


def looked_at(plan: Scenario, plugins: Sequence[str] = ()) -> tuple[list[str], list[str]]:
    """(entries that the profile of a scenario lacks, warnings of what it charges unequally). Raises ScenarioError."""
    if plan.compute.mode != "profile":
        return [], []
    found = engine.load_costs(plan).profile
    asked = [charge for name, raw in plan.schemes for charge in _asked(plan, name, raw, plugins)]
    return [key for key in dict.fromkeys(key for key, _, _ in asked) if key not in found], unequal(found, asked)


def _asked(plan: Scenario, scheme: str, raw: dict[str, object], plugins: Sequence[str]) -> list[Charge]:
    """As `emul.preview.computations`, from what an earlier check has kept, where it has."""
    if plugins:                     # their code may be in more files than we know
        return _computations(plan, scheme, raw, plugins)
    key = cells.key(replace(plan, schemes=[(scheme, raw)]))
    kept = _directory() / f"{scheme}-{key}-{_code()}.json"
    with contextlib.suppress(OSError, ValueError):
        before = msgspec.json.decode(kept.read_bytes(), type=list[Charge])
        if before:
            return before
    asked = _computations(plan, scheme, raw, plugins)
    with contextlib.suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        with write_atomically(kept) as made:
            made.write_text(json.dumps(asked), encoding="utf-8")
    return asked


def _computations(plan: Scenario, scheme: str, raw: dict[str, object], plugins: Sequence[str]) -> list[Charge]:
    from emul import preview

    return preview.computations(plan, scheme, raw, plugins)


def _directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "emul" / "asked"


@cache
def _code() -> str:
    """Of all files of emul's code their names, sizes and times: who works on emul is told what holds now."""
    files = sorted((str(path.relative_to(_CODE)), path.stat()) for path in _CODE.rglob("*.py"))
    said = [(name, status.st_size, status.st_mtime_ns) for name, status in files]
    return blake2b(json.dumps(said).encode(), digest_size=8).hexdigest()
