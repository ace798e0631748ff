"""Averages of updates, in the order of the clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from emul.message.wire import Vector
from emul.primitives.means import weighted_sum


class WeightedUpdate(Protocol):
    """An update with the number of samples behind it."""

    @property
    def delta(self) -> Vector:
        """The step that is added to the model, (d,) float32."""
        ...

    @property
    def samples(self) -> int:
        """The number of samples it was trained on: its weight in a mean."""
        ...


def weighted_mean(model: Vector, updates: Mapping[int, WeightedUpdate], weights: str = "samples") -> Vector:
    """model + sum_k w_k delta_k / sum_k w_k, w_k = n_k samples or 1. McMahan et al. 2017, Algorithm 1.

    model: (d,) float32, not changed. updates: {client: update}, summed in ascending order in float64.
    weights: "samples" or "uniform". No updates: the model itself.
    """
    w = {k: update.samples if weights == "samples" else 1 for k, update in updates.items()}
    if not sum(w.values()):
        return model
    total = weighted_sum({k: update.delta for k, update in updates.items()}, w)
    return (model + total / sum(w.values())).astype(np.float32)
