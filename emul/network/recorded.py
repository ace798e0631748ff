"""A record of a network in the place of its models: what links drew in another run, or what was measured.

`Realisation` holds the rows of a record by link and index, and gives a link models that look there first. What the
record does not hold, `beyond` decides:

    stream      the link's own model draws it, as in a run without a record
    repeat      the record begins anew: its rounds, its messages of a round, its time
    error       the run ends with BeyondRecord
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from emul.network.linkrecord import Beyond, LinkRecord, Row
from emul.network.models.latency import Latency
from emul.network.models.loss import Outage, Timed, TracedLoss
from emul.network.models.profiles import PiecewiseConstant, Service
from emul.network.recordedmodels import (
    RecordedDraws,
    RecordedFates,
    RecordedLatency,
    RecordedPackets,
    RecordedRate,
    RecordedStates,
    RecordedTimed,
    Unrecorded,
    fixed,
)

_INFINITE_BPS = 10**18          # stands for an infinite bandwidth after the end of a record of rates


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
        if refuses and lost is outage is not None and not fixed(outage):
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
