"""The network: names, roles, routes and links of one topology under one list of rules."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeAlias, cast

from msgspec import structs

from emul.base.errors import NetworkError, Problem, ScenarioError
from emul.base.names import MARK, is_pattern, matches
from emul.network.background import Background
from emul.network.classes import Joined, class_rules
from emul.network.contactplan import ContactPlan, ContactsError, unrouted
from emul.network.elastic import ElasticLoad, ElasticTraffic
from emul.network.graph.earliest import Crossing, EarliestRoutes
from emul.network.graph.routing import Ways
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
from emul.network.linkrecord import PacketRow, Row
from emul.network.links.connections import TcpStack, agreed
from emul.network.links.crossflows import Course
from emul.network.links.crossqueues import CrossQueue, CrossQueues
from emul.network.links.fifo import fifo_link, needs_all_full
from emul.network.links.flows import FlowLink, Flows, Handovers, refuse_mixture
from emul.network.links.full_link import FullLink
from emul.network.links.link import Link
from emul.network.links.shares import RateProfile
from emul.network.links.transport import Arq
from emul.network.models.background import Traffic
from emul.network.models.contacts import Contacts, ContactSpec
from emul.network.models.latency import LatencyOverTime, latency, least_ns, typical_ns
from emul.network.models.media import MediumSpec
from emul.network.models.outages import Outage, outage
from emul.network.models.packetfates import PacketFates
from emul.network.models.profiles import NEVER, VaryingRate
from emul.network.models.radio import Radio, RadioModel, RoamingRate
from emul.network.models.radiofiles import RadioSpec, read_radio
from emul.network.models.residual import LinkLoad, LoadEntry, TimeLeft, varying_rate
from emul.network.models.traces import TraceSpec
from emul.network.realisation import AnyDelay, by_packet, realised, realised_background
from emul.network.recorded import Realisation
from emul.network.rules import WINDOWED, LinkParameters, LinkRule, Resolver, mixture_problem, rule_problems

_MOST_DETOURS = 4_000_000           # pairs of links of one vertex that are compared for a warning

# ends of the link, the entry's name in the scenario, bytes: offered = carried + dropped
TrafficRow: TypeAlias = tuple[str, str, str, int, int, int]


class LinksError(NetworkError):
    """Rules of links that do not go together: `problems`, whose places are links."""

    def __init__(self, problems: list[Problem]):
        self.problems = problems
        super().__init__(str(ScenarioError("links", problems)))


class Network:
    """Vertices 0 .. n-1 with `names`; `roles` maps a role to its vertices in order, servers first, then clients.

    Links and routes are made on first use, so nothing grows with the number of pairs that never talk. `classes`: of
    each vertex what joins it to the network, None without; empty where the scenario has no such classes. `groups`: the
    same of the group that it is in.
    """

    def __init__(self, topology: Topology, rules: Sequence[LinkRule], seed: int,
                 realisation: Realisation | None = None, joined: Joined | None = None,
                 traffic: Sequence[Traffic] = (), contacts: ContactSpec | None = None,
                 media: Sequence[MediumSpec] = (), radio: RadioModel | None = None):
        self.names = topology.names
        self.vertex_of = {name: v for v, name in enumerate(topology.names)}
        self.roles = topology.roles
        self._topology = topology
        self.groups = [] if joined is None else joined.groups_of(topology.names, topology.roles, seed)
        self.classes = [] if joined is None else joined.links_of(topology.names, seed, self.groups)
        self._resolver = Resolver([*implied(joined), *rules], topology.names, self.groups, self.classes)
        self._rules = list(rules)
        self._seed = seed
        self._realisation = realisation
        self._drawn: dict[tuple[str, str], tuple[Outage | None, AnyDelay]] = {}
        self._rates: dict[tuple[str, str], VaryingRate] = {}
        self.planned = ContactPlan(contacts, self)
        self._varies = (realisation is not None or topology.varies or bool(self.planned.links)
                        or not all(isinstance(rule.latency_ns, int | None) for rule in rules))
        self._all_full = needs_all_full(rules)
        self._links: dict[tuple[int, int], Link | FlowLink] = {}
        self._alike: tuple[LinkParameters | None, Link] = None, Link(-1, -1)    # parameters, and an unused link of them
        self._least_out: dict[object, int] = {}    # vertex, or kind of vertices -> least latency of the links out of it
        self._flows: Flows | None = None
        self._ways = Ways(len(self.names), topology.neighbours, topology.linked, self._typical_ns, topology.forward,
                          topology.place_of)
        self.earliest: EarliestRoutes | None = None     # routes by the time; None: those of `route`, whatever the time
        if contacts is not None and contacts.routes == "earliest":
            self.earliest = EarliestRoutes(len(self.names), topology.neighbours, self._crossing)
        self.background = Background(traffic, self, seed) if traffic else None
        self._loaded = self.background is not None or (realisation is not None and realisation.has_background)
        self._loads: dict[tuple[str, str], LinkLoad] = {}       # by the names of the ends, as `_rates`
        self._elastic: ElasticTraffic | None = None
        if any(entry.elastic for entry in traffic) or (realisation is not None and realisation.elastic):
            self._elastic = ElasticTraffic(self.background, realisation, self, seed)
        self._queues = CrossQueues(self._queue_at)
        self._queued: dict[tuple[int, int], CrossQueue] = {}
        self._woven = False             # all links that background flows share with others are made
        self.media = {one.name: one for one in media}
        self._media_made: dict[tuple[str, str], int] = {}       # medium, place of who roams -> its number in flows
        self.radio = None if radio is None else Radio(radio, seed, topology.names, {
            name: [each[v] for each in (self.groups, self.classes) if each] for v, name in enumerate(self.names)})

    def fitting(self, pattern: str, among: Collection[int]) -> list[int]:
        """The vertices of `among`, in its order, that have this name, else one that fits the pattern, or that are in
        that group or class of links (`@slow`)."""
        if pattern.startswith(MARK):
            marks = [each for each in (self.groups, self.classes) if each]
            return [v for v in among if pattern[len(MARK):] in [each[v] for each in marks]]
        if (named := self.vertex_of.get(pattern)) is not None:      # files have a rule for each of thousands of names
            return [named] if named in among else []
        return [v for v in among if matches(self.names[v], pattern, ())] if is_pattern(pattern) else []

    def parameters(self, u: int, v: int) -> LinkParameters:
        """The parameters that the topology and the rules give the link u -> v; of one with contacts their mean rate and
        median latency, of one by radio its mean rate. Raises NetworkError if there is no such link."""
        if not self._topology.linked(u, v):
            raise NetworkError(f"there is no link {self.names[u]} -> {self.names[v]}")
        found = self.stated(u, v)
        if not self.planned.links and self.radio is None:       # as a rule
            return found
        there = self.contacts(u, v)
        if there is not None:
            return structs.replace(found, latency_ns=there.typical_ns, bandwidth_bps=there.mean_bps)
        mean = None if self.radio is None else self.radio.typical_bps(self.names[u], self.names[v])
        return found if mean is None else structs.replace(found, bandwidth_bps=mean)

    def stated(self, u: int, v: int) -> LinkParameters:
        """As `parameters`, whatever contacts say. Raises KeyError if there is no such link."""
        return self._resolver.parameters(u, v, self._topology.given(u, v))

    def contacts(self, u: int, v: int) -> Contacts | None:
        """Those of the link u -> v; None: no plan names it, and it transmits at all times."""
        return self.planned.links.get((u, v))

    def _crossing(self, u: int, v: int) -> Crossing:
        """The link as a search over the plan sees it: of one without contacts the mean rate and the median latency."""
        p = self._resolver.parameters(u, v, self._topology.given(u, v))
        rate = float(p.bandwidth_bps) if isinstance(p.bandwidth_bps, TraceSpec) else p.bandwidth_bps
        there = self.contacts(u, v)
        if there is not None and there.gap == "return" and p.sharing != "fifo":
            there = there.with_gap("hold")          # of a flow that is cut the rest goes on, by this way or another one
        return Crossing(there, rate, self._typical_ns(u, v), self._least_ns(u, v), p.overhead_bytes, p.mtu)

    def bandwidth(self, u: int, v: int) -> int | float | TraceSpec | None:
        """That of the link, bit/s; None: infinite. Of traces that links draw, the one that this link follows."""
        found = self.parameters(u, v).bandwidth_bps
        return found.of(self._seed, self.names[u], self.names[v]) if isinstance(found, TraceSpec) else found

    def _typical_ns(self, u: int, v: int) -> int:
        """The median latency of a link: by these routes are chosen."""
        there = self.contacts(u, v)
        if there is not None:
            return there.typical_ns
        return typical_ns(self._resolver.latency_ns(u, v, self._topology.given(u, v)))

    def _least_ns(self, u: int, v: int) -> int:
        there = self.contacts(u, v)
        if there is not None:
            return there.least_ns
        least = least_ns(self._resolver.latency_ns(u, v, self._topology.given(u, v)))
        if self._realisation is not None:
            least = self._realisation.least_ns(self.names[u], self.names[v], least)
        return least

    def link(self, u: int, v: int) -> Link | FlowLink:
        """The link u -> v, the same object at every call. Raises NetworkError if there is no such link."""
        link = self._links.get((u, v))
        if link is None:
            p = self.parameters(u, v)
            # Of a generated topology nearly all links have the same parameters. With this copy a link of a star takes
            # 1.1 us to make, by all the steps below 2.9.
            if p is self._alike[0] and not (self._loaded and self._entries(u, v)) and not self._crossed(u, v):
                link = self._links[u, v] = self._alike[1].like(u, v)
                return link
            if p.sharing != "fifo":
                lost, delay = self._models(self.names[u], self.names[v], p)
                link = self._links[u, v] = self._flow_link(u, v, p, lost, delay)
                self._weave_flows()
                return link
            names = self.names[u], self.names[v]
            lost, drawn = self._models(*names, p)
            there = self.contacts(u, v)
            late = drawn if there is None else there
            profile: VaryingRate | None = self._rate(*names, p) if there is None else there
            cross = self._cross_queue(u, v)
            link = self._links[u, v] = fifo_link(u, v, names, p, lost, late, self._seed, profile=profile,
                                                 full=self._all_full, load=self._load(u, v, p, profile), cross=cross)
            if cross is not None:
                assert isinstance(link, FullLink)
                self._begin_queue(u, v, cross, link)
            elif type(link) is Link and lost is None and self._realisation is None and not self._rates:
                self._alike = p, fifo_link(u, v, names, p, None, link.latency_ns, self._seed)
        return link

    def _models(self, source: str, destination: str, p: LinkParameters,
                ) -> tuple[Outage | None, AnyDelay]:
        """The losses and latencies of a link: drawn from the streams of its ends' names, or as it was recorded."""
        lost = outage(p.outage, self._seed, source, destination)
        stated = latency(p.latency_ns, self._seed, source, destination)
        delay: AnyDelay = stated
        if self._realisation is not None:
            drawn = stated.typical_ns if isinstance(stated, LatencyOverTime) else stated
            recorded, delay = self._realisation.models(source, destination, lost, drawn)
            if isinstance(stated, LatencyOverTime) and isinstance(delay, int):
                delay = stated          # a trace needs no record
            lost = lost if _transport_draws(p, lost) else recorded
        if lost is not None or not isinstance(delay, int):
            self._drawn[source, destination] = lost, delay
        return lost, delay

    def _rate(self, source: str, destination: str, p: LinkParameters) -> VaryingRate | None:
        """The rate that varies, if the link has one. A service has no state: links may have equal ones."""
        profile: VaryingRate | None = None
        plain: Any = p.bandwidth_bps
        if isinstance(plain, TraceSpec):
            profile, plain = plain.of(self._seed, source, destination).service(), None
        elif self.radio is not None:
            profile = self.radio.profile(source, destination)
        if self._realisation is not None:
            profile = self._realisation.rate(source, destination, profile, plain)
        if profile is not None:
            self._rates[source, destination] = profile
        return profile

    def _entries(self, u: int, v: int) -> list[LoadEntry]:
        """The background traffic of a link; recorded traffic takes its place."""
        found = [] if self.background is None else self.background.on_link(u, v)
        if self._realisation is None:
            return found
        return self._realisation.background(self.names[u], self.names[v], found)

    def _load(self, u: int, v: int, p: LinkParameters, profile: VaryingRate | None) -> LinkLoad | None:
        """The load of a link, the same object at every call; None: no background traffic."""
        if not self._loaded:
            return None
        names = self.names[u], self.names[v]
        load = self._loads.get(names)
        if load is None and (entries := self._entries(u, v)):
            own = p.bandwidth_bps if profile is None else profile
            assert not isinstance(own, TraceSpec)           # that is the profile
            load = self._loads[names] = LinkLoad(entries, own)
        return load

    def _crossed(self, u: int, v: int) -> bool:
        return self._elastic is not None and bool(self._elastic.on_link(u, v))

    def _cross_queue(self, u: int, v: int) -> CrossQueue | None:
        """A queue for the background messages of a first-in-first-out link; None: there are none."""
        if self._elastic is None or not self._crossed(u, v):
            return None
        found = self._queued[u, v] = self._queues.queue(
            chained=any(len(flow.path) > 2 for flow in self._elastic.routed(u, v)))
        return found

    def _begin_queue(self, u: int, v: int, queue: CrossQueue, link: FullLink) -> None:
        """Messages come to a new link from now on; where they go on, all links that they meet are made."""
        assert self._elastic is not None
        crossing = self._elastic.on_link(u, v)
        own = [flow for flow in crossing if flow.path[:2] == (u, v) and flow.arrivals is not None]
        self._elastic.begun |= dict.fromkeys(own)
        queue.begin(link, own)
        for flow in crossing:
            for ends in pairwise(flow.path) if len(flow.path) > 2 else ():
                self.link(*ends)

    def _queue_at(self, u: int, v: int) -> CrossQueue:
        self.link(u, v)
        return self._queued[u, v]

    def _weave_flows(self) -> None:
        """All background flows begin, over all links that share and that they cross: rates depend on each other."""
        if self._elastic is None or self._woven:
            return
        self._woven = True
        courses = []
        for flow in self._elastic.all():
            links = [self.link(*ends) for ends in pairwise(flow.path)
                     if self.parameters(*ends).sharing != "fifo"]
            if len(links) == len(flow.path) - 1:
                courses.append(Course(flow, [link for link in links if isinstance(link, FlowLink)]))
        self._elastic.begun |= dict.fromkeys(course.flow for course in courses)
        self.flows.add_background(courses)

    def elastic_load(self, u: int, v: int) -> ElasticLoad:
        """The mean load of the link u -> v by background messages and flows."""
        return ElasticLoad(0.0, 0.0, 0) if self._elastic is None else self._elastic.load(u, v)

    def load_bps(self, u: int, v: int) -> float:
        """The mean background traffic on the link u -> v, of rates and messages, bit/s."""
        rates = sum(one.mean_bps for one in self._entries(u, v)) if self._loaded else 0.0
        return rates + self.elastic_load(u, v).bps

    def traffic(self, end_ns: int) -> Iterator[TrafficRow]:
        """(source, destination, entry, offered, carried, dropped bytes) of the background on links that were used,
        until `end_ns`."""
        for (source, destination), load in sorted(self._loads.items()):
            for one in load.carried(end_ns):
                yield (source, destination, one.entry, one.offered_bytes, one.carried_bytes, one.dropped_bytes)
        if self._elastic is not None:
            yield from self._elastic_traffic(end_ns)

    def _elastic_traffic(self, end_ns: int) -> Iterator[TrafficRow]:
        """As `traffic`, of messages and greedy flows: what has been carried or dropped counts as offered."""
        found: dict[tuple[str, str, str], list[int]] = {}

        def add(u: int, v: int, entry: str, carried: int, dropped: int) -> None:
            total = found.setdefault((self.names[u], self.names[v], entry), [0, 0])
            total[0] += carried
            total[1] += dropped

        self._queues.finish(end_ns)
        for (u, v), queue in sorted(self._queued.items()):
            for entry, carried, dropped in queue.totals(end_ns):
                add(u, v, entry, carried, dropped)
        if self._flows is not None and self._flows.cross is not None:
            for link, entry, carried, dropped in self._flows.cross.totals(end_ns):
                add(link.src, link.dst, entry, carried, dropped)
        for (source, destination, entry), (carried, dropped) in sorted(found.items()):
            yield source, destination, entry, carried + dropped, carried, dropped

    def realised(self, end_ns: int) -> Iterator[Row | PacketRow]:
        """Every draw of the links that carried messages, until `end_ns`: asked of the models again, after the run.

        Losses of TCP's messages are not drawn again: the number of times that a packet was sent belongs to the run.
        """
        # Draws are pure functions of names and indices, so links only count their messages while a run goes, and note
        # no draw on the hot path (`test_the_rows_of_a_link_are_the_fates_that_its_model_draws`).
        if (not self._drawn and not self._rates and not self._loads and self._elastic is None
                and (self._flows is None or not self._flows.senders.used)):
            return
        if self._elastic is not None:
            # Background messages that wait in queues at the end were planned beyond it: a run on the record asks again.
            self._queues.finish(end_ns)
            end_ns = max(end_ns, self._queues.planned_ns())
        looked: dict[tuple[str, str], int] = {}         # ends -> until when senders have looked at the link's rates
        for (u, v), link in sorted(self._links.items()):
            names = self.names[u], self.names[v]
            if isinstance(link, FlowLink):
                looked[names] = link.looked_ns
            lost, delay = self._drawn.get(names, (None, 0))
            rate = self._rates.get(names)
            if lost is not None or rate is not None or not isinstance(delay, int):
                if _transport_draws(self.parameters(u, v), lost):
                    lost = None
                yield from realised(*names, lost, delay, link.offered(), end_ns, rate, looked.get(names, 0))
            if isinstance(link, FlowLink) and link.fates is not None:
                yield from link.fates.realised()
        for names, load in sorted(self._loads.items()):
            yield from realised_background(*names, load, end_ns, looked.get(names, 0))
        if self._elastic is not None:
            yield from self._elastic.realised(end_ns)

    def _flow_link(self, u: int, v: int, p: LinkParameters, lost: Outage | None,
                   delay: AnyDelay) -> FlowLink:
        assert p.sharing != "fifo"
        if self._flows is None:
            self._flows = Flows(p.sharing)
        elif self._flows.sharing != p.sharing:
            raise refuse_mixture(self._flows.sharing, p.sharing)
        there = self.contacts(u, v)
        profile: VaryingRate | None = self._rate(self.names[u], self.names[v], p) if there is None else there
        rate: Any = p.bandwidth_bps if profile is None else None
        # a medium has all that its links carry, as a share of its time
        load = self._load(u, v, p, profile) if p.medium is None else None
        left = None if load is None else load.residual("profile")
        if left is not None:
            profile, rate = left, None
        number = self._flows.link(rate, profile) if p.medium is None else self._member(u, v, p, rate, profile)
        tcp = p.transport
        fates = None
        if isinstance(tcp, TcpStack):
            fates = PacketFates(self._seed, self.names[u], self.names[v], self.names, self._realisation)
        return FlowLink(self._flows, number, u, v, delay if there is None else there,
                        rate if profile is None else "profile", lost,
                        p.overhead_bytes, p.mtu, tcp if isinstance(tcp, TcpStack) else None, fates,
                        load, there, self._handovers(u, v))

    def _handovers(self, u: int, v: int) -> Handovers | None:
        """The handovers at which flows on the link begin anew; None: they go on where they were, or there are none."""
        roaming = None if self.radio is None else self.radio.roaming(self.names[u], self.names[v])
        if self.radio is None or roaming is None or self.radio.model.attach is None:
            return None
        return Handovers(roaming.next_place) if self.radio.model.attach.gap == "again" else None

    def _member(self, u: int, v: int, p: LinkParameters, rate: float | None, profile: VaryingRate | None) -> int:
        """The number of a new link that shares the time of a medium. Both directions are one station of it."""
        assert p.medium is not None
        spec = self.media[p.medium]
        radio = self.radio
        roaming = None if radio is None else radio.roaming(self.names[u], self.names[v])
        varying: RateProfile | None = profile
        roams: Callable[[int], int] | None = None
        if radio is None or roaming is None:
            medium = self._medium(spec)
        else:
            media = [self._medium(spec, place.name) for place in radio.candidates()]       # one of each place
            medium, roams = media[0], lambda t: media[roaming.place_at(t)]
            varying = None if profile is None else RoamingRate(profile, roaming)
        return self.flows.fluid.add_member(medium, (min(u, v), max(u, v)), rate, profile=varying,
                                           packet_s=spec.seconds_a_bit(p.mtu), roams=roams)

    def _medium(self, spec: MediumSpec, place: str = "") -> int:
        """The number of a medium among the links of the flows."""
        if (spec.name, place) not in self._media_made:
            left = self._time_left(spec) if self._loaded and not place else None
            self._media_made[spec.name, place] = self.flows.fluid.add_medium(spec, left)
        return self._media_made[spec.name, place]

    def _time_left(self, spec: MediumSpec) -> TimeLeft | None:
        """The share of time that the background traffic on all links of a medium leaves; None: they have none."""
        found = []
        loaded = [] if self.background is None else self.background.looked_at()
        if self._realisation is not None:
            number = {name: v for v, name in enumerate(self.names)}
            loaded += [(number[a], number[b]) for (a, b), record in self._realisation.links.items()
                       if record.background and a in number and b in number]
        for u, v in dict.fromkeys(ends for ends in loaded if self._topology.linked(*ends)):
            p = self.parameters(u, v)
            if p.medium == spec.name:
                profile = self._rate(self.names[u], self.names[v], p)
                load = self._load(u, v, p, profile)
                own = varying_rate(profile or cast(float, p.bandwidth_bps))
                if load is not None and own is not None:
                    found.append((load, own, spec.seconds_a_bit(p.mtu)))
        return TimeLeft(found) if found else None

    def unused_flow_link(self, flows: Flows, u: int, v: int,
                         rate: int | float | TraceSpec | None) -> FlowLink:
        """A link like u -> v of another bandwidth, in other `flows`; it loses nothing. Latencies are medians."""
        p = self.parameters(u, v)
        profile = rate.service() if isinstance(rate, TraceSpec) else None
        plain: Any = rate if profile is None else None
        number = flows.link(plain, profile)
        tcp = p.transport if isinstance(p.transport, TcpStack) else None
        return FlowLink(flows, number, u, v, typical_ns(p.latency_ns), plain if profile is None else "profile", None,
                        p.overhead_bytes, p.mtu, tcp)

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
            kinds: dict[object, list[int]] = {}
            for v in some:
                alike = kinds.setdefault(self._kind(v), [])
                if len(alike) < 2:
                    alike.append(v)
            chosen = [v for alike in kinds.values() for v in alike]
            yield from ((u, v) for u in chosen for v in chosen if self._topology.linked(u, v))
        else:
            yield from ((u, v) for u in some for v in self._topology.neighbours(u))

    def unordered(self) -> list[tuple[int, int]]:
        """The (source, destination) of the links made so far on which a message can leave before an earlier one.

        With routes by the time all of them: what no plan delivers from the end of a link is known to be lost later than
        what comes behind it has gone on.
        """
        return sorted(ends for ends, link in self._links.items() if self.earliest is not None
                      or isinstance(link, FlowLink) or link.cut)

    @property
    def listed_links(self) -> int:
        """The number of links that the topology lists, one for each direction; those of stars and meshes are not
        listed."""
        vertices = () if isinstance(self._topology, Generated) else range(len(self.names))
        return sum(1 for u in vertices for _ in self._topology.neighbours(u))

    def route(self, u: int, v: int) -> tuple[int, ...]:
        """The vertices from u to v, both included; (u,) for u itself. Raises NetworkError if v cannot be reached.

        By latencies alone, whatever the time; where there is `earliest`, messages take its ways.
        """
        if isinstance(self._topology, Generated):
            route = self._topology.route(u, v, self._typical_ns)
        else:
            route = self._ways.route(u, v)
        if route is None:
            raise self._unreachable(u, v)
        return route

    def _unreachable(self, u: int, v: int) -> NetworkError:
        where = "" if self._topology.where in ("topology", "graph") else f"{self._topology.where}: "
        return NetworkError(f"{where}{self.names[v]} cannot be reached from {self.names[u]}: no links lead there"
                            + ("" if self._topology.forward else "; no vertex forwards (topology.forward: false)"))

    def latency_ns(self, u: int, v: int) -> int:
        """The least time from u to v: the sum of the least latencies along the route, 0 for u itself. With routes by
        the time the least over all ways.

        The latencies as built, so a bound only while no fault lowers one. Raises NetworkError if unreachable.
        """
        if self.earliest is not None:
            least = self.earliest.least_ns(u, v)
            if least >= NEVER:
                raise self._unreachable(u, v)
            return least
        if isinstance(self._topology, Generated) or self._varies:
            return sum(self._least_ns(a, b) for a, b in pairwise(self.route(u, v)))
        along = self._ways.latency_ns(u, v)
        if along is None:
            raise self._unreachable(u, v)
        return along

    def out_latency_ns(self, u: int) -> int:
        """The time that the kernel may look ahead past u: the least latency of its links as built; NEVER: none."""
        kind = u if u in self.planned.sources else self._kind(u)
        least = self._least_out.get(kind)
        if least is None:
            least = self._least_out[kind] = self._find_least_out(u)
        return least if self._realisation is None else self._realisation.least_out_ns(self.names[u], least)

    def _kind(self, v: int) -> object:
        """The same for vertices whose links are alike: of the vertices of a generator there are few kinds."""
        if isinstance(self._topology, Generated):
            return self.rules_met(v), self._topology.is_hub(v)
        return v

    def _find_least_out(self, u: int) -> int:
        if u in self.planned.sources:
            return min(self._least_ns(u, v) for v in self._topology.neighbours(u))
        mine = self._resolver.source_masks[u]
        groups = self._topology.neighbour_groups(u, self._resolver.destination_masks)
        return min((least_ns(self._resolver.latency_by_mask(mine & mask, given)) for mask, given in groups),
                   default=NEVER)

    def mentions(self, u: int, v: int, field: str) -> bool:
        """True if a rule that matches the link u -> v sets this field of LinkRule."""
        return self._resolver.mentions(u, v, field)

    def warnings(self) -> list[str]:
        """Warnings on settings that work, and are probably not what was meant: attributes that nothing uses, links
        without bandwidth."""
        found = self._topology.warnings(
            lambda u, v, field: (u, v) in self.planned.links or self.mentions(u, v, field))     # a plan has the rates
        return [*found, *self._detours()]

    def _detours(self) -> Iterator[str]:
        """A warning of links that no message takes, since two others are sooner there: most likely the file has what
        was measured end to end, and no cables."""
        topology = self._topology
        if isinstance(topology, Generated) or not topology.forward or topology.where == "topology":
            return
        late = {u: {v: self._typical_ns(u, v) for v in topology.neighbours(u)} for u in range(len(self.names))}
        if sum(len(links) ** 2 for links in late.values()) > _MOST_DETOURS:
            return
        longer = {(u, v) for u, links in late.items() for v, direct in links.items() if u != v
                  and any(along + late[w].get(v, direct) < direct for w, along in links.items())}
        if longer:
            both = all(late[v].get(u) == along for u, links in late.items() for v, along in links.items())
            count, of = len(longer) // (1 + both), sum(map(len, late.values())) // (1 + both)
            u, v = min(longer)
            yield (f"{topology.where}: {count} of {of} edges are longer than a way over a third site, such as "
                   f"{self.names[u]}->{self.names[v]}, and messages take that way: if latencies were measured from end "
                   "to end, say topology.matrix in place of file, or topology.forward: false")

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
        """The values that the network was built from."""
        return self._topology

    def unmatched_rules(self) -> list[LinkRule]:
        """The rules that match no link, in their order: most likely a name that is not in the topology."""
        directions = self._resolver.directions()
        used = {id(rule) for rule, sources, destinations in directions
                if self._topology.any_link(sources, destinations)}
        return [rule for rule in self._rules if id(rule) not in used]


