"""Bulyan: Krum chooses updates one by one, then every coordinate is averaged around its median.

El Mhamdi, Guerraoui, Rouault, ICML 2018, Algorithm 1 and section 4: theta = n - 2f updates are chosen, each by Krum
among those that are left; then of every coordinate the beta = theta - 2f values closest to its median are averaged.
"""

from __future__ import annotations

import numpy as np

from emul.primitives.robust.aggregation import Aggregation, Floats, Updates, check_byzantine, columns, rows_of
from emul.primitives.robust.distances import squared_distances
from emul.primitives.robust.krum import krum_scores


def bulyan(updates: Updates, f: int) -> Aggregation:
    """The mean around the median of the updates that Krum chooses; kept are the chosen, scores their shares.

    updates: (n, d). Ties go to the lowest row, in the choice and around the median. While few are left Krum counts one
    neighbour at least, as Flower does. Raises TooManyByzantine if n < 4f + 3.
    """
    rows = rows_of(updates)
    n = len(rows)
    check_byzantine("bulyan", n, f, 4 * f + 3, "4f + 3")
    chosen = chosen_by_krum(squared_distances(rows), f, n - 2 * f)
    beta = n - 4 * f
    aggregate = np.empty(rows[0].shape, np.float64)
    counts = np.zeros(len(chosen))
    for part, chunk in columns([rows[i] for i in chosen]):
        away = np.abs(chunk - np.median(chunk, axis=0))
        near = np.zeros(chunk.shape, bool)              # (theta, c), beta are true in each column; ties: the lowest row
        np.put_along_axis(near, np.argsort(away, axis=0, kind="stable")[:beta], True, axis=0)
        aggregate[part] = np.where(near, chunk, 0.0).sum(axis=0) / beta
        counts += near.sum(axis=1)
    shares = np.zeros(n)
    shares[chosen] = counts / rows[0].size
    return Aggregation(aggregate, tuple(chosen), None, shares,
                       f"share of the coordinates in which it is one of the {beta} closest to the median of the "
                       f"{len(chosen)} that Krum chose; 0: not chosen")


def chosen_by_krum(squared: Floats, f: int, theta: int) -> list[int]:
    """`theta` rows, each the best by Krum of those left after the ones before it; ascending. squared: (n, n)."""
    left = list(range(len(squared)))
    chosen = []
    for _ in range(theta):
        best = int(np.argmin(krum_scores(squared[np.ix_(left, left)], f)))       # the first of equals
        chosen.append(left.pop(best))
    return sorted(chosen)
