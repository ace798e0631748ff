"""Senders of TCP on links with one queue each, first in first out: trains, or pieces of them, one after the other.

A route with one link of finite bandwidth serves whole trains: all is known of a train when it comes to the queue, so it
costs one event, at its first acknowledgements. Over several such links a train goes in pieces of `PIECE` packets from
queue to queue, since whole trains would shut others out; so it does on the sender's own link, where connections of one
node take turns. A change of the rate plans anew all packets that have not been served.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import ceil, inf
from typing import Any, Literal

from emul.network.links.connections import (
    LEAST_S,
    MSS_BYTES,
    Next,
    PacketTrain,
    Passage,
    TcpStack,
    TrainPart,
    pass_queue,
)
from emul.network.links.fluid import Fluid
from emul.network.links.senders import Ends, Sender, SenderLink, Senders, SentMessage
from emul.network.links.service import WORK_PER_BYTE
from emul.network.links.stalls import LEAST_NS, Stall, note_stall, of_profile, stalled_ns
from emul.network.models.profiles import NEVER, VaryingRate

_ROUNDED = 1e-3         # bytes: their sums are floats
PIECE = 8               # packets: with whole trains long flows are 31 % off, with pieces 11 %


def last_of(came: float, parts: Sequence[TrainPart]) -> float:
    """The time at which the last packet comes of some of which the first comes at `came`."""
    return came + sum(part.span_ns for part in parts) - parts[-1].span_ns / parts[-1].packets


class TrainQueue:
    """One link's queue. rate_bps None: infinite; 0: it stands still."""

    def __init__(self, rate_bps: float | None, profile: VaryingRate | None):
        self.rate_bps = rate_bps
        self.profile = profile              # of the rate; None: `rate_bps` says it
        self.given = profile                # as it is without the changes of faults
        self._last_bps = rate_bps or 0.0    # the last that was not 0
        self._changed_ns = 0                # the time of the last change
        self._stalls: list[Stall] = []      # those that changes of its bandwidth made
        self.free_ns = 0.0                  # the time when all that has come is served
        self.trains: list[InQueue] = []     # not served yet, in their order: whole, or pieces
        self.followers: list[ServedTrain] = []   # trains whose last piece is here
        self.senders: dict[QueueSender, None] = {}       # those that have something to send

    @property
    def finite(self) -> bool:
        return self.rate_bps is not None or self.profile is not None

    @property
    def paused(self) -> bool:
        return self.rate_bps == 0 and self.profile is None

    def packet_ns(self, at: float, packet_bytes: float, count: int = 1) -> float:
        """The time of each of `count` packets served from `at` on; on a link that stands still, at its last rate."""
        rate = self.rate_bps
        if self.profile is not None:
            rate = float(self.profile.rate_at(int(at)))
            if not rate or not self.steady(at, at + count * packet_bytes * WORK_PER_BYTE / rate):
                end = self.profile.finish(ceil(at), ceil(count * packet_bytes))
                if end < NEVER:
                    return max(LEAST_S, (end - at) / count)
                rate = 0.0
        if rate is None:
            return LEAST_S
        return packet_bytes * WORK_PER_BYTE / (rate or self._last_bps or 1.0)

    def steady(self, start: float, end: float) -> bool:
        """True if its rate stays between two times. A trace counts as the constant that it is there, to the ns."""
        if self.profile is None:
            return True
        if start == inf:
            return False
        change = self.profile.next_change(int(start))
        return self.profile.rate_at(int(start)) > 0 and (change is None or change >= end)

    def offer(self, now: float, came: float, parts: Sequence[TrainPart], packet_bytes: float, buffer: float) -> Passage:
        """Packets come from `came` on: when they are served as things stand, inf if never, and which are dropped.

        A full queue is one of so many packets, whatever they take: where the rate varies, and where the link stands
        still, what waits counts as served at the rate that these packets will have.
        """
        begins = max(came, self.free_ns)
        count = sum(part.packets for part in parts)
        s = self.packet_ns(begins if begins < inf else now, packet_bytes, count)
        free = self.free_ns
        if free == inf:
            free = came + sum(entry.left_bytes for entry in self.trains) / packet_bytes * s
        elif self.profile is not None and free > came:
            free = came + float(self.profile.sent_bytes(ceil(came), ceil(free))) / packet_bytes * s
        passage = pass_queue(came, parts, s, free, buffer)
        if len(passage.dropped) == count or (self.profile is None and not self.paused):
            return passage
        if self.paused:
            return Passage(inf, inf, passage.dropped)
        size = (count - len(passage.dropped)) * packet_bytes
        end = self.ends(begins, size, last_of(came, parts), packet_bytes)
        return passage if self.steady(came, end) else Passage(begins, end, passage.dropped)

    def change(self, now: int, bandwidth_bps: float | VaryingRate | Literal["infinite", "profile"]) -> None:
        """From `now` on the link has this bandwidth: what has not been served is planned anew."""
        self.clear(now)
        stood = self.paused
        for train in self.trains:
            if train.start_ns < now:
                if self.profile is not None:
                    served = float(self.profile.sent_bytes(ceil(train.start_ns), now))
                    train.left_bytes = max(0.0, train.left_bytes - served)
                elif train.end_ns < inf:
                    train.left_bytes *= (train.end_ns - now) / (train.end_ns - train.start_ns)
                train.begun_ns = min(train.begun_ns, train.start_ns)
                train.start_ns = now
        if self.profile is not None:
            self._last_bps = MSS_BYTES * WORK_PER_BYTE / self.packet_ns(now, MSS_BYTES)
        if not isinstance(bandwidth_bps, (int, float, str)):
            self.given, bandwidth_bps = bandwidth_bps, "profile"
        self.profile = self.given if bandwidth_bps == "profile" else None
        self.rate_bps = None if isinstance(bandwidth_bps, str) else bandwidth_bps
        self._last_bps = self.rate_bps or self._last_bps
        if stood:
            note_stall(self._stalls, self._changed_ns, now)
        self._changed_ns = now
        at = float(now)
        for train in self.trains:
            train.start_ns = at = max(at, train.came_ns)
            released_by = train.released_by
            if released_by is not None and released_by in self.trains:      # now its acknowledgements come otherwise
                train.last_ns = released_by.end_ns + train.lag_ns
            train.end_ns = at = self.ends(at, train.left_bytes, train.last_ns, train.tail_bytes)
        self.free_ns = at

    def stalls(self, start: float, end: float) -> list[Stall]:
        """The times at which it stands still between two times, ascending."""
        if self.profile is None or end - start < LEAST_NS:
            return self._stalls
        return self._stalls + of_profile(self.profile, max(start, self._changed_ns), end)

    def clear(self, now: float) -> None:
        """Forget what has been served by `now`."""
        trains = self.trains
        while trains and trains[0].end_ns <= now:
            trains.pop(0).released_by = None

    def ends(self, at: float, size_bytes: float, last_ns: float, tail_bytes: float) -> float:
        """The time when so many bytes have left, begun at `at`, of which the last packet comes at `last_ns`."""
        end = self._left(at, size_bytes)
        return max(end, self._left(last_ns, min(size_bytes, tail_bytes))) if last_ns > at else end

    def _left(self, at: float, size_bytes: float) -> float:
        if at == inf or self.paused:
            return inf
        if self.profile is not None:
            end = self.profile.finish(ceil(at), ceil(size_bytes))
            return inf if end >= NEVER else max(at, float(end))
        return at if self.rate_bps is None else at + size_bytes * WORK_PER_BYTE / self.rate_bps


