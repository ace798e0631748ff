"""Packed secret sharing: one share of n hides S vectors at once, and any S + T shares give all of them.

    shares = G @ (secrets; randomness)      mod p, (n, w) = (n, S + T) x (S + T, w)

Any T rows of the random columns of G are independent, so T shares say nothing of the secrets. Shares of sums are sums
of shares. A vector of d elements is cut into S segments of w = ceil(d / S).

`lagrange_code`     the polynomial that has the segments at 1..S and randomness at S+1..S+T; share j is its value at
                    S + T + 1 + j. So et al., MLSys 2022 (LightSecAgg); Jahani-Nezhad et al. 2022 (SwiftAgg+)
`roots_code`        the polynomial with randomness as its lowest T coefficients; share j is its value at the j-th power
                    of a root of unity of order n. Kadhe et al. 2020 (FastSecAgg), without their FFT: a matrix product
                    is faster up to n = 1,000
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np

from emul.base.errors import NotDecodable
from emul.primitives.field import P31, Elements, Matrix, inverse, lagrange, matmul, prime_for, roots


class Code(Protocol):
    """A linear secret sharing of vectors over GF(p) among n positions."""

    @property
    def p(self) -> int:
        """The prime of the field."""

    @property
    def n(self) -> int:
        """Positions of holders, from 0."""

    @property
    def segments(self) -> int:
        """S, into which a vector is cut."""

    @property
    def randomness(self) -> int:
        """Random segments beside them."""

    @property
    def need(self) -> int:
        """Fewer answers than these never decode."""

    @property
    def enough(self) -> int | None:
        """So many answers always decode; None: it depends on which."""

    @property
    def generator(self) -> Matrix:
        """G, (n, segments + randomness): the secrets' columns first."""

    def encode(self, message: Sequence[Elements]) -> Elements:
        """(n, w): the shares of segments and randomness, (w,) each."""

    def decode(self, answers: Mapping[int, Elements], verify: bool = False) -> Elements:
        """(segments, w) from {place: its share}. Raises NotDecodable.

        verify: compare all answers with what those that were used say of them. Raises NotDecodable,
        `inconsistent_sets`, if one differs.
        """

    def decodable(self, positions: Collection[int]) -> bool:
        """True if the shares at these positions give the secrets."""


def width(d: int, segments: int) -> int:
    """w = ceil(d / S), elements of a share."""
    return -(-d // segments)


def cut(vector: Elements, segments: int) -> Elements:
    """(segments, w): a (d,) vector in rows, filled up with zeros."""
    w = width(vector.size, segments)
    rows = np.zeros((segments, w), np.uint32)
    rows.reshape(-1)[:vector.size] = vector
    return rows


@dataclass(frozen=True)
class PackedCode:
    """Any `need` = S + T rows of G are independent. generator: (n, S + T), the secrets' columns first."""

    generator: Matrix
    segments: int
    p: int

    @property
    def n(self) -> int:
        return len(self.generator)

    @property
    def need(self) -> int:
        return int(self.generator.shape[1])

    @property
    def enough(self) -> int | None:
        return self.need

    @property
    def randomness(self) -> int:
        return self.need - self.segments

    def encode(self, message: Sequence[Elements]) -> Elements:
        return matmul(self.generator, message, self.p)

    def decodable(self, positions: Collection[int]) -> bool:
        return len(positions) >= self.need

    def decode(self, answers: Mapping[int, Elements], verify: bool = False) -> Elements:
        positions = sorted(answers)
        if len(positions) < self.need:
            raise NotDecodable(f"undecodable: {len(positions)} answers, need {self.need}")
        used = positions[:self.need]
        back = inverse(self.generator[used], self.p)
        message = matmul(back if verify else back[:self.segments], [answers[k] for k in used], self.p)
        if verify:
            expect_consistent(self, message, answers, positions[self.need:])
        return message[:self.segments]


def expect_consistent(code: Code, message: Elements, answers: Mapping[int, Elements], spare: Sequence[int]) -> None:
    """Raise NotDecodable unless the spare answers are those of the decoded message. message: (S + T, w)."""
    if not spare:
        return
    expected = matmul(code.generator[list(spare)], message, code.p)
    wrong = [k for k, row in zip(spare, expected, strict=True) if not np.array_equal(row, answers[k])]
    if wrong:
        raise NotDecodable(f"inconsistent_sets: {len(wrong)} of {len(spare)} spare answers are of another sum")


@lru_cache(maxsize=16)
def lagrange_code(n: int, segments: int, colluders: int) -> PackedCode:
    """T = `colluders` learn nothing; any S + T of n positions decode. Raises ValueError for impossible numbers."""
    _expect(n, segments, colluders)
    need = segments + colluders
    generator = lagrange(range(need + 1, need + 1 + n), range(1, need + 1), P31)
    return PackedCode(generator, segments, P31)


@lru_cache(maxsize=16)
def roots_code(n: int, segments: int, colluders: int) -> PackedCode:
    """The same with values at the n-th roots of unity. p: the largest prime below 2^31 with p = 1 mod n."""
    _expect(n, segments, colluders)
    p = prime_for(n)
    table, degree = roots(n, p), np.arange(segments + colluders)
    exponents = np.outer(np.arange(n), np.roll(degree, -colluders)) % n         # secrets' columns first
    return PackedCode(table[exponents], segments, p)


def _expect(n: int, segments: int, colluders: int) -> None:
    if not (segments >= 1 and colluders >= 0 and segments + colluders <= n):
        raise ValueError(f"n = {n}, S = {segments}, T = {colluders}: expected S >= 1, T >= 0, S + T <= n")
