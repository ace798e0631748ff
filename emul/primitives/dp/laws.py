"""Laws of scales and noise whose product is Gaussian. X. Yang et al., arXiv 2412.11737, section 5.1, corrected.

A coordinate of a uniform point on the sphere S^2 is uniform, so N(0, 1) = chi_3 U(-1, 1): with a scale |DN*(1)| =
chi_3 / sqrt(2) and noise uniform on [-sqrt(2) sigma, sqrt(2) sigma] the product is N(0, sigma^2), over the draw of the
scale: who knows the scale sees uniform noise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import numpy as np

from emul.base.extras import optional
from emul.primitives.crypto.gaussian import gaussian, uniform

# --- noise of a seed ------------------------------------------------------------------------------------------------
# Of one that two clients share, which one adds and the other subtracts, so that it hides both and is not in the sum; or
# of one of a client's own, which is taken off again by who learns the seed.

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


Array = np.ndarray

_TERMS = 60


def chi3(rng: np.random.Generator, size: int) -> Array:
    """|DN*(1)| = sqrt(Gamma(3/2)), (size,)."""
    return np.sqrt(rng.gamma(1.5, size=size))


def duplicated_row(rng: np.random.Generator, size: int) -> Array:
    """One of two laws whose product is |DN*(1)| (Gamma's duplication formula): 2^(1/4) Gamma(3/4)^(1/4), (size,)."""
    return 2**0.25 * rng.gamma(0.75, size=size) ** 0.25


def duplicated_column(rng: np.random.Generator, size: int) -> Array:
    """The other: 2^(1/4) Gamma(5/4)^(1/4), (size,)."""
    return 2**0.25 * rng.gamma(1.25, size=size) ** 0.25


def series(rng: np.random.Generator, size: int, m: int = 2, terms: int = _TERMS, tail: bool = True) -> Array:
    """|DN*(m)|, m independent factors of which make |DN*(1)|, as published: `terms` of the series of its logarithm.

    tail: with a Gamma variable that has the mean, the variance and nearly the skewness of the rest; without it the
    product's variance is (N + 1) / (N + 1.5) of what it should be.
    """
    logs = np.full(size, math.log(terms + 1) / (2 * m))
    for place in range(1, terms + 1):
        logs -= rng.gamma(1.0 / m, size=size) / (2 * place + 1)
    if tail:
        with optional("the rest of a series needs", "stats"):
            from scipy.special import polygamma, psi
        mean = (psi(terms + 1.5) - math.log(terms + 1)) / (2 * m)
        a = (terms + 1.5) / m
        c = math.sqrt(polygamma(1, terms + 1.5) / (4 * m) / polygamma(1, a))
        logs += mean + c * (np.log(rng.gamma(a, size=size)) - psi(a))
    return np.exp(logs)


def log_uniform(rng: np.random.Generator, size: int, kappa: float, factors: int) -> Array:
    """In [kappa^(-1/factors), kappa^(1/factors)], (size,): the product of so many is in [1/kappa, kappa]."""
    bound = math.log(kappa) / factors
    return np.exp(rng.uniform(-bound, bound, size=size))


def uniform_noise(rng: np.random.Generator, size: int, sigma: float) -> Array:
    """DN(sigma, 1): uniform on [-sqrt(2) sigma, sqrt(2) sigma], of variance 2 sigma^2 / 3, (size,)."""
    return rng.uniform(-1.0, 1.0, size=size) * (math.sqrt(2.0) * sigma)
