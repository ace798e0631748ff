"""Weights of averages between neighbours of a graph."""

from __future__ import annotations

from collections.abc import Collection, Mapping


def metropolis(i: int, neighbours: Mapping[int, Collection[int]]) -> dict[int, float]:
    """{j: W_ij} of node i and its neighbours: W_ij = 1 / (1 + max(deg i, deg j)), W_ii = 1 - the sum of these.

    neighbours: of i and of each of its neighbours. The matrix of all nodes is symmetric and doubly stochastic, whatever
    the graph is. Xiao, Boyd, Kim, *Distributed average consensus with least-mean-square deviation*, 2007, section 2.

    >>> {j: round(weight, 4) for j, weight in metropolis(1, {1: [2, 3], 2: [1], 3: [1, 4, 5]}).items()}
    {1: 0.4167, 2: 0.3333, 3: 0.25}
    """
    own = len(neighbours[i])
    weights = {j: 1 / (1 + max(own, len(neighbours[j]))) for j in sorted(neighbours[i])}
    return {i: 1 - sum(weights.values()), **weights}
