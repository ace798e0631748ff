"""Graph files, by their ending: GraphML, GML, node-link JSON, edge lists and CSV, read strictly.

Nothing is guessed and nothing of a file is executed: an edge that names an unknown vertex, a vertex given twice, a
value of another type than declared, a DTD (and with it every entity) is an error with its line. networkx reads GML;
the other formats are read here, since networkx makes up the vertices that GraphML and JSON edges name, keeps no
lines, and passes on what its parsers raise. The graphs are networkx's; edges remember their line as `LINE`.
"""

from __future__ import annotations

import ast
import csv
import io
import json
import re
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from xml.parsers import expat

import networkx as nx

from emul.base.errors import NetworkError, Problem
from emul.network.graph.topology import TopologyError, shortened, unknown

LINE = "__line__"               # attribute of edges: where it stands in the file
MOST_BYTES = 64 * 2**20
_DEPTH = 100                    # of elements of XML; real files nest 5
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
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:          # ValueError: a name with a null byte
        said = getattr(error, "strerror", None) or str(error)
        raise NetworkError(f"{path}: {said}: expected a {_NAMES[read]} file") from error
    if len(raw) > MOST_BYTES:
        raise NetworkError(f"{path}: more than {MOST_BYTES >> 20} MiB: expected a smaller file")
    graph, problems = read(raw)
    if problems:
        raise TopologyError(str(path), shortened(problems))
    return graph


def _new(directed: bool) -> nx.Graph:
    return nx.MultiDiGraph() if directed else nx.MultiGraph()


Reading = tuple[nx.Graph, list[Problem]]


def _text(raw: bytes, what: str) -> tuple[str, list[Problem]]:
    try:
        return raw.decode("utf-8-sig"), []
    except UnicodeDecodeError as error:
        return "", [Problem("", f"byte {error.start}", f"is no UTF-8: expected a {what} file")]


# ---- GraphML ----

class _Stop(Exception):
    """Ends parsing: what is wrong is in the problems."""


_TYPES: dict[str, Callable[[str], Any]] = {
    "string": str, "int": int, "long": int, "float": float, "double": float,
    "boolean": lambda text: {"true": True, "1": True, "false": False, "0": False}[text.lower()]}


