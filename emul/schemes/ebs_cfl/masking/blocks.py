"""Mutually orthogonal blocks, invertible matrices and rows with a given sum: what keys of EBS-CFL are made of."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_MOST_STEPS = 10_000                # of `rows_with_sum`; 6 to 63 are usual
_NEAR = 1e-14                       # of the sum, per row


def haar(rng: np.random.Generator, k: int) -> Array:
    """(k, k) orthogonal, uniformly distributed: QR of a Gaussian, columns by the signs of R's diagonal."""
    q, r = np.linalg.qr(rng.standard_normal((k, k)))
    return q * np.where(np.diag(r) < 0, -1.0, 1.0)


def orthogonal_blocks(rng: np.random.Generator, count: int, d: int) -> Array:
    """(count, d, count d): B_i B_j^T = I if i = j, else 0. Printed as M_i^T M_j, of too low a rank for I."""
    return haar(rng, count * d).reshape(count, d, count * d)


def invertible(rng: np.random.Generator, d: int) -> Array:
    """(d, d) U diag(x) U', x uniform in [1, 2]: a condition number of at most 2, since SRFC errs by its square."""
    return (haar(rng, d) * rng.uniform(1.0, 2.0, d)) @ haar(rng, d)


def zero_sum(rng: np.random.Generator, n: int, shape: tuple[int, ...]) -> Array:
    """(n, *shape) Gaussian, the sum over n is 0. One alone is 0."""
    drawn = rng.standard_normal((n, *shape))
    return drawn - drawn.mean(0)


def rows_with_sum(rng: np.random.Generator, n: int, total: Array, norm: float) -> Array:
    """(n, *total.shape): n arrays of this norm whose sum is `total`.

    From a Gaussian start: add to each its share of what is missing, then scale each to its norm, until the sum is met
    to 1e-14 n. Raises ValueError where there is no such set: fewer than two of them, fewer than two numbers in each, or
    a total that is longer than n norms.
    """
    if n < 2 or total.size < 2:
        raise ValueError(f"{n} masks of {total.size} numbers: expected 2 or more of both")
    if np.linalg.norm(total) > n * norm:
        raise ValueError(f"{n} masks of norm {norm} cannot have a sum of norm {np.linalg.norm(total):.3g}")
    rows = rng.standard_normal((n, *total.shape))
    for row in rows:
        row *= norm / np.linalg.norm(row)
    for _ in range(_MOST_STEPS):
        missing = total - rows.sum(0)
        if np.abs(missing).max() < _NEAR * n * max(1.0, norm):
            return rows
        missing /= n
        for row in rows:                    # one at a time, in place: a row of a large model fits into the cache
            row += missing
            row *= norm / np.linalg.norm(row)
    raise ValueError(f"{n} masks of norm {norm} with this sum were not found")


def right_inverse(row: Array) -> Array:
    """r^+ = r^T / (r r^T), (d,), with r r^+ = 1."""
    return row / (row @ row)


def signed_square(x: Array) -> Array:
    """F(x) = x |x|, entry by entry. The paper prints x^3 / |x|, which is 0 / 0 at 0."""
    return x * np.abs(x)


def signed_root(x: Array) -> Array:
    """The inverse of F: sign(x) sqrt(|x|). An error e near 0 becomes sqrt(e)."""
    return np.copysign(np.sqrt(np.abs(x)), x)
