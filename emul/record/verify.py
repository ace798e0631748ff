"""A check that a run directory still holds everything that its run left: the whole record is read, and compared with
the run computed again.

    record = open_record(path)              journal: every checksum, every row, its end; every file against the seal
    differences(record, again)              rows, tables and summary against those of the run computed again
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from emul.base import rows
from emul.base.errors import ReplayMismatch
from emul.base.plain import PlainDict, PlainMapping
from emul.base.rows import Row
from emul.record import rundir
from emul.record.columns import columns
from emul.record.golden import virtual_seconds
from emul.record.invariants import check_columns
from emul.record.journal import MemoryJournal, RecordError, decisions, encode, read, repeats
from emul.record.realised import LinkRow
from emul.record.summary import Facts, summarise
from emul.record.tables import COLUMNS, Observed, derive, read_table, tables_of

if TYPE_CHECKING:
    import pyarrow as pa


# keys of a summary that differ from run to run, or of what is not made again: the seal tells of its files
_REAL = ("real_", "versions", "payloads")
_REAL_TABLES = ("timings",)             # times of a machine: held by the seal alone
# of a summary: what values come to
_VALUES = ("accuracy", "accuracy_of_clients", "analysis", "artefacts", "digest_model")


@dataclass(frozen=True)
class Record:
    """The record of a run that ended. `changed`: name of a file -> how it differs from what was sealed."""

    path: Path
    header: PlainDict
    digest: str                         # of the rows, as read
    summary: PlainDict
    changed: dict[str, str]


@dataclass(frozen=True)
class Again:
    """The run, computed again: what `emul.record.summary.write_results` takes, and the rows."""

    journal: MemoryJournal
    facts: Facts
    observed: Observed
    latencies: Mapping[tuple[int, int], int]
    unordered: Collection[tuple[int, int]]
    drawn: Iterable[LinkRow] = field(default=(), repr=False)


def open_record(path: Path) -> Record:
    """Read the record whole. Raises RecordError: no directory of a run that ended; ReplayMismatch, with all that was
    found: a journal, summary, scenario or seal that is damaged or missing."""
    if not (path / rundir.SUMMARY).is_file() or (path / rundir.INCOMPLETE).exists():
        raise RecordError(f"{path}: no directory of a run that ended")
    damaged: list[str] = []
    changed = _changed(path, damaged)
    header: dict[str, object] = {}
    summary: dict[str, object] = {}
    digest = ""
    try:
        source = read(path / rundir.JOURNAL, sums=False)        # a row that was edited is named once it is known
        table = columns(source)
        header, digest = source.header, source.summed
        if not source.complete:
            damaged.append(f"{rundir.JOURNAL}: ends after row {table.count} without its end frame")
        elif source.digest != digest:
            changed[rundir.JOURNAL] = f"the end frame states the digest {source.digest}, the rows have {digest}"
    except (OSError, RecordError) as error:
        damaged.append(_within(path, error))
    try:
        summary = rundir.read_json(path / rundir.SUMMARY)
    except RecordError as error:
        damaged.append(_within(path, error))
    if not (path / rundir.SCENARIO).is_file():
        damaged.append(f"{rundir.SCENARIO}: missing")
    if damaged:
        told = [f"{name}: {how}" for name, how in changed.items() if not any(d.startswith(name) for d in damaged)]
        raise mismatch(path, damaged + told)
    return Record(path, header, digest, summary, changed)


def _changed(path: Path, damaged: list[str]) -> dict[str, str]:
    """Files that differ from the seal; a seal that cannot be read, or that has an odd shape, is added to `damaged`."""
    try:
        sealed = rundir.read_json(path / rundir.SEAL).get("files")
        if not isinstance(sealed, dict) or not all(isinstance(one, dict) for one in sealed.values()):
            raise RecordError(f"{path / rundir.SEAL}: expected the files of the run")
    except RecordError as error:
        damaged.append(_within(path, error))
        return {}
    found = rundir.fingerprints(path)
    wanted = {rundir.JOURNAL, rundir.SCENARIO, rundir.SUMMARY, *(f"{name}.parquet" for name in COLUMNS)}
    damaged += [f"{rundir.SEAL}: {name} is not in it" for name in sorted(wanted - sealed.keys())]
    return {name: "missing" if name not in found else "its bytes are not those that were written"
            if found[name]["bytes"] == said.get("bytes") else
            f"{found[name]['bytes']} bytes, {said.get('bytes')} were written"
            for name, said in sealed.items() if found.get(name) != said}


def _within(path: Path, error: Exception) -> str:
    """An error's text, with files named as in the run directory."""
    return str(error).replace(f"{path}/", "")


