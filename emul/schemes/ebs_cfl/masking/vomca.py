"""VOMCA: encodings that can be added, decoded and verified. Section 4 of the paper, with both mask blocks verified.

    chi_i = x_i B1_i + R_i B2_i (+ R'_i B3_i)       blocks B of all clients mutually orthogonal, masks sum to 0
    chi_i dk^T = x_i + R_i,  (sum chi_i) dk^T = sum x_i                      dk = sum of all blocks
    |chi_i vk^T - e_i| <= tau                        vk = sum_i V_i B2_i (+ V'_i B3_i),  e_i = R_i V_i^T (+ R'_i V'_i^T)

A client that alters only its payload passes, which is intended; one that alters a mask fails. A random change of norm
rho in D dimensions passes one scalar check with probability about 0.8 tau sqrt(D) / (rho |vk|), k of them with its k-th
power. The paper prints 1 / lambda^l for it.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from emul.schemes.ebs_cfl.masking.blocks import Array

Pair = tuple[Array, Array]              # (rows (s, d) or (d,), block (d, k))


def encode(*pairs: Pair) -> Array:
    """sum of rows_j B_j, (s, k): payload and masks, each by its block; rows (d,) stand for s equal ones."""
    first, *rest = pairs
    total = first[0] @ first[1]
    for rows, block in rest:
        total = total + rows @ block
    return total


def decode_key(blocks: Iterable[Array]) -> Array:
    """dk = sum of the blocks, (d, k)."""
    return np.add.reduce(list(blocks))


def verification_key(pairs: Iterable[Pair]) -> Array:
    """vk = sum_i V_i B_i, (k,): secret rows, each by the mask block that it verifies."""
    return np.add.reduce([row @ block for row, block in pairs])


def checks(masks: Iterable[Pair]) -> Array:
    """e_i = sum of R_j V_j^T over the mask blocks of one client, (s,). masks: (mask rows, V_j)."""
    first, *rest = [rows @ row for rows, row in masks]
    for other in rest:
        first = first + other
    return np.atleast_1d(first)


def residual(chi: Array, vk: Array, expected: Array) -> float:
    """max over segments of |chi vk^T - e|."""
    return float(np.abs(chi @ vk - expected).max())


def residual_of_sum(chi: Array, vk: Array, expected: Array) -> float:
    """|sum over segments of chi vk^T - e|, as printed: one scalar a client. Masks replaced by their mean pass it."""
    return float(abs((chi @ vk).sum() - expected.sum()))
