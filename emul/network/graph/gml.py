"""GML, with lines. networkx's reader keeps neither lines nor the direction in which an undirected edge is written, and
refuses the parallel edges of most files of the Topology Zoo, which have no `multigraph 1`.

A file is keys and values, `node [ id 0 label "Oslo" ]`: a number, a text in quotes, or a list of keys and values in
brackets. A key that stands there several times has the list of its values, but for `node` and `edge`.
"""

from __future__ import annotations

import html
import re
from typing import Any

from emul.base.errors import Problem
from emul.base.plain import PlainDict
from emul.network.graph.reading import LINE, Reading, add_edge, new_graph, plain_value, text_of
from emul.network.graph.topology import unknown

Entry = dict[str, list[Any]]            # key -> its values: text, numbers, or entries again

_DEPTH = 100                    # of brackets; real files nest 3
_TOKEN = re.compile(r"""(?P<blank>(?:\s|\#[^\n]*)+)|(?P<text>"[^"]*")|(?P<open>\[)|(?P<close>\])
    |(?P<key>[A-Za-z_]\w*)(?![\w.])|(?P<number>[+-]?[\d.]+(?:[Ee][+-]?\d+)?)(?=[\s\]\[#]|$)""", re.VERBOSE | re.ASCII)


class _WrongError(Exception):
    """(what was found and what was expected, line): the text is no GML from there on."""

    def __init__(self, said: str, line: int):
        super().__init__(said)
        self.line = line


def gml(raw: bytes) -> Reading:
    """The graph of a GML file, and all that is wrong with it."""
    text, problems = text_of(raw, "GML")
    if problems:
        return new_graph(False), problems
    try:
        found = _values(text)
    except _WrongError as error:
        return new_graph(False), [Problem("", "", f"{error}: expected a GML file", error.line)]
    graphs = found.get("graph", [])
    if len(graphs) != 1 or not isinstance(graphs[0], dict):
        return new_graph(False), [Problem("", f"{len(graphs) or 'no'} graph", "expected one graph [ ... ]", 1)]
    return _graph(graphs[0])


def _values(text: str) -> PlainDict:
    """Key -> its values in their order; those of brackets are mappings of this kind, with their line as `LINE`."""
    stack: list[Entry] = [{}]
    key, line, at = "", 1, 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _WrongError(f"{text[at:at + 20].splitlines()[0]!r} is neither key nor value", line)
        kind, token = match.lastgroup, match[0]
        at = match.end()
        if kind in ("text", "number", "open") and not key:
            raise _WrongError(f"{token[:20]} is a value without a key", line)
        if kind == "key" and not key:
            key = token
        elif kind == "key":             # such as NAN, or a word without its quotes
            stack[-1].setdefault(key, []).append(token)
            key = ""
        elif kind in ("text", "number"):
            value = html.unescape(token[1:-1]) if kind == "text" else plain_value(token)
            stack[-1].setdefault(key, []).append(value)
            key = ""
        elif kind == "open":
            inner: Entry = {LINE: [line]}
            stack[-1].setdefault(key, []).append(inner)
            stack.append(inner)
            key = ""
            if len(stack) > _DEPTH:
                raise _WrongError(f"is nested more than {_DEPTH} deep", line)
        elif kind == "close":
            if key or len(stack) == 1:
                raise _WrongError(f"{key} has no value" if key else "] closes nothing", line)
            stack.pop()
        line += token.count("\n")
    if key or len(stack) > 1:
        raise _WrongError(f"{key} has no value" if key else "ends before the last ]", line)
    return stack[0]


def _graph(found: PlainDict) -> Reading:
    problems: list[Problem] = []
    directed, multigraph = (found.get(flag, [0])[0] for flag in ("directed", "multigraph"))
    problems += [Problem(flag, str(value)[:40], "expected 0 or 1", found[LINE][0])
                 for flag, value in (("directed", directed), ("multigraph", multigraph)) if value not in (0, 1)]
    graph = new_graph(directed == 1, multigraph == 1)
    for entry in found.get("node", []):
        node = _plain(entry) if isinstance(entry, dict) else {}
        key = node.pop("id", None)
        place, line = f"node {key}", node.pop(LINE, found[LINE][0])
        if not isinstance(key, int | str):
            problems.append(Problem("node", "no id" if key is None else str(key)[:40], "expected an id", line))
        elif key in graph:
            problems.append(Problem(place, "is there twice", "expected every id once", line))
        else:
            graph.add_node(key, **node)
    for entry in found.get("edge", []):
        edge = _plain(entry) if isinstance(entry, dict) else {}
        source, target, line = edge.pop("source", None), edge.pop("target", None), edge.pop(LINE, found[LINE][0])
        strange = [end for end in (source, target) if not isinstance(end, int | str) or end not in graph]
        problems += [Problem(f"edge {source}->{target}", repr(end)[:40], unknown(str(end), map(str, graph),
                                                                              "id of a node"), line) for end in strange]
        if not strange:
            add_edge(graph, source, target, edge, line)
    return graph, problems


def _plain(entry: Entry) -> PlainDict:
    """Values as attributes: one alone stands for itself."""
    found = {key: [_plain(one) if isinstance(one, dict) else one for one in values] for key, values in entry.items()}
    return {key: values[0] if len(values) == 1 else values for key, values in found.items()}
