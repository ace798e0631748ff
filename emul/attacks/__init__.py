"""Generic attacks: transforms of what a node learns from, or of the prototypes that it makes, put in by the engine.

`DATA`: `(x, y, classes, rng) -> (x, y)`. x (n, ...) float32 network inputs and y (n,) int64 are the node's own training
samples, copies it may change; `rng` is the node's own stream. Drawn once for the whole run; test samples stay as they
are.

`PROTOTYPES`: `({class: (n,) float32}, rng) -> {class: (n,) float32}`, what a node says its class prototypes are; `rng`
is the node's stream of that round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

Poison = Callable[[np.ndarray, np.ndarray, int, np.random.Generator], tuple[np.ndarray, np.ndarray]]
Prototypes = Mapping[int, np.ndarray]
Tamper = Callable[[Prototypes, np.random.Generator], dict[int, np.ndarray]]

SHIFT_STD, AMPLIFY = 4.0, 10.0


def label_flip(x: np.ndarray, y: np.ndarray, classes: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Every label l becomes classes - 1 - l. Fang et al., USENIX Security 2020, section 7.1.

    >>> label_flip(np.zeros((3, 1)), np.array([0, 1, 9]), 10, np.random.default_rng(0))[1]
    array([9, 8, 0])
    """
    return x, classes - 1 - y


def label_random(x: np.ndarray, y: np.ndarray, classes: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Every label becomes one of the other classes, uniformly. Yan et al., arXiv 2401.07558, "untargeted"."""
    return x, (y + rng.integers(1, max(2, classes), len(y))) % classes


def feature_noise(x: np.ndarray, y: np.ndarray, classes: int, rng: np.random.Generator,
                  ) -> tuple[np.ndarray, np.ndarray]:
    """Every input becomes noise, uniform on the range of values that the node's inputs have; labels stay."""
    low, high = (float(x.min()), float(x.max())) if x.size else (0.0, 0.0)
    return rng.uniform(low, high, x.shape).astype(np.float32), y


def shift(prototypes: Prototypes, rng: np.random.Generator) -> dict[int, np.ndarray]:
    """N(0, 16) added to every entry."""
    return {label: (v + rng.normal(0, SHIFT_STD, len(v))).astype(np.float32) for label, v in sorted(prototypes.items())}


def negate(prototypes: Prototypes, rng: np.random.Generator) -> dict[int, np.ndarray]:
    """-P in place of P."""
    return {label: -v for label, v in sorted(prototypes.items())}


def amplify(prototypes: Prototypes, rng: np.random.Generator) -> dict[int, np.ndarray]:
    """10 P in place of P."""
    return {label: (AMPLIFY * v).astype(np.float32) for label, v in sorted(prototypes.items())}


def random_direction(prototypes: Prototypes, rng: np.random.Generator) -> dict[int, np.ndarray]:
    """A random direction, as long as P."""
    found = {}
    for label, v in sorted(prototypes.items()):
        drawn = rng.standard_normal(len(v))
        found[label] = (drawn * (np.linalg.norm(v) / max(float(np.linalg.norm(drawn)), 1e-12))).astype(np.float32)
    return found


DATA: dict[str, Poison] = {"feature_noise": feature_noise, "label_flip": label_flip, "label_random": label_random}
PROTOTYPES: dict[str, Tamper] = {"amplify": amplify, "negate": negate, "random": random_direction, "shift": shift}
