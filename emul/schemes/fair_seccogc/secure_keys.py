"""Key generator matrices: N = A Z masks K updates, Z i.i.d. N(0, 1), and the masks of all K add to zero.

Weng, Ren, Zhao, Xiao, Skoglund, Secure Cooperative Gradient Coding, arXiv 2507.07565, 2025, Constructions III.1, IV.1
and IV.2. A is (K, L) float64: row k makes the key of client k, lambda is its standard deviation per coordinate.
Conditions: correct (columns sum to 0), secure (rank K - 1: only the full sum is free of noise), fair (rows of norm
lambda). `fair_projection` is ours: it has a solution for every K.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from emul.base.errors import EmulError

MAX_SWEEPS = 2000               # of `fair_projection`
MAX_STARTS = 20                 # of the solver of `fair_general`, before the free entries are drawn anew
MAX_REDRAWS = 20

Matrix = NDArray[np.float64]


class NoSuchKeys(EmulError):
    """Parameters that no key generator matrix can satisfy, or one that breaks a condition; the text says which."""


def random_rows(K: int, lambda_: float, rng: Generator, L: int | None = None) -> Matrix:
    """Construction III.1: rows 0..K-2 i.i.d. N(0, lambda^2 / L), the last row minus their sum. (K, L), L = K if None.

    Correct and secure, but not fair: the last key has about K - 1 times the power of the others. Raises NoSuchKeys
    for L < K - 1 (the rank cannot be K - 1), ValueError for K < 2 or lambda not above 0.
    """
    _check(K, lambda_)
    L = K if L is None else L
    if L < K - 1:
        raise NoSuchKeys(f"L is {L}, expected at least K - 1 = {K - 1} columns: the rank must be K - 1")
    rows = rng.standard_normal((K - 1, L)) * (lambda_ / np.sqrt(L))
    return np.vstack([rows, -rows.sum(axis=0)])


def fair_general(K: int, lambda_: float, rng: Generator, free_power: float = 0.01) -> Matrix:
    """Construction IV.1: all entries are free but a_kk and a_{k,k+1}, which make it correct and fair.

    With x_k = a_kk, f_l the sum and r_k the power of the free entries of column l and row k:
    a_{k,k+1} = -f_{k+1} - x_{k+1},  x_k^2 + (f_{k+1} + x_{k+1})^2 = lambda^2 - r_k  for all k (mod K).
    free_power: of the free entries of a row, in units of lambda^2; there need be no real solution, and from about
    0.1 on there seldom is. Raises NoSuchKeys if 20 draws of the free entries have none, ValueError for bad arguments.
    """
    _check(K, lambda_)
    if not 0 <= free_power < 1:
        raise ValueError(f"free_power is {free_power}, expected a number in [0, 1)")
    bound = np.eye(K, dtype=bool) | np.roll(np.eye(K, dtype=bool), 1, axis=1)
    for _ in range(MAX_REDRAWS):
        A = rng.standard_normal((K, K)) * np.sqrt(free_power / max(1, K - 2))
        A[bound] = 0.0
        following = np.roll(A.sum(axis=0), -1)                                  # f_{k+1}
        target = 1.0 - (A * A).sum(axis=1)                                      # 1 - r_k
        x = _solve_general(following, target, rng) if target.min() > 0 else None
        if x is None:
            continue
        k = np.arange(K)
        A[k, k] = x
        A[k, (k + 1) % K] = -following - np.roll(x, -1)
        if is_secure(A):
            return A * lambda_
    raise NoSuchKeys(f"no keys of Construction IV.1 found for K = {K}, free power {free_power} lambda^2, in "
                     f"{MAX_REDRAWS} draws; fair_projection always has some")


def _solve_general(following: Matrix, target: Matrix, rng: Generator) -> Matrix | None:
    """x with x_k^2 + (f_{k+1} + x_{k+1})^2 = target_k to 1e-12, by Levenberg and Marquardt; None: not found."""
    K = len(target)
    start = -np.sqrt(target / 2)
    for attempt in range(MAX_STARTS):
        x = start if attempt == 0 else start * rng.choice([-1.0, 1.0], K)
        damping = 1e-3
        u = following + np.roll(x, -1)
        residual = x * x + u * u - target
        for _ in range(100):
            if np.abs(residual).max() <= 1e-13:
                return x
            J = np.diag(2 * x) + np.roll(np.diag(2 * np.roll(u, 1)), -1, axis=0)        # d residual_k / d x_{k+1}
            step = np.linalg.solve(J.T @ J + damping * np.eye(K), -J.T @ residual)
            nearer = x + step
            u_nearer = following + np.roll(nearer, -1)
            r_nearer = nearer * nearer + u_nearer * u_nearer - target
            if r_nearer @ r_nearer < residual @ residual:
                x, u, residual, damping = nearer, u_nearer, r_nearer, max(damping * 0.1, 1e-15)
            elif damping > 1e8:
                break
            else:
                damping *= 10
        if np.abs(residual).max() <= 1e-12:
            return x
    return None


def fair_projection(K: int, lambda_: float, rng: Generator) -> Matrix:
    """A random (K, K): subtract column means and scale rows to lambda in turn, until columns sum to 1e-13 lambda.

    Correct, secure and fair, for every K >= 2; 10 to 50 sweeps mostly. Raises NoSuchKeys after 2000 sweeps,
    ValueError for K < 2 or lambda not above 0.
    """
    _check(K, lambda_)
    A = rng.standard_normal((K, K))
    for _ in range(MAX_SWEEPS):
        A -= A.mean(axis=0)
        A /= np.linalg.norm(A, axis=1, keepdims=True)
        if np.abs(A.sum(axis=0)).max() <= 1e-13 and is_secure(A):
            return A * lambda_
    raise NoSuchKeys(f"fair_projection has not converged in {MAX_SWEEPS} sweeps for K = {K}")


def fair_cyclic(K: int, gamma: int, lambda_: float) -> Matrix:
    """A (K, K) with a_kk = -gamma o and a_{k,(k+j) mod K} = o for j = 1..gamma, o = lambda / sqrt(gamma^2 + gamma).

    Correct, secure and fair for every 1 <= gamma <= K - 1. gamma = K - 1 correlates the keys least: Sigma =
    lambda^2 K/(K-1) (I - 11^T/K). Raises ValueError for K < 2, gamma outside 1..K-1 (it would wrap onto the
    diagonal), or lambda not above 0.
    """
    _check(K, lambda_)
    if not 1 <= gamma <= K - 1:
        raise ValueError(f"gamma is {gamma}, expected 1..{K - 1} for K = {K}")
    o = lambda_ / np.sqrt(gamma * gamma + gamma)
    row = np.zeros(K)
    row[0] = -gamma * o
    row[1:gamma + 1] = o
    return np.stack([np.roll(row, k) for k in range(K)])


def pairwise(K: int, lambda_: float) -> Matrix:
    """A (K, K (K-1)/2) of pairwise keys, N_k = lambda/sqrt(K-1) sum_j sgn(k, j) Z_kj: a column for each pair k < j.

    Same covariance as `fair_cyclic` with gamma = K - 1. Raises ValueError for K < 2 or lambda not above 0.
    """
    _check(K, lambda_)
    pairs = list(combinations(range(K), 2))
    A = np.zeros((K, len(pairs)))
    for column, (low, high) in enumerate(pairs):
        A[low, column], A[high, column] = 1.0, -1.0
    return A * (lambda_ / np.sqrt(K - 1))


def require(A: Matrix, lambda_: float | None = None) -> Matrix:
    """A itself, if it is correct and secure, and, with lambda given, fair. Raises NoSuchKeys naming what it is not."""
    broken = [name for name, holds in (("correct (its columns do not sum to 0)", is_correct(A)),
                                       (f"secure (its rank is not {len(A) - 1})", is_secure(A)),
                                       (f"fair (its rows have not norm {lambda_})",
                                        lambda_ is None or is_fair(A, lambda_))) if not holds]
    if broken:
        raise NoSuchKeys("the key generator matrix is not " + ", not ".join(broken))
    return A


def covariance(A: Matrix) -> Matrix:
    """Sigma = A A^T, (K, K): covariance of the keys in one coordinate."""
    return A @ A.T


def is_correct(A: Matrix) -> bool:
    """True if the keys add to zero: every column sum is at most 1e-12 of the largest row norm."""
    return bool(np.abs(A.sum(axis=0)).max() <= 1e-12 * np.linalg.norm(A, axis=1).max())


def is_secure(A: Matrix) -> bool:
    """True if rank A = K - 1. The rank is numerical: singular values above 1e-10 of the largest count."""
    singular = np.linalg.svd(A, compute_uv=False)
    return int(np.count_nonzero(singular > 1e-10 * singular[0])) == A.shape[0] - 1


def is_fair(A: Matrix, lambda_: float) -> bool:
    """True if every row has norm lambda, within 1e-12 of it."""
    return bool(np.abs(np.linalg.norm(A, axis=1) - lambda_).max() <= 1e-12 * lambda_)


def _check(K: int, lambda_: float) -> None:
    if K < 2:
        raise ValueError(f"K is {K}, expected at least 2 clients")
    if not lambda_ > 0:
        raise ValueError(f"lambda is {lambda_}, expected a number above 0")
