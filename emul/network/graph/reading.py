"""The result of all readers of graph files: a graph of networkx and what is wrong with the file."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from statistics import mean, median
from typing import Any

import networkx as nx

from emul.base.errors import Problem

# Attributes of edges: the line in the file, or the place where there are no lines, and the vertex that is written
# first. networkx does not keep the direction of an undirected edge, and the two rows a,b and b,a of a table are two
# measurements.
LINE, PLACE, FIRST = "__line__", "__place__", "__first__"
OF_READERS = (LINE, PLACE, FIRST)

_NUMBER = re.compile(r"[+-]?(\d{1,18}|(\d{1,30}\.\d{0,30}|\.\d{1,30}|\d{1,30}(?=[eE]))([eE][+-]?\d{1,3})?)", re.ASCII)

Statistic = Callable[[list[Any]], Any]
STATISTICS: dict[str, Statistic] = {       # topology.repeated
    "mean": mean, "median": median, "first": lambda values: values[0]}

_ENDS = (("source", "target"), ("from", "to"), ("src", "dst"), ("source", "destination"), ("origin", "destination"),
         ("src", "dest"), ("sending", "receiving"), ("sender", "receiver"))
_LETTERS = (("u", "v"), ("a", "b"), ("#1", "#2"), ("#a", "#b"))
_OF_WHAT = r"(?:node|vertex|site|region|zone|city|host|endpoint|router|id|name|ip)"

Reading = tuple[nx.Graph, list[Problem]]


def new_graph(directed: bool, multigraph: bool = False) -> nx.Graph:
    """Parallel edges are kept. multigraph: the file says that they are several cables, and not one told twice."""
    return (nx.MultiDiGraph if directed else nx.MultiGraph)(multigraph=multigraph)


def text_of(raw: bytes, what: str) -> tuple[str, list[Problem]]:
    """The text of a file that should be one of `what`, and what is wrong with it."""
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "", [Problem("", "byte 0", f"is no UTF-8 but UTF-16, save it as UTF-8: expected a {what} file")]
    try:
        return raw.decode("utf-8-sig"), []
    except UnicodeDecodeError as error:
        return "", [Problem("", f"byte {error.start}", f"is no UTF-8: expected a {what} file")]


def add_edge(graph: nx.Graph, source: object, target: object, data: dict[str, object], line: int | str) -> None:
    """One edge more, whatever is there between the two. line: or the place, in a file that is no lines."""
    key = graph.add_edge(source, target)
    graph.edges[source, target, key].update(
        {**data, FIRST: source, LINE if isinstance(line, int) else PLACE: line})


def plain_value(text: str) -> Any:
    """A number where the text is one: "5" and "5e-3", but not "5 ms"."""
    if not _NUMBER.fullmatch(text):
        return text
    return int(text) if re.fullmatch(r"[+-]?\d+", text, re.ASCII) else float(text)


def ends_of(header: Sequence[str], letters: bool = True) -> tuple[int, int] | None:
    """The columns of the two ends of an edge by their names; None: there are none. letters: also `u` and `v`, `a` and
    `b`, `node1` and `node2`, which may be names of vertices where the header of a matrix has such.

    >>> ends_of(["from_region", "to_region", "ms"]), ends_of(["ms", "node1", "node2"]), ends_of(["a", "rtt"])
    ((0, 1), (1, 2), None)
    """
    names = [name.strip().lower() for name in header]
    plain = [re.sub(f"(?<=.)[ _-]{_OF_WHAT}$", "", name) for name in names]
    numbered = [re.sub(f"^{_OF_WHAT}[ _-]?(?=[12ab]$)", "#", name) for name in names]
    return next(((words.index(one), words.index(other)) for words, pairs in (
        (names, _ENDS), (plain, _ENDS), *([(numbered, _LETTERS)] if letters else [])) for one, other in pairs
                 if words.count(one) == words.count(other) == 1), None)
