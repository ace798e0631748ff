"""Sums and means of vectors whose bits do not depend on who answered first, and vectors clipped before them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


def weighted_sum(vectors: Mapping[int, np.ndarray], weights: Mapping[int, float]) -> NDArray[np.float64]:
    """sum_k w_k v_k in float64, by ascending k. vectors: {k: (d,) of any float}, at least one; weights: {k: w_k}.

    >>> weighted_sum({2: np.float32([1, 0]), 1: np.float32([0, 1])}, {1: 2, 2: 0.5})
    array([0.5, 2. ])
    """
    total = np.zeros(next(iter(vectors.values())).shape, np.float64)
    for k, vector in sorted(vectors.items()):
        total += np.multiply(vector, weights[k], dtype=np.float64)
    return total


class WeightedUpdate(Protocol):
    """An update with the number of samples behind it."""

    @property
    def delta(self) -> np.ndarray:
        """The step that is added to the model, (d,) float32."""
        ...

    @property
    def samples(self) -> int:
        """The number of samples it was trained on: its weight in a mean."""
        ...


def weighted_mean(model: np.ndarray, updates: Mapping[int, WeightedUpdate], weights: str = "samples") -> np.ndarray:
    """model + sum_k w_k delta_k / sum_k w_k, w_k = n_k samples or 1. McMahan et al. 2017, Algorithm 1.

    model: (d,) float32, not changed. updates: {client: update}, summed in ascending order in float64.
    weights: "samples" or "uniform". No updates: the model itself.
    """
    w = {k: update.samples if weights == "samples" else 1 for k, update in updates.items()}
    if not sum(w.values()):
        return model
    total = weighted_sum({k: update.delta for k, update in updates.items()}, w)
    return (model + total / sum(w.values())).astype(np.float32)


def clipped(update: np.ndarray, norm: float | None) -> np.ndarray:
    """`update`, (d,) float32, scaled down to the l2 norm `norm` if its own is larger; None: as it is.

    >>> clipped(np.float32([3, 4]), 1.0)
    array([0.6, 0.8], dtype=float32)
    """
    if norm is None:
        return update
    own = float(np.linalg.norm(update))
    return update * np.float32(norm / own) if own > norm else update
