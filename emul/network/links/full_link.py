"""A link with everything that a link can have: see `emul.network.links.link` for the plain one, which is the hot path.

* Latencies that are drawn. Order is kept (a message leaves when the one before it has, at the earliest) unless the
  distribution says `reorder`.
* A rate that varies in time, and outages with pauses: services of `emul.network.links.service`.
* A limit of what waits (`Queue`): drop-tail. The message in transmission does not count, and a message is taken or
  dropped as a whole. A dropped one occupies nothing; its loss is known when it would have been delivered, had it been
  taken.
* Handing on heads (`Switching`). A message that goes on over another link leaves when its first packet (packetized) or
  its first byte (cut-through) has crossed. The next link is told when the rest follows (`Tail`), and transmits no
  faster than that comes (`emul.network.links.transit`). So n packets of L bytes over several links take
  sum(L / C_i + d_i) + (n - 1) L / min C, and a shorter last packet waits for the full one ahead of it. A link loses a
  message as a whole, and that is known when the tail would have come. A message of which the head has left is
  settled: no fault or change of this link touches it any more, and its tail follows as planned (and occupies the link
  as long).
* Contacts (`emul.network.models.contacts`): a plan says when it transmits, at which rate and latency. A message is
  transmitted over as many contacts as it needs. One that no later contact can carry is lost when its transmission would
  begin; it occupies nothing. With `gap: drop` that is one whose turn comes outside of contacts, and one that a contact
  cuts is lost there. With `gap: again` one that a contact cuts is sent from its start in the next one, until one (with
  those that touch it) takes the whole: what was carried in vain is `resent`. Only wholes are handed on to such a link.
* Transports (`emul.network.links.transport`): ARQ on this link alone.

A change plans anew all that has not been transmitted: first what has been sent by now is set down with the link as it
was, then the rest is planned with the link as it is. So a plan never depends on how many changes led to it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Literal, NamedTuple, cast

from emul.network.links.connections import MSS_BYTES
from emul.network.links.crossqueues import CrossQueue
from emul.network.links.features import Delay, Queue, Switching
from emul.network.links.link import GIVEN_BACK, HERE, InFlight, Left, Link, Tail
from emul.network.links.service import NEVER, PAUSED, STOPPED, UNLIMITED, Bytes, Constant, Gated, Service, Varying
from emul.network.links.transit import Transit
from emul.network.links.transport import Arq, Attempts, Conditions, Fates
from emul.network.models.contacts import INFINITE_BPS, Contacts, TimedLatency
from emul.network.models.outages import Outage
from emul.network.models.profiles import VaryingRate
from emul.network.models.residual import LinkLoad


class _Try(NamedTuple):
    """One transmission of a message in a contact, of which a gap may cut it."""

    at: int
    left: Bytes                 # to be sent from `at` on
    until: int                  # the end of the contact, and of those that touch it
    again: int                  # bytes that were carried in vain before


class FullLink(Link):
    """The link from `src` to `dst` with features; the interface is `Link`'s. Times in ns, sizes in bytes.

    profile: a rate that varies, in place of `bandwidth_bps`; until a `change` of the bandwidth. Contacts are both the
        profile and the latency.
    key: of the stream that later attempts of a reliable transport draw from.
    load: background traffic, which leaves the rest of the rate.
    cross: background messages, which wait in the queue.
    """

    __slots__ = ("_again", "_contacts", "_cross", "_draw", "_fates", "_flight", "_free", "_given", "_heap", "_key",
                 "_lags", "_limit", "_load", "_outage", "_part_bytes", "_paused", "_profile", "_reorder",
                 "_seq", "_service", "_switching", "_tails", "_transport", "_waiting", "_waits", "cut", "returns",
                 "typical_ns")

    def __init__(self, src: int, dst: int, latency: int | Delay | TimedLatency = 0,
                 bandwidth_bps: int | float | None = None, outage: Outage | None = None,
                 overhead_bytes: int = 0, mtu: int | None = None, *,
                 profile: VaryingRate | None = None, queue: Queue | None = None, switching: Switching | None = None,
                 transport: Arq | None = None, key: int = 0, load: LinkLoad | None = None,
                 cross: CrossQueue | None = None):
        super().__init__(src, dst, 0, bandwidth_bps, None, overhead_bytes, mtu)
        self._flight: deque[Transit] = deque()         # in the order offered; what has left among them is `gone`
        self._heap: list[tuple[int, int, Transit]] = []        # (due, seq, ...) of all that have not left
        self._seq = 0
        self._free = 0                          # until when what has left by its head is transmitted still,
        self._tails = 0                         # and when its tail has crossed
        self._limit = queue
        self._waiting: deque[Transit] = deque()        # accepted, not begun when last looked at
        self._waits = 0                         # their bytes or packets
        self._switching = switching
        self._transport = transport
        self._key = key
        self._part_bytes: int | None = None     # wire bytes of what is repeated alone; None: whole messages
        if transport is not None and transport.mode == "selective_repeat":
            self._part_bytes = mtu + overhead_bytes if mtu else transport.mtu or MSS_BYTES
        self._paused = False
        self._profile = self._given = profile
        self._contacts = profile if isinstance(profile, Contacts) else None
        self._again = self._contacts is not None and self._contacts.gap == "again"
        self.returns = self._contacts is not None and self._contacts.gap == "return"
        self._load = load
        self._cross = cross
        self._set_latency(latency)
        self._set_outage(outage)
        self._set_service()
        self.cut = switching is not None or queue is not None or self._reorder

    # --- what it is made of ---

    def _set_latency(self, latency: int | Delay | TimedLatency) -> None:
        plain = isinstance(latency, int)
        self.latency_ns = latency if isinstance(latency, int) else latency.least_ns
        self.typical_ns = latency if isinstance(latency, int) else latency.typical_ns
        self._lags = latency if isinstance(latency, TimedLatency) else None
        self._draw = None if isinstance(latency, int | TimedLatency) else latency.draw
        self._reorder = not plain and bool(getattr(latency, "reorder", False))

    def _set_outage(self, outage: Outage | None) -> None:
        self._outage = outage
        self._lost = None if outage is None or self._transport is not None else outage.lost
        self._fates = None if outage is None or self._transport is None else Fates(outage)

    def _set_service(self) -> None:
        service: Service
        left = None if self._load is None else self._load.residual(self._own)
        if left is not None:
            service = Varying(left)
        elif self._profile is not None:
            service = Varying(self._profile)
        elif self.bandwidth_bps is None:
            service = UNLIMITED
        else:
            service = Constant(self.bandwidth_bps)
        timeline = None if self._outage is None else self._outage.timeline
        if timeline is not None:
            service = Gated(service, timeline)
        self._service: Service = STOPPED if self._paused else service

    @property
    def _own(self) -> VaryingRate | int | float | None:
        """The link's own rate, of which background traffic takes its part; None: infinite."""
        return self.bandwidth_bps if self._profile is None else self._profile

    # --- the interface ---

    def offer(self, now: int, item: object, size_bytes: int, round: int, last: bool = True, tail: Tail = HERE) -> bool:
        """As `Link.offer`. last: it goes no further. tail: when the rest of it will be here, if only its head is."""
        if self._cross is not None:
            self._cross.pull(now)
        # counted, as the k-th message of its round, whatever becomes of it
        e = Transit(item, self._seq, round, self._counted(round), now, self.wire_bytes(size_bytes),
                    self.packets(size_bytes))
        self._seq += 1
        whole = last or self._switching is None or self._transport is not None
        start = max(now, self._busy_until)
        if self._contacts is not None and not self.returns:
            start = self._opens(self._contacts, start)
        if self._transport is not None:
            e.comes, start = tail, max(start, tail.end_ns)      # ARQ sends whole messages
            e.task = Attempts(self._transport, e.size, self._part_bytes, e.packets, self._key, round, e.k)
        elif self._again:
            e.comes, start = tail, max(start, tail.end_ns)
        elif self._switching is not None or tail.end_ns > now:
            self._cut(e, size_bytes, tail)
        e.head_left = None if whole else e.first_packet
        e.settled = self._refuses and e.task is None
        e.blocked = self._refuses
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
        """As `Link.advance`, by time and then in the order offered. A tail that is not HERE: only the head has left."""
        heap, flight = self._heap, self._flight
        left = []
        while heap and heap[0][0] <= now:
            e = heappop(heap)[2]
            e.gone = True
            left.append((e.item, e.delivered, e.goes, e.resent))
            if e.accepted:
                self._free = max(self._free, e.free)
                self._tails = max(self._tails, e.whole)
        while flight and flight[0].gone:
            flight.popleft()
        return left

    def end_of(self, item: object) -> int | None:
        """As `Link.end_of`; of what the queue has dropped, the time when it was offered."""
        found = next((e for e in reversed(self._flight) if e.item is item), None)
        return None if found is None else found.end if found.accepted else found.offered

    def in_flight(self) -> list[object]:
        """All items offered that have not left, in the order in which they were; those to be lost too."""
        return [e.item for e in self._flight if not (e.gone or e.cross)]

    def change(self, now: int, down: bool | None = None,
               bandwidth_bps: int | float | Literal["infinite", "profile"] | None = None,
               latency_ns: int | Delay | TimedLatency | None = None, outage: Outage | Literal["none"] | None = None,
               inflight: InFlight = "drop") -> None:
        """As `Link.change`. A reliable transport recovers what a link that goes down drops, if it comes up in time.

        bandwidth_bps "profile": the link has the rate that varies again, with which it was made. A link with contacts
        has another rate or latency within them.
        """
        follows = bandwidth_bps == "profile" and self._given is not None
        self._check(None if follows else bandwidth_bps, latency_ns if isinstance(latency_ns, int) else None, None,
                    inflight)
        if self._cross is not None:
            self._cross.pull(now)
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
            if self._contacts is not None and not follows:
                self._profile = self._contacts.at_rate(self.bandwidth_bps or INFINITE_BPS)
        if latency_ns is not None:
            self._set_latency(latency_ns)
            self._reorder = self._reorder and self.cut      # callers of `next_change` have been told so, or not
        if outage is not None:
            self._set_outage(None if outage == "none" else outage)
        if self._load is not None:
            self._load.set_own(now, self.down, self._own)
        self._set_service()
        self._plan_all(now, drops)
        if self._cross is not None:
            self._cross.planned_anew(self.typical_ns)

    # --- background messages ---

    def cross(self, now: int, item: object, size_bytes: int) -> Transit | None:
        """A background message comes, in the order of time with what is offered; None: it is dropped at once.

        It waits in the queue as any other, and needs not be advanced: `cross_left` says that it has left. Its latency
        is the typical one.
        """
        e = Transit(item, self._seq, 0, 0, now, self.wire_bytes(size_bytes), self.packets(size_bytes))
        self._seq += 1
        e.cross = True
        start = max(now, self._busy_until)
        if self._refuses or (self._limit is not None and not self._takes(self._limit, now, start, e)):
            return None
        self._plan(e, start, self._floor)
        self._busy_until = e.free
        self._floor = max(self._floor, e.whole)
        self._flight.append(e)
        return e

    def cross_left(self, e: Transit) -> None:
        """A background message has left."""
        flight = self._flight
        e.gone = True
        self._free = max(self._free, e.free)
        self._tails = max(self._tails, e.whole)
        while flight and flight[0].gone:
            flight.popleft()

    def cross_sent(self, e: Transit, now: int) -> int:
        """The whole wire bytes of a background message that have crossed by `now`; nothing may change after it."""
        if e.end <= now:
            return e.size
        return 0 if e.start >= now else int(e.size - e.left + self._service.sent_bytes(e.planned, now))

    # --- offers ---

    def _cut(self, e: Transit, size_bytes: int, tail: Tail) -> None:
        """In which packets it crosses this link, and in which it comes."""
        packet_bytes = 0
        if self._switching is not None and self._switching.mode == "packetized":
            packet_bytes = self._switching.mtu or self.mtu or size_bytes
        e.cut(size_bytes, packet_bytes, self.overhead_bytes)
        if tail.end_ns > e.offered:
            framed = tail.packet_bytes in (packet_bytes, self.mtu)
            e.follows(tail, size_bytes, packet_bytes, self.overhead_bytes if framed else 0)

    def _takes(self, queue: Queue, now: int, start: int, e: Transit) -> bool:
        """True if the queue has room for `e`, which begins at `start`."""
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

    def _plan(self, e: Transit, at: int, floor: int) -> None:
        """Plan `e`, of which `left` bytes are to be sent from `at` on; nothing leaves before `floor`."""
        if self.returns:
            self._plan_or_return(e, at, floor)
            return
        if e.cross:
            latency, lost = self.typical_ns, None
        else:
            latency, lost = self.latency_ns if self._draw is None else self._draw(e.round, e.k), self._lost
        if self._contacts is not None:
            at = self._opens(self._contacts, max(at, e.comes.end_ns) if self._again else at)
        e.planned = at
        head_crossed = e.begun and e.head_left == 0 and e.head_end < at
        if e.task is not None:
            self._plan_attempts(e, e.task, at, latency)
            arrival = e.whole
        else:
            begins, cut, anew = at, False, not e.begun
            if self._again and at < PAUSED:
                last = self._last_try(e, at)
                if last is None:
                    self._lose(e, at, floor)
                    return
                anew = anew or last.left == e.size
                begins, again = last.at, last.again
                e.end = e.free = self._service.finish(begins, last.left)
            else:
                e.end, again = e.whole_ends(self._service, at), e.again
                e.free = e.end
            if self._contacts is not None and at < PAUSED and not self._again:
                lasts = self._contacts.lasts(at) if self._contacts.gap == "drop" else NEVER
                if lasts == at or (e.end >= NEVER and lasts >= NEVER):
                    self._lose(e, at, floor)
                    return
                cut = e.end > lasts
                if cut:
                    e.end = e.free = lasts
            if not e.begun:
                e.start = at
            if anew:
                if lost is not None and at < PAUSED:
                    e.delivered = not lost(begins, e.end, e.round, e.k, e.packets)
                else:
                    e.delivered = True
            if e.settled or cut or not e.accepted:
                e.delivered = False
            e.resent = again
            if self._lags is not None:
                latency = self._lags.latency_at(e.end)
            arrival = e.end + latency
        e.whole = arrival if self._reorder or arrival > floor else floor
        head_due, e.due, e.goes = e.due if head_crossed else 0, e.whole, HERE
        if e.head_left is None or not e.delivered:
            return
        if not head_crossed:
            e.head_end = self._service.finish(at, e.head_left)
            head_due = e.head_end + latency
        e.due = head_due if self._reorder or head_due > floor else floor
        e.whole = max(e.whole, e.due)
        if e.body_left or not e.begun:
            e.body_due = e.body_ends(self._service, at) + latency
        e.goes = Tail(min(max(e.body_due, e.due), e.whole), e.whole, max(0, e.first_packet - self.overhead_bytes))

    def _plan_or_return(self, e: Transit, at: int, floor: int) -> None:
        """As `_plan`: what is not through when the contact ends for which it waits is given back."""
        contacts = self._contacts
        assert contacts is not None
        opens = contacts.opens(e.offered)
        if opens >= NEVER:
            self._lose(e, at, floor)
            return
        until, at = contacts.lasts(opens), max(at, opens)
        e.planned, e.resent = at, 0
        if not e.begun:
            e.start = at
        if at >= PAUSED:
            e.end = e.free = e.whole = e.due = PAUSED
            return
        end = self._service.finish(at, e.left) if at < until else NEVER
        if end > until:
            e.end = e.free = e.whole = e.due = max(until, at)
            e.goes = GIVEN_BACK if e.accepted and not e.settled else HERE
            e.delivered = False
            return
        if not e.begun or e.goes is GIVEN_BACK:
            e.delivered = self._lost is None or not self._lost(e.start, end, e.round, e.k, e.packets)
        if e.settled or not e.accepted:
            e.delivered = False
        e.end = e.free = end
        e.due = e.whole = max(floor, end + (self.latency_ns if self._lags is None else self._lags.latency_at(end)))
        e.goes = HERE

    def _opens(self, contacts: Contacts, at: int) -> int:
        """The first time from `at` on at which there is a contact; `at` if there is none any more, or no waiting."""
        if contacts.gap == "drop":
            return at
        opens = contacts.opens(at)
        return opens if opens < NEVER else at

    def _tries(self, e: Transit, at: int) -> Iterator[_Try]:
        """Each transmission of `e` that begins in a contact, from `at` on, up to one that may be whole.

        None where no contact that comes is long enough for the whole.
        """
        contacts, left, again = self._profile, e.left, e.again
        assert isinstance(contacts, Contacts)
        while (until := contacts.lasts(at)) > at and (left < e.size or contacts.may_hold(e.size, at)):
            yield _Try(at, left, until, again)
            if until >= NEVER:
                return
            again += int(e.size - left + min(left, self._service.sent_bytes(at, until)))
            left, at = e.size, contacts.opens(until)

    def _last_try(self, e: Transit, at: int) -> _Try | None:
        """The transmission of `e` that no gap cuts; None: there is none."""
        assert self._contacts is not None
        if e.left < e.size and self._contacts.lasts(at) != e.until:     # a fault has held it longer than that
            e.again += int(e.size - e.left)
            e.left = e.size
        return next((one for one in self._tries(e, at) if self._service.finish(one.at, one.left) <= one.until), None)

    def _lose(self, e: Transit, at: int, floor: int) -> None:
        """No contact carries `e`: it is lost at the time `at`, which is told a latency later."""
        if not e.begun:
            e.start = at
        e.end = e.free = at
        e.accepted = e.delivered = False
        e.due = e.whole = max(at + self.latency_ns, floor)
        e.goes, e.resent = HERE, e.again

    def _plan_attempts(self, e: Transit, task: Attempts, at: int, latency: int) -> None:
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
                for one in self._tries(e, e.planned) if self._again else ():
                    e.planned, e.left, e.until, e.again = one
                    if now <= one.until:
                        break
                e.subtract_sent(self._service, now)
            e.begun = True

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
                e.delivered, e.due, e.goes = False, e.whole, HERE
            if e.end > now:
                self._plan(e, busy if e.task is None else max(busy, e.comes.end_ns), floor)
            busy = max(busy, e.free)
            floor = max(floor, e.whole)
        self._busy_until = busy
        self._floor = floor
        self._heap = [(e.due, e.seq, e) for e in self._flight if not (e.gone or e.cross)]
        heapify(self._heap)