@dataclass(eq=False)
class InQueue:
    """The packets that a queue serves at once, from `start_ns` to `end_ns` as planned."""

    came_ns: float                      # its first packet
    last_ns: float                      # its last packet
    start_ns: float
    end_ns: float
    left_bytes: float                   # to be served from `start_ns` on
    tail_bytes: float                   # of its last packet
    begun_ns: float = field(default=inf, init=False)    # its real begin, if the rate has changed since
    version: int = field(default=0, init=False)
    # the train whose acknowledgements let this one go, and how long after its end this one's last packet comes
    released_by: InQueue | None = field(default=None, init=False)
    lag_ns: float = field(default=0.0, init=False)
    bytes: float = field(init=False)    # of all of them

    def __post_init__(self) -> None:
        self.bytes = self.left_bytes

    def time_of(self, size_bytes: float, queue: TrainQueue) -> float:
        """The time when the first `size_bytes` bytes have been served."""
        left = self.bytes - size_bytes
        if not self.left_bytes or not left or self.end_ns == inf:
            return self.end_ns
        if queue.steady(self.start_ns, self.end_ns):
            return self.end_ns - (self.end_ns - self.start_ns) * left / self.left_bytes
        size_bytes = self.left_bytes - left
        came = self.last_ns - (self.last_ns - self.came_ns) * left / self.bytes
        return min(self.end_ns, queue.ends(self.start_ns, size_bytes, came, self.tail_bytes)) if size_bytes > 0 else \
            self.start_ns


