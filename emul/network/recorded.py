"""A record of a network in the place of its models: what links drew in another run, or what was measured.

`Realisation` holds the rows of a record by link and index, and gives a link models that look there first. `beyond`
decides on draws that the record does not hold:

    stream      the link's own model draws it, as in a run without a record
    repeat      the record begins anew: its rounds, its messages of a round, its time
    error       the run ends with BeyondRecord
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

from emul.network.linkrecord import Beyond, LinkRecord, PacketRow, Row
from emul.network.models.latency import Latency
from emul.network.models.outages import Outage, Timed, TracedLoss
from emul.network.models.profiles import CurveProfile, PiecewiseConstant, VaryingRate
from emul.network.models.residual import LinkLoad, LoadEntry
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

RECORDED = "network.replay"     # stands for the entries of background traffic that a record holds the sum of
_INFINITE_BPS = 10**18          # stands for an infinite bandwidth after the end of a record of rates


Elastic: TypeAlias = tuple[list[tuple[int, int]], list[tuple[int, int | None, int]]]


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
        # The fates of the journal would belong to the messages of one scheme. The draws stand by link and index, so
        # another scheme meets the same network
        # (`test_two_schemes_on_one_seed_draw_the_same_and_each_repeats_itself_on_its_record`).
        record = self.links.get((source, destination)) or LinkRecord(f"{source} -> {destination}")
        refuses = self.beyond == "error"
        lost = self._outage(record, outage)
        if refuses and lost is outage is not None and not fixed(outage):
            lost = Unrecorded(record.name, outage)
        delay: int | Latency | RecordedLatency = latency
        if record.latencies or (refuses and not isinstance(latency, int)):
            delay = RecordedLatency(record, latency, self.beyond)
        return lost, delay

    def rate(self, source: str, destination: str, profile: VaryingRate | None, bandwidth_bps: float | None,
             ) -> VaryingRate | None:
        """The rate of a link that has this profile, or this bandwidth (None: infinite); None: it does not vary."""
        record = self.links.get((source, destination))
        if record is None or not record.rates:
            return profile
        then = profile or PiecewiseConstant([0], [_INFINITE_BPS if bandwidth_bps is None else round(bandwidth_bps)])
        return RecordedRate(record.name, record.rates, then, self.beyond)

    @cached_property
    def has_background(self) -> bool:
        """True if it holds background traffic of some link."""
        return any(record.background for record in self.links.values())

    def background(self, source: str, destination: str, entries: list[LoadEntry]) -> list[LoadEntry]:
        """The background traffic of a link that has these entries: as recorded, where there are rows of it."""
        record = self.links.get((source, destination))
        if record is None or not record.background:
            return entries
        rate = RecordedRate(f"{record.name}, background", record.background, CurveProfile(LinkLoad(entries, None)),
                            self.beyond)
        return [LoadEntry(RECORDED, rate)]

    @cached_property
    def elastic(self) -> dict[tuple[bool, str, str], Elastic]:
        """(whether it is of that link alone, and not of a route; source; destination) -> arrivals, greedy flows."""
        found: dict[tuple[bool, str, str], Elastic] = {}
        for link, record in self.links.items():
            for ends in {**record.arrivals, **record.greedy}:
                found[ends is None, *(ends or link)] = record.arrivals.get(ends, []), record.greedy.get(ends, [])
        return found

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
        links = {ends: LinkRecord(record.name, latencies=record.latencies, rates=record.rates,
                                  background=record.background, arrivals=record.arrivals, greedy=record.greedy)
                 for ends, record in self.links.items()}
        return replace(self, links=links)

    def beyond_counts(self, rows: Iterable[Row | PacketRow]) -> dict[str, int]:
        """what -> rows of a run's links, of those that can be recorded, that this record did not hold."""
        counts = dict.fromkeys(("lost", "first_lost_packet", "draw", "up", "latency_ns", "rate_bps",
                                "background_bps", "lost_packet"), 0)
        none, unheld = LinkRecord(), set()
        for source, destination, what, round, k, start, _, _, *ends in rows:
            record = self.links.get((source, destination), none)
            if what == "lost_packet":               # a message has a row for each lost packet
                if (*ends, round, k) not in record.lost_packets:
                    unheld.add((source, destination, *ends, round, k))
            elif what in counts:
                counts[what] += not record.holds(what, round, k, start)
        counts["lost_packet"] = len(unheld)
        return counts
