"""A few coordinates of a vector: the largest ones, or such as a seed draws.

    top-k       the k of largest |x_i|, ties to the lower i       Aji, Heafield, EMNLP 2017; Stich et al., NeurIPS 2018
    random-k    k drawn without replacement; x_i, or (d / k) x_i without error feedback     Stich et al., NeurIPS 2018

Top-k may choose in each `chunk` of numbers and send a value in `bits` b < 32: a sign, and which of 2^(b-1) bins its
size falls into. The bins have equal width, between the least and the largest size that the chunk sends; a size is
decoded as the mean of those of its bin. SparseLoCo (arXiv 2508.15706) sends 64 of each 4096 numbers in
12 + 2 bits each.

Bytes: top-k n values 4 n + i ceil(n / 8), i = ceil(log2 c) bits of an index, for chunks of c numbers (c = d without
`chunk`) and n = k for each chunk; with b bits (b + i) ceil(n / 8) + 4 m 2^(b-1), m: the number of chunks;
random-k 4 k + 8, since the seed says which.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from emul.primitives.compress import planes
from emul.primitives.compress.codec import Codec, Floats, Octets, Reader, Undecodable, joined


@dataclass(frozen=True)
class _Some(Codec):
    """Either `k` coordinates are sent, or the `fraction` of all, at least one."""

    k: int | None = None
    fraction: float | None = None
    feedback: bool = True               # entries that are not sent are added to the next vector

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
    """The k coordinates of largest size, ties to the first, of all or of each chunk. Aji and Heafield, EMNLP 2017. With
    `bits` b below 32 a value is a sign and one of 2^(b-1) bins, decoded as the mean size of its bin.

    Bytes: 4 k + i ceil(k / 8), i = ceil(log2 d); n values of m chunks of c numbers: 4 n + i ceil(n / 8), i = ceil(log2
    c); with b bits: 4 m 2^(b-1) + (b + i) ceil(n / 8)
    """

    chunk: int | None = None            # numbers of which k are sent; None: all
    bits: int = 32                      # of a value

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.chunk is not None and self.chunk < 1:
            raise ValueError(f"chunk = {self.chunk}: expected at least 1, or none")
        if not 1 <= self.bits <= 8 and self.bits != 32:
            raise ValueError(f"bits = {self.bits}: expected 1..8, or 32")

    @property
    def unbiased(self) -> bool:
        return False

    def encode(self, x: Floats, rng: np.random.Generator, warm: object = None) -> tuple[Octets, object]:
        """Values in the order of their indices (below 32 bits: mean sizes of the bins of each chunk, then sign and bin
        of each value), then the indices within their chunks."""
        lengths, c = self._lengths(len(x)), self._chunk(len(x))
        chosen = [largest(x[i * c:i * c + n], self.count(n)) for i, n in enumerate(lengths)]
        at = np.concatenate(chosen)
        values = x[at + c * self._chunk_of(lengths)]
        indices = planes.pack(at.astype(np.uint32), _index_bits(c))
        if self.bits == 32:
            return joined([values, indices]), None
        split = np.split(np.abs(values), np.cumsum([len(one) for one in chosen])[:-1])
        tables, bins = zip(*(_binned(sizes, self._bins) for sizes in split), strict=True)
        words = np.concatenate(bins) | np.where(values < 0, np.uint8(self._bins), np.uint8(0))
        return joined([*tables, planes.pack(words, self.bits), indices]), None

    def decode(self, code: Octets, d: int) -> Floats:
        """0 where nothing was sent. Raises Undecodable also for indices that do not ascend."""
        lengths, reader = self._lengths(d), Reader(code)
        chunk_of = self._chunk_of(lengths)
        n = len(chunk_of)
        if self.bits == 32:
            values = reader.numbers("<f4", n)
        else:
            tables = reader.numbers("<f4", self._bins * len(lengths)).reshape(-1, self._bins)
            words = planes.unpack(reader, n, self.bits)
            sizes = tables[chunk_of, words % self._bins]
            values = np.where(words >= self._bins, -sizes, sizes)
        inside = planes.unpack(reader, n, _index_bits(self._chunk(d))).astype(np.int64)
        reader.end()
        at = inside + self._chunk(d) * chunk_of
        if not (np.diff(at) > 0).all() or (inside >= np.array(lengths)[chunk_of]).any():
            raise Undecodable("indices that do not ascend, or are out of range")
        found = np.zeros(d, np.float32)
        found[at] = values
        return found

    def nbytes(self, d: int) -> int:
        lengths = self._lengths(d)
        n = sum(map(self.count, lengths))
        values = 4 * n if self.bits == 32 else 4 * self._bins * len(lengths) + self.bits * -(-n // 8)
        return values + _index_bits(self._chunk(d)) * -(-n // 8)

    @property
    def _bins(self) -> int:
        return 1 << (self.bits - 1)

    def _chunk(self, d: int) -> int:
        return min(self.chunk or d, d)

    def _lengths(self, d: int) -> list[int]:
        """The number of coordinates of each chunk; the last one may be shorter."""
        c = self._chunk(d)
        return [min(c, d - start) for start in range(0, d, c)]

    def _chunk_of(self, lengths: list[int]) -> NDArray[np.int64]:
        """The chunk of each value that is sent."""
        return np.repeat(np.arange(len(lengths)), [self.count(n) for n in lengths])


def _binned(sizes: Floats, bins: int) -> tuple[Floats, NDArray[np.uint8]]:
    """(Mean of the sizes in each bin, 0 of an empty one; the bin of each size)."""
    wide = sizes.astype(np.float64)
    low = wide.min()
    width = (wide.max() - low) / bins
    found = np.minimum((wide - low) / width, bins - 1).astype(np.uint8) if width > 0 else np.zeros(len(sizes), np.uint8)
    sums = np.bincount(found, weights=wide, minlength=bins)
    return (sums / np.maximum(np.bincount(found, minlength=bins), 1)).astype("<f4"), found


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
    """k coordinates that a seed draws; without feedback times d / k, and unbiased. Stich et al., NeurIPS 2018.

    Bytes: 4 k + 8, the seed
    """

    @property
    def unbiased(self) -> bool:
        return not self.feedback

    def encode(self, x: Floats, rng: np.random.Generator, warm: object = None) -> tuple[Octets, object]:
        """The seed, then the values in the order of their indices."""
        seed = rng.integers(0, 1 << 63, 1, dtype=np.uint64)
        d, k = len(x), self.count(len(x))
        values = x[drawn(int(seed[0]), d, k)]
        return joined([seed, values if self.feedback else values * np.float32(d / k)]), None

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


def drawn(seed: int, d: int, k: int) -> NDArray[np.intp]:
    """k of d places without replacement, ascending, by a seed that both ends know."""
    if k == d:
        return np.arange(d)
    found = np.random.Generator(np.random.PCG64(seed)).choice(d, k, replace=False, shuffle=False)
    found.sort()
    return found