def mismatch(path: Path, found: Sequence[str]) -> ReplayMismatch:
    """All differences of a record in one error."""
    if len(found) == 1:
        return ReplayMismatch(f"{path}: {found[0]}")
    return ReplayMismatch("\n  ".join([f"{path}: {len(found)} differences", *(one.replace("\n", "\n    ")
                                                                             for one in found)]))


# --- against the run computed again ---------------------------------------------------------------------------------

def differences(record: Record, again: Again) -> list[str]:
    """All that differs, with file and place; empty: the record is whole and comes out again."""
    found = list(_of_rows(record, again))
    if not found:                       # else all that follows from them differs, too
        found = list(_of_results(record, again))
    told = {one.split(",")[0].split(":")[0] for one in found}
    return found + [f"{name}: {how}" for name, how in record.changed.items() if name not in told]


def _of_rows(record: Record, again: Again) -> Iterator[str]:
    """The first row that differs, and each key of the header."""
    for key in sorted({*record.header, *again.journal.header}):
        was, now = record.header.get(key), again.journal.header.get(key)
        if was != now:
            yield f"{rundir.JOURNAL}, header, {key}: {_short(was)}, computed again {_short(now)}"
    if again.journal.close() != record.digest:
        recorded = read(record.path / rundir.JOURNAL, sums=False)
        was, now = (recorded, again.journal.rows) if repeats(recorded.header) else (
            decisions(list(recorded)), decisions(again.journal.rows))
        yield f"{rundir.JOURNAL}, {first_difference(was, now, recorded.header)}"


def values_differ(record: Record, again: Again) -> str | None:
    """The first difference of values between two runs that decide the same; None: there is none, or the run repeats
    itself."""
    if repeats(record.header):
        return None
    recorded = read(record.path / rundir.JOURNAL, sums=False)
    difference = first_difference(recorded, again.journal.rows, recorded.header)
    return None if difference is None else f"values first differ in {rundir.JOURNAL}, {difference}"


def _of_results(record: Record, again: Again) -> Iterator[str]:
    """Tables, cell by cell, and summary, key by key."""
    table = columns(again.journal.rows)
    report = check_columns(table, again.journal.header, again.latencies, again.unordered)
    run = derive(table, again.journal.header, again.observed)
    whole = repeats(record.header)
    for name, expected in tables_of(run, (), again.drawn):
        said = _of_table(record.path / f"{name}.parquet", None if name in _REAL_TABLES else expected,
                         None if whole else tuple(COLUMNS[name]))
        if said:
            yield f"{name}.parquet{said}"
    expected = json.loads(rundir.json_text(summarise(run, again.facts, report)))
    for key in sorted({*record.summary, *expected} - set(() if whole else _VALUES)):
        if not key.startswith(_REAL) and record.summary.get(key) != expected.get(key):
            yield f"{rundir.SUMMARY}, {_of_value(key, record.summary.get(key), expected.get(key))}"


def _of_value(key: str, was: object, now: object) -> str:
    """The first difference between two values of JSON."""
    if isinstance(was, dict) and isinstance(now, dict):
        below = next(k for k in sorted({*was, *now}) if was.get(k) != now.get(k))
        return _of_value(f"{key}.{below}", was.get(below), now.get(below))
    return f"{key}: {_short(was)}, computed again {_short(now)}"


