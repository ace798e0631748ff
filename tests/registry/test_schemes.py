"""Schemes are found by name, and what cannot be one is refused with its reason."""

from __future__ import annotations

import sys
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from benchmarks.document import read
from emul.registry import schemes
from emul.roles import Scheme, Variant

ROOT = Path(__file__).resolve().parents[2]


def plugin(monkeypatch: pytest.MonkeyPatch, said: Any) -> list[str]:
    module = ModuleType("found_here", "A scheme.\n\nMore of it.")
    if said is not None:
        vars(module)["SCHEME"] = said
    monkeypatch.setitem(sys.modules, "found_here", module)
    return ["found_here"]


@pytest.mark.parametrize(("said", "found"), [(None, "none"), ({"roles": {}}, "dict")])
def test_a_module_without_a_scheme_is_refused(monkeypatch: pytest.MonkeyPatch, said: Any, found: str) -> None:
    with pytest.raises(schemes.NotAScheme, match=rf"expected SCHEME = Scheme\(params=..., roles=...\), found {found}$"):
        schemes.find("found_here", plugin(monkeypatch, said))


def test_a_scheme_has_name_module_and_text_and_is_one_object(monkeypatch: pytest.MonkeyPatch) -> None:
    names = plugin(monkeypatch, Scheme(params=object, roles={}))
    found = schemes.find("found_here", names)
    assert (found.name, found.module, found.headline) == ("found_here", "found_here", "A scheme.")
    assert schemes.find("found_here", names) is found


def test_a_variant_takes_what_it_does_not_say_from_its_base(monkeypatch: pytest.MonkeyPatch) -> None:
    base = schemes.find("fedavg")
    found = schemes.find("found_here", plugin(monkeypatch, Variant(of="fedavg", fixed={"weights": "uniform"})))
    assert found.of == "fedavg"
    assert found.roles is base.roles
    assert found.params().weights == "uniform"
    assert "weights" not in {f.name for f in fields(found.params) if f.init}


def test_a_misspelt_field_is_an_error() -> None:
    with pytest.raises(TypeError, match="knows_toplogy"):
        Scheme(params=object, roles={}, knows_toplogy=True)         # type: ignore[call-arg]


def test_every_field_that_a_scheme_may_give_is_on_the_page() -> None:
    page = read(ROOT / "docs/writing-a-scheme.md")
    table = page.split("## Fields of Scheme")[1].split("\n## ")[0]
    filled_in = {"name", "module", "doc", "of"}
    assert [f.name for f in fields(Scheme) if f.name not in filled_in and f"\n| `{f.name}` |" not in table] == []
