"""RFCA: clusters whose updates are weighted by their cosine with a reference of their cluster. Li et al., AAAI-25.

    w_i = max(0, <g_i, g0^c> / (|g_i| |g0^c|)), c = j_i the cluster that client i has chosen; 0 if a norm is 0
    cluster c moves by sum over i with j_i = c of w_i g_i / |g_i|, divided by
        sum of all w_i                  `joint`: Algorithm 2 and all that EBS-CFL can give
        sum of the w_i of cluster c     `per_cluster`: equation 1
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Weighting = Literal["joint", "per_cluster"]

LEAST_WEIGHT = 1e-6                     # W_min: below it nothing is moved


@dataclass(frozen=True)
class Clustered:
    """The step of each cluster from the updates of one round."""

    directions: NDArray[np.float64]     # (m, l), to be multiplied by a step; 0 where the weights are too small
    weights: NDArray[np.float64]        # (n,), w_i
    cosines: NDArray[np.float64]        # (n,)
    totals: NDArray[np.float64]         # (1,) or (m,): the denominators, W


def rfca(updates: Sequence[NDArray[np.floating]], clusters: Sequence[int], references: NDArray[np.floating],
         weighting: Weighting = "joint") -> Clustered:
    """updates: n of (l,). clusters: the choice of each, below m. references: g0, (m, l), zeros where there is none.

    Raises ValueError for a cluster that is none.
    """
    g0 = np.asarray(references, np.float64)
    if any(not 0 <= c < len(g0) for c in clusters):
        raise ValueError(f"clusters = {list(clusters)}: expected numbers below {len(g0)}")
    unit, h = unit_rows(updates, g0.shape[1]), unit_rows(list(g0), g0.shape[1])
    chosen = np.asarray(clusters, np.int64)
    cosines = np.array([np.einsum("l,l->", u, h[c]) for u, c in zip(unit, chosen, strict=True)])
    weights = np.maximum(cosines, 0.0)
    of_cluster: NDArray[np.float64] = np.bincount(chosen, weights, len(g0)).astype(np.float64)
    totals = of_cluster if weighting == "per_cluster" else of_cluster.sum(keepdims=True)
    directions = np.zeros_like(g0)
    for c, total in enumerate(np.broadcast_to(totals, len(g0))):
        if total >= LEAST_WEIGHT:
            members = slice(None) if (chosen == c).all() else chosen == c      # all of them need no copy
            directions[c] = weights[members] @ unit[members] / total
    return Clustered(directions, weights, cosines, totals)


def unit_rows(rows: Sequence[NDArray[np.floating]], dimension: int) -> NDArray[np.float64]:
    """Each row by its norm, (n, l); a row of zeros stays one. Row by row, so that each is in the cache meanwhile."""
    unit = np.zeros((len(rows), dimension))
    for target, row in zip(unit, rows, strict=True):
        target[:] = row
        norm = np.linalg.norm(target[None], axis=1)[0]
        if norm > 0:
            target /= norm
    return unit
