"""Graph files, by their ending: GraphML, GML, node-link JSON, edge lists and CSV, read strictly.

Nothing is guessed and nothing of a file is executed: an edge that names an unknown vertex, a vertex given twice, a
value of another type than declared, a DTD (and with it every entity) is an error with its line. The formats are read
here, since networkx makes up the vertices that GraphML and JSON edges name, keeps no lines, and passes on what its
parsers raise. The graphs are networkx's; edges remember their line as `LINE`, and the end that is written first as
`FIRST`.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Callable, Hashable, Iterable
from pathlib import Path

import networkx as nx

from emul.base import tables
from emul.base.errors import NetworkError, Problem, ScenarioError
from emul.base.files import MOST_BYTES, read_limited
from emul.base.plain import PlainDict
from emul.network.graph.attributes import EDGE
from emul.network.graph.gml import gml
from emul.network.graph.graphml import graphml
from emul.network.graph.reading import FIRST, Reading, add_edge, ends_of, new_graph, plain_value, text_of
from emul.network.graph.topology import TopologyError, shortened, unknown


def read_graph(path: str | Path) -> nx.Graph:
    """The graph in a file. Raises NetworkError naming the file, and what in it is wrong, with lines where there are.

    Parallel edges are kept; the graph is directed if the file says so (edge lists and CSV never do).
    """
    # networkx makes up the vertices that an edge names and nobody declared, and keeps no line numbers; it reads GML
    # alone. A DTD is refused before its entities multiply (`test_graphml_is_read_as_networkx_reads_it`,
    # `test_entities_are_refused_before_they_multiply`).
    path = Path(path)
    read = FORMATS.get(path.suffix.lower())
    if read is None:
        raise NetworkError(f'{path}: "{path.suffix}": expected one of {", ".join(FORMATS)} at the end of the name'
                           + _way_out(path))
    try:
        raw = read_limited(path, MOST_BYTES)
    except OSError as error:
        raise NetworkError(f"{path}: {error.strerror or error}: expected a {_NAMES[read]} file") from error
    graph, problems = read(raw)
    if problems:
        raise TopologyError(str(path), shortened(problems))
    return graph


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
    """{"directed": false, "nodes": [{"id": ...}], "links" or "edges": [{"source": ..., "target": ...}]}.

    Also as others write it: ends called `from` and `to` (vis.js), all of it below `elements`, with the values of each
    in `data` (Cytoscape), and ends that are positions in the list of nodes (d3, networkx 1) where no id is a number.
    """

    def __init__(self) -> None:
        self._problems: list[Problem] = []
        self._ids: list[object] = []                # in the order of the nodes
        self._by_text: dict[str, object] = {}       # id as text -> id
        self._by_position = False

    def _problem(self, place: str, found: object, expected: str) -> None:
        shown = json.dumps(found, ensure_ascii=False) if not isinstance(found, str) else found
        self._problems.append(Problem(place, shown[:40], expected))

    def read(self, tree: object) -> Reading:
        if isinstance(tree, dict) and "elements" in tree:
            tree = tree | _cytoscape(tree.pop("elements"))
        if not isinstance(tree, dict):
            self._problem("", type(tree).__name__, 'expected a mapping with the keys "nodes" and "links" or "edges"')
            return new_graph(False), self._problems
        where = [key for key in ("links", "edges") if key in tree]
        if len(where) != 1:
            self._problem("", " and ".join(where) or "neither", 'expected one of "links" and "edges"')
        for flag in ("directed", "multigraph"):
            if not isinstance(tree.get(flag, False), bool):
                self._problem(flag, tree[flag], "expected true or false")
        graph = new_graph(tree.get("directed") is True, tree.get("multigraph") is True)
        nodes = list(self._entries(tree, "nodes"))
        named = "id" if any("id" in data for _, data in nodes) else "name"      # d3 of old knows no ids
        for place, data in nodes:
            self._node(graph, place, data, named)
        self._by_text = {str(key): key for key in self._ids}
        self._by_position = not any(isinstance(key, int) for key in self._ids)
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

    def _node(self, graph: nx.Graph, place: str, data: dict[str, object], named: str) -> None:
        key = _id_of(data.get(named))
        if key is None:
            self._problem(f"{place}.{named}", data.get(named, "missing"), "expected text or a whole number")
        elif key in graph:
            self._problem(f"{place}.{named}", key, "is there twice: expected every id once")
        else:
            graph.add_node(key)
            graph.nodes[key].update({k: v for k, v in data.items() if k != "id"})
            self._ids.append(key)

    def _edge(self, graph: nx.Graph, place: str, data: dict[str, object]) -> None:
        columns = ends_of(list(data))
        names = ("source", "target") if columns is None else tuple(list(data)[i] for i in columns)
        ends = []
        for name in names:
            written = data.get(name)
            key = _id_of(written)
            if key not in graph and key is not None:
                key = self._by_text.get(str(key), self._ids[key] if self._by_position and isinstance(key, int)
                                        and 0 <= key < len(self._ids) else None)
            if key is None:
                self._problem(f"{place}.{name}", "missing" if written is None else written,
                              unknown(str(written), map(str, graph), "id of a node"))
            ends.append(key)
        if None not in ends:
            add_edge(graph, ends[0], ends[1], {k: v for k, v in data.items() if k not in (*names, "key")}, place)


def _id_of(value: object) -> Hashable | None:
    """The id that a file means: text, a whole number (of JavaScript also as 1.0), or a list of these; None: no id."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list) and value and all(isinstance(one, int | str) for one in value):
        return tuple(value)                         # of networkx' grids
    return value if isinstance(value, str | int) and not isinstance(value, bool) else None


