"""The network: names, roles, routes and links of one topology under one list of rules."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from emul.base.errors import NetworkError, ScenarioError
from emul.network.link import Link
from emul.network.loss import outage
from emul.network.routing import ShortestPaths
from emul.network.rules import LinkParameters, LinkRule, Resolver, rule_problems
from emul.network.topology import Generated, Topology, TopologySpec, generated

NEVER = 2**62       # ns, 146 years: the latency to where nothing leads


class Network:
    """Vertices 0 .. n-1 with `names`; `roles` maps a role to its vertices in order, servers first, then clients.

    Links and routes are made on first use, so nothing grows with the number of pairs that never talk.
    """

    def __init__(self, topology: Topology, rules: Sequence[LinkRule], seed: int):
        self.names = topology.names
        self.roles = topology.roles
        self._topology = topology
        self._resolver = Resolver(rules, topology.names)
        self._rules = list(rules)
        self._seed = seed
        self._links: dict[tuple[int, int], Link] = {}
        self._least_out: dict[int, int] = {}
        self._paths = ShortestPaths(len(self.names), topology.neighbours, self._link_latency_ns)

    def parameters(self, u: int, v: int) -> LinkParameters:
        """What the topology and the rules say of the link u -> v. Raises NetworkError if there is no such link."""
        if not self._topology.linked(u, v):
            raise NetworkError(f"there is no link {self.names[u]} -> {self.names[v]}")
        return self._resolver.parameters(u, v, self._topology.given(u, v))

    def _link_latency_ns(self, u: int, v: int) -> int:
        return self._resolver.parameters(u, v, self._topology.given(u, v)).latency_ns or 0

    def link(self, u: int, v: int) -> Link:
        """The link u -> v, the same object at every call. Raises NetworkError if there is no such link."""
        link = self._links.get((u, v))
        if link is None:
            p = self.parameters(u, v)
            lost = outage(p.outage, self._seed, self.names[u], self.names[v])
            link = self._links[u, v] = Link(u, v, p.latency_ns or 0, p.bandwidth_bps, lost, p.overhead_bytes, p.mtu)
        return link

    def links(self) -> list[Link]:
        """The links made so far, ordered by their ends."""
        return [self._links[ends] for ends in sorted(self._links)]

    def route(self, u: int, v: int) -> tuple[int, ...]:
        """The vertices from u to v, both included; (u,) for u itself. Raises NetworkError if v cannot be reached."""
        if isinstance(self._topology, Generated):
            return self._topology.route(u, v, self._link_latency_ns)
        route = self._paths.route(u, v)
        if route is None:
            raise self._unreachable(u, v)
        return route

    def _unreachable(self, u: int, v: int) -> NetworkError:
        return NetworkError(f"{self.names[v]} cannot be reached from {self.names[u]}: no links lead there")

    def latency_ns(self, u: int, v: int) -> int:
        """The least time from u to v: the sum of the latencies along the route, 0 for u itself.

        The latencies as built, so a bound only while no fault lowers one. Raises NetworkError if unreachable.
        """
        if isinstance(self._topology, Generated):
            return sum(self._link_latency_ns(a, b) for a, b in pairwise(self.route(u, v)))
        latency = self._paths.latency_ns(u, v)
        if latency is None:
            raise self._unreachable(u, v)
        return latency

    def out_latency_ns(self, u: int) -> int:
        """The least latency of u's outgoing links as built, NEVER (2**62) where it has none."""
        least = self._least_out.get(u)
        if least is None:
            least = self._least_out[u] = self._find_least_out(u)
        return least

    def _find_least_out(self, u: int) -> int:
        mine = self._resolver.source_masks[u]
        groups = self._topology.neighbour_groups(u, self._resolver.destination_masks)
        latencies = (self._resolver.by_mask(mine & mask, given).latency_ns or 0 for mask, given in groups)
        return min(latencies, default=NEVER)

    def unmatched_rules(self) -> list[LinkRule]:
        """The rules that match no link, in their order: most likely a name that is not in the topology."""
        directions = self._resolver.directions()
        used = {id(rule) for rule, sources, destinations in directions
                if self._topology.any_link(sources, destinations)}
        return [rule for rule in self._rules if id(rule) not in used]


def build(topology: TopologySpec, rules: Sequence[LinkRule], seed: int) -> Network:
    """The network of a topology under rules. Raises NetworkError with everything that is wrong with either."""
    problems = rule_problems(rules)
    if problems:
        raise NetworkError(str(ScenarioError("links", problems)))
    places = _places(topology, seed)
    network = Network(places, rules, seed)
    problems = places.problems(network.parameters)
    if problems:
        raise NetworkError(str(ScenarioError(str(topology.file or "graph"), problems)))
    return network


def _places(spec: TopologySpec, seed: int) -> Topology:
    given = [name for name in ("generator", "file", "graph") if getattr(spec, name) is not None]
    if len(given) != 1:
        raise NetworkError(f"topology: expected one of generator, file, graph; found {' and '.join(given) or 'none'}")
    if given == ["generator"]:
        return generated(spec)
    # here, since networkx takes 0.2 s to import and generators need none of it
    from emul.network.graphs import from_spec

    return from_spec(spec, seed)
