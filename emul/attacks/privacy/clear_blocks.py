"""MP-DP broken in both directions: what blocks without noise tell the server, and what outputs tell a client.

X. Yang et al., arXiv 2412.11737, as published (`emul.schemes.mp_dp`, `preset: paper`): Psi and Phi travel in the clear,
whatever noise is on ghat. Errata 2 and 3 of the corrected form: closed forms, exact up to the digits of floats.

    batch of 1      Psi_c's row c of the last layer is alpha h^, whose entries sum to alpha^2
                    a row of a first layer's gradient is its bias's gradient times the input
    any batch       rows of the first layer's gradients span the inputs of the batch; with one hidden layer blocks are
                    slices of a tensor sum_s delta_s (x) mask_s (x) x_s, whose parts are unique (Jennrich's algorithm)
    a client        y^ - y = alpha r, so least squares over own samples give r

Pure functions of what that party holds.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class BlocksUndetermined(ValueError):
    """The values seen determine nothing, such as blocks of zeros."""


def input_of_one(weights: Floats, biases: Floats) -> Floats:
    """x, (n_0,), of a batch of one sample. weights: (n_1, n_0) of any block's first layer, which is linear; biases:
    (n_1,) of the same block. Raises BlocksUndetermined."""
    best = int(np.abs(biases).argmax())
    if not biases[best]:
        raise BlocksUndetermined("no unit of the first layer is active")
    return weights[best] / biases[best]


def span_of_inputs(blocks: Floats) -> Floats:
    """An orthonormal basis (rank, n_0) of what the inputs of the batch span. blocks: (..., n_0), first layers of clear
    blocks. Rank b of b samples: the batch is known up to its mixture, and `residual` is a test of membership."""
    stacked = blocks.reshape(-1, blocks.shape[-1])
    _, values, rows = np.linalg.svd(stacked, full_matrices=False)
    if not values[0]:
        raise BlocksUndetermined("the blocks are zero")
    return rows[values > 1e-10 * values[0]]


def inputs_of_batch(slices: Floats, samples: int, rng: np.random.Generator) -> Floats:
    """x (b, n_0), of a batch of b <= min(n_1, n_0) samples, in any order, exact where masks and inputs are linearly
    independent. slices: (m, n_1, n_0 + 1) of `slices_of`: sum_s delta_ks mask_s (x_s, 1)^T, m >= 2.

    Two random sums of the slices are M diag(u) X and M diag(v) X; M's columns are eigenvectors of the one times the
    inverse of the other. Leurgans, Ross, Abel, SIAM J. Matrix Anal. Appl. 1993, after Jennrich. Raises
    BlocksUndetermined.
    """
    left = np.linalg.svd(np.concatenate(list(slices), axis=1), full_matrices=False)[0][:, :samples]
    right = np.linalg.svd(np.concatenate(list(slices)), full_matrices=False)[2][:samples]
    u, v = (left.T @ np.tensordot(rng.normal(size=len(slices)), slices, 1) @ right.T for _ in range(2))
    try:
        masks = np.linalg.eig(np.linalg.solve(v.T, u.T).T)[1]
        found = np.real(np.linalg.solve(masks, v)) @ right
    except np.linalg.LinAlgError:
        raise BlocksUndetermined("the blocks are of a lower rank than the batch has samples") from None
    if not found[:, -1].all():
        raise BlocksUndetermined("a sample without a bias")
    return found[:, :-1] / found[:, -1:]


def slices_of(psi: Floats, phi: Floats, last: Floats) -> Floats:
    """(G + 1, n_1, n_0 + 1): Psi_g - (a_g W^) o Phi, which is t mask (a_g d) (x, 1)^T summed over the batch, and Phi,
    the same with alpha; of the first of two layers. psi: (G, n_1, n_0 + 1), weights and biases; phi: (n_1, n_0 + 1);
    last: (G, n_1) a_g W^ of the last layer. For d(a_g y^)/dz_i = (a_g W^)_i d(alpha)/dz_i with one hidden layer."""
    return np.concatenate([psi - last[:, :, None] * phi, phi[None]])


def labels_of_batch(slices: Floats, x: Floats, active: Floats, outputs: Floats, alpha: Floats,
                    directions: Floats) -> NDArray[np.int64]:
    """(b,) of samples x (b, n_0) that were found, since a_g d = a_g y^ - a_g,label. active: t mask, (b, n_1); outputs:
    y^, (b, n_L); alpha: (b,); directions: (G, n_L) rows a_g. The scale of the blocks is that of alpha."""
    ones = np.pad(x, ((0, 0), (0, 1)), constant_values=1)
    parts = (active[:, :, None] * ones[:, None]).reshape(len(x), -1)
    delta = np.linalg.lstsq(parts.T, slices.reshape(len(slices), -1).T, rcond=None)[0]      # (b, G + 1)
    along = outputs @ directions.T - delta[:, :-1] * (alpha / delta[:, -1])[:, None]        # (b, G): a_g,label
    return np.square(along[:, :, None] - directions).sum(1).argmin(1)


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
