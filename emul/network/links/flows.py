"""Links that share their bandwidth among all flows on them: one direction of such a link, and the flows of a network.

A message is one *flow* over all the links in a row that share bandwidth. It pays their latencies first and then
occupies them all at once, at the rate that `Fluid` gives it, until its last byte is through: the order in which
SimGrid does it. What a link loses is decided when the message comes to it; a lost message occupies the links up to
the one that loses it, and its loss is known when it would have been through. So it is with a link that is down. What a
fault drops from a link goes on as a lost message over all links of its row: nobody tells its source.

With `connections` the messages of one node to another follow each other, as over a TCP connection that both keep: the
flow of one begins when that of the one before has ended. Else each is a flow of its own from the start.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from math import inf, prod
from typing import Any, Literal, NamedTuple

from emul.base.errors import NetworkError
from emul.network.links.features import Delay
from emul.network.links.fluid import Fluid
from emul.network.links.link import HERE, InFlight, Left
from emul.network.links.shares import RateProfile
from emul.network.links.transport import TcpCap
from emul.network.models.loss import Outage


class FlowLink:
    """The direction from vertex `src` to vertex `dst` of a link that shares its bandwidth. Times in ns, sizes in bytes.

    Half-duplex directions have one `number` in the `Fluid`, full-duplex ones a number each.
    """

    cut = False

    __slots__ = ("_bandwidth", "_flows", "_fluid", "_held", "_latency", "_lost", "_offered", "down", "dropped_ns",
                 "dst", "latency_ns", "mtu", "number", "overhead_bytes", "packet_loss", "src", "tcp")

    def __init__(self, flows: Flows, number: int, src: int, dst: int, latency: int | Delay = 0,
                 bandwidth_bps: float | Literal["profile"] | None = None, outage: Outage | None = None,
                 overhead_bytes: int = 0, mtu: int | None = None, tcp: TcpCap | None = None):
        self._flows = flows
        self._fluid = flows.fluid
        self.number = number
        self.src = src
        self.dst = dst
        self._set_latency(latency)
        self._bandwidth: Any = "infinite" if bandwidth_bps is None else bandwidth_bps
        self.tcp = tcp
        self._set_outage(outage)
        self._offered: dict[int, int] = {}      # round -> messages offered in it
        self.overhead_bytes = overhead_bytes
        self.mtu = mtu
        self.down = False                       # what comes is lost
        self._held = False                      # down with `pause`: what comes waits
        self.dropped_ns = -1                    # when a fault last dropped what was on it

    def _set_latency(self, latency: int | Delay) -> None:
        self._latency = None if isinstance(latency, int) else latency
        self.latency_ns = latency if isinstance(latency, int) else latency.least_ns

    def _set_outage(self, outage: Outage | None) -> None:
        """Under TCP nothing is lost: the flow is slower and sends a share again."""
        self.packet_loss = 0.0 if outage is None else outage.mean_loss(1)
        self._lost = None if outage is None or self.tcp is not None else outage.lost

    def wire_bytes(self, size_bytes: int) -> int:
        """As `Link.wire_bytes`."""
        packets = 1 if self.mtu is None else -(-size_bytes // self.mtu)
        return size_bytes + packets * self.overhead_bytes

    def packets(self, size_bytes: int) -> int:
        """As `Link.packets`."""
        return 1 if self.mtu is None else -(-size_bytes // self.mtu) or 1

    def enter(self, now: int, size_bytes: int, round: int) -> tuple[bool, int]:
        """A message comes to the link: whether it will pass, and the latency that it pays, in ns."""
        k = self._offered.get(round, 0)
        self._offered[round] = k + 1
        delay = self.latency_ns if self._latency is None else self._latency.draw(round, k)
        if self.down:
            return False, delay
        if self._lost is None:
            return True, delay
        return not self._lost(now + delay, now + delay, round, k, self.packets(size_bytes)), delay

    def change(self, now: int, down: bool | None = None,
               bandwidth_bps: float | Literal["infinite"] | None = None, latency_ns: int | None = None,
               outage: Outage | Literal["none"] | None = None, inflight: InFlight = "drop") -> None:
        """Change the link from `now` on, as `Link.change`."""
        if latency_ns is not None:
            self._set_latency(latency_ns)
        if outage is not None:
            self._set_outage(None if outage == "none" else outage)
        if bandwidth_bps is not None:
            self._bandwidth = bandwidth_bps
            if not self._held:
                self._fluid.change(now, self.number, bandwidth_bps)
        if down is None:
            return
        if down and not (self.down or self._held):
            if inflight == "pause":
                self._held = True
                self._fluid.change(now, self.number, 0)
            elif inflight == "drop":
                self._flows.doom(now, self.number)
                self.dropped_ns = now
        elif not down and self._held:
            self._held = False
            self._fluid.change(now, self.number, self._bandwidth)
        self.down = down and not self._held

    def offered(self) -> Mapping[int, int]:
        """As `Link.offered`."""
        return self._offered

    def in_flight(self) -> list[Any]:
        """The items whose flows are on the link, or wait for one before them."""
        return [*self._fluid.flows_on(self.number), *self._flows.waiting(self.number)]


class FlowTcp(NamedTuple):
    """What TCP makes of a flow: bit/s of payload and on the wire, inf without a limit; loss a packet, end to end."""

    payload_bps: float
    wire_bps: float
    loss: float
    mss: int


def tcp_of(links: Sequence[tuple[TcpCap | None, float, int]], latency_ns: int) -> FlowTcp | None:
    """Of a flow over `links`, each (its TCP if it has one, loss a packet, overhead bytes); None: no TCP.

    The first link's formula, for the loss of all links with TCP together. latency_ns: one way, of the whole route.
    """
    first = next(((tcp, overhead) for tcp, _, overhead in links if tcp is not None), None)
    if first is None:
        return None
    tcp, overhead = first
    loss = 1 - prod(1 - p for other, p, _ in links if other is not None)
    rate = tcp.rate_bps(loss, 2 * latency_ns)
    return FlowTcp(rate, rate * (1 + overhead / tcp.mss), loss, tcp.mss)


class Flow(NamedTuple):
    """What `Fluid` is to be told of a message."""

    item: Any
    size_bytes: int
    links: Sequence[int]
    rtt_ns: int
    cap_bps: float | None


FlowSharing = Literal["maxmin", "rtt_weighted", "connections"]


class Flows:
    """All flows of a network, with the interface by which the kernel looks at a link."""

    overhead_bytes = 0
    cut = False

    def __init__(self, sharing: FlowSharing):
        self.sharing = sharing
        self.fluid = Fluid("maxmin" if sharing == "connections" else sharing)
        self._doomed: dict[Any, None] = {}      # items that will be lost; a dict, since it keeps an order
        self._queues: dict[Hashable, deque[Flow]] = {}      # connection that is in use -> what waits for it
        self._connection: dict[Any, Hashable] = {}          # item under way -> its connection

    def link(self, bandwidth_bps: float | None, profile: RateProfile | None = None) -> int:
        """The number of a new link; both directions of a half-duplex one use the same."""
        return self.fluid.add_link(bandwidth_bps, profile=profile)

    def start(self, now: int, item: Any, size_bytes: int, delivered: bool, links: Sequence[FlowLink],
              latency_ns: int, ends: Hashable = None) -> int:
        """A flow of `item` begins on `links`; returns the bytes that TCP sends again on each of them.

        latency_ns: one way, from its source to its target; the RTT is twice that. Where links ask for TCP, the first
        one's formula caps the rate, for the loss of all of them together. ends: source and target, of whom
        `connections` lets one flow after the other begin.
        """
        if not delivered:
            self._doomed[item] = None
        size = max(link.wire_bytes(size_bytes) for link in links)
        tcp = tcp_of([(link.tcp, link.packet_loss, link.overhead_bytes) for link in links], latency_ns)
        cap = None if tcp is None or tcp.wire_bps == inf else tcp.wire_bps
        # the formula gives the rate of what arrives: what is sent again is counted, and does not slow the flow more
        flow = Flow(item, size, [link.number for link in links], 2 * latency_ns, cap)
        if self.sharing != "connections" or self._connected(flow, (ends, links[0].number)):
            self._begin(now, flow)
        if tcp is None:
            return 0
        part, whole = TcpCap.resent_share(tcp.loss)
        return size * part // whole

    def _begin(self, now: int, flow: Flow) -> None:
        self.fluid.start(now, flow.item, flow.size_bytes, flow.links, rtt_ns=flow.rtt_ns, cap_bps=flow.cap_bps)

    def _connected(self, flow: Flow, connection: Hashable) -> bool:
        """Whether the flow may begin; else it waits until those before it have ended."""
        queue = self._queues.get(connection)
        if queue is None:
            self._queues[connection] = deque()
            self._connection[flow.item] = connection
            return True
        queue.append(flow)
        return False

    def _follow(self, now: int, item: Any) -> None:
        """What waits for the connection of `item` goes on: that has ended."""
        connection = self._connection.pop(item, None)
        queue = self._queues.get(connection)
        if queue:
            flow = queue.popleft()
            self._connection[flow.item] = connection
            self._begin(now, flow)
        elif queue is not None:
            del self._queues[connection]

    def waiting(self, link: int) -> list[Any]:
        """The items whose flows will be on the link once those before them have ended."""
        return [flow.item for queue in self._queues.values() for flow in queue if link in flow.links]

    def doom(self, now: int, link: int) -> None:
        """What is on a link at `now`, or waits for it, will be lost. What has ended by then is through."""
        self.fluid.settle(now)
        self._doomed.update(dict.fromkeys([*self.fluid.flows_on(link), *self.waiting(link)]))

    def next_change(self) -> int | None:
        """Time at which the next flow ends or a rate changes; None: never, as things stand."""
        return self.fluid.next_change()

    def advance(self, now: int) -> list[Left]:
        """What is through by `now`: (item, delivered, HERE, 0), in the order of their ends."""
        left = []
        for item in self.fluid.advance(now):
            delivered = item not in self._doomed
            if not delivered:
                del self._doomed[item]
            left.append((item, delivered, HERE, 0))
            if self._connection:
                self._follow(now, item)
        return left


def refuse_mixture(first: str, second: str) -> NetworkError:
    return NetworkError(f"links with sharing {first} and links with sharing {second} in one network: expected one of "
                        "maxmin, rtt_weighted and connections beside fifo")
