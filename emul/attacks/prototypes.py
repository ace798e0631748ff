"""Attacks on class prototypes: `({class: (n,) float32}, rng) -> {class: (n,) float32}`.

The prototypes that a node claims; `rng` is the node's stream of that round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Prototypes = Mapping[int, np.ndarray]
Tamper = Callable[[Prototypes, np.random.Generator], dict[int, np.ndarray]]


@dataclass(frozen=True)
class Shift:
    """N(0, std^2) added to every entry."""

    std: float = 4.0

    def __call__(self, prototypes: Prototypes, rng: np.random.Generator) -> dict[int, np.ndarray]:
        return {label: (v + rng.normal(0, self.std, len(v))).astype(np.float32)
                for label, v in sorted(prototypes.items())}


def negate(prototypes: Prototypes, rng: np.random.Generator) -> dict[int, np.ndarray]:
    """-P in place of P."""
    return {label: -v for label, v in sorted(prototypes.items())}


@dataclass(frozen=True)
class Amplify:
    """factor * P in place of P."""

    factor: float = 10.0

    def __call__(self, prototypes: Prototypes, rng: np.random.Generator) -> dict[int, np.ndarray]:
        return {label: (self.factor * v).astype(np.float32) for label, v in sorted(prototypes.items())}


def random_direction(prototypes: Prototypes, rng: np.random.Generator) -> dict[int, np.ndarray]:
    """A random direction, as long as P."""
    found = {}
    for label, v in sorted(prototypes.items()):
        drawn = rng.standard_normal(len(v))
        found[label] = (drawn * (np.linalg.norm(v) / max(float(np.linalg.norm(drawn)), 1e-12))).astype(np.float32)
    return found


PROTOTYPES: dict[str, Any] = {"amplify": Amplify, "negate": negate, "random": random_direction, "shift": Shift}
