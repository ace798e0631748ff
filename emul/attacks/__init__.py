"""Generic attacks: transforms of what a node learns from, put between data and training by the engine.

An attack is `(x, y, classes, rng) -> (x, y)`: x (n, ...) and y (n,) int64 are the node's own samples, copies it may
change; `rng` is the node's own stream.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Poison = Callable[[np.ndarray, np.ndarray, int, np.random.Generator], tuple[np.ndarray, np.ndarray]]


def label_flip(x: np.ndarray, y: np.ndarray, classes: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Every label l becomes classes - 1 - l. Fang et al., USENIX Security 2020, section 7.1.

    >>> label_flip(np.zeros((3, 1)), np.array([0, 1, 9]), 10, np.random.default_rng(0))[1]
    array([9, 8, 0])
    """
    return x, classes - 1 - y


DATA: dict[str, Poison] = {"label_flip": label_flip}
