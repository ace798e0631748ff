"""Numbers as whole levels between scales.

    uniform     q = (x - lo) / D, D = (hi - lo) / (2^b - 1), rounded up or down at random with mean q, or to the nearest
    qsgd        x ~ |x|_2 sign(x_i) xi_i / s, xi_i: s |x_i| / |x|_2 rounded at random    Alistarh et al., NIPS 2017, 3.1
    fedpaq      the same in words of fixed length                                 Reisizadeh et al., AISTATS 2020, Ex. 1

lo, hi, |x|_2 are of the whole vector, or of each `bucket` of numbers. QSGD sends those that are not 0: gaps between
their places and levels in Elias' gamma code (in place of the omega code of the paper, which is shorter above 31 only),
and a bit of sign. Bytes, for m = the number of buckets:

    uniform     8 m + b ceil(d / 8)
    qsgd        4 m + 4 + gamma(gaps) + gamma(levels) + ceil(n / 8), n: numbers that are not 0
    fedpaq      4 m + (1 + ceil(log2(s + 1))) ceil(d / 8)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from emul.primitives.compress import planes
from emul.primitives.compress.codec import (
    Codec,
    Floats,
    Octets,
    Reader,
    Undecodable,
    finite,
    joined,
    rows_of,
    scales,
    sendable,
)

MOST_LEVELS = (1 << 15) - 1


def rounded(x: Floats, rng: np.random.Generator) -> Floats:
    """Numbers of 0 and above, each down or up to a whole one with mean x_i; x is overwritten, the result is fresh.

    The fraction is exact in float32 and is compared with 24 random bits, so the mean is right to 2^-24 of a level.
    """
    low = np.floor(x)
    x -= low
    low += rng.random(x.shape, np.float32) < x
    return low


def _wrong_bucket(bucket: int | None) -> None:
    if bucket is not None and bucket < 1:
        raise ValueError(f"bucket = {bucket}: expected at least 1, or none")


@dataclass(frozen=True)
class Uniform(Codec):
    """One of 2^b levels between the least and the largest number; stochastic rounding is unbiased.

    Bytes: 8 m + b ceil(d / 8)
    """

    bits: int = 8
    rounding: Literal["stochastic", "nearest"] = "stochastic"
    bucket: int | None = None           # numbers that share lo and hi; None: all
    feedback: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= 16:
            raise ValueError(f"bits = {self.bits}: expected 1..16")
        _wrong_bucket(self.bucket)

    @property
    def unbiased(self) -> bool:
        return self.rounding == "stochastic" and not self.feedback

    def grows(self, d: int) -> str | None:
        """Of one bit, which leaves most numbers half the way between the least and the largest. Of more bits it does
        not, of normal and of heavy-tailed numbers, although there are vectors of which they leave out more as well."""
        m = min(self.bucket or d, d)
        if self.bits > 1 or m <= 2:
            return None
        return (f"a code may leave out {m / 2:,.3g} times as much as it is given, m / 2 for m = {m:,} numbers that "
                "share lo and hi: expected 2 bits or more")

    def encode(self, x: Floats, rng: np.random.Generator, warm: object = None) -> tuple[Octets, object]:
        """lo and hi of each bucket, then the levels."""
        rows, top = rows_of(x, self.bucket, float(x[-1])), (1 << self.bits) - 1
        lo, hi = rows.min(1, keepdims=True), rows.max(1, keepdims=True)
        spread = sendable(hi - lo)
        levels = rows - lo
        levels *= np.divide(np.float32(top), spread, out=np.zeros_like(spread), where=spread > 0)
        levels = rounded(levels, rng) if self.rounding == "stochastic" else np.rint(levels, out=levels)
        np.minimum(levels, np.float32(top), out=levels)         # the largest may have come out above by its last bit
        packed = levels.reshape(-1)[:len(x)].astype(np.uint8 if self.bits <= 8 else np.uint16)
        return joined([lo, hi, planes.pack(packed, self.bits)]), None

    def decode(self, code: Octets, d: int) -> Floats:
        n, reader = scales(d, self.bucket), Reader(code)
        lo, hi = (reader.numbers("<f4", n)[:, None] for _ in range(2))
        levels = rows_of(planes.unpack(reader, d, self.bits).astype(np.float32), self.bucket, 0)
        reader.end()
        with np.errstate(over="ignore", invalid="ignore"):
            levels = levels * ((hi - lo) / np.float32((1 << self.bits) - 1))
            levels += lo
        return finite(levels.reshape(-1)[:d])

    def nbytes(self, d: int) -> int:
        return 8 * scales(d, self.bucket) + self.bits * -(-d // 8)


@dataclass(frozen=True)
class QSGD(Codec):
    """|x| sign(x_i) times one of s levels above 0, of the number's share of the norm; unbiased. Alistarh et al., NIPS
    2017.

    Bytes: 4 m + 4 + gamma(gaps) + gamma(levels) + ceil(n / 8), n: not 0
    """

    levels: int = 16                    # s
    bucket: int | None = None           # numbers that share a norm; None: all
    feedback: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.levels <= MOST_LEVELS:
            raise ValueError(f"levels = {self.levels}: expected 1..{MOST_LEVELS}")
        _wrong_bucket(self.bucket)

    @property
    def unbiased(self) -> bool:
        return not self.feedback

    def grows(self, d: int) -> str | None:
        """Unless sqrt(m) <= s, for m numbers that share a norm: E|x - decoded|^2 <= min(m / s^2, sqrt(m) / s) |x|^2 by
        lemma 3.1 of the paper, and of normal numbers with s far below sqrt(m) it is 0.8 sqrt(m) / s - 1."""
        m = min(self.bucket or d, d)
        if m <= self.levels**2:
            return None
        return (f"a code may leave out {math.sqrt(m) / self.levels:,.3g} times as much as it is given, sqrt(m) / s for "
                f"m = {m:,} numbers that share a norm: expected levels: {math.isqrt(m - 1) + 1} or more, or a bucket "
                f"of {self.levels**2} or fewer")

    def encode(self, x: Floats, rng: np.random.Generator, warm: object = None) -> tuple[Octets, object]:
        """Norms, how many are not 0, gaps, levels, signs."""
        norms, levels = self._quantised(x, rng)
        at = np.flatnonzero(levels)
        gaps = at.astype(np.uint32) + np.uint32(1)
        gaps[1:] -= gaps[:-1].copy()
        return joined([norms, np.array([len(at)], "<u4"), planes.gamma(gaps), planes.gamma(levels[at]),
                       np.packbits((x < 0)[at])]), None

    def decode(self, code: Octets, d: int) -> Floats:
        reader = Reader(code)
        norms, count = reader.numbers("<f4", scales(d, self.bucket)), int(reader.numbers("<u4", 1)[0])
        if count > d:
            raise Undecodable("more numbers than there are places")
        at = np.cumsum(planes.ungamma(reader, count), dtype=np.int64) - 1
        sizes, negative = planes.ungamma(reader, count), planes.bits_of(reader, count)
        reader.end()
        if count and at[-1] >= d:
            raise Undecodable("places out of range")
        found = np.zeros(d, np.float32)
        found[at] = np.where(negative, -sizes.astype(np.float32), sizes.astype(np.float32))
        return self._scaled(found, norms)

    def nbytes(self, d: int) -> int | None:
        return None

    def _quantised(self, x: Floats, rng: np.random.Generator) -> tuple[Floats, np.ndarray]:
        """(norm of each bucket, xi of each number)."""
        rows = rows_of(x, self.bucket, 0)
        norms = sendable(np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64)).astype(np.float32))
        sizes = np.abs(rows)
        sizes *= np.divide(np.float32(self.levels), norms, out=np.zeros_like(norms), where=norms > 0)[:, None]
        levels = rounded(sizes, rng)
        np.minimum(levels, np.float32(self.levels), out=levels)
        return norms, levels.reshape(-1)[:len(x)].astype(np.uint8 if self.levels < 256 else np.uint16)

    def _scaled(self, signed: Floats, norms: Floats) -> Floats:
        """xi with its sign, times norm / s."""
        rows = rows_of(signed, self.bucket, 0)
        with np.errstate(over="ignore", invalid="ignore"):
            return finite((rows * (norms / np.float32(self.levels))[:, None]).reshape(-1)[:len(signed)])


@dataclass(frozen=True)
class FedPAQ(QSGD):
    """QSGD's levels in words of fixed length: 1 bit of sign and ceil(log2(s + 1)) of level. Reisizadeh et al., AISTATS
    2020.

    Bytes: 4 m + (1 + ceil(log2(s + 1))) ceil(d / 8)
    """

    levels: int = 1                     # s

    def encode(self, x: Floats, rng: np.random.Generator, warm: object = None) -> tuple[Octets, object]:
        """Norms, signs, levels."""
        norms, levels = self._quantised(x, rng)
        return joined([norms, np.packbits(x < 0), planes.pack(levels, self.levels.bit_length())]), None

    def decode(self, code: Octets, d: int) -> Floats:
        reader = Reader(code)
        norms, negative = reader.numbers("<f4", scales(d, self.bucket)), planes.bits_of(reader, d)
        sizes = planes.unpack(reader, d, self.levels.bit_length()).astype(np.float32)
        reader.end()
        return self._scaled(np.where(negative, -sizes, sizes), norms)

    def nbytes(self, d: int) -> int:
        return 4 * scales(d, self.bucket) + (1 + self.levels.bit_length()) * -(-d // 8)
