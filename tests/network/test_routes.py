"""Routes are searched in several ways, none of which may show: between neighbours, from dead ends, along trees."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence

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


def told(graph: Graph, u: int, v: int) -> tuple[int, ...] | None:
    """The route by its definition: from the target back to the lowest of the vertices before it on a best path."""
    labels = {w: (0, 0) if w == u else best(graph, u, w) for w in graph}
    if labels[v] is None:
        return None
    path = [v]
    while path[-1] != u:
        w = path[-1]
        path.append(min(x for x, label in labels.items() if label is not None and w in graph[x]
                        and (label[0] + graph[x][w], label[1] + 1) == labels[w]))
    return tuple(reversed(path))


@st.composite
def with_leaves(draw: st.DrawFn) -> Graph:
    """A graph with dead ends, as hosts on access links are, some of them in one direction only."""
    graph = draw(graphs())
    for place in draw(st.lists(st.sampled_from(sorted(graph)), max_size=4)):
        leaf = len(graph)
        graph[leaf] = {}
        for a, b in draw(st.sampled_from([((leaf, place), (place, leaf)), ((leaf, place),) * 2, ((place, leaf),) * 2])):
            graph[a][b] = draw(st.sampled_from([0, 1, 2]))
    return graph


@given(with_leaves(), st.data(), st.sampled_from([0, 1, 32]))
@settings(max_examples=80, deadline=None)
def test_a_route_is_the_same_whoever_asked_before_and_how_often(graph: Graph, data: st.DataObject, seldom: int) -> None:
    asked: Sequence[tuple[int, int, bool]] = data.draw(st.lists(st.tuples(
        st.sampled_from(sorted(graph)), st.sampled_from(sorted(graph)), st.booleans()), min_size=1, max_size=30))
    paths = ShortestPaths(len(graph), lambda u: sorted(graph[u]), lambda u, v: graph[u][v])
    paths._seldom = seldom              # questions before a vertex gets a tree
    for u, v, latency_first in asked:
        route = told(graph, u, v)
        latency = None if route is None else sum(graph[a][b] for a, b in itertools.pairwise(route))
        if latency_first:
            assert paths.latency_ns(u, v) == latency
        assert paths.route(u, v) == route
        assert paths.latency_ns(u, v) == latency


def test_who_is_talked_to_by_many_gets_one_tree_and_they_none() -> None:
    ring: Graph = {u: {(u + 1) % 60: 1, (u - 1) % 60: 1} for u in range(60)}
    paths = ShortestPaths(60, lambda u: sorted(ring[u]), lambda u, v: ring[u][v])
    for u in range(5, 55):
        assert len(paths.route(0, u) or ()) == min(u, 60 - u) + 1
        assert len(paths.route(u, 0) or ()) == min(u, 60 - u) + 1
    assert list(paths._backs) == [0]
    assert len(paths._trees) <= 3               # of the one that all talk to, and of the first to answer


def test_hosts_on_access_links_have_no_trees() -> None:
    graph: Graph = {0: {1: 5}, 1: {0: 5}}
    for host in range(2, 500):
        graph[host] = {host % 2: 1}
        graph[host % 2][host] = 1
    paths = ShortestPaths(500, lambda u: sorted(graph[u]), lambda u, v: graph[u][v])
    for host in range(4, 500):
        assert paths.route(2, host) == ((2, 0, host) if host % 2 == 0 else (2, 0, 1, host))
        assert paths.latency_ns(host, 3) == (2 if host % 2 else 7)
    assert not paths._backs
    assert set(paths._trees) <= {0, 1}


@given(graphs())
@settings(max_examples=80, deadline=None)
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
