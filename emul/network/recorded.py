"""A record of a network in the place of its models: what links drew in another run, or what was measured.

`Realisation` holds the rows of a record by link and index, and gives a link models that look there first. What the
record does not hold, `beyond` decides:

    stream      the link's own model draws it, as in a run without a record
    repeat      the record begins anew: its rounds, its messages of a round, its time
    error       the run ends with BeyondRecord
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar, get_args

from emul.base.errors import RunError
from emul.network.models.chains import PacketChain, RoundChain
from emul.network.models.latency import Latency
from emul.network.models.loss import Outage, PerPacket, PerRound, Timed, TracedLoss
from emul.network.models.outages import Span
from emul.network.models.profiles import PiecewiseConstant, Service
from emul.network.models.steps import Steps
from emul.network.models.timelines import Levels, Timeline

Beyond = Literal["stream", "repeat", "error"]
BEYOND: tuple[str, ...] = get_args(Beyond)
Row: TypeAlias = tuple[str, str, str, int | None, int | None, int | None, int | None, float | None]
T = TypeVar("T")

_INFINITE_BPS = 10**18          # stands for an infinite bandwidth after the end of a record of rates


class BeyondRecord(RunError):
    """The run asked for a draw that its record does not hold, with beyond: error."""


# --- what a record says of one link ---------------------------------------------------------------------------------

@dataclass
class LinkRecord:
    """The rows of one link, by kind. Of `fates`, `packets`, `draws` and `states` a link has one at most."""

    name: str = ""                                                                  # source -> destination, for errors
    fates: dict[tuple[int, int | None], bool] = field(default_factory=dict)         # (round, k), (round, None)
    packets: dict[tuple[int, int | None], int | None] = field(default_factory=dict)
    draws: dict[tuple[int, int | None], float] = field(default_factory=dict)
    states: list[tuple[int, int | None, bool]] = field(default_factory=list)        # start, end, up; end to end from 0
    latencies: dict[tuple[int, int | None], int] = field(default_factory=dict)
    rates: list[tuple[int, int | None, int]] = field(default_factory=list)          # start, end, bit/s; as `states`

    def holds(self, what: str, round: int | None, k: int | None, start_ns: int | None) -> bool:
        """Whether a draw of a run was in the record."""
        if what in ("up", "rate_bps"):
            pieces: list[Any] = self.states if what == "up" else self.rates
            end = pieces[-1][1] if pieces else None if what == "rate_bps" else 0    # a rate is no draw of a model
            return end is None or (start_ns or 0) < end
        held: dict[str, Mapping[Any, Any]] = {"lost": self.fates, "first_lost_packet": self.packets,
                                              "draw": self.draws, "latency_ns": self.latencies}
        return (round, k) in held[what] or (round, None) in held[what]

    @property
    def least_latency_ns(self) -> int | None:
        return min(self.latencies.values(), default=None)


class _Indexed:
    """Values by (round, k), or (round, None) for all of a round; what is not held, the mode decides."""

    __slots__ = ("_beyond", "_held", "_numbers", "_rounds", "_what")

    def __init__(self, held: Mapping[tuple[int, int | None], Any], beyond: Beyond, what: str):
        self._held = held
        self._beyond = beyond
        self._what = what
        self._numbers: dict[int, list[int]] = {}        # for `repeat`: round -> messages held of it, in their order
        if beyond == "repeat":
            for round, k in held:
                numbers = self._numbers.setdefault(round, [])
                if k is not None:
                    numbers.append(k)
            for numbers in self._numbers.values():
                numbers.sort()
        self._rounds = sorted(round for round in self._numbers if round)

    def get(self, round: int, k: int, stream: Callable[[], T]) -> T | Any:
        """The value, or that of `stream` where the record has none."""
        value = self._held.get((round, k), self)
        if value is self:
            value = self._held.get((round, None), self)
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
        value = self._held.get((round, k), self)
        if value is self:
            value = self._held.get((round, None), self)
        if value is self:
            numbers = self._numbers[round]
            value = self._held[round, numbers[k % len(numbers)]]
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
        base = self._base
        return bool(self._fates.get(
            round, k, lambda: base is not None and base.lost(start_ns, end_ns, round, k, packets)))

    def mean_loss(self, packets: int = 1) -> float:
        return self._share if self._base is None else self._base.mean_loss(packets)


class RecordedPackets:
    """Which packet of each message is the first lost."""

    __slots__ = ("_base", "_packets", "_share")

    timeline = None

    def __init__(self, record: LinkRecord, base: Outage | None, beyond: Beyond):
        self._packets = _Indexed(record.packets, beyond, f"link {record.name}: the first lost packet")
        self._base = base
        self._share = sum(first == 0 for first in record.packets.values()) / len(record.packets)

    def first_lost(self, round: int, k: int, most: int) -> int | None:
        base = self._base
        first = self._packets.get(round, k, lambda: base.first_lost(round, k, most) if isinstance(
            base, (PerPacket, PacketChain)) else 0 if base is not None and base.lost(0, 0, round, k, 1) else None)
        return first if first is None or first < most else None

    def packet_loss(self, round: int, k: int, packets: int) -> Any:
        """Of each packet behind the first that is lost, which alone is recorded: that of the model, else the mean."""
        base = self._base
        return base.packet_loss(round, k, packets) if isinstance(base, (PerPacket, PacketChain)) else self._share

    def lost(self, start_ns: int, end_ns: int, round: int, k: int, packets: int) -> bool:
        return self.first_lost(round, k, packets) is not None

    def mean_loss(self, packets: int = 1) -> float:
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
        raise self._refuse()

    def up_at(self, t_ns: int) -> bool:
        raise self._refuse()

    def next_change(self, t_ns: int) -> int | None:
        raise self._refuse()

    def mean_loss(self, packets: int = 1) -> float:
        return self._base.mean_loss(packets)


def _fixed(outage: Outage) -> bool:
    """Whether a model draws nothing: a trace of up and down, whose file says all."""
    return isinstance(outage, Timed) and isinstance(outage.states, Levels)


class RecordedStates:
    """A timeline of a record; from its end on that of `base` (None: up), itself again, or an error."""

    __slots__ = ("_base", "_beyond", "_end", "_name", "_steps")

    def __init__(self, record: LinkRecord, base: Timeline | None, beyond: Beyond):
        last = record.states[-1][1]
        repeats = beyond == "repeat" and last is not None
        self._steps = Steps([start for start, _, _ in record.states], [float(not up) for _, _, up in record.states],
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
        if self.span == "any_slot" and end_ns > start_ns:
            self._recorded.check(end_ns - 1)
        return super().lost(start_ns, end_ns, round, k, packets)


class RecordedLatency:
    """Latencies of messages; what is not held is drawn by `base`, or constant."""

    __slots__ = ("_base", "_latencies", "least_ns", "mean_ns", "reorder", "typical_ns")

    def __init__(self, record: LinkRecord, base: int | Latency, beyond: Beyond):
        self._latencies = _Indexed(record.latencies, beyond, f"link {record.name}: the latency")
        self._base = base
        held = sorted(record.latencies.values()) or [0 if isinstance(base, int) else base.least_ns]
        self.least_ns: int = min(held[0], base if isinstance(base, int) else base.least_ns)
        self.typical_ns: int = held[len(held) // 2] if isinstance(base, int) else base.typical_ns
        self.mean_ns: int = round(sum(held) / len(held)) if isinstance(base, int) else base.mean_ns
        self.reorder: bool = False if isinstance(base, int) else base.reorder

    def draw(self, round: int, k: int) -> int:
        base = self._base
        return int(self._latencies.get(round, k, lambda: base if isinstance(base, int) else base.draw(round, k)))


class RecordedRate:
    """A rate of a record; from its end on that of `then`, itself again, or an error. A `Service`."""

    __slots__ = ("_end", "_first", "_name", "_then")

    def __init__(self, record: LinkRecord, then: Service, beyond: Beyond):
        last = record.rates[-1][1]
        repeats = beyond == "repeat" and last is not None
        self._first = PiecewiseConstant([start for start, _, _ in record.rates], [bps for _, _, bps in record.rates],
                                        last if repeats else None)
        self._end = None if repeats else last           # None: it says all
        self._then = None if beyond == "error" else then
        self._name = record.name

    def _after(self) -> Service:
        if self._then is None:
            raise BeyondRecord(f"link {self._name}: its rate after {self._end} ns is not in the record "
                               "(beyond: error)")
        return self._then

    def rate_at(self, t_ns: int) -> float:
        return self._first.rate_at(t_ns) if self._end is None or t_ns < self._end else self._after().rate_at(t_ns)

    def next_change(self, t_ns: int) -> int | None:
        """As a `Service` says; with beyond: error the end of the record counts as a change."""
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
        end = self._end
        if end is None or now_ns <= end:
            return self._first.sent_bytes(start_ns, now_ns)
        if start_ns >= end:
            return self._after().sent_bytes(start_ns, now_ns)
        return self._first.sent_bytes(start_ns, end) + self._after().sent_bytes(end, now_ns)


# --- a record -------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Realisation:
    """A record: its links by the names of their ends, and the costs of computations by (node, label), in order."""

    path: Path
    links: dict[tuple[str, str], LinkRecord]
    computations: dict[tuple[str, str], list[int]]
    beyond: Beyond = "stream"

    def models(self, source: str, destination: str, outage: Outage | None, latency: int | Latency,
               ) -> tuple[Outage | None, int | Latency | RecordedLatency]:
        """The models of a link, with the record's rows in their place where it has some."""
        record = self.links.get((source, destination)) or LinkRecord(f"{source} -> {destination}")
        refuses = self.beyond == "error"
        lost = self._outage(record, outage)
        if refuses and lost is outage is not None and not _fixed(outage):
            lost = Unrecorded(record.name, outage)
        delay: int | Latency | RecordedLatency = latency
        if record.latencies or (refuses and not isinstance(latency, int)):
            delay = RecordedLatency(record, latency, self.beyond)
        return lost, delay

    def rate(self, source: str, destination: str, profile: Service | None, bandwidth_bps: float | None,
             ) -> Service | None:
        """The rate of a link that has this profile, or this bandwidth (None: infinite); None: it does not vary."""
        record = self.links.get((source, destination))
        if record is None or not record.rates:
            return profile
        then = profile or PiecewiseConstant([0], [_INFINITE_BPS if bandwidth_bps is None else round(bandwidth_bps)])
        return RecordedRate(record, then, self.beyond)

    def least_ns(self, source: str, destination: str, least: int) -> int:
        """The least latency of a link whose model's is `least`."""
        record = self.links.get((source, destination))
        recorded = None if record is None else record.least_latency_ns
        return least if recorded is None else min(least, recorded)

    def least_out_ns(self, source: str, least: int) -> int:
        """The least latency of the links from a vertex, where that of their models is `least`."""
        return min(least, self._least_out.get(source, least))

    @cached_property
    def _least_out(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for (source, _), record in self.links.items():
            least = record.least_latency_ns
            if least is not None:
                found[source] = min(least, found.get(source, least))
        return found

    def _outage(self, record: LinkRecord, base: Outage | None) -> Outage | None:
        if record.fates:
            return RecordedFates(record, base, self.beyond)
        if record.packets:
            return RecordedPackets(record, base, self.beyond)
        if record.draws and isinstance(base, TracedLoss):
            return RecordedDraws(record, base, self.beyond)
        if not record.states:
            return base
        timed = base if isinstance(base, Timed) else None
        states = RecordedStates(record, None if timed is None else timed.states, self.beyond)
        return RecordedTimed(states, "at_start" if timed is None else timed.span,
                             states.mean() if timed is None else timed.mean)

    def without_losses(self) -> Realisation:
        """The same for a network that loses nothing, whatever was recorded."""
        links = {ends: LinkRecord(record.name, latencies=record.latencies, rates=record.rates)
                 for ends, record in self.links.items()}
        return replace(self, links=links)

    def beyond_counts(self, rows: Iterable[Row]) -> dict[str, int]:
        """what -> rows of a run's links, of those that can be recorded, that this record did not hold."""
        counts = dict.fromkeys(("lost", "first_lost_packet", "draw", "up", "latency_ns", "rate_bps"), 0)
        none = LinkRecord()
        for source, destination, what, round, k, start, _, _ in rows:
            if what in counts:
                counts[what] += not self.links.get((source, destination), none).holds(what, round, k, start)
        return counts
