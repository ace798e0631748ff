"""Routes between neighbours are searched less: they must be those of the whole search."""

from __future__ import annotations

import itertools
from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

from emul.network.graph.routing import ShortestPaths

Graph = dict[int, dict[int, int]]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    n = draw(st.integers(2, 7))
    pairs = [(u, v) for u in range(n) for v in range(n) if u != v]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True))
    graph: Graph = {u: {} for u in range(n)}
    for u, v in chosen:
        graph[u][v] = draw(st.sampled_from([0, 1, 1, 2, 3, 5]))
    return graph


def best(graph: Graph, u: int, v: int) -> tuple[int, int] | None:
    """(latency, hops) of the best of all simple paths, by trying every one."""
    found = None
    paths = deque([((u,), 0)])
    while paths:
        path, latency = paths.popleft()
        if path[-1] == v:
            label = (latency, len(path) - 1)
            found = label if found is None else min(found, label)
            continue
        paths.extend(((*path, w), latency + along) for w, along in graph[path[-1]].items() if w not in path)
    return found


@given(graphs())
@settings(max_examples=150, deadline=None)
def test_a_route_is_the_best_of_all_paths_and_the_same_however_it_was_asked_for(graph: Graph) -> None:
    def fresh() -> ShortestPaths:
        return ShortestPaths(len(graph), lambda u: sorted(graph[u]), lambda u, v: graph[u][v])

    shared = fresh()
    for u in graph:
        for v in graph:
            if u == v:
                continue
            route, label = shared.route(u, v), best(graph, u, v)
            assert route == fresh().route(u, v)
            assert (route is None) == (label is None)
            if route is not None:
                latency = sum(graph[a][b] for a, b in itertools.pairwise(route))
                assert (latency, len(route) - 1) == label
                assert shared.latency_ns(u, v) == latency
