"""Topologies from GraphML files and networkx graphs: names, links with their attributes, and who plays which role.

A vertex is a place: it may host one node of a scheme, and forwards what passes. Edges of an undirected graph are
links in both directions; self-loops are left out (sending to oneself needs no network); of parallel edges the first
that states a thing wins. Edge attributes: `latency` and `bandwidth` with a unit, or the plain numbers `latency_ns`
and `bandwidth_bps`; `outage`, a probability per message or an OutageSpec. Rules override them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import networkx as nx

from emul.base import units
from emul.base.errors import NetworkError, Problem, ScenarioError
from emul.base.streams import generator
from emul.network.loss import OutageSpec
from emul.network.rules import LinkParameters, parameter_problems
from emul.network.topology import RoleRule, TopologySpec, unknown

ROLE_RULES: tuple[str, ...] = get_args(get_type_hints(RoleRule)["rule"])
_EXPLICIT = ("nodes", "attribute")
_SHOWN = 10         # problems of one kind shown before "and n more"


class GraphTopology:
    """A topology whose links are listed: `given` maps (u, v) to the parameters that the graph states."""

    def __init__(self, names: list[str], roles: dict[str, list[int]], given: dict[tuple[int, int], LinkParameters]):
        self.names = names
        self.roles = roles
        self._given = given
        self._neighbours: list[list[int]] = [[] for _ in names]
        for u, v in sorted(given):
            self._neighbours[u].append(v)

    def linked(self, u: int, v: int) -> bool:
        return (u, v) in self._given

    def neighbours(self, u: int) -> list[int]:
        return self._neighbours[u]

    def given(self, u: int, v: int) -> LinkParameters:
        return self._given[u, v]

    def neighbour_groups(self, u: int, masks: list[int]) -> Iterator[tuple[int, LinkParameters]]:
        return ((masks[v], self._given[u, v]) for v in self._neighbours[u])

    def any_link(self, sources: frozenset[int], destinations: frozenset[int]) -> bool:
        return any(v in destinations for u in sources for v in self._neighbours[u])

    def problems(self, parameters: Callable[[int, int], LinkParameters]) -> list[Problem]:
        bare = [(u, v) for u, v in self._given if parameters(u, v).latency_ns is None]
        silent = set(bare)
        once = [(u, v) for u, v in bare if u < v or (v, u) not in silent]       # an edge, not its two directions
        return _shortened([self._no_latency(u, v, (v, u) in silent) for u, v in once])

    def _no_latency(self, u: int, v: int, both: bool) -> Problem:
        ends = f"{self.names[u]}{'<->' if both else '->'}{self.names[v]}"
        expected = f'expected the attribute latency, or a rule such as {{match: "{ends}", latency: 20 ms}}'
        return Problem(f"edge {ends}", "no latency", expected)


def _shortened(problems: list[Problem]) -> list[Problem]:
    if len(problems) <= _SHOWN:
        return problems
    more = f"and {len(problems) - _SHOWN} more"
    return [*problems[:_SHOWN], Problem(more, "", 'a rule {match: "*", ...} serves all links')]


def from_spec(spec: TopologySpec, seed: int) -> GraphTopology:
    """The topology of `spec.file` or `spec.graph`. Raises NetworkError with everything that is wrong with it."""
    where = "graph" if spec.file is None else str(spec.file)
    graph = spec.graph if spec.file is None else read_graphml(spec.file)
    if not isinstance(graph, nx.Graph):
        raise NetworkError(f"{where}: {type(graph).__name__}: expected a networkx graph")
    if not graph:
        raise NetworkError(f"{where}: no vertices: expected one at least")
    names, problems = _names(graph)
    given, wrong = _links(graph, names)
    chosen = _Roles(spec, graph, names, seed)
    problems += _shortened(wrong) + chosen.problems
    if problems:
        raise NetworkError(str(ScenarioError(where, problems)))
    return GraphTopology(names, chosen.roles, given)


def read_graphml(path: str | Path) -> nx.Graph:
    """The graph in a GraphML file. Raises NetworkError naming the file where there is none or it is something else."""
    try:
        return nx.read_graphml(path)
    except OSError as error:
        raise NetworkError(f"{path}: {error.strerror}: expected a GraphML file") from error
    except Exception as error:      # networkx passes on what its parser and its conversions raise: any of six types
        text = str(error) or type(error).__name__
        raise NetworkError(f"{path}: cannot be read: {text}: expected a GraphML file") from error


def _names(graph: nx.Graph) -> tuple[list[str], list[Problem]]:
    """Names in the order of the graph: `label`, else `name`, else the key; the second "Rome" is "Rome#2"."""
    names: list[str] = []
    problems: list[Problem] = []
    wanted = [str(data.get("label") or data.get("name") or key).strip() for key, data in graph.nodes(data=True)]
    taken, seen = set(wanted), dict.fromkeys(wanted, 0)
    for name in wanted:
        if "->" in name:
            problems.append(Problem("vertex", repr(name), 'expected a name without "->", which rules use'))
        seen[name] += 1
        unique = name
        while seen[name] > 1 and unique in taken:
            unique = f"{name}#{seen[name]}"
            seen[name] += unique in taken       # a label may look like this, too
        taken.add(unique)
        names.append(unique)
    return names, problems


def _links(graph: nx.Graph, names: list[str]) -> tuple[dict[tuple[int, int], LinkParameters], list[Problem]]:
    ids = {key: v for v, key in enumerate(graph)}
    given: dict[tuple[int, int], LinkParameters] = {}
    problems: list[Problem] = []
    for a, b, data in graph.edges(data=True):
        u, v = ids[a], ids[b]
        if u == v:
            continue
        place = f"edge {names[u]}{'->' if graph.is_directed() else '<->'}{names[v]}"
        stated, wrong = _stated(data, place)
        problems += wrong
        for ends in [(u, v)] if graph.is_directed() else [(u, v), (v, u)]:
            first = given.get(ends, LinkParameters())
            missing = {k: x for k, x in stated.items() if getattr(first, k) is None}
            given[ends] = replace(first, **missing) if missing or ends not in given else first
    return given, problems


def _stated(data: Mapping[str, Any], place: str) -> tuple[dict[str, Any], list[Problem]]:
    """What an edge's attributes say, as fields of LinkParameters, and what is wrong with them."""
    stated: dict[str, Any] = {}
    problems: list[Problem] = []
    for name, plain, parse in (("latency", "latency_ns", units.duration_ns),
                               ("bandwidth", "bandwidth_bps", units.bandwidth_bps)):
        if name in data and plain in data:
            problems.append(Problem(f"{place}, {name}", repr(data[name]), f"expected one of {name} and {plain}"))
        elif name in data:
            try:
                stated[plain] = parse(data[name])
            except ValueError as error:
                problems.append(Problem(f"{place}, {name}", repr(data[name]), str(error)))
        elif plain in data:
            stated[plain] = _plain(data[plain])
    if "outage" in data:
        try:
            stated["outage"] = _outage(data["outage"])
        except ValueError as error:
            problems.append(Problem(f"{place}, outage", repr(data["outage"]), str(error)))
    problems += [Problem(f"{place}, {name}", found, expected) for name, found, expected in parameter_problems(
        stated.get("latency_ns"), stated.get("bandwidth_bps"), stated.get("outage"))]
    return stated, problems


