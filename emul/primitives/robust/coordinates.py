"""Coordinate by coordinate: median and trimmed mean. Yin, Chen, Kannan, Bartlett, ICML 2018, definitions 1 and 2."""

from __future__ import annotations

import numpy as np

from emul.primitives.robust.aggregation import Aggregation, Rows, TooManyByzantine, Updates, columns, rows_of


def coordinate_median(updates: Updates) -> Aggregation:
    """The median of each coordinate, the mean of the two middle values for an even n. Definition 1.

    updates: (n, d). Scores are shares of coordinates in which a row is the median, or one of its two values.

    >>> coordinate_median(np.array([[1., 5.], [2., 0.], [9., 4.]])).aggregate.tolist()
    [2.0, 4.0]
    """
    rows = rows_of(updates)
    return _without_ends(rows, (len(rows) - 1) // 2,
                         "share of the coordinates in which it is the median, or one of the two middle values")


def trimmed_mean(updates: Updates, f: int | None = None, beta: float | None = None) -> Aggregation:
    """The mean of each coordinate without its f largest and its f least values. Definition 2.

    updates: (n, d). Give either f >= 0 or 0 <= beta < 1/2, a share of which f = floor(beta n), as in SciPy and Flower.
    Scores are shares of coordinates in which a row lies within what was kept; ties count for all that are equal.
    Raises TooManyByzantine if 2f >= n, ValueError for other parameters.
    """
    rows = rows_of(updates)
    f = _trimmed(len(rows), f, beta)
    if 2 * f >= len(rows):
        raise TooManyByzantine(f"a trimmed mean with f = {f} needs n >= 2f + 1 = {2 * f + 1} updates, n is {len(rows)}")
    return _without_ends(rows, f, f"share of the coordinates in which it is not among the {f} largest or least")


def _trimmed(n: int, f: int | None, beta: float | None) -> int:
    if (f is None) == (beta is None):
        raise ValueError("a trimmed mean takes either f or beta")
    if beta is None:
        if f is None or f < 0:
            raise ValueError(f"f is {f}, expected at least 0")
        return f
    if not 0 <= beta < 0.5:
        raise ValueError(f"beta is {beta}, expected a share of the updates in [0, 1/2)")
    return int(beta * n)


def _without_ends(rows: Rows, f: int, why: str) -> Aggregation:
    """The mean of each coordinate without its f largest and least values, summed from the least to the largest."""
    n = len(rows)
    aggregate = np.empty(rows[0].shape, np.float64)
    within = np.zeros(n)
    for part, chunk in columns(rows):
        middle = np.sort(chunk, axis=0)[f:n - f]                       # (n - 2f, c)
        aggregate[part] = middle.sum(axis=0) / len(middle)
        within += ((chunk >= middle[0]) & (chunk <= middle[-1])).sum(axis=1)
    return Aggregation(aggregate, tuple(range(n)), None, within / rows[0].size, why)
