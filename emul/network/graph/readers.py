"""Graph files, by their ending: GraphML, GML, node-link JSON, edge lists and CSV, read strictly.

Nothing is guessed and nothing of a file is executed: an edge that names an unknown vertex, a vertex given twice, a
value of another type than declared, a DTD (and with it every entity) is an error with its line. networkx reads GML;
the other formats are read here, since networkx makes up the vertices that GraphML and JSON edges name, keeps no
lines, and passes on what its parsers raise. The graphs are networkx's; edges remember their line as `LINE`.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import networkx as nx

from emul.base import tables
from emul.base.errors import NetworkError, Problem, ScenarioError
from emul.base.files import MOST_BYTES, read_limited
from emul.base.plain import PlainDict
from emul.network.graph.graphml import graphml
from emul.network.graph.reading import LINE, Reading, new_graph, text_of
from emul.network.graph.topology import TopologyError, shortened, unknown

_NUMBER = re.compile(r"[+-]?(\d{1,18}|(\d{1,30}\.\d{0,30}|\.\d{1,30}|\d{1,30}(?=[eE]))([eE][+-]?\d{1,3})?)", re.ASCII)


def read_graph(path: str | Path) -> nx.Graph:
    """The graph in a file. Raises NetworkError naming the file, and what in it is wrong, with lines where there are.

    Parallel edges are kept; the graph is directed if the file says so (edge lists and CSV never do).
    """
    path = Path(path)
    read = FORMATS.get(path.suffix.lower())
    if read is None:
        raise NetworkError(f'{path}: "{path.suffix}": expected one of {", ".join(FORMATS)} at the end of the name')
    try:
        raw = read_limited(path, MOST_BYTES)
    except OSError as error:
        raise NetworkError(f"{path}: {error.strerror or error}: expected a {_NAMES[read]} file") from error
    graph, problems = read(raw)
    if problems:
        raise TopologyError(str(path), shortened(problems))
    return graph


# ---- GML ----

def _gml(raw: bytes) -> Reading:
    text, problems = text_of(raw, "GML")
    if problems:
        return new_graph(False), problems
    try:
        return nx.parse_gml(text, label="id"), []
    except Exception as error:      # networkx passes on what its parser and its conversions raise: any of six types
        said = " ".join((str(error) or type(error).__name__).split())[:200]
        at = re.search(r"at \((\d+), \d+\)|line (\d+)", said)
        line = int(at[1] or at[2]) if at else None
        return new_graph(False), [Problem("", "", f"cannot be read: {said}: expected a GML file", line)]


# ---- node-link JSON ----

def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for i, (key, _) in enumerate(pairs) if any(key == k for k, _ in pairs[:i]))
        raise ValueError(f"the key {twice[:40]!r} is there twice in one mapping")
    return found


def _no_constant(word: str) -> object:
    raise ValueError(f"{word} is no number of JSON")


def _json(raw: bytes) -> Reading:
    text, problems = text_of(raw, "JSON")
    if problems:
        return new_graph(False), problems
    try:
        tree = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        return new_graph(False), [Problem("", "", f"is no JSON: {error.msg}: expected a node-link file", error.lineno)]
    except (ValueError, RecursionError) as error:
        return new_graph(False), [Problem("", "", f"is no JSON: {str(error)[:100]}: expected a node-link file")]
    return _NodeLink().read(tree)


class _NodeLink:
    """{"directed": false, "nodes": [{"id": ...}], "links" or "edges": [{"source": ..., "target": ...}]}."""

    def __init__(self) -> None:
        self._problems: list[Problem] = []

    def _problem(self, place: str, found: object, expected: str) -> None:
        shown = json.dumps(found, ensure_ascii=False) if not isinstance(found, str) else found
        self._problems.append(Problem(place, shown[:40], expected))

    def read(self, tree: object) -> Reading:
        if not isinstance(tree, dict):
            self._problem("", type(tree).__name__, 'expected a mapping with the keys "nodes" and "links" or "edges"')
            return new_graph(False), self._problems
        where = [key for key in ("links", "edges") if key in tree]
        if len(where) != 1:
            self._problem("", " and ".join(where) or "neither", 'expected one of "links" and "edges"')
        for flag in ("directed", "multigraph"):
            if not isinstance(tree.get(flag, False), bool):
                self._problem(flag, tree[flag], "expected true or false")
        graph = new_graph(tree.get("directed") is True)
        for place, data in self._entries(tree, "nodes"):
            self._node(graph, place, data)
        for key in where:
            for place, data in self._entries(tree, key):
                self._edge(graph, place, data)
        return graph, self._problems

    def _entries(self, tree: dict[str, object], key: str) -> Iterable[tuple[str, dict[str, object]]]:
        entries = tree.get(key)
        if not isinstance(entries, list):
            self._problem(key, "missing" if entries is None else entries, "expected a list of mappings")
            return
        for i, entry in enumerate(entries):
            if isinstance(entry, dict):
                yield f"{key}[{i}]", entry
            else:
                self._problem(f"{key}[{i}]", entry, "expected a mapping")

    def _node(self, graph: nx.Graph, place: str, data: dict[str, object]) -> None:
        key = data.get("id")
        if not _is_id(key):
            self._problem(f"{place}.id", "missing" if key is None else key, "expected text or a whole number")
        elif key in graph:
            self._problem(f"{place}.id", key, "is there twice: expected every id once")
        else:
            graph.add_node(key)
            graph.nodes[key].update({k: v for k, v in data.items() if k != "id"})

    def _edge(self, graph: nx.Graph, place: str, data: dict[str, object]) -> None:
        known = True
        for end in ("source", "target"):
            key = data.get(end)
            if not _is_id(key) or key not in graph:
                known = False
                self._problem(f"{place}.{end}", "missing" if key is None else key,
                              unknown(str(key), map(str, graph), "id of a node"))
        if known:
            key = graph.add_edge(data["source"], data["target"])
            graph.edges[data["source"], data["target"], key].update(
                {k: v for k, v in data.items() if k not in ("source", "target", "key")})


def _is_id(key: object) -> bool:
    return isinstance(key, str | int) and not isinstance(key, bool)


# ---- edge lists and CSV ----

def _edge_list(raw: bytes) -> Reading:
    """Lines `a b`, `a b latency="20 ms" bandwidth=1Gbit/s` or networkx's `a b {'weight': 1}`; # begins a comment."""
    text, problems = text_of(raw, "edge list")
    graph = new_graph(False)
    for number, line in enumerate(text.splitlines(), 1):
        try:
            edge = _edge_of(line)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
            said = str(error).partition("\n")[0][:100]
            expected = 'expected two vertices, then nothing or key=value, such as: a b latency="20 ms"'
            problems.append(Problem("", repr(line.strip()[:40]), f"{said}: {expected}", number))
            continue
        if edge is not None:
            graph.add_edge(edge[0], edge[1])
            graph.edges[edge[0], edge[1], graph.number_of_edges(edge[0], edge[1]) - 1].update(
                {**edge[2], LINE: number})
    return graph, problems


