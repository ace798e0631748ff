"""The map of a network: where its vertices stand and what its links carried.

Positions: those of the topology's file or generator where it has them; a circle around the servers for stars and
meshes; a spring layout with a fixed seed otherwise. Above `DRAWN` vertices only hubs are drawn one by one, the
others by group.
"""

from __future__ import annotations

from dataclasses import dataclass

import networkx as nx
import numpy as np
import pandas as pd

from emul.base.errors import NetworkError
from emul.base.plain import PlainDict
from emul.network.graph.generators import shape
from emul.network.graph.geo import Point, Positions, positions
from emul.network.graph.readers import read_graph
from emul.network.graph.topology import SHAPES, STARS, RoleRule, TopologySpec
from emul.record.journal import RecordError
from emul.record.side_tables import CONTACT_COLUMNS, CONTACTS, GLOBE, PLANE, POSITIONS
from emul.record.tables import read_table
from emul.report.data import RunData, links

RELAY = "relay"         # the role of vertices that host no node
DRAWN = 200             # vertices, at most, that are drawn one by one
NAMED = 60              # vertices, at most, that are all labelled
HUBS = 12
MATRIX = 60             # vertices, at most, that a matrix of links has
CROWDED = 6             # directed links a vertex, above which lines cross all over the map
_LABELS = 30            # that are labelled where not all are
EDGES = 1200            # links, at most, that are drawn: those with the most bytes
_APART = 0.012          # of the map's width, between the two directions of a link
_SPRING_SEED, _SPRING_STEPS = 1, 200
_SPIRAL = 0.025         # of the map's width, between vertices at one place


@dataclass(frozen=True)
class Map:
    """The data that a map is drawn from.

    vertices: name, x, y, role, label, size (how many it stands for). edges: from, to, x, y, x2, y2, bytes, copies,
    lost, loss. text: how the positions came about and what was left out. aspect: height over width.
    """

    vertices: pd.DataFrame
    edges: pd.DataFrame
    text: str
    aspect: float


def network_map(run: RunData) -> Map:
    """The map of a run's network with what its links carried."""
    found = links(run)
    roles = np.array([RELAY] * len(run.vertices), dtype=object)
    roles[list(run.header["vertices"])] = run.roles
    if len(run.vertices) > DRAWN:
        return _grouped(run, found, roles)
    graph, layout, how = _positions(run, found, roles)
    named = _named(found, len(run.vertices))
    vertices = pd.DataFrame({"name": run.vertices, "x": layout[:, 0], "y": layout[:, 1], "role": roles,
                             "size": 1, "label": [n if named[v] else "" for v, n in enumerate(run.vertices)]})
    carried = set(zip(found["vertex"].tolist(), found["next"].tolist(), strict=True))
    quiet = [(u, v) for u, v in graph.edges if (u, v) not in carried and (v, u) not in carried]
    text = how + (f" {len(quiet):,} links carried nothing." if quiet else "")
    if len(found) > EDGES:
        text += f" Of {len(found):,} links that carried something the {EDGES:,} with the most bytes are drawn."
        found = found.nlargest(EDGES, "bytes", keep="first")
    quiet = quiet[:EDGES]
    rest = pd.DataFrame({"vertex": [u for u, _ in quiet], "next": [v for _, v in quiet], "bytes": 0, "copies": 0,
                         "lost": 0})
    edges = pd.concat([rest, found], ignore_index=True) if quiet else found
    return Map(vertices, _lines(edges, layout, run.vertices), text, _aspect(layout))


def crowded(found: Map) -> bool:
    """True if lines cross so often that a matrix says more: each vertex with more than a few others."""
    return len(found.vertices) <= MATRIX and len(found.edges) > CROWDED * len(found.vertices)


def _named(found: pd.DataFrame, n: int) -> np.ndarray:
    """The vertices that are labelled: all if they are few, else those with the most bytes."""
    if n <= NAMED:
        return np.ones(n, bool)
    load = np.zeros(n)
    np.add.at(load, found["vertex"].to_numpy(), found["bytes"].to_numpy(float))
    np.add.at(load, found["next"].to_numpy(), found["bytes"].to_numpy(float))
    named = np.zeros(n, bool)
    named[np.lexsort((np.arange(n), -load))[:_LABELS]] = True
    return named


