"""Routes: the least latency, then the fewest hops, then the lowest vertex ids, so that a route never depends on order.

The lowest ids are those of the vertex before each, from the target back. One Dijkstra per source, run only as far as
the targets that are asked for, and resumed for a farther one. Three rules make 100,000 vertices cheap:

    dead ends       a vertex with one link in (out) is no target (source) of a search: its only neighbour is
    neighbours      where a link leads straight to the target, only what is nearer than it is searched, for all links
                    out of a vertex at once; kept is to which of them others lead sooner
    common targets  whom many talk to gets a tree of the ways *to* it: one search, and a walk along it a source

Latencies are those that the topology and the rules give: a fault that changes a latency during the run does not move
the routes.

Where vertices forward nothing for others there is nothing to search (`Ways`): a route is the one link between the two,
with the access links of hosts before and behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from heapq import heappop, heappush
from itertools import pairwise

Latency = Callable[[int, int], int]
Links = Callable[[int], Mapping[int, int]]

_NONE, _MANY = -1, -2
_SELDOM = 32                        # questions for ways from or to neighbours, before a vertex gets a tree
_FEW = 64                           # links out of a vertex that are looked at together


class Ways:
    """The routes of a topology that lists its links. forward, place_of: as `Topology` has them."""

    def __init__(self, vertices: int, neighbours: Callable[[int], Iterable[int]], linked: Callable[[int, int], bool],
                 latency_ns: Latency, forward: bool, place_of: Mapping[int, int]):
        self._shortest = ShortestPaths(vertices, neighbours, latency_ns)
        self._linked = linked
        self._latency_ns = latency_ns
        self._forward = forward
        self._place_of = place_of

    def route(self, u: int, v: int) -> tuple[int, ...] | None:
        """The vertices from u to v, both included; None where v cannot be reached."""
        return self._direct(u, v) if self._is_direct(u, v) else self._shortest.route(u, v)

    def latency_ns(self, u: int, v: int) -> int | None:
        """The sum of the latencies on the route; None where v cannot be reached."""
        if not self._is_direct(u, v):
            return self._shortest.latency_ns(u, v)
        route = self._direct(u, v)
        return None if route is None else sum(self._latency_ns(a, b) for a, b in pairwise(route))

    def _is_direct(self, u: int, v: int) -> bool:
        """True if no search is needed: nobody forwards, or both are at one place, which has a link to itself."""
        if not self._forward:
            return True
        place = self._place_of.get(u, u)
        return u != v and place == self._place_of.get(v, v) and self._linked(place, place)

    def _direct(self, u: int, v: int) -> tuple[int, ...] | None:
        """From host to place, over the link between the two places, and on to the host; (u,) for u itself."""
        if u == v:
            return (u,)
        a, b = self._place_of.get(u, u), self._place_of.get(v, v)
        if a != b and not self._linked(a, b):
            return None
        between = (a, b) if self._linked(a, b) else (a,)        # a place's link to itself: between two of its hosts
        return (*((u,) if u != a else ()), *between, *((v,) if v != b else ()))


class ShortestPaths:
    """Shortest paths over `neighbours(u)` with the latency of each link; `vertices` is their number."""

    # A route is defined from its source. A tree of the ways from each source would be 100,000 trees for 100,000 clients
    # of one server, so such a server gets one tree of the ways to it; one tree for both directions would give ties to
    # other vertices. `test_a_route_is_the_best_of_all_paths_and_the_same_however_it_was_asked_for` holds both searches
    # to the definition.

    def __init__(self, vertices: int, neighbours: Callable[[int], Iterable[int]], latency_ns: Latency):
        self._vertices = vertices
        self._neighbours = neighbours
        self._latency_ns = latency_ns
        self._out: dict[int, dict[int, int]] = {}               # vertex -> neighbour -> latency, the nearest first
        self._in: dict[int, dict[int, int]] | None = None       # the same of the links into a vertex
        self._least: dict[int, int] | None = None               # vertex -> least latency of the links into it
        self._trees: dict[int, _Tree] = {}                      # ways from a vertex
        self._backs: dict[int, _Tree] = {}                      # ways to it
        self._found: dict[tuple[int, int], tuple[int, ...]] = {}    # routes along those
        self._sole: tuple[list[int], list[int]] | None = None   # the only neighbour that a link leads from, and to
        self._straight = bytearray(vertices)                    # 1: its links have been looked at together
        self._detours: dict[int, set[int]] = {}                 # vertex -> neighbours that its link is not the way to
        self._seldom = _SELDOM
        self._asked_from = [0] * vertices                       # questions that no tree answers, so far
        self._asked_to = [0] * vertices

    def latency_ns(self, u: int, v: int) -> int | None:
        """The sum of the latencies on the route; None where v cannot be reached."""
        first, last, beside = self._ends(u, v)
        if first == last:
            return beside
        if self._is_straight(first, last):
            return beside + self._links(first)[last]
        tree, back = self._tree(first, last)
        label = tree.reached[first if back else last] if self._reached(tree, first, last, back) else None
        return None if label is None else beside + label[0]

    def route(self, u: int, v: int) -> tuple[int, ...] | None:
        """The vertices from u to v, both included; None where v cannot be reached."""
        first, last, _ = self._ends(u, v)
        between: tuple[int, ...] | None = (first,) if first == last else (first, last)
        if first != last and not self._is_straight(first, last):
            between = self._found.get((first, last)) or self._between(first, last)
        if between is None:
            return None
        return (*((u,) if first != u else ()), *between, *((v,) if last != v else ()))

    def _ends(self, u: int, v: int) -> tuple[int, int, int]:
        """Between which vertices a route has to be searched, and the latency of what lies before and behind them."""
        into, out_of = self._sole_neighbours()
        beside = 0
        if u != v and into[v] >= 0:
            beside, v = self._links(into[v])[v], into[v]
        if u != v and out_of[u] >= 0:
            beside, u = beside + self._links(u)[out_of[u]], out_of[u]
        return u, v, beside

    def _sole_neighbours(self) -> tuple[list[int], list[int]]:
        if self._sole is None:
            into, out_of = [_NONE] * self._vertices, [_NONE] * self._vertices
            for u in range(self._vertices):
                for v in self._neighbours(u):
                    into[v] = u if into[v] == _NONE else _MANY
                    out_of[u] = v if out_of[u] == _NONE else _MANY
            self._sole = into, out_of
        return self._sole

    # --- straight on ----------------------------------------------------------------------------------------------

    def _is_straight(self, source: int, target: int) -> bool:
        """True if the link between the two is the route; False: it is not, or there is none, or too many to look at."""
        links = self._links(source)
        if target not in links or len(links) > _FEW:
            return False
        if not self._straight[source]:
            self._straight[source] = True
            found = self._sooner(source, links)
            if found:
                self._detours[source] = found
        return target not in self._detours.get(source, ())

    def _sooner(self, source: int, links: dict[int, int]) -> set[int]:
        """To which of its neighbours other ways lead sooner. Vertices further than the last one before need not be
        searched; of two ways that take as long a link is the one with fewer hops."""
        least_in, known = self._least_in(), self._out
        bound = max([along - least_in[target] for target, along in links.items()])
        longest = max(links.values())
        found, nearest, heap = set(), {source: 0}, [(0, source)]
        while heap:
            latency, u = heappop(heap)
            if latency > nearest[u]:
                continue
            room, near = longest - latency, bound - latency
            for v, along in (known.get(u) or self._links(u)).items():
                if along >= room:                   # and so are the others
                    break
                if v in links and latency + along < links[v]:
                    found.add(v)
                if along < near and latency + along < nearest.get(v, longest):
                    nearest[v] = latency + along
                    heappush(heap, (latency + along, v))
        return found

    # --- searches -------------------------------------------------------------------------------------------------

    def _tree(self, source: int, target: int) -> tuple[_Tree, bool]:
        """A tree with both in it if one can be reached from the other; whether it is one of the ways to the target."""
        tree = self._trees.get(source)
        if tree is not None:
            self._grow(tree, target, self._links)
            return tree, False
        back = self._backs.get(target)
        if back is None:
            self._asked_from[source] += 1
            self._asked_to[target] += 1
            often_from, often_to = self._asked_from[source], self._asked_to[target]
            along = self._links(source).get(target)
            if along is not None and max(often_from, often_to) <= self._seldom:
                return self._adjacent(source, target, along), False
            if often_to <= 2 * often_from:
                tree = self._trees[source] = _Tree(source)
                self._grow(tree, target, self._links)
                return tree, False
            back = self._backs[target] = _Tree(target)
        self._grow(back, source, self._links_into)
        return back, True

    @staticmethod
    def _reached(tree: _Tree, source: int, target: int, back: bool) -> bool:
        return (source if back else target) in tree.before

    def _between(self, source: int, target: int) -> tuple[int, ...] | None:
        tree, back = self._tree(source, target)
        if not self._reached(tree, source, target, back):
            return None
        before = self._before(tree, source, target) if back else tree.before
        path = [target]
        while path[-1] != source:
            path.append(before[path[-1]])
        route = tuple(reversed(path))
        if back:
            self._found[source, target] = route
        return route

    def _before(self, back: _Tree, source: int, target: int) -> dict[int, int]:
        """The vertex before each on the best ways from the source: of several the lowest, as a search from there finds.

        A vertex lies on them if it can be reached from the source by links that each bring the target nearer by their
        latency and one hop.
        """
        before: dict[int, int] = {}
        waiting = [source]
        while waiting:
            u = waiting.pop()
            if u == target:
                continue
            latency, hops = back.reached[u]
            for v, along in self._links(u).items():
                if v not in back.before or back.reached[v] != (latency - along, hops - 1):
                    continue
                if v not in before:
                    before[v] = u
                    waiting.append(v)
                elif u < before[v]:
                    before[v] = u
        return before

    def _adjacent(self, source: int, target: int, along: int) -> _Tree:
        """A link leads straight there: only what comes to the target's nearest neighbours sooner needs a search."""
        tree = _Tree(source)
        nearest = next(iter(self._links(source).values()))
        if along > nearest:
            least = self._least_in()[target]
            if along > nearest + least:
                self._search(tree, target, along - least)
        if target not in tree.before:
            tree.before |= {source: source, target: source}
            tree.reached[target] = along, 1
        return tree

    def _least_in(self) -> dict[int, int]:
        """Vertex -> the least latency of the links into it."""
        if self._least is None:
            self._least = {}
            for u in range(self._vertices):
                for v, along in self._links(u).items():
                    if along < self._least.get(v, along + 1):
                        self._least[v] = along
        return self._least

    def _search(self, tree: _Tree, target: int, bound: int) -> None:
        """As `_grow` of ways from a vertex, without what is no nearer than `bound`: it is on no better route."""
        before, reached, heap = tree.before, tree.reached, tree.heap
        while heap:
            latency, hops, u, previous = heappop(heap)
            if u in before:
                continue
            before[u] = previous
            if u == target:
                return
            links, room = self._links(u), bound - latency
            for v, along in links.items():
                if along >= room:                   # and so are the others
                    break
                label = (latency + along, hops + 1)
                if v not in before and (v not in reached or label <= reached[v]):
                    reached[v] = label
                    heappush(heap, (*label, v, u))
            if target in links:                     # however far that is
                label = (latency + links[target], hops + 1)
                if label <= reached.get(target, label):
                    reached[target] = label
                    heappush(heap, (*label, target, u))

    def _grow(self, tree: _Tree, target: int, links: Links) -> None:
        """Go on until `target` is final. Dijkstra reaches vertices in the order of their labels."""
        before, reached, heap = tree.before, tree.reached, tree.heap
        if target in before:
            return
        while heap:
            latency, hops, u, previous = heappop(heap)
            if u in before:
                continue
            before[u] = previous
            for v, along in links(u).items():
                label = (latency + along, hops + 1)
                if v not in before and (v not in reached or label <= reached[v]):
                    reached[v] = label
                    heappush(heap, (*label, v, u))
            if u == target:
                return

    def _links(self, u: int) -> dict[int, int]:
        links = self._out.get(u)
        if links is None:
            found = [(self._latency_ns(u, v), v) for v in self._neighbours(u)]
            links = self._out[u] = {v: along for along, v in sorted(found)}
        return links

    def _links_into(self, v: int) -> dict[int, int]:
        if self._in is None:
            self._in = {}
            for u in range(self._vertices):
                for w, along in self._links(u).items():
                    self._in.setdefault(w, {})[u] = along
        return self._in.get(v, {})


class _Tree:
    """The knowledge of the best ways from one vertex, or to it. Final: `before`, and `reached` of what is in it."""

    __slots__ = ("before", "heap", "reached")

    def __init__(self, root: int):
        self.before: dict[int, int] = {}                        # vertex -> the one before it; itself for the root
        self.reached: dict[int, tuple[int, int]] = {root: (0, 0)}       # (latency, hops)
        self.heap = [(0, 0, root, root)]                        # latency, hops, vertex, vertex before: ties by id
