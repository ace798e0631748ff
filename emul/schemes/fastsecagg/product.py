"""FastShare's product code: shares are a Fourier transform of a sparse signal. Kadhe et al., arXiv:2009.11248.

    share(u) = sum_{i < k0, j < k1} a_ij w0^(i u) w1^(j u)      mod p, N = n0 n1 coprime, k = n - r of each

By the Chinese remainder theorem place u is the point (u mod n0, u mod n1) of a grid, and each line of the grid is a
word of a Reed-Solomon code: any k0 of a line of n0, any k1 of a line of n1, give the whole line. Decoding completes
lines until the grid is full, or stuck: which patterns of losses decode depends on the pattern. Random losses only.

Reconstruction of ours: a_ij is random where (i + 1)(j + 1) <= T and secret elsewhere. Any T shares are then
independent of the secrets; randomness in a square corner of T elements would not be enough. Holders that the grid
has beyond n count as lost.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import gcd

import numpy as np
from numpy.typing import NDArray

from emul.base.errors import NotDecodable
from emul.primitives.codes.packed import expect_consistent
from emul.primitives.field import Elements, Matrix, inverse, matmul, prime_for, roots

Line = tuple[int, int]              # (axis along which it runs, its place on the other axis)


@dataclass(frozen=True)
class ProductCode:
    """n: holders, places 0..n-1 of the grid. sides: (n0, n1). kept: (k0, k1), symbols that give a line.

    random: the (i, j) whose coefficients are random, of the k0 x k1 box.
    """

    n: int
    sides: tuple[int, int]
    kept: tuple[int, int]
    random: frozenset[tuple[int, int]]

    @cached_property
    def p(self) -> int:
        """The largest prime below 2^31 with p = 1 mod N."""
        return prime_for(self.sides[0] * self.sides[1])

    @cached_property
    def coefficients(self) -> list[tuple[int, int]]:
        """(i, j) by column of the generator: secrets first."""
        box = [(i, j) for i in range(self.kept[0]) for j in range(self.kept[1])]
        return sorted(box, key=lambda at: (at in self.random, at))

    @property
    def segments(self) -> int:
        return self.need - self.randomness

    @property
    def randomness(self) -> int:
        return len(self.random)

    @property
    def need(self) -> int:
        return self.kept[0] * self.kept[1]

    @property
    def enough(self) -> int | None:
        return None

    @cached_property
    def generator(self) -> Matrix:
        positions = np.arange(self.n)
        first, second = (self._points[axis][positions % self.sides[axis]] for axis in (0, 1))
        return np.stack([first[:, i] * second[:, j] % self.p for i, j in self.coefficients], axis=1)

    def encode(self, message: Sequence[Elements]) -> Elements:
        return matmul(self.generator, message, self.p)

    def decodable(self, positions: Collection[int]) -> bool:
        known = self._known(positions)
        for _ in self._completions(known):
            pass
        return bool(known.all())

    def decode(self, answers: Mapping[int, Elements], verify: bool = False) -> Elements:
        known = self._known(answers)
        w = len(next(iter(answers.values()))) if answers else 0
        grid = np.zeros((*self.sides, w), np.uint32)
        for u, share in answers.items():
            grid[u % self.sides[0], u % self.sides[1]] = share
        for (axis, at), have in self._completions(known):
            line = grid[:, at] if axis == 0 else grid[at]
            missing = np.flatnonzero(~have)
            used, points = np.flatnonzero(have)[:self.kept[axis]], self._points[axis]
            back = inverse(points[used], self.p)
            line[missing] = matmul(matmul(points[missing], back, self.p), line[used], self.p)
        if not known.all():
            raise NotDecodable(f"undecodable: {len(answers)} answers of {self.n} leave {int((~known).sum())} of "
                               f"{known.size} points of the grid unknown")
        message = self._transformed(grid)
        if verify:
            expect_consistent(self, message, answers, sorted(answers))
        return message[:self.segments]

    def _known(self, positions: Collection[int]) -> NDArray[np.bool_]:
        known = np.zeros(self.sides, bool)
        for u in positions:
            known[u % self.sides[0], u % self.sides[1]] = True
        return known

    def _completions(self, known: NDArray[np.bool_]) -> Iterator[tuple[Line, NDArray[np.bool_]]]:
        """Lines in the order in which they can be completed, each with what is known of it; `known` grows."""
        stuck = False
        while not stuck:
            stuck = True
            for axis in (0, 1):
                for at in range(self.sides[1 - axis]):
                    line = known[:, at] if axis == 0 else known[at]
                    if self.kept[axis] <= line.sum() < line.size:
                        yield (axis, at), line.copy()
                        line[:] = True
                        stuck = False

    def _transformed(self, grid: Elements) -> Elements:
        """(k0 k1, w): the coefficients of a full grid, in the order of the generator's columns."""
        (k0, k1), w = self.kept, grid.shape[2]
        back = [inverse(self._points[axis][:self.kept[axis]], self.p) for axis in (0, 1)]
        half = matmul(back[0], grid[:k0, :k1].reshape(k0, k1 * w), self.p).reshape(k0, k1, w)
        box = np.stack([matmul(back[1], row, self.p) for row in half])
        return np.stack([box[i, j] for i, j in self.coefficients])

    @cached_property
    def _points(self) -> tuple[Matrix, Matrix]:
        """By axis, (n, k): the powers below k of each root of unity of order n."""
        first, second = (roots(side, self.p)[np.outer(np.arange(side), np.arange(k)) % side]
                         for side, k in zip(self.sides, self.kept, strict=True))
        return first, second


@lru_cache(maxsize=16)
def product_code(n: int, sides: tuple[int, int], parity: tuple[int, int], colluders: int) -> ProductCode:
    """T = `colluders` learn nothing. sides: n0, n1, coprime, with n0 n1 >= n. parity: r0, r1, below their sides.

    Raises ValueError for other numbers, or if no coefficient is left for a secret.
    """
    (n0, n1), (r0, r1) = sides, parity
    if gcd(n0, n1) != 1 or n0 * n1 < n or not (0 <= r0 < n0 and 0 <= r1 < n1) or colluders < 0:
        raise ValueError(f"a grid of {n0} x {n1} with parities {r0}, {r1} for n = {n} and T = {colluders}: expected "
                         "coprime sides with n or more points, parities below them, T of 0 or more")
    k0, k1 = n0 - r0, n1 - r1
    random = footprint(k0, k1, colluders)
    if len(random) == k0 * k1:
        raise ValueError(f"T = {colluders}: all {k0 * k1} coefficients would be random, none a secret")
    return ProductCode(n, sides, (k0, k1), random)


def footprint(k0: int, k1: int, colluders: int) -> frozenset[tuple[int, int]]:
    """The (i, j) of the k0 x k1 box with (i + 1)(j + 1) <= T: about T ln T of them."""
    return frozenset((i, j) for i in range(k0) for j in range(k1) if (i + 1) * (j + 1) <= colluders)


def default_sides(n: int) -> tuple[int, int]:
    """The smallest grid of m x (m + 1) with n points or more."""
    m = 1
    while m * (m + 1) < n:
        m += 1
    return m, m + 1


def default_parity(n: int, sides: tuple[int, int]) -> tuple[int, int]:
    """A fifth of each side, at least 1 from 3 on; less if the answers of n / 2 holders could then decode."""
    r0, r1 = (0 if side < 3 else max(1, side // 5) for side in sides)
    return (r0, r1) if 2 * (sides[0] - r0) * (sides[1] - r1) > n else (max(0, r0 - 1), r1)
