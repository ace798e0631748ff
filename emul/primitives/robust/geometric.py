"""The smoothed geometric median. Pillutla, Kakade, Harchaoui, IEEE TSP 2022 (RFA), Algorithm 2.

z minimises sum_i alpha_i ||z - x_i||, by Weiszfeld's iteration z <- sum_i beta_i x_i / sum_i beta_i with
beta_i = alpha_i / max(nu m, ||z - x_i||), from the weighted mean, as the authors' code begins.

Deviations: m is the median distance, so that updates of any size are smoothed alike (the authors' nu = 1e-6 is
absolute, which makes a mean of updates that are that small). And where an update lies near the z that comes out and has
a smaller sum of distances, it is the median: towards such a point the iteration may need any number of steps.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emul.primitives.robust.aggregation import (
    Aggregation,
    Floats,
    Rows,
    Updates,
    distances_to,
    norm,
    rows_of,
    weighted_mean_of,
    weights_of,
)


def geometric_median(updates: Updates, alpha: NDArray[np.number] | None = None, nu: float = 1e-6,
                     iterations: int = 100, tolerance: float = 1e-4) -> Aggregation:
    """The point of the least weighted sum of distances. Resists up to half of the weights.

    updates: (n, d). alpha: (n,) weights, None: equal. nu: smoothing, as a share of the median distance. iterations: at
    most so many; the authors make 3 or 4, each of which would be a secure sum. tolerance: it ends when z moves by less
    than this share of the median distance, which attackers have no hand in as they have in the sum of distances that
    the authors watch; 0: never before. Raises ValueError for other parameters.
    """
    rows = rows_of(updates)
    alpha = weights_of(rows, alpha)
    if not nu > 0 or iterations < 1 or tolerance < 0:
        raise ValueError(f"nu is {nu}, iterations {iterations}, tolerance {tolerance}: expected a number above 0, "
                         "at least 1 and at least 0")
    z, weights = weighted_mean_of(rows, alpha)
    distances = distances_to(rows, z)
    for _ in range(iterations):
        before = z
        least = _least(nu, distances)
        z, weights = weighted_mean_of(rows, alpha / np.maximum(least, distances))
        here = distances <= least
        if here.any() and not here.all():
            z = _left(rows, alpha, before, distances, here)
        distances = distances_to(rows, z)
        if norm(z - before) <= tolerance * float(np.median(distances)):
            break
    nearest = int(np.argmin(np.where(alpha > 0, distances, np.inf)))
    if distances[nearest] <= _NEAR * float(np.median(distances)):
        row = rows[nearest].astype(np.float64)
        there = distances_to(rows, row)
        if (alpha * there).sum() <= (alpha * distances).sum():
            z, distances, weights = row, there, np.eye(1, len(rows), nearest)[0]
    return Aggregation(z, tuple(np.flatnonzero(alpha).tolist()), weights, distances,
                       "distance to the geometric median; the weight falls with it")


def _left(rows: Rows, alpha: Floats, z: Floats, distances: Floats, here: NDArray[np.bool_]) -> Floats:
    """The next point from one that updates lie on, where the plain step stays for ever: towards the mean of the others,
    by as much as their pull is above the weight of those that lie here. Vardi and Zhang, PNAS 2000, equation 2.6."""
    others, pull = [rows[i] for i in np.flatnonzero(~here)], alpha[~here] / distances[~here]
    mean, _ = weighted_mean_of(others, pull)
    force, held = norm(mean - z) * float(pull.sum()), float(alpha[here].sum())
    return z if force <= held else z + (1 - held / force) * (mean - z)


_NEAR = 0.1                     # of the median distance: an update that is that near may be the median itself


def _least(nu: float, distances: Floats) -> float:
    """The value in place of smaller distances, above 0: nu of the median distance, or, of updates half of which lie
    at z, of the least distance that is not 0."""
    away = distances[distances > 0]
    m = float(np.median(distances)) or (float(away.min()) if len(away) else 1.0)
    return max(nu * m, float(np.finfo(np.float64).tiny) * 2.0**60)
