"""Senders of TCP on links that share their bandwidth: each train of a connection is a flow of `Fluid`.

`TcpConnection` says what a sender releases and when; here a train becomes bytes on links. It is a flow over all links
of a row, no faster than the sender lets its packets go. It is cut where a message ends, so that this is an event.
Between trains a connection waits for acknowledgements, which is a timer. Times are whole ns at each event, rounded up;
the time from which a train reaches the bottleneck is kept exact.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Sequence
from heapq import heappop, heappush
from math import ceil, inf
from typing import Any, Generic, Protocol, TypeVar

from emul.base.errors import NetworkError
from emul.network.links.connections import Completed, Next, PacketTrain, TcpConnection, TcpStack, pass_queue
from emul.network.links.fluid import Fluid
from emul.network.links.service import WORK_PER_BYTE
from emul.network.links.stalls import stalled_ns
from emul.network.models.packetfates import RowFates

Ends = tuple[int, int]          # the vertices of a message's source and target

_NEARLY = 1 + 1e-9


class SenderLink(Protocol):
    """The part of `emul.network.links.flows.FlowLink` that senders ask for."""

    number: int
    built_ns: int
    typical_ns: int
    mtu: int | None
    overhead_bytes: int
    stack: TcpStack | None
    agreed: TcpStack | None

    @property
    def name(self) -> str:
        """Of its ends, for errors."""
        ...

    def rate_bps(self, now: int, size_bytes: int) -> float:
        """Its rate while so many bytes pass it from `now` on; inf: it has no bound."""
        ...


class SentMessage:
    """A message on a connection, in packets number `first` up to `end`; `size` and `wire` bytes in all."""

    __slots__ = ("end", "first", "item", "packet_bytes", "resent", "wire")

    def __init__(self, item: object, first: int, size_bytes: int, wire_bytes: int, mss: int):
        self.item = item
        self.first = first
        self.end = first + max(1, -(-size_bytes // mss))
        self.wire = wire_bytes
        # of a full packet: what the links add to the message is shared out evenly
        self.packet_bytes = mss + (wire_bytes - size_bytes) / (self.end - first) if self.end > first + 1 else wire_bytes
        self.resent = 0.0

    def bytes_of(self, first: int, end: int) -> float:
        """Wire bytes of its packets first .. end - 1; the last of all has what is left."""
        if end < self.end:
            return (end - first) * self.packet_bytes
        return self.wire - (first - self.first) * self.packet_bytes


class Sender:
    """A connection on its links. A key of `Fluid`: one train of it is on the links at a time."""

    def __init__(self, key: Hashable, ends: Ends, tcp: TcpStack, links: Sequence[SenderLink], latency_ns: int):
        self.key = key
        self.ends = ends                                # the vertices of source and target
        self.tcp = tcp
        self.packet_bytes = float(tcp.mss)              # on the slowest link
        self.buffer = inf                               # packets before that
        self.connection = TcpConnection(tcp, 2 * latency_ns)
        self.sent: list[SentMessage] = []                      # messages written and not through
        self._ends: list[int] = []                      # of these
        self._written = 0
        self.waits: Next | None = None                  # a timer runs for the next train
        self.version = 0
        self.pieces: list[tuple[float, list[SentMessage]]] = []     # of the train: bytes, what they complete
        self.cap_bps: float | None = None
        self.began = 0
        self.train_bytes = 0.0
        self.span_ns = 0.0                              # a train takes so long at least, since it comes no faster
        self.least_s = 0.0                              # ns a packet on the slowest link when the train began
        self.tell(links, latency_ns)

    def tell(self, links: Sequence[SenderLink], latency_ns: int) -> None:
        """These are the links of the next messages, on a route of so much latency."""
        self.links = links
        self.numbers = [link.number for link in links]
        self.rates: tuple[float, ...] = ()              # of the links, when it was last seen which one is the slowest
        self._rest_ns = latency_ns - sum(link.built_ns for link in links)
        self.tell_latency()

    def look_at_rates(self, now: int) -> None:
        """Find the slowest link for the train that begins now: by the rates that the links have while it is under way,
        since one that was fast on average may be slow for as long as that."""
        size_bytes = self.connection.due * self.tcp.mss
        rates = tuple([link.rate_bps(now, size_bytes) for link in self.links])
        if rates == self.rates:                         # nearly always
            return
        self.rates = rates
        slowest = rates.index(min(rates))
        link = self.links[slowest]
        self.packet_bytes = self.tcp.mss + (link.overhead_bytes if link.mtu is not None else 0)
        self.connection.local = slowest == 0
        before = [bps for bps in rates[:slowest] if bps < inf]
        self.connection.access_ns = max((self.packet_bytes * WORK_PER_BYTE / bps for bps in before), default=0.0)
        buffer = None if link.stack is None else link.stack.buffer_bytes
        self.buffer = inf if slowest == 0 or buffer is None else buffer // self.packet_bytes

    def tell_latency(self) -> None:
        """The links' latencies are as they are now."""
        self.connection.rtt_ns = 2 * max(0, self._rest_ns + sum(link.typical_ns for link in self.links))

    def write(self, item: object, size_bytes: int, wire_bytes: int, fates: RowFates | None) -> None:
        message = SentMessage(item, self._written, size_bytes, wire_bytes, self.tcp.mss)
        self._written = message.end
        self.sent.append(message)
        self._ends.append(message.end)
        self.connection.write(message, message.end - message.first, fates)

    def finish(self, messages: Iterable[SentMessage]) -> None:
        """These are through."""
        for message in messages:
            place = self.sent.index(message)
            del self.sent[place], self._ends[place]

    def of(self, packet: int) -> SentMessage:
        """The message of a packet."""
        return self.sent[bisect_right(self._ends, packet)]

    def bytes_between(self, first: int, end: int) -> float:
        """Wire bytes of the packets first .. end - 1."""
        found = 0.0
        while first < end:
            message = self.of(first)
            until = min(end, message.end)
            found += message.bytes_of(first, until)
            first = until
        return found

    def bytes_at(self, train: PacketTrain, positions: Sequence[int]) -> float:
        """Wire bytes of the packets at these positions of a train, ascending."""
        first, last = positions[0], positions[-1]
        if not train.again and last - first + 1 == len(positions):
            return self.bytes_between(train.first + first, train.first + last + 1)
        return sum(self.bytes_between(packet, packet + 1) for packet in map(train.packet_at, positions))

    def cut(self, train: PacketTrain, done: Sequence[Completed], dropped: Sequence[int],
            ) -> list[tuple[float, list[SentMessage]]]:
        """The train in pieces that end where messages do: bytes of packets that no queue dropped, and what is there."""
        for packet in train.again:
            message = self.of(packet)
            message.resent += message.bytes_of(packet, packet + 1)
        ends: dict[int, list[SentMessage]] = {}
        for message, count in done:
            ends.setdefault(count, []).append(message)
        ends.setdefault(train.survivors, [])
        pieces, before = [], 0
        if dropped or train.again:
            gone = set(dropped)
            alive = [i for i in range(train.packets) if i not in gone]
            for count, messages in sorted(ends.items()):
                pieces.append((self.bytes_at(train, alive[before:count]) if count > before else 0.0, messages))
                before = count
        else:
            for count, messages in sorted(ends.items()):
                pieces.append((self.bytes_between(train.first + before, train.first + count), messages))
                before = count
        return pieces


