"""The elastic background traffic of a network: which messages and greedy flows take which links, by scenario or record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from heapq import merge
from itertools import pairwise
from typing import NamedTuple

from emul.network.background import Background, Named, Pair, RoutedNetwork, label
from emul.network.linkrecord import Beyond, BeyondRecord, PacketRow, Row
from emul.network.links.crossqueues import CrossFlow, Order
from emul.network.models.background import Traffic
from emul.network.models.elastic import Arrival, arrivals
from emul.network.realisation import realised_arrivals
from emul.network.recorded import RECORDED, Elastic, Realisation


class ElasticLoad(NamedTuple):
    """Of a link, in the mean: bit/s of messages, their number a second times the mean square of their bytes (inf where
    that has no mean), and greedy flows."""

    bps: float
    square_rate: float
    greedy: int


class ElasticTraffic:
    """Messages and greedy flows over one network; where a record holds those of a pair, in place of the scenario's."""

    def __init__(self, background: Background | None, realisation: Realisation | None, network: RoutedNetwork,
                 seed: int):
        self._background = background
        self._realisation = realisation
        self._network = network
        self._seed = seed
        self._listed: dict[Pair, list[CrossFlow]] = {}
        self._routed: dict[Pair, list[CrossFlow]] | None = None         # link -> flows along routes that cross it
        self.begun: dict[CrossFlow, None] = {}                          # those whose messages are taken somewhere

    def listed(self, u: int, v: int) -> list[CrossFlow]:
        """Those of entries that name links, on this one."""
        found = self._listed.get((u, v))
        if found is None:
            entries = [] if self._background is None else self._background.listed(u, v)
            found = self._listed[u, v] = self._flows(_elastic(entries), (u, v), True)
        return found

    def routed(self, u: int, v: int) -> list[CrossFlow]:
        """Those along routes that cross this link."""
        return self._crossing().get((u, v), [])

    def on_link(self, u: int, v: int) -> list[CrossFlow]:
        """All that cross this link."""
        return [*self.listed(u, v), *self.routed(u, v)]

    def all(self) -> list[CrossFlow]:
        """All that there are, on all links of the topology."""
        recorded = self._recorded(True)
        if self._background is not None:
            recorded |= dict.fromkeys(self._background.elastic_links())
        routed = dict.fromkeys(flow for flows in self._crossing().values() for flow in flows)
        return sorted([*(flow for ends in recorded for flow in self.listed(*ends)), *routed],
                      key=lambda flow: flow.order)

    def _crossing(self) -> dict[Pair, list[CrossFlow]]:
        if self._routed is None:
            entries: dict[Pair, list[Named]] = {ends: [] for ends in self._recorded(False)}
            for ends, number, entry in _elastic([] if self._background is None else self._background.routed()):
                entries.setdefault(ends, []).append((ends, number, entry))
            self._routed = {}
            for pair in sorted(entries):
                for flow in self._flows(entries[pair], pair, False):
                    for link in pairwise(flow.path):
                        self._routed.setdefault(link, []).append(flow)
        return self._routed

    def _recorded(self, listed: bool) -> dict[Pair, None]:
        """The links, or the pairs of vertices, of which the record holds elastic traffic."""
        if self._realisation is None:
            return {}
        number = {name: v for v, name in enumerate(self._network.names)}
        return {(number[u], number[v]): None for one, u, v in self._realisation.elastic
                if one is listed and u in number and v in number
                and not (listed and not self._network.topology.linked(number[u], number[v]))}

    def _flows(self, entries: Sequence[Named], ends: Pair, listed: bool) -> list[CrossFlow]:
        """The flows of one pair; a record has the messages of all its entries together."""
        u, v = ends
        names = self._network.names[u], self._network.names[v]
        path = ends if listed else self._network.route(u, v)
        held = None if self._realisation is None else self._realisation.elastic.get((listed, *names))
        if held is None:
            return [self._flow(number, entry, names, ends, path, listed) for _, number, entry in entries]
        found = [CrossFlow((u, v, i), RECORDED, path, listed, None, flows, start, end)
                 for i, (start, end, flows) in enumerate(held[1], 1)]
        if held[0]:
            assert self._realisation is not None
            drawn = partial(_drawn, [entry for _, _, entry in entries if entry.messages is not None], self._seed, names)
            found.append(CrossFlow((u, v, 0), RECORDED, path, listed, partial(
                _repeated, held, drawn, self._realisation.beyond, f"{names[0]} -> {names[1]}")))
        return found

    def _flow(self, number: int, entry: Traffic, names: tuple[str, str], ends: Pair, path: tuple[int, ...],
              listed: bool) -> CrossFlow:
        end = None if entry.for_ns is None else entry.at_ns + entry.for_ns
        made = None if entry.messages is None else partial(
            arrivals, entry.messages, entry.key, self._seed, *names, entry.at_ns, entry.for_ns)
        return CrossFlow((*ends, number), label(entry), path, listed, made, entry.greedy or 0, entry.at_ns, end)

    def load(self, u: int, v: int) -> ElasticLoad:
        """The load of a link by the entries of the scenario, in the mean."""
        if self._background is None:
            return ElasticLoad(0.0, 0.0, 0)
        entries = [entry for *_, entry in self._background.listed(u, v) + self._background.crossing(u, v)]
        laws = [entry.messages for entry in entries if entry.messages is not None]
        squares = sum(one.per_second * one.size.mean_square for one in laws)
        return ElasticLoad(sum(one.mean_bps for one in laws), squares,
                           sum(entry.greedy or 0 for entry in entries))

    def realised(self, end_ns: int) -> Iterator[Row | PacketRow]:
        """The rows of all messages that came until `end_ns`, and of greedy flows; those of one pair together."""
        pairs: dict[tuple[bool, Pair], list[CrossFlow]] = {}
        for flow in sorted(self.begun, key=lambda flow: flow.order):
            pairs.setdefault((flow.listed, flow.order[:2]), []).append(flow)
        names = self._network.names
        for (listed, (u, v)), flows in pairs.items():
            first = names[flows[0].path[0]], names[flows[0].path[1]]
            along = None if listed else (names[u], names[v])
            streams = [_ordered(flow.order, flow.arrivals()) for flow in flows if flow.arrivals is not None]
            if streams:
                found = ((at, size) for at, _, size in _known(merge(*streams)))
                yield from realised_arrivals(*first, found, end_ns, along)
            for flow in flows:
                if flow.arrivals is None:
                    yield (*first, "greedy_flows", None, None, flow.at_ns, flow.end_ns, flow.greedy,
                           *(along or (None, None)))


