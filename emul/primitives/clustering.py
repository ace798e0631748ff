"""Measures of the agreement of a clustering with the truth, whatever names its clusters have."""

from __future__ import annotations

from collections.abc import Sequence

import networkx as nx
import numpy as np


def contingency(chosen: Sequence[int], truth: Sequence[int]) -> np.ndarray:
    """The count of each pair, (clusters chosen, clusters true) int64."""
    _, a = np.unique(np.asarray(chosen), return_inverse=True)
    _, b = np.unique(np.asarray(truth), return_inverse=True)
    table = np.zeros((a.max(initial=-1) + 1, b.max(initial=-1) + 1), np.int64)
    np.add.at(table, (a, b), 1)
    return table


def matched(chosen: Sequence[int], truth: Sequence[int]) -> float:
    """The share that is right under the best one-to-one matching of names (Kuhn 1955); nan of nothing.

    >>> matched([1, 1, 0, 0], [0, 0, 0, 1])
    0.75
    """
    table = contingency(chosen, truth)
    if not table.size:
        return float("nan")
    pairs = nx.Graph()
    pairs.add_weighted_edges_from((f"chosen {a}", f"true {b}", int(table[a, b])) for a, b in np.argwhere(table))
    return sum(pairs.edges[pair]["weight"] for pair in nx.max_weight_matching(pairs)) / int(table.sum())


def adjusted_rand(chosen: Sequence[int], truth: Sequence[int]) -> float:
    """Adjusted Rand index: 1 for equal clusterings, 0 expected by chance; nan of nothing. Hubert and Arabie 1985.

    >>> adjusted_rand([1, 1, 0, 0], [0, 0, 1, 1]), adjusted_rand([0, 0, 0, 0], [0, 0, 1, 1])
    (1.0, 0.0)
    """
    table = contingency(chosen, truth)
    if not table.size:
        return float("nan")

    def pairs(counts: np.ndarray) -> float:
        return float((counts * (counts - 1) // 2).sum())

    both, rows, columns, n = pairs(table), pairs(table.sum(1)), pairs(table.sum(0)), pairs(table.sum(keepdims=True))
    by_chance = rows * columns / n if n else 0.0
    most = (rows + columns) / 2
    return 1.0 if most == by_chance else (both - by_chance) / (most - by_chance)
