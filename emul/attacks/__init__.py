"""Generic attacks: what a node that is honest otherwise does with its data, its prototypes or its update.

An attack is one function, or a frozen dataclass that is called like one and whose fields are its parameters:

    DATA         (x, y, classes, rng) -> (x, y)                 `emul.attacks.data`, `emul.attacks.backdoor`
    PROTOTYPES   ({class: vector}, rng) -> {class: vector}      `emul.attacks.prototypes`
    UPDATES      (own, rng, knows) -> vector                    `emul.attacks.updates`, `fang`, `adaptive`, `sine`
    observers()  (evidence) -> rows                             `emul.attacks.privacy`, on a run that has ended

The engine puts the first three in, whatever the scheme. A module given with `--plugin` adds its own by
`ATTACKS = {"update": {"mine": Mine}}`; what needs the messages of a protocol is a scheme's `BEHAVIOURS`, not an attack.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from emul.attacks.adaptive import Adaptive
from emul.attacks.backdoor import Backdoor
from emul.attacks.data import DATA
from emul.attacks.fang import KrumAttack, TrimAttack
from emul.attacks.privacy import observers
from emul.attacks.prototypes import PROTOTYPES
from emul.attacks.sine import Sine
from emul.attacks.updates import UPDATES as SIMPLE
from emul.attacks.updates import Known
from emul.learning.names import imported

__all__ = ["DATA", "KINDS", "KNOWS", "PROTOTYPES", "UPDATES", "Backdoor", "Known", "Planned", "known",
           "make", "needs", "parameters"]

UPDATES: Mapping[str, Any] = {**SIMPLE, "adaptive": Adaptive, "krum_attack": KrumAttack, "sine": Sine,
                              "trim_attack": TrimAttack}
KINDS: Mapping[str, Mapping[str, Any]] = {"data": DATA, "prototypes": PROTOTYPES, "update": UPDATES}
KNOWS = ("own", "colluders", "all")     # what an attacker may know, the least first


class Planned(Struct, frozen=True):
    """One attack of a node, as a worker is told of it: plain values only."""

    kind: str                           # data, prototypes or update
    name: str
    params: dict[str, Any] = {}
    first: int = 1                      # in rounds first .. last; last 0: for good
    last: int = 0
    knows: str = "own"

    def holds(self, round_: int) -> bool:
        """Whether it is in force; before its first round (0) a node does what it will do in that one."""
        return self.first <= max(round_, 1) and (not self.last or max(round_, 1) <= self.last)


@dataclasses.dataclass(frozen=True)
class NoParameters:
    """Of an attack that is a plain function."""


def known(kind: str, plugins: Sequence[str] = ()) -> dict[str, Any]:
    """Name -> attack of one of `KINDS`, or "privacy": ours and those of plug-ins, by name. Raises PluginError."""
    found = observers() if kind == "privacy" else dict(KINDS[kind])
    for module in plugins:
        found |= getattr(imported(module), "ATTACKS", {}).get(kind, {})
    return dict(sorted(found.items()))


def parameters(attack: Any) -> type:
    """The dataclass of its parameters."""
    return attack if isinstance(attack, type) else NoParameters


def needs(attack: Any) -> str:
    """The least that it has to know, one of `KNOWS`."""
    return str(getattr(attack, "NEEDS", KNOWS[0]))


def make(planned: Planned, plugins: Sequence[str] = ()) -> Any:
    """The attack, ready to be called. Raises KeyError for a name that nobody knows."""
    attack = known(planned.kind, plugins)[planned.name]
    return attack(**planned.params) if isinstance(attack, type) else attack
