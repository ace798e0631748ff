"""SRFC: the sum of ReLU(x_i), encoded, from encoded x_i with |x_i| <= B. Section 5 of the paper, corrected.

    Phi_i = M1_i^T K_i M1_i,  Psi_i = M2_i^T K_i M2_i,  alpha_i = x_i Phi_i + Psi_i          M1, M2 mutually orthogonal
    beta = sum of all blocks
    tau1 = sum_i M1^T K^-1 M1 + M2^T K^-1 (R0 + zeta M2)
    tau2 = sum_i M1^T K^-2 (M1 o M1) + M2^T K^-2 (R1 o R1 + R2)
    tau3 = sum_i M1^T K^-2 F(2 M1 o R1) - M2^T K^-2 F(R2)                                    F(A) = A |A|, o entrywise

    H_i = F^-1(beta alpha^2 tau2 + F^-1(beta alpha^2 tau3)) = |x_i| M1_i + R1_i
    E   = (beta (sum alpha_i) tau1 + sum H_i) / 2           = sum ReLU(x_i) M1_i + sum zeta_i M2_i / 2
    sum ReLU(x_i) = trace(E beta^T) / d                     if the zeta_i have no trace

Where M1 > 0, R1 = 0 and R2 is in [B^2, 2 B^2]; elsewhere R2 = 0 and R1 is in [B, 2B], so that the root |x| M1 + R1 is
never negative. The paper draws R1 from (0, max |x|), which errs by percents, and divides the trace by l.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emul.schemes.ebs_cfl.masking.blocks import Array, invertible, signed_root, signed_square, zero_sum


@dataclass(frozen=True)
class Relu:
    """The keys that encode one client's scalar, in a group of q clients."""

    M1: Array                           # (d, 2dq)
    M2: Array                           # (d, 2dq)
    K: Array                            # (d, d)
    R0: Array                           # (d, 2dq)
    R1: Array                           # (d, 2dq)
    R2: Array                           # (d, 2dq)

    @property
    def phi(self) -> Array:
        """Phi, (2dq, 2dq)."""
        return self.M1.T @ self.K @ self.M1

    @property
    def psi(self) -> Array:
        """Psi, (2dq, 2dq)."""
        return self.M2.T @ self.K @ self.M2


@dataclass(frozen=True)
class ReluKeys:
    """The keys with which the server evaluates one group."""

    beta: Array                         # (d, 2dq)
    tau1: Array                         # (2dq, 2dq)
    tau2: Array                         # (2dq, 2dq)
    tau3: Array                         # (2dq, 2dq)


def draw(rng: np.random.Generator, blocks: Array, bound: float = 1.0) -> list[Relu]:
    """The keys of a group's q members. blocks: (2q, d, 2dq), M1 of all, then M2 of all. bound: B."""
    q, d = len(blocks) // 2, blocks.shape[1]
    masks = [_masks(rng, M1, bound) for M1 in blocks[:q]]
    K = [invertible(rng, d) for _ in range(q)]
    R0 = closing(rng, [R1 for R1, _ in masks])
    return [Relu(blocks[i], blocks[q + i], K[i], R0[i], *masks[i]) for i in range(q)]


def _masks(rng: np.random.Generator, M1: Array, bound: float) -> tuple[Array, Array]:
    """(R1, R2) on disjoint supports."""
    positive = M1 > 0
    R1 = np.where(positive, 0.0, rng.uniform(bound, 2 * bound, M1.shape))
    R2 = np.where(positive, rng.uniform(bound**2, 2 * bound**2, M1.shape), 0.0)
    return R1, R2


def closing(rng: np.random.Generator, R1: Sequence[Array]) -> list[Array]:
    """R0_i with sum (R0_i + R1_i) = 0 over those that are evaluated together; of one alone R0 = -R1."""
    return [free - own for free, own in zip(zero_sum(rng, len(R1), R1[0].shape), R1, strict=True)]


def tau1(members: Sequence[Relu], zeta: Sequence[Array]) -> Array:
    """tau1 of the members, (2dq, 2dq). zeta: (d, d) each."""
    return np.add.reduce([a.M1.T @ np.linalg.solve(a.K, a.M1) + a.M2.T @ np.linalg.solve(a.K, a.R0 + z @ a.M2)
                          for a, z in zip(members, zeta, strict=True)])


def evaluation_keys(members: Sequence[Relu], zeta: Sequence[Array]) -> ReluKeys:
    """beta and tau1 to tau3 of a group."""
    beta = np.add.reduce([a.M1 + a.M2 for a in members])
    tau2 = np.add.reduce([a.M1.T @ _squared(a.K, a.M1 * a.M1) + a.M2.T @ _squared(a.K, a.R1 * a.R1 + a.R2)
                          for a in members])
    tau3 = np.add.reduce([a.M1.T @ _squared(a.K, signed_square(2 * a.M1 * a.R1)) -
                          a.M2.T @ _squared(a.K, signed_square(a.R2)) for a in members])
    return ReluKeys(beta, tau1(members, zeta), tau2, tau3)


def _squared(K: Array, right: Array) -> Array:
    """K^-2 right."""
    return np.linalg.solve(K, np.linalg.solve(K, right))


def evaluate(keys: ReluKeys, alphas: Sequence[Array]) -> Array:
    """E of a group, (d, 2dq), from the encoded scalars of its members."""
    beta = keys.beta
    total = beta @ np.add.reduce(list(alphas)) @ keys.tau1
    for alpha in alphas:
        squared = beta @ alpha @ alpha
        total += signed_root(squared @ keys.tau2 + signed_root(squared @ keys.tau3))
    return total / 2


def value(E: Array, beta: Array) -> float:
    """sum ReLU(x_i) = trace(E beta^T) / d."""
    return float(np.vdot(E, beta)) / len(beta)
