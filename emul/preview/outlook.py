"""The expectations of a message on a route before anything is sent: round trip, bottleneck, time, loss,
retransmissions.

The time is that of a message that is alone and meets no loss. It is not computed here but sent: over unused links with
the parameters of the route's, so that framing, switching, transports and traces count as they do in a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from math import inf
from typing import cast

from msgspec import structs

from emul.base.names import listed
from emul.network.graph.earliest import carried
from emul.network.links.connections import MSS_BYTES, TcpStack
from emul.network.links.fifo import fifo_link, needs_all_full
from emul.network.links.flows import Flows, FlowSharing
from emul.network.links.link import HERE, Tail
from emul.network.links.transport import UNLIMITED_RETRIES, Arq
from emul.network.mediumoutlook import seconds_a_bit
from emul.network.models.chains import RoundChain
from emul.network.models.latency import typical_ns
from emul.network.models.outages import Outage, PerRound, outage
from emul.network.models.profiles import NEVER, VaryingRate
from emul.network.models.traces import TraceSpec
from emul.network.network import Network
from emul.network.realisation import by_packet
from emul.network.rules import LinkParameters, LinkRule

# Connections of TCP were checked against ns-3 and a kernel for at most this loss and at least this buffer.
_MOST_LOSS = 0.02                   # of packets
_LEAST_BUFFER = 10                  # packets
Ends = tuple[int, int]              # the vertices of a link, from and to


@dataclass(frozen=True, slots=True)
class Hop:
    """One link for a message. bandwidth_bps: the mean of a trace, inf without a limit.

    loss: the share of messages that it loses; retransmissions: how often it sends something again, on average: packets
    or, with stop-and-wait, the message.
    """

    source: int
    destination: int
    latency_ns: int
    bandwidth_bps: float
    loss: float
    retransmissions: float


@dataclass(frozen=True, slots=True)
class Route:
    """A message on its way. rtt_ns: of latencies alone, there and back; time_ns: None if it would never arrive.

    With connections of TCP time_ns is that of a new one.
    """

    source: int
    destination: int
    hops: tuple[Hop, ...]
    rtt_ns: int
    time_ns: int | None
    used_ns: int | None = None      # the time over a connection of TCP that has just carried such a message
    load: float = 0.0               # the largest share of a link that background traffic takes in the mean
    loaded_ns: int | None = None    # the time of a message beside background traffic in the mean; None: never

    @property
    def bottleneck(self) -> Hop:
        """The hop of the least bandwidth, the first of them."""
        return min(self.hops, key=lambda hop: hop.bandwidth_bps)

    @property
    def loss(self) -> float:
        """The share of messages that are lost on the way, if the links lose independently."""
        lost = 0.0
        for hop in self.hops:
            lost += (1 - lost) * hop.loss
        return lost

    @property
    def retransmissions(self) -> float:
        """Expected along the way; a later link sees only what has come so far."""
        total, there = 0.0, 1.0
        for hop in self.hops:
            total += there * hop.retransmissions
            there *= 1 - hop.loss
        return total


class Outlook:
    """Routes of one network for messages of one size; latencies are medians where they vary."""

    # Messages are sent over unused links, so the times cannot differ from those of a run; formulas would have to follow
    # every feature of a link. Only losses and repetitions are closed forms
    # (`test_the_time_foretold_is_the_time_taken`).

    def __init__(self, network: Network, rules: Sequence[LinkRule], seed: int, size_bytes: int):
        self._network = network
        self._all_full = needs_all_full(rules)
        self._seed = seed
        self._size = size_bytes
        self._hops: dict[tuple[int, int], Hop] = {}
        self._beside = False        # a time beside background traffic is asked for

    def route(self, u: int, v: int) -> Route:
        """The route that a message meets from u to v, two vertices. Raises NetworkError if there is no way there and
        back."""
        way, there = self._way(u, v)
        back = pairwise(self._network.route(v, u))
        hops = tuple(self._hop(*ends) for ends in way)
        rtt = sum(hop.latency_ns for hop in hops) + sum(self._latency_ns(*ends) for ends in back)
        fresh, used = (self._time_ns(way, used) if there else None for used in (False, True))
        load = max((self._load(*ends) for ends in way), default=0.0)
        loaded = fresh
        if load or any(self._network.elastic_load(*ends).greedy for ends in way):
            self._beside = True
            loaded = None if load >= 1 or not there else self._time_ns(way, False)
            self._beside = False
        return Route(u, v, hops, rtt, fresh, used if any(map(self._has_stack, way)) else None, load, loaded)

    def _way(self, u: int, v: int) -> tuple[list[Ends], bool]:
        """The links from u to v, with routes by the time those of a message sent at 0 s; whether a message comes
        that way: False where no plan delivers it."""
        earliest = self._network.earliest
        found = None if earliest is None else earliest.way(u, v, 0, self._size)
        return list(pairwise(found or self._network.route(u, v))), earliest is None or found is not None

    def _load(self, u: int, v: int) -> float:
        """The share of a link that background traffic takes in the mean; 1 and more: nothing is left."""
        own = self._network.parameters(u, v).bandwidth_bps
        return 0.0 if own is None else self._network.load_bps(u, v) / float(own)

    def _bandwidth(self, u: int, v: int) -> int | float | TraceSpec | None:
        """The link's own, or, while a time beside background traffic is asked for, what that leaves in the mean."""
        own = self._network.bandwidth(u, v)
        if not self._beside or own is None:
            return own
        load, elastic = self._network.load_bps(u, v), self._network.elastic_load(u, v)
        if not load and not elastic.greedy:
            return own
        # Processor sharing: with the load rho of messages and n greedy flows all takes (n + 1) / (1 - rho) as long.
        if self._is_shared((u, v)):
            return (float(own) - load) / (elastic.greedy + 1)
        return float(own) - (load - elastic.bps)

    def _wait_ns(self, u: int, v: int) -> float:
        """The mean wait behind background messages in a queue (Pollaczek-Khinchine: as if they came independently of
        each other); inf where their sizes have no second moment."""
        elastic, own = self._network.elastic_load(u, v), self._bandwidth(u, v)
        if not self._beside or own is None or not elastic.bps:
            return 0.0
        left = float(own)
        return 1e9 * 32 * elastic.square_rate / left / (left - elastic.bps)

    def _has_stack(self, ends: Ends) -> bool:
        return isinstance(self._network.parameters(*ends).transport, TcpStack)

    def _latency_ns(self, u: int, v: int) -> int:
        return typical_ns(self._network.parameters(u, v).latency_ns)

    def _hop(self, u: int, v: int) -> Hop:
        hop = self._hops.get((u, v))
        if hop is None:
            p = self._network.parameters(u, v)
            model = outage(p.outage, self._seed, self._network.names[u], self._network.names[v])
            own = inf if p.bandwidth_bps is None else float(p.bandwidth_bps)        # of a trace its mean
            rate = own if p.medium is None else self._in_medium(p.medium, [(u, v)])
            hop = self._hops[u, v] = Hop(u, v, typical_ns(p.latency_ns), rate, *_expected(p, model, self._size))
        return hop

    def _time_ns(self, way: Sequence[Ends], used: bool) -> int | None:
        now, tail = 0, HERE
        left = len(way)
        for shared, row in groupby(way, self._is_shared):
            links = list(row)
            left -= len(links)
            if shared and self._has_stack(links[0]):
                now, tail = self._through_connection(links, max(now, tail.end_ns), used, way), HERE
            elif shared:
                now, tail = self._through_row(links, max(now, tail.end_ns)), HERE
            else:
                now, tail = self._through_queues(links, now, tail, not left)
            if now >= NEVER:
                return None
        return now

    def _through_queues(self, way: Sequence[Ends], now: int, tail: Tail, ends_here: bool) -> tuple[int, Tail]:
        """The time when it has crossed first-in-first-out links, and the tail that follows it; NEVER: it does not
        cross."""
        for i, (u, v) in enumerate(way):
            p = self._network.parameters(u, v)
            rate, there = self._bandwidth(u, v), self._network.contacts(u, v)
            profile: VaryingRate | None = rate.service() if isinstance(rate, TraceSpec) else None
            if there is not None:
                profile = there if rate == p.bandwidth_bps else there.at_rate(cast(float, rate))
            link = fifo_link(u, v, (self._network.names[u], self._network.names[v]), structs.replace(
                p, queue=None, bandwidth_bps=rate),
                             None, typical_ns(p.latency_ns) if there is None else there, self._seed, profile=profile,
                             full=self._all_full)
            link.offer(now, None, self._size, 0, ends_here and i == len(way) - 1, tail)
            left, wait = link.next_change(), self._wait_ns(u, v)
            if left is None or left >= NEVER or wait >= NEVER:
                return NEVER, HERE
            now = left + round(wait)
            (_, delivered, tail, _), = link.advance(left)
            if there is not None and not delivered:
                return NEVER, HERE
        return now, tail

    def _through_row(self, row: Sequence[Ends], now: int) -> int:
        """Alone on links that share: the latencies, then all at once at the rate of the slowest."""
        begin, last = now, 0
        for ends in row:
            there = self._network.contacts(*ends)
            begin += self._latency_ns(*ends) if there is None else there.latency_at(begin)
        size = max(self._network.link(*ends).wire_bytes(self._size) for ends in row)
        planned = [there for ends in row if (there := self._network.contacts(*ends)) is not None]
        rates: list[int | float | TraceSpec | None] = []
        media: dict[str, list[Ends]] = {}
        for ends in row:
            medium = self._network.parameters(*ends).medium
            if medium is not None:
                media.setdefault(medium, []).append(ends)
            elif self._network.contacts(*ends) is None:
                rates.append(self._bandwidth(*ends))
        rates += [self._in_medium(*one) for one in media.items()]
        for rate in rates:
            if isinstance(rate, TraceSpec):
                last = max(last, rate.service().finish(begin, size) - begin)
            elif rate is not None:
                last = max(last, -round(-size * 8e9 // rate))
        return min(NEVER, max([begin + last, *(
            carried(there, begin, size) if there.gap == "drop" else there.finish(begin, size) for there in planned)]))

    def _in_medium(self, name: str, links: Sequence[Ends]) -> float:
        """The rate over these links of a medium where nobody else sends; of traces by their means."""
        spec, cost = self._network.media[name], 0.0
        for ends in links:
            rate = self._bandwidth(*ends)
            cost += seconds_a_bit(spec, None if rate is None else float(rate), self._network.parameters(*ends).mtu)
        return spec.share(len({frozenset(ends) for ends in links})) / cost

    def _through_connection(self, row: Sequence[Ends], now: int, used: bool, way: Sequence[Ends]) -> int:
        """Alone on a connection of TCP that loses nothing; used: after another such message, all of it acknowledged."""
        latency = sum(self._latency_ns(*ends) for ends in row)
        whole = sum(self._latency_ns(*ends) for ends in way)
        flows = Flows(cast(FlowSharing, self._network.parameters(*row[0]).sharing))
        links = [self._network.unused_flow_link(flows, *ends, self._bandwidth(*ends)) for ends in row]
        start = now + latency
        for number in range(1 + used):
            begun = start
            flows.start(start, number, self._size, True, links, whole, (0, 1))
            while (due := flows.next_change()) is not None:
                for _ in flows.advance(due):
                    start = due
            if start == begun and self._size:
                return NEVER
            took = start - begun
            start += 2 * whole
        return now + latency + took

    def _is_shared(self, ends: Ends) -> bool:
        return self._network.parameters(*ends).sharing != "fifo"


def _loss(model: Outage | None) -> float:
    """Of a packet."""
    return 0.0 if model is None else model.mean_loss(1)


def _packets(size_bytes: int, mtu: int | None) -> int:
    return 1 if mtu is None else max(1, -(-size_bytes // mtu))


def _expected(p: LinkParameters, model: Outage | None, size_bytes: int) -> tuple[float, float]:
    """(share of messages lost, expected retransmissions) of a link, by the closed forms of its transport."""
    packets = _packets(size_bytes, p.mtu)
    if isinstance(p.transport, TcpStack) and by_packet(model):
        # nothing is lost; a packet is sent 1 / (1 - p) times
        loss = _loss(model)
        return 0.0, inf if loss >= 1 else _packets(size_bytes, p.transport.mss) * loss / (1 - loss)
    if not isinstance(p.transport, Arq):
        return (0.0 if model is None else model.mean_loss(packets)), 0.0
    whole = p.transport.mode == "stop_and_wait"
    parts = 1 if whole else _packets(size_bytes, p.mtu or p.transport.mtu or MSS_BYTES)
    loss = 0.0 if model is None else model.mean_loss(packets if whole else 1)
    retries = UNLIMITED_RETRIES if p.transport.retries is None else p.transport.retries
    heard = 1 - p.transport.ack_loss
    if isinstance(model, PerRound | RoundChain):        # all attempts of a round share its fate
        return loss, parts * (loss * retries + (1 - loss) * _repeats(heard, retries))
    return 1 - (1 - loss ** (retries + 1)) ** parts, parts * _repeats((1 - loss) * heard, retries)


def _repeats(success: float, most: int) -> float:
    """The expected repetitions until a success, `most` at the most: sum over i = 1 .. most of (1 - success)^i."""
    failure = 1 - success
    return float(most) if success == 0 else failure * (1 - failure ** most) / success


def unverified(network: Network, seed: int) -> list[str]:
    """Links whose connections of TCP are outside of what the model was verified for: much loss, small buffers."""
    found: dict[str, list[str]] = {}
    for u, v in network.pairs():
        p = network.parameters(u, v)
        if not isinstance(p.transport, TcpStack):
            continue
        name = f"{network.names[u]}->{network.names[v]}"
        model = outage(p.outage, seed, network.names[u], network.names[v])
        if by_packet(model) and _loss(model) > _MOST_LOSS:
            found.setdefault(f"above {_MOST_LOSS:.0%} of packets lost", []).append(name)
        buffer = p.transport.buffer_bytes
        if buffer is not None and buffer < _LEAST_BUFFER * (p.transport.mss + (p.overhead_bytes if p.mtu else 0)):
            found.setdefault(f"with a buffer below {_LEAST_BUFFER} packets", []).append(name)
    return [f"connections of TCP {what} are not verified: {listed(names, 3)}"
            for what, names in found.items()]
