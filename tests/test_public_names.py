"""What users import is documented, every name of it, and the examples in docstrings are true."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from site_source import load_made

import emul

ROOT = Path(__file__).resolve().parents[1]


PUBLIC = load_made().PUBLIC


def names(module: ModuleType) -> list[str]:
    """What the page of a module shows: what it lists, else what it defines."""
    own = [key for key, thing in vars(module).items()
           if not key.startswith("_") and getattr(thing, "__module__", "") == module.__name__]
    return list(getattr(module, "__all__", own))


def silent(name: str, thing: object) -> Iterator[str]:
    """The thing if it says nothing, and what is public of a class that nobody explains, no base either."""
    if not (inspect.isclass(thing) or inspect.isroutine(thing)):
        return
    text = thing.__doc__ or ""
    if not text or text.startswith(f"{thing.__name__}("):           # what a dataclass says by itself
        yield name
    for key, member in vars(thing).items() if inspect.isclass(thing) else ():
        function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        function = getattr(function, "func", function)              # of a cached property
        if not key.startswith("_") and inspect.isfunction(function) and not function.__doc__ \
                and function.__name__ == key and not any(
                    getattr(vars(base).get(key), "__doc__", None) for base in thing.__mro__[1:]):
            yield f"{name}.{key}"


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_says_what_it_is(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__
    assert [one for key in names(module) for one in silent(f"{name}.{key}", getattr(module, key))] == []


def test_a_name_that_says_nothing_is_found() -> None:
    class Told:
        """Explained."""

        def method(self) -> None:
            pass

        @property
        def value(self) -> int:
            return 1

    class Heir(Told):
        """Explained."""

        def method(self) -> None:
            pass

    assert list(silent("Told", Told)) == ["Told.method", "Told.value"]
    Told.method.__doc__ = "Explained."
    assert list(silent("Heir", Heir)) == []
    assert list(silent("f", lambda: None)) == ["f"]


def test_what_import_emul_offers_is_on_the_page_of_the_api() -> None:
    listed = re.findall(r"from ([\w.]+) import (\w+) as \2", (ROOT / "emul/__init__.pyi").read_text(encoding="utf-8"))
    assert {module for module, _ in listed} == {"emul.api", "emul.loop", "emul.roles"}
    assert {module for module, _ in listed} <= set(PUBLIC)
    offered = {*emul._API, *emul._ROLES, emul._CLOCK}
    assert {name for _, name in listed} == {name for name in dir(emul) if name in offered}
    for module, name in listed:
        assert name in names(importlib.import_module(module))
        assert getattr(emul, name) is getattr(importlib.import_module(module), name)


WITH_EXAMPLES = sorted(str(path.relative_to(ROOT).with_suffix("")).replace("/", ".").removesuffix(".__init__")
                       for path in (ROOT / "emul").rglob("*.py") if "    >>> " in path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_the_examples_in_docstrings_are_true(name: str) -> None:
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as missing:
        if (missing.name or "emul").partition(".")[0] == "emul":
            raise
        pytest.skip(f"{missing.name} is not installed")
    found = doctest.testmod(module)
    assert found.attempted
    assert found.failed == 0
