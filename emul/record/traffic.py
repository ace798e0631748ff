"""The background traffic of a run: `traffic.parquet`, which a run writes whose links carried some."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from emul.base.files import write_atomically

if TYPE_CHECKING:           # who reads a run's tables needs no network
    from emul.network.network import TrafficRow

TRAFFIC = "traffic.parquet"
COLUMNS = ("source", "destination", "entry", "offered_bytes", "carried_bytes", "dropped_bytes")


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
