"""Packages whose public names are imported when first asked for: who only checks a scenario loads no event loop."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazily(package: str, modules: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """`__getattr__` of a package (PEP 562). modules: module of the package -> the names that come from it.

    >>> lazily("os", {"path": ["join"]})("join").__name__
    'join'
    """
    where = {name: module for module, names in modules.items() for name in names}

    def found(name: str) -> Any:
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{where[name]}"), name)
        setattr(sys.modules[package], name, value)      # asked for once
        return value

    return found
