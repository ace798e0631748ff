"""The tables of a network that moves, which no other run has: `contacts.parquet` and `positions.parquet`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from emul.base.files import write_atomically

if TYPE_CHECKING:           # who reads a run's tables needs no network
    from emul.network.models.contacts import Contacts
    from emul.network.positions import PositionRow

CONTACTS = "contacts.parquet"
CONTACT_COLUMNS = ("source", "destination", "begin_ns", "end_ns", "rate_bps", "latency_ns")
POSITIONS = "positions.parquet"
PLANE, GLOBE = ("x", "y"), ("lat", "lon")           # metres; degrees


def write_contacts(folder: Path, plan: Mapping[tuple[str, str], Contacts], end_ns: int) -> None:
    """Write the contacts that begin before `end_ns` into the run directory; nothing if there are none.

    plan: (source, destination) -> the contacts of that link. A contact without an end has a null.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

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
    with write_atomically(folder / CONTACTS) as path:
        pq.write_table(pa.table(columns), path, compression="zstd")


def write_positions(folder: Path, rows: Iterable[PositionRow], globe: bool = False) -> None:
    """Write where vertices are over time into the run directory; nothing if there are no rows.

    globe: the two last values of a row are a latitude and a longitude in degrees, else x and y in metres. The rows of a
    vertex ascend in time. It moves straight on between two of them, and stands before the first and after the last.
    Raises ValueError: they do not ascend.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    found = list(rows)
    if not found:
        return
    latest: dict[str, float] = {}
    for t_s, vertex, *_ in found:
        if t_s <= latest.get(vertex, -np.inf):
            raise ValueError(f"positions of {vertex}: {t_s:g} s comes after {latest[vertex]:g} s")
        latest[vertex] = t_s
    kinds = (pa.float64(), pa.string(), pa.float64(), pa.float64())
    columns = {name: pa.array(values, kind) for name, values, kind in zip(
        ("t_s", "vertex", *(GLOBE if globe else PLANE)), zip(*found, strict=True), kinds, strict=True)}
    with write_atomically(folder / POSITIONS) as path:
        pq.write_table(pa.table(columns), path, compression="zstd")
