"""Models of a link that look into its record first; what that does not hold, `beyond` decides (`recorded`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from math import inf
from typing import Any, TypeVar

from emul.network.linkrecord import Beyond, BeyondRecord, LinkRecord
from emul.network.models.chains import PacketChain, RoundChain
from emul.network.models.latency import Latency
from emul.network.models.outages import Outage, PerPacket, PerRound, Span, Timed, TracedLoss
from emul.network.models.pieces import Pieces
from emul.network.models.profiles import PiecewiseConstant, VaryingRate
from emul.network.models.timelines import Levels, Timeline

T = TypeVar("T")


class _Indexed:
    """Values by (round, k), or (round, None) for all of a round; what is not held, the mode decides."""

    __slots__ = ("_beyond", "_numbers", "_rounds", "_values", "_what")

    def __init__(self, values: Mapping[tuple[int, int | None], object], beyond: Beyond, what: str):
        self._values = values
        self._beyond = beyond
        self._what = what
        self._numbers: dict[int, list[int]] = {}        # for `repeat`: round -> messages held of it, in their order
        if beyond == "repeat":
            for round, k in values:
                numbers = self._numbers.setdefault(round, [])
                if k is not None:
                    numbers.append(k)
            for numbers in self._numbers.values():
                numbers.sort()
        self._rounds = sorted(round for round in self._numbers if round)

    def get(self, round: int, k: int, stream: Callable[[], T]) -> T | Any:
        """The value, or that of `stream` where the record has none."""
        value = self._values.get((round, k), self)
        if value is self:
            value = self._values.get((round, None), self)
        if value is not self:
            return value
        if self._beyond == "error":
            raise BeyondRecord(f"{self._what} of message {k} of round {round} is not in the record (beyond: error)")
        return self._repeated(round, k, stream) if self._beyond == "repeat" else stream()

    def _repeated(self, round: int, k: int, stream: Callable[[], T]) -> T | Any:
        if round not in self._numbers:
            if round == 0 or not self._rounds:
                return stream()                     # nothing that could be repeated
            round = self._rounds[(round - 1) % len(self._rounds)]
        value = self._values.get((round, k), self)
        if value is self:
            value = self._values.get((round, None), self)
        if value is self:
            numbers = self._numbers[round]
            value = self._values[round, numbers[k % len(numbers)]]
        return value


class RecordedFates:
    """Fates of messages, or of whole rounds."""

    __slots__ = ("_base", "_fates", "_share", "per_round")

    timeline = None

    def __init__(self, record: LinkRecord, base: Outage | None, beyond: Beyond):
        self._fates = _Indexed(record.fates, beyond, f"link {record.name}: the fate")
        self._base = base
        self._share = sum(record.fates.values()) / len(record.fates)
        by_round = all(k is None for round, k in record.fates if round)
        self.per_round = by_round and (base is None or isinstance(base, (PerRound, RoundChain)))

    def lost(self, start_ns: int, end_ns: int, round: int, k: int, packets: int) -> bool:
        """As recorded of the message, or of its round. Raises BeyondRecord."""
        base = self._base
        return bool(self._fates.get(
            round, k, lambda: base is not None and base.lost(start_ns, end_ns, round, k, packets)))

    def mean_loss(self, packets: int = 1) -> float:
        """That of the model; where there is none, the share that was lost in the record."""
        return self._share if self._base is None else self._base.mean_loss(packets)


class RecordedPackets:
    """The first lost packet of each message."""

    __slots__ = ("_base", "_packets", "_share")

    timeline = None

    def __init__(self, record: LinkRecord, base: Outage | None, beyond: Beyond):
        self._packets = _Indexed(record.packets, beyond, f"link {record.name}: the first lost packet")
        self._base = base
        self._share = sum(first == 0 for first in record.packets.values()) / len(record.packets)

    def first_lost(self, round: int, k: int, most: int) -> int | None:
        """As recorded, None where it lies behind `most` packets. Raises BeyondRecord."""
        base = self._base
        first = self._packets.get(round, k, lambda: base.first_lost(round, k, most) if isinstance(
            base, (PerPacket, PacketChain)) else 0 if base is not None and base.lost(0, 0, round, k, 1) else None)
        return first if first is None or first < most else None

    def packet_loss(self, round: int, k: int, packets: int) -> object:
        """Of each packet behind the first that is lost, which alone is recorded: that of the model, else the mean."""
        base = self._base
        return base.packet_loss(round, k, packets) if isinstance(base, (PerPacket, PacketChain)) else self._share

    def lost(self, start_ns: int, end_ns: int, round: int, k: int, packets: int) -> bool:
        """True if `first_lost` finds one; times do not matter. Raises BeyondRecord."""
        return self.first_lost(round, k, packets) is not None

    def mean_loss(self, packets: int = 1) -> float:
        """That of the model; where there is none, the share of messages of which the first packet was lost."""
        return self._share if self._base is None else self._base.mean_loss(packets)


class RecordedDraws(TracedLoss):
    """The draws of a trace of probabilities, whose file is the scenario's."""

    __slots__ = ("_base", "_draws")

    def __init__(self, record: LinkRecord, base: TracedLoss, beyond: Beyond):
        self._draws = _Indexed(record.draws, beyond, f"link {record.name}: the draw")
        self._base = base
        self.steps = base.steps
        self.span = base.span

    def draw(self, round: int, k: int) -> float:
        """As recorded of the message. Raises BeyondRecord."""
        return float(self._draws.get(round, k, lambda: self._base.draw(round, k)))


