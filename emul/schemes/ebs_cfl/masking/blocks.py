"""Mutually orthogonal blocks, invertible matrices and rows with a given sum: what keys of EBS-CFL are made of.

Then what is made of blocks alone: the dimensions (`Shape`), VOMCA's encodings, and SKT, which moves them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

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


# --- segments, groups and layers: how long everything is ------------------------------------------------------------

@dataclass(frozen=True)
class Shape:
    """The scheme of the paper's main text is t = l, q = N: one segment, one group."""

    clients: int                        # N
    clusters: int                       # m
    length: int                         # l, parameters of a model
    t: int = 2                          # of a segment
    q: int = 1                          # clients of a group
    layers: tuple[int, ...] = ()        # clients below a node of each layer between the groups and all of them

    def __post_init__(self) -> None:
        if self.d < 2:
            raise ValueError(f"t = {self.t}, m = {self.clusters}: expected t m of 2 or more")

    @property
    def d(self) -> int:
        """t m."""
        return self.t * self.clusters

    @property
    def segments(self) -> int:
        """s = ceil(l / t)."""
        return -(-self.length // self.t)

    @cached_property
    def groups(self) -> list[range]:
        """The clients, from 0, of each group; the last one may be smaller."""
        return self._cut(self.q)

    @cached_property
    def tree(self) -> list[list[range]]:
        """The clients below each node of every layer: of the groups, of `layers`, and of the one node at the top."""
        return [self.groups, *(self._cut(size) for size in self.layers), [range(self.clients)]]

    def parent(self, layer: int, node: int) -> int:
        """The node of the next layer above a node of this one. Layers count from 0, the groups."""
        size = self.layers[layer] if layer < len(self.layers) else self.clients
        return self.tree[layer][node].start // size

    def above(self, layer: int, node: int) -> int:
        """The number of clients below the parent of a node."""
        return len(self.tree[layer + 1][self.parent(layer, node)])

    def _cut(self, size: int) -> list[range]:
        return [range(at, min(at + size, self.clients)) for at in range(0, self.clients, size)]

    def segment(self, v: Array) -> Array:
        """(l,) -> (s, t), padded with zeros."""
        rows = np.zeros(self.segments * self.t)
        rows[:self.length] = v
        return rows.reshape(self.segments, self.t)

    def flatten(self, rows: Array) -> Array:
        """(s, t) -> (l,)."""
        return rows.reshape(-1)[:self.length]


# --- VOMCA: encodings that can be added, decoded and verified -------------------------------------------------------
# Section 4 of the paper, with both mask blocks verified.
#
#     chi_i = x_i B1_i + R_i B2_i (+ R'_i B3_i)       blocks B of all clients mutually orthogonal, masks sum to 0
#     chi_i dk^T = x_i + R_i,  (sum chi_i) dk^T = sum x_i                      dk = sum of all blocks
#   |chi_i vk^T - e_i| <= tau                        vk = sum_i V_i B2_i (+ V'_i B3_i),  e_i = R_i V_i^T (+ R'_i V'_i^T)
#
# A client that alters only its payload passes, which is intended; one that alters a mask fails. A random change of norm
# rho in D dimensions passes one scalar check with probability about 0.8 tau sqrt(D) / (rho |vk|), k of them with its
# k-th power. The paper prints 1 / lambda^l for it.

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


# --- SKT: an encoding moved from its blocks to others ---------------------------------------------------------------
# Section 6 of the paper, corrected; and the sizes of such keys.
#
#     chi = x M1 + r M2                   r: (1, d), the same for all rows of x
#     tk  = M1^T T1 + M2^T (T2 + r^+ rho) r^+ = r^T / (r r^T): the paper prints the inverse of a row
#     chi tk = x T1 + r T2 + rho          the rho of all that are added up sum to 0
#
# Keys of members of one group may be summed: cross terms vanish. They compose: tk(a -> b) tk(b -> c) leads from a to c,
# as long as every client keeps a slot of its own. Slots that are merged before the weights are applied lose the
# weights.

def rekeying(moves: Iterable[tuple[Array, Array]]) -> Array:
    """tk = sum B^T T over (from block B (d, k), to block T (d, k')): (k, k')."""
    pairs = list(moves)
    return np.concatenate([b for b, _ in pairs]).T @ np.concatenate([t for _, t in pairs])


def with_mask(target: Array, row: Array, rho: Array) -> Array:
    """T + r^+ rho, (d, k): the target block of the mask row r (d,), so that rho (k,) is added to what is moved."""
    return target + np.outer(right_inverse(row), rho)
