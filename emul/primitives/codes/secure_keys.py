"""Key generator matrices: N = A Z masks K updates, Z i.i.d. N(0, 1), and the masks of all K add to zero.

Weng, Ren, Zhao, Xiao, Skoglund, Secure Cooperative Gradient Coding, arXiv 2507.07565, 2025, Construction IV.2.
A is (K, L) float64: row k makes the key of client k, lambda is its standard deviation per coordinate. Conditions:
correct (columns sum to 0), secure (rank K - 1: only the full sum is free of noise), fair (rows of norm lambda).
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


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


def covariance(A: Matrix) -> Matrix:
    """Sigma = A A^T, (K, K): covariance of the keys in one coordinate."""
    return A @ A.T


def is_correct(A: Matrix, tolerance: float = 1e-12) -> bool:
    """Whether the keys add to zero: every column sum is at most `tolerance` times the largest row norm."""
    return bool(np.abs(A.sum(axis=0)).max() <= tolerance * np.linalg.norm(A, axis=1).max())


def is_secure(A: Matrix) -> bool:
    """Whether rank A = K - 1. The rank is numerical: singular values above 1e-10 of the largest count."""
    singular = np.linalg.svd(A, compute_uv=False)
    return int(np.count_nonzero(singular > 1e-10 * singular[0])) == A.shape[0] - 1


def is_fair(A: Matrix, lambda_: float, tolerance: float = 1e-12) -> bool:
    """Whether every row has norm lambda, within `tolerance` times lambda."""
    return bool(np.abs(np.linalg.norm(A, axis=1) - lambda_).max() <= tolerance * lambda_)


def _check(K: int, lambda_: float) -> None:
    if K < 2:
        raise ValueError(f"K is {K}, expected at least 2 clients")
    if not lambda_ > 0:
        raise ValueError(f"lambda is {lambda_}, expected a number above 0")