class QueueSender(Sender):
    """A connection whose packets wait in queues."""

    def __init__(self, key: Hashable, ends: Ends, tcp: TcpStack, links: Sequence[SenderLink], latency_ns: int):
        super().__init__(key, ends, tcp, links, latency_ns)
        self.served: ServedTrain | None = None      # its last train
        self.queues: list[TrainQueue] = []          # in which it has something to send


@dataclass(eq=False)
class ServedTrain(InQueue):
    """A train, with what it completes."""

    sender: QueueSender
    train: PacketTrain
    pieces: list[tuple[float, list[SentMessage]]]
    s: float = 0.0                      # ns a packet
    acks_ns: float = 0.0                # from its start to the first acknowledgements
    shift_ns: float = 0.0               # the connection takes it to start so much later
    told: bool = False                  # the connection knows that it is served
    parts: Sequence[InQueue] = ()       # in the last queue, if it came there in pieces
    through: int = 0                    # so many of its pieces are

    def through_at(self, size_bytes: float, queue: TrainQueue) -> float:
        """The time when its first `size_bytes` bytes have left the last queue."""
        for part in self.parts or [self]:
            if size_bytes <= part.bytes + _ROUNDED:
                return part.time_of(min(size_bytes, part.bytes), queue)
            size_bytes -= part.bytes
        return self.end_ns


class Queues:
    """All queues of a network, by the numbers of their links, as `Fluid` has its links."""

    def __init__(self) -> None:
        self.queues: list[TrainQueue] = []
        self.senders: QueueSenders | None = None

    def add_link(self, bandwidth_bps: float | None = None, *, profile: Any = None) -> int:
        """As `Fluid.add_link`."""
        self.queues.append(TrainQueue(bandwidth_bps, profile))
        return len(self.queues) - 1

    def profile(self, link: int) -> VaryingRate | None:
        """As `Fluid.profile`."""
        return self.queues[link].given

    def change(self, now_ns: int, link: int,
               bandwidth_bps: float | VaryingRate | Literal["infinite", "profile"]) -> None:
        """As `Fluid.change`."""
        queue = self.queues[link]
        queue.change(now_ns, bandwidth_bps)
        if self.senders is not None:
            self.senders.plan_again(now_ns, queue)


@dataclass(eq=False)
class _Track:
    """A train on its way in pieces."""

    sender: QueueSender
    train: PacketTrain
    route: Sequence[TrainQueue]
    pieces: int                         # those that have not come to the last queue
    start_ns: float = inf
    there: list[InQueue] = field(default_factory=list)      # those that have
    ended: int = 0                      # messages of it whose end is known, before all of it has come there
    dropped: list[int] = field(default_factory=list)
    # when it comes, piece, positions: what TCP holds back from the queue of the sender's own link, the next one last
    waiting: list[tuple[float, TrainPart, range]] = field(default_factory=list)
    version: int = 0


@dataclass(eq=False)
class _Piece(InQueue):
    """Packets of a train in one of several queues."""

    track: _Track
    route: Sequence[TrainQueue]
    place: int                          # of the queue on the route
    alive: Sequence[int]                # positions in the train
    gone: bool = False                  # its first packet is on to the next queue


