"""Automatic repeat requests (ARQ): a link sends again what it has lost.

ARQ is hop by hop: each link repeats what it lost, and hands on whole messages. On a route of one link that is what an
end-to-end transport does; on a longer one it is not: there a message is lost only if one link gives up.

* Stop-and-wait: the message is sent as a whole; the next attempt (or the next message) starts when the acknowledgement
  is there, a latency after the message, or the timeout `rto` after the end of the attempt. With T_d the time of an
  attempt and p its loss: E[T] = T_d + latency + p / (1 - p) * (T_d + rto).
* Selective repeat: packets of `mtu` follow each other without a wait; what is lost is sent again `rto` after the end of
  its transmission at the earliest, after all first attempts, in the order of the losses. So N packets take N / (1 - p)
  transmissions on average and the longest has E = sum over k >= 0 of 1 - (1 - p^k)^N attempts; where N packets take
  longer than `rto` the link is never idle. The next message starts when the last transmission of this one has ended.

A message is lost when the last of `retries` repetitions of a part of it is: P = p^(retries + 1) for one part. A lost
acknowledgement (`ack_loss`) repeats what has arrived, which costs time and bytes but no fate. Acknowledgements need no
bandwidth and no bytes; the latency back is the one there. The timeout is never less than the way there and back, so
nothing is repeated for being slow.

Loss: the first attempt meets the link's outage as a datagram does. Later attempts have draws of their own, keyed by
(round, k, attempt, packet), with the model's mean loss, where the model counts messages or packets (a chain forgets
within a timeout); with outages per slot, on/off, fading and traces the time of each transmission decides; with outages
per round all attempts share the round's fate, and repeating does not help.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, cast, get_args

import numpy as np

from emul.base.plain import is_count, is_number
from emul.base.streams import key64, uniform_at, uniforms_at
from emul.network.links.features import Finding
from emul.network.links.service import PAUSED, Bytes, Service
from emul.network.models.chains import RoundChain
from emul.network.models.outages import Outage, PerRound, Timed, TracedLoss

ArqMode = Literal["stop_and_wait", "selective_repeat"]
ARQ_MODES: tuple[str, ...] = get_args(ArqMode)
UNLIMITED_RETRIES = 4095         # the value of "unlimited", so that a link that loses all comes to an end
_ACK = 1 << 62                      # draws of acknowledgements: apart from those of packets, below 2^63


def _counts(least: Mapping[str, int], of: object) -> list[Finding]:
    """Those of the fields named that are neither None nor a whole number of at least so much."""
    return [(name, repr(value), f"expected a whole number, {low} or more") for name, low in least.items()
            if (value := getattr(of, name)) is not None and not is_count(value, low)]


@dataclass(frozen=True, slots=True)
class Arq:
    """rto_ns None: the way there and back. retries None: unlimited. mtu None: the overhead's, else 1448 B."""

    mode: ArqMode = "selective_repeat"
    rto_ns: int | None = None
    retries: int | None = 16
    ack_loss: float = 0.0
    mtu: int | None = None

    def problems(self) -> list[Finding]:
        """(field, found, expected) of all that is wrong with it: ranges, and an mtu where whole messages are
        repeated."""
        found = _counts({"rto_ns": 1, "retries": 0, "mtu": 1}, self)
        if self.mode not in ARQ_MODES:
            found.append(("arq", repr(self.mode), f"expected one of {', '.join(ARQ_MODES)}"))
        if self.retries is not None and is_count(self.retries, UNLIMITED_RETRIES):
            found.append(("retries", repr(self.retries), f"expected unlimited, or less than {UNLIMITED_RETRIES}"))
        q = self.ack_loss
        if not is_number(q) or not 0 <= q <= 1:
            found.append(("ack_loss", repr(q), "expected a probability in [0, 1]"))
        if self.mtu is not None and self.mode == "stop_and_wait":
            found.append(("mtu", repr(self.mtu), "is of selective_repeat: stop_and_wait repeats whole messages"))
        return found


class _ByPacket(Protocol):
    """An outage under which each packet is lost alone."""

    def first_lost(self, round: int, k: int, most: int) -> int | None: ...

    def packet_loss(self, round: int, k: int, packets: int) -> object: ...


