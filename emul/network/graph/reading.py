"""The result of all readers of graph files: a graph of networkx and what is wrong with the file."""

from __future__ import annotations

import networkx as nx

from emul.base.errors import Problem

LINE = "__line__"               # attribute of edges: where it stands in the file

Reading = tuple[nx.Graph, list[Problem]]


def new_graph(directed: bool) -> nx.Graph:
    """Parallel edges are kept."""
    return nx.MultiDiGraph() if directed else nx.MultiGraph()


def text_of(raw: bytes, what: str) -> tuple[str, list[Problem]]:
    """The text of a file that should be one of `what`, and what is wrong with it."""
    try:
        return raw.decode("utf-8-sig"), []
    except UnicodeDecodeError as error:
        return "", [Problem("", f"byte {error.start}", f"is no UTF-8: expected a {what} file")]