def _transport_draws(p: LinkParameters, lost: Outage | None) -> bool:
    """True if the fates of a link are not those of its outage, but its transport's: nothing to record or replay."""
    return isinstance(p.transport, (Arq, TcpStack)) and by_packet(lost)


def implied(joined: Joined | None) -> list[LinkRule]:
    """The rules that come before a scenario's own: those of the classes that join nodes to the network."""
    return [] if joined is None else class_rules(joined.link_classes())


def build(topology: TopologySpec, rules: Sequence[LinkRule], seed: int, realisation: Realisation | None = None,
          joined: Joined | None = None, traffic: Sequence[Traffic] = (),
          contacts: ContactSpec | None = None, media: Sequence[MediumSpec] = (),
          radio: RadioSpec | None = None) -> Network:
    """The network of a topology under rules. Raises NetworkError with everything that is wrong with either.

    realisation: a record whose draws take the place of those of the rules' models. joined: classes of nodes' own links.
    traffic: background on links. contacts: the plan of the times at which links transmit. media: those that rules name.
    radio: where nodes and places are, and the rates that follow from that.
    """
    problems = rule_problems(rules)
    known = {one.name for one in media}
    problems += [Problem(f"links[{i}].medium", repr(rule.medium), "unknown medium", rule.line)
                 for i, rule in enumerate(rules) if rule.medium is not None and rule.medium not in known]
    if problems:
        raise NetworkError(str(ScenarioError("links", problems)))
    places = _places(topology, seed)
    if contacts is not None and contacts.routes == "earliest" and not places.forward:
        raise TopologyError("topology", [Problem("topology.forward", "false", (
            "is not used with contacts.routes: earliest, which are ways over others"), topology.line)])
    network = Network(places, rules, seed, realisation, joined, traffic, contacts, media,
                      None if radio is None else read_radio(radio))
    problems = places.problems(network.parameters, network.mentions)
    if problems:
        raise TopologyError(places.where, problems)
    problems = network.planned.problems()
    if problems:
        assert contacts is not None
        raise ContactsError(str(contacts.file or "topology.constellation"), problems)
    problems = mixture_problems(network, rules)
    if network.earliest is not None:
        problems += unrouted([*implied(joined), *rules])
    if problems:
        raise LinksError(problems)
    return network


