"""A topology whose nodes share one link."""

from __future__ import annotations

import networkx as nx

from emul.network import TopologySpec


def dumbbell(clients: int = 3) -> TopologySpec:
    """client* - left - right - server: the link in the middle is what they share."""
    graph = nx.Graph()
    graph.add_node("server", role="server")
    graph.add_edge("left", "right")
    graph.add_edge("right", "server")
    for i in range(1, clients + 1):
        graph.add_node(f"client{i}", role="client")
        graph.add_edge(f"client{i}", "left")
    return TopologySpec(graph=graph)
