"""Krum and Multi-Krum: the updates that lie closest to their neighbours. Blanchard et al., NeurIPS 2017, section 4.

Score s(i) = sum of ||x_i - x_j||^2 over the n - f - 2 nearest others. Krum takes the row of the least score,
Multi-Krum the mean of the m rows of the least scores.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emul.primitives.robust.aggregation import (
    Aggregation,
    Floats,
    Rows,
    Updates,
    check_byzantine,
    rows_of,
    weighted_mean_of,
)
from emul.primitives.robust.distances import squared_distances


def krum(updates: Updates, f: int, *, unproven: bool = False) -> Aggregation:
    """The update closest to its n - f - 2 nearest neighbours; ties go to the lowest row.

    updates: (n, d). f: malicious ones. Raises TooManyByzantine if n < 2f + 3, below which the paper proves nothing;
    `unproven` allows whatever is defined, n >= f + 3.

    >>> krum(np.array([[0.], [.1], [.2], [.1], [9.]]), f=1).kept
    (1,)
    """
    return _of_best(rows_of(updates), f, 1, "krum", unproven)


def multi_krum(updates: Updates, f: int, m: int | None = None, *, unproven: bool = False) -> Aggregation:
    """The unweighted mean of the m updates of the least scores; ties go to the lowest rows.

    m: 1 <= m <= n; None: n - f - 2, the most for which it is proven to resist (Damaskinos et al., MLSys 2019,
    AggregaThor). Raises as `krum` and ValueError for other m.
    """
    rows = rows_of(updates)
    return _of_best(rows, f, max(1, len(rows) - f - 2) if m is None else m, "multi-krum", unproven)


def krum_scores(squared: NDArray[np.float64], f: int) -> Floats:
    """(n,) sums of the n - f - 2 least squared distances to others, at least 1 of them where there is another.

    squared: (n, n). Where n - f - 2 < 1 (Bulyan's last draws) the nearest one counts, as in Flower's `aggregate_krum`.
    """
    n = len(squared)
    neighbours = min(max(1, n - f - 2), n - 1)
    others = np.sort(squared + np.diag(np.full(n, np.inf)), axis=1)    # itself comes last
    return others[:, :neighbours].sum(axis=1)


def _of_best(rows: Rows, f: int, m: int, rule: str, unproven: bool) -> Aggregation:
    n = len(rows)
    if unproven:
        check_byzantine(rule, n, f, f + 3, "f + 3")
    else:
        check_byzantine(rule, n, f, 2 * f + 3, "2f + 3")
    if not 1 <= m <= n:
        raise ValueError(f"m is {m}, expected 1..{n} of the {n} updates")
    scores = krum_scores(squared_distances(rows), f)
    kept = np.sort(np.argsort(scores, kind="stable")[:m])
    aggregate, weights = weighted_mean_of(rows, np.isin(np.arange(n), kept).astype(np.float64))
    return Aggregation(aggregate, tuple(kept.tolist()), weights, scores,
                       f"sum of the squared distances to the {n - f - 2} nearest others; the {m} least are kept")
