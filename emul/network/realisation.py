"""The realisation of a network: every fate, latency and state that its links drew, as rows of plain values.

Models are pure functions of an index, so nothing is noted while a run goes on: afterwards the links say how many
messages of each round they were offered, and the models are asked again. A table of such rows, of a run or written by
hand, is read into a `Realisation` (`emul.network.recorded`), which can take the place of the models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from emul.base import tables
from emul.base.errors import Problem, ScenarioError
from emul.base.parquet import ParquetError, read_parquet
from emul.base.plain import PlainMapping, is_number
from emul.base.units import LARGEST, duration_unit
from emul.network.linkrecord import Beyond, BeyondRecord, LinkRecord, PacketRow, Row
from emul.network.models.chains import PacketChain, RoundChain
from emul.network.models.latency import Latency, LatencyOverTime
from emul.network.models.outages import Outage, PerPacket, PerRound, Timed, TracedLoss
from emul.network.models.profiles import VaryingRate
from emul.network.models.residual import LinkLoad
from emul.network.recorded import Realisation
from emul.network.recordedmodels import RecordedFates, RecordedLatency, RecordedPackets

T = TypeVar("T")

# the kind of a row -> the columns that are its index
KINDS: dict[str, tuple[str, ...]] = {
    "lost": ("round", "k"),             # 1: the message is lost; without k: all of the round
    "first_lost_packet": ("round", "k"),    # the packet, from 0, that is the first lost; empty: none
    "lost_packet": ("round", "k"),      # over TCP: the transmission, from 0, that is lost; empty: none of the message
    "draw": ("round", "k"),             # the message is lost where the trace's probability is above this
    "up": ("start_ns", "end_ns"),       # 1 or 0; without an end: from then on
    "latency_ns": ("round", "k"),
    "rate_bps": ("start_ns", "end_ns"),     # without an end: from then on
    "background_bps": ("start_ns", "end_ns"),   # the same, of background traffic, of all its entries together
    "arrival_bytes": ("k", "start_ns"),     # of a background message, on its first link; empty: none comes any more
    "greedy_flows": ("start_ns", "end_ns"),     # how many; without an end: for ever
    "compute_ns": ("round", "k"),       # source: a node, destination: a label; k-th computation of that name there
}
FAULTS = ("fault_down", "fault_bandwidth_bps", "fault_latency_ns")     # told, but not replayed: the scenario has them
MOST_PACKETS = 1 << 20                  # of a message, that `first_lost_packet` is looked for in
MOST_ARRIVALS = 1_000_000               # of background messages between two vertices that a record holds
MOST_RATES = 10_000                     # of a link: a trace with more in the time of a run is itself the record

# index -> what its column may be called
_INDEX = {"round": ("round",), "k": ("k",),
          **{f"{name}_ns": tuple(f"{name}_{unit}" for unit in ("s", "ms", "us", "ns", "min", "h"))
             for name in ("start", "end")}}
_UNUSED = {what: [name for index, names in _INDEX.items() if index not in used for name in names]
           for what, used in KINDS.items()}

COLUMNS = ("source", "destination", "what", "round", "k", "start_ns", "end_ns", "value")
# of the message, with `lost_packet`: without them those of the link; of background traffic along a route
ENDS = ("sender", "receiver")


# --- what was realised ----------------------------------------------------------------------------------------------

AnyDelay: TypeAlias = int | Latency | LatencyOverTime | RecordedLatency         # of a link, as `Network` makes it


def realised(source: str, destination: str, outage: Outage | None, latency: AnyDelay,
             offered: Mapping[int, int], end_ns: int, rate: VaryingRate | None = None,
             looked_ns: int = 0) -> Iterator[Row]:
    """The rows of one link that was offered so many messages a round, until `end_ns`: fates, latencies, rates.

    rate: where it varies; without rows if it changes more than MOST_RATES times. looked_ns: senders have looked at it
    until then, which may be later.
    """
    indices = [(round, k) for round, count in sorted(offered.items()) for k in range(count)]
    if not indices:
        return
    if outage is not None:
        for what, round, k, start, end, value in _fates(outage, indices, end_ns):
            yield source, destination, what, round, k, start, end, value
    if not isinstance(latency, int | LatencyOverTime):
        for round, k in indices:
            ns = _recorded(partial(latency.draw, round, k))
            if ns is not None:
                yield source, destination, "latency_ns", round, k, None, None, ns
    if rate is not None:
        for start, end, bps in _rates(rate, end_ns, looked_ns):
            yield source, destination, "rate_bps", None, None, start, end, bps


def realised_background(source: str, destination: str, load: LinkLoad, end_ns: int, looked_ns: int) -> Iterator[Row]:
    """The rows of a link's background traffic, as of its rate in `realised`."""
    for start, end, bps in _rates(load, end_ns, looked_ns):
        yield source, destination, "background_bps", None, None, start, end, bps


