"""The roles of the vertices of a graph, by the rules of a topology, and hosts that are attached to vertices."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import get_args, get_type_hints

import networkx as nx

from emul.base.errors import Problem
from emul.base.plain import is_count
from emul.base.streams import generator
from emul.network.graph.topology import Access, RoleRule, TopologySpec, unknown

ROLE_RULES: tuple[str, ...] = get_args(get_type_hints(RoleRule)["rule"])
_EXPLICIT = ("nodes", "attribute")


def role_order(roles: Mapping[str, object]) -> list[str]:
    """Servers first, then clients, then the others as they come: the order of node ids."""
    first = [role for role in ("server", "client") if role in roles]
    return first + [role for role in roles if role not in first]


class Roles:
    """The choice of vertices for roles: `roles`, the `hosts` to attach, and the `problems` met on the way.

    hosts: (place, name, access) of each; host i is vertex len(names) + i of the network, and `roles` holds it so.
    """

    # More clients than places are hosts, vertices of their own with one link each: rules, faults, routes and the
    # journal need to know nothing new. Several nodes at one vertex would share no link and talk to each other for
    # nothing (`test_hosts_forward_nothing_since_they_have_one_link`).

    def __init__(self, spec: TopologySpec, graph: nx.Graph, names: list[str], seed: int):
        self._graph = graph
        self._names = names
        self._ids = {name: v for v, name in enumerate(names)}
        self._seed = seed
        self._line = spec.line
        self._taken: dict[int, str] = {}
        self.problems: list[Problem] = []
        self.hosts: list[tuple[int, str, Access]] = []
        rules = dict(spec.roles) or ({"peer": RoleRule("all")} if spec.matrix is not None else self._by_attribute())
        order = role_order(rules)
        explicit_first = sorted(order, key=lambda role: rules[role].rule not in _EXPLICIT)
        chosen = {role: self._chosen(role, rules[role]) for role in explicit_first}
        self.roles = {role: self._attached(role, rules[role], chosen[role]) for role in order}

    def _by_attribute(self) -> dict[str, RoleRule]:
        found = dict.fromkeys(str(data["role"]) for _, data in self._graph.nodes(data=True)
                              if data.get("role") not in (None, ""))
        if not found:
            self._problem("", "none", 'expected roles for vertices, such as {server: {nodes: [...]}, client: {rule: '
                                      'leaves}}, or an attribute "role" of the vertices')
        return {role: RoleRule("attribute", attribute="role") for role in found}

    def _problem(self, role: str, found: str, expected: str) -> None:
        self.problems.append(Problem(f"topology.roles{'.' + role if role else ''}", found, expected, self._line))

    def _chosen(self, role: str, rule: RoleRule) -> list[int]:
        """The vertices of a role, or the places of its hosts, one for each."""
        if rule.rule not in ROLE_RULES:
            self._problem(role, repr(rule.rule), unknown(str(rule.rule), ROLE_RULES, "rule for a role"))
            return []
        count = rule.count
        if count is not None and not is_count(count):
            self._problem(role, f"count {count!r}", "expected a whole number, 1 or more")
            return []
        before = len(self.problems)
        # a place may have many hosts, so how many hosts there are does not decide how many places
        wanted = None if rule.access is not None and rule.rule != "random" else count
        vertices = getattr(self, f"_{rule.rule}")(role, rule, wanted)
        if rule.access is not None and vertices:
            return [vertices[i % len(vertices)] for i in range(count or len(vertices))]
        if len(self.problems) == before and len(vertices) < (count or 1):
            more = ', or "access", by which a vertex can have many hosts' if count and vertices else ""
            self._problem(role, f"{len(vertices)} vertices by {rule.rule}", f"expected {count or 'one or more'}{more}")
        self._taken |= dict.fromkeys(vertices, role)
        return vertices

    def _attached(self, role: str, rule: RoleRule, vertices: list[int]) -> list[int]:
        if rule.access is None:
            return vertices
        first = len(self._names) + len(self.hosts)
        alone = role == "server" and len(vertices) == 1             # as the generators call it
        self.hosts += [(place, role if alone else f"{role}{i}", rule.access) for i, place in enumerate(vertices, 1)]
        return list(range(first, first + len(vertices)))

    def _free(self, rule: RoleRule) -> list[int]:
        """Vertices that host no node yet; hosts of their own can be attached anywhere."""
        return [v for v in range(len(self._names)) if rule.access is not None or v not in self._taken]

    def _nodes(self, role: str, rule: RoleRule, count: int | None) -> list[int]:
        vertices: list[int] = []
        for name in rule.nodes:
            if name not in self._ids:
                self._problem(role, repr(name), unknown(name, self._names, "vertex"))
            elif rule.access is None and (self._ids[name] in vertices or self._ids[name] in self._taken):
                other = self._taken.get(self._ids[name], role)
                self._problem(role, repr(name), f'is named twice: a vertex hosts one node, here "{other}"')
            else:
                vertices.append(self._ids[name])
        return vertices

    def _attribute(self, role: str, rule: RoleRule, count: int | None) -> list[int]:
        attribute, value = rule.attribute or "role", role if rule.value is None else rule.value
        data = [data for _, data in self._graph.nodes(data=True)]
        if not any(attribute in d for d in data):
            known = dict.fromkeys(str(name) for d in data for name in d)
            self._problem(role, repr(attribute), unknown(attribute, known, "attribute of vertices"))
            return []
        matching = [v for v in self._free(rule) if str(data[v].get(attribute)) == str(value)]
        return matching[:count]

    def _highest_betweenness(self, role: str, rule: RoleRule, count: int | None) -> list[int]:
        ids = {key: v for v, key in enumerate(self._graph)}
        edges = tuple((ids[u], ids[v]) for u, v in self._graph.edges())
        free = set(self._free(rule))
        ranked = by_betweenness(len(self._names), edges, self._graph.is_directed())
        return [v for v in ranked if v in free][:count or 1]

    def _leaves(self, role: str, rule: RoleRule, count: int | None) -> list[int]:
        keys = list(self._graph)
        simple = nx.Graph(self._graph)                  # parallel edges and both directions count once
        degree = [len(set(simple[key]) - {key}) for key in keys]
        if count is None:
            return [v for v in self._free(rule) if degree[v] == 1]
        return sorted(sorted(self._free(rule), key=lambda v: (degree[v], v))[:count])

    def _all(self, role: str, rule: RoleRule, count: int | None) -> list[int]:
        return self._free(rule)[:count]

    def _random(self, role: str, rule: RoleRule, count: int | None) -> list[int]:
        free = self._free(rule)
        if count is None:
            self._problem(role, "no count", "expected how many vertices to draw")
            return []
        stream = generator(self._seed, "topology/roles", role)
        if rule.access is not None:                     # every host finds a place of its own
            return [free[int(i)] for i in stream.integers(len(free), size=count)]
        return sorted(free[int(i)] for i in stream.permutation(len(free))[:count])


@lru_cache(maxsize=8)                                   # a scenario is built once a scheme
def by_betweenness(vertices: int, edges: tuple[tuple[int, int], ...], directed: bool) -> list[int]:
    """All vertices, those on most shortest paths by hops first; ties go to the lower id. O(vertices * edges)."""
    simple = nx.DiGraph() if directed else nx.Graph()
    simple.add_nodes_from(range(vertices))
    simple.add_edges_from(edges)
    between = nx.betweenness_centrality(simple)
    # rounded: equal by symmetry is not equal in floating point, and the lower id must win
    return sorted(range(vertices), key=lambda v: (-round(between[v], 9), v))
