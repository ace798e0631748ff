"""What scenarios resolve to and what errors say is frozen: another way of declaring and reading values changes neither.

`frozen/sections.yaml` has every section in every form. `frozen/resolved.yaml` is what these resolve to.
`frozen/errors.txt` has the errors of each value that is wrong, is missing, or has a misspelt key. `frozen/shipped.json`
has digests of the scenarios that come along, section by section.
`pytest tests/scenario/test_frozen.py --golden-rewrite` writes these three anew; the commit that does so says why.
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from emul.base.errors import ScenarioError
from emul.scenario import load, loads
from emul.scenario.document import Document
from emul.scenario.scenario import Scenario
from emul.scenario.source import read

FROZEN = Path(__file__).with_name("frozen")
ROOT = Path(__file__).resolve().parents[2]
SECTIONS: dict[str, list[Any]] = read((FROZEN / "sections.yaml").read_text(encoding="utf-8")).tree
SHIPPED = sorted((ROOT / "scenarios").rglob("*.yaml"))


def scenarios() -> Iterator[Scenario]:
    """The n-th has the n-th value of every section, from the beginning again where a section has fewer. Their folder is
    called the same on every machine, for lines are broken where they are too long."""
    for n in range(max(map(len, SECTIONS.values()))):
        chosen = {name: values[n % len(values)] for name, values in SECTIONS.items()}
        text = json.dumps({"emul": 1, **{name: value for name, value in chosen.items() if value is not None}})
        yield loads(text, "frozen", base=Path("/emul/scenarios"), check=False)


def compared(name: str, text: str, request: pytest.FixtureRequest) -> None:
    """With what is frozen."""
    path = FROZEN / name
    if request.config.getoption("--golden-rewrite"):
        path.write_text(text, encoding="utf-8")
    assert text.splitlines() == path.read_text(encoding="utf-8").splitlines()


def test_every_section_is_frozen_in_some_form() -> None:
    assert {"emul", *SECTIONS} == set(Document.model_fields)


def test_what_sections_resolve_to(request: pytest.FixtureRequest) -> None:
    compared("resolved.yaml", "---\n".join(scenario.resolved() for scenario in scenarios()), request)


def test_what_resolves_loads_to_an_equal_scenario() -> None:
    for scenario in scenarios():
        again = load(scenario.document(), check=False)
        assert again == scenario
        assert again.resolved() == scenario.resolved()


def digests(scenario: Scenario) -> dict[str, str]:
    """Of each section, in the order of its keys; no name of a folder of this machine is in them."""
    texts = {name: json.dumps(section).replace(str(ROOT), "ROOT").replace(str(ROOT.parent), "BESIDE")
             for name, section in scenario.document().items() if section is not None}
    return {name: hashlib.blake2b(text.encode(), digest_size=6).hexdigest() for name, text in texts.items()}


def test_what_the_scenarios_that_come_along_resolve_to(request: pytest.FixtureRequest) -> None:
    found = {path.relative_to(ROOT).as_posix(): digests(load(path, check=False)) for path in SHIPPED}
    compared("shipped.json", json.dumps(found, indent=1) + "\n", request)


# --- errors -----------------------------------------------------------------------------------------------------------

def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Of a value and all that is below it."""
    yield path
    for key, below in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(below, (*path, key))


def spoilt(value: Any) -> Iterator[Any]:
    """The value, wrong in one place: text or a negative number there, nothing, or its key misspelt."""
    for path in places(value):
        if not path:
            yield from ("x", -1)
            continue
        for other in ("x", -1):
            yield changed(value, path, lambda at, key, other=other: at.__setitem__(key, other))
        yield changed(value, path, lambda at, key: at.__delitem__(key))
        if isinstance(path[-1], str):
            yield changed(value, path, lambda at, key: at.__setitem__(f"{key}s", at.pop(key)))


def changed(value: Any, path: tuple[Any, ...], change: Any) -> Any:
    """A copy of it, changed at a place."""
    made = at = copy.deepcopy(value)
    for key in path[:-1]:
        at = at[key]
    change(at, path[-1])
    return made


def wrong() -> Iterator[dict[str, Any]]:
    """Scenarios with something wrong in every section, and in every entry of those that are lists, at once."""
    lists = {name: list(chain(*values)) for name, values in SECTIONS.items() if isinstance(values[0], list)}
    ways = {name: [list(spoilt(entry)) for entry in entries] for name, entries in lists.items()}
    forms = {name: list(chain(*(spoilt(value) for value in values if value is not None)))
             for name, values in SECTIONS.items() if name not in lists}
    for n in range(max(map(len, forms.values()))):
        made: dict[str, Any] = {"emul": 1} | {name: values[n % len(values)] for name, values in forms.items()}
        for name, entries in lists.items():
            left = [own[n] if n < len(own) else entry for own, entry in zip(ways[name], entries, strict=True)]
            made[name] = left if n < max(map(len, ways[name])) else entries[:1]
        yield made


def test_what_is_said_of_each_mistake(request: pytest.FixtureRequest) -> None:
    said: set[str] = set()
    for scenario in wrong():
        with pytest.raises(ScenarioError) as caught:
            load(scenario, check=False)
        said.update(re.sub(" {2,}", "  ", line.strip()) for line in str(caught.value).splitlines()[1:])
    compared("errors.txt", "\n".join(sorted(said)) + "\n", request)
