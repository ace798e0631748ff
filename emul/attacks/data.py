"""Attacks on what a node learns from: `(x, y, classes, rng) -> (x, y)`.

x (n, ...) float32 network inputs and y (n,) int64 are the node's own training samples, copies that it may change; `rng`
is the node's own stream. Made once for the whole run, used in the rounds of the attack; test samples stay as they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from emul.attacks.backdoor import Backdoor


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


DATA: dict[str, Any] = {"backdoor": Backdoor, "feature_noise": feature_noise, "label_flip": label_flip,
                        "label_random": label_random}