def _plain(value: Any) -> Any:
    """A NumPy scalar as a Python number."""
    return value.item() if hasattr(value, "item") else value


def _outage(value: Any) -> OutageSpec:
    return value if isinstance(value, OutageSpec) else OutageSpec(units.probability(_plain(value)))


def role_order(roles: Mapping[str, Any]) -> list[str]:
    """Servers first, then clients, then the others as they come: the order of node ids."""
    first = [role for role in ("server", "client") if role in roles]
    return first + [role for role in roles if role not in first]


class _Roles:
    """The choice of vertices for roles: `roles` and the `problems` met on the way."""

    def __init__(self, spec: TopologySpec, graph: nx.Graph, names: list[str], seed: int):
        self._graph = graph
        self._names = names
        self._seed = seed
        self._line = spec.line
        self._taken: dict[int, str] = {}
        self.problems: list[Problem] = []
        rules = dict(spec.roles) or self._by_attribute()
        order = role_order(rules)
        chosen = {role: self._chosen(role, rules[role]) for role in sorted(order, key=lambda r: self._late(rules[r]))}
        self.roles = {role: chosen[role] for role in order}

    @staticmethod
    def _late(rule: RoleRule) -> bool:
        return rule.rule not in _EXPLICIT

    def _by_attribute(self) -> dict[str, RoleRule]:
        found = dict.fromkeys(str(data["role"]) for _, data in self._graph.nodes(data=True) if data.get("role"))
        if not found:
            self._problem("", "none", 'expected roles for vertices, such as {server: {nodes: [...]}, client: {rule: '
                                      'leaves}}, or an attribute "role" of the vertices')
        return {role: RoleRule("attribute", attribute="role") for role in found}

    def _problem(self, role: str, found: str, expected: str) -> None:
        self.problems.append(Problem(f"topology.roles{'.' + role if role else ''}", found, expected, self._line))

    def _chosen(self, role: str, rule: RoleRule) -> list[int]:
        if rule.rule not in ROLE_RULES:
            self._problem(role, repr(rule.rule), unknown(str(rule.rule), ROLE_RULES, "rule for a role"))
            return []
        count = rule.count
        if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
            self._problem(role, f"count {count!r}", "expected a whole number, 1 or more")
            return []
        before = len(self.problems)
        vertices = getattr(self, f"_{rule.rule}")(role, rule)
        if len(self.problems) == before and len(vertices) < (count or 1):
            self._problem(role, f"{len(vertices)} vertices by {rule.rule}", f"expected {count or 'one or more'}")
        self._taken |= dict.fromkeys(vertices, role)
        return vertices

    def _free(self) -> list[int]:
        return [v for v in range(len(self._names)) if v not in self._taken]

    def _nodes(self, role: str, rule: RoleRule) -> list[int]:
        ids = {name: v for v, name in enumerate(self._names)}
        vertices: list[int] = []
        for name in rule.nodes:
            if name not in ids:
                self._problem(role, repr(name), unknown(name, self._names, "vertex"))
            elif ids[name] in vertices or ids[name] in self._taken:
                other = self._taken.get(ids[name], role)
                self._problem(role, repr(name), f'is named twice: a vertex hosts one node, here "{other}"')
            else:
                vertices.append(ids[name])
        return vertices

    def _attribute(self, role: str, rule: RoleRule) -> list[int]:
        attribute, value = rule.attribute or "role", role if rule.value is None else rule.value
        data = [data for _, data in self._graph.nodes(data=True)]
        if not any(attribute in d for d in data):
            known = dict.fromkeys(name for d in data for name in d)
            self._problem(role, repr(attribute), unknown(attribute, known, "attribute of vertices"))
            return []
        matching = [v for v in self._free() if str(data[v].get(attribute)) == str(value)]
        return matching[:rule.count]

    def _highest_betweenness(self, role: str, rule: RoleRule) -> list[int]:
        simple = nx.DiGraph(self._graph) if self._graph.is_directed() else nx.Graph(self._graph)
        between = nx.betweenness_centrality(simple)
        # rounded: equal by symmetry is not equal in floating point, and the lower id must win
        rank = [(-round(between[key], 9), v) for v, key in enumerate(self._graph)]
        return [v for _, v in sorted(rank) if v not in self._taken][:rule.count or 1]

    def _leaves(self, role: str, rule: RoleRule) -> list[int]:
        keys = list(self._graph)
        simple = nx.Graph(self._graph)                  # parallel edges and both directions count once
        degree = [len(set(simple[key]) - {key}) for key in keys]
        if rule.count is None:
            return [v for v in self._free() if degree[v] == 1]
        return sorted(sorted(self._free(), key=lambda v: (degree[v], v))[:rule.count])

    def _all(self, role: str, rule: RoleRule) -> list[int]:
        return self._free()[:rule.count]

    def _random(self, role: str, rule: RoleRule) -> list[int]:
        free = self._free()
        if rule.count is None:
            self._problem(role, "no count", "expected how many vertices to draw")
            return []
        drawn = generator(self._seed, "topology/roles", role).permutation(len(free))[:rule.count]
        return sorted(free[int(i)] for i in drawn)
