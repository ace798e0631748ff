"""Links that share their bandwidth among all flows on them: one direction of such a link, and the flows of a network.

A message is one *flow* over all the links in a row that share bandwidth. It pays their latencies first and then
occupies them all at once, at the rate that `Fluid` gives it, until its last byte is through: the order in which
SimGrid does it. A loss is decided when the message comes to it; a lost message occupies the links up to
the one that loses it, and its loss is known when it would have been through. So it is with a link that is down. A
message that a fault drops from a link goes on as a lost one over all links of its row: nobody tells its source.

A link with contacts has their rate, and its flows stand still in gaps. With `gap: drop` a flow that a gap meets is
lost, with `hold` one that is left at the end of the last contact. With `again` a flow that a contact cuts is taken off
all its links: its rest begins anew at its source, where it pays the latencies again. So does a flow that a handover
meets, if the node's `Handovers` say so. With "return" the kernel gets it back, for another way.

With `connections` the messages of one node to another follow each other, as over a TCP connection that both keep: the
flow of one begins when that of the one before has ended. Else each is a flow of its own from the start. Where the links
say which TCP that is (`TcpStack`), a message is the trains of packets that a `Sender` lets go, each a flow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from heapq import heappop, heappush
from math import inf
from typing import Any, Literal, NamedTuple, Protocol

from emul.base.errors import NetworkError
from emul.network.links.connections import TcpStack, agreed
from emul.network.links.crossflows import Course, CrossFlows, CrossItem
from emul.network.links.features import Delay
from emul.network.links.fluid import Fluid
from emul.network.links.link import GIVEN_BACK, HERE, InFlight, Left
from emul.network.links.queues import Queues, QueueSenders
from emul.network.links.senders import Ends, Sender, Senders, stack_of
from emul.network.links.service import WORK_PER_BYTE
from emul.network.links.shares import RateProfile
from emul.network.links.stalls import LEAST_NS, of_profile, stalled_ns
from emul.network.models.chains import PacketChain
from emul.network.models.contacts import INFINITE_BPS, Contacts, Fate, TimedLatency
from emul.network.models.outages import Outage, PerPacket, Timed
from emul.network.models.packetfates import LinkFates, PacketFates, RowFates
from emul.network.models.profiles import NEVER
from emul.network.models.residual import LinkLoad, Own

_FRUITLESS = 100                # looks at background alone, before it is asked whether all else stands still


class FlowLink:
    """A link from vertex `src` to vertex `dst` that shares its bandwidth, the link `number` of a `Fluid`. Times in ns,
    sizes in bytes."""

    cut = False

    __slots__ = (
        "_bandwidth",
        "_contacts",
        "_flows",
        "_latency",
        "_lost",
        "_medium",
        "_offered",
        "_own",
        "_packet_outage",
        "_paused",
        "agreed",
        "built_ns",
        "down",
        "dropped_ns",
        "dst",
        "fates",
        "latency_ns",
        "load",
        "looked_ns",
        "mtu",
        "number",
        "overhead_bytes",
        "src",
        "stack",
        "typical_ns",
    )

    def __init__(self, flows: Flows, number: int, src: int, dst: int, latency: int | Delay | TimedLatency = 0,
                 bandwidth_bps: float | Literal["profile"] | None = None, outage: Outage | None = None,
                 overhead_bytes: int = 0, mtu: int | None = None, tcp: TcpStack | None = None,
                 fates: PacketFates | None = None,
                 load: LinkLoad | None = None, contacts: Contacts | None = None, handovers: Handovers | None = None):
        self.load = load                        # background traffic
        self._flows = flows
        self._medium = flows.medium
        self.number = number
        self._contacts = contacts               # its rate, without background traffic
        if contacts is not None:
            flows.planned[number] = contacts
        elif handovers is not None:
            flows.planned[number] = handovers
        self.src = src
        self.dst = dst
        self._set_latency(latency)
        self.built_ns = self.latency_ns
        self._bandwidth: Any = "infinite" if bandwidth_bps is None else bandwidth_bps
        self._own: Own | str = "profile"        # the rate that faults leave it, of which a load takes its part
        self.stack = tcp
        self.agreed = agreed(tcp)
        self.fates = fates                      # of packets, under `stack`
        self._set_outage(outage)
        self._offered: dict[int, int] = {}      # round -> messages offered in it
        self.overhead_bytes = overhead_bytes
        self.mtu = mtu
        self.down = False                       # messages that come are lost
        self._paused = False                    # down with `pause`: what comes waits
        self.looked_ns = 0                      # a sender has looked at the rates until then
        self.dropped_ns = -1                    # time of the last fault that dropped its flows

    def _set_latency(self, latency: int | Delay | TimedLatency) -> None:
        self._latency = None if isinstance(latency, int) else latency
        self.latency_ns = latency if isinstance(latency, int) else latency.least_ns
        self.typical_ns = latency if isinstance(latency, int) else latency.typical_ns

    def _set_outage(self, outage: Outage | None) -> None:
        """Under `stack` packets are lost, and trains that meet the link down; whole messages and rounds as ever."""
        self._lost = None if outage is None else outage.lost
        self._packet_outage = None
        if self.stack is not None and (isinstance(outage, (PerPacket, PacketChain))
                                       or (isinstance(outage, Timed) and outage.timeline is None)):
            self._packet_outage, self._lost = outage, None

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
        delay = self.latency_ns
        if self._latency is not None:
            late = self._latency
            delay = late.latency_at(now) if isinstance(late, TimedLatency) else late.draw(round, k)
        if self.down:
            return False, delay
        if self._lost is None:
            return True, delay
        return not self._lost(now + delay, now + delay, round, k, self.packets(size_bytes)), delay

    def again_ns(self, now: int) -> int:
        """The latency that the rest of a message pays which comes to the link anew: the typical one, of those that are
        drawn."""
        return (self._latency.latency_at(now) if isinstance(self._latency, TimedLatency)
                else self.typical_ns)

    def rate_bps(self, now: int, size_bytes: int) -> float:
        """Its rate while so many bytes pass it from `now` on; inf: it has no bound.

        Of one that varies, the mean without the times at which it stands still, as connections leave these out.
        """
        bandwidth = self._bandwidth
        if isinstance(bandwidth, (int, float)):
            return bandwidth
        if bandwidth == "infinite":
            return inf
        profile: Any = self._medium.profile(self.number) if bandwidth == "profile" else bandwidth
        rate = float(profile.rate_at(now))
        change = profile.next_change(now)
        if change is None or rate * (change - now) >= size_bytes * WORK_PER_BYTE or not hasattr(profile, "finish"):
            return rate
        end = profile.finish(now, size_bytes)
        if end >= NEVER:
            return rate
        self.looked_ns = max(self.looked_ns, end)
        took = end - now
        if took >= LEAST_NS:
            took -= stalled_ns([of_profile(profile, now, end)], now, end)
        return size_bytes * WORK_PER_BYTE / took if took > 0 else inf

    def transmits(self, now: int) -> bool:
        """True if it has a contact now, or needs none."""
        return self._contacts is None or self._contacts.opens(now) == now

    def change(self, now: int, down: bool | None = None,
               bandwidth_bps: float | Literal["infinite", "profile"] | None = None,
               latency_ns: int | TimedLatency | None = None,
               outage: Outage | Literal["none"] | None = None, inflight: InFlight = "drop") -> None:
        """Change the link from `now` on, as `Link.change`."""
        self._flows.catch_up(now)
        if latency_ns is not None:
            self._set_latency(latency_ns)
            self._flows.senders.tell_latency(now, self.number)
        if outage is not None:
            self._set_outage(None if outage == "none" else outage)
        if bandwidth_bps is not None:
            self._own = bandwidth_bps if self._contacts is None else self._within(self._contacts, bandwidth_bps)
            self._bandwidth = self._own if self.load is None else self.load.residual(self._own) or "infinite"
            if not self._paused:
                self._medium.change(now, self.number, self._bandwidth)
        if down is not None:
            self._change_state(now, down, inflight)
        if self.load is not None:
            self.load.set_own(now, self.down or self._paused, self._own)

    @staticmethod
    def _within(contacts: Contacts, bandwidth_bps: float | Literal["infinite", "profile"]) -> Contacts:
        """The contacts at the rate that a fault sets; "profile": at their own."""
        if bandwidth_bps == "profile":
            return contacts
        return contacts.at_rate(INFINITE_BPS if bandwidth_bps == "infinite" else bandwidth_bps)

    def _change_state(self, now: int, down: bool, inflight: InFlight) -> None:
        """Go down, or come up again."""
        if down and not (self.down or self._paused):
            if inflight == "pause":
                self._paused = True
                self._medium.change(now, self.number, 0)
            elif inflight == "drop":
                self._flows.doom(now, self.number)
                self.dropped_ns = now
        elif not down and self._paused:
            self._paused = False
            self._medium.change(now, self.number, self._bandwidth)
        before, self.down = self.down, down and not self._paused
        if self._flows.cross is not None and before != self.down:
            if self.down:
                self._flows.cross.stop(now, self, inflight == "drop")
            else:
                self._flows.cross.go_on(now, self)

    @property
    def name(self) -> str:
        """Of its ends, for errors."""
        return f"link {self.src} -> {self.dst}" if self.fates is None else self.fates.name

    def message_fates(self, source: int, target: int, round: int) -> LinkFates | None:
        """The fates of the packets of the next message between these vertices; None: all of them pass."""
        return None if self.fates is None else self.fates.message(self._packet_outage, source, target, round)

    def offered(self) -> Mapping[int, int]:
        """As `Link.offered`."""
        return self._offered

    def in_flight(self) -> list[object]:
        """The items whose flows are on the link, or wait for one before them."""
        return self._flows.items_on(self.number)


class FlowRequest(NamedTuple):
    """A message as `Fluid` is told of it, and the links of its row."""

    item: object
    size_bytes: float
    links: Sequence[int]
    row: Sequence[FlowLink]


class Cuts(Protocol):
    """The times at which flows are taken off a link: `Contacts`, or `Handovers`."""

    gap: Fate

    def cuts(self, t_ns: int) -> int:
        """The time at which a flow that comes to the link at `t_ns` is taken off it; NEVER: it is not."""
        ...

    def over(self, t_ns: int) -> bool:
        """True if nothing is carried from `t_ns` on."""
        ...


class Handovers:
    """The cuts of a link whose node changes from one place to another, at which flows begin anew."""

    gap: Fate = "again"

    def __init__(self, next_place: Callable[[int], int | None]):
        self._next_place = next_place           # time -> that of the first handover after it

    def cuts(self, t_ns: int) -> int:
        """As of `Cuts`."""
        change = self._next_place(t_ns)
        return NEVER if change is None else change

    def over(self, t_ns: int) -> bool:
        """As of `Cuts`: there is always a place."""
        return False


class FlowRest(NamedTuple):
    """The rest of a flow that was cut: bytes of those that it had, and the number of its links."""

    left_bytes: float
    size_bytes: float
    links: int


FlowSharing = Literal["maxmin", "connections", "tcp_fifo"]


class Flows:
    """All flows of a network, with the interface by which the kernel looks at a link."""

    # The rate of a flow depends on all links of its row, so no link can set it alone. Latencies are paid before a flow
    # starts, so nothing that a node sends changes a rate before its least latency has passed: the lookahead of the
    # kernel rests on that (`test_every_node_lives_the_same_life_with_lookahead_as_one_event_at_a_time`).

    overhead_bytes = 0
    cut = False

    def __init__(self, sharing: FlowSharing):
        self.sharing = sharing
        self.fluid = Fluid()
        self.medium: Fluid | Queues = Queues() if sharing == "tcp_fifo" else self.fluid
        self._doomed: dict[object, None] = {}      # items that will be lost; a dict, since it keeps an order
        self._queues: dict[Hashable, deque[FlowRequest]] = {}      # connection that is in use -> what waits for it
        self._connection: dict[object, Hashable] = {}          # item under way -> its connection
        self.senders: Senders[Any] = (Senders(self.fluid, Sender) if isinstance(self.medium, Fluid)
                                      else QueueSenders(self.fluid, self.medium))
        self.cross: CrossFlows | None = None            # background flows
        self._fruitless = 0                             # calls of `advance` since something left or began
        self.planned: dict[int, Cuts] = {}              # link -> its contacts, or handovers
        self._ends: list[tuple[int, int]] = []          # (end of contacts, link): what is on it then is cut
        self._end_of: dict[int, int] = {}               # link -> the end of it there
        self._cuttable: dict[object, FlowRequest] = {}  # items on links of which a cut leaves a rest,
        self._anew: list[tuple[int, int, int, FlowRequest]] = []    # rests: when they begin, number, when they were cut
        self._cut_count = 0
        self._given_back: dict[object, FlowRest] = {}       # items that `advance` has returned as given back

    def add_background(self, courses: Sequence[Course]) -> None:
        """Background flows, over links of these flows, from time 0 on; before anything begins."""
        self.cross = CrossFlows(self.fluid, courses)

    def catch_up(self, now: int) -> None:
        """Begin the background flows that begin by `now`: before anything else happens at `now`."""
        if self.cross is not None:
            self.cross.run(now)

    def link(self, bandwidth_bps: float | None, profile: RateProfile | None = None) -> int:
        """The number of a new link."""
        return self.medium.add_link(bandwidth_bps, profile=profile)

    def start(self, now: int, item: object, size_bytes: int, delivered: bool, links: Sequence[FlowLink],
              latency_ns: int, ends: Ends = (-1, -1), round: int = 0) -> None:
        """A flow of `item` begins on `links`.

        latency_ns: one way, from its source to its target; the RTT of a connection of TCP is twice that. ends: vertices
        of source and target, of which `connections` lets one flow after the other begin. round: of the message.
        """
        self.catch_up(now)
        self._fruitless = 0
        if not delivered:
            self._doomed[item] = None
        size = max(link.wire_bytes(size_bytes) for link in links)
        stack = links[0].stack if len(links) == 1 else stack_of(links)
        if stack is not None:
            fates = [fate for link in links if (fate := link.message_fates(*ends, round)) is not None]
            self.senders.write(now, ends, stack, item, size_bytes, size, links, latency_ns,
                               RowFates(fates) if fates else None, delivered)
            return
        flow = FlowRequest(item, size, [link.number for link in links], links)
        if self.sharing != "connections" or self._connected(flow, (ends, links[0].number)):
            self._begin(now, flow)

    def _begin(self, now: int, flow: FlowRequest) -> None:
        self.fluid.start(now, flow.item, flow.size_bytes, flow.links)
        for link in flow.links if self.planned else ():
            plan = self.planned.get(link)
            if plan is not None:
                if plan.gap in ("again", "return"):
                    self._cuttable[flow.item] = flow
                end = plan.cuts(now)
                if end < NEVER and self._end_of.get(link) != end:
                    self._end_of[link] = end
                    heappush(self._ends, (end, link))

    def _cut(self, now: int) -> list[Left]:
        """The flows that leave since contacts end by `now`: no contact carries them, or they are given back. Others
        are to begin anew."""
        left: list[Left] = []
        while self._ends and self._ends[0][0] <= now:
            end, link = self._next_end()
            plan = self.planned[link]
            if plan.gap == "again" and not plan.over(end):
                self._begin_anew(end, self._cuttable_on(end, link))
                continue
            if plan.gap == "return":
                for item in self._cuttable_on(end, link):
                    flow = self._cuttable[item]
                    self._given_back[item] = FlowRest(self.fluid.remaining_bytes(end, item), flow.size_bytes,
                                                  len(flow.links))
            for item in self.fluid.remove(end, link=link):
                if item in self._given_back and item not in self._doomed:
                    del self._cuttable[item]
                    left.append((item, False, GIVEN_BACK, 0))
                else:
                    self._given_back.pop(item, None)
                    self._doomed[item] = None
                    left.append(self._leave(item, 0))
                if self._connection:
                    self._follow(end, item)
        return left

    def _cuttable_on(self, now: int, link: int) -> list[object]:
        """The items under way on a link at `now` of which a cut leaves a rest."""
        self.fluid.settle(now)
        return [item for item in self.fluid.flows_on(link) if item in self._cuttable]

    def _begin_anew(self, now: int, items: Sequence[object]) -> None:
        """Take these off their links; the rest of each pays its latencies anew, and then comes to the links again."""
        rests = [self.fluid.remaining_bytes(now, item) for item in items]
        self.fluid.remove(now, items)
        for item, rest in zip(items, rests, strict=True):
            flow, at = self._cuttable[item], now
            for link in flow.row:
                at += link.again_ns(at)
            self._cut_count += 1
            heappush(self._anew, (at, self._cut_count, now, flow._replace(size_bytes=rest)))

    def _go_on(self, now: int) -> None:
        """The rests that begin anew by `now` come to their links. A fault may have dropped them on their way."""
        while self._anew and self._anew[0][0] <= now:
            at, _, cut, flow = heappop(self._anew)
            if any(link.down or link.dropped_ns >= cut for link in flow.row):
                self._doomed[flow.item] = None
            self._begin(at, flow)

    def rest_of(self, item: object) -> FlowRest:
        """The rest of an item that `advance` has given back; asked once."""
        return self._given_back.pop(item)

    def _connected(self, flow: FlowRequest, connection: Hashable) -> bool:
        """True if the flow may begin; else it waits until those before it have ended."""
        queue = self._queues.get(connection)
        if queue is None:
            self._queues[connection] = deque()
            self._connection[flow.item] = connection
            return True
        queue.append(flow)
        return False

    def _follow(self, now: int, item: object) -> None:
        """The next message that waits for the connection of `item` goes on: that has ended."""
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

    def items_on(self, link: int) -> list[Any]:
        """The items under way on a link, or waiting for it."""
        flows = self.fluid.flows_on(link) if self.medium is self.fluid else []
        alone = [item for item in flows if not isinstance(item, (Sender, CrossItem))]
        return [*alone, *self.waiting(link), *self.senders.items_on(link)]

    def doom(self, now: int, link: int) -> None:
        """Mark the flows that are on a link at `now`, or wait for it, as lost. A flow that has ended by then is
        through.

        The connections over it forget their windows.
        """
        self.catch_up(now)
        self.fluid.settle(now)
        self._doomed.update(dict.fromkeys(self.items_on(link)))
        self.senders.forget(link)

    def forget(self, vertex: int) -> None:
        """The node at a vertex has crashed: its connections begin anew with what is sent next."""
        self.senders.forget_node(vertex)

    def next_change(self) -> int | None:
        """Time at which the next flow ends, a rate changes or a sender goes on; None: never, as things stand."""
        change, timer = self.fluid.next_change(), self.senders.next_timer()
        if self.cross is not None and self.fluid.awaited:
            # A message that stands still for good, say on a link that stays down, must not have the calendar look at
            # background flows for ever: then the run is deadlocked.
            if self._fruitless > _FRUITLESS and self.fluid.stands_still():
                change = self.fluid.next_break()
            elif (start := self.cross.next_start()) is not None:
                change = start if change is None else min(change, start)
        if self._ends and self._on_planned():
            change = self._ends[0][0] if change is None else min(change, self._ends[0][0])
        if self._anew:
            change = self._anew[0][0] if change is None else min(change, self._anew[0][0])
        return change if timer is None else timer if change is None else min(change, timer)

    def _on_planned(self) -> bool:
        """True if there is a flow on the link of which a contact ends next; contacts of idle links are forgotten."""
        while self._ends and not self.fluid.flows_on(self._ends[0][1]):
            self._next_end()
        return bool(self._ends)

    def _next_end(self) -> tuple[int, int]:
        end, link = heappop(self._ends)
        if self._end_of.get(link) == end:
            del self._end_of[link]
        return end, link

    def advance(self, now: int) -> list[Left]:
        """The items that are through by `now`: (item, delivered, HERE, bytes sent again), in the order of their
        ends."""
        left: list[Left] = []
        self._fruitless += 1
        if not self.senders.used:
            self.catch_up(now)
            for item in self.fluid.advance(now):
                left.append(self._leave(item, 0))
                if self._connection:
                    self._follow(now, item)
            left += self._cut(now) if self._ends else []
            if self._anew:
                self._go_on(now)
            return left
        # With senders the end of a train lets the next one go, which may end by `now`, too: one time after the other
        while (due := self.next_change()) is not None and due <= now:
            self.catch_up(due)
            left += self._cut(due) if self._ends else []
            if self._anew:
                self._go_on(due)
            if due == self.senders.next_timer():        # timers first
                self.senders.run_timer(due)
            else:
                for item in self.fluid.advance(due):
                    if isinstance(item, Sender):
                        self.senders.end_piece(due, item)
                    else:
                        left.append(self._leave(item, 0))
                        if self._connection:
                            self._follow(due, item)
            left += [self._leave(item, again) for item, again in self.senders.take()]
        return left

    def _leave(self, item: object, again: int) -> Left:
        """As `advance` says it; again -1: its sender gave up."""
        self._fruitless = 0
        if self._cuttable:
            self._cuttable.pop(item, None)
        doomed = item in self._doomed
        if doomed:
            del self._doomed[item]
        return item, not doomed and again >= 0, HERE, max(0, again)


def refuse_mixture(first: str, second: str) -> NetworkError:
    return NetworkError(f"links with sharing {first} and links with sharing {second} in one network: expected one of "
                        "maxmin, connections and tcp_fifo beside fifo")
