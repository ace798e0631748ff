"""A link: one direction, first in first out, an explicit state machine without a calendar.

A message offered at `now` starts at max(now, busy_until), occupies the link for ceil(8e9 * bytes / bandwidth) ns and
leaves it `latency_ns` after that. The bytes are the message's and the per-packet overhead's (`wire_bytes`). All
times are integers and the arithmetic is exact, so tests compare with closed forms by ==.

Loss is decided when the transmission starts; a lost message occupies the link like any other and its loss is known
when it would have been delivered. Order is kept: no message leaves before one that was offered earlier, even where
the latency was lowered in between.
"""

from __future__ import annotations

from collections import deque
from fractions import Fraction
from typing import Any, Literal, TypeAlias

from emul.base.errors import NetworkError
from emul.network.loss import Outage

_WORK_PER_BYTE = 8 * 10**9          # bits a byte times ns a second: bytes * this / (bit/s) is a time in ns
_SETTLED = -1                       # in the place of k: no re-planning draws this message's fate again

InFlight = Literal["drop", "deliver"]
_Entry: TypeAlias = tuple[int, Any, bool, int, int, int | Fraction, int, int]
#                   due, item, delivered, start, end, bytes, round, k; `due` does not decrease along a queue


class Link:
    """The link from vertex `src` to vertex `dst`. `bandwidth_bps` None is infinite. Times in ns, sizes in bytes.

    `now` must not decrease from call to call, and `advance(now)` comes before `offer` or `change` at `now`
    where things have left by then: the link does not check, to stay cheap.
    """

    __slots__ = ("_busy_until", "_floor", "_lost", "_offered", "_queue", "_rate", "_work", "bandwidth_bps", "down",
                 "dst", "latency_ns", "mtu", "overhead_bytes", "src")

    def __init__(self, src: int, dst: int, latency_ns: int = 0, bandwidth_bps: int | float | None = None,
                 outage: Outage | None = None, overhead_bytes: int = 0, mtu: int | None = None):
        self.src = src
        self.dst = dst
        self.latency_ns = latency_ns
        self.overhead_bytes = overhead_bytes
        self.mtu = mtu
        self.down = False
        self._lost = None if outage is None else outage.lost
        self._offered: dict[int, int] | None = None     # round -> messages offered in it; kept only with an outage
        self._queue: deque[_Entry] | tuple[()] = ()     # made while something is under way: an idle link is small
        self._busy_until = 0
        self._floor = 0                         # nothing offered from now on leaves before this
        self._set_bandwidth(bandwidth_bps)

    def _set_bandwidth(self, bandwidth_bps: int | float | None) -> None:
        self.bandwidth_bps = bandwidth_bps
        rate = Fraction(0 if bandwidth_bps is None else bandwidth_bps)
        self._rate = rate.numerator             # 0 stands for infinite
        self._work = _WORK_PER_BYTE * rate.denominator

    def wire_bytes(self, size_bytes: int) -> int:
        """Bytes that cross the link for a message of `size_bytes`: size + packets * overhead_bytes.

        packets = ceil(size / mtu), or 1 where there is no `mtu`. `offer` applies this itself; call it to count.
        """
        if not self.overhead_bytes:
            return size_bytes
        packets = 1 if self.mtu is None else -(-size_bytes // self.mtu)
        return size_bytes + packets * self.overhead_bytes

    def offer(self, now: int, item: Any, size_bytes: int, round: int) -> bool:
        """Queue `item`, of `size_bytes` without per-packet overhead; `round` is 0 outside rounds and if unscoped.

        True: it will be delivered as things stand; False: it will be lost. A later `change` can revise both, so
        the word that counts is the one `advance` returns.
        """
        start = self._busy_until
        if start < now:
            start = now
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
        if self._lost is not None:
            # counted while down, too: the fate of the k-th message does not depend on the faults before it
            offered = self._offered
            if offered is None:
                offered = self._offered = {}
            k = offered.get(round, 0)
            offered[round] = k + 1
            if not self.down:
                delivered = not self._lost(start, round, k)
        if self.down:
            delivered, k = False, _SETTLED
        entry = (due, item, delivered, start, end, size_bytes, round, k)
        if self._queue:
            self._queue.append(entry)
        else:
            self._queue = deque((entry,))
        return delivered

    def next_change(self) -> int | None:
        """Time at which the next message leaves, delivered or lost; None while nothing is under way.

        `offer` does not move it unless it was None. `change` can move it either way: ask again after it.
        """
        return self._queue[0][0] if self._queue else None

    def advance(self, now: int) -> list[tuple[Any, bool]]:
        """What has left by `now`, in the order offered: (item, delivered). False: lost, which is known only now."""
        queue = self._queue
        left = []
        while queue and queue[0][0] <= now:
            entry = queue.popleft()
            left.append((entry[1], entry[2]))
        if not queue:
            self._queue = ()
        return left

    def in_flight(self) -> list[Any]:
        """All items offered that have not left: waiting, being transmitted, on their way; those to be lost too."""
        return [entry[1] for entry in self._queue]

    def change(self, now: int, down: bool | None = None,
               bandwidth_bps: int | float | Literal["infinite"] | None = None,
               latency_ns: int | None = None, inflight: InFlight = "drop") -> None:
        """Change the link from `now` on; None leaves a thing as it is. What has left by `now` is untouched.

        down: messages offered to a link that is down are lost: they pass through it as lost ones do. What is in
            flight when it goes down (waiting or not) is lost too ("drop") or keeps its fate ("deliver"); when the
            link comes up again nothing is revived.
        bandwidth_bps: what waits, and the rest of what is being transmitted, goes on at the new rate, exactly.
        latency_ns: for what has not ended its transmission; none overtakes an earlier message.
        A message that waits starts at another time after this, so an outage per slot is drawn anew for it.
        Raises NetworkError on values that no link can have. `next_change` may move: ask again.
        """
        self._check(bandwidth_bps, latency_ns, inflight)
        if bandwidth_bps is not None or latency_ns is not None:
            rate, work = self._rate, self._work
            if bandwidth_bps is not None:
                self._set_bandwidth(None if bandwidth_bps == "infinite" else bandwidth_bps)
            if latency_ns is not None:
                self.latency_ns = latency_ns
            self._replan(now, Fraction(rate, work))
        if down is None:
            return
        if down and not self.down and inflight == "drop":
            self._drop(now)
        self.down = down

    def _check(self, bandwidth_bps: Any, latency_ns: Any, inflight: str) -> None:
        problems = [text for text in (bandwidth_problem(bandwidth_bps), latency_problem(latency_ns)) if text]
        if inflight not in ("drop", "deliver"):
            problems.append(f'inflight {inflight!r}: expected "drop" or "deliver"')
        if problems:
            raise NetworkError(f"link {self.src} -> {self.dst}: " + "; ".join(problems))

    def _drop(self, now: int) -> None:
        queue = self._queue
        if isinstance(queue, tuple):
            return
        for i, (due, item, _, start, end, size, round, _) in enumerate(queue):
            if due > now:
                queue[i] = (due, item, False, start, end, size, round, _SETTLED)

    def _replan(self, now: int, old_rate: Fraction) -> None:
        """Plan anew all that has not ended its transmission by `now`; `old_rate` in bytes per ns, until now."""
        busy, floor = now, 0
        queue = self._queue
        for i, (due, item, delivered, start, end, size, round, k) in enumerate(queue):
            if end > now:
                if start <= now:
                    size -= (now - start) * old_rate        # exact: a fraction of a byte may be left
                    start = now
                else:
                    start = busy
                    if self._lost is not None and k != _SETTLED:
                        delivered = not self._lost(start, round, k)
                end = busy = start + (-(-size * self._work // self._rate) if self._rate else 0)
                due = max(floor, end + self.latency_ns)
                assert not isinstance(queue, tuple)
                queue[i] = (due, item, delivered, start, end, size, round, k)
            floor = due
        self._busy_until = busy
        self._floor = floor


def bandwidth_problem(bandwidth_bps: Any) -> str | None:
    """What is wrong with a bandwidth in bit/s; None and "infinite" are sound."""
    if bandwidth_bps is None or bandwidth_bps == "infinite":
        return None
    if _is_number(bandwidth_bps) and 0 < bandwidth_bps < float("inf"):
        return None
    return f'bandwidth {bandwidth_bps!r}: expected a positive number of bit/s or "infinite"'


def latency_problem(latency_ns: Any) -> str | None:
    """What is wrong with a latency in ns; None is sound."""
    if latency_ns is None or (_is_number(latency_ns) and isinstance(latency_ns, int) and latency_ns >= 0):
        return None
    return f"latency {latency_ns!r}: expected a whole number of ns, 0 or more"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
