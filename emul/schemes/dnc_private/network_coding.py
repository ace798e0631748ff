"""Linear network coding over the prime field of 2^31 - 1, with updates in fixed point. For `dnc_private`.

Every square submatrix of a Cauchy matrix is invertible, so any n combinations of n unknowns with coefficients from it
determine them: a deterministic MDS code.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from emul.primitives.field import P31, matmul

P = P31
FRACTION_BITS = 16
LARGEST = float((1 << 13) - 1)  # of a value that is coded: 2^16 v stays far from P/2, so that the sign is kept

Symbols = NDArray[np.uint32]


def to_field(v: np.ndarray) -> Symbols:
    """round(2^16 v) mod P, (d,) uint32. Values beyond +-8191 are cut; a value that is no number becomes 0."""
    scaled = np.multiply(v, 1 << FRACTION_BITS, dtype=np.float64)
    limit = LARGEST * (1 << FRACTION_BITS)
    finite = np.nan_to_num(scaled, nan=0.0, posinf=limit, neginf=-limit)
    whole = np.rint(np.clip(finite, -limit, limit)).astype(np.int64)
    return np.where(whole < 0, whole + P, whole).astype(np.uint32)


def from_field(u: Symbols) -> np.ndarray:
    """The inverse, (d,) float32: within 2^-17 of what was coded (and float32's own rounding)."""
    whole = u.astype(np.int64)
    return (np.where(whole > P // 2, whole - P, whole) * 2.0**-FRACTION_BITS).astype(np.float32)


def cauchy(rows: int, columns: int) -> NDArray[np.int64]:
    """alpha_{i,m} = 1 / (x_i - y_m) mod P with x_i = columns + i, y_m = m: (rows, columns)."""
    inverses = np.array([0, *(pow(k, -1, P) for k in range(1, columns + rows))], np.int64)     # of all differences
    return inverses[columns + np.arange(rows)[:, None] - np.arange(columns)]


def combine(coefficients: NDArray[np.int64], symbols: Sequence[Symbols]) -> list[Symbols]:
    """coefficients @ symbols mod P, exact: (r, n) with n vectors of (d,) uint32 gives r vectors."""
    return list(matmul(coefficients, symbols, P))


def solvable(rows: NDArray[np.int64]) -> dict[int, NDArray[np.int64]]:
    """{column m: w} with w @ rows = the m-th unit vector mod P, for every m that the rows determine.

    rows: (n, K) of received combinations over GF(P); w: (n,). Gauss and Jordan, in Python's integers.
    """
    n, K = rows.shape
    work = [[int(v) for v in row] + [int(i == j) for j in range(n)] for i, row in enumerate(rows)]
    pivots: list[tuple[int, int]] = []                              # (row, column)
    rank = 0
    for column in range(K):
        at = next((i for i in range(rank, n) if work[i][column]), None)
        if at is None:
            continue
        work[rank], work[at] = work[at], work[rank]
        inverse = pow(work[rank][column], P - 2, P)
        work[rank] = [v * inverse % P for v in work[rank]]
        for i in range(n):
            factor = work[i][column]
            if i != rank and factor:
                work[i] = [(v - factor * w) % P for v, w in zip(work[i], work[rank], strict=True)]
        pivots.append((rank, column))
        rank += 1
    return {column: np.array(work[row][K:], np.int64) for row, column in pivots
            if sum(map(bool, work[row][:K])) == 1}
