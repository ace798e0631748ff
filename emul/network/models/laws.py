"""Laws of positive quantities by their quantiles: how long something lasts, how large a message is, what a rate is.

A draw is `quantile(u)` of a uniform u in [0, 1) that a stream gives at an index, so that it is a pure function. Each
law is in the unit of its parameters: ns, bytes or bit/s. The same law stands for a stay of churn, for the size of a
background message and for a drawn background rate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Protocol

_NORMAL = NormalDist()
_HALF = 2.0**-54                # half a step of a uniform draw: moves it off 0


class QuantileLaw(Protocol):
    """A law, as what draws from it asks for it."""

    @property
    def mean(self) -> float:
        """Its mean."""
        ...

    def quantile(self, u: float) -> float:
        """The quantity that a share u, in [0, 1), of all lies below."""
        ...


@dataclass(frozen=True, slots=True)
class Fixed:
    """Always the same."""

    value: int

    @property
    def mean(self) -> float:
        return float(self.value)

    @property
    def mean_square(self) -> float:
        """The second moment; inf where there is none."""
        return float(self.value) ** 2

    def quantile(self, u: float) -> float:
        return float(self.value)

    def biased(self, u: float, draw: object) -> float:
        """As of `Exponential`: where all are equal, the same."""
        return float(self.value)


@dataclass(frozen=True, slots=True)
class Exponential:
    """P(more than x) = exp(-x / mean): without memory, so what is left of a stay is distributed as a whole one."""

    mean: int

    @property
    def mean_square(self) -> float:
        """As of `Fixed`."""
        return 2.0 * self.mean**2

    def quantile(self, u: float) -> float:
        """As of a `QuantileLaw`."""
        return -self.mean * math.log1p(-u)

    def biased(self, u: float, draw: Any) -> float:
        """A quantity drawn in proportion to itself: the stay that a stationary observer falls into."""
        return float(self.mean * draw.standard_gamma(2.0))


@dataclass(frozen=True, slots=True)
class Weibull:
    """P(more than x) = exp(-(x / scale)^shape)."""

    shape: float
    scale: int

    @property
    def mean(self) -> float:
        """scale * Gamma(1 + 1 / shape)."""
        return self.scale * math.gamma(1 + 1 / self.shape)

    def quantile(self, u: float) -> float:
        """As of a `QuantileLaw`."""
        return self.scale * (-math.log1p(-u)) ** (1 / self.shape)

    def biased(self, u: float, draw: Any) -> float:
        """As of `Exponential`: (x / scale)^shape is then Gamma(1 + 1 / shape); it takes `draw` and not u."""
        return float(self.scale * draw.standard_gamma(1 + 1 / self.shape) ** (1 / self.shape))


@dataclass(frozen=True, slots=True)
class LogNormal:
    """The logarithm is normal with standard deviation `sigma`."""

    median: int
    sigma: float

    @property
    def mean(self) -> float:
        """median * exp(sigma^2 / 2)."""
        return self.median * math.exp(self.sigma**2 / 2)

    @property
    def mean_square(self) -> float:
        """As of `Fixed`."""
        return self.median**2 * math.exp(2 * self.sigma**2)

    def quantile(self, u: float) -> float:
        """As of a `QuantileLaw`; u is moved off 0 by half a step."""
        return self.median * math.exp(self.sigma * _NORMAL.inv_cdf(u + _HALF))

    def biased(self, u: float, draw: object) -> float:
        """As of `Exponential`: log-normal again, the median times exp(sigma^2); it takes u and not `draw`."""
        return self.median * math.exp(self.sigma**2 + self.sigma * _NORMAL.inv_cdf(u + _HALF))


@dataclass(frozen=True, slots=True)
class Pareto:
    """P(more than x) = (least / x)^shape with this mean; shape above 1."""

    shape: float
    mean: int

    @property
    def _least(self) -> float:
        return self.mean * (self.shape - 1) / self.shape

    @property
    def mean_square(self) -> float:
        """As of `Fixed`: inf up to a shape of 2."""
        return math.inf if self.shape <= 2 else self._least**2 * self.shape / (self.shape - 2)

    def quantile(self, u: float) -> float:
        """As of a `QuantileLaw`."""
        return self._least * float((1 - u) ** (-1 / self.shape))

    def biased(self, u: float, draw: object) -> float:
        """As of `Exponential`: Pareto again, its shape smaller by 1."""
        return self._least * float((1 - u) ** (-1 / (self.shape - 1)))


@dataclass(frozen=True, slots=True)
class UniformLaw:
    """Uniform between two."""

    least: int
    most: int

    @property
    def mean(self) -> float:
        return (self.least + self.most) / 2

    @property
    def mean_square(self) -> float:
        """As of `Fixed`."""
        a, b = self.least, self.most
        return (a * a + a * b + b * b) / 3

    def quantile(self, u: float) -> float:
        """As of a `QuantileLaw`."""
        return self.least + u * (self.most - self.least)


@dataclass(frozen=True, slots=True)
class Normal:
    """Normal; what is below 0 is cut by those who draw from it."""

    mean: int
    sigma: int

    def quantile(self, u: float) -> float:
        """As of a `QuantileLaw`; u is moved off 0 by half a step."""
        return self.mean + self.sigma * _NORMAL.inv_cdf(u + _HALF)


@dataclass(frozen=True, slots=True)
class Poisson:
    """A Poisson number of units of so much each. FLEET draws rates of whole Mbit/s this way."""

    mean: int
    unit: int

    def quantile(self, u: float) -> float:
        """As of a `QuantileLaw`: the least number of units whose distribution function is above u."""
        mean = self.mean / self.unit
        p, number = math.exp(-mean), 0
        below = p
        while below <= u and number < 10 * mean + 50:       # beyond that the sum has reached 1 as far as floats can
            number += 1
            p *= mean / number
            below += p
        return float(number * self.unit)
