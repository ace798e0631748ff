"""Gradient codes: any K - s of K coded sums give the sum of all K updates.

`tandon`: Tandon, Lei, Dimakis, Karampatziakis, ICML 2017, Algorithm 2. `cyclic_mds`: Raviv, Tamo, Tandon, Dimakis,
IEEE Trans. Inf. Theory 2020, in real numbers. `fractional`: fractional repetition, Tandon et al. 2017.
G is (K, K) float64; row k is what relay k sends, S_k = sum_m g_km x_m. A row has s + 1 nonzeros, itself among them.
"""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

MAX_RESIDUAL = 1e-6          # of G_F^T b = 1, in the largest element
ROWSPACE_RESIDUAL = 1e-8     # the same where incomplete sums take part: their rows can be anything
SCREENED_SETS = 2000
FLOAT32_ROUNDING = 2.0**-24  # largest relative error of a number rounded to float32

Matrix = NDArray[np.floating]


def support(K: int, s: int, k: int) -> list[int]:
    """U_k = {k, .., k + s} mod K, in this order: whose updates relay k of a cyclic code needs, its own first."""
    _check(K, s)
    return [(k + i) % K for i in range(s + 1)]


def row_support(G: Matrix, k: int) -> list[int]:
    """Columns that row k of any code uses, ascending; the same set as `support` for a cyclic code."""
    return np.flatnonzero(G[k]).tolist()


def column_support(G: Matrix, k: int) -> list[int]:
    """Rows of any code that use column k, ascending: the relays that need the update of k."""
    return np.flatnonzero(G[:, k]).tolist()


def tandon(K: int, s: int, rng: Generator, screen: int = 1) -> Matrix:
    """Random cyclic code for any 0 <= s <= K - 1: row space = kernel of a random s x K matrix H with H 1 = 0.

    screen: draws, of which the one with the smallest worst amplification is kept (of all sets of K - s rows, or of
    2000 sampled ones). A single draw is badly conditioned for some sets: at K = 10, s = 7 the worst amplification is
    about 900 in the median draw, 135 in the best of 60. Raises ValueError for bad K, s, screen.
    """
    _check(K, s)
    if screen < 1:
        raise ValueError(f"screen is {screen}, expected at least 1 draw")
    if s == 0:
        return np.eye(K)
    if s == K - 1:
        return np.ones((K, K))
    draws = [_tandon_draw(K, s, rng) for _ in range(screen)]
    if screen == 1:
        return draws[0]
    # (number, K - s): all sets of K - s rows, or 2000 drawn ones where there are more
    sets = np.array(list(combinations(range(K), K - s))) if comb(K, s) <= SCREENED_SETS else np.argsort(
        rng.random((SCREENED_SETS, K)), axis=1)[:, :K - s]
    return min(draws, key=lambda G: _worst_amplification(G, sets))      # the first of equals


def cyclic_mds(K: int, s: int) -> Matrix:
    """Circulant code with row space = trigonometric polynomials of degree <= (K - s - 1) / 2. Needs K - s odd.

    g_km = prod_{i not in U_k} sin((theta_m - theta_i) / 2), theta_m = 2 pi m / K, for m in U_k; scaled so that the
    largest entry of a row is 1 in absolute value and g_kk > 0. Well conditioned up to K = 20 or so.
    Raises ValueError for bad K, s, or an even K - s.

    >>> cyclic_mds(5, 2)[0].round(6).tolist()
    [0.618034, 1.0, 0.618034, 0.0, 0.0]
    """
    _check(K, s)
    if (K - s) % 2 == 0:
        raise ValueError(f"cyclic_mds needs K - s odd, got K = {K}, s = {s}; use s = {s + 1}")
    inside, outside = np.arange(s + 1), np.arange(s + 1, K)
    row = np.zeros(K)
    row[:s + 1] = np.prod(np.sin(np.pi * (inside[:, None] - outside) / K), axis=1)       # (s + 1, K - s - 1)
    row /= np.copysign(np.abs(row).max(), row[0])
    return np.stack([np.roll(row, k) for k in range(K)])


