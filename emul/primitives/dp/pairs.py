"""Noise of a seed: of one that two clients share, which one adds and the other subtracts, so that it hides both and is
not in the sum; or of one of a client's own, which is taken off again by who learns the seed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import numpy as np

from emul.primitives.crypto.gaussian import gaussian, uniform

Law = Literal["uniform", "gaussian"]


def seed_noise(seed: bytes, d: int, sigma: float, law: Law) -> np.ndarray:
    """Delta of a seed of 32 bytes, (d,) float64. uniform: on [-sqrt(2) sigma, sqrt(2) sigma], that is DN(sigma, 1);
    gaussian: N(0, sigma^2). Raises ValueError for a seed of another length."""
    return gaussian(seed, d) * sigma if law == "gaussian" else uniform(seed, d) * (math.sqrt(2.0) * sigma)


def pair_noise(i: int, seeds: Mapping[int, bytes], d: int, sigma: float, law: Law) -> np.ndarray:
    """sum_j sgn(i, j) Delta_ij, sgn = +1 if i < j, else -1, in the order of j: (d,) float64.

    seeds: {j: 32 bytes, equal at both ends}. Delta: of `seed_noise`. Raises ValueError as that does.
    """
    total = np.zeros(d)
    for j in sorted(seeds):
        found = seed_noise(seeds[j], d, sigma, law)
        total += found if i < j else -found
    return total
