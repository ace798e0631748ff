"""A few coordinates of a vector: the largest ones, or such as a seed draws.

    top-k       the k of largest |x_i|, ties to the lower i       Aji, Heafield, EMNLP 2017; Stich et al., NeurIPS 2018
    random-k    k drawn without replacement; x_i, or (d / k) x_i without error feedback     Stich et al., NeurIPS 2018

Bytes: top-k 4 k + b ceil(k / 8), b = ceil(log2 d) bits of an index; random-k 4 k + 8, since the seed says which.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emul.primitives.compress import planes
from emul.primitives.compress.codec import Codec, Floats, Octets, Reader, Undecodable, joined


@dataclass(frozen=True)
class _Some(Codec):
    """Either `k` coordinates are sent, or the `fraction` of all, at least one."""

    k: int | None = None
    fraction: float | None = None
    feedback: bool = True               # what is not sent is added to the next vector

    def __post_init__(self) -> None:
        if (self.k is None) == (self.fraction is None):
            raise ValueError("expected either k or fraction")
        if self.k is not None and self.k < 1:
            raise ValueError(f"k = {self.k}: expected at least 1")
        if self.fraction is not None and not 0 < self.fraction <= 1:
            raise ValueError(f"fraction = {self.fraction}: expected a number in (0, 1]")

    def count(self, d: int) -> int:
        """k for vectors of d numbers: all of them where there are fewer than k."""
        return min(self.k, d) if self.k is not None else max(1, math.ceil((self.fraction or 0) * d))


@dataclass(frozen=True)
class TopK(_Some):
    """The k coordinates of largest size."""

    @property
    def unbiased(self) -> bool:
        return False

    def encode(self, x: Floats, rng: np.random.Generator, warm: Any = None) -> tuple[Octets, Any]:
        """Values in the order of their indices, then the indices."""
        chosen = largest(x, self.count(len(x)))
        return joined([x[chosen], planes.pack(chosen.astype(np.uint32), _index_bits(len(x)))]), None

    def decode(self, code: Octets, d: int) -> Floats:
        """0 where nothing was sent. Raises Undecodable also for indices that do not ascend."""
        k, reader = self.count(d), Reader(code)
        values, at = reader.numbers("<f4", k), planes.unpack(reader, k, _index_bits(d))
        reader.end()
        if not (np.diff(at.astype(np.int64)) > 0).all() or at[-1] >= d:
            raise Undecodable("indices that do not ascend, or are out of range")
        found = np.zeros(d, np.float32)
        found[at] = values
        return found

    def nbytes(self, d: int) -> int:
        k = self.count(d)
        return 4 * k + _index_bits(d) * -(-k // 8)


def largest(x: Floats, k: int) -> NDArray[np.intp]:
    """The places of the k numbers of largest size, ascending; of equal ones the first."""
    size = np.abs(x).view(np.uint32)                # of floats without sign the bits are in the order of their values
    if k >= len(x):
        return np.arange(len(x))
    least = np.partition(size, len(x) - k)[len(x) - k]
    chosen = np.flatnonzero(size >= least)
    if len(chosen) > k:                             # more than fit are as large as the least
        equal = np.flatnonzero(size[chosen] == least)
        chosen = np.delete(chosen, equal[len(equal) - (len(chosen) - k):])
    return chosen


def _index_bits(d: int) -> int:
    return (d - 1).bit_length()


@dataclass(frozen=True)
class RandomK(_Some):
    """k coordinates that a seed draws; the seed travels."""

    @property
    def unbiased(self) -> bool:
        return not self.feedback

    def encode(self, x: Floats, rng: np.random.Generator, warm: Any = None) -> tuple[Octets, Any]:
        """The seed, then the values in the order of their indices."""
        seed = rng.integers(0, 1 << 63, 1, dtype=np.uint64)
        values = x[drawn(int(seed[0]), len(x), self.count(len(x)))]
        return joined([seed, values if self.feedback else values * self._factor(len(x))]), None

    def decode(self, code: Octets, d: int) -> Floats:
        """0 where nothing was sent."""
        k, reader = self.count(d), Reader(code)
        seed, values = reader.numbers("<u8", 1), reader.numbers("<f4", k)
        reader.end()
        found = np.zeros(d, np.float32)
        found[drawn(int(seed[0]), d, k)] = values
        return found

    def nbytes(self, d: int) -> int:
        return 8 + 4 * self.count(d)

    def _factor(self, d: int) -> np.float32:
        return np.float32(d / self.count(d))


def drawn(seed: int, d: int, k: int) -> NDArray[np.intp]:
    """k of d places without replacement, ascending, by a seed that both ends know."""
    if k == d:
        return np.arange(d)
    found = np.random.Generator(np.random.PCG64(seed)).choice(d, k, replace=False, shuffle=False)
    found.sort()
    return found