def _graph(run: RunData, found: pd.DataFrame) -> tuple[nx.Graph, list[Point | None], bool]:
    """Vertices by number and all links known; where the vertices stand; whether that is a plane and no globe.

    A topology's file is read again where it still lies where it lay. Its vertices come first in a network, in its
    order; hosts that hang on them come after.
    """
    n = len(run.vertices)
    graph = nx.Graph()
    graph.add_nodes_from(range(n))
    points: list[Point | None] = [None] * n
    plane = False
    try:
        given, where = _given(run)
    except NetworkError:                # another file than the run's: what its links carried is drawn all the same
        given, where = nx.Graph(), Positions(())
    if 0 < len(given) <= n:
        number = {key: i for i, key in enumerate(given.nodes)}
        graph.add_edges_from((number[u], number[v]) for u, v, *_ in given.edges() if u != v)
        points[:len(given)], plane = where.points, where.plane
    graph.add_edges_from(zip(found["vertex"].tolist(), found["next"].tolist(), strict=True))
    return graph, points, plane


def _given(run: RunData) -> tuple[nx.Graph, Positions]:
    """The graph that the scenario names, without hosts; empty for stars, whose vertices have no places."""
    section = _section(run)
    if isinstance(file := section.get("file"), str):
        graph = read_graph(file)
        return graph, positions(graph, [""] * len(graph))[0]
    if section.get("generator") not in SHAPES:
        return nx.Graph(), Positions(())
    counts = {name: section[name] for name in ("clients", "servers", "peers") if name in section}
    sizes = {name: section[name] for name in ("nodes", *SHAPES[section["generator"]]) if name in section}
    roles = {} if counts else {"node": RoleRule("all")}     # roles do not move a vertex
    return shape(TopologySpec(section["generator"], **counts, sizes=sizes, roles=roles), int(run.header["seed"]))


def _section(run: RunData) -> PlainDict:
    section = run.scenario.get("topology")
    return section if isinstance(section, dict) else {}


def _positions(run: RunData, found: pd.DataFrame, roles: np.ndarray) -> tuple[nx.Graph, np.ndarray, str]:
    """The graph, (n, 2) places of its vertices, and how they came about."""
    graph, points, plane = _graph(run, found)
    stated = _stated(graph, points, plane)
    if stated is not None:
        return graph, stated, "Vertices stand where the topology says."
    if _section(run).get("generator") in STARS:
        return graph, around(roles), "Servers in the middle, the others around them."
    spread = nx.spring_layout(graph, seed=_SPRING_SEED, iterations=_SPRING_STEPS)
    layout = np.array([spread[v] for v in range(len(roles))], float).reshape(-1, 2)
    return graph, layout, "Positions have no meaning: neighbours are drawn near each other."


def _stated(graph: nx.Graph, points: list[Point | None], plane: bool) -> np.ndarray | None:
    """(n, 2), in one scale for both axes; None if a vertex has no place. Vertices at one place move apart a little."""
    known = {v: point for v, point in enumerate(points) if point is not None}
    for v in range(len(points)):                            # a host stands at the place that it hangs on
        if v not in known:
            near = next((u for u in sorted(graph[v]) if points[u] is not None), None)
            if near is None:
                return None
            known[v] = known[near]
    layout = np.array([known[v] for v in range(len(points))], float).reshape(-1, 2)
    if not plane:
        layout = layout[:, ::-1] * [np.cos(np.radians(layout[:, 0].mean())), 1.0]       # (longitude, latitude)
    width = max(float(np.ptp(layout, axis=0).max()), 1e-6)
    taken: dict[tuple[float, float], int] = {}
    for v, place in enumerate(layout.round(6).tolist()):
        again = taken[place[0], place[1]] = taken.get((place[0], place[1]), -1) + 1
        angle = 2.4 * again                                 # the golden angle: a spiral
        layout[v] += _SPIRAL * width * again ** 0.5 * np.array([np.cos(angle), np.sin(angle)])
    return layout


