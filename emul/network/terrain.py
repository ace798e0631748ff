"""The topology as its nodes may know it: who is next to whom, who is nearest, how far it is.

The coordinator draws a chart, plain values that a worker is told (`chart`); both sides read it (`Terrain`). A value is
computed when it is first asked for. Latencies are those by which routes are chosen: medians, as built, without what
faults do to them; transmission and queues come on top. Of links with contacts a chart has the plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from heapq import heappop, heappush, merge
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from emul.base.errors import NetworkError
from emul.base.plain import PlainDict, PlainMapping
from emul.network.graph.routing import Ways
from emul.network.graph.topology import Generated
from emul.network.models.latency import typical_ns
from emul.network.models.profiles import NEVER
from emul.network.network import Network

IntArray = npt.NDArray[np.int64]


def chart(network: Network, vertices: Sequence[int]) -> PlainDict:
    """The topology as plain values. vertices: node -> vertex.

    hubs, mesh: of a topology that lists no links. links: of one that does: source, target and latency of each.
    forward, place_of: as the topology has them, the latter as hosts and their places.
    said: bit of a rule -> latency that it says, ns. masks: the pairs of masks that occur; classes: vertex -> its pair.
    contacts: of each link that a plan names source, target, latency and number of contacts; plan: beginnings, ends and
    rates of all these contacts, one link after the other.
    """
    topology = network.topology
    pairs, said = network.latency_rules()
    distinct = {pair: number for number, pair in enumerate(dict.fromkeys(pairs))}
    found = {"vertices": _packed(vertices), "classes": _packed([distinct[pair] for pair in pairs]),
             "masks": [[format(mask, "x") for mask in pair] for pair in distinct], "said": said,
             "forward": topology.forward,
             "place_of": [_packed([*topology.place_of]), _packed([*topology.place_of.values()])]}
    planned = network.planned.links
    if planned:
        found |= {"contacts": [_packed(column) for column in zip(*(
                      (u, v, one.typical_ns, len(one)) for (u, v), one in planned.items()), strict=True)],
                  "plan": [b"".join(_packed(column) for column in columns) for columns in zip(*(
                      (one.begins, one.ends, one.rates_bps) for one in planned.values()), strict=True)]}
    if isinstance(topology, Generated):
        return found | {"hubs": topology.hubs, "mesh": topology.mesh}
    links = [(u, v, typical_ns(topology.given(u, v).latency_ns))
             for u in range(len(network.names)) for v in topology.neighbours(u)]
    return found | {"links": [_packed([link[i] for link in links]) for i in range(3)]}


def _packed(values: Sequence[int]) -> bytes:
    return np.asarray(values, "<i8").tobytes()


def _unpacked(data: bytes) -> list[int]:
    found: list[int] = np.frombuffer(data, "<i8").tolist()
    return found


class _Planned(NamedTuple):
    """The contacts of a link: its median latency, and of each contact the beginning, the end and the rate, (n,) int64.
    """

    typical_ns: int
    begins: IntArray
    ends: IntArray
    rates_bps: IntArray


def _windows(planned: _Planned, hop: int, from_ns: int) -> Iterator[tuple[int, int | None, int, int]]:
    """As `Terrain.contacts`, of one link."""
    for i in range(int(np.searchsorted(planned.ends, from_ns, side="right")), len(planned.ends)):
        end = int(planned.ends[i])
        yield int(planned.begins[i]), None if end == NEVER else end, int(planned.rates_bps[i]), hop


def _sent(planned: _Planned, now_ns: int, bits: int) -> int | None:
    """The time at which so many bits that come at `now_ns` are transmitted in contacts, over their gaps; None: never.
    """
    work = bits * 10**9
    for i in range(int(np.searchsorted(planned.ends, now_ns, side="right")), len(planned.ends)):
        begin, end, rate = max(now_ns, int(planned.begins[i])), int(planned.ends[i]), int(planned.rates_bps[i])
        if work <= (end - begin) * rate:
            return begin + -(-work // rate)
        work -= (end - begin) * rate
    return None


class Terrain:
    """Answers by the numbers of nodes. Raises NetworkError where no links lead."""

    # Each worker of a scheme with `knows_topology` has a copy of the links, 24 MB for a plan of 10^6 contacts. To ask
    # the coordinator, a worker would have to wait within an activation; to tell all answers, 100,000 clients have 10^10
    # pairs. The searches are the network's own (`test_ways_are_those_of_the_network`).

    def __init__(self, chart: PlainMapping):
        self._vertices = _unpacked(chart["vertices"])                   # node -> vertex
        self._node_at = {vertex: node for node, vertex in enumerate(self._vertices)}
        self._classes = _unpacked(chart["classes"])
        self._masks = [(int(source, 16), int(target, 16)) for source, target in chart["masks"]]
        self._said: dict[int, int] = {int(bit): ns for bit, ns in chart["said"].items()}
        self._saying = sum(1 << bit for bit in self._said)              # bits of the rules that say a latency
        self._given: dict[tuple[int, int], int] = {}
        self._links: list[list[int]] = []
        self._stars: Generated | None = None
        self._nearest: dict[tuple[int, ...], dict[int, int]] = {}
        self._planned: dict[tuple[int, int], _Planned] = {}
        if "contacts" in chart:
            begins, ends, rates = (np.frombuffer(data, "<i8") for data in chart["plan"])
            at = 0
            for u, v, typical, count in zip(*map(_unpacked, chart["contacts"]), strict=True):
                here = slice(at, at + count)
                self._planned[u, v] = _Planned(typical, begins[here], ends[here], rates[here])
                at += count
        if "links" in chart:
            self._links = [[] for _ in self._classes]
            for u, v, given in zip(*map(_unpacked, chart["links"]), strict=True):
                self._links[u].append(v)
                self._given[u, v] = given
        else:
            self._stars = Generated([""] * len(self._classes), {}, chart["hubs"], chart["mesh"], chart["forward"])
        self._forward: bool = chart["forward"]
        self._ways = Ways(len(self._classes), self._neighbours, lambda u, v: (u, v) in self._given, self._latency_ns,
                          self._forward, dict(zip(*map(_unpacked, chart["place_of"]), strict=True)))

    def neighbours(self, node: int) -> list[int]:
        """The nodes to which a way leads on which no other node lies, ascending."""
        begin = self._vertices[node]
        if not self._forward:
            return [other for other, vertex in enumerate(self._vertices) if other != node
                    and (way := self._way(begin, vertex)) is not None and not self._node_at.keys() & set(way[1:-1])]
        seen, waiting, found = {begin}, [begin], []
        while waiting:
            for v in self._neighbours(waiting.pop()):
                if v in seen:
                    continue
                seen.add(v)
                if v in self._node_at:
                    found.append(self._node_at[v])
                else:
                    waiting.append(v)
        return sorted(found)

    def latency_ns(self, node: int, other: int) -> int:
        """Of the route from node to other."""
        return sum(self._latency_ns(u, v) for u, v in pairwise(self._route(node, other)))

    def hops(self, node: int, other: int) -> int:
        """The links of the route."""
        return len(self._route(node, other)) - 1

    def contacts(self, node: int, other: int, from_ns: int) -> Iterator[tuple[int, int | None, int, int]] | None:
        """(start, end, bit/s, which link of the route, 1 the first) of contacts that have not ended at `from_ns`.

        By start, then by link; an end of None is the end of time. None: no link of the route has contacts.
        """
        ways = [_windows(self._planned[ends], hop, from_ns)
                for hop, ends in enumerate(pairwise(self._route(node, other)), 1) if ends in self._planned]
        return merge(*ways, key=lambda one: (one[0], one[3])) if ways else None

    @property
    def planned(self) -> bool:
        """True if some link has contacts."""
        return bool(self._planned)

    def arrivals(self, node: int, others: Sequence[int], from_ns: int, size_bytes: int) -> dict[int, int]:
        """Other node -> the time at which a message that sets out at `from_ns` is there at the soonest.

        It is alone on every link: a link with contacts transmits it over their gaps, then its median latency follows;
        a link without any adds its median latency alone. Without those that it never reaches.
        """
        bits = 8 * size_bytes
        if not self._forward:
            times = {other: self._arrival(self._way(self._vertices[node], self._vertices[other]), from_ns, bits)
                     for other in others}
            return {other: time for other, time in times.items() if time is not None}
        wanted = {self._vertices[other] for other in others}
        found: dict[int, int] = {}
        heap = [(from_ns, self._vertices[node])]
        while heap and wanted:
            now, u = heappop(heap)
            if u in found:
                continue
            found[u] = now
            wanted.discard(u)
            for v in self._neighbours(u):
                if v in found:
                    continue
                there = self._arrival((u, v), now, bits)
                if there is not None:
                    heappush(heap, (there, v))
        return {other: found[self._vertices[other]] for other in others if self._vertices[other] in found}

    def _arrival(self, way: tuple[int, ...] | None, now: int, bits: int) -> int | None:
        """The time at which so many bits that set out at `now` are at the end of a way; None: never."""
        for u, v in pairwise(way or ()):
            planned = self._planned.get((u, v))
            sent = now if planned is None else _sent(planned, now, bits)
            if sent is None:
                return None
            now = sent + self._latency_ns(u, v)
        return None if way is None else now

    def towards(self, node: int, other: int) -> int:
        """The first node on the route to another one: that one itself, if none lies between."""
        return next(self._node_at[v] for v in self._route(node, other)[1:] if v in self._node_at)

    def nearest(self, node: int, others: Sequence[int]) -> int:
        """Of `others` the one of the least latency from `node`, then of the fewest hops, then of the lowest number."""
        found: int | None
        if self._stars is not None or not self._forward:
            there = [other for other in others if self._way(self._vertices[node], self._vertices[other]) is not None]
            found = min(there, key=lambda other: (self.latency_ns(node, other), self.hops(node, other), other),
                        default=None)
        else:
            key = tuple(others)
            if key not in self._nearest:
                self._nearest[key] = self._regions(key)
            found = self._nearest[key].get(self._vertices[node])
        if found is None:
            raise NetworkError(f"no links lead from node {node} to any of {list(others[:10])}")
        return found

    def _regions(self, others: Sequence[int]) -> dict[int, int]:
        """Vertex -> the nearest of `others`: one search from all of them, against the direction of the links."""
        into = self._links_into()
        found: dict[int, int] = {}
        heap = [(0, 0, other, self._vertices[other]) for other in sorted(others)]
        while heap:
            latency, hops, other, v = heappop(heap)
            if v in found:
                continue
            found[v] = other
            for u in into[v]:
                if u not in found:
                    heappush(heap, (latency + self._latency_ns(u, v), hops + 1, other, u))
        return found

    @cache      # noqa: B019 - a terrain lives as long as its run
    def _links_into(self) -> list[list[int]]:
        into: list[list[int]] = [[] for _ in self._links]
        for u, targets in enumerate(self._links):
            for v in targets:
                into[v].append(u)
        return into

    def _route(self, node: int, other: int) -> tuple[int, ...]:
        route = self._way(self._vertices[node], self._vertices[other])
        if route is None:
            raise NetworkError(f"no links lead from node {node} to node {other}")
        return route

    def _way(self, u: int, v: int) -> tuple[int, ...] | None:
        return self._ways.route(u, v) if self._stars is None else self._stars.route(u, v, self._latency_ns)

    def _neighbours(self, u: int) -> Sequence[int] | Iterator[int]:
        return self._links[u] if self._stars is None else self._stars.neighbours(u)

    def _latency_ns(self, u: int, v: int) -> int:
        """That of the plan, else of the last of the rules that matches the link, else of the topology: as `Network` has
        it."""
        planned = self._planned.get((u, v))
        if planned is not None:
            return planned.typical_ns
        saying = self._masks[self._classes[u]][0] & self._masks[self._classes[v]][1] & self._saying
        return self._said[saying.bit_length() - 1] if saying else self._given.get((u, v), 0)
