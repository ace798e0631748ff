"""Topologies from graphs: networkx's, those in files, and generated ones: names, links with what is stated of them.

A vertex is a place: it may host one node of a scheme, or have hosts attached by access links (module `roles`), and
forwards what passes unless the topology says `forward: false`. Edges of an undirected graph are links in both
directions; where a pair stands there in both orders, each direction has the values of its own row. Two rows of one
direction with different values are a mistake, unless `repeated` or the file itself (a multigraph) says what they are.
Self-loops are left out (sending to oneself needs no network); of Shadow they are the way between two hosts of a place.
Module `attributes` says what attributes mean; latencies by distance and the capacity rule fill in what a file leaves
open, and the rules of a scenario override them all.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import networkx as nx
from msgspec.structs import replace

from emul.base.errors import NetworkError, Problem
from emul.base.plain import PlainDict, is_number
from emul.network.graph.attributes import DESCRIPTIVE, Attributes
from emul.network.graph.constellation import KIND, PLANE, graph_of
from emul.network.graph.generators import shape
from emul.network.graph.geo import LENGTH_ATTRIBUTES, PLACE_ATTRIBUTES, Positions, positions
from emul.network.graph.matrix import matrix_graph
from emul.network.graph.readers import read_graph
from emul.network.graph.reading import FIRST, LINE, OF_READERS, PLACE, STATISTICS, Statistic
from emul.network.graph.roles import Roles
from emul.network.graph.topology import DIALECTS, Access, Mentioned, TopologyError, TopologySpec, shortened, unknown
from emul.network.models.outages import OutageSpec
from emul.network.rules import LinkParameters

_ALL = 'a rule {match: "*", ...} serves all links'
_NOTHING_STATED = LinkParameters()
Ends = tuple[int, int]


class GraphTopology:
    """A topology whose links are listed: `given` maps (u, v) to the parameters that the graph states.

    positions: where the vertices are. unused: ("edges" or "vertices", attribute) -> how many have it for nothing.
    silent: links of whose bandwidth the topology says nothing; measured: their latencies come from distances.
    notes: further warnings.
    """

    def __init__(self, names: list[str], roles: dict[str, list[int]], given: dict[Ends, LinkParameters],
                 positions: Positions, unused: Counter[tuple[str, str]], silent: set[Ends], measured: bool, where: str,
                 forward: bool, place_of: Mapping[int, int], notes: Sequence[str]):
        self.names = names
        self.roles = roles
        self.forward = forward
        self.place_of = place_of
        self._notes = notes
        self.positions = positions
        self.unused: Mapping[tuple[str, str], int] = unused
        self.where = where
        self._given = given
        self._silent = sorted(silent)
        self._measured = measured
        self.varies = any(not isinstance(p.latency_ns, int | None) for p in given.values())
        self._neighbours: list[list[int]] = [[] for _ in names]
        for u, v in sorted(given):
            self._neighbours[u].append(v)

    def linked(self, u: int, v: int) -> bool:
        return (u, v) in self._given

    def neighbours(self, u: int) -> list[int]:
        return self._neighbours[u]

    def given(self, u: int, v: int) -> LinkParameters:
        """The attributes that the graph states of the link u -> v. Raises KeyError where there is none."""
        return self._given[u, v]

    def neighbour_groups(self, u: int, masks: list[int]) -> Iterator[tuple[int, LinkParameters]]:
        """One pair a link, for what a graph states may differ from link to link."""
        return ((masks[v], self._given[u, v]) for v in self._neighbours[u])

    def any_link(self, sources: frozenset[int], destinations: frozenset[int]) -> bool:
        return any(v in destinations for u in sources for v in self._neighbours[u])

    def problems(self, parameters: Callable[[int, int], LinkParameters], mentioned: Mentioned) -> list[Problem]:
        """Links without a latency once the rules are applied; with latencies by distance, without a bandwidth, too."""
        bare = [(u, v) for (u, v), p in self._given.items()       # no rule takes away what is stated
                if p.latency_ns is None and parameters(u, v).latency_ns is None]
        found = shortened([self._no_latency(*edge) for edge in _edges(bare)], _ALL)
        if self._measured:          # a map says where links lead, not what they carry: nobody meant infinite ones
            edges = _edges(self._without_capacity(mentioned))
            found += shortened([self._no_capacity(*edge) for edge in edges], "topology.capacity serves all links")
        return found

    def warnings(self, mentioned: Mentioned) -> list[str]:
        """Attributes that nothing uses, and links without a bandwidth, which count as infinitely fast."""
        found = [f'{self.where}: nothing uses the attribute "{name}" of {count} {kind}'
                 for (kind, name), count in sorted(self.unused.items()) if name not in DESCRIPTIVE]
        found += self._notes
        bare = list(_edges(self._without_capacity(mentioned)))
        if bare:
            some = self._ends(*bare[0])
            found.append(f"{self.where}: {len(bare)} edges, such as {some}, have no bandwidth and count as infinitely "
                         "fast: give topology.capacity, or a rule with a bandwidth (infinite says that it is meant)")
        return found

    def _without_capacity(self, mentioned: Mentioned) -> list[Ends]:
        return [(u, v) for u, v in self._silent if not mentioned(u, v, "bandwidth_bps")]

    def _ends(self, u: int, v: int, both: bool) -> str:
        return f"{self.names[u]}{'<->' if both else '->'}{self.names[v]}"

    def _no_latency(self, u: int, v: int, both: bool) -> Problem:
        ends = self._ends(u, v, both)
        expected = f'expected the attribute latency, or a rule such as {{match: "{ends}", latency: 20 ms}}'
        if self.positions.km(u, v) is not None and not self._measured:
            expected += ", or topology.latency: distance"
        return Problem(f"edge {ends}", "no latency", expected)

    def _no_capacity(self, u: int, v: int, both: bool) -> Problem:
        ends = self._ends(u, v, both)
        expected = ("expected a capacity rule, such as topology.capacity: 1 Gbit/s, or "
                    f'{{match: "{ends}", bandwidth: ...}}; infinite says that it is meant')
        return Problem(f"edge {ends}", "no bandwidth", expected)


def _edges(links: list[Ends]) -> Iterator[tuple[int, int, bool]]:
    """(u, v, both directions) of links: an edge once, not its two directions."""
    there = set(links)
    return ((u, v, (v, u) in there) for u, v in links if u <= v or (v, u) not in there)


def from_spec(spec: TopologySpec, seed: int) -> GraphTopology:
    """The topology of `spec.file`, `spec.graph` or a shape. Raises NetworkError with all that is wrong."""
    where = "graph" if spec.graph is not None else spec.where
    notes: list[str] = []
    if spec.matrix is not None:
        graph, notes = matrix_graph(spec)
        plane = None
    else:
        graph, plane = _graph(spec, seed)
    if not isinstance(graph, nx.Graph):
        raise NetworkError(f"{where}: {type(graph).__name__}: expected a networkx graph")
    if not graph:
        raise NetworkError(f"{where}: no vertices: expected one at least")
    if spec.dialect is not None and spec.dialect not in DIALECTS:
        raise TopologyError("topology", [Problem("topology.dialect", repr(spec.dialect),
                                                 unknown(str(spec.dialect), DIALECTS, "dialect"), spec.line)])
    return _TopologyBuilder(spec, graph, plane, where, seed, notes).topology()


def _graph(spec: TopologySpec, seed: int) -> tuple[object, Positions | None]:
    if spec.generator is not None:
        return shape(spec, seed)
    if spec.constellation is not None:
        return graph_of(spec.constellation)
    return (spec.graph if spec.file is None else read_graph(spec.file)), None


_SAID = {"latency_ns": "latency", "bandwidth_bps": "bandwidth", "outage": "loss", "length_km": "length"}


def _together(values: list[Any], rule: Statistic) -> Any:
    """One value of several measurements, losses included; None: they are of several kinds."""
    if rule is STATISTICS["first"]:
        return values[0]
    if all(isinstance(one, OutageSpec) and one.per == values[0].per for one in values):
        return OutageSpec(float(rule([one.p for one in values])), values[0].per)
    if all(isinstance(one, int | float) for one in values):
        found = rule(values)
        return round(found) if all(isinstance(one, int) for one in values) else found
    return None


class _TopologyBuilder:
    """Puts one topology together; what is wrong is collected, and raised at the end."""

    def __init__(self, spec: TopologySpec, graph: nx.Graph, plane: Positions | None, where: str, seed: int,
                 notes: list[str]):
        self._spec = spec
        self._graph = graph
        self._where = where
        self._names, self._problems = _names(graph)
        if plane is None:
            self._positions, wrong = positions(graph, self._names)
            self._problems += shortened(wrong)
        else:
            self._positions = plane
        self._attributes = Attributes(spec.dialect, spec.capacity, self._used())
        self._given: dict[Ends, LinkParameters] = {}
        self._notes = notes
        self._parallel: dict[Ends, str] = {}                # pairs with several cables that differ -> where two stand
        self._silent: set[Ends] = set()                     # links without a bandwidth
        self._lengths: dict[Ends, float] = {}               # stated, in km
        self._chosen = Roles(spec, graph, self._names, seed)

    def topology(self) -> GraphTopology:
        caps = self._vertices()
        wrong = self._edges()
        self._problems += shortened(wrong, _ALL)
        if self._spec.latency is not None:
            self._problems += shortened(self._measure(), "a rule with a latency serves those, too")
        self._fill(caps)
        self._problems += self._chosen.problems
        if self._problems:
            raise TopologyError(self._where, self._problems)
        place_of = self._attach(caps)
        return GraphTopology(self._names, self._chosen.roles, self._given, self._positions, self._attributes.unused,
                             self._silent, self._spec.latency is not None, self._where, self._spec.forwards,
                             place_of, self._notes)

    def _used(self) -> list[str]:
        """The attributes that are read elsewhere than by `Attributes`."""
        used = [rule.attribute or "role" for rule in self._spec.roles.values() if rule.rule == "attribute"]
        if not self._spec.roles:
            used.append("role")
        if self._spec.constellation is not None:
            used += [KIND, PLANE]
        if self._spec.latency is not None:
            used += [*LENGTH_ATTRIBUTES, "pos", *(name for pair in PLACE_ATTRIBUTES for name in pair)]
        return used

    def _vertices(self) -> list[dict[str, int]]:
        caps, problems = [], []
        for (_, data), name in zip(self._graph.nodes(data=True), self._names, strict=True):
            rates, wrong = self._attributes.vertex(data, f"vertex {name}")
            caps.append(rates)
            problems += wrong
        self._problems += shortened(problems)
        return caps

    def _edges(self) -> list[Problem]:
        if self._spec.generator is not None:    # undirected; its vertices are their numbers, and its edges say nothing
            for u, v in self._graph.edges:
                if u != v:
                    self._given[u, v] = self._given[v, u] = _NOTHING_STATED
            self._silent.update(self._given)
            return self._attributes.no_such(())
        names, ids = self._names, {key: v for v, key in enumerate(self._graph)}
        directed = self._graph.is_directed()
        with_loops = {place for place, _, _ in self._chosen.hosts} if self._spec.dialect == "shadow" else set[int]()
        problems: list[Problem] = []
        seen: dict[str, None] = {}
        rows: dict[Ends, list[PlainDict]] = {}                  # as written: fields of the link, and where it stands
        for a, b, data in self._graph.edges(data=True):
            u, v = ids[a], ids[b]
            seen |= dict.fromkeys(map(str, data))
            if u == v and u not in with_loops:
                continue
            place = f"edge {names[u]}{'->' if directed else '<->'}{names[v]}"
            stated, wrong = self._attributes.edge(data, place)
            problems += wrong
            stated |= {PLACE: data.get(PLACE), LINE: data.get(LINE)}
            length = self._length(data, place, problems)
            if length is not None:
                stated["length_km"] = length
            swapped = not directed and FIRST in data and data[FIRST] != a
            rows.setdefault((v, u) if swapped else (u, v), []).append(stated)
        problems += self._attributes.no_such(name for name in seen if name not in OF_READERS)
        found = {ends: self._one_of(ends, each, problems) for ends, each in rows.items()}
        for u, v in list(found):
            for ends in [(u, v)] if directed else [(u, v), (v, u)]:
                # an edge of an undirected graph is one for both directions, as far as the other one says nothing
                stated = found.get(ends[::-1], {}) | found.get(ends, {}) if not directed else found[ends]
                length = stated.pop("length_km", None)
                self._given[ends] = LinkParameters(**stated)
                if "bandwidth_bps" not in stated:
                    self._silent.add(ends)
                if length is not None:
                    self._lengths[ends] = length
        if self._parallel:
            (u, v), lines = next(iter(self._parallel.items()))
            self._notes.append(f"{self._where}: parallel edges have different values, of which the first counts unless "
                               f"topology.repeated says another rule: {self._names[u]}->{self._names[v]} ({lines})"
                               + (f" and {len(self._parallel) - 1} more" if len(self._parallel) > 1 else ""))
        return problems

    def _one_of(self, ends: Ends, rows: list[PlainDict], problems: list[Problem]) -> PlainDict:
        """The values of a link by all rows of its pair and direction."""
        names = self._names
        rule: str | None = self._spec.repeated
        if rule is None and self._graph.is_multigraph() and self._graph.graph.get("multigraph", True):
            rule = "several"
        found: PlainDict = {}
        for field in dict.fromkeys(key for row in rows for key in row if key not in OF_READERS):
            having = [row for row in rows if field in row]
            values = [row[field] for row in having]
            found[field] = values[0]
            if all(value == values[0] for value in values[1:]):
                continue
            both = having[0], next(row for row in having if row[field] != values[0])
            lines = " and ".join(f"line {row[LINE]}" if row[LINE] is not None else str(row[PLACE]) for row in both)
            if rule in STATISTICS:
                found[field] = _together(values, STATISTICS[rule])
            elif rule == "several":
                self._parallel[ends] = lines
            if rule is None or (rule in ("mean", "median") and found[field] is None):
                place = f"edge {names[ends[0]]}->{names[ends[1]]}"
                problems.append(Problem(place, lines, (
                    f"say different things of its {_SAID.get(field, field)}: expected every pair once in each "
                    "direction; of measurements topology.repeated: mean, median or first; of parallel cables "
                    'multigraph 1 in GML, or "multigraph": true in JSON'), both[1][LINE]))
        return found

    def _length(self, data: PlainDict, place: str, problems: list[Problem]) -> float | None:
        """Of an edge, in km, where its file states it and somebody wants to know."""
        name = next((name for name in LENGTH_ATTRIBUTES if name in data), None)
        if name is None or self._spec.latency is None:
            return None
        value = data[name]
        if not is_number(value) or not 0 <= value <= 1e6:      # refuses NaN
            problems.append(Problem(f"{place}, {name}", repr(value), "expected a length in km", data.get(LINE)))
            return None
        return float(value)

    def _measure(self) -> list[Problem]:
        """Latencies by distance, for links that have none."""
        rule, problems, names = self._spec.latency, [], self._names
        assert rule is not None
        for (u, v), p in self._given.items():
            if p.latency_ns is not None:
                continue
            km = self._lengths.get((u, v), self._positions.km(u, v))
            if km is not None:
                self._given[u, v] = replace(p, latency_ns=rule.latency_ns(km))
            elif u < v or (v, u) not in self._given:
                problems.append(Problem(f"edge {names[u]}<->{names[v]}", "no length", "expected coordinates (Latitude "
                                        "and Longitude) of both ends, or the attribute dist in km"))
        return problems

    def _fill(self, caps: list[dict[str, int]]) -> None:
        """The default of the capacity rule, the limits of vertices, and the latency that generated links begin with."""
        default = self._spec.capacity.default_bps if self._spec.capacity is not None else None
        if self._spec.generator is not None and self._spec.latency is None:
            # its vertices have no limits, and its links are infinite until a rule says otherwise, as in a star
            alike = LinkParameters(latency_ns=0, bandwidth_bps=None if default == "infinite" else default)
            self._given = dict.fromkeys(self._given, alike)
            self._silent.clear()
            return
        hosting = {v for vertices in self._chosen.roles.values() for v in vertices}     # nodes without access links
        for (u, v), p in self._given.items():
            bandwidth: Any = p.bandwidth_bps
            if (u, v) in self._silent and default is not None:
                bandwidth = None if default == "infinite" else default
                self._silent.discard((u, v))
            limits = [x for x in (bandwidth, caps[u].get("up"), caps[v].get("down"),
                                  caps[u].get("host_up") if u in hosting else None,
                                  caps[v].get("host_down") if v in hosting else None) if x is not None]
            if limits and min(limits) != p.bandwidth_bps:
                bandwidth = min(limits)
                self._silent.discard((u, v))
            self._given[u, v] = replace(p, bandwidth_bps=bandwidth)

    def _attach(self, caps: list[dict[str, int]]) -> dict[int, int]:
        """The hosts of roles with `access`, each a vertex with one link, at the position of its place. Returns that."""
        wanted = self._names + [name for _, name, _ in self._chosen.hosts]
        points = list(self._positions.points)
        place_of: dict[int, int] = {}
        for host, (place, _, access) in enumerate(self._chosen.hosts, len(self._names)):
            points.append(points[place])
            place_of[host] = place
            for ends, own in (((place, host), "host_down"), ((host, place), "host_up")):
                self._given[ends], silent = self._access(access, caps[place].get(own))
                if silent:
                    self._silent.add(ends)
        self._names = _unique(wanted)
        self._positions = Positions(tuple(points), self._positions.plane)
        return place_of

    def _access(self, access: Access, own_bps: int | None) -> tuple[LinkParameters, bool]:
        """(the link of a host, whether nobody states its bandwidth). own_bps: of each host of its place."""
        spec, latency, bandwidth = self._spec, access.latency_ns, access.bandwidth_bps
        if latency is None and spec.latency is not None:
            latency = spec.latency.latency_ns(0)
        if latency is None and (spec.generator is not None or spec.dialect == "shadow"):
            latency = 0
        if bandwidth is None and own_bps is None and spec.capacity is not None:
            bandwidth = spec.capacity.default_bps
        silent = bandwidth is None and own_bps is None and (spec.generator is None or spec.latency is not None)
        limits = [x for x in (None if bandwidth == "infinite" else bandwidth, own_bps) if x is not None]
        return LinkParameters(latency_ns=latency, bandwidth_bps=min(limits, default=None)), silent


def _names(graph: nx.Graph) -> tuple[list[str], list[Problem]]:
    """Names in the order of the graph: `label`, else `name`, else the key; the second "Rome" is "Rome#2"."""
    # a label 0 is a label; an empty one is none
    wanted = [next(text for one in (data.get("label"), data.get("name"), key, "?")
                   if one is not None and (text := re.sub(r"\s*[\n\r\t]\s*", " ", str(one)).strip()))
              for key, data in graph.nodes(data=True)]
    problems = [Problem("vertex", repr(name), 'expected a name without "->", which rules use')
                for name in wanted if "->" in name]
    return _unique(wanted), problems


def _unique(wanted: list[str]) -> list[str]:
    names: list[str] = []
    taken, seen = set(wanted), dict.fromkeys(wanted, 0)
    for name in wanted:
        seen[name] += 1
        unique = name
        while seen[name] > 1 and unique in taken:
            unique = f"{name}#{seen[name]}"
            seen[name] += unique in taken       # a label may look like this, too
        taken.add(unique)
        names.append(unique)
    return names
