"""What a message can expect of a route before anything is sent: round trip, bottleneck, time, loss, retransmissions.

The time is that of a message that is alone and meets no loss. It is not computed here but sent: over unused links with
the parameters of the route's, so that framing, switching, transports and traces count as they do in a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from math import inf

from msgspec import structs

from emul.network.links.fifo import fifo_link, needs_all_full
from emul.network.links.flows import FlowTcp, tcp_of
from emul.network.links.link import HERE, Tail
from emul.network.links.tcp import MSS_BYTES
from emul.network.links.transport import UNLIMITED_RETRIES, Arq, TcpCap
from emul.network.models.chains import RoundChain
from emul.network.models.latency import typical_ns
from emul.network.models.loss import Outage, PerRound, outage
from emul.network.models.profiles import NEVER
from emul.network.models.traces import TraceSpec
from emul.network.network import Network
from emul.network.rules import LinkParameters, LinkRule

Ends = tuple[int, int]              # the vertices of a link, from and to


@dataclass(frozen=True, slots=True)
class Hop:
    """One link for a message. bandwidth_bps: the mean of a trace, TCP's rate where that is less, inf without a limit.

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
    """A message on its way. rtt_ns: of latencies alone, there and back; time_ns: None if it would never arrive."""

    source: int
    destination: int
    hops: tuple[Hop, ...]
    rtt_ns: int
    time_ns: int | None

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

    def __init__(self, network: Network, rules: Sequence[LinkRule], seed: int, size_bytes: int):
        self._network = network
        self._all_full = needs_all_full(rules)
        self._seed = seed
        self._size = size_bytes
        self._hops: dict[tuple[int, int], Hop] = {}

    def route(self, u: int, v: int) -> Route:
        """What a message meets from u to v, two vertices. Raises NetworkError if there is no way there and back."""
        way, back = list(pairwise(self._network.route(u, v))), pairwise(self._network.route(v, u))
        tcp = self._flow_tcp(way, self._network.latency_ns(u, v))
        hops = tuple(self._under(self._hop(*ends), tcp.get(ends)) for ends in way)
        rtt = sum(hop.latency_ns for hop in hops) + sum(self._latency_ns(*ends) for ends in back)
        return Route(u, v, hops, rtt, self._time_ns(way, tcp))

    def _latency_ns(self, u: int, v: int) -> int:
        return typical_ns(self._network.parameters(u, v).latency_ns)

    def _model(self, u: int, v: int, p: LinkParameters) -> Outage | None:
        return outage(p.outage, self._seed, self._network.names[u], self._network.names[v])

    def _hop(self, u: int, v: int) -> Hop:
        hop = self._hops.get((u, v))
        if hop is None:
            p = self._network.parameters(u, v)
            model = self._model(u, v, p)
            rate = _rate(p)
            if isinstance(p.transport, TcpCap):
                rate = min(rate, p.transport.rate_bps(_loss(model), 2 * typical_ns(p.latency_ns)))
            hop = self._hops[u, v] = Hop(u, v, typical_ns(p.latency_ns), rate, *_expected(p, model, self._size))
        return hop

    def _time_ns(self, way: Sequence[Ends], tcp: Mapping[Ends, FlowTcp]) -> int | None:
        now, tail = 0, HERE
        left = len(way)
        for shared, row in groupby(way, self._is_shared):
            links = list(row)
            left -= len(links)
            if shared:
                now, tail = self._through_row(links, max(now, tail.end_ns), tcp.get(links[0])), HERE
            else:
                now, tail = self._through_queues(links, now, tail, not left)
            if now >= NEVER:
                return None
        return now

    def _through_queues(self, way: Sequence[Ends], now: int, tail: Tail, ends_here: bool) -> tuple[int, Tail]:
        """When it has crossed links of first in, first out, and when its tail follows; NEVER: it does not."""
        for i, (u, v) in enumerate(way):
            p = self._network.parameters(u, v)
            lost = self._model(u, v, p) if isinstance(p.transport, TcpCap) else None     # it says how fast TCP is
            rate = self._network.bandwidth(u, v)
            profile = rate.service() if isinstance(rate, TraceSpec) else None
            link = fifo_link(u, v, (self._network.names[u], self._network.names[v]), structs.replace(p, queue=None),
                             lost, typical_ns(p.latency_ns), self._seed, profile=profile, full=self._all_full)
            link.offer(now, None, self._size, 0, ends_here and i == len(way) - 1, tail)
            left = link.next_change()
            if left is None or left >= NEVER:
                return NEVER, HERE
            now = left
            (_, _, tail, _), = link.advance(now)
        return now, tail

    def _through_row(self, row: Sequence[Ends], now: int, tcp: FlowTcp | None) -> int:
        """Alone on links that share: the latencies, then all at once at the rate of the slowest, or TCP's."""
        begin, last = now + sum(self._latency_ns(*ends) for ends in row), 0
        size = max(self._network.link(*ends).wire_bytes(self._size) for ends in row)
        rates = [self._network.bandwidth(*ends) for ends in row]
        for rate in [*rates, None if tcp is None or tcp.wire_bps == inf else tcp.wire_bps]:
            if isinstance(rate, TraceSpec):
                last = max(last, rate.service().finish(begin, size) - begin)
            elif rate is not None:
                last = max(last, -round(-size * 8e9 // rate))
        return begin + last

    def _is_shared(self, ends: Ends) -> bool:
        return self._network.parameters(*ends).sharing != "fifo"

    def _flow_tcp(self, way: Sequence[Ends], latency_ns: int) -> dict[Ends, FlowTcp]:
        """For each link of a row that shares and has TCP: what that makes of the flow over the whole row."""
        found: dict[Ends, FlowTcp] = {}
        for shared, row in groupby(way, self._is_shared):
            if shared:
                links = [(ends, self._network.parameters(*ends)) for ends in row]
                tcp = tcp_of([(p.transport if isinstance(p.transport, TcpCap) else None,
                               _loss(self._model(*ends, p)), p.overhead_bytes) for ends, p in links], latency_ns)
                if tcp is not None:
                    found |= {ends: tcp for ends, _ in links}
        return found

    def _under(self, hop: Hop, tcp: FlowTcp | None) -> Hop:
        """The hop in a flow of TCP: no faster than that, and each link of the row carries what is sent again."""
        if tcp is None:
            return hop
        again = inf if tcp.loss >= 1 else _packets(self._size, tcp.mss) * tcp.loss / (1 - tcp.loss)
        p = self._network.parameters(hop.source, hop.destination)
        lost = 0.0 if isinstance(p.transport, TcpCap) else hop.loss
        return replace(hop, bandwidth_bps=min(_rate(p), tcp.payload_bps), loss=lost, retransmissions=again)


def _rate(p: LinkParameters) -> float:
    """The link's own, in bit/s: the mean of a trace, inf without a limit."""
    return inf if p.bandwidth_bps is None else float(p.bandwidth_bps)


def _loss(model: Outage | None) -> float:
    """Of a packet."""
    return 0.0 if model is None else model.mean_loss(1)


def _packets(size_bytes: int, mtu: int | None) -> int:
    return 1 if mtu is None else max(1, -(-size_bytes // mtu))


def _expected(p: LinkParameters, model: Outage | None, size_bytes: int) -> tuple[float, float]:
    """(share of messages lost, expected retransmissions) of a link, by the closed forms of its transport."""
    packets = _packets(size_bytes, p.mtu)
    if isinstance(p.transport, TcpCap):         # nothing is lost; a packet is sent 1 / (1 - p) times
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
