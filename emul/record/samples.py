"""The number of training samples of each class at each node: `samples.parquet`, which a run that trains writes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from emul.base.files import write_atomically

SAMPLES = "samples.parquet"
COLUMNS = ("node", "name", "class", "samples")

SampleCount = tuple[int, str, int | None, int]      # node, its name, class, samples; None: targets are no labels


def write_samples(folder: Path, counts: Sequence[SampleCount]) -> None:
    """Write the table into the run directory, under a temporary name first; nothing if there are no counts."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not counts:
        return
    kinds = (pa.int64(), pa.string(), pa.int64(), pa.int64())
    columns = {name: pa.array(values, kind) for name, values, kind in zip(
        COLUMNS, zip(*counts, strict=True), kinds, strict=True)}
    with write_atomically(folder / SAMPLES) as path:
        pq.write_table(pa.table(columns), path, compression="zstd")