class QueueSenders(Senders[QueueSender]):
    """All connections of a network over queues."""

    def __init__(self, fluid: Fluid, queues: Queues):
        super().__init__(fluid, QueueSender)
        self._queues = queues
        queues.senders = self

    def _route(self, sender: QueueSender) -> list[TrainQueue]:
        """The queues that a sender's packets wait in: of links of finite bandwidth, else the first."""
        queues = [self._queues.queues[number] for number in sender.numbers]
        return [queue for queue in queues if queue.finite] or queues[:1]

    def _wake(self, now: int, sender: QueueSender) -> None:
        sender.queues = self._route(sender)
        for queue in sender.queues:
            queue.senders[sender] = None
        super()._wake(now, sender)

    def _follow(self, now: int, sender: QueueSender, following: Next | None) -> None:
        if following is None:                       # it rests
            for queue in sender.queues:             # a bandwidth that became infinite since has changed the route
                queue.senders.pop(sender, None)
        super()._follow(now, sender, following)

    def _begin(self, now: int, sender: QueueSender, following: Next) -> None:
        route = self._route(sender)
        sender.look_at_rates(now)
        train = sender.connection.begin(following.at_ns, following.span_ns)
        own = route[0].finite and route[0] is self._queues.queues[sender.numbers[0]]
        if len(route) == 1 and not own:
            self._enqueue(now, sender, train, route[0])
            return
        cuts = [(min(PIECE, part.packets - i), part) for part in train.parts for i in range(0, part.packets, PIECE)]
        track = _Track(sender, train, route, len(cuts))
        at, base = following.at_ns, 0
        pieces: list[tuple[float, TrainPart, range]] = []
        for count, part in cuts:
            piece = TrainPart(count, part.span_ns * count / part.packets, part.burst)
            pieces.append((at, piece, range(base, base + count)))
            at += piece.span_ns
            base += count
        if own:
            track.waiting = pieces[::-1]
            self._admit(track, route, now)
            return
        for at, piece, alive in pieces:
            self._at(max(now, at), track, partial(self._hop, track, route, 0, piece, alive))

    # --- one queue: whole trains ---

    def _enqueue(self, now: int, sender: QueueSender, train: PacketTrain, queue: TrainQueue) -> None:
        connection, packet_bytes, came = sender.connection, sender.packet_bytes, train.at_ns
        passage = queue.offer(now, came, train.parts, packet_bytes, self._buffer(sender, queue))
        pieces = sender.cut(train, connection.lose(passage.dropped), passage.dropped)
        size = sum(piece[0] for piece in pieces)
        start = end = passage.start_ns
        last = last_of(came, train.parts)
        short = train.survivors * packet_bytes - size           # the last packet of a message may be a short one
        tail = max(0.0, packet_bytes - short)
        if train.survivors and queue.steady(came, end := passage.free_ns):
            end -= short / packet_bytes * queue.packet_ns(came, packet_bytes)
        elif train.survivors:
            end = queue.ends(start, size, last, tail)
        served = ServedTrain(came, last, start, end, size, tail, sender, train, pieces)
        self._pace(now, served, queue)
        if sender.served is not None and sender.served.end_ns > now:
            served.released_by, served.lag_ns = sender.served, last - sender.served.end_ns
        if train.survivors:
            queue.trains.append(served)
            queue.free_ns = end
        sender.served = served
        self._plan(now, served, queue)

    def _pace(self, now: int, served: ServedTrain, queue: TrainQueue) -> None:
        """Set the pace at which its packets are served and its first acknowledgements come, as things stand."""
        survivors, first = served.train.survivors, min(served.train.packets, served.sender.tcp.delayed_ack)
        at = served.start_ns if served.start_ns < inf else now
        packet_bytes = served.sender.packet_bytes
        served.s = queue.packet_ns(at, packet_bytes, max(1, survivors))
        served.shift_ns = 0.0
        first_ns = first * served.s
        took = served.end_ns - served.start_ns if served.end_ns < inf else 0.0
        stalls = [queue.stalls(served.start_ns, served.end_ns)] if took else []
        took -= stalled_ns(stalls, served.start_ns, served.end_ns)
        if survivors > first and took and not queue.steady(served.start_ns, served.end_ns):
            # the connection takes its packets to be evenly spread: so they are between the first ones and the end
            first_ns = first * queue.packet_ns(at, packet_bytes, first)
            moving_ns = first_ns - stalled_ns(stalls, at, at + first_ns)
            served.s = max(LEAST_S, (took - moving_ns) / (survivors - first))
            served.shift_ns = moving_ns - first * served.s
        elif len(queue.senders) > 1 and survivors:
            served.s = max(served.s, took / survivors)
            first_ns = first * served.s
        served.acks_ns = first_ns + served.sender.connection.rtt_ns

    def _buffer(self, sender: QueueSender, queue: TrainQueue) -> float:
        """Packets that wait in a queue at most; the sender's own holds back the sender."""
        for place, (number, link) in enumerate(zip(sender.numbers, sender.links, strict=True)):
            if self._queues.queues[number] is queue:
                buffer = None if link.stack is None else link.stack.buffer_bytes
                return inf if place == 0 or buffer is None else buffer // sender.packet_bytes
        return inf

    def _plan(self, now: int, served: ServedTrain, queue: TrainQueue) -> None:
        """The timers of a train in its last queue: where its messages are through, and where the connection goes on."""
        size = 0.0
        for number, (part, messages) in enumerate(served.pieces):
            size += part
            if messages and number >= served.through:
                time = served.through_at(size, queue)
                if time < inf:
                    self._at(max(now, time), served, partial(self._message_end, served, number))
        if served.told or served.end_ns == inf:     # it stands still, and so does the connection
            return
        connection = served.sender.connection
        time = served.end_ns
        if connection.unsent and not connection.room:
            acks = min(served.begun_ns, served.start_ns) + served.acks_ns
            time = min(time, acks) if served.train.lost else acks       # a loss may be known before
        self._at(max(now, time), served, partial(self._tell, served))

    def _message_end(self, served: ServedTrain, number: int, now: int) -> None:
        messages = served.pieces[number][1]
        served.through = number + 1
        served.sender.finish(messages)
        self._through += [(message.item, round(message.resent)) for message in messages]

    def _tell(self, served: ServedTrain, now: int) -> None:
        """The first acknowledgements of a train come, or all of it is through: its connection goes on."""
        if served.told:
            return
        served.told = True
        sender = served.sender
        for queue in self._route(sender):
            queue.clear(now)
        start = min(served.begun_ns, served.start_ns)
        start += served.shift_ns + stalled_ns([queue.stalls(start, served.end_ns) for queue in sender.queues], start,
                                              served.end_ns)
        self._follow(now, sender, sender.connection.served(start, served.end_ns, served.s))

    def _more(self, now: int, sender: QueueSender) -> None:
        """A message was written while a train is served: it follows as the window lets it."""
        served = sender.served
        if served is None or served.told or served.end_ns == inf:
            return
        if sender.connection.room:
            served.told = True
            if sender.connection.served(served.start_ns + served.shift_ns, served.end_ns, served.s) is not None:
                self._follow(now, sender, Next(now, 0.0))
        else:
            self._at(max(now, served.start_ns + served.acks_ns), served, partial(self._tell, served))

    def plan_again(self, now: int, queue: TrainQueue) -> None:
        """The rate of a queue has changed: the times of what has not been served, too."""
        for entry in queue.trains:
            entry.version += 1
            if isinstance(entry, ServedTrain):
                if entry.begun_ns == inf:
                    self._pace(now, entry, queue)
                self._plan(now, entry, queue)
            elif isinstance(entry, _Piece):
                self._plan_piece(now, entry)
        queue.followers = [served for served in queue.followers if served.through < len(served.pieces)]
        for served in queue.followers:
            served.version += 1
            served.end_ns = served.parts[-1].end_ns
            self._plan(now, served, queue)

    # --- several queues: pieces ---

    def _admit(self, track: _Track, route: Sequence[TrainQueue], now: int) -> None:
        """The next piece goes into the queue of the sender's own link. TCP small queues lets a connection have but a
        little there, so connections of one node take turns; with whole trains one message of a broadcast would follow
        the other, and a round of FedAvg came out a third too short."""
        if track.waiting:
            at, part, alive = track.waiting.pop()
            self._at(max(now, at), track, partial(self._hop, track, route, 0, part, alive))

    def _hop(self, track: _Track, route: Sequence[TrainQueue], place: int, part: TrainPart, alive: Sequence[int],
             now: int) -> None:
        """A piece comes to a queue."""
        sender, queue = track.sender, route[place]
        queue.clear(now)
        passage = queue.offer(now, now, [part], sender.packet_bytes, self._buffer(sender, queue))
        if passage.dropped:
            track.dropped += [alive[i] for i in passage.dropped]
            gone = set(passage.dropped)
            alive = [position for i, position in enumerate(alive) if i not in gone]
        if alive:
            size, tail, end = len(alive) * sender.packet_bytes, sender.packet_bytes, passage.free_ns
            if place + 1 == len(route):             # the last packets of messages may be short ones
                size = sender.bytes_at(track.train, alive)
                short = len(alive) * sender.packet_bytes - size
                tail = max(0.0, tail - short)
                if not queue.steady(now, end):
                    end = queue.ends(passage.start_ns, size, last_of(now, [part]), tail)
                elif end < inf:
                    end -= short / (size + short) * (end - passage.start_ns)
            piece = _Piece(now, last_of(now, [part]), passage.start_ns, end, size, tail, track, route, place, alive)
            queue.trains.append(piece)
            queue.free_ns = piece.end_ns
            self._plan_piece(now, piece)
            if place + 1 < len(route):
                return
            track.start_ns = min(track.start_ns, piece.start_ns)
            track.there.append(piece)
            self._ends_in(now, track, piece, queue)
        track.pieces -= 1
        if not track.pieces:
            packets = track.train.packets
            self._all_there(now, track, max(q.packet_ns(now, sender.packet_bytes, packets) for q in route), route[-1])

    def _plan_piece(self, now: int, piece: _Piece) -> None:
        """The timers for its first packet to come to the next queue, and for the piece behind it to come here."""
        if piece.place == 0 and piece.track.waiting and piece.end_ns < inf:
            self._at(max(now, piece.end_ns), piece, partial(self._admit, piece.track, piece.route))
        if piece.place + 1 < len(piece.route) and not piece.gone and piece.end_ns < inf:
            first = piece.start_ns + (piece.end_ns - piece.start_ns) / len(piece.alive)
            self._at(max(now, first), piece, partial(self._onward, piece))

    def _onward(self, piece: _Piece, now: int) -> None:
        piece.gone = True
        part = TrainPart(len(piece.alive), piece.end_ns - piece.start_ns, 1)
        self._hop(piece.track, piece.route, piece.place + 1, part, piece.alive, now)

    def _ends_in(self, now: int, track: _Track, piece: _Piece, queue: TrainQueue) -> None:
        """Plan the ends of the messages that end in a piece which has come to the last queue. The end of the train may
        come there much later: it can be as long as all that its sender has written."""
        sender, train = track.sender, track.train
        if track.dropped:
            return
        ended = sender.connection.whole_before(train.first + piece.alive[-1] + 1, track.ended)
        if not ended:
            return
        track.ended += len(ended)
        pieces, before = [], train.first + piece.alive[0]
        for message in ended:
            pieces.append((sender.bytes_between(before, message.end), [message]))
            before = message.end
        self._plan_ends(now, track, pieces, [piece], queue)

    def _plan_ends(self, now: int, track: _Track, pieces: list[tuple[float, list[SentMessage]]],
                   parts: Sequence[InQueue], queue: TrainQueue) -> None:
        """The connection hears of the train by itself: only its messages end here."""
        start, end, size = parts[0].start_ns, parts[-1].end_ns, sum(piece[0] for piece in pieces)
        served = ServedTrain(start, start, start, end, size, 0.0, track.sender, track.train, pieces, told=True,
                             parts=parts)
        queue.followers = [other for other in queue.followers if other.end_ns > now]
        queue.followers.append(served)
        self._plan(now, served, queue)

    def _all_there(self, now: int, track: _Track, s: float, queue: TrainQueue) -> None:
        """All pieces of a train have come to the last queue, or were dropped: all is known of it."""
        sender, connection, train = track.sender, track.sender.connection, track.train
        ended = connection.lose(sorted(track.dropped))[track.ended:]
        pieces = sender.cut(train, ended, track.dropped) if ended or train.again else []
        if not track.there:
            self._follow(now, sender, connection.served(now, now, s))
            return
        start, end = min(track.start_ns, now) if track.start_ns == inf else track.start_ns, track.there[-1].end_ns
        if ended:
            self._plan_ends(now, track, pieces, track.there, queue)
        if end == inf:                              # as if it went on at once: the next train waits as this one does
            end = now + train.survivors * s
        stalled = stalled_ns([queue.stalls(start, end) for queue in track.route], start, end)
        if stalled:
            start += stalled
            s = min(s, max(LEAST_S, (end - start) / train.survivors))
        self._follow(now, sender, connection.served(start, max(start, end), s))
