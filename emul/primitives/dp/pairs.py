"""Noise that two clients share, which one adds and the other subtracts: it hides both and is not in the sum."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import numpy as np

from emul.primitives.crypto.gaussian import gaussian, uniform

Law = Literal["uniform", "gaussian"]


def pair_noise(i: int, seeds: Mapping[int, bytes], d: int, sigma: float, law: Law) -> np.ndarray:
    """sum_j sgn(i, j) Delta_ij, sgn = +1 if i < j, else -1, in the order of j: (d,) float64.

    seeds: {j: 32 bytes, equal at both ends}. uniform: Delta on [-sqrt(2) sigma, sqrt(2) sigma], that is DN(sigma, 1);
    gaussian: N(0, sigma^2). Raises ValueError for a seed of another length.
    """
    total = np.zeros(d)
    for j in sorted(seeds):
        found = gaussian(seeds[j], d) * sigma if law == "gaussian" else uniform(seeds[j], d) * (math.sqrt(2.0) * sigma)
        total += found if i < j else -found
    return total
