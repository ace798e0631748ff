"""Writes the generated topologies of this folder: `python topologies/generate.py [FOLDER]`.

Each lies in a square of 1,000 km in the middle of Europe; latencies are those of light in fibre. The first vertex is
the server, all others are clients, so that a scenario needs no more than the file.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

from emul.base.units import format_bandwidth, format_duration
from emul.network import Distance, RoleRule, TopologySpec
from emul.network.graph.generators import shape

SEED = 2026
BANDWIDTH_BPS = 10 * 10**9
CENTRE = (50.0, 10.0)                       # latitude, longitude
_KM_A_DEGREE = 111.195

SPECS = {
    "tree-40": TopologySpec("tree", clients=39, sizes={"branching": 3}),
    "grid-36": TopologySpec("grid", roles={"client": RoleRule("all")}, sizes={"rows": 6, "columns": 6}),
    "random-geometric-60": TopologySpec("random_geometric", clients=59, sizes={"radius": 0.22}),
    "small-world-50": TopologySpec("watts_strogatz", clients=49, sizes={"neighbours": 4, "rewire": 0.1}),
    "scale-free-100": TopologySpec("barabasi_albert", clients=99, sizes={"attach": 2}),
}


def node_link(name: str) -> dict[str, object]:
    """One topology as networkx's node-link data."""
    graph, places = shape(SPECS[name], SEED)
    extent = 1000.0
    nodes = []
    for v in graph:
        x, y = places.points[v] or (0.0, 0.0)
        latitude = CENTRE[0] + (y - extent / 2) / _KM_A_DEGREE
        longitude = CENTRE[1] + (x - extent / 2) / (_KM_A_DEGREE * math.cos(math.radians(CENTRE[0])))
        nodes.append({"id": v, "label": f"n{v + 1}", "role": "client" if v else "server",
                      "Latitude": round(latitude, 4), "Longitude": round(longitude, 4)})
    edges = []
    for u, v in sorted(graph.edges):
        km = places.km(u, v) or 0.0
        latency = round(Distance().latency_ns(km), -3)          # whole microseconds
        edges.append({"source": u, "target": v, "dist": round(km, 1), "latency": format_duration(latency),
                      "bandwidth": format_bandwidth(BANDWIDTH_BPS)})
    return {"directed": False, "multigraph": False, "graph": {"name": name}, "nodes": nodes, "edges": edges}


def text(name: str) -> str:
    """The file: a line for each vertex and each edge."""
    data = node_link(name)
    lines = [f' "{key}": {json.dumps(data[key])}' for key in ("directed", "multigraph", "graph")]
    for key in ("nodes", "edges"):
        entries = data[key]
        assert isinstance(entries, list)
        lines.append(f' "{key}": [\n' + ",\n".join(f"  {json.dumps(entry)}" for entry in entries) + "\n ]")
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    for name in SPECS:
        (folder / f"{name}.json").write_text(text(name), encoding="utf-8")
