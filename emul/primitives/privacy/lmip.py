"""Local mutual-information privacy: bits that observers learn of one client's update, per coordinate and round.

Weng et al., arXiv 2507.07565, section V, in corrected form. Model: updates independent N(0, zeta^2 I), keys N = A Z
with covariance Sigma per coordinate; an observer sees M (Delta + N), M a matrix of coefficient rows over the clients.
Multiply by the dimension for a whole update. Logarithms to base 2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from emul.primitives.privacy.patterns import link_patterns

Matrix = NDArray[np.float64]
Knowledge = Literal["key", "components", "everything"]


def leak(M: Matrix, Sigma: Matrix, zeta: float, k: int) -> float:
    """I_k(M) = -1/2 log2(1 - zeta^2 m_k^T (M (zeta^2 I + Sigma) M^T)^+ m_k), m_k column k of M; bits a coordinate.

    M: (n, K); dependent rows do not count twice (pseudo-inverse). inf if M gives the update itself without noise.
    """
    if not len(M):
        return 0.0
    m = M[:, k]
    covariance = M @ (zeta**2 * np.eye(M.shape[1]) + Sigma) @ M.T
    told = zeta**2 * float(m @ np.linalg.pinv(covariance, rcond=1e-12, hermitian=True) @ m)
    return -0.5 * math.log2(1.0 - told) if told < 1.0 - 1e-12 else math.inf


def message(zeta: float, lambda_: float) -> float:
    """1/2 log2(1 + zeta^2 / lambda^2): a masked update, heard by who owns no key. Theorem V.1 without its factor c."""
    return 0.5 * math.log2(1 + (zeta / lambda_) ** 2) if lambda_ > 0 else math.inf


def partial_sum(row: Matrix, Sigma: Matrix, zeta: float, j: int, heard: Matrix) -> float:
    """Bits about client j in one partial sum with received coefficients Lambda = row * heard (replaces Theorem V.2).

    1/2 log2(1 + zeta^2 Lambda_j^2 / (zeta^2 sum_{m != j} Lambda_m^2 + Lambda Sigma Lambda^T)); exactly 0 if j was not
    heard, inf if nothing else is in the sum.
    """
    Lambda = row * heard
    own = zeta**2 * float(Lambda[j]) ** 2
    if own == 0.0:
        return 0.0
    rest = zeta**2 * float(Lambda @ Lambda) - own + float(Lambda @ Sigma @ Lambda)
    return 0.5 * math.log2(1 + own / rest) if rest > 0 else math.inf


def mean_partial_sum(row: Matrix, Sigma: Matrix, zeta: float, j: int, connected: Sequence[float]) -> float:
    """The mean of `partial_sum` over the link states; connected: (K,) probability that the relay hears each."""
    return sum(p * partial_sum(row, Sigma, zeta, j, heard) for p, heard in link_patterns(row, connected))


def exact_mean(K: int) -> float:
    """1/2 log2(1 + 1/(K-1)): what the mean of all updates says of one, whatever the keys. Theorem V.3."""
    return 0.5 * math.log2(1 + 1 / (K - 1))


def peer_view(A: Matrix, me: int, knows: Knowledge) -> Matrix:
    """Covariance of all keys N = A Z, (K, K), to client `me`, who knows its own key; row and column `me` are 0.

    knows: "key": the vector N_me alone (a dealer made it): Sigma given N_me. "components": all Z_l with a_me,l != 0
    (seeds of components, or pairwise keys, one component for each pair): those columns vanish. "everything": 0.
    """
    if knows == "everything":
        return np.zeros((len(A), len(A)))
    if knows == "components":
        hidden = A[:, A[me] == 0.0]
        return hidden @ hidden.T
    Sigma = A @ A.T
    left = Sigma - np.outer(Sigma[:, me], Sigma[me]) / Sigma[me, me]
    left[me] = left[:, me] = 0.0
    return left


def peer_leak(A: Matrix, me: int, hears: Sequence[int], k: int, zeta: float, knows: Knowledge) -> float:
    """Bits about client k that client `me` learns from the masked updates of those it hears (not itself)."""
    return leak(np.eye(len(A))[list(hears)], peer_view(A, me, knows), zeta, k)
