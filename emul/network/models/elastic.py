"""Elastic background traffic: messages that come by a law, and flows that never end.

`arrivals` gives the messages of one entry between two ends: pure functions of the seed, of the entry's key, of both
names and of the number of the message. Their share of a link depends on the messages of the scheme.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist
from typing import Protocol, TypeAlias

from emul.base.streams import key64, uniform_at

_NORMAL = NormalDist()
_HALF = 2.0**-54                # moves a uniform draw off 0
Arrival: TypeAlias = tuple[int, int]            # time in ns, bytes


class GapLaw(Protocol):
    """A law of times, in ns."""

    @property
    def expected_ns(self) -> float:
        """The mean."""
        ...

    def quantile(self, u: float) -> float:
        """The time that a share u, in [0, 1), of all times lies below."""
        ...


@dataclass(frozen=True, slots=True)
class FixedSize:
    """Always the same number of bytes."""

    size_bytes: int

    @property
    def mean(self) -> float:
        return float(self.size_bytes)

    @property
    def mean_square(self) -> float:
        """The second moment, in bytes^2; inf where there is none."""
        return float(self.size_bytes) ** 2

    def quantile(self, u: float) -> float:
        """The bytes that a share u, in [0, 1), of all sizes lies below."""
        return float(self.size_bytes)


@dataclass(frozen=True, slots=True)
class ExponentialSize:
    """Exponential, bytes."""

    mean_bytes: int

    @property
    def mean(self) -> float:
        return float(self.mean_bytes)

    @property
    def mean_square(self) -> float:
        """As of `FixedSize`."""
        return 2.0 * self.mean_bytes**2

    def quantile(self, u: float) -> float:
        """As of `FixedSize`."""
        return -self.mean_bytes * math.log1p(-u)


@dataclass(frozen=True, slots=True)
class ParetoSize:
    """P(larger than x) = (least / x)^shape with this mean; shape above 1."""

    shape: float
    mean_bytes: int

    @property
    def mean(self) -> float:
        return float(self.mean_bytes)

    @property
    def _least(self) -> float:
        return self.mean_bytes * (self.shape - 1) / self.shape

    @property
    def mean_square(self) -> float:
        """As of `FixedSize`: inf up to a shape of 2."""
        return math.inf if self.shape <= 2 else self._least**2 * self.shape / (self.shape - 2)

    def quantile(self, u: float) -> float:
        """As of `FixedSize`."""
        return self._least * float((1 - u) ** (-1 / self.shape))


@dataclass(frozen=True, slots=True)
class LogNormalSize:
    """The logarithm is normal with standard deviation `sigma`."""

    median_bytes: int
    sigma: float

    @property
    def mean(self) -> float:
        return self.median_bytes * math.exp(self.sigma**2 / 2)

    @property
    def mean_square(self) -> float:
        """As of `FixedSize`."""
        return self.median_bytes**2 * math.exp(2 * self.sigma**2)

    def quantile(self, u: float) -> float:
        """As of `FixedSize`; u is moved off 0 by half a step."""
        return self.median_bytes * math.exp(self.sigma * _NORMAL.inv_cdf(u + _HALF))


@dataclass(frozen=True, slots=True)
class UniformSize:
    """Uniform between two sizes, bytes."""

    least_bytes: int
    most_bytes: int

    @property
    def mean(self) -> float:
        return (self.least_bytes + self.most_bytes) / 2

    @property
    def mean_square(self) -> float:
        """As of `FixedSize`."""
        a, b = self.least_bytes, self.most_bytes
        return (a * a + a * b + b * b) / 3

    def quantile(self, u: float) -> float:
        """As of `FixedSize`."""
        return self.least_bytes + u * (self.most_bytes - self.least_bytes)


SizeLaw: TypeAlias = FixedSize | ExponentialSize | ParetoSize | LogNormalSize | UniformSize


@dataclass(frozen=True, slots=True)
class MessageLaws:
    """Messages after times drawn from `every`, of sizes drawn from `size`. The first comes after the first time."""

    every: GapLaw
    size: SizeLaw

    @property
    def per_second(self) -> float:
        """Messages a second in the mean."""
        return 1e9 / self.every.expected_ns

    @property
    def mean_bps(self) -> float:
        """bit/s in the mean, without overhead."""
        return 8 * self.size.mean * self.per_second


def arrivals(laws: MessageLaws, key: str, seed: int, source: str, destination: str, at_ns: int = 0,
             for_ns: int | None = None) -> Iterator[Arrival]:
    """The messages of the entry `key` between two ends, in the order of time, from `at_ns` on; maybe without end.

    Times are whole ns and differ by at least 1; a message has at least 1 byte.
    """
    gaps, sizes = (key64(seed, purpose, key, source, destination) for purpose in ("traffic", "traffic size"))
    every, size = laws.every.quantile, laws.size.quantile
    at, index = at_ns, 0
    end = None if for_ns is None else at_ns + for_ns
    while True:
        at += max(1, round(every(uniform_at(gaps, index))))
        if end is not None and at >= end:
            return
        yield at, max(1, round(size(uniform_at(sizes, index))))
        index += 1
