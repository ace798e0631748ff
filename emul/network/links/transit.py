"""A message on a link: what it is, how it comes there and goes on in packets, and the plan for it.

Packets come over the link before this one, the first when the message is offered, the rest as its `Tail` says. They
leave in their order, each when it is there and the one before it has left. With arrivals A_1 .. A_n and one rate C
that is max over i of A_i + (bytes of the packets i .. n) / C. All packets but the last are equal, so that over links of
constant rates A_1 .. A_(n-1) is a maximum of straight lines, and the largest term is that of the first packet, of the
last full one (n - 1) or of the last (n): three terms, exact for any last packet. If rates vary packets in between
may count, and the three are a bound from below.
"""

from __future__ import annotations

from fractions import Fraction

from emul.network.links.link import HERE, Tail
from emul.network.links.service import PAUSED, Bytes, Service
from emul.network.links.transport import Attempts


class Transit:
    """A message on the link, and the plan for it. Sizes are wire bytes, times ns."""

    __slots__ = ("accepted", "again", "begun", "blocked", "body_due", "body_left", "comes", "cross", "delivered", "due",
                 "end", "first_packet", "free", "goes", "gone", "head_end", "head_left", "item", "k", "last_in",
                 "last_out", "last_two", "left", "offered", "packets", "planned", "resent", "round", "seq", "settled",
                 "size", "start", "task", "until", "whole")

    item: object
    seq: int                    # number among all that were offered
    round: int
    k: int
    packets: int
    size: int
    left: Bytes                 # to be transmitted from `planned` on
    planned: int
    offered: int
    comes: Tail                 # the rest of it, to this link
    goes: Tail                  # the rest of it, to the next one, if it leaves by its head
    first_packet: int           # the bytes that come with its head,
    last_in: int                # the bytes that cannot leave before all have come,
    last_two: int               # before all but its last packet has; 0: not known
    last_out: int               # its last packet on this link
    head_left: Bytes | None     # bytes that must cross before it goes on; None: all
    accepted: bool              # not dropped by the queue
    begun: bool                 # its transmission began before a change: its fate stands
    settled: bool               # lost, whatever happens
    blocked: bool               # ARQ: what is sent for it now is lost, since the link is down
    body_left: Bytes            # of all but its last packet, to be transmitted from `planned` on,
    body_due: int               # and when that has crossed
    gone: bool
    cross: bool                 # of background traffic: no outage and no drawn latency touches it
    again: int                  # bytes that contacts have carried in vain: it began anew behind them
    until: int                  # the end of the contact of which `left` is the rest
    task: Attempts | None
    start: int                  # of its transmission
    end: int                    # of its last byte
    free: int                   # the time when the link can begin with the next one
    head_end: int
    whole: int                  # the time when the whole has crossed
    due: int                    # the time when it leaves: whole, or earlier by its head
    delivered: bool
    resent: int

    def __init__(self, item: object, seq: int, round: int, k: int, now: int, size: int, packets: int):
        self.item, self.seq, self.round, self.k, self.offered = item, seq, round, k, now
        self.size = self.left = self.body_left = size
        self.packets = packets
        self.again = self.until = 0
        self.comes = self.goes = HERE
        self.first_packet = self.last_in = self.last_two = self.last_out = 0
        self.head_left, self.head_end = None, PAUSED
        self.begun = self.settled = self.blocked = self.gone = self.cross = False
        self.accepted, self.task = True, None

    def cut(self, size_bytes: int, packet_bytes: int, overhead_bytes: int) -> None:
        """It crosses this link in packets of so many bytes, each with its overhead; 0: as a stream of bytes."""
        if packet_bytes:
            full = min(packet_bytes, size_bytes)
            self.first_packet = full + overhead_bytes
            self.last_out = self.last_in = last_packet(size_bytes, full) + overhead_bytes
            self.body_left = self.size - self.last_out

    def follows(self, tail: Tail, size_bytes: int, packet_bytes: int, overhead_bytes: int) -> None:
        """Its tail follows, in packets that add so much overhead here. After `cut`, whose `packet_bytes` these are.

        A message that comes in finer packets than it goes on in waits for its last bytes alone: the bound is weaker.
        """
        self.comes = tail
        if tail.packet_bytes:
            last = last_packet(size_bytes, tail.packet_bytes) + overhead_bytes
            self.last_in = max(self.last_in, last)
            if packet_bytes <= tail.packet_bytes < size_bytes:
                self.last_two = tail.packet_bytes + overhead_bytes + last

    def whole_ends(self, service: Service, at: int) -> int:
        """The time when its last byte has left, sent from `at` on: no faster than it comes."""
        return service.finish(at, self.left) if self.comes is HERE else self._ends(service, at, self.left, 0)

    def body_ends(self, service: Service, at: int) -> int:
        """The time when all but its last packet has left."""
        if self.comes is HERE:
            return service.finish(at, self.body_left)
        return self._ends(service, at, self.body_left, self.last_out)

    def _ends(self, service: Service, at: int, left: Bytes, rest: int) -> int:
        """The time when `left` bytes have left, which are all but the last `rest`."""
        end = service.finish(at, left)
        for there_ns, behind in self._bounds(rest):
            if there_ns > at:
                end = max(end, service.finish(there_ns, behind))
        return end

    def _bounds(self, rest: int) -> list[tuple[int, int]]:
        """(when something comes, bytes that cannot leave before it), of all but the last `rest` bytes."""
        bounds = [(self.comes.body_ns, self.last_two - rest)] if self.last_two else []
        if self.last_in > rest or not rest:
            bounds.append((self.comes.end_ns, self.last_in - rest))
        return bounds

    def subtract_sent(self, service: Service, now: int) -> None:
        """Set down what has been sent by `now`, from `planned` on."""
        sent = service.sent_bytes(self.planned, now) if now > self.planned else 0
        to_come = self._to_come(now)
        self.left = max(self._unsent(service, now, self.left - sent, 0), to_come)
        self.body_left = self._unsent(service, now, self.body_left - sent, self.last_out)
        if self.last_two:
            self.body_left = max(self.body_left, to_come - self.last_in)
        if self.head_left is not None:
            self.head_left = max(0, self.head_left - sent)

    def _unsent(self, service: Service, now: int, left: Bytes, rest: int) -> Bytes:
        """The rest of all but the last `rest` bytes: `left`, and what had not come in time."""
        unsent = max(0, left)
        for there_ns, behind in self._bounds(rest):
            if there_ns > now:
                unsent = max(unsent, behind)
            elif there_ns > self.planned:
                unsent = max(unsent, behind - service.sent_bytes(there_ns, now))
        return unsent

    def _to_come(self, now: int) -> Bytes:
        """The bytes that are not here: they come evenly, after the head and up to the last packet."""
        body_ns, end_ns, _ = self.comes
        if end_ns <= now:
            return 0
        least, coming = self.last_in, Fraction(0)
        if not self.last_two:
            coming = Fraction((self.size - self.first_packet) * (end_ns - now), end_ns - self.offered)
        elif body_ns > now:
            between = self.size - self.first_packet - self.last_in
            least, coming = self.last_two, least + Fraction(between * (body_ns - now), body_ns - self.offered)
        return coming if coming > least else least


def last_packet(size_bytes: int, packet_bytes: int) -> int:
    """Bytes of the last of the packets that a message is cut into; 0 of a message without bytes."""
    return size_bytes % packet_bytes or packet_bytes if size_bytes else 0