class WithTimers(Protocol):
    """An object whose timers are void once its version has changed."""

    version: int


OneSender = TypeVar("OneSender", bound=Sender)


class Senders(Generic[OneSender]):
    """All connections of a network over `Fluid`, and their timers. kind: what is made of each connection."""

    def __init__(self, fluid: Fluid, kind: type[OneSender]):
        self._fluid, self._kind = fluid, kind
        self._senders: dict[Hashable, OneSender] = {}
        self.used = False                               # true once there has been one
        # time, serial, whose, its version then, what is to be done
        self._timers: list[tuple[int, int, WithTimers, int, Callable[[int], None]]] = []
        self._serial = 0
        self._through: list[tuple[Any, int]] = []       # item, bytes sent again; what nothing brought to its end: -1

    def write(self, now: int, ends: Ends, tcp: TcpStack, item: object, size_bytes: int, wire_bytes: int,
              links: Sequence[SenderLink], latency_ns: int, fates: RowFates | None, delivered: bool) -> None:
        """A message goes out over `links` as soon as the window lets it, on that connection of its ends which has the
        fewest messages.

        delivered: no link loses it. If one does, `links` end there, which is not the way of the other messages.
        """
        key = ends, links[0].number, 0
        if tcp.connections > 1:
            key = min(((*key[:2], k) for k in range(tcp.connections)),
                      key=lambda one: len(self._senders[one].sent) if one in self._senders else 0)
        sender = self._senders.get(key)
        if sender is None:
            self.used = True
            sender = self._senders[key] = self._kind(key, ends, tcp, links, latency_ns)
        elif delivered and sender.links is not links and [link.number for link in links] != sender.numbers:
            sender.tell(links, latency_ns)
        sender.write(item, size_bytes, wire_bytes, fates)
        if sender.connection.train is not None:
            self._more(now, sender)
        elif sender.waits is None:
            self._wake(now, sender)

    def _more(self, now: int, sender: OneSender) -> None:
        """A message was written while a train is on the links: the end of that train takes it up."""

    def _wake(self, now: int, sender: OneSender) -> None:
        self._follow(now, sender, sender.connection.wake(now))

    def _follow(self, now: int, sender: OneSender, following: Next | None) -> None:
        """The next train goes at its time, at once if that has passed."""
        if following is None:
            if sender.connection.gave_up:
                self._through += [(message.item, -1) for message in sender.sent]
                del self._senders[sender.key]
        elif following.at_ns <= now:
            self._begin(now, sender, following)
        else:
            sender.waits = following
            self._at(following.at_ns, sender, lambda due: self._go_on(due, sender))

    def _at(self, time: float, whose: WithTimers, action: Callable[[int], None]) -> None:
        """Do so at that time, unless the version of `whose` has changed by then."""
        self._serial += 1
        heappush(self._timers, (ceil(time), self._serial, whose, whose.version, action))

    def _go_on(self, now: int, sender: OneSender) -> None:
        following, sender.waits = sender.waits, None
        assert following is not None
        self._begin(now, sender, following)

    def _begin(self, now: int, sender: OneSender, following: Next) -> None:
        """A train reaches its links."""
        connection = sender.connection
        sender.look_at_rates(now)
        train = connection.begin(following.at_ns, following.span_ns)
        least_s = sender.least_s = self._packet_ns(now, sender)
        s = connection.packet_ns or least_s
        dropped: list[int] = []
        if sender.buffer < inf and s > 0:
            # Timers ring at whole ns. A packet that came the fraction before one has not waited for another: without
            # this a link with no buffer dropped each lone packet, and a connection gave up on an idle link.
            at_ns = following.at_ns if now - following.at_ns >= 1 else now
            dropped = pass_queue(at_ns, train.parts, s, now, sender.buffer).dropped
        pieces = sender.cut(train, connection.lose(dropped), dropped)
        sender.began = now
        if not train.survivors:
            self._served(now, sender, now)
            return
        sender.train_bytes = size = sum(piece[0] for piece in pieces)
        # so long it takes if nobody else is there; longer than its packets take is as slow as they come
        sender.span_ns = 0.0
        if train.span_ns and 0 < least_s < inf:
            sender.span_ns = pass_queue(following.at_ns, train.parts, least_s, now, inf).free_ns - now
        capped = sender.span_ns > train.packets * least_s * _NEARLY
        sender.cap_bps = size * WORK_PER_BYTE / sender.span_ns if capped else None
        sender.pieces = pieces[::-1]
        acks = connection.acknowledged_at(now, s if capped else least_s)
        alone = sender.span_ns if capped else train.packets * least_s
        if len(pieces) > 1 or pieces[0][1] or acks is None or acks <= now + alone + 1:
            self._start_piece(now, sender)
            return
        # The next train waits for these acknowledgements behind a gap. While nobody shares its links, nothing asks for
        # the end of this one before: one event a train, which takes 400 kB on a long way from 10 events to 6.
        self._start_piece(now, sender, quiet=True)
        self._at(acks, sender, lambda due: self._look(due, sender))

    def _look(self, now: int, sender: OneSender) -> None:
        """Go on if the train under way has ended unseen; else its end will be an event."""
        sender.version += 1
        end = self._fluid.end_of(now, sender)
        if end is not None:
            sender.pieces.pop()
            self._served(now, sender, end)

    def _packet_ns(self, now: int, sender: OneSender) -> float:
        """The time of a full packet on the slowest link as it is now; 0: no link limits it; inf: one stands still."""
        rates = [self._fluid.bandwidth_bps(now, number) for number in sender.numbers]
        least = min((rate for rate in rates if rate is not None), default=inf)
        return sender.packet_bytes * WORK_PER_BYTE / least if least else inf

    def _start_piece(self, now: int, sender: OneSender, quiet: bool = False) -> None:
        self._fluid.start(now, sender, sender.pieces[-1][0], sender.numbers, cap_bps=sender.cap_bps, quiet=quiet)

    def end_piece(self, now: int, sender: OneSender) -> None:
        """The flow of a sender has ended."""
        sender.version += 1                         # nobody need look whether it has
        messages = sender.pieces.pop()[1]
        sender.finish(messages)
        self._through += [(message.item, round(message.resent)) for message in messages]
        if sender.pieces:
            self._start_piece(now, sender)
        else:
            self._served(now, sender, now)

    def _served(self, now: int, sender: OneSender, end: int) -> None:
        connection, least_s = sender.connection, self._packet_ns(now, sender)
        if end < now or least_s == inf:             # the links may have had another rate when it ended
            least_s = min(least_s, sender.least_s)
        packets, start = sender.train_bytes / sender.packet_bytes, sender.began
        if sender.least_s == inf > least_s:         # a link stood still when the train came
            start = max(start, end - ceil(packets * least_s))
        start += round(stalled_ns([self._fluid.stalls(number) for number in sender.numbers], start, end))
        if least_s == inf:                          # it stood still each time that somebody looked: the time tells
            least_s = 0.0
        took = end - start
        if sender.cap_bps is not None and took <= sender.span_ns * _NEARLY + 1:
            s = connection.packet_ns or least_s         # as fast as it came: the links could have been faster
        elif took <= packets * least_s + 1:             # whole ns are rounded up
            s = least_s
        else:
            s = took / packets if packets else connection.packet_ns or least_s
        self._follow(now, sender, connection.served(start, end, s))

    # --- time ---

    def next_timer(self) -> int | None:
        """The time when the next train begins that waits for acknowledgements or a timeout, or a train leaves a
        queue."""
        timers = self._timers
        while timers and timers[0][2].version != timers[0][3]:
            heappop(timers)
        return timers[0][0] if timers else None

    def run_timer(self, now: int) -> None:
        """Do what the next timer is for."""
        heappop(self._timers)[4](now)

    def take(self) -> list[tuple[Any, int]]:
        """The items that got through since the last call: item, bytes sent again; -1: the sender gave up."""
        through, self._through = self._through, []
        return through

    # --- faults ---

    def items_on(self, link: int) -> list[Any]:
        """The messages of senders that use a link, not through yet."""
        return [message.item for sender in self._senders.values() if link in sender.numbers for message in sender.sent]

    def forget(self, link: int) -> None:
        """The connections over a link begin anew with what comes next."""
        for sender in self._senders.values():
            if link in sender.numbers:
                sender.connection.forget()

    def forget_node(self, vertex: int) -> None:
        """The connections from and to a node that has crashed begin anew with what comes next."""
        for sender in self._senders.values():
            if vertex in sender.ends:
                sender.connection.forget()

    def tell_latency(self, now: int, link: int) -> None:
        """A link's latency has changed: the next train of whoever uses it takes it."""
        for sender in list(self._senders.values()):
            if link in sender.numbers:
                sender.tell_latency()
                if sender.pieces and sender.waits is None:
                    self._look(now, sender)         # acknowledgements come at another time than was expected


def stack_of(links: Sequence[SenderLink]) -> TcpStack | None:
    """The TCP that a row of links asks for. Raises NetworkError if they do not agree on all but the buffer."""
    first = links[0].stack
    for link in links[1:]:
        if link.stack is not first and link.agreed != links[0].agreed:
            raise NetworkError(f"{link.name}: transport {_shown(link.stack)}, on a route with {links[0].name}: "
                               f"transport {_shown(first)}: expected the same of all links of a route but for `buffer`")
    return first


def _shown(stack: TcpStack | None) -> str:
    return "without tcp" if stack is None else repr(stack)