def mixture_problems(network: Network, rules: Sequence[LinkRule]) -> list[Problem]:
    """The mistakes of links that do not go together, once each. Looked for only where a rule asks for what can be
    wrong."""
    plain = LinkRule("*")
    if all(getattr(rule, name) == getattr(plain, name) and rule.sharing != "tcp_fifo"
           for rule in rules for name in ("transport", "queue", "switching", "medium")):
        return []
    found: dict[tuple[str, str], Problem] = {}
    for u, v in network.pairs():
        there = network.parameters(u, v)
        wrong = mixture_problem(there)
        if wrong is not None:
            still = "" if network.radio is None or there.bandwidth_bps is not None else network.radio.unmoved()
            found.setdefault(wrong, Problem(f"{network.names[u]}->{network.names[v]}", wrong[0], wrong[1] + still))
        for problem in _disagreements(network, u, v):
            found.setdefault((problem.found, problem.expected), problem)
    return list(found.values())


def _disagreements(network: Network, u: int, v: int) -> list[Problem]:
    """Links that go on from u -> v where no node is, with another TCP than that has."""
    first = network.parameters(u, v)
    if first.sharing not in WINDOWED or isinstance(network.topology, Generated) or any(
            v in vertices for vertices in network.roles.values()):
        return []
    found = []
    for w in network.topology.neighbours(v):
        further = network.parameters(v, w)
        if w == u or further.sharing != first.sharing or agreed(further.transport) == agreed(first.transport):
            continue
        names = network.names
        found.append(Problem(f"{names[u]}->{names[v]} and {names[v]}->{names[w]}", "different transport tcp",
                             "expected the same of all links of a route, except for the buffer"))
    return found


def _places(spec: TopologySpec, seed: int) -> Topology:
    ways = ("generator", "file", "matrix", "graph", "constellation")
    given = [name for name in ways if getattr(spec, name) is not None]
    if len(given) != 1:
        raise NetworkError(f"topology: expected one of {', '.join(ways)}; found {' and '.join(given) or 'none'}")
    if spec.generator in STARS:
        return generated(spec)
    if given == ["generator"] and spec.generator not in SHAPES:
        raise TopologyError("topology", [Problem("topology.generator", repr(spec.generator), unknown(
            str(spec.generator), GENERATORS, "generator"), spec.line)])
    # here, since networkx takes 0.2 s to import and stars need none of it
    from emul.network.graph.graphs import from_spec

    return from_spec(spec, seed)
