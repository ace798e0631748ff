"""Attacks by name: those of `emul.attacks`, of the folders of schemes and of plug-ins.

A module lists its own in `ATTACKS`: {kind: {name: attack}}. An attack is one function, or a frozen dataclass that is
called like one and whose fields are its parameters:

    data         (x, y, classes, rng) -> (x, y)                 changes the samples of a node
    prototypes   ({class: vector}, rng) -> {class: vector}      changes its prototypes
    update       (own, rng, knows) -> vector                    changes its update
    privacy      (evidence) -> rows                             observes a run that has ended (`emul.roles.evidence`)

The engine puts the first three into nodes, whatever the scheme is. An attack that needs the messages of a protocol is a
scheme's behaviour (`Scheme.behaviours`) and no attack.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import pkgutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from msgspec import Struct

from emul.learning.names import PluginError, imported

PACKAGE = "emul.attacks"
KINDS = ("data", "prototypes", "update")    # that are put into nodes
PRIVACY = "privacy"
KNOWS = ("own", "colluders", "all")         # the knowledge of an attacker on updates, the least first


class Planned(Struct, frozen=True):
    """One attack of a node, as a worker is told of it: plain values only."""

    kind: str                           # one of KINDS
    name: str
    params: dict[str, Any] = {}
    first: int = 1                      # in rounds first .. last; last 0: for good
    last: int = 0
    knows: str = "own"

    def holds(self, round_: int) -> bool:
        """True if it is in force; before its first round (0) a node does what it will do in that one."""
        return self.first <= max(round_, 1) and (not self.last or max(round_, 1) <= self.last)


@dataclasses.dataclass(frozen=True)
class NoParameters:
    """Of an attack that is a plain function."""


def known(kind: str, plugins: Sequence[str] = ()) -> dict[str, Any]:
    """Name -> attack of one of `KINDS`, or of `PRIVACY`: ours and those of plug-ins, by name. Raises PluginError."""
    found: dict[str, object] = {}
    for module in [*_ours(kind), *map(imported, plugins)]:
        offered = getattr(module, "ATTACKS", {}).get(kind, {})
        offered = offered() if callable(offered) else offered
        if taken := [name for name in offered if name in found and found[name] is not offered[name]]:
            raise PluginError(f'plug-in "{module.__name__}": there is an attack "{taken[0]}": give yours another name')
        found |= offered
    return dict(sorted(found.items()))


def _ours(kind: str) -> list[ModuleType]:
    """The modules of emul that have attacks of a kind: only privacy is attacked with what one scheme's folder knows."""
    names = [PACKAGE] if importlib.util.find_spec(PACKAGE) is not None else []
    return [importlib.import_module(name) for name in [*names, *(_of_schemes() if kind == PRIVACY else ())]]


@cache
def _of_schemes() -> list[str]:
    """Modules `attacks` in the folders of schemes; no scheme is imported to find them."""
    package = importlib.util.find_spec("emul.schemes")
    folders = [] if package is None else list(package.submodule_search_locations or ())
    return [f"emul.schemes.{found.name}.attacks" for folder in folders for found in pkgutil.iter_modules([folder])
            if found.ispkg and (Path(folder) / found.name / "attacks.py").is_file()]


def parameters(attack: Any) -> type:
    """The dataclass of its parameters."""
    return attack if isinstance(attack, type) else NoParameters


def needs(attack: object) -> str:
    """The least that it has to know, one of `KNOWS`."""
    return str(getattr(attack, "NEEDS", KNOWS[0]))


def make(planned: Planned, plugins: Sequence[str] = ()) -> Any:
    """The attack, ready to be called. Raises KeyError for a name that nobody knows."""
    attack = known(planned.kind, plugins)[planned.name]
    return attack(**planned.params) if isinstance(attack, type) else attack
