"""MP-DP broken in both directions: what blocks without noise tell the server, and what outputs tell a client.

X. Yang et al., arXiv 2412.11737, as published (`emul.schemes.mp_dp`, `preset: paper`): Psi and Phi travel in the clear,
whatever noise is on ghat. Errata 2 and 3 of the corrected form: closed forms, exact up to the digits of floats.

    batch of 1      Psi_c's row c of the last layer is alpha h^, whose entries sum to alpha^2
                    a row of a first layer's gradient is its bias's gradient times the input
    any batch       rows of the first layer's gradients span the inputs of the batch
    a client        y^ - y = alpha r, so least squares over own samples give r

Pure functions of what that party holds.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class NotBroken(ValueError):
    """What was seen determines nothing, such as blocks of zeros."""


def features_of_one(row: Floats) -> tuple[float, Floats]:
    """(alpha, h^ (n,)) of a batch of one sample, from row c of Psi_c in the last layer, (n,). h^ feeds the last layer;
    times s it is the true activation. Raises NotBroken."""
    squared = float(row.sum())
    if not squared > 0:
        raise NotBroken("the features sum to nothing")
    alpha = float(np.sqrt(squared))
    return alpha, row / alpha


def input_of_one(weights: Floats, biases: Floats) -> Floats:
    """x, (n_0,), of a batch of one sample. weights: (n_1, n_0) of any block's first layer, which is linear; biases:
    (n_1,) of the same block. Raises NotBroken."""
    best = int(np.abs(biases).argmax())
    if not biases[best]:
        raise NotBroken("no unit of the first layer is active")
    return weights[best] / biases[best]


def span_of_inputs(blocks: Floats, tolerance: float = 1e-10) -> Floats:
    """An orthonormal basis (rank, n_0) of what the inputs of the batch span. blocks: (..., n_0), first layers of clear
    blocks. tolerance: of singular values, as a share of the largest. Rank b of b samples: the batch is known up to its
    mixture, and `residual` is a test of membership."""
    stacked = blocks.reshape(-1, blocks.shape[-1])
    _, values, rows = np.linalg.svd(stacked, full_matrices=False)
    if not values[0]:
        raise NotBroken("the blocks are zero")
    return rows[values > tolerance * values[0]]


def residual(x: Floats, basis: Floats) -> float:
    """|x - its projection| / |x|: 0 for a member of the batch."""
    return float(np.linalg.norm(x - (x @ basis.T) @ basis) / np.linalg.norm(x))


def estimated_direction(outputs: Floats, targets: Floats, alpha: Floats) -> Floats:
    """r, (n_L,), by least squares: sum alpha (y^ - target) / sum alpha^2 over n samples of the client's own, of which
    the model is right. outputs: y^ (n, n_L) of the disguised model; targets: (n, n_L); alpha: (n,), sum of h^."""
    return (alpha[:, None] * (outputs - targets)).sum(0) / np.square(alpha).sum()


def unmasked_outputs(outputs: Floats, alpha: Floats, direction: Floats) -> Floats:
    """y^ - alpha r, (n, n_L)."""
    return outputs - alpha[:, None] * direction