def realised_arrivals(source: str, destination: str, arrivals: Iterator[tuple[int, int]], end_ns: int,
                      along: tuple[str, str] | None) -> Iterator[Row | PacketRow]:
    """The rows of background messages that come to a link, in order, and of the first one after `end_ns`; where they
    end before, a row without a size.

    None if they are more than MOST_ARRIVALS. along: the vertices whose route they take; None: that link alone.
    """
    found: list[tuple[int, int | None]] = []
    for at, size in arrivals:
        found.append((at, size))
        if len(found) > MOST_ARRIVALS:
            return
        if at > end_ns:                 # by this one a run on the record knows that none comes before
            break
    else:
        found.append((end_ns, None))
    for k, (start, told) in enumerate(found):
        yield source, destination, "arrival_bytes", None, k, start, None, told, *(along or (None, None))


def _rates(rate: VaryingRate | LinkLoad, end_ns: int, looked_ns: int) -> list[tuple[int, int | None, float]]:
    found: list[tuple[int, int | None, float]] = []
    t: int | None = 0
    while t is not None and (t < max(end_ns, looked_ns) or t == 0):
        at = t
        bps = _recorded(partial(rate.rate_at, at))
        if bps is None:
            return found
        t = rate.next_change(at)
        if found and found[-1][2] == bps:       # of a sum of traffic one rate may go up as another goes down
            found[-1] = found[-1][0], t, bps
            continue
        if len(found) == MOST_RATES:
            return found if at >= end_ns else []
        found.append((at, t, bps))
    return found


_Fate: TypeAlias = tuple[str, int | None, int | None, int | None, int | None, float | None]


def _fates(outage: Any, indices: Sequence[tuple[int, int]], end_ns: int) -> Iterator[_Fate]:
    if isinstance(outage, Timed):
        t: int | None = 0
        while t is not None and (t < end_ns or t == 0):
            up, at = _recorded(partial(outage.states.up_at, t)), t
            if up is None:
                return
            t = outage.states.next_change(at)
            yield "up", None, None, at, t, up
    elif isinstance(outage, TracedLoss):
        for round, k in indices:
            draw = _recorded(partial(outage.draw, round, k))
            if draw is not None:
                yield "draw", round, k, None, None, draw
    elif by_packet(outage):
        for round, k in indices:
            try:
                yield "first_lost_packet", round, k, None, None, outage.first_lost(round, k, MOST_PACKETS)
            except BeyondRecord:
                continue
    else:
        whole = isinstance(outage, (PerRound, RoundChain)) or (isinstance(outage, RecordedFates) and outage.per_round)
        for round, k in indices:
            if whole and round and k:
                continue                    # told by the first of the round
            lost = _recorded(partial(outage.lost, 0, 0, round, k, 1))
            if lost is not None:
                yield "lost", round, None if whole and round else k, None, None, lost


def by_packet(outage: Outage | None) -> bool:
    """True if an outage counts packets."""
    return isinstance(outage, (PerPacket, PacketChain, RecordedPackets))


def _recorded(ask: Callable[[], T]) -> T | None:
    """The answer; None where a record with beyond: error holds none, of a message that was offered to a link down."""
    try:
        return ask()
    except BeyondRecord:
        return None


# --- reading --------------------------------------------------------------------------------------------------------

