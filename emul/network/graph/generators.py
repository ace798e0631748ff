"""Graphs by name: ring, tree, grid, random geometric, Watts-Strogatz, Barabasi-Albert, each with places for a map.

The graphs are networkx's; what is random comes from the stream ("topology", name) of the scenario's seed. Vertices are
numbered so that the first is the natural hub: the root of a tree, the vertex nearest the middle of a random geometric
graph, the oldest of a Barabasi-Albert graph. All vertices forward, whatever role they play: unlike the hosts of a star,
they are places (`emul.network.graph.topology`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import networkx as nx
import numpy as np

from emul.base.errors import Problem
from emul.base.plain import is_count, is_number
from emul.base.streams import generator, key64
from emul.network.graph.geo import Point, Positions
from emul.network.graph.topology import SHAPES, TopologyError, TopologySpec, numbered, numbered_servers

EXTENT_KM = 1000.0
MOST = 10**6                        # vertices
_MOST_LINKS = 3 * 10**6             # that are expected: each takes a kilobyte, and more would end `check`
_ATTEMPTS = 100                     # draws of a random graph until one is connected
_MOST_DRAWN = 10**7                 # vertices of all draws together, so that `check` comes to an end


def shape(spec: TopologySpec, seed: int) -> tuple[nx.Graph, Positions]:
    """The graph that `spec.generator` and `spec.sizes` describe; vertices 0 .. n-1 with `label`, and `role` if counted.

    Raises TopologyError with all that is wrong.
    """
    problems = _problems(spec)
    if problems:
        raise TopologyError("topology", problems)
    n = _vertices(spec)
    assert spec.generator is not None
    graph, unit = _DRAW[spec.generator](n, spec.sizes, seed)
    side = EXTENT_KM if spec.extent_km is None else spec.extent_km
    for v, (name, role) in enumerate(_who(spec, n)):
        graph.nodes[v].update({"label": name, "role": role} if role else {"label": name})
    return graph, Positions(tuple((x * side, y * side) for x, y in unit), plane=True)


def _who(spec: TopologySpec, n: int) -> list[tuple[str, str | None]]:
    """(name, role) of every vertex; no roles where the rules of a file are used."""
    if spec.peers is not None:
        return [(name, "peer") for name in numbered("peer", n)]
    if spec.clients is not None:
        servers, clients = numbered_servers(spec.servers), numbered("client", spec.clients)
        return [*((name, "server") for name in servers), *((name, "client") for name in clients)]
    return [(name, None) for name in numbered("n", n)]


def _vertices(spec: TopologySpec) -> int:
    sizes = spec.sizes
    if spec.peers is not None:
        return spec.peers
    if spec.clients is not None:
        return spec.clients + spec.servers
    if "nodes" in sizes:
        return int(sizes["nodes"])
    if spec.generator == "grid":
        return int(sizes["rows"] * sizes["columns"])
    branching, height = int(sizes["branching"]), int(sizes["height"])
    return height + 1 if branching == 1 else (branching ** (height + 1) - 1) // (branching - 1)


# ---- what is wrong ----

Wrong = Callable[[str, object, str], None]          # place, found, expected


def _problems(spec: TopologySpec) -> list[Problem]:
    problems: list[Problem] = []

    def wrong(place: str, found: object, expected: str) -> None:
        problems.append(Problem(f"topology.{place}", found if isinstance(found, str) else repr(found), expected,
                                spec.line))

    assert spec.generator is not None
    own, sizes = SHAPES[spec.generator], spec.sizes
    for name, value in sizes.items():
        if name not in (*own, "nodes"):
            wrong(name, value, f'is not used by the generator "{spec.generator}"')
        elif name == "radius":
            if not (is_number(value) and 0 < value <= 1.5):
                wrong(name, value, "expected a share of the side of the square, above 0, at most 1.5")
        elif name == "rewire":
            if not (is_number(value) and 0 <= value <= 1):
                wrong(name, value, "expected a probability in [0, 1]")
        elif not is_count(value) or value > MOST:
            wrong(name, value, f"expected a whole number in 1..{MOST}")
    ways = [way for way, there in (
        ("nodes", "nodes" in sizes), ("rows and columns", spec.generator == "grid"), ("height", "height" in sizes),
        ("clients", spec.clients is not None), ("peers", spec.peers is not None)) if there]
    if len(ways) != 1:
        found = " and ".join(ways) or "no number of vertices"
        others = {"tree": ", or height", "grid": "; a grid has rows and columns, and roles"}.get(spec.generator, "")
        wrong("generator", found, "expected one of nodes, clients, peers" + others)
    for name in own:
        if name not in sizes and name != "height":
            wrong(name, "missing", f'is needed by the generator "{spec.generator}"')
    for name in ("clients", "peers"):
        if getattr(spec, name) is not None and not is_count(getattr(spec, name)):
            wrong(name, getattr(spec, name), "expected a whole number, 1 or more")
    if not is_count(spec.servers):
        wrong("servers", spec.servers, "expected a whole number, 1 or more")
    counted = spec.clients is not None or spec.peers is not None
    if counted and spec.roles:
        wrong("roles", ", ".join(spec.roles), "is not used with clients or peers, which say the roles")
    if not counted and not spec.roles:
        wrong("roles", "none", "expected who is what, such as {server: [n1], client: {rule: all}}")
    if not problems and not 1 <= (n := _vertices(spec)) <= MOST:
        wrong("generator", f"{n} vertices", f"expected at most {MOST}")
    elif not problems:
        k, m = sizes.get("neighbours", 0), sizes.get("attach", 0)
        if spec.generator == "watts_strogatz" and (k >= n or k % 2):
            wrong("neighbours", k, f"expected an even number below the {n} vertices")
        elif spec.generator == "barabasi_albert" and m >= n:
            wrong("attach", m, f"expected less than the {n} vertices")
        near = n * min(1.0, math.pi * sizes.get("radius", 0) ** 2)      # of a random geometric graph: linked with each
        links = n * (near + k) / 2 + n * m
        if links > _MOST_LINKS:
            wrong("generator", f"{links:,.0f} links", f"expected at most {_MOST_LINKS:,}")
    return problems


# ---- the graphs, in the unit square ----

Drawn = tuple[nx.Graph, list[Point]]
Sizes = Mapping[str, int | float]


def _circle(n: int) -> list[Point]:
    angles = (2 * math.pi * i / n for i in range(n))
    return [(0.5 + 0.5 * math.cos(a), 0.5 + 0.5 * math.sin(a)) for a in angles]


def _ring(n: int, sizes: Sizes, seed: int) -> Drawn:
    return nx.cycle_graph(n), _circle(n)


def _tree(n: int, sizes: Sizes, seed: int) -> Drawn:
    """Filled level by level; the levels are circles around the root."""
    branching = int(sizes["branching"])
    levels: list[int] = []
    first = 0
    while first < n:
        width = min(branching ** len(levels), n - first)
        levels.append(width)
        first += width
    points: list[Point] = []
    for level, width in enumerate(levels):
        radius, full = 0.5 * level / max(len(levels) - 1, 1), branching ** level
        angles = (2 * math.pi * (i + 0.5) / full for i in range(width))
        points += [(0.5 + radius * math.cos(a), 0.5 + radius * math.sin(a)) for a in angles]
    return nx.full_rary_tree(branching, n), points


def _grid(n: int, sizes: Sizes, seed: int) -> Drawn:
    rows, columns = int(sizes["rows"]), int(sizes["columns"])
    step = 1 / max(rows - 1, columns - 1, 1)
    graph = nx.convert_node_labels_to_integers(nx.grid_2d_graph(rows, columns))
    return graph, [(column * step, row * step) for row in range(rows) for column in range(columns)]


def _random_geometric(n: int, sizes: Sizes, seed: int) -> Drawn:
    radius = float(sizes["radius"])
    placed: list[Point] = []

    def draw(number: int) -> nx.Graph | None:
        points = generator(seed, "topology", "random_geometric", number).random((n, 2))
        pairs = near_pairs(points, radius)
        if n > 1 and not np.bincount(pairs.ravel(), minlength=n).all():
            return None                     # a vertex without a link: nearly always, where the radius is too small
        placed[:] = [(x, y) for x, y in points.tolist()]
        order = sorted(range(n), key=lambda v: (math.dist(placed[v], (0.5, 0.5)), placed[v]))
        placed[:] = [placed[v] for v in order]
        graph = nx.empty_graph(n)
        graph.add_edges_from(_ascending(np.argsort(order)[pairs]).tolist())
        return graph

    return _connected(n, draw, "radius", f"{radius:g}", "a larger radius"), placed


def near_pairs(points: np.ndarray, radius: float) -> np.ndarray:
    """(m, 2) integers: the pairs of `points`, (n, 2) in the unit square, that lie at most `radius` apart, ascending.

    `networkx.random_geometric_graph` finds the same, but needs SciPy for it or looks at all n squared pairs.
    """
    # The square is cut into cells a little wider than the radius, so that near points lie in one cell or in two that
    # touch. `keys` numbers the cells row by row; a free column at the edge of each row keeps rows apart.
    n = len(points)
    cells = (points // max(radius * (1 + 1e-9), n ** -0.5)).astype(np.int64)
    width = int(cells.max()) + 3
    keys = cells[:, 0] * width + cells[:, 1]
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    found = []
    for step in (0, 1, width - 1, width, width + 1):        # the cell itself, and of its 8 neighbours those behind it
        first = np.arange(1, n + 1) if step == 0 else np.searchsorted(keys, keys + step)
        count = np.searchsorted(keys, keys + step, "right") - first
        one = np.repeat(np.arange(n), count)
        other = np.arange(len(one)) - np.repeat(np.cumsum(count) - count - first, count)
        pairs = np.stack([order[one], order[other]], axis=1)
        apart = points[pairs[:, 0]] - points[pairs[:, 1]]
        found.append(pairs[(apart * apart).sum(axis=1) <= radius ** 2])
    return _ascending(np.concatenate(found))


def _ascending(pairs: np.ndarray) -> np.ndarray:
    """(m, 2): each pair in ascending order, and the pairs among each other."""
    pairs = np.sort(pairs, axis=1)
    return pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]


def _watts_strogatz(n: int, sizes: Sizes, seed: int) -> Drawn:
    k, p = int(sizes["neighbours"]), float(sizes["rewire"])

    def draw(number: int) -> nx.Graph:
        return nx.watts_strogatz_graph(n, k, p, seed=key64(seed, "topology", "watts_strogatz", number))

    return _connected(n, draw, "neighbours", str(k), "more neighbours"), _circle(n)


def _barabasi_albert(n: int, sizes: Sizes, seed: int) -> Drawn:
    graph = nx.barabasi_albert_graph(n, int(sizes["attach"]), seed=key64(seed, "topology", "barabasi_albert", 0))
    points = generator(seed, "topology", "barabasi_albert").random((n, 2)).tolist()
    return graph, [(x, y) for x, y in points]


def _connected(n: int, draw: Callable[[int], nx.Graph | None], key: str, value: str, better: str) -> nx.Graph:
    """The first connected graph of those that `draw` gives by their numbers; None: one that is not connected."""
    attempts = max(1, min(_ATTEMPTS, _MOST_DRAWN // n))
    for number in range(attempts):
        graph = draw(number)
        if graph is not None and nx.is_connected(graph):
            return graph
    raise TopologyError("topology", [Problem(
        f"topology.{key}", value, f"gave no connected graph in {attempts} draws: expected {better}")])


_DRAW = {"ring": _ring, "tree": _tree, "grid": _grid, "random_geometric": _random_geometric,
         "watts_strogatz": _watts_strogatz, "barabasi_albert": _barabasi_albert}
