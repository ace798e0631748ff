"""FLTrust: the server's own update says in which direction, and how far, others may go. Cao et al., NDSS 2021, Alg. 2.

Trust TS_i = max(0, cos(x_i, x_0)); aggregate = sum_i TS_i (||x_0|| / ||x_i||) x_i / sum_i TS_i.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emul.primitives.robust.aggregation import (
    Aggregation,
    Updates,
    above_zero,
    dots,
    norm,
    norms,
    rows_of,
    weighted_sum,
)


def fltrust(updates: Updates, reference: NDArray[np.floating]) -> Aggregation:
    """The mean of the updates, scaled to the reference's norm, weighted by their trust.

    updates: (n, d). reference: x_0, (d,), what the server learnt from its root data set, with the local steps of a
    client, in this round. Scores are the cosines, 0 for an update of zeros. No trust in anybody: zeros, kept is empty.
    Raises ValueError for a reference of another shape.
    """
    rows = rows_of(updates)
    x_0, = rows_of([reference])
    if x_0.shape != rows[0].shape:
        raise ValueError(f"the reference has shape {x_0.shape}, expected that of an update, {rows[0].shape}")
    sizes, size = norms(rows), norm(x_0)
    lengths = np.where(sizes > 0, sizes, 1.0)
    cosines = dots(rows, x_0) / (lengths * (size or 1.0))
    trust = np.maximum(cosines, 0.0)
    weights = trust * size / lengths / (trust.sum() or 1.0)
    return Aggregation(weighted_sum(rows, weights), above_zero(weights), weights, cosines,
                       "cosine with the reference; at 0 and below there is no trust")
