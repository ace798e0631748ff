"""A link: one direction, first in first out, an explicit state machine without a calendar.

A message offered at `now` starts at max(now, busy_until), occupies the link for ceil(8e9 * bytes / bandwidth) ns and
leaves it `latency_ns` after that. The bytes are the message's and the per-packet overhead's (`wire_bytes`). All
times are integers and the arithmetic is exact, so tests compare with closed forms by ==.

Loss is decided when the transmission starts; a lost message occupies the link like any other and its loss is known
when it would have been delivered. Order is kept: no message leaves before one that was offered earlier, even where
the latency was lowered in between. Whether a message is lost says the link's `Outage` (`emul.network.models.outages`);
what the kernel does with a lost one is in `arrive` of `emul.kernel.messages`.

`Link` is what most links are: constant latency, constant rate, no limit of what waits, datagrams, whole messages.
It is the hot path of a run. Every other feature of a link makes a `FullLink` of it (module `full_link`), and costs only
that: a plain link takes 1.4 million messages a second, a `FullLink` that uses no feature 0.44 million.
`test_without_features_it_does_what_the_plain_link_does` holds both against each other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from fractions import Fraction
from math import ceil
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from emul.base.errors import NetworkError
from emul.base.plain import is_count, is_number
from emul.network.links.service import PAUSED, WORK_PER_BYTE
from emul.network.models.outages import Outage

_SETTLED = -1                       # in the place of k: no re-planning draws this message's fate again

InFlight = Literal["drop", "pause", "deliver"]
INFLIGHT: tuple[str, ...] = get_args(InFlight)


class Tail(NamedTuple):
    """The timing of the rest of a message whose head is here: in packets, or (packet_bytes 0) as a stream."""

    # An event for each packet gives the same results at a thousand times the cost. Three packets decide when a message
    # is through: the first, the last full one, and the last. At rates that vary it may be late by a nanosecond a hop
    # (`test_messages_take_what_their_packets_take`).

    body_ns: int = 0            # all but its last packet is here
    end_ns: int = 0             # the whole is here
    packet_bytes: int = 0       # of a full packet, without overhead


HERE = Tail()                   # nothing follows
GIVEN_BACK = Tail(-1, -1, 0)     # it is where it was offered, to take another way
Left: TypeAlias = tuple[Any, bool, Tail, int]       # item, delivered, tail, resent_bytes
_Entry: TypeAlias = tuple[int, Any, bool, int, int, int | Fraction, int, int, int]
#                   due, item, delivered, start, end, bytes, round, k, packets; `due` does not decrease along a queue


class Link:
    """The link from vertex `src` to vertex `dst`. `bandwidth_bps` None is infinite. Times in ns, sizes in bytes.

    `now` must not decrease from call to call, and `advance(now)` comes before `offer` or `change` at `now`
    where things have left by then: the link does not check, to stay cheap.
    """

    cut = False             # true if `offer` needs `last` and `tail`, and can bring `next_change` forward
    returns = False         # true if it gives back what a contact cuts

    __slots__ = ("_busy_until", "_count", "_floor", "_lost", "_others", "_queue", "_rate", "_refuses", "_round",
                 "_work", "bandwidth_bps", "down", "dst", "latency_ns", "mtu", "overhead_bytes", "src")

    def __init__(self, src: int, dst: int, latency_ns: int = 0, bandwidth_bps: int | float | None = None,
                 outage: Outage | None = None, overhead_bytes: int = 0, mtu: int | None = None):
        self.src = src
        self.dst = dst
        self.latency_ns = latency_ns
        self.overhead_bytes = overhead_bytes
        self.mtu = mtu
        self.down = False                       # it does not transmit: what is offered is lost or, paused, waits
        self._refuses = False                   # down, and what is offered is lost
        self._lost = None if outage is None else outage.lost
        self._round = self._count = 0           # of the last message, and how many of it; kept only with an outage
        self._others: dict[int, int] | None = None      # round -> messages offered in it, of other rounds
        self._queue: deque[_Entry] | tuple[()] = ()     # made while something is under way: an idle link is small
        self._busy_until = 0
        self._floor = 0                         # nothing offered from now on leaves before this
        self._set_bandwidth(bandwidth_bps)

    def like(self, src: int, dst: int) -> Link:
        """A link of the same parameters between two other vertices, of one that loses nothing and was not used yet."""
        other = Link.__new__(Link)
        other.src, other.dst = src, dst
        other.latency_ns, other.overhead_bytes, other.mtu = self.latency_ns, self.overhead_bytes, self.mtu
        other.down = other._refuses = False
        other._lost = other._others = None
        other._queue = ()
        other._busy_until = other._floor = other._round = other._count = 0
        other.bandwidth_bps, other._rate, other._work = self.bandwidth_bps, self._rate, self._work
        return other

    def _set_bandwidth(self, bandwidth_bps: int | float | None) -> None:
        self.bandwidth_bps = bandwidth_bps
        if type(bandwidth_bps) is int:          # of nearly every link: a Fraction takes as long as all the rest of it
            self._rate, self._work = bandwidth_bps, WORK_PER_BYTE
            return
        rate = Fraction(0 if bandwidth_bps is None else bandwidth_bps)
        self._rate = rate.numerator             # 0 stands for infinite
        self._work = WORK_PER_BYTE * rate.denominator

    def wire_bytes(self, size_bytes: int) -> int:
        """Bytes that cross the link for a message of `size_bytes`: size + packets * overhead_bytes.

        packets = ceil(size / mtu), or 1 where there is no `mtu`. `offer` applies this itself; call it to count.
        Bytes that a transport sends again are not in it (`resent_bytes` of `advance`).
        """
        if not self.overhead_bytes:
            return size_bytes
        packets = 1 if self.mtu is None else -(-size_bytes // self.mtu)
        return size_bytes + packets * self.overhead_bytes

    def packets(self, size_bytes: int) -> int:
        """Packets of a message, at least 1: what an outage per packet can hit."""
        return 1 if self.mtu is None else -(-size_bytes // self.mtu) or 1

    def offer(self, now: int, item: object, size_bytes: int, round: int, last: bool = True, tail: Tail = HERE) -> bool:
        """Queue `item`, of `size_bytes` without per-packet overhead; `round` is 0 outside rounds and if unscoped.

        last: whether this is the last link of its way. tail: when the rest of it will be here, if its head comes
        before that; links that hand on heads are of FullLinks only, so here it is past.
        True: it will be delivered as things stand; False: it will be lost. A later `change` can revise both, so
        the word that counts is the one `advance` returns.
        """
        start = self._busy_until
        if start < now:
            start = now
        lost = self._lost
        packets = 1 if lost is None else self.packets(size_bytes)
        if self.overhead_bytes:
            size_bytes = self.wire_bytes(size_bytes)
        end = start
        if self._rate:
            end -= -size_bytes * self._work // self._rate       # ceil, in integers
            self._busy_until = end
        due = end + self.latency_ns
        if due < self._floor:
            due = self._floor
        delivered, k = True, 0
        if lost is not None:
            # counted while down, too: the fate of the k-th message does not depend on the faults before it
            k = self._counted(round)
            if not self._refuses and start < PAUSED:    # of what is paused, drawn when it is known when it starts
                delivered = not lost(start, end, round, k, packets)
        if self._refuses:
            delivered, k = False, _SETTLED
        entry = (due, item, delivered, start, end, size_bytes, round, k, packets)
        if self._queue:
            self._queue.append(entry)
        else:
            self._queue = deque((entry,))
        return delivered

    def carry(self, now: int, size_bytes: int, round: int) -> tuple[int, bool]:
        """As `offer`, of a link that `change` is never called of: when the message leaves it, and whether delivered.

        A message whose fate is known already need not be kept: it is not in flight here, and `advance` does not bring
        it.
        """
        # With `offer` and `advance` alone every message has a place in a queue and a second entry in the calendar, and
        # many messages of one node cannot be sent in one pass (`send_each` of `emul.kernel.messages`): 22 us of CPU a
        # message in place of 18 where 60 nodes send to each other (in process, least of six interleaved pairs). A round
        # of FedAvg with 100 clients does not show it. A property test holds both ways against each other.
        start = self._busy_until
        if start < now:
            start = now
        lost = self._lost
        packets = 1 if lost is None or self.mtu is None else self.packets(size_bytes)
        if self.overhead_bytes:
            size_bytes = self.wire_bytes(size_bytes)
        end = start
        if self._rate:
            end -= -size_bytes * self._work // self._rate
            self._busy_until = end
        if lost is None:
            return end + self.latency_ns, True
        return end + self.latency_ns, not lost(start, end, round, self._counted(round), packets)

    @property
    def busy_until(self) -> int:
        """Time at which the last byte of all that was offered has been transmitted, as things stand."""
        return self._busy_until

    def end_of(self, item: object) -> int | None:
        """Time at which the last byte of `item` is transmitted, as things stand; None: it is not under way here.

        Of what `carry` has brought nothing is known here.
        """
        return next((entry[4] for entry in reversed(self._queue) if entry[1] is item), None)

    def _counted(self, round: int) -> int:
        """The number, from 0, that a message offered now has among those of its round."""
        if round != self._round:
            if self._count:
                if self._others is None:
                    self._others = {}
                self._others[self._round] = self._count
            self._round, self._count = round, 0 if self._others is None else self._others.pop(round, 0)
        k = self._count
        self._count = k + 1
        return k

    def next_change(self) -> int | None:
        """Time at which the next message leaves, delivered or lost; None while nothing is under way or all is paused.

        `offer` does not move it unless it was None. `change` can move it either way: ask again after it.
        """
        if not self._queue:
            return None
        due = self._queue[0][0]
        return due if due < PAUSED else None

    def advance(self, now: int) -> list[Left]:
        """The messages that have left by `now`, in the order offered: (item, delivered, tail, resent_bytes).

        delivered: False if lost, which is known only now. tail: when the rest of it leaves, where only its head has;
        HERE here. resent_bytes: wire bytes sent again by a transport; 0 here.
        """
        queue = self._queue
        left = []
        while queue and queue[0][0] <= now:
            entry = queue.popleft()
            left.append((entry[1], entry[2], HERE, 0))
        if not queue:
            self._queue = ()
        return left

    def offered(self) -> Mapping[int, int]:
        """round -> messages offered in it; kept only where something is drawn for a message."""
        counts = {**(self._others or {}), self._round: self._count}
        return {round: count for round, count in counts.items() if count}

    def in_flight(self) -> list[object]:
        """All items offered that have not left: waiting, being transmitted, on their way; those to be lost too."""
        return [entry[1] for entry in self._queue]

    def change(self, now: int, down: bool | None = None,
               bandwidth_bps: int | float | Literal["infinite"] | None = None,
               latency_ns: int | None = None, outage: Outage | Literal["none"] | None = None,
               inflight: InFlight = "drop") -> None:
        """Change the link from `now` on; None leaves a thing as it is. Messages that have left by `now` are untouched.

        down: what the link does when it goes down, with what it carries and with what is offered until it is up
            again, says `inflight`; of a link that is down already it changes nothing.
            "drop": all is lost, waiting or on its way, and passes through the link as lost messages do.
            "deliver": what was offered before keeps its fate; what is offered from now on is lost.
            "pause": nothing is lost, but the rate is 0: what waits or is half transmitted goes on when the link is up
            again, what has been transmitted arrives, what is offered queues. The fate of a transmission that has begun
            stands.
            When the link comes up again nothing is revived.
        bandwidth_bps: what waits, and the rest of what is being transmitted, goes on at the new rate, exactly.
        latency_ns: for what has not ended its transmission; none overtakes an earlier message.
        outage: another model, for what has not begun its transmission. A link that had none begins to count there.
        A message that waits starts at another time after this, so an outage per slot is drawn anew for it.
        Raises NetworkError on values that no link can have. `next_change` may move: ask again.
        """
        self._check(bandwidth_bps, latency_ns, outage, inflight)
        rate = Fraction(self._rate, self._work)
        paused = self.down and not self._refuses
        if bandwidth_bps is not None:
            self._set_bandwidth(None if bandwidth_bps == "infinite" else bandwidth_bps)
        if latency_ns is not None:
            self.latency_ns = latency_ns
        if outage is not None:
            if self._lost is None:
                self._number()
            self._lost = None if outage == "none" else outage.lost
        pauses = paused if down is None or down is self.down else down and inflight == "pause"
        if pauses is not paused or not (bandwidth_bps is None and latency_ns is None and outage is None):
            self._replan(now, rate, PAUSED if pauses else now)
        if down is None or down is self.down:
            return
        if down and inflight == "drop":
            self._drop(now)
        self.down = down
        self._refuses = down and not pauses

    def _check(self, bandwidth_bps: object, latency_ns: object, outage: object, inflight: str) -> None:
        problems = [text for text in (bandwidth_problem(bandwidth_bps), latency_problem(latency_ns)) if text]
        if getattr(outage, "timeline", None) is not None:
            problems.append("outage: expected one without a span of pauses, which a link has from the start or not")
        if inflight not in INFLIGHT:
            problems.append(f"inflight {inflight!r}: expected one of {', '.join(INFLIGHT)}")
        if problems:
            raise NetworkError(f"link {self.src} -> {self.dst}: " + "; ".join(problems))

    def _number(self) -> None:
        """Number the messages of each round from those on, that are under way: without an outage nobody counts."""
        queue = self._queue
        for i, (due, item, delivered, start, end, size, round, k, packets) in enumerate(queue):
            if k != _SETTLED:
                k = self._counted(round)
                if self.mtu is not None:
                    packets = ceil(size / Fraction(self.mtu + self.overhead_bytes)) or 1
                assert not isinstance(queue, tuple)
                queue[i] = (due, item, delivered, start, end, size, round, k, packets)

    def _drop(self, now: int) -> None:
        queue = self._queue
        if isinstance(queue, tuple):
            return
        for i, (due, item, _, start, end, size, round, _, packets) in enumerate(queue):
            if due > now:
                queue[i] = (due, item, False, start, end, size, round, _SETTLED, packets)

    def _replan(self, now: int, old_rate: Fraction, free: int) -> None:
        """Plan anew all that has not ended its transmission by `now`; it goes on at `free`, which is now or PAUSED.

        old_rate: in bytes per ns, until now; of no account where the link was paused, since then nothing was begun.
        """
        busy, floor = free, 0
        queue = self._queue
        for i, (due, item, delivered, start, end, size, round, k, packets) in enumerate(queue):
            if end > now:
                begun = start <= now
                if begun:
                    size -= (now - start) * old_rate        # exact: a fraction of a byte may be left
                start = busy
                end = busy = start + (-(-size * self._work // self._rate) if self._rate else 0)
                if begun and free == PAUSED:
                    k = _SETTLED
                elif not begun and k != _SETTLED:
                    delivered = (self._lost is None or free == PAUSED
                                 or not self._lost(start, end, round, k, packets))
                due = max(floor, end + self.latency_ns)
                assert not isinstance(queue, tuple)
                queue[i] = (due, item, delivered, start, end, size, round, k, packets)
            floor = due
        self._busy_until = busy
        self._floor = floor


def bandwidth_problem(bandwidth_bps: object) -> str | None:
    """The mistake in a bandwidth in bit/s; None and "infinite" are sound."""
    if bandwidth_bps is None or bandwidth_bps == "infinite":
        return None
    if is_number(bandwidth_bps) and 0 < bandwidth_bps < float("inf"):
        return None
    return f'bandwidth {bandwidth_bps!r}: expected a positive number of bit/s or "infinite"'


def latency_problem(latency_ns: object) -> str | None:
    """The mistake in a latency in ns; None is sound."""
    if latency_ns is None or is_count(latency_ns, 0):
        return None
    return f"latency {latency_ns!r}: expected a whole number of ns, 0 or more"