def around(roles: np.ndarray) -> np.ndarray:
    """Servers on a small circle, or in the middle; everybody else on a large one."""
    layout = np.zeros((len(roles), 2))
    inner = np.flatnonzero(roles == "server")
    outer = np.flatnonzero(roles != "server")
    for group, radius in ((inner, 0.0 if len(inner) == 1 else 0.28), (outer, 1.0)):
        angle = np.pi / 2 - 2 * np.pi * np.arange(len(group)) / max(len(group), 1)
        layout[group] = radius * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return layout


def _aspect(layout: np.ndarray) -> float:
    width, height = np.maximum(np.ptp(layout, axis=0), 1e-9) if len(layout) else (1.0, 1.0)
    return float(np.clip(height / width, 0.45, 1.0))


def _lines(edges: pd.DataFrame, layout: np.ndarray, names: list[str]) -> pd.DataFrame:
    """The links as lines, one a direction: what goes from u to v runs to the right of the line from u to v."""
    u, v = edges["vertex"].to_numpy(np.int64), edges["next"].to_numpy(np.int64)
    a, b = layout[u].reshape(-1, 2), layout[v].reshape(-1, 2)
    along = b - a
    length = np.maximum(np.hypot(along[:, 0], along[:, 1]), 1e-9)[:, None]
    width = max(float(np.ptp(layout, axis=0).max()), 1e-9) if len(layout) else 1.0
    shift = np.stack([along[:, 1], -along[:, 0]], axis=1) / length * width * _APART / 2
    a, b = a + shift, b + shift
    name = np.array(names, dtype=object)
    copies = edges["copies"].to_numpy(np.int64)
    return pd.DataFrame({
        "from": name[u], "to": name[v], "x": a[:, 0], "y": a[:, 1], "x2": b[:, 0], "y2": b[:, 1],
        "bytes": edges["bytes"].to_numpy(np.int64), "copies": copies, "lost": edges["lost"].to_numpy(np.int64),
        "loss": edges["lost"].to_numpy(np.int64) / np.maximum(copies, 1)})


