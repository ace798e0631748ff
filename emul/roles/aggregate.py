"""Averages of updates, in the order of the clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from emul.wire import Vector


class WeightedUpdate(Protocol):
    delta: Vector
    samples: int


def weighted_mean(model: Vector, updates: Mapping[int, WeightedUpdate], weights: str = "samples") -> Vector:
    """model + sum_k w_k delta_k / sum_k w_k, w_k = n_k samples or 1. McMahan et al. 2017, Algorithm 1.

    model: (d,) float32, not changed. updates: {client: update}, summed in ascending order in float64.
    weights: "samples" or "uniform". No updates: the model itself.
    """
    if not updates:
        return model
    total = np.zeros(model.shape, np.float64)
    weight = 0
    for _, update in sorted(updates.items()):
        w = update.samples if weights == "samples" else 1
        total += np.multiply(update.delta, w, dtype=np.float64)
        weight += w
    if weight == 0:
        return model
    return (model + total / weight).astype(np.float32)
