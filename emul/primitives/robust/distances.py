"""Squared distances and inner products of all pairs of rows, by one matrix product."""

from __future__ import annotations

import numpy as np

from emul.primitives.robust.aggregation import Floats, Rows, columns

CLOSE = 1e-6        # d^2 below this share of the squared norms: the difference of sums has lost half its digits


def gram(rows: Rows) -> Floats:
    """(n, n) inner products of the rows, symmetric."""
    products = np.zeros((len(rows), len(rows)))
    for _, chunk in columns(rows):
        products += chunk @ chunk.T                                    # (n, n) = (n, c) x (c, n)
    return _symmetric(products)


def squared_distances(rows: Rows) -> Floats:
    """(n, n) squared Euclidean distances, symmetric, 0 on the diagonal and between equal rows.

    ||x_i||^2 + ||x_j||^2 - 2 x_i.x_j, from one matrix product; where that cancels, the pair is computed directly.
    Relative error about 1e-10 at most.
    """
    products = gram(rows)
    squares = np.diag(products)
    size = squares[:, None] + squares                                  # (n, n)
    squared = np.maximum(size - 2 * products, 0.0)                     # may be -1e-17, hence the clamp
    for i, j in np.argwhere(np.triu(squared <= CLOSE * size, 1)).tolist():
        difference = np.subtract(rows[i], rows[j], dtype=np.float64)
        squared[i, j] = np.square(difference, out=difference).sum()
    np.fill_diagonal(squared, 0.0)
    return _symmetric(squared)


def _symmetric(matrix: Floats) -> Floats:
    """The upper triangle, mirrored: equal to the bit on both sides, so that ties are ties."""
    upper = np.triu(matrix)
    return upper + np.triu(matrix, 1).T
