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
_BYTES_A_CELL = 8                   # so many bytes of its texts, together

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
        schema = about.schema.to_arrow_schema()
        there = schema.names
        if missing := [name for name in columns or () if name not in there]:
            raise ParquetError(f"no column {', '.join(missing)}; there are {', '.join(there)[:500]}")
        chosen = there if columns is None else [*columns, *(name for name in optional if name in there)]
        most = _CELLS + _CELLS_A_BYTE * file.stat().st_size
        if about.num_rows * len(chosen) > most:
            raise ParquetError(f"{about.num_rows} rows of {len(chosen)} columns, expected at most {most} values in a "
                               "file of this size")
        # Types are checked before anything is read: one row may hold a list of 10^9 numbers. Texts are read as
        # dictionaries: 3 kB may hold one text of 1 MB that is the value of a million rows.
        for name in chosen:
            if wrong := _wrong_type(schema.field(name).type, types.get(name, "")):
                raise ParquetError(f"column {name}: {wrong}")
        texts = [name for name in chosen if _kind(schema.field(name).type) == "text"]
        found = pq.read_table(file, columns=chosen, filters=where and [(where[0], "in", list(where[1]))],
                              read_dictionary=texts)
        found.validate(full=True)
        if (size := sum(_text_bytes(found[name]) for name in texts)) > _BYTES_A_CELL * most:
            raise ParquetError(f"{size} bytes of texts, expected at most {_BYTES_A_CELL * most} in a file of this size")
        found = found.cast(pa.schema([schema.field(name) if name in texts else found.field(name) for name in chosen]))
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


def _kind(kind: pa.DataType) -> str:
    """int, float, bool, text or nothing (of nulls alone); "": a type of other values."""
    import pyarrow as pa

    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    return next((name for name, test in (
        ("int", pa.types.is_integer), ("float", pa.types.is_floating), ("bool", pa.types.is_boolean),
        ("text", lambda one: pa.types.is_string(one) or pa.types.is_large_string(one)),
        ("nothing", pa.types.is_null)) if test(inner)), "")


def _text_bytes(column: pa.ChunkedArray) -> int:
    """The bytes of the texts of a dictionary-encoded column, each as often as it is a value."""
    import pyarrow.compute as pc

    total = 0
    for chunk in column.chunks:
        lengths = pc.binary_length(chunk.dictionary)
        total += pc.sum(lengths.take(chunk.indices)).as_py() or 0
    return total


def _wrong_type(kind: pa.DataType, said: str) -> str:
    """The reason why no column of this type is what is expected, "" for none."""
    found, wanted = _kind(kind), said.removesuffix("?")
    if found == "nothing" or (found and (wanted in ("", found) or (wanted, found) == ("float", "int"))):
        return ""
    return f"of {kind}, expected {wanted or 'numbers, texts or truth values'}"


def _wrong(column: pa.ChunkedArray, said: str) -> str:
    """The reason why the values of a column of this type are not what is expected, "" for none."""
    import pyarrow.compute as pc

    if said and not said.endswith("?") and column.null_count:
        return f"{column.null_count} nulls, expected none"
    if said.startswith("int") and len(column) and (least := pc.min(column).as_py()) is not None and least < 0:
        return f"found {least}, expected 0 or more"
    return ""
