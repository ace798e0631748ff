"""Generic attacks: what a node that is honest otherwise does with its data, its prototypes or its update.

`emul.registry.attacks` says what an attack is and finds those of `ATTACKS` by their names.
"""

from __future__ import annotations

from typing import Any

from emul.attacks.adaptive import Adaptive
from emul.attacks.backdoor import Backdoor
from emul.attacks.data import DATA
from emul.attacks.fang import KrumAttack, TrimAttack
from emul.attacks.privacy import observers
from emul.attacks.prototypes import PROTOTYPES
from emul.attacks.sine import Sine
from emul.attacks.updates import UPDATES as SIMPLE

__all__ = ["ATTACKS", "DATA", "PROTOTYPES", "UPDATES", "Backdoor"]

UPDATES: dict[str, Any] = {**SIMPLE, "adaptive": Adaptive, "krum_attack": KrumAttack, "sine": Sine,
                           "trim_attack": TrimAttack}
# those on privacy import what they know of protocols when they are asked for
ATTACKS: dict[str, Any] = {"data": DATA, "prototypes": PROTOTYPES, "update": UPDATES, "privacy": observers}
