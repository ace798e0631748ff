"""A link with everything that a link can have: see `emul.network.links.link` for the plain one, which is the hot path.

* Latencies that are drawn. Order is kept (a message leaves when the one before it has, at the earliest) unless the
  distribution says `reorder`.
* A rate that varies in time, and outages with pauses: services of `emul.network.links.service`.
* A limit of what waits (`Queue`): drop-tail. What is being transmitted does not count, and a message is taken or
  dropped as a whole. A dropped one occupies nothing; its loss is known when it would have been delivered, had it been
  taken.
* Handing on heads (`Switching`). A message that goes on over another link leaves when its first packet (packetized) or
  its first byte (cut-through) has crossed. The next link is told when the tail follows; it transmits no faster than the
  bytes come: its last packet cannot start before the tail is there. So n packets of L bytes over several links take
  sum(L / C_i + d_i) + (n - 1) L / min C. What a link loses, it loses whole, and that is known when the tail would have
  come. A message of which the head has left is settled: no fault or change of this link touches it any more, and its
  tail follows as planned (and occupies the link as long).
* Transports (`emul.network.links.transport`): ARQ on this link alone, or a cap on the rate as TCP's.

A change plans anew all that has not been transmitted: first what has been sent by now is set down with the link as it
was, then the rest is planned with the link as it is. So a plan never depends on how many changes led to it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from fractions import Fraction
from heapq import heapify, heappop, heappush
from math import inf
from typing import Any, Literal, Protocol, cast

from emul.base.errors import NetworkError
from emul.network.links.link import InFlight, Left, Link
from emul.network.links.service import PAUSED, STOPPED, UNLIMITED, Bytes, Constant, Gated, Service, Varying
from emul.network.links.tcp import MSS_BYTES
from emul.network.links.transport import Arq, Attempts, Conditions, Fates, Finding, TcpCap, is_count
from emul.network.models.loss import Outage


class Delay(Protocol):
    """A latency that is drawn, in ns; never below `least_ns`."""

    least_ns: int
    typical_ns: int
    reorder: bool

    def draw(self, round: int, k: int) -> int: ...


@dataclass(frozen=True, slots=True)
class Queue:
    """How much may wait: `limit` wire bytes or packets. M/M/1/K is messages of one packet and a queue of K - 1."""

    limit: int
    unit: Literal["bytes", "packets"] = "bytes"

    def problems(self) -> list[Finding]:
        found = [] if is_count(self.limit, 0) else [("limit", repr(self.limit), "expected a whole number, 0 or more")]
        if self.unit not in ("bytes", "packets"):
            found.append(("unit", repr(self.unit), "expected bytes or packets"))
        return found


@dataclass(frozen=True, slots=True)
class Switching:
    """How far a message must have crossed before it goes on: its first byte, or its first packet of `mtu` bytes.

    mtu None: that of the link's overhead; where there is none, a message is one packet.
    """

    mode: Literal["cut_through", "packetized"]
    mtu: int | None = None

    def problems(self) -> list[Finding]:
        found = []
        if self.mode not in ("cut_through", "packetized"):
            found.append(("mode", repr(self.mode), "expected cut_through or packetized"))
        if self.mtu is not None and (self.mode != "packetized" or not is_count(self.mtu, 1)):
            found.append(("mtu", repr(self.mtu), "expected a whole number of bytes, 1 or more, of packetized"))
        return found


class _Transit:
    """A message on the link: what it is, and the plan for it."""

    __slots__ = ("accepted", "begun", "blocked", "delivered", "due", "end", "first_packet", "free", "gone", "head_end",
                 "head_left", "item", "k", "last_packet", "left", "offered", "packets", "planned", "resent", "round",
                 "seq", "settled", "size", "start", "tail", "tail_in", "task", "whole")

    item: Any
    seq: int                    # number among all that were offered
    round: int
    k: int
    packets: int
    size: int                   # wire bytes
    left: Bytes                 # of them, to be transmitted from `planned` on
    planned: int
    offered: int
    tail_in: int                # when its tail reaches this link
    first_packet: int           # wire bytes that come with its head,
    last_packet: int            # and that cannot leave before its tail has come
    head_left: Bytes | None     # bytes that must cross before it goes on; None: all
    accepted: bool              # not dropped by the queue
    begun: bool                 # its transmission began before a change: its fate stands
    settled: bool               # lost, whatever happens
    blocked: bool               # ARQ: what is sent for it now is lost, since the link is down
    gone: bool
    task: Attempts | None
    start: int                  # of its transmission
    end: int                    # of its last byte
    free: int                   # when the link can begin with the next one
    head_end: int
    whole: int                  # when the whole has crossed
    due: int                    # when it leaves: whole, or earlier by its head
    tail: int                   # whole, if it leaves by its head, else 0
    delivered: bool
    resent: int


class FullLink(Link):
    """The link from `src` to `dst` with features; the interface is `Link`'s. Times in ns, sizes in bytes.

    profile: a rate that varies, in place of `bandwidth_bps`; until a `change` of the bandwidth. key: of the
    stream that later attempts of a reliable transport draw from. half_duplex: both directions are this link.
    """

    __slots__ = ("_draw", "_fates", "_flight", "_free", "_given", "_heap", "_key", "_limit", "_outage",
                 "_part_bytes", "_paused", "_profile", "_reorder", "_resent", "_seq", "_service", "_switching",
                 "_tails", "_transport", "_typical_ns", "_waiting", "_waits", "cut", "half_duplex")

    def __init__(self, src: int, dst: int, latency: int | Delay = 0, bandwidth_bps: int | float | None = None,
                 outage: Outage | None = None, overhead_bytes: int = 0, mtu: int | None = None, *,
                 profile: Service | None = None, queue: Queue | None = None, switching: Switching | None = None,
                 transport: Arq | TcpCap | None = None, key: int = 0):
        super().__init__(src, dst, 0, bandwidth_bps, None, overhead_bytes, mtu)
        self._offered = {}
        self._flight: deque[_Transit] = deque()         # in the order offered; what has left among them is `gone`
        self._heap: list[tuple[int, int, _Transit]] = []        # (due, seq, ...) of all that have not left
        self._seq = 0
        self._free = 0                          # until when what has left by its head is transmitted still,
        self._tails = 0                         # and when its tail has crossed
        self._limit = queue
        self._waiting: deque[_Transit] = deque()        # accepted, not begun when last looked at
        self._waits = 0                         # their bytes or packets
        self._switching = switching
        self._transport = transport
        self._key = key
        self._part_bytes: int | None = None     # wire bytes of what is repeated alone; None: whole messages
        if isinstance(transport, Arq) and transport.mode == "selective_repeat":
            self._part_bytes = mtu + overhead_bytes if mtu else transport.mtu or MSS_BYTES
        self._paused = False
        self._profile = self._given = profile
        self._set_latency(latency)
        self._set_outage(outage)
        self._set_service()
        self.half_duplex = False
        self.cut = switching is not None or queue is not None or self._reorder

    # --- what it is made of ---

    def _set_latency(self, latency: int | Delay) -> None:
        plain = isinstance(latency, int)
        self.latency_ns = latency if isinstance(latency, int) else latency.least_ns
        self._typical_ns = latency if isinstance(latency, int) else latency.typical_ns
        self._draw = None if isinstance(latency, int) else latency.draw
        self._reorder = not plain and bool(getattr(latency, "reorder", False))

    def _set_outage(self, outage: Outage | None) -> None:
        self._outage = outage
        self._lost = None if outage is None or self._transport is not None else outage.lost
        arq = isinstance(self._transport, Arq)
        self._fates = Fates(outage) if arq and outage is not None else None

    def _set_service(self) -> None:
        service: Service
        if self._profile is not None:
            service = Varying(self._profile)
        elif self.bandwidth_bps is None:
            service = UNLIMITED
        else:
            service = Constant(self.bandwidth_bps)
        self._resent: tuple[int, int] | None = None     # the share of bytes that TCP sends again
        if isinstance(self._transport, TcpCap):
            self._resent = self._transport.resent_share(self._loss_per_packet())
            service = self._capped(self._transport, service)
        timeline = None if self._outage is None else self._outage.timeline
        if timeline is not None:
            service = Gated(service, timeline)
        self._service: Service = STOPPED if self._paused else service

    def _capped(self, cap: TcpCap, service: Service) -> Service:
        """`service` at TCP's rate if that is less. The formulas count payload, the link's rate wire bytes."""
        if self._profile is not None:
            raise NetworkError(f"link {self.src} -> {self.dst}: transport tcp: expected a bandwidth that is constant")
        rate = cap.rate_bps(self._loss_per_packet(), 2 * self._typical_ns) * (1 + self.overhead_bytes / cap.mss)
        return Constant(rate) if rate < (inf if self.bandwidth_bps is None else self.bandwidth_bps) else service

    def _loss_per_packet(self) -> float:
        return 0.0 if self._outage is None else self._outage.mean_loss(1)

    # --- the interface ---

    def offer(self, now: int, item: Any, size_bytes: int, round: int, last: bool = True, tail_ns: int = 0) -> bool:
        """As `Link.offer`. last: it goes no further. tail_ns: when its tail will be here, if only its head is."""
        offered = self._offered
        assert offered is not None
        e = _Transit()
        e.k = offered.get(round, 0)
        offered[round] = e.k + 1
        e.item, e.round, e.offered, e.seq = item, round, now, self._seq
        self._seq += 1
        e.packets = self.packets(size_bytes)
        e.size = e.left = self.wire_bytes(size_bytes)
        e.tail_in = tail_ns
        e.first_packet, e.last_packet = self._ends(size_bytes)
        whole = last or self._switching is None or isinstance(self._transport, Arq)
        e.head_left = None if whole else e.first_packet
        e.head_end = PAUSED
        e.begun = e.settled = e.gone = False
        e.blocked, e.task = self._refuses, None
        start = max(now, self._busy_until)
        if isinstance(self._transport, Arq):
            start = max(start, tail_ns)             # ARQ sends whole messages
            e.task = Attempts(self._transport, e.size, self._part_bytes, e.packets, self._key, round, e.k)
        elif self._refuses:
            e.settled = True
        e.accepted = self._limit is None or self._takes(self._limit, now, start, e)
        self._plan(e, start, self._floor)
        if e.accepted:
            self._busy_until = e.free
            self._floor = max(self._floor, e.whole)
        self._flight.append(e)
        heappush(self._heap, (e.due, e.seq, e))
        return e.delivered

    def next_change(self) -> int | None:
        """As `Link.next_change`; where `cut`, an offer can bring it forward."""
        if not self._heap:
            return None
        due = self._heap[0][0]
        return due if due < PAUSED else None

    def advance(self, now: int) -> list[Left]:
        """As `Link.advance`, by time and then in the order offered. tail_ns > 0: only the head has left."""
        heap, flight = self._heap, self._flight
        left = []
        while heap and heap[0][0] <= now:
            e = heappop(heap)[2]
            e.gone = True
            left.append((e.item, e.delivered, e.tail, e.resent))
            if e.accepted:
                self._free = max(self._free, e.free)
                self._tails = max(self._tails, e.whole)
        while flight and flight[0].gone:
            flight.popleft()
        return left

    def in_flight(self) -> list[Any]:
        return [e.item for e in self._flight if not e.gone]

    def change(self, now: int, down: bool | None = None,
               bandwidth_bps: int | float | Literal["infinite", "profile"] | None = None,
               latency_ns: int | Delay | None = None, outage: Outage | Literal["none"] | None = None,
               inflight: InFlight = "drop") -> None:
        """As `Link.change`. A reliable transport recovers what a link that goes down drops, if it comes up in time.

        bandwidth_bps "profile": the link has the rate that varies again, with which it was made.
        """
        follows = bandwidth_bps == "profile" and self._given is not None
        self._check(None if follows else bandwidth_bps, latency_ns if isinstance(latency_ns, int) else None, None,
                    inflight)
        self._set_down_sent(now)
        drops = False
        if down is not None and down is not self.down:
            self.down = down
            self._paused = down and inflight == "pause"
            self._refuses = down and not self._paused
            drops = down and inflight == "drop"
        if bandwidth_bps is not None:
            self._profile = self._given if follows else None
            self._set_bandwidth(None if bandwidth_bps in ("infinite", "profile") else cast(float, bandwidth_bps))
        if latency_ns is not None:
            self._set_latency(latency_ns)
            self._reorder = self._reorder and self.cut      # who asks for `next_change` has been told so, or not
        if outage is not None:
            self._set_outage(None if outage == "none" else outage)
        self._set_service()
        self._plan_all(now, drops)

    # --- offers ---

    def _ends(self, size_bytes: int) -> tuple[int, int]:
        """Wire bytes of the first packet and of the last one; 0 where they have no length, as in cut-through."""
        if self._switching is None or self._switching.mode == "cut_through":
            return 0, 0
        full = min(self._switching.mtu or self.mtu or size_bytes, size_bytes)
        rest = size_bytes % full or full if full else 0
        return full + self.overhead_bytes, rest + self.overhead_bytes

    def _takes(self, queue: Queue, now: int, start: int, e: _Transit) -> bool:
        """Whether the queue has room for `e`, which begins at `start`."""
        self._forget_begun(now)
        if start <= now:
            return True
        amount = e.size if queue.unit == "bytes" else e.packets
        if self._waits + amount > queue.limit:
            return False
        self._waiting.append(e)
        self._waits += amount
        return True

    def _forget_begun(self, now: int) -> None:
        waiting = self._waiting
        while waiting and waiting[0].start <= now:
            e = waiting.popleft()
            assert self._limit is not None
            self._waits -= e.size if self._limit.unit == "bytes" else e.packets

    # --- plans ---

    def _plan(self, e: _Transit, at: int, floor: int) -> None:
        """Plan `e`, of which `left` bytes are to be sent from `at` on; nothing leaves before `floor`."""
        latency = self.latency_ns if self._draw is None else self._draw(e.round, e.k)
        e.planned = at
        head_crossed = e.begun and e.head_left == 0 and e.head_end < at
        if e.task is not None:
            self._plan_attempts(e, e.task, at, latency)
            arrival = e.whole
        else:
            e.end = e.free = self._end(e, at)
            if not e.begun:
                e.start = at
                if self._lost is not None and at < PAUSED:
                    e.delivered = not self._lost(at, e.end, e.round, e.k, e.packets)
                else:
                    e.delivered = True
            if e.settled or not e.accepted:
                e.delivered = False
            e.resent = 0 if self._resent is None else _share(e.size, *self._resent)
            arrival = e.end + latency
        e.whole = arrival if self._reorder or arrival > floor else floor
        head_due, e.due, e.tail = e.due if head_crossed else 0, e.whole, 0
        if e.head_left is not None and e.delivered:
            if not head_crossed:
                e.head_end = self._service.finish(at, e.head_left)
                head_due = e.head_end + latency
            e.due = head_due if self._reorder or head_due > floor else floor
            e.tail = e.whole = max(e.whole, e.due)

    def _end(self, e: _Transit, at: int) -> int:
        """When the last byte has left: as fast as the link can, and not before it has come."""
        end = self._service.finish(at, e.left)
        if e.tail_in > at:
            end = max(end, self._service.finish(e.tail_in, e.last_packet))
        return end

    def _plan_attempts(self, e: _Transit, task: Attempts, at: int, latency: int) -> None:
        if not e.begun:
            e.start = at
        task.go_on_from(at)
        plan = task.plan(Conditions(self._service, latency, self._fates, e.blocked))
        e.end, e.free, e.whole, e.delivered, e.resent = plan.end, plan.free, plan.known, plan.delivered, plan.resent
        if not e.accepted:
            e.delivered, e.resent = False, 0

    def _set_down_sent(self, now: int) -> None:
        """Of what is being transmitted, set down what has been by now, with the link as it is until now."""
        if self._limit is not None:
            self._forget_begun(now)
        for e in self._flight:
            if e.gone or not e.accepted or e.start > now or (e.end <= now and e.task is None):
                continue
            if e.task is not None:
                latency = self.latency_ns if self._draw is None else self._draw(e.round, e.k)
                e.task.run_until(now, Conditions(self._service, latency, self._fates, e.blocked))
            else:
                self._subtract_sent(e, now)
            e.begun = True

    def _subtract_sent(self, e: _Transit, now: int) -> None:
        sent = self._service.sent_bytes(e.planned, now) if now > e.planned else 0
        left = e.left - sent
        if e.tail_in > now:             # between head and tail it comes evenly: what has not come is not sent
            coming = Fraction((e.size - e.first_packet) * (e.tail_in - now), e.tail_in - e.offered)
            left = max(left, coming, e.last_packet)
        elif e.tail_in > e.planned:     # nor is the last packet before it is whole
            left = max(left, e.last_packet - self._service.sent_bytes(e.tail_in, now))
        if e.head_left is not None:
            e.head_left = max(0, e.head_left - sent)
        e.left = left

    def _plan_all(self, now: int, drops: bool) -> None:
        """Plan what is not transmitted; `drops`: the link goes down and loses what it can."""
        busy = max(PAUSED if self._paused else now, self._free)
        floor = self._tails
        for e in self._flight:
            if e.gone:
                continue
            if not e.accepted:
                if e.start > now:
                    self._plan(e, busy, floor)
                continue
            if e.task is not None:
                e.blocked = drops or (e.blocked and self._refuses)
            elif drops:
                e.settled = True
                e.delivered, e.due, e.tail = False, e.whole, 0
            if e.end > now:
                self._plan(e, busy if e.task is None else max(busy, e.tail_in), floor)
            busy = max(busy, e.free)
            floor = max(floor, e.whole)
        self._busy_until = busy
        self._floor = floor
        self._heap = [(e.due, e.seq, e) for e in self._flight if not e.gone]
        heapify(self._heap)


def _share(number: int, numerator: int, denominator: int) -> int:
    """number * numerator / denominator, rounded half to even."""
    whole, rest = divmod(number * numerator, denominator)
    return whole + (2 * rest > denominator or (2 * rest == denominator and whole & 1))