class _GraphML:
    """Builds the graph while expat reads. yEd's labels (`NodeLabel`) count as `label` where there is no other."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.nodes: dict[str, dict[str, Any]] = {}
        self.edges: list[tuple[str, str, dict[str, Any]]] = []
        self.directed = False
        self._keys: dict[str, tuple[str, str, str]] = {}        # id -> (attribute, type, domain)
        self._defaults: list[tuple[str, str, Any]] = []         # (domain, attribute, value)
        self._stack: list[str] = []
        self._graphs = 0
        self._data: dict[str, Any] | None = None                # of the node or edge that is open
        self._place = ""
        self._key = ""
        self._text: list[str] = []
        self._parser = parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartDoctypeDeclHandler = self._doctype
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text.append

    def parse(self, raw: bytes) -> None:
        try:
            self._parser.Parse(raw, True)
        except _Stop:
            return
        except expat.ExpatError as error:
            said = expat.ErrorString(error.code)
            self._problem("", "", f"is no XML: {said}: expected a GraphML file", error.lineno)
            return
        except (ValueError, LookupError) as error:              # what the declared encoding is not
            self._problem("", "", f"is no readable XML: {error}: expected a GraphML file", 1)
            return
        if not self._graphs:
            self._problem("", "no graph", "expected one graph element", 1)

    def _problem(self, place: str, found: str, expected: str, line: int | None = None) -> None:
        self.problems.append(Problem(place, found, expected, line or self._parser.CurrentLineNumber))

    def _doctype(self, *_: Any) -> None:
        self._problem("", "DOCTYPE", "is refused: expected GraphML without a DTD, which could define entities")
        raise _Stop

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        name = name.rpartition(":")[2]
        if not self._stack and name != "graphml":
            self._problem("", f"<{name}>", "expected a GraphML file: its first element is graphml")
            raise _Stop
        self._stack.append(name)
        if len(self._stack) > _DEPTH:
            self._problem("", "", f"is nested more than {_DEPTH} deep")
            raise _Stop
        begin = getattr(self, f"_start_{name}", None)
        if begin is not None:
            begin(attributes)

    def _start_key(self, a: dict[str, str]) -> None:
        kind = a.get("attr.type", "string")
        if kind not in _TYPES:
            self._problem(f"key {a.get('id')}", repr(kind), unknown(kind, _TYPES, "type"))
            kind = "string"
        self._keys[a.get("id", "")] = a.get("attr.name", ""), kind, a.get("for", "all")
        self._key = a.get("id", "")

    def _start_default(self, a: dict[str, str]) -> None:
        self._text.clear()

    def _start_graph(self, a: dict[str, str]) -> None:
        self._graphs += 1
        if self._graphs > 1:
            self._problem("graph", a.get("id", ""), "expected one graph, without others beside it or in its nodes")
            raise _Stop
        self.directed = a.get("edgedefault") == "directed"

    def _start_node(self, a: dict[str, str]) -> None:
        key = a.get("id")
        self._place, self._data = f"node {key}", {}
        if key is None:
            self._problem("node", "no id", "expected an id")
        elif key in self.nodes:
            self._problem(self._place, "is there twice", "expected every id once")
        else:
            self.nodes[key] = self._data

    def _start_edge(self, a: dict[str, str]) -> None:
        source, target = a.get("source"), a.get("target")
        self._place = f"edge {source}->{target}"
        self._data = {LINE: self._parser.CurrentLineNumber}
        if "id" in a:
            self._data["id"] = a["id"]
        if source is None or target is None:
            self._problem(self._place, "no source" if source is None else "no target", "expected source and target")
            return
        if a.get("directed", str(self.directed).lower()) != str(self.directed).lower():
            kind = "directed" if self.directed else "undirected"
            self._problem(self._place, f'directed="{a["directed"]}"', f"expected all edges {kind}, as edgedefault says")
        self.edges.append((source, target, self._data))

    def _start_hyperedge(self, a: dict[str, str]) -> None:
        self._problem("hyperedge", a.get("id", ""), "is not supported: expected edges of two ends")

    def _start_data(self, a: dict[str, str]) -> None:
        self._key = a.get("key", "")
        if self._key not in self._keys:
            self._problem(f"{self._place or 'graph'}, data", repr(self._key), unknown(self._key, self._keys, "key"))
        self._text.clear()

    def _start_NodeLabel(self, a: dict[str, str]) -> None:
        self._text.clear()

    def _end(self, name: str) -> None:
        name = self._stack.pop()
        if name == "data" and self._data is not None and self._key in self._keys:
            attribute, kind, _ = self._keys[self._key]
            if attribute:
                self._set(self._data, attribute, kind)
        elif name == "NodeLabel" and self._data is not None:
            self._data.setdefault("label", "".join(self._text).strip())
        elif name == "default" and self._stack[-1] == "key":
            attribute, kind, domain = self._keys[self._key]
            default: dict[str, Any] = {}
            self._place = "key"
            self._set(default, attribute, kind)
            self._defaults += [(domain, attribute, value) for value in default.values()]
        elif name in ("node", "edge"):
            self._finish(name)

    def _set(self, data: dict[str, Any], attribute: str, kind: str) -> None:
        text = "".join(self._text)
        text = text if kind == "string" else text.strip()
        try:
            data[attribute] = _TYPES[kind](text)
        except (ValueError, KeyError):
            self._problem(f"{self._place}, {attribute}", repr(text[:40]), f"expected the type {kind}, as declared")

    def _finish(self, name: str) -> None:
        if self._data is not None:
            for domain, attribute, value in self._defaults:
                if domain in (name, "all"):
                    self._data.setdefault(attribute, value)
        self._data, self._place = None, ""

    def graph(self) -> nx.Graph:
        graph = _new(self.directed)
        graph.add_nodes_from(self.nodes.items())
        for source, target, data in self.edges:
            for end in dict.fromkeys((source, target)):
                if end not in self.nodes:
                    self._problem(f"edge {source}->{target}", repr(end), unknown(end, self.nodes, "id of a node"),
                                  data[LINE])
        graph.add_edges_from(edge for edge in self.edges if {edge[0], edge[1]} <= self.nodes.keys())
        return graph


def _graphml(raw: bytes) -> Reading:
    reader = _GraphML()
    reader.parse(raw)
    return reader.graph(), reader.problems


# ---- GML ----

def _gml(raw: bytes) -> Reading:
    text, problems = _text(raw, "GML")
    if problems:
        return _new(False), problems
    try:
        return nx.parse_gml(text, label="id"), []
    except Exception as error:      # networkx passes on what its parser and its conversions raise: any of six types
        said = " ".join((str(error) or type(error).__name__).split())[:200]
        at = re.search(r"at \((\d+), \d+\)|line (\d+)", said)
        line = int(at[1] or at[2]) if at else None
        return _new(False), [Problem("", "", f"cannot be read: {said}: expected a GML file", line)]


# ---- node-link JSON ----

def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for i, (key, _) in enumerate(pairs) if any(key == k for k, _ in pairs[:i]))
        raise ValueError(f"the key {twice[:40]!r} is there twice in one mapping")
    return found


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is no number of JSON")


def _json(raw: bytes) -> Reading:
    text, problems = _text(raw, "JSON")
    if problems:
        return _new(False), problems
    try:
        tree = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        return _new(False), [Problem("", "", f"is no JSON: {error.msg}: expected a node-link file", error.lineno)]
    except (ValueError, RecursionError) as error:
        return _new(False), [Problem("", "", f"is no JSON: {str(error)[:100]}: expected a node-link file")]
    return _NodeLink().read(tree)


class _NodeLink:
    """{"directed": false, "nodes": [{"id": ...}], "links" or "edges": [{"source": ..., "target": ...}]}."""

    def __init__(self) -> None:
        self._problems: list[Problem] = []

    def _problem(self, place: str, found: Any, expected: str) -> None:
        shown = json.dumps(found, ensure_ascii=False) if not isinstance(found, str) else found
        self._problems.append(Problem(place, shown[:40], expected))

    def read(self, tree: Any) -> Reading:
        if not isinstance(tree, dict):
            self._problem("", type(tree).__name__, 'expected a mapping with the keys "nodes" and "links" or "edges"')
            return _new(False), self._problems
        where = [key for key in ("links", "edges") if key in tree]
        if len(where) != 1:
            self._problem("", " and ".join(where) or "neither", 'expected one of "links" and "edges"')
        for flag in ("directed", "multigraph"):
            if not isinstance(tree.get(flag, False), bool):
                self._problem(flag, tree[flag], "expected true or false")
        graph = _new(tree.get("directed") is True)
        for place, data in self._entries(tree, "nodes"):
            self._node(graph, place, data)
        for key in where:
            for place, data in self._entries(tree, key):
                self._edge(graph, place, data)
        return graph, self._problems

    def _entries(self, tree: dict[str, Any], key: str) -> Iterable[tuple[str, dict[str, Any]]]:
        entries = tree.get(key)
        if not isinstance(entries, list):
            self._problem(key, "missing" if entries is None else entries, "expected a list of mappings")
            return
        for i, entry in enumerate(entries):
            if isinstance(entry, dict):
                yield f"{key}[{i}]", entry
            else:
                self._problem(f"{key}[{i}]", entry, "expected a mapping")

    def _node(self, graph: nx.Graph, place: str, data: dict[str, Any]) -> None:
        key = data.get("id")
        if not _is_id(key):
            self._problem(f"{place}.id", "missing" if key is None else key, "expected text or a whole number")
        elif key in graph:
            self._problem(f"{place}.id", key, "is there twice: expected every id once")
        else:
            graph.add_node(key)
            graph.nodes[key].update({k: v for k, v in data.items() if k != "id"})

    def _edge(self, graph: nx.Graph, place: str, data: dict[str, Any]) -> None:
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


def _is_id(key: Any) -> bool:
    return isinstance(key, str | int) and not isinstance(key, bool)


# ---- edge lists and CSV ----

def _edge_list(raw: bytes) -> Reading:
    """Lines `a b`, `a b latency="20 ms" bandwidth=1Gbit/s` or networkx's `a b {'weight': 1}`; # begins a comment."""
    text, problems = _text(raw, "edge list")
    graph = _new(False)
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