class Fates:
    """The questions of an ARQ to an outage: the fate of each part of each attempt.

    Recorded outages are told by what they answer, as those that they stand for.
    """

    def __init__(self, outage: Outage):
        self._outage = outage
        self._lost = outage.lost
        self._packets = cast(_ByPacket, outage) if hasattr(outage, "packet_loss") else None
        # the fate of an attempt is that of its time, or of its round, whatever its number
        self._shared = isinstance(outage, (PerRound, RoundChain, Timed)) or getattr(outage, "per_round", False)

    def lost(self, stream: int, start: int, end: int, round: int, k: int, attempt: int, part: int,
             packets: int) -> bool:
        """Of one part, of so many packets, sent from start to end."""
        if attempt == 0 or self._shared:
            return self._lost(start, end, round, k, packets)
        if self._packets is None:
            part = 0                                    # one fate for all that is sent in an attempt
        outage = self._outage
        p = outage.steps.value_at(start) if isinstance(outage, TracedLoss) else outage.mean_loss(packets)
        return uniform_at(stream, attempt << 32 | part) < p

    def first(self, stream: int, round: int, k: int, parts: int) -> Sequence[int] | None:
        """The parts, a packet each, whose first attempt is lost; None: ask `lost` for each.

        The first of them is the one that loses a datagram, for the others there are draws.
        """
        outage = self._packets
        if outage is None:
            return None
        first = outage.first_lost(round, k, parts)
        if first is None:
            return []
        lost = np.flatnonzero(uniforms_at(stream, 0, parts) < outage.packet_loss(round, k, parts)).tolist()
        return [first, *(part for part in lost if part > first)]


class SendingTimes(NamedTuple):
    """Of one message: when its last byte has left, the link is free, its fate is known; whether it arrives."""

    end: int
    free: int
    known: int
    delivered: bool
    resent: int


class Conditions(NamedTuple):
    """The state of a link while an ARQ uses it. fates None: nothing is lost; blocked: everything is."""

    service: Service
    latency: int
    fates: Fates | None
    blocked: bool


class _Cut(NamedTuple):
    """A part that was being transmitted at a change of the link."""

    attempt: int
    part: int
    began: int
    left: Bytes
    killed: bool                # sent into a link that was down


