"""Local differential privacy of masked updates: the exact Gaussian mechanism and who sees which shift over which noise.

Balle and Wang, ICML 2018, Theorem 8: delta(eps; mu) of two Gaussians whose means differ by mu standard deviations.
The observers are those of Weng et al., arXiv 2507.07565, section VI, in corrected form: conditional on the link
states everything is Gaussian, so eps solves an exact mixture and needs no concentration inequality. R bounds the l2
norm of an update; two updates of one client differ by at most 2 R. Natural logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from emul.primitives.privacy.patterns import link_patterns

_SQRT2 = math.sqrt(2.0)
_MAX_EPS = 1e7

Matrix = NDArray[np.float64]


def log_normal_cdf(x: float) -> float:
    """log Phi(x), also where Phi(x) is below the smallest float."""
    if x > -20.0:
        return math.log(math.erfc(-x / _SQRT2) / 2)
    y, series, term = 1.0 / (x * x), 1.0, 1.0
    for n in range(1, 8):                           # 1 - 1/x^2 + 3/x^4 - ..., below 1e-15 relative for x < -20
        term *= -(2 * n - 1) * y
        series += term
    return -x * x / 2 - math.log(-x * math.sqrt(2 * math.pi)) + math.log(series)


def delta(eps: float, mu: float) -> float:
    """delta(eps; mu) = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu). mu = shift / standard deviation; inf: 1."""
    if mu <= 0:
        return 0.0
    if math.isinf(mu):
        return 1.0
    first = math.exp(log_normal_cdf(mu / 2 - eps / mu))
    return max(0.0, first - math.exp(eps + log_normal_cdf(-mu / 2 - eps / mu)))


def epsilon(delta_: float, mu: float) -> float:
    """The least eps >= 0 with delta(eps; mu) <= delta_, by bisection.

    >>> round(epsilon(1e-5, 1.0), 4)
    4.3772
    """
    return mixture_epsilon(delta_, [(1.0, mu)])


def mixture_epsilon(delta_: float, mixture: Iterable[tuple[float, float]]) -> float:
    """The least eps >= 0 with sum_i Pr_i delta(eps; mu_i) <= delta_, mixture = (Pr_i, mu_i). inf if there is none.

    The observer knows which of them holds (the link states): conditional on that, each is a Gaussian mechanism.
    """
    parts = [(p, mu) for p, mu in mixture if p > 0]
    if sum(p for p, mu in parts if math.isinf(mu)) > delta_:
        return math.inf

    def exceeds(eps: float) -> bool:
        return sum(p * delta(eps, mu) for p, mu in parts) > delta_

    if not exceeds(0.0):
        return 0.0
    high = 1.0
    while exceeds(high):
        high *= 2
        if high > _MAX_EPS:
            return math.inf
    low = 0.0
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if exceeds(middle) else (low, middle)
    return high


def peer_mu(R: float, std: float) -> float:
    """mu of one masked message, Theorem VI.1: 2 R over the noise left to the observer: lambda to an outsider, less to a
    peer that knows its own key (`lmip.peer_view`)."""
    return 2 * R / std if std > 0 else math.inf


def relay_mixture(row: Matrix, Sigma: Matrix, connected: Sequence[float], j: int, R: float,
                  ) -> list[tuple[float, float]]:
    """(Pr(tau), mu) of one partial sum in which only client j's data change, Theorem VI.3, for `mixture_epsilon`.

    row: (K,) of the code; connected: (K,) probability that the relay hears each client (1 for itself); patterns in
    which j is not heard give nothing away. mu = 2 R |g_j| / sqrt(nu(tau)), nu = Lambda Sigma Lambda^T.
    """
    found = []
    for p, heard in link_patterns(row, connected, forced=j):
        found.append((p, sum_mu(row * heard, Sigma, j, R)))
    return found


def sum_mu(Lambda: Matrix, Sigma: Matrix, j: int, R: float) -> float:
    """mu of one partial sum with the coefficients Lambda, (K,), 0 for who is not in it: 2 R |Lambda_j| / sqrt(nu)."""
    if not Lambda[j]:
        return 0.0
    nu = float(Lambda @ Sigma @ Lambda)
    return 2 * R * abs(float(Lambda[j])) / math.sqrt(nu) if nu > 1e-300 else math.inf


def joint_mu(M: Matrix, Sigma: Matrix, j: int, R: float) -> float:
    """mu of an observer of all rows of M together: 2 R sqrt(m_j^T (M Sigma M^T)^-1 m_j), m_j column j of M.

    inf where some combination of the rows holds client j and no noise, as after every success.
    """
    covariance = M @ Sigma @ M.T
    values, vectors = np.linalg.eigh(covariance)
    onto = vectors.T @ M[:, j]
    noisy = values > 1e-10 * max(float(values[-1]), 1e-300)
    if float(onto[~noisy] @ onto[~noisy]) > 1e-16 * max(float(M[:, j] @ M[:, j]), 1e-300):
        return math.inf
    return 2 * R * math.sqrt(float((onto[noisy] ** 2 / values[noisy]).sum()))


def composed(mus: Iterable[float]) -> float:
    """mu of several rounds with fresh keys: sqrt(sum mu_t^2)."""
    return math.sqrt(sum(mu * mu for mu in mus))
