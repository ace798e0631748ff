"""Weights by correlation with the coordinate-wise median: the rule of PEFL. Liu et al., IEEE TIFS 2021.

    mu_i = max(0, ln((1 + rho_i) / (1 - rho_i)) - reject), rho_i: Pearson's correlation of x_i with the median
    k_i = mu_i / sum mu

The constant `reject` = 0.5 is that of a public implementation; a correlation below 0.245 has no weight.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

GUARD = 1 - 1e-10                   # largest rho, so that a copy of the median has a finite weight


def twice_median(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Twice the coordinate-wise median of (m, d) integers: the sum of the two in the middle."""
    ordered, m = np.sort(rows, axis=0), len(rows)
    found: NDArray[np.int64] = ordered[(m - 1) // 2] + ordered[m // 2]
    return found


def pearson(rows: NDArray[np.integer], medians: NDArray[np.integer]) -> Floats:
    """rho_i of row i of each, (m,); 0 where one of them is constant."""
    a, b = (np.asarray(x, np.float64) - np.asarray(x, np.float64).mean(1, keepdims=True) for x in (rows, medians))
    sizes = np.sqrt((a * a).sum(1) * (b * b).sum(1))
    return np.divide((a * b).sum(1), sizes, out=np.zeros(len(a)), where=sizes > 0)


def weights(rho: Floats, reject: float) -> Floats:
    """k_i, (m,) float64 with sum 1; all 0: nobody is left."""
    near = np.clip(rho, -GUARD, GUARD)
    mu = np.maximum(0.0, np.log((1 + near) / (1 - near)) - reject)
    return mu / (mu.sum() or 1.0)