def _cytoscape(elements: object) -> dict[str, object]:
    """The nodes and edges of Cytoscape's JSON, in two lists or in one, as node-link JSON has them."""
    if isinstance(elements, list):
        edges = [one for one in elements if isinstance(one, dict) and (
            one.get("group") == "edges" or "source" in (one.get("data") or {}))]
        elements = {"nodes": [one for one in elements if one not in edges], "edges": edges}
    if not isinstance(elements, dict):
        return {}
    return {key: [one.get("data", one) if isinstance(one, dict) else one for one in entries]
            for key, entries in elements.items() if isinstance(entries, list)}


# ---- edge lists and CSV ----

def _edge_list(raw: bytes) -> Reading:
    """Lines `a b`, `a b latency="20 ms" bandwidth=1Gbit/s` or networkx's `a b {'weight': 1}`; # begins a comment.

    A first line with one number says how many vertices there are, as in files of graphs for gossip.
    """
    text, problems = text_of(raw, "edge list")
    graph = new_graph(False)
    counted: int | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if counted is None and not graph and re.fullmatch(r"\d{1,9}", line.strip(), re.ASCII):
            counted = int(line)
            continue
        try:
            edge = _edge_of(line)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
            said = str(error).partition("\n")[0][:200]
            expected = 'expected two vertices, then nothing or key=value, such as: a b latency="20 ms"'
            problems.append(Problem("", repr(line.strip()[:40]), f"{said}: {expected}", number))
            continue
        if edge is not None:
            add_edge(graph, *edge, number)
    if counted not in (None, len(graph)) and not problems:
        problems.append(Problem("", f"{counted}", f"expected the number of vertices, {len(graph)}, or no such line"))
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
    if len(words) == 3 and isinstance(plain_value(words[2]), int | float):
        raise ValueError(f"says of {words[2]} neither what nor in which unit: write latency_ms={words[2]}, or "
                         f"weight={words[2]} where it is of no use")
    if len(words) < 2 or not all(len(pair) == 2 and pair[0] for pair in pairs):
        raise ValueError("is no edge")
    return words[0], words[1], {name: plain_value(value) for name, value in pairs}