def _elastic(entries: Iterable[Named]) -> list[Named]:
    return [one for one in entries if one[2].elastic]


def _ordered(order: Order, found: Iterator[Arrival]) -> Iterator[tuple[int, Order, int]]:
    return ((at, order, size) for at, size in found)


def _drawn(entries: Iterable[Traffic], seed: int, names: tuple[str, str]) -> Iterator[Arrival]:
    """The messages of all entries of a pair, in the order of time."""
    return merge(*(arrivals(entry.messages, entry.key, seed, *names, entry.at_ns, entry.for_ns)
                   for entry in entries if entry.messages is not None))


def _repeated(held: Elastic, drawn: partial[Iterator[Arrival]], beyond: Beyond, name: str) -> Iterator[Arrival]:
    """The messages of a record, and what comes after the last of them."""
    recorded = held[0]
    last, size = recorded[-1]
    if not size:                        # this row says that none comes any more
        yield from recorded[:-1]
        return
    yield from recorded
    if beyond == "error":
        raise BeyondRecord(f"{name}: the record holds no background message after {last / 1e9:.9g} s")
    if beyond == "stream":
        yield from ((at, size) for at, size in drawn() if at > last)
        return
    begins = last
    while True:
        yield from ((begins + at, size) for at, size in recorded)
        begins += max(1, last)


def _known(found: Iterator[tuple[int, Order, int]]) -> Iterator[tuple[int, Order, int]]:
    """As far as a record goes that is not to be left."""
    try:
        yield from found
    except BeyondRecord:
        return
