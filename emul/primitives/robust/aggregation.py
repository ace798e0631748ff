"""Arguments and result of every robust rule, and sums over rows that are the same on every run.

A rule reads n updates of d numbers, one row a client, in the order of the clients' ids. They may be one (n, d) array
or n vectors (d,): nothing here copies all of them, whatever is made of them is made some columns at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from emul.base.errors import ProtocolFailure, TooFewClients

Updates = NDArray[np.floating] | Sequence[NDArray[np.floating]]      # (n, d), or n of (d,)
Rows = list[NDArray[np.floating]]                                    # n of (d,), as `rows_of` has checked them
Floats = NDArray[np.float64]

LARGEST = 1e150                 # of an absolute value: squares of larger ones and their sums leave float64
CHUNK_VALUES = 1 << 20          # values that are held in float64 at a time: 8 MiB


class TooManyByzantine(ProtocolFailure):
    """The rule promises nothing, or is not defined, for f malicious among so few updates."""


@dataclass(frozen=True)
class Aggregation:
    """The aggregate that a rule made of n updates, and why."""

    aggregate: Floats               # (d,)
    kept: tuple[int, ...]           # rows that have a part in it, ascending
    weights: Floats | None          # (n,), aggregate = sum_i weights_i x_i; None: it is no such sum
    scores: Floats                  # (n,), what rows were judged by
    why: str                        # the meaning of the scores, and which are kept
    state: object = None            # the rule's state for the next round; None: it has no memory


def rows_of(updates: Updates) -> Rows:
    """The n rows (d,), not copied. Raises TooFewClients for none, ValueError for shapes or values of no use."""
    rows = [np.asarray(row) for row in updates]
    if not rows:
        raise TooFewClients("0 updates to aggregate, expected at least 1")
    for i, row in enumerate(rows):
        if row.ndim != 1 or row.shape != rows[0].shape or not row.size:
            raise ValueError(f"update {i} has shape {row.shape}, expected a vector as long as the first, "
                             f"{rows[0].shape}, and not empty")
        if not float(np.abs(row).max()) <= LARGEST:         # "not <=" finds NaN, too
            raise ValueError(f"update {i} holds values that are not finite or above {LARGEST:g}")
    return rows


def check_byzantine(rule: str, n: int, f: int, least: int, needs: str) -> None:
    """Raise ValueError for f < 0, TooManyByzantine unless n >= `least`, which `needs` says as a formula."""
    if f < 0:
        raise ValueError(f"f is {f}, expected at least 0")
    if n < least:
        raise TooManyByzantine(f"{rule} with f = {f} needs n >= {needs} = {least} updates, n is {n}")


def columns(rows: Rows) -> Iterator[tuple[slice, Floats]]:
    """Some columns of all rows at a time: where they lie, and a new (n, columns) float64 array."""
    width = max(1, CHUNK_VALUES // len(rows))
    for start in range(0, rows[0].size, width):
        part = slice(start, start + width)
        yield part, np.stack([row[part] for row in rows]).astype(np.float64)


def weighted_sum(rows: Rows, weights: NDArray[np.floating]) -> Floats:
    """sum_i weights_i x_i, (d,), in float64 and in the order of the rows. Rows of weight 0 are not read."""
    total = np.zeros(rows[0].shape, np.float64)
    for weight, row in zip(weights.tolist(), rows, strict=True):
        if weight:
            total += np.multiply(row, weight, dtype=np.float64)
    return total


def weights_of(rows: Rows, alpha: NDArray[np.number] | None) -> Floats:
    """(n,) weights of rows, all 1 for None. Raises ValueError for another shape, negative ones, or if all are 0."""
    weights = np.ones(len(rows)) if alpha is None else np.asarray(alpha, np.float64)
    if weights.shape != (len(rows),) or not (weights >= 0).all() or not 0 < weights.sum() < np.inf:
        raise ValueError(f"weights are {weights}, expected {len(rows)} finite ones of at least 0, not all 0")
    return weights


def weighted_mean_of(rows: Rows, weights: Floats) -> tuple[Floats, Floats]:
    """sum_i w_i x_i / sum_i w_i and the weights w_i / sum_i w_i; two arrays of zeros if all weights are 0."""
    total = float(weights.sum())
    if total == 0:
        return np.zeros(rows[0].shape, np.float64), np.zeros(len(rows), np.float64)
    return weighted_sum(rows, weights) / total, weights / total


def norm(vector: NDArray[np.floating]) -> float:
    """Euclidean norm in float64; the same for any number of threads."""
    return float(np.sqrt(np.square(vector, dtype=np.float64).sum()))


def norms(rows: Rows) -> Floats:
    """(n,) Euclidean norms."""
    return np.array([norm(row) for row in rows])


def distances_to(rows: Rows, point: Floats) -> Floats:
    """(n,) Euclidean distances of the rows to `point`, (d,)."""
    return np.array([norm(np.subtract(row, point, dtype=np.float64)) for row in rows])


def dots(rows: Rows, vector: NDArray[np.floating]) -> Floats:
    """(n,) inner products of the rows with `vector`, (d,), in float64; the same for any number of threads."""
    return np.array([float(np.multiply(row, vector, dtype=np.float64).sum()) for row in rows])


def above_zero(weights: Floats) -> tuple[int, ...]:
    """Rows with a weight above 0."""
    return tuple(np.flatnonzero(weights > 0).tolist())
