"""The background traffic of a network: which entries load which links, and what is wrong with entries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, pairwise
from typing import Protocol, TypeAlias

from emul.base.errors import NetworkError
from emul.base.names import listed
from emul.base.units import format_bandwidth
from emul.network.graph.earliest import EarliestRoutes
from emul.network.graph.topology import Topology
from emul.network.models.background import Traffic, is_nothing, mean_bps, rate_curve
from emul.network.models.contacts import Contacts
from emul.network.models.radio import Radio
from emul.network.models.residual import LoadEntry
from emul.network.rules import LinkParameters, LinkRule, Resolver, set_bits

_LOOKED_AT = 2_000          # links, or pairs of vertices, of one entry that checks look at
_EXAMPLES = 3
Pair: TypeAlias = tuple[int, int]
Named: TypeAlias = tuple[Pair, int, Traffic]        # a link or the ends of a route, the number of an entry, the entry


class RoutedNetwork(Protocol):
    """The part of `emul.network.Network` that background traffic asks for."""

    @property
    def names(self) -> Sequence[str]:
        """Of the vertices."""
        ...

    @property
    def groups(self) -> Sequence[str | None]:
        """The group that each vertex is in."""
        ...

    @property
    def classes(self) -> Sequence[str | None]:
        """The class of links that joins each vertex to the network."""
        ...

    @property
    def topology(self) -> Topology:
        """The values that the network was built from."""
        ...

    def route(self, u: int, v: int) -> tuple[int, ...]:
        """The vertices from u to v, both included. Raises NetworkError."""
        ...

    def parameters(self, u: int, v: int) -> LinkParameters:
        """Of the link u -> v."""
        ...

    def contacts(self, u: int, v: int) -> Contacts | None:
        """Those of the link u -> v; None: it transmits at all times."""
        ...

    @property
    def radio(self) -> Radio | None:
        """The radio of the network; None: nothing moves."""
        ...

    def load_bps(self, u: int, v: int) -> float:
        """The mean background traffic on the link u -> v, of rates and messages."""
        ...

    @property
    def earliest(self) -> EarliestRoutes | None:
        """The routes that depend on the time; None: none do."""
        ...


class _Holders:
    """The vertices whose masks have a bit. masks: vertex -> bits, of those that have any.

    Of most vertices nothing is said, and many have the same mask: a star of 100,000 clients with one loaded link keeps
    one, and a thousand entries for everybody are bits of one.
    """

    def __init__(self, masks: Sequence[int]):
        self.masks = {v: mask for v, mask in enumerate(masks) if mask}
        self._vertices: dict[int, list[int]] = {}               # mask -> who has it, ascending
        for v, mask in self.masks.items():
            self._vertices.setdefault(mask, []).append(v)
        self._with: dict[int, list[int]] = {}                   # bit -> masks that have it
        for mask in self._vertices:
            for bit in set_bits(mask):
                self._with.setdefault(bit, []).append(mask)

    def of(self, bit: int) -> list[int]:
        """The vertices of a bit, ascending."""
        return sorted(chain.from_iterable(self._vertices[mask] for mask in self._with.get(bit, ())))


class Background:
    """Entries over one network. Curves are made when a link first asks for its load."""

    def __init__(self, entries: Sequence[Traffic], network: RoutedNetwork, seed: int):
        self._entries = entries
        self._network = network
        self._seed = seed
        rules = [LinkRule(entry.match) for entry in entries]
        resolver = Resolver(rules, network.names, network.groups, network.classes)
        number = {id(rule): i for i, rule in enumerate(rules)}
        self._of_bit = [number[id(rule)] for rule in resolver.rule_of_bits()]
        # of most vertices nothing is said: a star of 100,000 clients with one loaded link keeps one mask
        self._sources = _Holders(resolver.source_masks)
        self._destinations = _Holders(resolver.destination_masks)
        self._rates_along_routes = any(entry.flow is not None and not is_nothing(entry.rate) for entry in entries)
        self._crossing: dict[Pair, list[Named]] | None = None
        self._along: dict[tuple[Pair, int], LoadEntry] = {}         # one curve for all links of a route: it keeps stays

    def listed(self, u: int, v: int) -> list[Named]:
        """The entries that name this link, in this direction, in their order."""
        mask = self._sources.masks.get(u, 0) & self._destinations.masks.get(v, 0)
        return [((u, v), self._of_bit[bit], entry) for bit in set_bits(mask)
                if (entry := self._entries[self._of_bit[bit]]).link is not None]

    def routed(self) -> Iterator[Named]:
        """The entries that name routes, once for each two vertices."""
        return ((ends, number, self._entries[number]) for bit, number in enumerate(self._of_bit)
                if self._entries[number].flow is not None for ends in self._pairs(bit))

    def crossing(self, u: int, v: int) -> list[Named]:
        """Those of `routed` whose route leads over this link. Raises NetworkError where one has no way."""
        if self._crossing is None:
            self._crossing = {}
            for one in self.routed():
                for link in pairwise(self._network.route(*one[0])):
                    self._crossing.setdefault(link, []).append(one)
        return self._crossing.get((u, v), [])

    def on_link(self, u: int, v: int) -> list[LoadEntry]:
        """The rates in this direction of a link, in the order of the entries, those along routes last."""
        found = [self._rate(one) for one in self.listed(u, v) if not is_nothing(one[2].rate)]
        # routes are asked for only where a rate is along one: of messages there may be an entry for each two of 1,000
        for one in self.crossing(u, v) if self._rates_along_routes else ():
            if not is_nothing(one[2].rate):
                if one[:2] not in self._along:
                    self._along[one[:2]] = self._rate(one)
                found.append(self._along[one[:2]])
        return found

    def _rate(self, one: Named) -> LoadEntry:
        (u, v), _, entry = one
        names = self._network.names
        return LoadEntry(label(entry), rate_curve(entry, self._seed, names[u], names[v]), mean_bps(entry.rate))

    def elastic_links(self) -> Iterator[Pair]:
        """The links that elastic entries name."""
        for bit, number in enumerate(self._of_bit):
            if self._entries[number].link is not None and self._entries[number].elastic:
                yield from self._matched(bit)

    def _pairs(self, bit: int) -> Iterator[tuple[int, int]]:
        """The pairs of vertices that a pattern matches; nobody sends to himself."""
        sources, destinations = self._sources.of(bit), self._destinations.of(bit)
        return ((u, v) for u in sources for v in destinations if u != v)

    def _links_of(self, bit: int) -> Iterator[tuple[int, int]]:
        """The links that an entry's pattern matches, or that its flows cross; the first _LOOKED_AT of them.

        Raises NetworkError where a flow has no way.
        """
        if self._entries[self._of_bit[bit]].flow is not None:
            for u, v in islice(self._pairs(bit), _LOOKED_AT):
                yield from pairwise(self._network.route(u, v))
            return
        yield from islice(self._matched(bit), _LOOKED_AT)

    def _matched(self, bit: int) -> Iterator[tuple[int, int]]:
        """The links that a pattern matches."""
        there = set(self._destinations.of(bit))
        return ((u, v) for u in self._sources.of(bit) for v in self._network.topology.neighbours(u) if v in there)

    def problems(self) -> list[tuple[int, str]]:
        """(number of the entry, what is expected) of all entries that cannot be, once each."""
        found = []
        bits_of: dict[int, list[int]] = {}
        for bit, number in enumerate(self._of_bit):
            bits_of.setdefault(number, []).append(bit)
        for number, entry in enumerate(self._entries):
            bits = bits_of.get(number, [])
            try:
                crossed = dict.fromkeys(ends for bit in bits for ends in self._links_of(bit))
            except NetworkError as error:
                found.append((number, str(error)))
                continue
            if not crossed:
                found.append((number, "matches no link" if entry.flow is None else "matches no two vertices"))
            planned = next((ends for ends in crossed if self._network.contacts(*ends) is not None), None)
            if planned is not None and (entry.elastic or entry.flow is not None):
                found.append((number, f"{self._name(*planned)} transmits only within its contacts: expected an entry "
                              "with link and rate there"))
            elif entry.flow is not None and self._network.earliest is not None:
                found.append((number, "routes depend on the time (contacts.routes: earliest): expected an entry with "
                              "link"))
            elif not entry.elastic and (wandering := next((ends for ends in crossed if self._roams(*ends)), None)):
                found.append((number, f"{self._name(*wandering)} leads over one place after the other, whose time no "
                              "background rate can be counted in: expected messages or greedy flows there"))
            elif entry.elastic and (wrong := self._elastic_problem(entry, bits, crossed)) is not None:
                found.append((number, wrong))
        return found

    def _roams(self, u: int, v: int) -> bool:
        radio, names = self._network.radio, self._network.names
        return radio is not None and radio.roaming(names[u], names[v]) is not None

    def _elastic_problem(self, entry: Traffic, bits: Sequence[int],
                         crossed: Iterable[tuple[int, int]]) -> str | None:
        """The reason why an entry cannot have messages or greedy flows on these links; None: it can."""
        network, sharing = self._network, {ends: self._network.parameters(*ends).sharing for ends in crossed}
        queue = next((ends for ends, mode in sharing.items() if mode == "tcp_fifo"), None)
        if queue is not None:
            return (f"{self._name(*queue)} has sharing: tcp_fifo, whose queues know packets of the scheme's "
                    "connections alone: expected a rate, or another sharing")
        fifo = next((ends for ends, mode in sharing.items() if mode == "fifo"), None)
        if entry.greedy is not None and fifo is not None:
            return (f"{self._name(*fifo)} sends one message after the other, so that a flow without an end would stop "
                    "it: expected links with sharing, or messages")
        unlimited = next((ends for ends in sharing if network.parameters(*ends).bandwidth_bps is None), None)
        if entry.greedy is not None and unlimited is not None:
            return f"{self._name(*unlimited)} has no bandwidth that greedy flows could share: expected one"
        for u, v in () if entry.flow is None else (ends for bit in bits for ends in islice(
                self._pairs(bit), _LOOKED_AT)):
            modes = {sharing[ends] == "fifo" for ends in pairwise(network.route(u, v))}
            if len(modes) > 1:
                return (f"the route from {network.names[u]} to {network.names[v]} has links that share their bandwidth "
                        "and links that do not: expected one kind of them")
        return None

    def looked_at(self) -> list[tuple[int, int]]:
        """The links with traffic, the first _LOOKED_AT of each entry, once each. Raises NetworkError as `_links_of`."""
        return list(dict.fromkeys(ends for bit in range(len(self._of_bit)) for ends in self._links_of(bit)))

    def warnings(self) -> list[str]:
        """Warnings of links of which the mean background leaves nothing. For networks without `problems`."""
        full = []
        for u, v in self.looked_at():
            own, load = self._network.parameters(u, v).bandwidth_bps, self._network.load_bps(u, v)
            if own is not None and load >= float(own):
                rates = format_bandwidth(round(load)), format_bandwidth(round(float(own)))
                full.append(f"{self._name(u, v)} ({rates[0]} on {rates[1]})")
        if not full:
            return []
        return [f"traffic: in the mean nothing is left for messages on {listed(full, _EXAMPLES)}; what exceeds a "
                "link is dropped there, and links further on carry the whole demand still"]

    def _name(self, u: int, v: int) -> str:
        return f"{self._network.names[u]}->{self._network.names[v]}"


def label(entry: Traffic) -> str:
    """The name of an entry in tables: its own, or its key."""
    return entry.name or entry.key