class Attempts:
    """The transmissions of one message: what has happened so far, and the plan for the rest.

    Parts (packets, or the whole message for stop-and-wait) are numbered from 0. Nothing here changes but by
    `go_on_from` and `run_until`; `plan` works on a copy.
    """

    # Each link repeats for itself. End to end, acknowledgements would cross the routers back, and a message has one hop
    # or few. Draws are keyed by message, attempt and packet, so schemes that are compared repeat the same packets
    # (`test_fates_depend_on_neither_times_nor_other_rounds`).

    __slots__ = ("_again", "_arq", "_at", "_cut", "_end", "_free", "_heard", "_index", "_missing", "_next", "_packets",
                 "_part_bytes", "_parts", "_resent", "_retries", "_stream", "_stuck", "_total")

    def __init__(self, arq: Arq, wire_bytes: int, part_bytes: int | None, packets: int, key: int, round: int, k: int):
        """part_bytes: wire bytes of a full part; None: the message is one part, of so many packets."""
        self._arq = arq
        self._index = round, k
        self._stream = key64(key, "attempts", round, k)
        self._total = wire_bytes
        self._part_bytes = wire_bytes if part_bytes is None else part_bytes
        self._parts = 1 if part_bytes is None else -(-wire_bytes // part_bytes) or 1
        self._packets = packets if part_bytes is None else 1        # of a part
        self._retries = UNLIMITED_RETRIES if arq.retries is None else arq.retries
        self._at = 0                            # nothing is sent before this
        self._next = 0                          # the first part whose first attempt has not ended
        self._cut: _Cut | None = None           # of a first attempt: of the part `_next`
        self._again: deque[tuple[int, int, int]] = deque()          # (not before, attempt, part), ascending
        self._missing: set[int] = set()         # parts sent, none of them received
        self._heard = 0                         # end of the last transmission by which a part was received first,
        self._end = 0                           # and of the last one of all
        self._free = 0
        self._resent = 0
        self._stuck = False                     # the link does not go on

    def go_on_from(self, at: int) -> None:
        """The packets that are not yet sent are sent from `at` on, at the earliest."""
        self._at = at

    def run_until(self, now: int, link: Conditions) -> None:
        """Set down what has happened by `now`."""
        self._run(now, link)

    def plan(self, link: Conditions) -> SendingTimes:
        """The future of the message if the link stays as it is."""
        rest: Attempts = object.__new__(Attempts)
        for name in Attempts.__slots__:         # a third of what copy() takes
            setattr(rest, name, getattr(self, name))
        rest._again = deque(self._again)
        rest._missing = set(self._missing)
        rest._run(None, link)
        if rest._stuck:
            return SendingTimes(PAUSED, PAUSED, PAUSED, True, rest._resent)
        delivered = not rest._missing
        known = (rest._heard if delivered else rest._end) + link.latency
        free = rest._free if self._arq.mode == "stop_and_wait" else rest._end
        return SendingTimes(rest._end, free, known, delivered, rest._resent)

    def _before(self, part: int) -> int:
        """Bytes of the parts before `part`."""
        return part * self._part_bytes if part < self._parts else self._total

    def _bytes(self, part: int) -> int:
        return self._before(part + 1) - self._before(part)

    def _timeout(self, link: Conditions) -> int:
        return max(self._arq.rto_ns or 1, 2 * link.latency)

    def _run(self, until: int | None, link: Conditions) -> None:
        """Send until `until`, or to the end."""
        if self._next < self._parts and not self._send_first(until, link):
            return
        while self._cut is not None or self._again:
            if self._cut is not None:
                attempt, part, began, left, killed = self._cut
                begin = self._at
            else:
                earliest, attempt, part = self._again[0]
                begin = began = max(self._at, earliest)
                left, killed = self._bytes(part), False
                if until is not None and begin >= until:
                    return
            end = link.service.finish(begin, left)
            stops = self._stops(end, until)
            if stops and (until is None or begin >= until):
                return
            if self._cut is None:
                self._again.popleft()
            if stops:
                assert until is not None
                left -= link.service.sent_bytes(begin, until)
                self._cut = _Cut(attempt, part, began, left, killed or link.blocked)
                self._at = until
                return
            self._cut = None
            lost = killed or link.blocked or (link.fates is not None and link.fates.lost(
                self._stream, began, end, *self._index, attempt, part, self._packets))
            self._note(attempt, part, end, lost, link)

    def _stops(self, end: int, until: int | None) -> bool:
        if until is not None:
            return end > until
        self._stuck = end >= PAUSED
        return self._stuck

    def _send_first(self, until: int | None, link: Conditions) -> bool:
        """The first attempts of the parts from `_next` on, without a gap. False: it was cut, or has not begun."""
        begin, first, cut = self._at, self._next, self._cut
        count = self._parts - first
        # all ends are counted from `begin`, so that nothing is rounded between parts
        lead = (self._bytes(first) if cut is None else cut.left) - self._before(first + 1)

        def end_of(parts: int) -> int:          # of so many of them
            return link.service.finish(begin, lead + self._before(first + parts))

        done = count
        if self._stops(end_of(count), until):
            if until is None or begin >= until:
                return False
            done = bisect_right(range(1, count + 1), until, key=end_of)
        if done:
            self._note_first(begin if cut is None else cut.began, end_of, done, link)
        if done == count:
            self._cut = None
            return True
        assert until is not None
        left = lead + self._before(first + done + 1) - link.service.sent_bytes(begin, until)
        if done or cut is None:
            self._cut = _Cut(0, first + done, end_of(done) if done else begin, left, link.blocked)
        else:
            self._cut = cut._replace(left=left, killed=cut.killed or link.blocked)
        self._at = until
        return False

    def _note_first(self, begin: int, end_of: Callable[[int], int], done: int, link: Conditions) -> None:
        """The first `done` of the parts from `_next` on have been sent, the first of them from `begin` on."""
        first, last = self._next, self._next + done
        killed = self._cut is not None and self._cut.killed
        self._next = last
        known: Sequence[int] | None = ()
        if link.fates is not None and not link.blocked:
            known = None if self._parts == 1 else link.fates.first(self._stream, *self._index, self._parts)
        wanting = set() if known is None else {part for part in known if first <= part < last}
        if killed:
            wanting.add(first)
        if known is None or link.blocked or self._arq.ack_loss:
            for part in range(first, last):
                end = end_of(part - first + 1)
                lost = link.blocked or part in wanting
                if known is None and not lost:
                    assert link.fates is not None
                    lost = link.fates.lost(self._stream, begin, end, *self._index, 0, part, self._packets)
                self._note(0, part, end, lost, link)
                begin = end
            return
        # the same at once: most parts arrive
        self._missing |= wanting
        for part in sorted(wanting):
            self._repeat(0, part, end_of(part - first + 1) + self._timeout(link))
        received = next((part for part in range(last - 1, first - 1, -1) if part not in wanting), None)
        if received is not None:
            self._heard = end_of(received - first + 1)
        self._at = self._end = end_of(done)
        self._free = self._end + (self._timeout(link) if last - 1 in wanting else 2 * link.latency)

    def _note(self, attempt: int, part: int, end: int, lost: bool, link: Conditions) -> None:
        """One part has been sent, until `end`."""
        self._at = self._end = end
        if attempt:
            self._resent += self._bytes(part)
        if lost and attempt == 0:
            self._missing.add(part)
        elif not lost and (attempt == 0 or part in self._missing):
            self._missing.discard(part)
            self._heard = end
        q = self._arq.ack_loss
        if lost or (q and uniform_at(self._stream, _ACK | attempt << 32 | part) < q):
            self._free = end + self._timeout(link)
            self._repeat(attempt, part, self._free)
        else:
            self._free = end + 2 * link.latency

    def _repeat(self, attempt: int, part: int, earliest: int) -> None:
        if attempt < self._retries:
            self._again.append((earliest, attempt + 1, part))
        elif part in self._missing:
            self._again.clear()                 # the message is lost: the rest need not be repeated
