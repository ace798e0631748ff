"""Uniform quantiser of updates into the ring Z_2^32, so that sums of masked integers decode to a mean.

q = rint((x + c) / D), D = 2c / (2^bits - 1), x clipped to [-c, c]; mean = D * sum / n - c. The error of the mean is at
most D/2, with standard deviation D / sqrt(12 n) for values that are not on the grid.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from emul.base.errors import NotSendable

RING = 1 << 32


class QuantiserOverflow(NotSendable):
    """A sum of quantised values could pass the modulus and wrap around unseen."""


@dataclass(frozen=True)
class Quantiser:
    """clip: c > 0, the largest absolute value kept. bits: 1..32 for a value. ValueError for others."""

    clip: float = 1.0
    bits: int = 16

    def __post_init__(self) -> None:
        if not (math.isfinite(self.clip) and self.clip > 0):
            raise ValueError(f"clip is {self.clip}, expected a number above 0")
        if not 1 <= self.bits <= 32:
            raise ValueError(f"bits is {self.bits}, expected 1..32")

    @property
    def top(self) -> int:
        """The largest quantised value, 2^bits - 1."""
        return (1 << self.bits) - 1

    @property
    def step(self) -> float:
        """D, the distance of neighbouring levels."""
        return 2.0 * self.clip / self.top

    def check_sum(self, n: int, modulus: int = RING) -> None:
        """Raise QuantiserOverflow unless a sum of n values (or of weights adding to n) stays below `modulus`."""
        if n * self.top >= modulus:
            most = (modulus - 1) // self.top
            raise QuantiserOverflow(f"quantiser_overflow: the sum of n = {n} values of {self.bits} bits can reach "
                                    f"{n * self.top}, expected below {modulus}; {self.bits} bits allow n <= {most}")

    def quantise(self, x: NDArray[np.floating]) -> NDArray[np.uint32]:
        """q: (d,) uint32 from (d,) floats, rounded to nearest (ties to even). Infinite values are clipped.

        Raises NotSendable if there is a NaN: training has diverged. A clipped value is an error of the result: report
        `clip_fraction`.
        """
        level = x.astype(np.float64)               # before clipping: float32(c) may lie above c
        np.clip(level, -self.clip, self.clip, out=level)
        missing = int(np.count_nonzero(np.isnan(level)))
        if missing:
            raise NotSendable("not to be quantised: NaN")
        level += self.clip
        level /= self.step
        np.rint(level, out=level)
        return level.astype(np.uint32)

    def dequantise_mean(self, total: NDArray[np.uint32], n: int) -> NDArray[np.float32]:
        """Mean of the n vectors whose quantised values add up to `total`: (d,) float32.

        Raises ValueError for n < 1 and QuantiserOverflow if `total` may have wrapped around.
        """
        if n < 1:
            raise ValueError(f"mean of n = {n} values, expected at least 1")
        self.check_sum(n)
        mean = total.astype(np.float64)
        mean *= self.step / n
        mean -= self.clip
        return mean.astype(np.float32)

    def clip_fraction(self, x: NDArray[np.floating]) -> float:
        """Fraction of the values outside [-c, c]; 0 for an empty vector."""
        return float(np.count_nonzero(np.abs(x) > self.clip)) / max(1, x.size)


@dataclass(frozen=True)
class SumOfUpdates:
    """The coding of the updates of up to n clients as vectors whose sum modulo `modulus` gives their mean.

    weighted: x = (w q, w) for a client of w samples, so that the mean is that of the samples; else x = q.
    """

    quantiser: Quantiser
    n: int
    modulus: int = RING
    weighted: bool = False

    @property
    def extra(self) -> int:
        """Numbers of an x beside those of its update."""
        return int(self.weighted)

    def encode(self, update: NDArray[np.float32], samples: int) -> tuple[NDArray[np.uint32], float]:
        """(x, (d + extra,) uint32; fraction of the update's values that were clipped).

        Raises QuantiserOverflow if n clients of this weight could pass the modulus, NotSendable for a NaN.
        """
        q, clipped = self.quantiser.quantise(update), self.quantiser.clip_fraction(update)
        if not self.weighted:
            return q, clipped
        if self.n * samples * self.quantiser.top >= self.modulus:
            most = (self.modulus - 1) // (self.n * self.quantiser.top)
            raise QuantiserOverflow(
                f"quantiser_overflow: {samples} samples of one client, but n = {self.n} clients and "
                f"{self.quantiser.bits} bits allow {most} each; use fewer bits or weights: uniform")
        return np.append(q * np.uint32(samples), np.uint32(samples)), clipped

    def add_mean(self, model: NDArray[np.float32], total: NDArray[np.uint32], n: int) -> NDArray[np.float32]:
        """model + mean of the updates of the n clients whose x add up to `total`, (d,) float32."""
        if self.weighted:
            total, n = total[:-1], int(total[-1])
        return model + self.quantiser.dequantise_mean(total, n) if n else model
