"""The network: names, roles, routes and links of one topology under one list of rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from emul.base.errors import NetworkError, Problem, ScenarioError
from emul.network.classes import Joined, class_rules
from emul.network.graph.routing import ShortestPaths
from emul.network.graph.topology import (
    GENERATORS,
    SHAPES,
    STARS,
    Generated,
    Topology,
    TopologyError,
    TopologySpec,
    generated,
    unknown,
)
from emul.network.linkrecord import Row
from emul.network.links import fifo
from emul.network.links.flows import FlowLink, Flows, refuse_mixture
from emul.network.links.link import Link
from emul.network.links.transport import Arq, TcpCap
from emul.network.models.latency import Latency, latency, least_ns, typical_ns
from emul.network.models.loss import Outage, Timed, outage
from emul.network.models.profiles import Service
from emul.network.models.traces import TraceSpec
from emul.network.realisation import by_packet, realised
from emul.network.recorded import Realisation
from emul.network.recordedmodels import RecordedLatency
from emul.network.rules import LinkParameters, LinkRule, Resolver, rule_problems

NEVER = 2**62       # ns, 146 years: the latency to where nothing leads


class Network:
    """Vertices 0 .. n-1 with `names`; `roles` maps a role to its vertices in order, servers first, then clients.

    Links and routes are made on first use, so nothing grows with the number of pairs that never talk. `classes`: of
    each vertex what joins it to the network, None without; empty where the scenario has no such classes.
    """

    def __init__(self, topology: Topology, rules: Sequence[LinkRule], seed: int,
                 realisation: Realisation | None = None, joined: Joined | None = None):
        self.names = topology.names
        self.roles = topology.roles
        self._topology = topology
        self.classes = [] if joined is None else joined.links_of(topology.names, seed)
        self._resolver = Resolver([*implied(joined), *rules], topology.names, self.classes)
        self._rules = list(rules)
        self._seed = seed
        self._realisation = realisation
        self._drawn: dict[tuple[str, str], tuple[Outage | None, int | Latency | RecordedLatency]] = {}
        self._rates: dict[tuple[str, str], Service] = {}
        self._varies = (realisation is not None or topology.varies
                        or not all(isinstance(rule.latency_ns, int | None) for rule in rules))
        self._all_full = fifo.needs_all_full(rules)
        self._links: dict[tuple[int, int], Link | FlowLink] = {}
        self._alike: tuple[LinkParameters | None, Link] = None, Link(-1, -1)    # parameters, and an unused link of them
        self._least_out: dict[Any, int] = {}    # vertex, or kind of vertices -> least latency of the links out of it
        self._flows: Flows | None = None
        self._paths = ShortestPaths(len(self.names), topology.neighbours, self._typical_ns)

    def parameters(self, u: int, v: int) -> LinkParameters:
        """What the topology and the rules say of the link u -> v. Raises NetworkError if there is no such link."""
        if not self._topology.linked(u, v):
            raise NetworkError(f"there is no link {self.names[u]} -> {self.names[v]}")
        return self._resolver.parameters(u, v, self._topology.given(u, v))

    def bandwidth(self, u: int, v: int) -> int | float | TraceSpec | None:
        """That of the link, bit/s; None: infinite. Of traces that links draw, the one that this link follows."""
        found = self.parameters(u, v).bandwidth_bps
        return found.of(self._seed, self.names[u], self.names[v]) if isinstance(found, TraceSpec) else found

    def _typical_ns(self, u: int, v: int) -> int:
        """The median latency of a link: by these routes are chosen."""
        return typical_ns(self._resolver.latency_ns(u, v, self._topology.given(u, v)))

    def _least_ns(self, u: int, v: int) -> int:
        least = least_ns(self._resolver.latency_ns(u, v, self._topology.given(u, v)))
        if self._realisation is not None:
            least = self._realisation.least_ns(self.names[u], self.names[v], least)
        return least

    def link(self, u: int, v: int) -> Link | FlowLink:
        """The link u -> v, the same object at every call. Raises NetworkError if there is no such link."""
        link = self._links.get((u, v))
        if link is None:
            p = self.parameters(u, v)
            if p is self._alike[0]:             # of a generated topology nearly all links have the same parameters
                link = self._links[u, v] = self._alike[1].like(u, v)
                return link
            one_medium = p.duplex == "half" and self._topology.linked(v, u)
            if one_medium:
                wrong = fifo.half_duplex_problem(p, self.parameters(v, u), (self.names[u], self.names[v]))
                if wrong is not None:
                    raise NetworkError(f"{wrong.place}: {wrong.found}: {wrong.expected}")
            if p.sharing != "fifo":
                lost, delay = self._models(self.names[u], self.names[v], p)
                link = self._links[u, v] = self._flow_link(u, v, p, lost, delay)
                return link
            names = self.names[u], self.names[v]
            if one_medium:
                names = min(names), max(names)
            lost, delay = self._models(*names, p)
            link = self._links[u, v] = fifo.fifo_link(u, v, names, p, lost, delay, self._seed,
                                                      profile=self._rate(*names, p), full=self._all_full)
            if one_medium:
                self._links[v, u] = link
            elif type(link) is Link and lost is None and self._realisation is None and not self._rates:
                self._alike = p, fifo.fifo_link(u, v, names, p, None, link.latency_ns, self._seed)
        return link

    def _models(self, source: str, destination: str, p: LinkParameters,
                ) -> tuple[Outage | None, int | Latency | RecordedLatency]:
        """What a link loses, and how late it is: drawn from the streams of its ends' names, or as it was recorded."""
        lost = outage(p.outage, self._seed, source, destination)
        delay: int | Latency | RecordedLatency = latency(p.latency_ns, self._seed, source, destination)
        if self._realisation is not None:
            assert not isinstance(delay, RecordedLatency)
            recorded, delay = self._realisation.models(source, destination, lost, delay)
            lost = lost if _transport_draws(p, lost) else recorded
        if lost is not None or not isinstance(delay, int):
            self._drawn[source, destination] = lost, delay
        return lost, delay

    def _rate(self, source: str, destination: str, p: LinkParameters) -> Service | None:
        """The rate that varies, if the link has one. A service has no state: links may have equal ones."""
        profile: Service | None = None
        plain: Any = p.bandwidth_bps
        if isinstance(plain, TraceSpec):
            profile, plain = plain.of(self._seed, source, destination).service(), None
        if self._realisation is not None:
            profile = self._realisation.rate(source, destination, profile, plain)
        if profile is not None:
            self._rates[source, destination] = profile
        return profile

    def realised(self, end_ns: int) -> Iterator[Row]:
        """Every draw of the links that carried messages, until `end_ns`: asked of the models again, after the run."""
        if not self._drawn and not self._rates:
            return
        for (u, v), link in sorted(self._links.items()):
            names = self.names[u], self.names[v]
            if not isinstance(link, FlowLink) and self._links.get((v, u)) is link:
                if u > v:
                    continue                        # one medium, told with its other direction
                names = min(names), max(names)
            lost, delay = self._drawn.get(names, (None, 0))
            rate = self._rates.get(names)
            if lost is not None or rate is not None or not isinstance(delay, int):
                if _transport_draws(self.parameters(u, v), lost):
                    lost = None
                yield from realised(*names, lost, delay, link.offered(), end_ns, rate)

    def _flow_link(self, u: int, v: int, p: LinkParameters, lost: Outage | None,
                   delay: int | Latency | RecordedLatency) -> FlowLink:
        assert p.sharing != "fifo"
        if self._flows is None:
            self._flows = Flows(p.sharing)
        elif self._flows.sharing != p.sharing:
            raise refuse_mixture(self._flows.sharing, p.sharing)
        back = self._links.get((v, u)) if p.duplex == "half" else None
        profile = self._rate(self.names[u], self.names[v], p)
        rate: Any = p.bandwidth_bps if profile is None else None
        number = back.number if isinstance(back, FlowLink) else self._flows.link(rate, profile)
        return FlowLink(self._flows, number, u, v, delay, rate if profile is None else "profile", lost,
                        p.overhead_bytes, p.mtu, p.transport if isinstance(p.transport, TcpCap) else None)

    @property
    def flows(self) -> Flows:
        """The flows on the links that share bandwidth. There is at least one such link."""
        assert self._flows is not None
        return self._flows

    def links(self) -> list[Link | FlowLink]:
        """The links made so far, ordered by their ends."""
        return [self._links[ends] for ends in sorted(self._links)]

    def latencies(self) -> dict[tuple[int, int], int]:
        """(vertex, next vertex) -> ns, of the links made so far."""
        return {(link.src, link.dst): link.latency_ns for link in self._links.values()}

    def pairs(self) -> Iterator[tuple[int, int]]:
        """(u, v) of links, at least one of each kind that rules and topology tell apart."""
        some = range(len(self.names))
        if isinstance(self._topology, Generated):       # links are not listed, but all vertices of a kind are alike
            kinds: dict[Any, list[int]] = {}
            for v in some:
                alike = kinds.setdefault(self._kind(v), [])
                if len(alike) < 2:
                    alike.append(v)
            chosen = [v for alike in kinds.values() for v in alike]
            yield from ((u, v) for u in chosen for v in chosen if self._topology.linked(u, v))
        else:
            yield from ((u, v) for u in some for v in self._topology.neighbours(u))

    def unordered(self) -> list[tuple[int, int]]:
        """The (source, destination) of the links made so far on which a message can leave before an earlier one."""
        return sorted(ends for ends, link in self._links.items() if isinstance(link, FlowLink) or link.cut)

    @property
    def listed_links(self) -> int:
        """How many links the topology lists, one for each direction; those of stars and meshes are not listed."""
        vertices = () if isinstance(self._topology, Generated) else range(len(self.names))
        return sum(1 for u in vertices for _ in self._topology.neighbours(u))

    def route(self, u: int, v: int) -> tuple[int, ...]:
        """The vertices from u to v, both included; (u,) for u itself. Raises NetworkError if v cannot be reached."""
        if isinstance(self._topology, Generated):
            return self._topology.route(u, v, self._typical_ns)
        route = self._paths.route(u, v)
        if route is None:
            raise self._unreachable(u, v)
        return route

    def _unreachable(self, u: int, v: int) -> NetworkError:
        return NetworkError(f"{self.names[v]} cannot be reached from {self.names[u]}: no links lead there")

    def latency_ns(self, u: int, v: int) -> int:
        """The least time from u to v: the sum of the least latencies along the route, 0 for u itself.

        The latencies as built, so a bound only while no fault lowers one. Raises NetworkError if unreachable.
        """
        if isinstance(self._topology, Generated) or self._varies:
            return sum(self._least_ns(a, b) for a, b in pairwise(self.route(u, v)))
        along = self._paths.latency_ns(u, v)
        if along is None:
            raise self._unreachable(u, v)
        return along

    def out_latency_ns(self, u: int) -> int:
        """How far the kernel may look ahead past u: the least latency of its links as built, NEVER without any.

        0 if one of them is half-duplex: what u sends there contends at once with what its other end sends.
        """
        kind = self._kind(u)
        least = self._least_out.get(kind)
        if least is None:
            least = self._least_out[kind] = self._find_least_out(u)
        return least if self._realisation is None else self._realisation.least_out_ns(self.names[u], least)

    def _kind(self, v: int) -> Any:
        """The same for vertices whose links are alike: of the vertices of a generator there are few kinds."""
        if isinstance(self._topology, Generated):
            return self.rules_met(v), self._topology.is_hub(v)
        return v

    def _find_least_out(self, u: int) -> int:
        mine = self._resolver.source_masks[u]
        groups = self._topology.neighbour_groups(u, self._resolver.destination_masks)
        links = (self._resolver.duplex_and_latency(mine & mask, given) for mask, given in groups)
        return min((0 if duplex == "half" else least_ns(latency) for duplex, latency in links), default=NEVER)

    def mentions(self, u: int, v: int, field: str) -> bool:
        """Whether a rule that matches the link u -> v sets this field of LinkRule."""
        return self._resolver.mentions(u, v, field)

    def warnings(self) -> list[str]:
        """What works, and is probably not what was meant: attributes that nothing uses, links without bandwidth."""
        return self._topology.warnings(self.mentions)

    def unused_attributes(self) -> Mapping[tuple[str, str], int]:
        """("edges" or "vertices", attribute of the topology's file) -> how many have it without an effect."""
        return self._topology.unused

    def rules_met(self, v: int) -> tuple[int, int]:
        """The same for vertices that no rule tells apart."""
        return self._resolver.source_masks[v], self._resolver.destination_masks[v]

    def latency_rules(self) -> tuple[list[tuple[int, int]], dict[int, int]]:
        """Vertex -> its masks as source and as destination; and bit of a rule -> the median latency that it says, ns.

        Of the bits that a link's ends share the highest one that says a latency counts.
        """
        said = {bit: typical_ns(rule.latency_ns) for bit, rule in enumerate(self._resolver.rule_of_bits())
                if rule.latency_ns is not None}
        return list(zip(self._resolver.source_masks, self._resolver.destination_masks, strict=True)), said

    @property
    def topology(self) -> Topology:
        """What the network was built from."""
        return self._topology

    def unmatched_rules(self) -> list[LinkRule]:
        """The rules that match no link, in their order: most likely a name that is not in the topology."""
        directions = self._resolver.directions()
        used = {id(rule) for rule, sources, destinations in directions
                if self._topology.any_link(sources, destinations)}
        return [rule for rule in self._rules if id(rule) not in used]


