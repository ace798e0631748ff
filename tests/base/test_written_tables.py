"""The writer of tables in Parquet files."""

from __future__ import annotations

import errno
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from emul.base.parquet import write_parquet

TABLE = pa.table({"round": list(range(200_000)), "name": pa.array(["a", None] * 100_000).dictionary_encode()})


@pytest.mark.parametrize("rows", [0, 3, 200_000])
def test_a_table_has_the_bytes_that_arrow_writes_by_itself(tmp_path: Path, rows: int) -> None:
    write_parquet(tmp_path / "one", TABLE.slice(0, rows))
    pq.write_table(TABLE.slice(0, rows), tmp_path / "other", compression="zstd")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


def test_a_disk_that_is_full_is_an_error_although_the_bytes_had_been_kept_back() -> None:
    with pytest.raises(OSError, match="No space left on device") as full:
        write_parquet(Path("/dev/full"), TABLE.slice(0, 3))
    assert full.value.errno == errno.ENOSPC
