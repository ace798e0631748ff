"""Sums and means of vectors whose bits do not depend on who answered first."""

from __future__ import annotations

from collections.abc import Mapping

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