def _transport_draws(p: LinkParameters, lost: Outage | None) -> bool:
    """Whether the fates of a link are not those of its outage, but its transport's: nothing to record or replay."""
    if isinstance(p.transport, TcpCap):
        return not isinstance(lost, Timed)          # its pauses are the outage's own
    return isinstance(p.transport, Arq) and by_packet(lost)


def implied(joined: Joined | None) -> list[LinkRule]:
    """The rules that come before a scenario's own: those of the classes that join nodes to the network."""
    return [] if joined is None else class_rules(joined.link_classes())


def build(topology: TopologySpec, rules: Sequence[LinkRule], seed: int, realisation: Realisation | None = None,
          joined: Joined | None = None) -> Network:
    """The network of a topology under rules. Raises NetworkError with everything that is wrong with either.

    realisation: a record whose draws take the place of those of the rules' models. joined: classes of nodes' own links.
    """
    problems = rule_problems(rules)
    if problems:
        raise NetworkError(str(ScenarioError("links", problems)))
    places = _places(topology, seed)
    network = Network(places, rules, seed, realisation, joined)
    problems = places.problems(network.parameters, network.mentions)
    if problems:
        raise TopologyError(str(topology.file or ("graph" if topology.generator is None else "topology")), problems)
    problems = fifo.problems(network, rules)
    if problems:
        raise fifo.LinksError(problems)
    return network


def _places(spec: TopologySpec, seed: int) -> Topology:
    given = [name for name in ("generator", "file", "graph") if getattr(spec, name) is not None]
    if len(given) != 1:
        raise NetworkError(f"topology: expected one of generator, file, graph; found {' and '.join(given) or 'none'}")
    if spec.generator in STARS:
        return generated(spec)
    if given == ["generator"] and spec.generator not in SHAPES:
        raise TopologyError("topology", [Problem("topology.generator", repr(spec.generator), unknown(
            str(spec.generator), GENERATORS, "generator"), spec.line)])
    # here, since networkx takes 0.2 s to import and stars need none of it
    from emul.network.graph.graphs import from_spec

    return from_spec(spec, seed)