class Unrecorded:
    """The outage of a link of which the record has no rows, with beyond: error: it knows nothing."""

    __slots__ = ("_base", "_name", "timeline")

    def __init__(self, name: str, base: Outage):
        self._name = name
        self._base = base
        self.timeline = self if base.timeline is not None else None

    def _refuse(self) -> BeyondRecord:
        return BeyondRecord(f"link {self._name}: the record has no fates and no states of it (beyond: error)")

    def lost(self, start_ns: int, end_ns: int, round: int, k: int, packets: int) -> bool:
        """Raises BeyondRecord."""
        raise self._refuse()

    def up_at(self, t_ns: int) -> bool:
        """Raises BeyondRecord."""
        raise self._refuse()

    def next_change(self, t_ns: int) -> int | None:
        """Raises BeyondRecord."""
        raise self._refuse()

    def mean_loss(self, packets: int = 1) -> float:
        """That of the model, which it takes no record to know."""
        return self._base.mean_loss(packets)


def fixed(outage: Outage) -> bool:
    """True if a model draws nothing: a trace of up and down, whose file says all."""
    return isinstance(outage, Timed) and isinstance(outage.states, Levels)


class RecordedStates:
    """A timeline of a record; from its end on that of `base` (None: up), itself again, or an error."""

    __slots__ = ("_base", "_beyond", "_end", "_name", "_steps")

    def __init__(self, record: LinkRecord, base: Timeline | None, beyond: Beyond):
        last = record.states[-1][1]
        repeats = beyond == "repeat" and last is not None
        self._steps = Pieces([start for start, _, _ in record.states],
                                   [float(not up) for _, _, up in record.states],
                                   last if repeats else None)
        self._end = inf if last is None or repeats else last
        self._base = base
        self._beyond = beyond
        self._name = record.name

    def mean(self) -> float:
        """The share of time down, in the record."""
        return self._steps.mean()

    def check(self, t_ns: int) -> None:
        """Raises BeyondRecord if the record has to say what the state at `t_ns` is, and does not."""
        if self._beyond == "error" and t_ns >= self._end:
            raise BeyondRecord(f"link {self._name}: its state at {t_ns} ns is not in the record, which ends at "
                               f"{self._end} ns (beyond: error)")

    def up_at(self, t_ns: int) -> bool:
        """As recorded, from the end of the record on as `base`. Raises BeyondRecord."""
        self.check(t_ns)
        if t_ns < self._end:
            return self._steps.value_at(t_ns) < 1
        return self._base is None or self._base.up_at(t_ns)

    def next_change(self, t_ns: int) -> int | None:
        """As a `Timeline` says; with beyond: error the end of the record counts as a change, and nothing after it."""
        self.check(t_ns)
        up, at = self.up_at(t_ns), t_ns
        if t_ns < self._end:
            change = self._steps.next_change(t_ns)
            if change is not None or self._end == inf:
                return change
            at = int(self._end)
            if self._beyond == "error" or self.up_at(at) != up:
                return at
        return None if self._base is None else self._base.next_change(at)


