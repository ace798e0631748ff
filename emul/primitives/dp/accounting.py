"""The Gaussian mechanism turned round: the noise that a guarantee needs. Balle and Wang, ICML 2018, theorem 8. And the
privacy that random cohorts add.

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


def sampled_epsilon(sigma: float, rate: float, rounds: int, delta: float) -> float:
    """The eps, at `delta`, of `rounds` sums under fresh noise, each over members that are drawn one by one with
    probability `rate` and in secret (Poisson sampling). One member is there or not.

    sigma: standard deviation of the noise over the sensitivity. By the privacy loss distribution (Koskela, Jälkö and
    Honkela, AISTATS 2020) of dp-accounting, rounded up. 0.0 without rounds, inf without noise. Raises MissingExtra.
    """
    if not rounds:
        return 0.0
    if not sigma:
        return math.inf
    with optional("the privacy of random cohorts needs", "privacy"):
        from dp_accounting.pld import privacy_loss_distribution as pld
    one = pld.from_gaussian_mechanism(sigma, sampling_prob=rate, value_discretization_interval=1e-3)
    return float(one.self_compose(rounds).get_epsilon_for_delta(delta))