def _edge_of(line: str) -> tuple[str, str, dict[str, Any]] | None:
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
    text, problems = _text(raw, "CSV")
    graph = _new(False)
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        head = [name.strip() for name in next(rows, [])]
        if not {"source", "target"} <= set(head) or len(set(head)) < len(head) or "" in head:
            problems.append(Problem("", ",".join(head)[:40], "expected a first line such as source,target,latency", 1))
            return graph, problems
        for row in rows:
            if not row:
                continue
            data: dict[str, Any] = dict(zip(head, (cell.strip() for cell in row), strict=False))
            if len(row) != len(head) or not data["source"] or not data["target"]:
                problems.append(Problem("", ",".join(row)[:40], f"expected {len(head)} cells, as in the first line",
                                        rows.line_num))
                continue
            ends = data.pop("source"), data.pop("target")
            key = graph.add_edge(*ends)
            graph.edges[(*ends, key)].update({name: _plain_value(cell) for name, cell in data.items() if cell})
            graph.edges[(*ends, key)][LINE] = rows.line_num
    except csv.Error as error:
        problems.append(Problem("", "", f"is no CSV: {error}", rows.line_num))
    return graph, problems


def _plain_value(text: str) -> Any:
    """A number where the text is one: "5" and "5e-3", but not "5 ms"."""
    if not _NUMBER.fullmatch(text):
        return text
    return int(text) if re.fullmatch(r"[+-]?\d+", text, re.ASCII) else float(text)


Reader = Callable[[bytes], Reading]

FORMATS: dict[str, Reader] = {".graphml": _graphml, ".xml": _graphml, ".gml": _gml, ".json": _json,
                              ".edgelist": _edge_list, ".edges": _edge_list, ".txt": _edge_list, ".csv": _csv}
_NAMES: dict[Reader, str] = {_graphml: "GraphML", _gml: "GML", _json: "node-link JSON", _edge_list: "edge list",
                             _csv: "CSV"}
