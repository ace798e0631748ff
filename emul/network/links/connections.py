"""A connection of TCP, advanced by round trips: what a sender releases in one is a *train* of packets.

`TcpConnection` is the state of one sender. It knows no links and no calendar. Its driver asks `begin` for the next
train, tells `lose` what a full queue dropped, and `served` when the train crossed the bottleneck. `served` answers when
the next train begins. The losses of a train are known by position, so recovery is computed and not averaged. No event
is spent on a packet. `emul.network.links.flows` drives it over `Fluid`, `emul.network.links.queues` over queues.

Clock: ns at the receiver's end (a packet is seen a latency after it was sent), whole where a train begins. Windows and
sequence numbers count packets of `mss` bytes. Sources: RFC 5681 (slow start), 9438 (CUBIC), 6928 (initial window), 6937
(PRR), 8985 (RACK, tail loss probe), 2861 (restart after idle), 3465 (byte counting); Linux tcp_cubic.c for HyStart;
Cardwell, Savage, Anderson 2000 for trains that touch or leave gaps.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, inf
from typing import Any, Literal, NamedTuple, Protocol, get_args

from emul.base.plain import is_count
from emul.network.links.features import Finding

Congestion = Literal["cubic", "reno"]
CONGESTIONS: tuple[str, ...] = get_args(Congestion)

MSS_BYTES = 1448                    # MTU 1500 less IPv4 20, TCP 20, timestamps 12
GIVE_UP_NS = 924_600_000_000        # without anything delivered: what Linux's 15 retransmissions take (tcp_retries2)
_MS = 1_000_000
_NEARLY = 1e-9                      # packets: windows are sums of floats, and 10 must not count as 9
LEAST_S = 1e-6                     # ns a packet, where no link has a finite bandwidth


@dataclass(frozen=True, slots=True)
class TcpStack:
    """The TCP of a sender, Linux 6 by default. No scenario sets the fields behind `connections`.

    buffer_bytes: of the queue at the slowest link, without the packet in service; None: endless. setup: the first
    message waits for a handshake, one round trip. connections: that a pair of nodes opens at most.
    """

    congestion: Congestion = "cubic"
    initial_window: int = 10        # RFC 6928
    idle_restart: bool = True
    buffer_bytes: int | None = None
    rto_min_ns: int = 200 * _MS
    hystart: bool = True
    tlp: bool = True
    delayed_ack: int = 2
    mss: int = MSS_BYTES
    setup: bool = False
    connections: int = 1
    rack: bool = True               # finds lost retransmissions, and losses that fewer than three packets follow
    friendly: bool = True           # cubic grows as fast as reno at least
    hystart_train: float = 0.5      # of the least round trip: slow start ends where a train of acks is longer
    hystart_delay: float = 0.125    # of the least round trip: slow start ends where a train waits longer,
    hystart_most_ns: int = 16 * _MS     # at most; 4 ms at least

    def problems(self) -> list[Finding]:
        """(field, found, expected) of all that is out of its range."""
        found = [(name, repr(getattr(self, name)), "expected a whole number, 1 or more")
                 for name in ("initial_window", "rto_min_ns", "delayed_ack", "mss", "connections")
                 if not is_count(getattr(self, name), 1)]
        if self.congestion not in CONGESTIONS:
            found.append(("congestion", repr(self.congestion), f"expected one of {', '.join(CONGESTIONS)}"))
        if self.buffer_bytes is not None and not is_count(self.buffer_bytes, 0):
            found.append(("buffer_bytes", repr(self.buffer_bytes), "expected a whole number of bytes, 0 or more"))
        found += [(name, repr(getattr(self, name)), "expected true or false")
                  for name in ("idle_restart", "hystart", "tlp", "setup") if not isinstance(getattr(self, name), bool)]
        return found


def agreed(transport: object) -> TcpStack | None:
    """The settings that the links of a route share: all but the buffer; None: they have no connections."""
    return replace(transport, buffer_bytes=None) if isinstance(transport, TcpStack) else None


class PacketLosses(Protocol):
    """The transmissions of one message that the links of its route lose."""

    def lost(self, now_ns: float, count: int) -> list[int]:
        """The positions lost among its next `count` transmissions, of a train that begins at `now_ns`."""
        ...

    def clear(self) -> int:
        """So many of its next transmissions will certainly pass."""
        ...


class TrainPart(NamedTuple):
    """Packets of a train that leave the sender over `span_ns`, in bursts of so many; burst 0: of a recovery."""

    packets: int
    span_ns: float
    burst: int


class Completed(NamedTuple):
    """A message is there when so many of a train's packets that no queue dropped have been served."""

    item: Any
    packets: int