def read(path: Path, beyond: Beyond = "stream") -> Realisation:
    """The record in a run directory, or in a table of its form: Parquet, or CSV written by hand.

    Raises ScenarioError naming file, line (of Parquet: row), column and expectation of everything that is wrong.
    """
    file = path / "network.parquet" if path.is_dir() else path
    return replace(_read(file, tables.stamp(file)), beyond=beyond)


@lru_cache(maxsize=2)
def _read(file: Path, stamp: tuple[int, int] | None) -> Realisation:
    # once for the schemes of a scenario; a file that has changed is read again
    if file.suffix == ".parquet":
        reading = _Reading(file, "row")
        for number, cells in enumerate(_parquet(file), 1):
            reading.add(number, cells)
    else:
        reading = _Reading(file, "line")
        table = tables.rows(file)
        names = _header(table)
        for line, values in table.rows:
            reading.add(line, {name: text or None for name, text in zip(names, values, strict=True)})
    return reading.finish()


def _header(table: tables.TextTable) -> list[str]:
    """The columns by their names in COLUMNS, or with another unit, `start_ms`. Raises ScenarioError."""
    missing = [name for name in ("source", "destination", "what", "value") if name not in table.header]
    bare = [name.rpartition("_")[0] if name.startswith(("start_", "end_")) else name for name in table.header]
    if missing or any(bare.count(name) > 1 for name in (*COLUMNS, *ENDS, "start", "end")):
        raise ScenarioError(str(table.path), [Problem(
            "", ",".join(table.header)[:80], "expected a header with the columns source, destination, what, value, and "
            f"of {', '.join(COLUMNS[3:7])} those that are used", table.header_line)])
    return table.header


# numbers may be floats: whoever makes such a table by hand has no other column with gaps
_TYPES = {name: "text?" if name in ("source", "destination", "what", *ENDS) else "float?" for name in (*COLUMNS, *ENDS)}


def _parquet(file: Path) -> Iterator[dict[str, object]]:
    try:
        table = read_parquet(file, _TYPES, COLUMNS, ENDS)
    except ParquetError as error:
        raise ScenarioError(str(file), [Problem(
            "", str(error)[:200], "expected the table `network` of a run, or a CSV file")]) from None
    for batch in table.to_batches(max_chunksize=65536):
        yield from batch.to_pylist()


