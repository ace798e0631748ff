"""The background traffic of a run: `traffic.parquet`, which a run writes whose links carried some, and its totals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from emul.base.files import write_atomically
from emul.base.plain import PlainDict

if TYPE_CHECKING:           # who reads a run's tables needs no network
    from emul.network.network import TrafficRow

TRAFFIC = "traffic.parquet"
COLUMNS = ("source", "destination", "entry", "offered_bytes", "carried_bytes", "dropped_bytes")
_TOP_LINKS = 10

LinkTotal: TypeAlias = tuple[str, str, int, int, int]       # ends of the link; bytes: offered = carried + dropped


def totals(rows: Iterable[TrafficRow]) -> list[LinkTotal]:
    """The bytes of all entries together by link, in the order of the names of its ends."""
    found: dict[tuple[str, str], tuple[int, int, int]] = {}
    for source, destination, _, offered, carried, dropped in rows:
        before = found.get((source, destination), (0, 0, 0))
        found[source, destination] = before[0] + offered, before[1] + carried, before[2] + dropped
    return [(*ends, *found[ends]) for ends in sorted(found)]


def summary_of(links: Sequence[LinkTotal]) -> PlainDict:
    """The bytes on all links, and on those with the most offered bytes, at most ten."""
    names = COLUMNS[3:]
    most = sorted(links, key=lambda one: (-one[2], one[:2]))[:_TOP_LINKS]
    return {**{name: sum(one[2 + i] for one in links) for i, name in enumerate(names)},
            "by_link": [{"link": f"{one[0]}->{one[1]}", **dict(zip(names, one[2:], strict=True))} for one in most]}


def write_traffic(folder: Path, rows: Iterable[TrafficRow]) -> None:
    """Write the table into the run directory, under a temporary name first; nothing if there are no rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    found = list(rows)
    if not found:
        return
    kinds = (*[pa.string()] * 3, *[pa.int64()] * 3)
    columns = {name: pa.array(values, kind) for name, values, kind in zip(
        COLUMNS, zip(*found, strict=True), kinds, strict=True)}
    with write_atomically(folder / TRAFFIC) as path:
        pq.write_table(pa.table(columns), path, compression="zstd")