class Next(NamedTuple):
    """The next train reaches the bottleneck from `at_ns` on, over `span_ns` if the window fills it."""

    at_ns: float
    span_ns: float


class _Written(NamedTuple):
    end: int                        # the number of the first packet behind it
    fates: PacketLosses | None
    item: object


class Passage(NamedTuple):
    """A train through a queue: when its first packet is served, when the queue is free, and what it dropped."""

    start_ns: float
    free_ns: float
    dropped: list[int]


def pass_queue(at_ns: float, parts: Sequence[TrainPart], s: float, free_ns: float, buffer: float) -> Passage:
    """Send a train into a queue that is busy until `free_ns`, takes `s` ns a packet and holds `buffer` packets.

    A train that cannot fill the queue passes whole. Another is looked at packet by packet: the queue drains between its
    bursts, and drops what finds it full. A recovery sends no more than has left and gets room for three packets more.
    """
    # An event for each packet would give the same, with 691 of them for 1 MB: so a train is one event, and its packets
    # are walked through only where some may be dropped (`test_a_queue_of_several_connections_is_that_of_packets`).
    first: float | None = None
    base, dropped = 0, []
    for n, span, burst in parts:
        start = max(at_ns, free_ns)
        first = start if first is None else first
        passed = n
        room = buffer + (1 if burst else 4)             # with the one in service
        step = burst or 1
        if (start - at_ns) / s + n - (n - step) * span / n / s > room + _NEARLY:
            passed, queue, since = 0, (start - at_ns) / s, at_ns
            for i in range(n):
                if i % step == 0:
                    at = at_ns + i * span / n
                    queue, since = max(0.0, queue - (at - since) / s), at
                if queue + 1 <= room + _NEARLY:
                    queue += 1
                    passed += 1
                else:
                    dropped.append(base + i)
        if passed:
            free_ns = max(start + passed * s, at_ns + span * (1 - 1 / n) + s)
        at_ns += span
        base += n
    assert first is not None
    return Passage(first, max(free_ns, first), dropped)


