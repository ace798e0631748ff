"""Computations that neither a trace nor a profile prices, as a round of each scheme asks for them, and those in which a
node drops out.

The rounds are run without training, but with the model, for which torch is loaded: two seconds. Their result is kept in
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
from emul.registry import schemes
from emul.scenario import Scenario, label_of
from emul.study import cells

_CODE = Path(__file__).parents[1]


def missing(plan: Scenario, plugins: Sequence[str] = ()) -> list[str]:
    """Entries "scheme/role/label" that nothing prices; [] where computations have no prices, or all have one. Raises
    ScenarioError."""
    return looked_at(plan, plugins)[0]


def looked_at(plan: Scenario, plugins: Sequence[str] = ()) -> tuple[list[str], list[str]]:
    """(entries that nothing prices, warnings of what a profile charges unequally or nobody has looked at). Raises
    ScenarioError."""
    if plan.compute.mode not in ("profile", "model") and (plan.compute.trace is None or plan.compute.mode != "zero"):
        return [], []
    found, asked, unknown = engine.load_costs(plan).profile, list[_Asked](), list[str]()
    for name, raw in plan.schemes:
        scheme = schemes.find(name, plugins)
        if scheme.names_code:           # a stranger's, and `check` is what one does before one trusts it
            unknown.append(f"{label_of(name, raw)}: its code is not run here, so a run tells whether all that it "
                           "computes has a price")
        elif not scheme.guided:
            asked.append(_asked(plan, name, raw, plugins))
    return ([key for key in dict.fromkeys(key for _, unpriced in asked for key in unpriced)],
            [*unknown, *unequal(found, [charge for charges, _ in asked for charge in charges])])


_Asked = tuple[list[Charge], list[str]]


def _asked(plan: Scenario, scheme: str, raw: dict[str, object], plugins: Sequence[str]) -> _Asked:
    """As `emul.preview.explain.computations`, from what an earlier check has kept, where it has."""
    if plugins:                     # their code may be in more files than we know
        return _computations(plan, scheme, raw, plugins)
    key = cells.key(replace(plan, schemes=[(scheme, raw)]))
    base = os.environ.get("XDG_CACHE_HOME")
    folder = (Path(base) if base else Path.home() / ".cache") / "emul" / "asked"
    kept = folder / f"{scheme}-{key}-{_code()}.json"
    with contextlib.suppress(OSError, ValueError):
        before: _Asked = msgspec.json.decode(kept.read_bytes(), type=_Asked)
        if before[0]:
            return before
    asked = _computations(plan, scheme, raw, plugins)
    with contextlib.suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        with write_atomically(kept) as made:
            made.write_text(json.dumps(asked), encoding="utf-8")
    return asked


def _computations(plan: Scenario, scheme: str, raw: dict[str, object], plugins: Sequence[str]) -> _Asked:
    from emul.preview import explain as preview

    return preview.computations(plan, scheme, raw, plugins)


@cache
def _code() -> str:
    """Of all files of emul's code their names, sizes and times: who works on emul is told what holds now."""
    files = sorted((str(path.relative_to(_CODE)), path.stat()) for path in _CODE.rglob("*.py"))
    said = [(name, status.st_size, status.st_mtime_ns) for name, status in files]
    return blake2b(json.dumps(said).encode(), digest_size=8).hexdigest()