def _of_table(file: Path, expected: pa.Table | None, names: tuple[str, ...] | None = None) -> str:
    """The difference of a table from the `expected` one; "" if there is none, or if none is expected and it can be
    read.

    names: the columns that are compared, None: all.
    """
    if not file.is_file():
        return ": missing"
    try:
        recorded = read_table(file)
    except RecordError as error:
        return str(error).removeprefix(str(file))
    if expected is None:
        return ""
    if names is not None:
        recorded, expected = (table.select([n for n in table.column_names if n in names])
                              for table in (recorded, expected))
    if recorded.column_names != expected.column_names:
        return f": columns {', '.join(recorded.column_names)}, computed again {', '.join(expected.column_names)}"
    if recorded.num_rows != expected.num_rows:
        return f": {recorded.num_rows} rows, computed again {expected.num_rows}"
    said = (_of_column(name, recorded[name], expected[name]) for name in expected.column_names)
    return next((one for one in said if one), "")


def _of_column(name: str, recorded: pa.ChunkedArray, expected: pa.ChunkedArray) -> str:
    was, now = _plain(recorded), _plain(expected)
    if was.equals(now):
        return ""
    if was.type != now.type:
        return f", column {name}: of {was.type}, computed again {now.type}"
    for row, (a, b) in enumerate(zip(was.to_pylist(), now.to_pylist(), strict=True)):
        if a != b and not (a != a and b != b):          # NaN is itself here
            return f", row {row}, column {name}: {_short(a)}, computed again {_short(b)}"
    return ""


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Texts without their dictionary, whose order says nothing."""
    import pyarrow as pa

    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def replayed(record: Record, again: Again) -> str:
    """The digest of a record that comes out again. Raises ReplayMismatch with all that differs."""
    found = differences(record, again)
    if found:
        raise mismatch(record.path, found)
    return str(record.summary["digest"])


# --- the first difference between two runs, in words ----------------------------------------------------------------

def first_difference(rows_a: Iterable[Row], rows_b: Iterable[Row], header: Mapping[str, object] | None = None,
                     names: tuple[str, str] = ("recorded", "replayed")) -> str | None:
    """The first difference between the rows of run a and run b, or None. `header` (of either) lends the names of nodes.

    Tuples and lists are the same, as in the file; an integer and a float are not, as in the digest.
    """
    b = iter(rows_b)
    count = 0
    for row_a in rows_a:
        row_b = next(b, None)
        if row_b is None or not _same(row_a, row_b):
            return _difference(count, row_a, row_b, header, names)
        count += 1
    row_b = next(b, None)
    return None if row_b is None else _difference(count, None, row_b, header, names)


def _same(a: Row, b: Row) -> bool:
    # not ==, for which 1, 1.0 and True are the same, a tuple and a list are not, and no NaN is itself
    return encode(a) == encode(b)


def _difference(count: int, a: Row | None, b: Row | None, header: Mapping[str, object] | None,
                names: tuple[str, str]) -> str:
    first = a if a is not None else b
    assert first is not None
    if a is not None and b is not None and (b[1], b[0]) < (a[1], a[0]):
        first = b
    width = max(map(len, names))
    lines = [f"row {count}, {virtual_seconds(first[1])} s, {_whose(first, header)}, {rows.NAMES[first[0]][0]}"]
    for name, row in zip(names, (a, b), strict=True):
        lines.append(f"  {name.ljust(width)}  " + ("(ends before)" if row is None else describe(row)))
    if a is not None and b is not None and a[0] == b[0]:
        fields = [field for field, x, y in zip(rows.NAMES[a[0]], a, b, strict=True) if not _same((x,), (y,))]
        lines.append(f"  differ in {', '.join(fields)}")
    return "\n".join(lines)


def _whose(row: Row, header: PlainMapping | None) -> str:
    if row[0] == rows.LINK:
        return f"link {row[2]}->{row[3]}"
    if header is not None and 0 <= row[2] < len(header["names"]):
        return f"node {row[2]} ({header['names'][row[2]]})"
    return f"node {row[2]}"


def describe(row: Row) -> str:
    """A row with the names of its fields: `leave time_ns=5 node=0 round=1 why=''`."""
    name, *fields = rows.NAMES[row[0]]
    return " ".join([name, *(f"{field}={value!r}" for field, value in zip(fields, row[1:], strict=True))])
