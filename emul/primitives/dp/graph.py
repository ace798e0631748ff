"""The graph of pairwise noise, and the protection of the sum. X. Yang et al., arXiv 2412.11737, section 5.

Their theorems 10 and 11 are replaced: the exact covariance of what the server sees gives the guarantee for any graph.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from emul.base.extras import optional

Matrix = NDArray[np.float64]
Edges = frozenset[tuple[int, int]]      # (smaller, larger)


def complete(clients: Iterable[int]) -> Edges:
    """Everybody with everybody."""
    ids = sorted(clients)
    return frozenset((a, b) for place, a in enumerate(ids) for b in ids[place + 1:])


def n_out(clients: Iterable[int], n: int, rng: np.random.Generator, tries: int = 100) -> Edges:
    """Each client picks n others uniformly; an edge is where either end picked. Drawn again until it is connected.

    The mean degree is 2 n - n^2 / (K - 1). Complete where n >= K - 1. Raises ValueError if no draw was connected.
    """
    ids = sorted(clients)
    if n >= len(ids) - 1:
        return complete(ids)
    for _ in range(tries):
        picks = {(client, int(other)) for client in ids
                 for other in rng.choice([i for i in ids if i != client], n, replace=False)}
        edges = frozenset((min(pair), max(pair)) for pair in picks)
        if len(components(edges, ids)) == 1:
            return edges
    raise ValueError(f"{tries} random {n}-out graphs of {len(ids)} clients fell apart: expected a larger n")


def neighbours(edges: Edges, clients: Iterable[int]) -> dict[int, list[int]]:
    """{client: those with whom it shares an edge, ascending}."""
    found: dict[int, list[int]] = {client: [] for client in clients}
    for a, b in sorted(edges):
        found[a].append(b)
        found[b].append(a)
    return {client: sorted(others) for client, others in found.items()}


def components(edges: Edges, clients: Collection[int]) -> list[set[int]]:
    """The parts of the graph of these clients, edges to others left out."""
    graph = nx.Graph()
    graph.add_nodes_from(sorted(clients))
    graph.add_edges_from((a, b) for a, b in sorted(edges) if a in graph and b in graph)
    return [set(part) for part in nx.connected_components(graph)]


def laplacian(edges: Edges, clients: Collection[int]) -> Matrix:
    """Of the graph that these clients induce, (K, K), in their ascending order."""
    ids = sorted(clients)
    place = {client: row for row, client in enumerate(ids)}
    found = np.zeros((len(ids), len(ids)))
    for a, b in edges:
        if a in place and b in place:
            i, j = place[a], place[b]
            found[i, j] = found[j, i] = -1.0
            found[i, i] += 1.0
            found[j, j] += 1.0
    return found


def theta(edges: Edges, honest: Collection[int], sigma_eta: float, sigma_delta: float, bound: float = 1.0) -> float:
    """mu^2 of a round: B^2 max_k (C^-1)_kk, C = sigma_eta^2 I + sigma_delta^2 L of the honest survivors' graph.

    sigma_eta, sigma_delta: standard deviations of each client's own noise and of each edge's, an edge's noise being
    added at one end and subtracted at the other. sigma_delta = inf: masks uniform in a ring, of which each component
    shows its sum alone. bound: the L2 norm B that a client's contribution cannot exceed. inf without noise.
    """
    if not honest:
        return 0.0
    if sigma_eta == 0.0:
        return float("inf")
    if np.isinf(sigma_delta):
        return bound**2 / (min(map(len, components(edges, honest))) * sigma_eta**2)
    covariance = sigma_eta**2 * np.eye(len(honest)) + sigma_delta**2 * laplacian(edges, honest)
    return float(bound**2 * np.diag(np.linalg.inv(covariance)).max())


def sigma_pairwise(edges: Edges, honest: Collection[int], sigma_eta: float, mu: float, bound: float = 1.0) -> float:
    """The least sigma_delta with which theta is at most mu^2. Raises ValueError if none is enough."""
    if theta(edges, honest, sigma_eta, float("inf"), bound) > mu**2:
        raise ValueError(f"own noise of {sigma_eta:g} is too little: with perfect masks theta is "
                         f"{theta(edges, honest, sigma_eta, float('inf'), bound):.4g}, expected at most {mu**2:.4g}")
    if theta(edges, honest, sigma_eta, 0.0, bound) <= mu**2:
        return 0.0
    with optional("the noise of a guarantee needs", "stats"):
        from scipy.optimize import brentq
    high = sigma_eta
    while theta(edges, honest, sigma_eta, high, bound) > mu**2:
        high *= 2
        if high > 1e9 * sigma_eta:
            return high
    return float(brentq(lambda sigma: theta(edges, honest, sigma_eta, sigma, bound) - mu**2, 0.0, high))


