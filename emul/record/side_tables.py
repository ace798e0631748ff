"""Tables that only some runs have, and that the journal does not tell: the engine writes them once a run has ended.

    contacts.parquet, positions.parquet     of a network that moves
    samples.parquet                         training samples of each class at each node, of a run that trains
    traffic.parquet                         background traffic, of links that carried some
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from emul.base.files import write_atomically
from emul.base.parquet import write_parquet
from emul.base.plain import PlainDict

if TYPE_CHECKING:           # who reads a run's tables needs no network
    from emul.network.models.contacts import Contacts
    from emul.network.network import TrafficRow
    from emul.network.positions import PositionRow

CONTACTS = "contacts.parquet"
CONTACT_COLUMNS = ("source", "destination", "begin_ns", "end_ns", "rate_bps", "latency_ns")
POSITIONS = "positions.parquet"
PLANE, GLOBE = ("x", "y"), ("lat", "lon")           # metres; degrees
SAMPLES = "samples.parquet"
SAMPLE_COLUMNS = ("node", "name", "class", "samples", "class_name")
# node, its name, class (None: targets are no labels), samples, name of the class (None: it has none)
SampleCount = tuple[int, str, int | None, int, str | None]
TRAFFIC = "traffic.parquet"
TRAFFIC_COLUMNS = ("source", "destination", "entry", "offered_bytes", "carried_bytes", "dropped_bytes")
LinkTotal: TypeAlias = tuple[str, str, int, int, int]       # ends of the link; bytes: offered = carried + dropped

_TOP_LINKS = 10


def write_contacts(folder: Path, plan: Mapping[tuple[str, str], Contacts], end_ns: int) -> None:
    """Write the contacts that begin before `end_ns` into the run directory; nothing if there are none.

    plan: (source, destination) -> the contacts of that link. A contact without an end has a null.
    """
    import pyarrow as pa

    from emul.network.models.profiles import NEVER

    counts = {ends: int(np.searchsorted(one.begins, end_ns)) for ends, one in sorted(plan.items())}
    if not sum(counts.values()):
        return

    def joined(name: str) -> np.ndarray:
        return np.concatenate([np.array(getattr(plan[ends], name)[:count], np.int64) for ends, count in counts.items()])

    def named(end: int) -> pa.Array:
        names = pa.array([ends[end] for ends in counts], pa.string())
        return names.take(pa.array(np.repeat(np.arange(len(counts)), list(counts.values()))))

    until = joined("ends")
    columns = {"source": named(0), "destination": named(1), "begin_ns": joined("begins"),
               "end_ns": pa.array(until, mask=until == NEVER), "rate_bps": joined("rates_bps"),
               "latency_ns": joined("latencies_ns")}
    _write(folder / CONTACTS, columns)


def write_positions(folder: Path, rows: Iterable[PositionRow], globe: bool = False) -> None:
    """Write where vertices are over time into the run directory; nothing if there are no rows.

    globe: the two last values of a row are a latitude and a longitude in degrees, else x and y in metres. The rows of a
    vertex ascend in time. It moves straight on between two of them, and stands before the first and after the last.
    Raises ValueError: they do not ascend.
    """
    found = list(rows)
    latest: dict[str, float] = {}
    for t_s, vertex, *_ in found:
        if t_s <= latest.get(vertex, -np.inf):
            raise ValueError(f"positions of {vertex}: {t_s:g} s comes after {latest[vertex]:g} s")
        latest[vertex] = t_s
    _write_rows(folder / POSITIONS, ("t_s", "vertex", *(GLOBE if globe else PLANE)),
                ("float64", "string", "float64", "float64"), found)


def write_samples(folder: Path, counts: Sequence[SampleCount]) -> None:
    """Write the table into the run directory; nothing if there are no counts."""
    _write_rows(folder / SAMPLES, SAMPLE_COLUMNS, ("int64", "string", "int64", "int64", "string"), counts)


def traffic_totals(rows: Iterable[TrafficRow]) -> list[LinkTotal]:
    """The bytes of all entries together by link, in the order of the names of its ends."""
    found: dict[tuple[str, str], tuple[int, int, int]] = {}
    for source, destination, _, offered, carried, dropped in rows:
        before = found.get((source, destination), (0, 0, 0))
        found[source, destination] = before[0] + offered, before[1] + carried, before[2] + dropped
    return [(*ends, *found[ends]) for ends in sorted(found)]


def traffic_summary(links: Sequence[LinkTotal]) -> PlainDict:
    """The bytes on all links, and on those with the most offered bytes, at most ten."""
    names = TRAFFIC_COLUMNS[3:]
    most = sorted(links, key=lambda one: (-one[2], one[:2]))[:_TOP_LINKS]
    return {**{name: sum(one[2 + i] for one in links) for i, name in enumerate(names)},
            "by_link": [{"link": f"{one[0]}->{one[1]}", **dict(zip(names, one[2:], strict=True))} for one in most]}


def write_traffic(folder: Path, rows: Iterable[TrafficRow]) -> None:
    """Write the table into the run directory; nothing if there are no rows."""
    _write_rows(folder / TRAFFIC, TRAFFIC_COLUMNS, (*["string"] * 3, *["int64"] * 3), list(rows))


def _write_rows(file: Path, names: Sequence[str], kinds: Sequence[str], found: Sequence[Sequence[object]]) -> None:
    """kinds: of Arrow. Without rows no file: a run without a table has nothing that it would hold."""
    import pyarrow as pa

    if found:
        _write(file, {name: pa.array(values, kind) for name, values, kind in zip(
            names, zip(*found, strict=True), kinds, strict=True)})


def _write(file: Path, columns: Mapping[str, object]) -> None:
    import pyarrow as pa

    # under a temporary name first: a run that is cut off here leaves no half a table
    with write_atomically(file) as path:
        write_parquet(path, pa.table(columns))