class _Reading:
    """Rows as they come, checked one by one; all that is wrong, at the end."""

    def __init__(self, file: Path, unit: str):
        self._file = file
        self._unit = unit
        self._problems: list[Problem] = []
        self._links: dict[tuple[str, str], LinkRecord] = {}
        self._costs: dict[tuple[str, str], dict[int, int]] = {}

    def add(self, number: int, cells: PlainMapping) -> None:
        """One row. `cells`: column -> value or text; absent or None: empty."""
        if len(self._problems) >= 20:
            return
        try:
            self._take(number, cells)
        except _Wrong as wrong:
            self._wrong(number, *wrong.args)

    def _wrong(self, number: int, place: str, found: str, expected: str) -> None:
        if self._unit == "line":
            self._problems.append(Problem(place, found, expected, number))
        else:
            self._problems.append(Problem(f"row {number}{', ' if place else ''}{place}", found, expected))

    def _take(self, number: int, cells: Mapping[str, object]) -> None:
        source, destination, what = (cells.get(name) for name in COLUMNS[:3])
        for name, text in (("source", source), ("destination", destination)):
            if not isinstance(text, str) or not text:
                raise _Wrong(name, repr(text), "expected a name")
        if what not in KINDS and what not in FAULTS:
            raise _Wrong("what", repr(what), f"expected one of {', '.join((*KINDS, *FAULTS))}")
        if what in FAULTS:
            return
        for name in _UNUSED[what]:
            if cells.get(name) is not None:
                raise _Wrong(name, repr(cells[name]), f"is not used by {what}")
        ends = str(source), str(destination)
        if what in ("up", "rate_bps", "background_bps"):
            self._piece(ends, what, cells)
        elif what == "compute_ns":
            self._cost(ends, cells)
        elif what in ("arrival_bytes", "greedy_flows"):
            self._elastic(ends, what, cells)
        elif what == "lost_packet":
            self._lost_packet(ends, cells)
        else:
            self._indexed(ends, what, cells)

    def _indexed(self, ends: tuple[str, str], what: str, cells: Mapping[str, object]) -> None:
        record = self._record(ends)
        round = _whole(cells, "round")
        k = _whole(cells, "k") if what != "lost" or cells.get("k") is not None else None
        if k is None and round == 0:
            raise _Wrong("k", "nothing", "expected the number of the message: those of round 0 have a fate each")
        values: dict[Any, Any]
        value: Any
        if what == "lost":
            values, value = record.fates, _flag(cells)
        elif what == "first_lost_packet":
            values = record.packets
            value = None if cells.get("value") is None else _whole(cells, "value")
        elif what == "draw":
            values, value = record.draws, _share(cells)
        else:
            values, value = record.latencies, _nanoseconds(cells, "value")
        if (round, k) in values:
            raise _Wrong("", f"{what} of round {round}" + ("" if k is None else f", k {k}"), "expected it only once")
        self._one_kind(record, what, values)
        values[round, k] = value

    def _lost_packet(self, ends: tuple[str, str], cells: PlainMapping) -> None:
        record = self._record(ends)
        sender, receiver = (cells.get(name) or end for name, end in zip(ENDS, ends, strict=True))
        lost = record.lost_packets.setdefault((sender, receiver, _whole(cells, "round"), _whole(cells, "k")), [])
        if cells.get("value") is None:
            return
        number = _whole(cells, "value")
        if lost and number <= lost[-1]:
            raise _Wrong("value", str(number), f"expected more than {lost[-1]}: the lost packets of a message ascend")
        lost.append(number)

    def _elastic(self, link: tuple[str, str], what: str, cells: PlainMapping) -> None:
        record = self._record(link)
        along = tuple(str(cells[name]) for name in ENDS if cells.get(name) is not None)
        if len(along) == 1:
            raise _Wrong("sender" if cells.get("sender") is None else "receiver", "nothing",
                         "expected both ends of the route, or none")
        ends = (along[0], along[1]) if along else None
        start = _time(cells, "start_ns")
        if start is None:
            raise _Wrong("start_ns", "nothing", "expected a time")
        if what == "greedy_flows":
            end = _time(cells, "end_ns")
            if end is not None and end <= start:
                raise _Wrong("end_ns", str(end), f"expected a time after {start}, the start")
            record.greedy.setdefault(ends, []).append((start, end, _whole(cells, "value")))
            return
        held = record.arrivals.setdefault(ends, [])
        if _whole(cells, "k") != len(held):
            raise _Wrong("k", str(cells["k"]), f"expected {len(held)}: background messages are numbered from 0 on")
        if held and start < held[-1][0]:
            raise _Wrong("start_ns", str(start), f"expected no less than {held[-1][0]}, that of the message before")
        if held and not held[-1][1]:
            raise _Wrong("value", "a message", "expected none after a row without a value: that says that none comes")
        size = 0 if cells.get("value") is None else _whole(cells, "value")
        if not size and cells.get("value") is not None:
            raise _Wrong("value", "0", "expected at least 1 byte, or nothing: none comes any more")
        held.append((start, size))

    def _one_kind(self, record: LinkRecord, what: str, values: object) -> None:
        kinds = {"lost": record.fates, "first_lost_packet": record.packets, "draw": record.draws, "up": record.states}
        other = next((name for name, rows in kinds.items() if rows and name != what), None)
        if what in kinds and not values and other is not None:
            raise _Wrong("what", what, f"expected {other}, as in earlier rows of this link: it has fates of one kind")

    def _piece(self, ends: tuple[str, str], what: str, cells: Mapping[str, object]) -> None:
        record = self._record(ends)
        values: list[Any] = record.rates if what == "rate_bps" else record.background
        if what == "up":
            values = record.states
        start = _time(cells, "start_ns")
        end = _time(cells, "end_ns")
        if start is None:
            raise _Wrong("start_ns", "nothing", "expected a time")
        if end is not None and end <= start:
            raise _Wrong("end_ns", str(end), f"expected a time after {start}, the start")
        before = values[-1][1] if values else 0
        if start != before:
            expected = "nothing after a row without an end" if before is None else str(before)
            raise _Wrong("start_ns", str(start), f"expected {expected}: {what} rows of a link stand end to end from 0")
        self._one_kind(record, what, values)
        values.append((start, end, _flag(cells) if what == "up" else _bps(cells)))

    def _cost(self, ends: tuple[str, str], cells: Mapping[str, object]) -> None:
        costs = self._costs.setdefault(ends, {})
        k = _whole(cells, "k")
        if k in costs:
            raise _Wrong("", f"computation {k} of {ends[1]} at {ends[0]}", "expected it only once")
        costs[k] = _nanoseconds(cells, "value")

    def _record(self, ends: tuple[str, str]) -> LinkRecord:
        record = self._links.get(ends)
        if record is None:
            record = self._links[ends] = LinkRecord(f"{ends[0]} -> {ends[1]}")
        return record

    def finish(self) -> Realisation:
        """Raises ScenarioError if anything was wrong."""
        computations = {}
        for (node, label), costs in self._costs.items():
            if sorted(costs) != list(range(len(costs))):
                gap = next(k for k in range(len(costs)) if k not in costs)
                self._problems.append(Problem("k", f"no computation {gap} of {label} at {node}",
                                              "expected 0, 1, 2, ... without a gap"))
            computations[node, label] = [cost for _, cost in sorted(costs.items())]
        if self._problems:
            raise ScenarioError(str(self._file), self._problems)
        return Realisation(self._file, self._links, computations)