class TcpConnection:
    """The sender's side of one connection.

    rtt_ns: latencies there and back. access_ns: for a packet on the links before the bottleneck; no train is denser.
    local: the bottleneck is the sender's own first link, whose queue holds back the sender and drops nothing.
    """

    def __init__(self, tcp: TcpStack, rtt_ns: float, *, access_ns: float = 0.0, local: bool = False):
        self.tcp = tcp
        self.rtt_ns = rtt_ns
        self.access_ns = access_ns
        self.local = local
        self.train: PacketTrain | None = None             # begun and not served
        self._messages: deque[_Written] = deque()   # not delivered whole
        self._ends: list[int] = []                  # of `_messages`
        self._written = 0                           # packets
        self._next = 0                              # the first packet never sent
        self._holes: set[int] = set()               # sent and not delivered
        self._again: list[int] = []                 # to be sent again
        self._unknown: list[int] = []               # lost, and nothing has told of it yet
        self._probe: list[int] | None = None        # missing; a tail loss probe comes next
        self.gave_up = False                        # nothing came through for GIVE_UP_NS: what is written is lost
        self._delivered_ns = 0.0                    # time of the last delivery, or write to an idle one
        self.forget()

    def forget(self) -> None:
        """Begin anew, as a new connection does. Packets under way stay so, and missing ones are sent again."""
        self._last_sent = -inf
        self._last: Next | None = None              # the release by the acknowledgements of the last train,
        self._room = 0                              # and what its window left open
        self._s = 0.0                               # ns a packet, of the last train
        self._window, self._ssthresh = float(self.tcp.initial_window), inf
        self._most, self._origin, self._inflection = 0.0, 0.0, 0.0      # cubic: w_max, target there, K in s
        self._epoch: float | None = None
        self._reno_window = 0.0                     # cubic: W_est
        self._srtt, self._rtt_min = float(self.rtt_ns), inf
        self._mode: Literal["open", "recovery", "loss"] = "open"
        self._high = -1                             # losses below it have reduced the window already
        probed = self._probe or []
        if self.train is not None:                  # it is the probe; if its packet is lost, then as that of a train
            probed = probed[:-1]
        self._again = sorted({*self._again, *self._unknown, *probed})
        self._unknown, self._probe = [], None
        self._plan: tuple[int, int] | None = None   # of a recovery: new packets first, then what is missing and new
        self._split = 0.0                           # share of the span that those new packets first take
        self._arrived = 0                           # packets of the last train

    @property
    def window(self) -> float:
        """In packets."""
        return self._window

    @property
    def packet_ns(self) -> float:
        """The time that a packet took at the share of the last train; 0: there was none."""
        return self._s

    @property
    def room(self) -> int:
        """Packets that the window of the last train left open."""
        return self._room

    def acknowledged_at(self, start: float, s: float) -> float | None:
        """The time of the first acknowledgements of the train under way, served from `start` on at `s` ns a packet.

        None: the next train does not wait for these alone.
        """
        train = self.train
        if train is None or train.lost or self._unknown or self._probe is not None or self._room or not self.unsent:
            return None
        return start + min(train.packets, self.tcp.delayed_ack) * max(s, LEAST_S) + self.rtt_ns

    @property
    def due(self) -> int:
        """About so many packets are in the next train, 1 at least."""
        return max(1, min(int(self._window), self._written - self._next + len(self._again)))

    @property
    def unsent(self) -> bool:
        """True if anything waits to be sent, for the first time or again."""
        return self._written > self._next or bool(self._again)

    @property
    def messages(self) -> list[Any]:
        """The items written and not delivered whole, in their order."""
        return [message.item for message in self._messages]

    # --- what is to be sent ---

    def write(self, item: object, packets: int, fates: PacketLosses | None = None) -> None:
        """A message of so many packets follows what was written before."""
        self._written += packets
        self._messages.append(_Written(self._written, fates, item))
        self._ends.append(self._written)

    def wake(self, now: float) -> Next:
        """The time when the first bytes written to an idle connection go out."""
        last = self._last
        self._delivered_ns = now
        if last is not None and now < last.at_ns:       # acknowledgements of the last train are still to come
            return Next(now, 0.0) if self._room > 0 else last
        self._room = 0
        self._restart(now)
        return Next(now + self.rtt_ns if self.tcp.setup and self._last_sent == -inf else now, 0.0)

    def _restart(self, now: float) -> None:
        """After silence the window halves for each whole timeout (tcp_cwnd_restart). Cubic does not grow in it."""
        if self._last_sent == -inf:
            return
        silence, rto = now - self._last_sent, self._rto()
        if self.tcp.idle_restart and silence > rto:
            if self._ssthresh < inf:
                self._ssthresh = max(self._ssthresh, 0.75 * self._window)
            least = min(self.tcp.initial_window, self._window)
            left = silence
            while left > rto and self._window > least:
                self._window /= 2
                left -= rto
            self._window = max(self._window, least)
        if self._epoch is not None:
            self._epoch += max(0.0, silence - self._srtt)

    def _rto(self) -> float:
        return self._srtt + self.tcp.rto_min_ns

    def begin(self, now: float, span_ns: float) -> PacketTrain:
        """Send the next train: it reaches the bottleneck from `now` on, over `span_ns` if the window fills it."""
        if self._probe is not None:
            train = PacketTrain(now, 0.0, self._next, (0, self._probe[-1:], 0), [TrainPart(1, 0.0, 0)])
            train.limited = False
            self.train = train
            return train
        pre, again, post, allowed = self._compose()
        n = pre + len(again) + post
        span = max(span_ns * min(1.0, n / allowed), n * self.access_ns)
        self._room = max(0, allowed - n) if self._mode == "open" else 0
        burst = 0 if self._mode == "recovery" else self.tcp.delayed_ack * (2 if self._window < self._ssthresh else 1)
        parts = [TrainPart(n, span, burst)]
        if self._split and pre and n > pre:         # packets from before the loss was known, then the recovery's
            parts = [TrainPart(pre, self._split * span, burst or self.tcp.delayed_ack),
                     TrainPart(n - pre, (1 - self._split) * span, 0)]
        self._split = 0.0
        self.train = train = PacketTrain(now, span, self._next, (pre, again, post), parts)
        train.limited = n >= allowed
        self._next += pre + post
        self._last_sent = now + span
        return train

    def _compose(self) -> tuple[int, list[int], int, int]:
        """New packets first, packets sent again, new packets after; and how many of all the window allows."""
        new = self._written - self._next
        if self._plan is not None:
            pre, post = self._plan
            self._plan = None
        else:
            pre, post = 0, max(1, int(self._window + _NEARLY) - len(self._unknown))
            if self._mode == "recovery":            # PRR: slow start at most, until the window is ssthresh
                post = min(post, 2 * self._arrived + 1)
            elif self._room:                        # the rest of a window whose acknowledgements are still to come
                post = min(post, self._room)
        pre = min(pre, new)
        if not pre and not self._again and self._mode == "open" and (self.rtt_ns == 0 or (
                self.local and self._s and self._window > self.rtt_ns / self._s + 2)):
            post = max(post, min(new, self._clear()))       # the window does not limit it: one train to the next loss
        allowed = max(1, pre + post)
        again, self._again = self._again[:post], self._again[post:]
        return pre, again, min(post - len(again), new - pre), allowed

    def _clear(self) -> int:
        """So many of the packets never sent will certainly pass."""
        count, at = 0, self._next
        for message in self._messages:
            if message.end <= at:
                continue
            free = message.end - at if message.fates is None else message.fates.clear()
            count += min(free, message.end - at)
            if free < message.end - at:
                break
            at = message.end
        return count

    # --- what becomes of it ---

    def whole_before(self, packet: int, known: int) -> list[Any]:
        """The items that are there once all packets of the train under way before this number are, whatever becomes of
        the others: of messages of which no link loses anything, while nothing is missing. known: so many were told."""
        train = self.train
        assert train is not None
        found: list[Any] = []
        if self._holes or train.again:
            return found
        at = self._ends[known - 1] if known else train.first
        for place in range(known, len(self._messages)):
            message = self._messages[place]
            if message.end > packet or (message.fates is not None and message.fates.clear() < message.end - at):
                break
            found.append(message.item)
            at = message.end
        return found

    def lose(self, dropped: Sequence[int] = ()) -> list[Completed]:
        """The fates of the train that has begun, of which a queue dropped some positions. Returns what it completes."""
        train = self.train
        assert train is not None
        n = train.packets
        if dropped:                                 # dropped packets never came to a link that loses
            gone = set(dropped)
            through = [position for position in range(n) if position not in gone]
            train.lost = sorted({*(through[i] for i in self._lost_of(train, through)), *dropped})
        else:
            train.lost = self._lost_of(train, range(n))
        train.survivors = n - len(dropped)
        if self._holes or train.lost:
            lost = [train.packet_at(position) for position in train.lost]
            self._holes.difference_update(train.again)
            self._holes.update(lost)
        return self._completed(train, dropped)

    def _lost_of(self, train: PacketTrain, positions: Sequence[int]) -> list[int]:
        """Places in `positions` of the packets that links lose: of each message its own draws, in the order sent."""
        # Numbered by message and not by what the connection has sent: there a message more would shift the fates of all
        # that follow, and two schemes would meet other links
        # (`test_connections_lose_the_same_packets_for_two_schemes_and_on_the_record`).
        messages = self._messages
        if messages[-1].fates is None and all(message.fates is None for message in messages):
            return []
        found: list[int] = []
        first = 0
        while first < len(positions):
            of = bisect_right(self._ends, train.packet_at(positions[first]))
            last = first + 1
            while last < len(positions) and bisect_right(self._ends, train.packet_at(positions[last])) == of:
                last += 1
            fates = messages[of].fates
            if fates is not None:
                found += [first + i for i in fates.lost(train.at_ns, last - first)]
            first = last
        return found

    def _completed(self, train: PacketTrain, dropped: Sequence[int]) -> list[Completed]:
        done = []
        sent = train.first + train.pre + train.post
        whole = min(sent, min(self._holes)) if self._holes else sent
        while self._messages and self._messages[0].end <= whole:
            message = self._messages.popleft()
            del self._ends[0]
            count = train.survivors
            if message.end < sent and not train.again:
                behind = max(0, message.end - train.first)
                count = behind - sum(position < behind for position in dropped)
            done.append(Completed(message.item, count))
        return done

    def served(self, start: float, end: float, s: float) -> Next | None:
        """The train that has begun was served from `start` to `end`, at `s` ns a packet; its fates are known.

        Returns when the next one begins; None: there is nothing to send.
        """
        train = self.train
        assert train is not None
        self.train = None
        if train.lost_all:
            if start - self._delivered_ns > GIVE_UP_NS:
                self.gave_up = True
                return None
        else:
            self._delivered_ns = end
        if self._probe is not None:
            return self._probed(train, end)
        s = max(s, LEAST_S)
        n, d = train.packets, self.tcp.delayed_ack
        waited = 0.0 if self.local else max(0.0, start - train.at_ns)
        self._s = s
        rtt = self.rtt_ns + (min(n, 8) * s if self.local else min(n, d) * s + waited)
        self._rtt_min = min(self._rtt_min, rtt)
        self._srtt += (rtt - self._srtt) * (1 - 0.875 ** max(1, n // d))
        if self.local:
            self._last_sent = max(self._last_sent, end - s)
        self._arrived = n - len(train.lost)
        acks = Next(start + min(n, d) * s + self.rtt_ns, max(end - start, 0.0))
        if train.lost or self._unknown:
            return self._lossy(train, start, end, s, acks)
        if self._mode == "recovery":
            if not self._holes and not self._again:
                self._mode = "open"
                self._grow(train.post, acks.at_ns)
        else:
            if not self._holes and not self._again:
                self._mode = "open"
            if train.limited or (self._window < self._ssthresh and n > self._window / 2):
                self._grow_by_train(n, s, waited, acks.at_ns)
        self._last = acks
        if not self.unsent:
            return None
        if self._room > 0 and acks.at_ns > end:
            return Next(end, 0.0)
        self._room = 0
        return acks

    def _grow_by_train(self, n: int, s: float, waited: float, now: float) -> None:
        """All n packets are acknowledged; HyStart may end slow start among them."""
        tcp = self.tcp
        if not (tcp.hystart and tcp.congestion == "cubic" and 16 <= self._window < self._ssthresh):
            self._grow(n, now)
            return
        after: float | None = None
        if s * tcp.delayed_ack <= 2 * _MS and n * s > tcp.hystart_train * self._rtt_min:
            after = tcp.hystart_train * self._rtt_min / s
        threshold = min(max(self._rtt_min * tcp.hystart_delay, 4 * _MS), tcp.hystart_most_ns)
        if waited > threshold and n >= 8 * tcp.delayed_ack:
            after = min(after or inf, 8 * tcp.delayed_ack)
        if after is None:
            self._grow(n, now)
            return
        self._window += min(n, after)
        self._ssthresh = self._window
        self._grow(max(0, n - after), now)

    def _grow(self, acked: float, now: float) -> None:
        """Slow start to ssthresh, then congestion avoidance, by so many packets acknowledged."""
        if self.local and self._s:                  # is_cwnd_limited: the own queue holds back what is beyond
            most = self.rtt_ns / self._s + 10
            acked = min(acked, (2 * most if self._window < self._ssthresh else most) - self._window)
        if acked > 0 and self._window < self._ssthresh:
            step = min(acked, self._ssthresh - self._window)
            self._window += step
            acked -= step
        if acked <= 0:
            return
        if self.tcp.congestion == "reno":
            self._window += acked / self._window
            return
        window = self._window
        if self._epoch is None:
            self._epoch = now
            self._inflection, self._origin = 0.0, window
            if self._most > window:
                self._inflection, self._origin = ((self._most - window) / 0.4) ** (1 / 3), self._most
            self._reno_window = window
        t = (now - self._epoch) / 1e9 + min(self._rtt_min / 1e9, 10)
        target = self._origin + 0.4 * (t - self._inflection) ** 3
        acks = window / (target - window) if target > window else 100 * window      # for one packet more
        if not self._most:
            acks = min(acks, 20.0)
        if self.tcp.friendly:
            self._reno_window += acked * 0.5294 / window
            if self._reno_window > window:
                acks = min(acks, window / (self._reno_window - window))
        self._window += acked / max(acks, 2.0)

    def _reduce(self) -> None:
        window = self._window
        self._epoch = None
        if self.tcp.congestion == "cubic":
            self._most = window * 0.85 if window < self._most else window
            self._ssthresh = max(2.0, 0.7 * window)
        else:
            self._ssthresh = max(2.0, window / 2)

    # --- losses ---

    def _lossy(self, train: PacketTrain, start: float, end: float, s: float, acks: Next) -> Next | None:
        """The train lost packets, or one before it did and nothing has told of that yet."""
        tcp, n, lost = self.tcp, train.packets, train.lost
        earlier, self._unknown = self._unknown, []
        in_order = 0 if earlier else lost[0]        # acknowledged before the first loss
        behind = n - len(lost) - in_order           # delivered behind it
        packets = [train.packet_at(position) for position in lost]
        missing = earlier + packets
        if self._mode == "recovery" and not earlier and not self._again and min(packets) >= self._high:
            self._mode = "open"                     # the loss that the recovery was for has been repaired
            self._grow(max(0, in_order - train.pre - len(train.again)), acks.at_ns)
        elif in_order and self._mode != "recovery" and train.limited:
            self._grow(in_order, acks.at_ns)
        new = self._written - self._next
        again_lost = any(train.pre <= position < train.pre + len(train.again) for position in lost)
        if again_lost and not tcp.rack:             # nothing finds it but the timer
            return self._time_out(max(end, acks.at_ns + acks.span_ns) + self._rto(), missing)
        quick = behind >= 3 or (behind >= 1 and tcp.rack)
        if self._mode == "recovery":
            released = min(int(self._ssthresh), self._arrived)
        else:
            released = max(0, int(self._window + _NEARLY) - (n - in_order))
        if not quick:
            released += min(2, behind)              # limited transmit, RFC 3042
            if new > 0 and (released or in_order):
                # packets released by acknowledgements in order go first, and tell of the loss
                self._unknown = missing
                self._plan = 0, max(1, released)
                return acks
            return self._tail(train, start, end, s, acks, in_order, missing)
        fresh = [packet for packet in missing if packet >= self._high] if self._mode != "open" else missing
        first = min(released + (2 if behind >= 3 else 0), new) if self._mode != "recovery" else 0
        flight = max(self._window, 1.0)
        goes_on = self._mode == "recovery" and not fresh
        if fresh or self._mode == "open":
            self._reduce()
            self._mode = "recovery"
            self._high = self._next + first
        if self._mode == "recovery":
            self._window = min(self._ssthresh, self._window)
        self._again = sorted({*self._again, *missing})
        if goes_on:                                 # every acknowledgement lets packets go
            self._plan = 0, max(1, min(int(self._ssthresh), 2 * self._arrived))
            return acks
        share = min(1.0, self._ssthresh / flight)
        self._plan = first, max(1, min(max(int(self._ssthresh) - first, ceil(share * (behind - 2))), behind - 2))
        return self._recovery(0 if earlier else lost[0], first, behind, set(lost), start, s, acks)

    def _recovery(self, at: int, first: int, behind: int, lost: set[int], start: float, s: float, acks: Next) -> Next:
        """The start of the recovery: at the third acknowledgement of a packet sent behind position `at`, or by RACK."""
        length = acks.span_ns
        if behind >= 3:
            seen, position = 0, at
            while seen < 3:
                seen += position not in lost
                position += 1
            offset, wait = position * s, 0.0
        else:
            offset, wait = length, self._srtt / 8
        if first:
            self._split = min(1.0, offset / max(length, offset, 1e-3))
            return Next(acks.at_ns, max(length, offset))
        return Next(start + offset + self.rtt_ns + wait, max(0.0, length - offset))

    def _tail(self, train: PacketTrain, start: float, end: float, s: float, acks: Next, in_order: int,
              missing: list[int]) -> Next | None:
        """The end of what there is to send was lost: nothing tells of it but a probe, or the timer."""
        last_ack = start + in_order * s + self.rtt_ns if in_order else train.at_ns + train.span_ns
        if not self.tcp.tlp:
            return self._time_out((acks.at_ns + acks.span_ns if in_order else last_ack) + self._rto(), missing)
        head = start + in_order * s if self.local else train.at_ns + train.span_ns * in_order / train.packets
        at = head + self._rto()
        if len(missing) > 1 or in_order:
            at = min(at, last_ack + 2 * self._srtt + 4 * _MS)
        self._probe = missing
        return Next(max(at, end), 0.0)

    def _probed(self, probe: PacketTrain, end: float) -> Next | None:
        """The step that follows from the tail loss probe."""
        missing, self._probe = self._probe, None
        assert missing is not None
        if probe.lost:
            return self._time_out(probe.at_ns + self._rto(), missing)
        self._reduce()
        self._window = self._ssthresh
        self._mode, self._high = "recovery", self._next
        acks = Next(end + self.rtt_ns, 0.0)
        rest = missing[:-1]
        if not rest and not self._again:
            self._mode = "open"
            self._last = acks
            return acks if self.unsent else None
        self._again = sorted({*self._again, *rest})
        self._plan = 0, max(1, min(int(self._ssthresh), 2))
        return acks

    def _time_out(self, at: float, missing: list[int]) -> Next:
        if self._mode != "loss":
            self._reduce()
        self._window = 1.0
        self._mode, self._high = "loss", self._next
        self._again = sorted({*self._again, *missing})
        self._plan = None
        return Next(at, 0.0)


class PacketTrain:
    """The packets that one round trip releases: new packets, packets sent again, new packets. Positions count all from
    0."""

    __slots__ = ("again", "at_ns", "first", "limited", "lost", "packets", "parts", "post", "pre", "span_ns",
                 "survivors")

    def __init__(self, at_ns: float, span_ns: float, first: int, chunks: tuple[int, list[int], int],
                 parts: list[TrainPart]):
        self.at_ns = at_ns                          # its first packet reaches the bottleneck, as far as queues let it
        self.span_ns = span_ns
        self.first = first                          # the number of its first new packet
        self.pre, self.again, self.post = chunks
        self.packets = self.pre + len(self.again) + self.post
        self.parts = parts
        self.limited = True                         # the window allowed no more
        self.lost: list[int] = []
        self.survivors = self.packets               # not dropped by a queue

    @property
    def lost_all(self) -> bool:
        """True if nothing of it is delivered."""
        return len(self.lost) == self.packets

    def packet_at(self, position: int) -> int:
        """The number of the packet at a position."""
        if position < self.pre:
            return self.first + position
        place = position - self.pre
        return self.again[place] if place < len(self.again) else self.first + position - len(self.again)
