"""GraphML, read strictly, with lines. A DTD is refused, and with it every entity; nesting is limited."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from xml.parsers import expat

import networkx as nx

from emul.base.errors import Problem
from emul.base.plain import PlainDict
from emul.network.graph.reading import LINE, Reading, add_edge, new_graph, plain_value
from emul.network.graph.topology import unknown

_DEPTH = 100                    # of elements of XML; real files nest 5


class _Stop(Exception):
    """Ends parsing: what is wrong is in the problems."""


def _whole(text: str) -> int:
    """Also "5.0", as Gephi writes it."""
    return int(text.removesuffix(".0"))


def _boolean(text: str) -> bool:
    return {"true": True, "1": True, "false": False, "0": False}[text.lower()]


# Lower case. GraphML has string, int, long, float, double and boolean; the others are what old versions of networkx,
# Gephi and R write. A type that nobody knows is read as text or a number, since its attribute may be of no use here.
_TYPES: dict[str, Callable[[str], Any]] = {
    "string": str, "str": str, "text": str, "char": str,
    **dict.fromkeys(("int", "integer", "long", "short", "byte", "int32", "int64"), _whole),
    **dict.fromkeys(("float", "double", "real", "numeric", "decimal", "float32", "float64"), float),
    **dict.fromkeys(("boolean", "bool", "logical"), _boolean)}

_OF_TOOLS = {       # first element of a tool's own file -> what that is, and the dialect that reads its units
    "platform": ("a platform of SimGrid", "simgrid"), "scenario": ("a scenario of CORE", "core"),
    "experiment": ("an experiment of Kollaps", "kollaps")}


class _GraphML:
    """Builds the graph while expat reads. yEd's labels (`NodeLabel`) count as `label` where there is no other."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.nodes: dict[str, PlainDict] = {}
        self.edges: list[tuple[str, str, PlainDict]] = []
        self.directed = False
        self._keys: dict[str, tuple[str, str, str]] = {}        # id -> (attribute, type, domain)
        self._defaults: list[tuple[str, str, Any]] = []         # (domain, attribute, value)
        self._stack: list[str] = []
        self._graphs = 0
        self._data: PlainDict | None = None                     # of the node or edge that is open
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
        except (ValueError, LookupError) as error:              # the text is not in the declared encoding
            self._problem("", "", f"is no readable XML: {error}: expected a GraphML file", 1)
            return
        if not self._graphs:
            self._problem("", "no graph", "expected one graph element", 1)

    def _problem(self, place: str, found: str, expected: str, line: int | None = None) -> None:
        self.problems.append(Problem(place, found, expected, line or self._parser.CurrentLineNumber))

    def _doctype(self, name: str, *_: object) -> None:
        self._refuse_tool(name)
        self._problem("", "DOCTYPE", "is refused: expected GraphML without a DTD, which could define entities")
        raise _Stop

    def _refuse_tool(self, element: str) -> None:
        if element in _OF_TOOLS:
            what, dialect = _OF_TOOLS[element]
            self._problem("", f"<{element}>", (
                f"is {what}, which is not read: write its links as a table, network.csv, with the columns "
                "source,target,latency,bandwidth and one line a link, in the units of that tool; then "
                f"topology: {{file: network.csv, dialect: {dialect}}}"))
            raise _Stop

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        name = name.rpartition(":")[2]
        if not self._stack and name != "graphml":
            self._refuse_tool(name)
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
            self._data.setdefault("label", " ".join("".join(self._text).split()))
        elif name == "default" and self._stack[-1] == "key":
            attribute, kind, domain = self._keys[self._key]
            default: PlainDict = {}
            self._place = "key"
            self._set(default, attribute, kind)
            self._defaults += [(domain, attribute, value) for value in default.values()]
        elif name in ("node", "edge"):
            if self._data is not None:
                for domain, attribute, value in self._defaults:
                    if domain in (name, "all"):
                        self._data.setdefault(attribute, value)
            self._data, self._place = None, ""

    def _set(self, data: dict[str, object], attribute: str, kind: str) -> None:
        text = "".join(self._text)
        text = text if kind == "string" else text.strip()
        if not text and kind != "string":       # as yEd and Gephi write a value that is not there
            return
        try:
            data[attribute] = _TYPES.get(kind.lower(), plain_value)(text)
        except (ValueError, KeyError):
            self._problem(f"{self._place}, {attribute}", repr(text[:40]), f"expected the type {kind}, as declared")

    def graph(self) -> nx.Graph:
        graph = new_graph(self.directed)
        graph.add_nodes_from(self.nodes.items())
        for source, target, data in self.edges:
            for end in dict.fromkeys((source, target)):
                if end not in self.nodes:
                    self._problem(f"edge {source}->{target}", repr(end), unknown(end, self.nodes, "id of a node"),
                                  data[LINE])
            if {source, target} <= self.nodes.keys():
                add_edge(graph, source, target, data, data[LINE])
        return graph


def graphml(raw: bytes) -> Reading:
    """The graph of a GraphML file, and all that is wrong with it, with lines."""
    reader = _GraphML()
    reader.parse(raw)
    return reader.graph(), reader.problems
