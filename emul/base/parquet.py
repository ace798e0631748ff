"""The one reader and the one writer of tables in Parquet files. Nothing that is read is trusted: any file may be a
stranger's, or be damaged."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from emul.base.errors import EmulError

if TYPE_CHECKING:
    import pyarrow as pa

_CELLS = 2 ** 27                    # of a table that is read, and for each byte of its file this many more: zstd makes
_CELLS_A_BYTE = 64                  # 3 MB of 10^9 equal values, which take 8 GB of memory


_BUFFER_BYTES = 2 ** 20


class ParquetError(EmulError):
    """A file is no table that can be read, or not of the columns that are expected. The text does not name the file."""


def read_parquet(file: Path, types: Mapping[str, str], columns: Sequence[str] | None = None,
                 optional: Collection[str] = (), where: tuple[str, Collection[str]] | None = None) -> pa.Table:
    """A table in a regular file, with columns of plain values alone.

    types: of columns: int (0 or more), float, text or bool; with "?" it may be null; a column without one may be of any
    of these. columns: None: all. optional: columns that are read where they are there. where: (column, values): only
    rows that have one of these. Raises ParquetError.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not file.is_file():              # to open a pipe would wait for ever
        raise ParquetError("no table: " + ("expected a regular file" if file.exists() else "no such file"))
    try:
        about = pq.read_metadata(file)
        there = about.schema.to_arrow_schema().names
        if missing := [name for name in columns or () if name not in there]:
            raise ParquetError(f"no column {', '.join(missing)}; there are {', '.join(there)[:500]}")
        chosen = there if columns is None else [*columns, *(name for name in optional if name in there)]
        most = _CELLS + _CELLS_A_BYTE * file.stat().st_size
        if about.num_rows * len(chosen) > most:
            raise ParquetError(f"{about.num_rows} rows of {len(chosen)} columns, expected at most {most} values in a "
                               "file of this size")
        found = pq.read_table(file, columns=chosen, filters=where and [(where[0], "in", list(where[1]))])
        found.validate(full=True)
    # errors of pyarrow's reader at a damaged file: its own, and those of the libraries below it
    except (OSError, pa.ArrowException, ValueError, KeyError, TypeError, MemoryError) as error:
        raise ParquetError(f"no table that can be read: {' '.join(str(error).split())[:200]}") from None
    for name in found.column_names:
        if wrong := _wrong(found[name], types.get(name, "")):
            raise ParquetError(f"column {name}: {wrong}")
    return found


def write_parquet(file: Path, table: pa.Table) -> None:
    """Write a table, compressed by zstd. Raises OSError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    # Arrow writes each part of a column by itself. A run of four rounds would write its tables in 300 pieces, most of
    # them of some bytes; with a buffer it writes each small table once.
    with pa.output_stream(str(file), compression=None, buffer_size=_BUFFER_BYTES) as out:
        pq.write_table(table, out, compression="zstd")


def _wrong(column: pa.ChunkedArray, said: str) -> str:
    """The reason why a column is not of a type, "" for none; "": it is."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    found = next((name for name, test in (
        ("int", pa.types.is_integer), ("float", pa.types.is_floating), ("bool", pa.types.is_boolean),
        ("text", lambda one: pa.types.is_string(one) or pa.types.is_large_string(one)),
        ("nothing", pa.types.is_null)) if test(kind)), "")
    wanted = said.removesuffix("?")
    if found == "nothing" and (said != wanted or not len(column)):
        return ""
    if not found or (wanted not in ("", found) and (wanted, found) != ("float", "int")):
        return f"of {column.type}, expected {wanted or 'numbers, texts or truth values'}"
    if said and wanted == said and column.null_count:
        return f"{column.null_count} nulls, expected none"
    if wanted == "int" and len(column) and (least := pc.min(column).as_py()) is not None and least < 0:
        return f"found {least}, expected 0 or more"
    return ""