class _Wrong(Exception):
    """(column, found, expected) of one row."""


def _number(cells: Mapping[str, object], name: str) -> Any:
    value = cells.get(name)
    if value is None:
        raise _Wrong(name, "nothing", "expected a number")
    if isinstance(value, str):
        try:
            return tables.finite(value)
        except ValueError as error:
            raise _Wrong(name, f'"{value[:40]}"', str(error)) from None
    if not is_number(value) or value != value:
        raise _Wrong(name, repr(value)[:40], "expected a number")
    return value


def _whole(cells: Mapping[str, object], name: str) -> int:
    value = _number(cells, name)
    if not 0 <= value < 2**32 or value != int(value):
        raise _Wrong(name, str(cells[name])[:40], "expected a whole number, 0 or more")
    return int(value)


def _flag(cells: Mapping[str, object]) -> bool:
    value = _number(cells, "value")
    if value not in (0, 1):
        raise _Wrong("value", str(cells["value"])[:40], "expected 1 or 0")
    return bool(value)


def _bps(cells: Mapping[str, object]) -> int:
    value = _number(cells, "value")
    if not 0 <= value <= LARGEST or value != int(value):
        raise _Wrong("value", str(cells["value"])[:40], "expected whole bit/s, 0 or more")
    return int(value)


def _share(cells: Mapping[str, object]) -> float:
    value = float(_number(cells, "value"))
    if not 0 <= value < 1:
        raise _Wrong("value", str(cells["value"])[:40], "expected a number in [0, 1)")
    return value


def _nanoseconds(cells: Mapping[str, object], name: str, unit: str = "ns") -> int:
    value = cells.get(name)
    if isinstance(value, str):
        try:
            return tables.duration(value, duration_unit(unit))
        except ValueError as error:
            raise _Wrong(name, f'"{value[:40]}"', str(error)) from None
    number = _number(cells, name)
    if not 0 <= number <= LARGEST or number != int(number):
        raise _Wrong(name, str(number)[:40], "expected whole ns, 0 or more")
    return int(number)


def _time(cells: PlainMapping, index: str) -> int | None:
    """`start_ns` or `end_ns`, in whichever unit the column has."""
    for column in _INDEX[index]:
        if cells.get(column) is not None:
            return _nanoseconds(cells, column, column.partition("_")[2])
    return None