class RecordedTimed(Timed):
    """`Timed` by a record: a message that lasts longer than the record does asks for what it does not hold."""

    __slots__ = ("_recorded",)

    def __init__(self, states: RecordedStates, span: Span, mean: float):
        super().__init__(states, span, mean)
        self._recorded = states

    def lost(self, start_ns: int, end_ns: int, round: int, k: int, packets: int) -> bool:
        """As `Timed`. Raises BeyondRecord, also where only the end of the message lies behind the record."""
        if self.span == "any_slot" and end_ns > start_ns:
            self._recorded.check(end_ns - 1)
        return super().lost(start_ns, end_ns, round, k, packets)


class RecordedLatency:
    """Latencies of messages; what is not held is drawn by `base`, or constant."""

    __slots__ = ("_base", "_latencies", "least_ns", "mean_ns", "reorder", "typical_ns")

    def __init__(self, record: LinkRecord, base: int | Latency, beyond: Beyond):
        self._latencies = _Indexed(record.latencies, beyond, f"link {record.name}: the latency")
        self._base = base
        values = sorted(record.latencies.values()) or [0 if isinstance(base, int) else base.least_ns]
        self.least_ns: int = min(values[0], base if isinstance(base, int) else base.least_ns)
        self.typical_ns: int = values[len(values) // 2] if isinstance(base, int) else base.typical_ns
        self.mean_ns: int = round(sum(values) / len(values)) if isinstance(base, int) else base.mean_ns
        self.reorder: bool = False if isinstance(base, int) else base.reorder

    def draw(self, round: int, k: int) -> int:
        """As recorded of the message, in ns. Raises BeyondRecord."""
        base = self._base
        return int(self._latencies.get(round, k, lambda: base if isinstance(base, int) else base.draw(round, k)))


class RecordedRate:
    """A rate of a record; from its end on that of `then`, itself again, or an error. A `VaryingRate`."""

    # No `CurveProfile`, which would have the rest of it for nothing: `then` may be a trace that repeats for ever and is
    # asked as a whole here. That one would walk through its pieces, lap after lap, and keep them.

    __slots__ = ("_end", "_first", "_name", "_then")

    def __init__(self, name: str, pieces: Sequence[tuple[int, int | None, int]], then: VaryingRate, beyond: Beyond):
        last = pieces[-1][1]
        repeats = beyond == "repeat" and last is not None
        self._first = PiecewiseConstant([start for start, _, _ in pieces], [bps for _, _, bps in pieces],
                                        last if repeats else None)
        self._end = None if repeats else last           # None: it says all
        self._then = None if beyond == "error" else then
        self._name = name

    def _after(self) -> VaryingRate:
        if self._then is None:
            raise BeyondRecord(f"link {self._name}: its rate after {self._end} ns is not in the record "
                               "(beyond: error)")
        return self._then

    def rate_at(self, t_ns: int) -> int:
        """bit/s, as recorded, from the end of the record on as `then`. Raises BeyondRecord."""
        return self._first.rate_at(t_ns) if self._end is None or t_ns < self._end else self._after().rate_at(t_ns)

    def next_change(self, t_ns: int) -> int | None:
        """As a `VaryingRate` says; with beyond: error the end of the record counts as a change."""
        end = self._end
        if end is None:
            return self._first.next_change(t_ns)
        if t_ns < end:
            change = self._first.next_change(t_ns)
            if change is not None and change < end:
                return change
            if self._then is None or self._then.rate_at(end) != self._first.rate_at(t_ns):
                return end
        return self._after().next_change(max(t_ns, end))

    def finish(self, start_ns: int, size_bytes: int | Fraction) -> int:
        """As a `VaryingRate` says; after the end of the record the rate is that of `then`. Raises BeyondRecord."""
        end = self._end
        if end is None:
            return self._first.finish(start_ns, size_bytes)
        if start_ns >= end:
            return self._after().finish(start_ns, size_bytes)
        sent = self._first.sent_bytes(start_ns, end)
        if size_bytes <= sent:
            return self._first.finish(start_ns, size_bytes)
        return self._after().finish(end, size_bytes - sent)

    def sent_bytes(self, start_ns: int, now_ns: int) -> Fraction:
        """As a `VaryingRate` says: what leaves within the record, and what behind it. Raises BeyondRecord."""
        end = self._end
        if end is None or now_ns <= end:
            return self._first.sent_bytes(start_ns, now_ns)
        if start_ns >= end:
            return self._after().sent_bytes(start_ns, now_ns)
        return self._first.sent_bytes(start_ns, end) + self._after().sent_bytes(end, now_ns)