def fractional(K: int, s: int) -> Matrix:
    """Blocks of s + 1 nodes, each relaying the plain sum of its block. Needs (s + 1) | K, else ValueError.

    Not cyclic: take its supports from `row_support` and `column_support`.
    """
    _check(K, s)
    if K % (s + 1):
        fitting = [x for x in range(s, K) if K % (x + 1) == 0]
        raise ValueError(f"fractional needs K divisible by s + 1, got K = {K}, s = {s}; use s = {fitting[0]}")
    return np.kron(np.eye(K // (s + 1)), np.ones((s + 1, s + 1)))


def decode(G: Matrix, rows: list[int], rcond: float = 1e-10) -> NDArray[np.floating] | None:
    """b, (len(rows),) in the order of `rows`, with sum_k b_k G_k = (1, .., 1), or None if the rows do not suffice.

    Minimum-norm least squares; accepted iff at least K - s rows came (s + 1 = nonzeros of a row) and the largest
    residual is <= 1e-6. Take all complete sums that arrived: more rows damp rounding. Use rcond 1e-6 where clients
    multiply by a float32-rounded G, and pass that G. Raises ValueError if a row is named twice or does not exist.
    """
    K = G.shape[0]
    if len(set(rows)) != len(rows):
        raise ValueError(f"a row is named twice: {rows}")
    if any(not 0 <= k < K for k in rows):
        raise ValueError(f"rows {rows}, expected numbers in 0..{K - 1}")
    s = int(np.count_nonzero(G, axis=1).max()) - 1
    if len(rows) < K - s:
        return None
    return _all_ones(G[rows], rcond, MAX_RESIDUAL)


def decode_complete(rows: Matrix) -> NDArray[np.floating] | None:
    """b for rows of complete sums, (n, K), n >= K - s: as `decode`, from the rows themselves."""
    return _all_ones(rows, 1e-10, MAX_RESIDUAL)


def decode_rowspace(received: Matrix) -> NDArray[np.floating] | None:
    """b with sum_k b_k received_k = (1, .., 1), or None if (1, .., 1) is not in the space of the received rows.

    received: (n, K), row k of G with zeros where relay k heard nothing, complete or not. Accepted iff the largest
    residual is <= 1e-8. The idea of the GC+ decoder of CoGC (Weng et al., arXiv 2507.05230).
    """
    return _all_ones(received, 1e-10, ROWSPACE_RESIDUAL) if len(received) else None


def _all_ones(rows: Matrix, rcond: float, accepted: float) -> NDArray[np.floating] | None:
    """Minimum-norm least squares of rows^T b = 1, (n,); None if the largest residual is above `accepted`."""
    system, ones = rows.T, np.ones(rows.shape[1])                                        # (K, n)
    b = np.linalg.lstsq(system, ones, rcond=rcond)[0]
    return b if np.abs(system @ b - ones).max() <= accepted else None


def predicted_error(rows: Matrix, b: NDArray[np.floating], sizes: NDArray[np.floating]) -> float:
    """Root mean square error per coordinate of the mean decoded from float32 sums, rounded up.

    rows: (n, K) of the code, b: (n,), sizes: (n,) root mean squares of the received sums S_k. Three independent parts:
    each sum is rounded once and multiplied by b_k; each Y_m is rounded once and multiplied by 1; and what
    rows^T b = 1 leaves over multiplies Y_m. Y's own size is taken from the sums. A rounding error is at most 2^-24
    of the number and 0.42 of that in the root mean square, so about 2.4 times the error that is seen.
    """
    K = rows.shape[1]
    y = float(np.median(sizes / np.linalg.norm(rows, axis=1)))
    rounded_sums = FLOAT32_ROUNDING * float(np.linalg.norm(b * sizes))
    rounded_updates = FLOAT32_ROUNDING * y * float(np.sqrt(K))
    residual = float(np.linalg.norm(rows.T @ b - 1.0)) * y
    return float(np.linalg.norm([rounded_sums, rounded_updates, residual])) / K


def amplification(G: Matrix, rows: list[int], b: NDArray[np.floating]) -> float:
    """amp(F) = sqrt(sum_{k in F} b_k^2 ||G_k||^2): growth of rounding errors, independent of the scale of the rows."""
    return float(np.linalg.norm(b * np.linalg.norm(G[rows], axis=1)))


def _check(K: int, s: int) -> None:
    if K < 1:
        raise ValueError(f"K is {K}, expected at least 1 node")
    if not 0 <= s <= K - 1:
        raise ValueError(f"s is {s}, expected 0..{K - 1} for K = {K}")


def _tandon_draw(K: int, s: int, rng: Generator) -> Matrix:
    H = rng.standard_normal((s, K))
    H[:, -1] = -H[:, :-1].sum(axis=1)
    G = np.eye(K)
    for k in range(K):
        others = support(K, s, k)[1:]
        G[k, others] = np.linalg.solve(H[:, others], -H[:, k])
    return G


def _worst_amplification(G: Matrix, sets: NDArray[np.int64]) -> float:
    """Largest amp(F) over sets of K - s rows. With G = C Q^T, Q a basis of the row space, b solves C_F^T b = Q^T 1."""
    rank = sets.shape[1]
    Q = np.linalg.svd(G)[2][:rank].T                                                     # (K, K - s)
    C = G @ Q
    try:
        b = np.linalg.solve(C[sets].transpose(0, 2, 1), Q.sum(axis=0)[:, None])[..., 0]  # (number, K - s)
    except np.linalg.LinAlgError:
        return float("inf")          # some set cannot be decoded at all
    return float(np.linalg.norm(b * np.linalg.norm(G, axis=1)[sets], axis=1).max())
