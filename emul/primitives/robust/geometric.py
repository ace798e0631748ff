"""The smoothed geometric median. Pillutla, Kakade, Harchaoui, IEEE TSP 2022 (RFA), Algorithm 2.

z minimises sum_i alpha_i ||z - x_i||, by Weiszfeld's iteration z <- sum_i beta_i x_i / sum_i beta_i with
beta_i = alpha_i / max(nu, ||z - x_i||), from the weighted mean, as the authors' code begins.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emul.primitives.robust.aggregation import (
    Aggregation,
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

    updates: (n, d). alpha: (n,) weights, None: equal. nu: smoothing, in units of the updates. iterations: at most
    so many; the authors make 3 or 4, each of which would be a secure sum. tolerance: it ends when z moves by less than
    this share of the median distance, which attackers have no hand in as they have in the sum of distances that the
    authors watch; 0: never before. Raises ValueError for other parameters.
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
        z, weights = weighted_mean_of(rows, alpha / np.maximum(nu, distances))
        distances = distances_to(rows, z)
        if norm(z - before) < tolerance * float(np.median(distances)):
            break
    return Aggregation(z, tuple(np.flatnonzero(alpha).tolist()), weights, distances,
                       "distance to the geometric median; the weight falls with it")
