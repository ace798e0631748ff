"""Routes: the least latency, then the fewest hops, then the lowest vertex ids, so that a route never depends on order.

One Dijkstra per source, run only as far as the targets that are asked for, and resumed for a farther one. Where a link
leads straight to the target, only what is nearer than that link is searched, and nothing is kept: who talks to
neighbours in a large graph never pays for the whole of it. Latencies are those that the topology and the rules give: a
fault that changes a latency during the run does not move the routes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush

Latency = Callable[[int, int], int]


class ShortestPaths:
    """Shortest paths over `neighbours(u)` with the latency of each link; `vertices` is their number."""

    def __init__(self, vertices: int, neighbours: Callable[[int], Iterable[int]], latency_ns: Latency):
        self._vertices = vertices
        self._neighbours = neighbours
        self._latency_ns = latency_ns
        self._out: dict[int, list[tuple[int, int]]] = {}        # vertex -> (neighbour, latency)
        self._trees: dict[int, _Tree] = {}
        self._into: dict[int, int] | None = None                # vertex -> least latency of the links into it

    def latency_ns(self, u: int, v: int) -> int | None:
        """The sum of the latencies on the route; None where v cannot be reached."""
        return self._tree(u, v).latencies.get(v)

    def route(self, u: int, v: int) -> tuple[int, ...] | None:
        """The vertices from u to v, both included; None where v cannot be reached."""
        before = self._tree(u, v).before
        if v not in before:
            return None
        path = [v]
        while path[-1] != u:
            path.append(before[path[-1]])
        return tuple(reversed(path))

    def _tree(self, source: int, target: int) -> _Tree:
        """A tree of `source`, with `target` in it if it can be reached."""
        tree = self._trees.get(source)
        if tree is None:
            for neighbour, along in self._links(source):
                if neighbour == target:
                    return self._adjacent(source, target, along)
            tree = self._trees[source] = _Tree(source)
        if target not in tree.before:
            self._grow(tree, target)
        return tree

    def _adjacent(self, source: int, target: int, along: int) -> _Tree:
        """A link leads straight there: only what comes to the target's nearest neighbours sooner needs a search."""
        tree = _Tree(source)
        least = self._least_in(target)
        if along > self._links_least(source) + least:
            self._grow(tree, target, along - least)
        if target not in tree.before:
            tree.before |= {source: source, target: source}
            tree.latencies |= {source: 0, target: along}
        return tree

    def _links_least(self, source: int) -> int:
        return min(along for _, along in self._links(source))

    def _least_in(self, target: int) -> int:
        """The least latency of the links into a vertex."""
        if self._into is None:
            self._into = {}
            for u in range(self._vertices):
                for v, along in self._links(u):
                    if along < self._into.get(v, along + 1):
                        self._into[v] = along
        return self._into[target]

    def _grow(self, tree: _Tree, target: int, bound: int | None = None) -> None:
        """Go on until `target` is final. Dijkstra reaches vertices in the order of their labels.

        bound: leave out what is no nearer than this, but for the target: it is on no better route.
        """
        before, latencies, reached, heap = tree.before, tree.latencies, tree.reached, tree.heap
        while heap:
            latency, hops, u, previous = heappop(heap)
            if u in before:
                continue
            before[u], latencies[u] = previous, latency
            for v, along in self._links(u):
                label = (latency + along, hops + 1)
                if bound is not None and label[0] >= bound and v != target:
                    continue
                if v not in before and (v not in reached or label <= reached[v]):
                    reached[v] = label
                    heappush(heap, (*label, v, u))
            if u == target:
                return

    def _links(self, u: int) -> list[tuple[int, int]]:
        links = self._out.get(u)
        if links is None:
            links = self._out[u] = [(v, self._latency_ns(u, v)) for v in self._neighbours(u)]
        return links


class _Tree:
    """What is known of the routes from one source. Final: `before` and `latencies`; the rest is the frontier."""

    __slots__ = ("before", "heap", "latencies", "reached")

    def __init__(self, source: int):
        self.before: dict[int, int] = {}                        # vertex -> the one before it; itself for the source
        self.latencies: dict[int, int] = {}
        self.reached: dict[int, tuple[int, int]] = {}           # (latency, hops), final or not
        self.heap = [(0, 0, source, source)]                    # latency, hops, vertex, vertex before: ties by id