def _csv(raw: bytes) -> Reading:
    """A table with the columns `source` and `target`; the others are attributes, an empty cell is none."""
    text, problems = text_of(raw, "CSV")
    graph = new_graph(False)
    if problems:
        return graph, problems
    try:
        table = tables.parse(text, Path())
    except ScenarioError as error:
        return graph, [*problems, *error.problems]
    head = table.header
    ends = ends_of(head)
    named = [name for name in head if name]                     # pandas leaves that of its index empty
    matrix = [cells[0] for _, cells in table.rows] == head[1:]     # whose sites may be called a and b, as ends may
    if matrix or ends is None or len(set(named)) < len(named):
        return graph, [*problems, Problem("", ",".join(head)[:40], (
            "expected a first line such as source,target,latency"
            + ("; a matrix stands in topology.matrix, in place of file" if matrix else "")), table.header_line or 1)]
    names = [_attribute(name) for name in head]
    kinds: set[str] = set()                     # Directed or Undirected, in tables of Gephi
    for line, cells in table.rows:
        if not cells[ends[0]] or not cells[ends[1]]:
            problems.append(Problem("", ",".join(cells)[:40], "expected names of both ends", line))
            continue
        data: PlainDict = {}
        for i, ((name, unit), cell) in enumerate(zip(names, cells, strict=True)):
            if i in ends or not name or tables.missing(cell):
                continue
            if name == "type" and cell.lower() in ("directed", "undirected"):
                kinds.add(cell.lower())
                continue
            value = plain_value(cell)
            data[name] = f"{cell} {unit}" if unit is not None and not isinstance(value, str) else value
        add_edge(graph, cells[ends[0]], cells[ends[1]], data, line)
    if len(kinds) > 1:
        problems.append(Problem("type", "directed and undirected", "expected one kind of edges in a file"))
    if kinds == {"directed"}:
        directed = new_graph(True)
        directed.add_nodes_from(graph)
        for a, b, data in graph.edges(data=True):
            directed.add_edge(*((a, b) if data[FIRST] == a else (b, a)), **data)
        return directed, problems
    return graph, problems


def _attribute(name: str) -> tuple[str, str | None]:
    """(attribute, unit of bare numbers) by the name of a column: "Latency (ms)" is latency, latency_ms stays itself."""
    if name in EDGE:
        return name, None
    word, unit = tables.title(name)
    return (word, unit) if word in EDGE or word == "type" else (name, None)


Reader = Callable[[bytes], Reading]

# of formats that networkx reads, and emul does not
_NETWORKX = {".gexf": "read_gexf", ".net": "read_pajek", ".paj": "read_pajek", ".adjlist": "read_adjlist",
             ".dot": "nx_pydot.read_dot", ".gv": "nx_pydot.read_dot", ".leda": "read_leda", ".g6": "read_graph6",
             ".s6": "read_sparse6", ".graph6": "read_graph6"}
_PICKLED = (".pickle", ".gpickle", ".pkl", ".p")
_OF_TOOLS = {".yaml": "Shadow's configuration has its graph below network.graph: save that as .gml",
             ".yml": "Shadow's configuration has its graph below network.graph: save that as .gml",
             ".ned": "of a network of OMNeT++ write the connections as a table, and say dialect: omnet",
             ".mn": "of a network of MiniEdit write the links as a table, and say dialect: mininet",
             ".toml": "of a configuration of Celestial write the links as a table, and say dialect: celestial",
             ".brite": "of a graph of BRITE write the edges as a table with the columns source,target,latency"}


def _way_out(path: Path) -> str:
    """A command or a sentence that makes a file that is read of one that is not."""
    ending = path.suffix.lower()
    if ending in _OF_TOOLS:
        return f"; {_OF_TOOLS[ending]}"
    if ending in _PICKLED:
        return "; a pickle can run anything as it is read: have whoever made it write a .graphml with networkx"
    if ending in _NETWORKX:
        return (f"; convert it: python -c \"import networkx; networkx.write_graphml(networkx.{_NETWORKX[ending]}("
                "'FILE'), 'NEW.graphml')\"")       # no name of a stranger's file in a command that one copies
    return ""


FORMATS: dict[str, Reader] = {".graphml": graphml, ".xml": graphml, ".gml": gml, ".json": _json,
                              ".edgelist": _edge_list, ".edges": _edge_list, ".txt": _edge_list, ".csv": _csv,
                              ".tsv": _csv}
_NAMES: dict[Reader, str] = {graphml: "GraphML", gml: "GML", _json: "node-link JSON", _edge_list: "edge list",
                             _csv: "CSV"}
