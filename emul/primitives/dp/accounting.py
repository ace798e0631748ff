"""The Gaussian mechanism turned round: the noise that a guarantee needs. Balle and Wang, ICML 2018, theorem 8.

mu = sensitivity / standard deviation; mechanisms with fresh noise compose by mu_total = sqrt(sum mu^2)
(`emul.primitives.privacy.ldp.composed`).
"""

from __future__ import annotations

import math

from emul.base.extras import optional
from emul.primitives.privacy import ldp


def largest_mu(eps: float, delta: float, rounds: int = 1) -> float:
    """The largest mu of a round with which `rounds` of them together are (eps, delta)-private.

    Raises ValueError unless eps > 0, 0 < delta < 1 and rounds >= 1.

    >>> round(1 / largest_mu(3.0, 1e-5), 4)
    1.3906
    """
    if not (eps > 0 and 0 < delta < 1 and rounds >= 1):
        raise ValueError(f"expected eps > 0, 0 < delta < 1 and rounds >= 1, found {eps}, {delta} and {rounds}")
    with optional("the noise of a guarantee needs", "stats"):
        from scipy.optimize import brentq
    high = 1.0
    while ldp.delta(eps, high) <= delta:
        high *= 2
    total = brentq(lambda mu: ldp.delta(eps, mu) - delta, 1e-12, high, xtol=1e-14, rtol=1e-13)
    return float(total) / math.sqrt(rounds)


def sigma_over_sensitivity(eps: float, delta: float, rounds: int = 1) -> float:
    """The least standard deviation of noise for a sensitivity of 1. Raises ValueError as `largest_mu`."""
    return 1.0 / largest_mu(eps, delta, rounds)
