"""Intervals for means over seeds: the percentile bootstrap. Efron, Bootstrap Methods, Annals of Statistics 7, 1979.

Seeds are resampled, since they are what was drawn: a seed's realisation of network, data and training is common to all
schemes, so differences are taken seed by seed first and their mean is what has an interval.

Why not BCa: it counts resampled means below the mean, and with few seeds many are equal to it but for rounding. The
interval then jumped when all values were shifted or had another unit. Its coverage was the same within 3 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emul.base.streams import Name, generator

LEVEL = 0.95
RESAMPLES = 9999
FEWEST = 3          # seeds: the bootstrap of two values knows nothing but them


@dataclass(frozen=True)
class Interval:
    """A mean and the ends of its interval; None where there is no value, or no interval can be had."""

    n: int
    mean: float | None
    low: float | None
    high: float | None

    @property
    def without_zero(self) -> bool:
        """Whether the interval says which sign the mean has."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


def interval(values: Sequence[float], *names: Name) -> Interval:
    """Mean of `values`, one a seed, with its 95 % bootstrap interval; `names` key the stream of resamples.

    It is too short for few seeds. Measured for normal values, it holds the true mean in 73 % of cases with 3 seeds,
    82 % with 5, 89 % with 10, 94 % with 20. Below 3 there is none.

    >>> interval([1.0, 2.0])
    Interval(n=2, mean=1.5, low=None, high=None)
    """
    x = np.asarray(values, float)
    if len(x) < FEWEST:
        return Interval(len(x), float(x.mean()) if len(x) else None, None, None)
    from scipy.stats import bootstrap

    found = bootstrap((x,), np.mean, confidence_level=LEVEL, n_resamples=RESAMPLES, method="percentile",
                      rng=generator(0, "bootstrap", *names)).confidence_interval
    return Interval(len(x), float(x.mean()), float(found.low), float(found.high))