def _edge_of(line: str) -> tuple[str, str, dict[str, object]] | None:
    parts = line.split(maxsplit=2)
    if not parts or parts[0].startswith("#"):
        return None
    if len(parts) > 2 and parts[2].startswith("{"):
        if len(parts[2]) > 10_000:
            raise ValueError("more than 10,000 characters")
        data = ast.literal_eval(parts[2])
        if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
            raise ValueError("is no mapping of names")
        return parts[0], parts[1], data
    words = shlex.split(line, comments=True)
    pairs = [word.split("=", 1) for word in words[2:]]
    if len(words) < 2 or not all(len(pair) == 2 and pair[0] for pair in pairs):
        raise ValueError("is no edge")
    return words[0], words[1], {name: _plain_value(value) for name, value in pairs}


def _csv(raw: bytes) -> Reading:
    """A table with the columns `source` and `target`; the others are attributes, an empty cell is none."""
    text, problems = text_of(raw, "CSV")
    graph = new_graph(False)
    try:
        table = tables.parse(text, Path())
    except ScenarioError as error:
        return graph, [*problems, *error.problems]
    head = [name or f"column {i}" for i, name in enumerate(table.header, 1)]    # pandas leaves that of its index empty
    if not {"source", "target"} <= set(head) or len(set(head)) < len(head):
        problems.append(Problem("", ",".join(head)[:40], "expected a first line such as source,target,latency",
                                table.header_line or 1))
        return graph, problems
    for line, cells in table.rows:
        data: PlainDict = dict(zip(head, cells, strict=True))
        ends = data.pop("source"), data.pop("target")
        if not all(ends):
            problems.append(Problem("", ",".join(cells)[:40], "expected names of source and target", line))
            continue
        key = graph.add_edge(*ends)
        graph.edges[(*ends, key)].update({name: _plain_value(cell) for name, cell in data.items() if cell})
        graph.edges[(*ends, key)][LINE] = line
    return graph, problems


def _plain_value(text: str) -> Any:
    """A number where the text is one: "5" and "5e-3", but not "5 ms"."""
    if not _NUMBER.fullmatch(text):
        return text
    return int(text) if re.fullmatch(r"[+-]?\d+", text, re.ASCII) else float(text)


Reader = Callable[[bytes], Reading]

FORMATS: dict[str, Reader] = {".graphml": graphml, ".xml": graphml, ".gml": _gml, ".json": _json,
                              ".edgelist": _edge_list, ".edges": _edge_list, ".txt": _edge_list, ".csv": _csv}
_NAMES: dict[Reader, str] = {graphml: "GraphML", _gml: "GML", _json: "node-link JSON", _edge_list: "edge list",
                             _csv: "CSV"}
