"""Means of clipped updates: no row moves the mean by more than a radius over n."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emul.primitives.robust.aggregation import (
    Aggregation,
    Floats,
    Updates,
    distances_to,
    norms,
    rows_of,
    weighted_sum,
    weights_of,
)


def norm_clipping(updates: Updates, bound: float, alpha: NDArray[np.number] | None = None) -> Aggregation:
    """sum_i alpha_i x_i min(1, bound / ||x_i||) / sum_i alpha_i. Sun, Kairouz, Suresh, McMahan, 2019, section 4.

    updates: (n, d). bound: M > 0, of the Euclidean norm. alpha: (n,) weights, None: equal. Scores are the norms.
    The noise that the paper may add (weak differential privacy) is not added here. Raises ValueError otherwise.
    """
    rows = rows_of(updates)
    _check_radius("bound", bound)
    alpha = weights_of(rows, alpha)
    sizes = norms(rows)
    weights = alpha / alpha.sum() * _factors(sizes, bound)
    return Aggregation(weighted_sum(rows, weights), tuple(np.flatnonzero(alpha).tolist()), weights, sizes,
                       f"norm; above {bound:g} it is scaled to that")


def centred_clipping(updates: Updates, radius: float, iterations: int = 1,
                     centre: NDArray[np.floating] | None = None) -> Aggregation:
    """v <- v + 1/n sum_i (x_i - v) min(1, radius / ||x_i - v||). Karimireddy, He, Jaggi, ICML 2021, Algorithm 2.

    updates: (n, d), in the paper the momenta of the clients. radius: tau > 0. iterations: of the line above.
    centre: (d,), where it starts: the aggregate of the round before, as in the authors' code; None: 0. `state` of the
    result is the next centre.
    Scores are the factors min(1, ..) of the last iteration: below 1 is clipped. Raises ValueError otherwise.
    """
    rows = rows_of(updates)
    _check_radius("radius", radius)
    if iterations < 1:
        raise ValueError(f"iterations is {iterations}, expected at least 1")
    v = np.zeros(rows[0].shape, np.float64) if centre is None else np.array(centre, np.float64)
    if v.shape != rows[0].shape:
        raise ValueError(f"centre has shape {v.shape}, expected that of an update, {rows[0].shape}")
    for _ in range(iterations):
        factors = _factors(distances_to(rows, v), radius)
        step = np.zeros_like(v)
        for factor, row in zip(factors.tolist(), rows, strict=True):
            step += (row - v) * factor
        v += step / len(rows)
    return Aggregation(v, tuple(range(len(rows))), None, factors,
                       f"factor by which its distance to the centre is shortened to {radius:g}; 1: it is not", state=v)


def _factors(sizes: Floats, radius: float) -> Floats:
    """min(1, radius / size), 1 for size 0."""
    return radius / np.maximum(sizes, radius)


def _check_radius(name: str, radius: float) -> None:
    if not (np.isfinite(radius) and radius > 0):
        raise ValueError(f"{name} is {radius}, expected a number above 0")
