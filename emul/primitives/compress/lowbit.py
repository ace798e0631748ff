"""Numbers of 16, 8 and 4 bits, as those who train language models over slow links send them.

    bf16        the upper 16 bits of a float32, rounded to the nearest, ties to even
    int8        256 bins of equal width, the middle one around the mean; decoded: the mean of the numbers of a bin.
                Hivemind's `Uniform8BitQuantization`, which INTELLECT-1 uses (Jaghouar et al., 2024, arXiv 2412.01152)
    e3m0        a sign and 3 bits of exponent, times the largest size of each `bucket` of numbers: one of
                0, +-2^-6, .., +-1/2, +-1 times it, the nearest. Streaming DiLoCo (Douillard et al., 2025, 2501.18512)

Nothing is drawn, so none of them is unbiased. The part that a code leaves out is bounded:

    bf16        |x_i - decoded_i| <= 2^-8 |x_i|, and of numbers below 2^-126 at most 2^-134
    int8        at most the width of a bin, 2 `sigmas` s / 256, for x_i within `sigmas` standard deviations s of the
                mean; the bins at both ends also take what is further away. The sum of the vector stays
    e3m0        |x_i| / 3 where |x_i| is 3/4 of 2^-6 times the largest size of its bucket, or more; |x_i| elsewhere

Deviations: the papers do not state the scale of E3M0; here a bucket has its largest size. Bytes, for m = the number of
buckets: 2 d; 1024 + d; 4 m + 4 ceil(d / 8).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from emul.primitives.compress import planes
from emul.primitives.compress.codec import Codec, Floats, Octets, Reader, finite, joined, rows_of, scales, sendable

BINS = 256
_LARGEST = np.uint32(0x7F7F0000)        # the bits of the largest number of bf16
_LEVELS = np.array([0, *(2.0**-e for e in range(6, -1, -1))], np.float32)      # of E3M0, in shares of the scale
_BETWEEN = (_LEVELS[1:] + _LEVELS[:-1]) / 2


@dataclass(frozen=True)
class _LowBit(Codec):
    """A codec without draws, so that the decoded vector is off in the same way each time."""

    feedback: bool = False

    @property
    def unbiased(self) -> bool:
        return False


@dataclass(frozen=True)
class BF16(_LowBit):
    """Upper halves of float32, off by 2^-8 of their size at most; a number above the largest of bf16 becomes the
    largest.

    Bytes: 2 d
    """

    def encode(self, x: Floats, rng: np.random.Generator, warm: object = None) -> tuple[Octets, object]:
        """16 bits of each number."""
        bits = np.asarray(x, np.float32).view(np.uint32)
        size, sign = bits & np.uint32(0x7FFFFFFF), bits & np.uint32(0x80000000)
        size += np.uint32(0x7FFF) + ((size >> np.uint32(16)) & np.uint32(1))       # ties to even
        np.minimum(size, _LARGEST, out=size)
        return joined([((size | sign) >> np.uint32(16)).astype("<u2")]), None

    def decode(self, code: Octets, d: int) -> Floats:
        reader = Reader(code)
        found = (reader.numbers("<u2", d).astype(np.uint32) << np.uint32(16)).view(np.float32)
        reader.end()
        return finite(found)

    def nbytes(self, d: int) -> int:
        return 2 * d


@dataclass(frozen=True)
class Int8(_LowBit):
    """The mean of the numbers of its bin, of 256 that reach `sigmas` standard deviations to each side of the mean.
    INTELLECT-1, arXiv 2412.01152.

    Bytes: 1024 + d
    """

    sigmas: float = 6.0                 # 6: as INTELLECT-1 says; 3: six in all, as Hivemind's code has it

    def __post_init__(self) -> None:
        if not 0 < self.sigmas < math.inf:
            raise ValueError(f"sigmas = {self.sigmas}: expected a number > 0")

    def encode(self, x: Floats, rng: np.random.Generator, warm: object = None) -> tuple[Octets, object]:
        """The mean of each bin, 0 where it is empty, then the bin of each number."""
        wide = x.astype(np.float64)                     # sums of squares of large float32 overflow
        wide -= wide.mean()
        width = 2 * self.sigmas * math.sqrt(np.mean(np.square(wide))) / BINS
        if width > 0:                                   # otherwise all numbers are in the middle bin
            wide /= width
        bins = np.clip(np.rint(wide, out=wide), -BINS // 2, BINS // 2 - 1, out=wide).astype(np.int64) + BINS // 2
        counts = np.bincount(bins, minlength=BINS)
        means = np.bincount(bins, weights=x, minlength=BINS) / np.maximum(counts, 1)
        return joined([means.astype("<f4"), bins.astype(np.uint8)]), None

    def decode(self, code: Octets, d: int) -> Floats:
        reader = Reader(code)
        means, bins = reader.numbers("<f4", BINS), reader.octets(d)
        reader.end()
        found: Floats = means[bins]
        return found

    def nbytes(self, d: int) -> int:
        return 4 * BINS + d


@dataclass(frozen=True)
class E3M0(_LowBit):
    """The nearest of 0, 2^-6, .., 1/2, 1 times the largest size of the bucket, with its sign. Streaming DiLoCo, arXiv
    2501.18512, which does not state the scale.

    Bytes: 4 m + 4 ceil(d / 8)
    """

    bucket: int | None = 256            # numbers that share a scale; None: all

    def __post_init__(self) -> None:
        if self.bucket is not None and self.bucket < 1:
            raise ValueError(f"bucket = {self.bucket}: expected at least 1, or none")

    def encode(self, x: Floats, rng: np.random.Generator, warm: object = None) -> tuple[Octets, object]:
        """The largest size of each bucket, then 4 bits of each number: level, and 8 where it is negative."""
        size = np.abs(rows_of(x, self.bucket, 0))
        largest = size.max(1, keepdims=True)
        size = np.divide(size, largest, out=np.zeros_like(size), where=largest > 0)
        levels = np.searchsorted(_BETWEEN, size.reshape(-1)[:len(x)]).astype(np.uint8)
        return joined([largest, planes.pack(levels | (x < 0).astype(np.uint8) << 3, 4)]), None

    def decode(self, code: Octets, d: int) -> Floats:
        reader = Reader(code)
        largest, words = reader.numbers("<f4", scales(d, self.bucket)), planes.unpack(reader, d, 4)
        reader.end()
        signed = np.where(words & 8, -_LEVELS[words & 7], _LEVELS[words & 7])
        return (rows_of(signed, self.bucket, 0) * largest[:, None]).reshape(-1)[:d]

    def nbytes(self, d: int) -> int:
        return 4 * scales(d, self.bucket) + 4 * -(-d // 8)


# --- one bit a coordinate: its sign ---------------------------------------------------------------------------------
#   scale: mean     sign(x) |x|_1 / d, under error feedback     Karimireddy et al., ICML 2019 (EF-signSGD), Algorithm 1
#   scale: none     sign(x), for those who count votes          Bernstein et al., ICML 2018 (signSGD)
#
# 0 counts as positive. Bytes: ceil(d / 8), and 4 for the scale.

@dataclass(frozen=True)
class Sign(Codec):
    """sign(x_i) times the mean size. Karimireddy et al., ICML 2019.

    Bytes: 4 + ceil(d / 8)
    """

    scale: Literal["mean", "none"] = "mean"
    feedback: bool = True

    def __post_init__(self) -> None:
        if self.feedback and self.scale == "none":
            raise ValueError("feedback: true needs scale: mean: without a size there is no error to keep")

    @property
    def unbiased(self) -> bool:
        return False

    def encode(self, x: Floats, rng: np.random.Generator, warm: object = None) -> tuple[Octets, object]:
        """The scale, then the signs: 1 is negative."""
        size = np.array([np.abs(x).mean(dtype=np.float64)], np.float32) if self.scale == "mean" else np.empty(0, "<f4")
        return joined([sendable(size), np.packbits(x < 0)]), None

    def decode(self, code: Octets, d: int) -> Floats:
        reader = Reader(code)
        size = reader.numbers("<f4", 1)[0] if self.scale == "mean" else np.float32(1)
        negative = planes.bits_of(reader, d)
        reader.end()
        return np.where(negative, -size, size)

    def nbytes(self, d: int) -> int:
        return (4 if self.scale == "mean" else 0) + -(-d // 8)
