"""Attacks on updates: `(own, rng, knows) -> vector`.

own (d,) float32 is what the node's local training gave, the difference of parameters or a gradient; what is returned
takes its place before the scheme masks, codes or encrypts it. `rng` is the node's stream of that round; `knows` is what
it knows of the others (`emul.roles.attackers.Known`). An attack with parameters is a frozen dataclass that is called
so; `NEEDS` is the least that it has to know: own (where nothing is said), colluders or all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, ClassVar, Literal

import numpy as np

from emul.attacks.ranges import above_zero
from emul.roles.attackers import Known

Vector = np.ndarray                     # (d,) float32
Direction = Literal["std", "unit", "sign"]

# The share of honest nodes that z_max leaves on the other side, where attackers are the majority and any share would do
_LARGEST_SHARE = 0.999


Attack = Callable[[Vector, np.random.Generator, Known], Vector]


@dataclass(frozen=True)
class SignFlip:
    """-factor * own. Li et al., RSA, AAAI 2019 (arXiv 1811.03761), section 5, "sign-flipping"."""

    factor: float = 1.0

    def __call__(self, own: Vector, rng: np.random.Generator, knows: Known) -> Vector:
        return (-self.factor * own).astype(np.float32)


@dataclass(frozen=True)
class Gaussian:
    """N(0, std^2 I) in place of the update. Blanchard et al., NeurIPS 2017, section 5, where std is 200."""

    std: float = 200.0

    def __post_init__(self) -> None:
        above_zero(std=self.std)

    def __call__(self, own: Vector, rng: np.random.Generator, knows: Known) -> Vector:
        return rng.normal(0.0, self.std, own.shape).astype(np.float32)


@dataclass(frozen=True)
class Scale:
    """factor * own; model replacement. Bagdasaryan et al., AISTATS 2020, equation 3: factor = n / eta.

    factor None: n / m, with which the m attackers of n nodes put their mean in the place of the global update, if the
    server takes the plain mean and the others' updates are small.
    """

    factor: float | None = None

    def __call__(self, own: Vector, rng: np.random.Generator, knows: Known) -> Vector:
        factor = knows.population / max(1, knows.corrupted) if self.factor is None else self.factor
        return (factor * own).astype(np.float32)


@dataclass(frozen=True)
class Alie:
    """A little is enough: mean - z * std, entry by entry. Baruch et al., NeurIPS 2019, Algorithm 3.

    z None: the paper's z_max, the largest z with Phi(z) < (n - m - s) / (n - m), s = floor(n / 2 + 1) - m: then s
    honest nodes lie further out than the attackers, who form a majority with them. The sign is that of the authors'
    code.
    """

    NEEDS: ClassVar[str] = "colluders"
    z: float | None = None

    def __call__(self, own: Vector, rng: np.random.Generator, knows: Known) -> Vector:
        z = z_max(knows.population, knows.corrupted) if self.z is None else self.z
        honest = knows.honest
        return (honest.mean(0) - z * honest.std(0)).astype(np.float32)


def z_max(n: int, m: int) -> float:
    """Of `Alie`, for m attackers among n nodes; 0 or above. If they are the majority any z would do: about 3.1.

    >>> round(z_max(50, 24), 2)         # s = 2: Phi(z) < 24 / 26
    1.43
    """
    honest = n - m
    share = (honest - (n // 2 + 1 - m)) / honest if honest > 0 else 1.0
    return NormalDist().inv_cdf(min(share, _LARGEST_SHARE)) if share > 0.5 else 0.0


@dataclass(frozen=True)
class Ipm:
    """-epsilon * mean of the honest updates: inner product manipulation. Xie et al., UAI 2020 (arXiv 1903.03936).

    With epsilon below 1 it is shorter than they are, which rules that choose by distance prefer; a mean is turned round
    where epsilon * m > n - m.
    """

    NEEDS: ClassVar[str] = "colluders"
    epsilon: float = 0.5

    def __post_init__(self) -> None:
        above_zero(epsilon=self.epsilon)

    def __call__(self, own: Vector, rng: np.random.Generator, knows: Known) -> Vector:
        return (-self.epsilon * knows.honest.mean(0)).astype(np.float32)


@dataclass(frozen=True)
class MinMax:
    """mean + gamma * p, with the largest gamma that keeps it as near to every honest update as these are to each other:
    max_i |mean + gamma p - g_i| <= max_ij |g_i - g_j|. Shejwalkar and Houmansadr, NDSS 2021, section IV-B, equation 8.

    direction: p, "std" = -std, "unit" = -mean / |mean|, "sign" = -sign(mean). Deviation: gamma in closed form, where
    the paper halves intervals.
    """

    NEEDS: ClassVar[str] = "colluders"
    direction: Direction = "std"

    def __call__(self, own: Vector, rng: np.random.Generator, knows: Known) -> Vector:
        honest = knows.honest
        mean = honest.mean(0)
        p = away_from(honest, mean, self.direction)
        return (mean + largest_gamma(honest, mean, p) * p).astype(np.float32)


@dataclass(frozen=True)
class MinSum:
    """mean + gamma * p, with the largest gamma that leaves its squared distances to the honest updates together no more
    than those of some honest update: sum_i |mean + gamma p - g_i|^2 <= max_i sum_j |g_i - g_j|^2. Shejwalkar and
    Houmansadr, NDSS 2021, section IV-B: it is as far from the mean as the honest update that is furthest from it.

    direction: as of `MinMax`. Deviation: gamma in closed form, max_i |g_i - mean| / |p|, since both sums of n squared
    distances are sum_j |g_j - mean|^2 and n times the square of the own distance to the mean.
    """

    NEEDS: ClassVar[str] = "colluders"
    direction: Direction = "std"

    def __call__(self, own: Vector, rng: np.random.Generator, knows: Known) -> Vector:
        honest = knows.honest
        mean = honest.mean(0)
        p = away_from(honest, mean, self.direction)
        length = float(np.linalg.norm(p))
        gamma = float(np.linalg.norm(honest - mean, axis=1).max()) / length if length else 0.0
        return (mean + gamma * p).astype(np.float32)


def away_from(honest: np.ndarray, mean: np.ndarray, direction: Direction) -> np.ndarray:
    """p, (d,) float64, of `MinMax` and `MinSum`."""
    if direction == "std":
        return -honest.std(0)
    return -np.sign(mean) if direction == "sign" else -mean / max(float(np.linalg.norm(mean)), 1e-12)


def largest_gamma(honest: np.ndarray, mean: np.ndarray, p: np.ndarray) -> float:
    """The largest gamma >= 0 with |mean + gamma p - g_i| <= max_ij |g_i - g_j| for every row g_i of `honest` (h, d).

    Every i gives a parabola in gamma, a gamma^2 + 2 b_i gamma + c_i <= 0; the least of their upper roots holds for all.
    0 where p is 0.
    """
    a = float(np.square(p).sum())
    if a == 0:
        return 0.0
    diameter = max(float(np.square(g - honest[i:]).sum(1).max()) for i, g in enumerate(honest))
    away = mean - honest                                                    # (h, d)
    b, c = (away * p).sum(1), np.square(away).sum(1) - diameter             # c <= 0: the mean is in the hull
    return float(((-b + np.sqrt(np.maximum(b * b - a * c, 0.0))) / a).min().clip(0.0))


UPDATES: dict[str, Any] = {"alie": Alie, "gaussian": Gaussian, "ipm": Ipm, "min_max": MinMax, "min_sum": MinSum,
                           "scale": Scale, "sign_flip": SignFlip}
