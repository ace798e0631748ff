"""The times of a link's transmitter: when the last byte has left, how much has by now. Exact, without state.

A service is a rate that may vary in time. `Constant`, `UNLIMITED` and `STOPPED` are here, profiles and traces in
`emul.network.models.profiles`; `Gated` lets another service transmit only while a timeline is up.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Protocol

from emul.network.models.profiles import NEVER, WORK_PER_BYTE
from emul.network.models.timelines import Timeline

PAUSED = 1 << 100                   # ns: times from here on stand for "not before the link goes on"
_STEPS = 1_000_000                  # changes of a timeline that one transmission may span

Bytes = int | Fraction              # the rest of a cut transmission may have a fraction of a byte


class Service(Protocol):
    """The times at which bytes leave a link. Pure: of two calls with equal arguments the answers are equal."""

    def finish(self, start_ns: int, size_bytes: Bytes) -> int:
        """The time when the last of `size_bytes` has left, if nothing else is sent from `start_ns` on; rounded up to
        ns."""
        ...

    def sent_bytes(self, start_ns: int, now_ns: int) -> Bytes:
        """The bytes that leave in [start, now), exactly, where there is enough to send."""
        ...


class Constant:
    """`bandwidth_bps` bit/s at all times."""

    __slots__ = ("_rate", "_work", "bandwidth_bps")

    def __init__(self, bandwidth_bps: int | float):
        self.bandwidth_bps = bandwidth_bps
        rate = Fraction(bandwidth_bps)
        self._rate = rate.numerator
        self._work = WORK_PER_BYTE * rate.denominator

    def finish(self, start_ns: int, size_bytes: Bytes) -> int:
        """start + 8e9 size / bandwidth, rounded up in integers: right to the ns for any size."""
        return start_ns - (-size_bytes * self._work // self._rate)      # ceil, in integers

    def sent_bytes(self, start_ns: int, now_ns: int) -> Bytes:
        """(now - start) bandwidth / 8e9, a fraction."""
        return Fraction((now_ns - start_ns) * self._rate, self._work)


class _Unlimited:
    """All leaves at once."""

    __slots__ = ()

    def finish(self, start_ns: int, size_bytes: Bytes) -> int:
        return start_ns

    def sent_bytes(self, start_ns: int, now_ns: int) -> Bytes:
        return 0        # only asked of what is still being sent: it has waited for a gate, or for its own tail


class _Stopped:
    """Nothing leaves."""

    __slots__ = ()

    def finish(self, start_ns: int, size_bytes: Bytes) -> int:
        return PAUSED

    def sent_bytes(self, start_ns: int, now_ns: int) -> Bytes:
        return 0


UNLIMITED = _Unlimited()
STOPPED = _Stopped()


class Varying:
    """A profile: its "never" is PAUSED here, so that one comparison finds both."""

    __slots__ = ("profile", "sent_bytes")

    def __init__(self, profile: Service):
        self.profile = profile
        self.sent_bytes = profile.sent_bytes

    def finish(self, start_ns: int, size_bytes: Bytes) -> int:
        """As of the profile; PAUSED where that says never, or begins too late."""
        if start_ns >= NEVER:
            return PAUSED
        end = self.profile.finish(start_ns, size_bytes)
        return end if end < NEVER else PAUSED


class Gated:
    """`inner`, but only while `timeline` is up. A message without bytes waits for that, too."""

    __slots__ = ("_inner", "_timeline")

    def __init__(self, inner: Service, timeline: Timeline):
        self._inner = inner
        self._timeline = timeline

    def finish(self, start_ns: int, size_bytes: Bytes) -> int:
        """The time when the last byte has left if only times up count; PAUSED: never, or after a million changes."""
        at, left = start_ns, size_bytes
        if at >= NEVER:
            return PAUSED
        up = self._timeline.up_at(at)
        for _ in range(_STEPS):
            change = self._timeline.next_change(at)
            if up:
                end = self._inner.finish(at, left)
                if change is None or end <= change or end >= NEVER:
                    return end
                left -= self._inner.sent_bytes(at, change)
            if change is None:
                break
            at, up = change, not up
        return PAUSED

    def sent_bytes(self, start_ns: int, now_ns: int) -> Bytes:
        """The bytes that `inner` sends in those parts of [start, now) in which the timeline is up."""
        at, sent = start_ns, Fraction(0)
        up = self._timeline.up_at(at)
        while at < now_ns:
            change = self._timeline.next_change(at)
            until = now_ns if change is None else min(change, now_ns)
            if up:
                sent += self._inner.sent_bytes(at, until)
            at, up = until, not up
        return sent