def _grouped(run: RunData, found: pd.DataFrame, roles: np.ndarray) -> Map:
    """Hubs (servers, then the vertices with most bytes) one by one, the others by role and by the hub that they
    exchange most with."""
    n = len(run.vertices)
    load = np.zeros(n)
    u, v = found["vertex"].to_numpy(np.int64), found["next"].to_numpy(np.int64)
    size = found["bytes"].to_numpy(float)
    np.add.at(load, u, size)
    np.add.at(load, v, size)
    order = np.lexsort((np.arange(n), -load, roles != "server"))
    hubs = np.sort(order[:HUBS])
    hub_of = np.full(n, -1)
    hub_of[hubs] = np.arange(len(hubs))
    best = np.zeros(n)
    nearest = np.full(n, -1)
    for a, b in ((u, v), (v, u)):               # towards the hub, and from it
        touching = np.flatnonzero((hub_of[b] >= 0) & (hub_of[a] < 0))
        touching = touching[np.argsort(size[touching], kind="stable")]
        better = touching[size[touching] >= best[a[touching]]]
        best[a[better]], nearest[a[better]] = size[better], hub_of[b[better]]
    kinds = list(dict.fromkeys(roles.tolist()))
    role = np.array([kinds.index(r) for r in roles])
    key = np.where(hub_of >= 0, -1, role * (len(hubs) + 1) + nearest + 1)
    groups, place, counts = np.unique(key[key >= 0], return_inverse=True, return_counts=True)
    unit = np.array(hub_of)
    unit[key >= 0] = len(hubs) + place
    labels = [run.vertices[h] for h in hubs]
    unit_roles = [str(roles[h]) for h in hubs]
    for group, count in zip(groups.tolist(), counts.tolist(), strict=True):
        unit_roles.append(kinds[group // (len(hubs) + 1)])
        labels.append(f"{count:,} × {unit_roles[-1]}")
    merged = pd.DataFrame({"vertex": unit[u], "next": unit[v], "bytes": found["bytes"], "copies": found["copies"],
                           "lost": found["lost"]})
    inside = merged["vertex"] == merged["next"]
    edges = merged[~inside].groupby(["vertex", "next"], as_index=False).sum()
    graph = nx.Graph()
    graph.add_nodes_from(range(len(labels)))
    graph.add_edges_from(zip(edges["vertex"].tolist(), edges["next"].tolist(), strict=True))
    spread = nx.spring_layout(graph, seed=_SPRING_SEED, iterations=_SPRING_STEPS)
    layout = np.array([spread[i] for i in range(len(labels))], float)
    vertices = pd.DataFrame({"name": labels, "x": layout[:, 0], "y": layout[:, 1], "role": unit_roles,
                             "size": [1] * len(hubs) + counts.tolist(), "label": labels})
    text = (f"{n:,} vertices: {len(hubs)} hubs (servers, then those with the most bytes) are drawn one by one, the "
            "others by role and by the hub that they exchange most with. Positions have no meaning.")
    if inside.any():
        text += f" {int(merged.loc[inside, 'bytes'].sum()):,} bytes inside groups are not drawn."
    return Map(vertices, _lines(edges, layout, labels), text, _aspect(layout))


# --- a network that moves: contacts by the numbers of vertices, and places of vertices over time --------------------

def contacts_of(run: RunData) -> pd.DataFrame | None:
    """u, v (vertices), from_ns, to_ns (at most the end of the run) of the contacts, in the order of time; None: no link
    has any. Raises RecordError."""
    file = run.path / CONTACTS
    if not file.exists():
        return None
    table = read_table(file, CONTACT_COLUMNS).to_pandas()
    until = table["end_ns"].astype("Float64").fillna(float(run.end_ns)).clip(upper=run.end_ns)
    found = pd.DataFrame({
        "u": _numbers(run, table["source"], CONTACTS), "v": _numbers(run, table["destination"], CONTACTS),
        "from_ns": table["begin_ns"].astype("int64"), "to_ns": until.astype("int64")})
    return found[found["to_ns"] > found["from_ns"]].sort_values(["from_ns", "u", "v"], ignore_index=True)


@dataclass(frozen=True)
class Whereabouts:
    """The places of vertices over time: `rows` has vertex, t_ns, x, y; x to the right, y upwards. globe: degrees of
    longitude and latitude, in place of metres."""

    rows: pd.DataFrame
    globe: bool


def places_of(run: RunData) -> Whereabouts | None:
    """The places of `positions.parquet`, by vertex and time; None: the run left none. Raises RecordError."""
    file = run.path / POSITIONS
    if not file.exists():
        return None
    table = read_table(file, ["t_s", "vertex"], [*GLOBE, *PLANE]).to_pandas()
    globe = set(GLOBE) <= set(table)
    if not set(GLOBE if globe else PLANE) <= set(table):
        raise RecordError(f"{file}: expected the columns t_s, vertex, and {', '.join(PLANE)} or {', '.join(GLOBE)}")
    x, y = (table["lon"], table["lat"]) if globe else (table["x"], table["y"])
    found = pd.DataFrame({
        "vertex": _numbers(run, table["vertex"], POSITIONS), "t_ns": (table["t_s"] * 1e9).round().astype("int64"),
        "x": x.astype(float), "y": y.astype(float)})
    return Whereabouts(found.sort_values(["vertex", "t_ns"], kind="stable", ignore_index=True), globe)


def _numbers(run: RunData, names: pd.Series, file: str) -> np.ndarray:
    """Names of vertices as numbers. Raises RecordError: one that the run has not."""
    number = pd.Series({name: v for v, name in enumerate(run.vertices)}, dtype="int64")
    found = names.map(number)
    if found.isna().any():
        raise RecordError(f"{run.path / file}: the run has no vertex {names[found.isna()].iloc[0]}")
    return found.to_numpy(np.int64)
