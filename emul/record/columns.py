"""The rows of a journal as columns, one NumPy array a field: what tables and invariants are computed from.

Chunks of rows are turned into arrays as they are read, so a run's rows never lie in memory as Python objects at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from emul.base import rows
from emul.base.rows import Row
from emul.record.journal import Reading, RecordError

_TEXTS = {"type", "label", "why"}                   # few different ones: coded
_OBJECTS = {"values", "digest", "changes", "targets", "types"}
_FLOATS = {"work"}

_CHUNK = 4096
_kind_of = itemgetter(0)


class _Codes(dict[str, int]):
    """Text -> number, in the order of first appearance."""

    def __missing__(self, text: str) -> int:
        code = self[text] = len(self)
        return code


class Columns:
    """Columns of all rows of one kind; `columns["time_ns"]`. Field names as in `emul.base.rows.NAMES`.

    Integers: (n,) int64. type, label, why: (n,) int64 codes into `texts[field]`. work: (n,) float64. Others: lists.
    `index`: (n,) int64, the row's place in the journal.
    """

    def __init__(self, kind: int):
        self.kind = kind
        self.fields = rows.NAMES[kind][1:]
        self.index = np.empty(0, np.int64)
        self.texts: dict[str, list[str]] = {}
        self._codes = {field: _Codes() for field in self.fields if field in _TEXTS}
        self._indices: list[np.ndarray] = []
        self._parts: dict[str, list[Any]] = {field: [] for field in self.fields}
        self._done: dict[str, Any] = {}

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, field: str) -> Any:
        return self._done[field]

    def text(self, field: str) -> np.ndarray:
        """(n,) of str objects."""
        return np.array(self.texts[field], dtype=object)[self[field]]

    def add(self, found: list[Row], index: np.ndarray) -> None:
        self._indices.append(index)
        columns = list(zip(*found, strict=True))
        if len(columns) != len(self.fields) + 1:
            raise ValueError(f"a {rows.NAMES[self.kind][0]} row has {len(columns)} items")
        n = len(found)
        for field, column in zip(self.fields, columns[1:], strict=True):
            if field in _OBJECTS:
                self._parts[field] += column
            elif field in _TEXTS:
                codes = self._codes[field]
                self._parts[field].append(np.fromiter([codes[text] for text in column], np.int64, n))
            else:
                self._parts[field].append(np.fromiter(column, np.float64 if field in _FLOATS else np.int64, n))

    def finish(self) -> None:
        empty = np.empty(0, np.int64)
        self.index = np.concatenate(self._indices) if self._indices else empty
        for field, parts in self._parts.items():
            if field in _OBJECTS:
                self._done[field] = parts
            else:
                self._done[field] = np.concatenate(parts) if parts else empty
        self.texts = {field: list(codes) for field, codes in self._codes.items()}
        self._parts, self._indices = {}, []


class Table(dict[int, Columns]):
    """kind -> columns, for every kind; `count` rows in all."""

    count: int


def columns(source: Iterable[Row]) -> Table:
    """The rows of `source` (a `Reading`, or any iterable of rows) as columns. Raises RecordError."""
    table = Table((kind, Columns(kind)) for kind in rows.NAMES)
    table.count = 0
    for chunk in source.chunks() if isinstance(source, Reading) else _chunks(source):
        try:
            _add(table, chunk)
        except (KeyError, TypeError, ValueError, OverflowError, IndexError) as error:
            raise RecordError(f"{getattr(source, 'path', 'journal')}: among the rows from {table.count} on is one "
                              f"that is no row of a journal: {error}") from error
        table.count += len(chunk)
    for part in table.values():
        part.finish()
    return table


def _chunks(source: Iterable[Row]) -> Iterable[Sequence[Row]]:
    waiting: list[Row] = []
    for row in source:
        waiting.append(row)
        if len(waiting) == _CHUNK:
            yield waiting
            waiting = []
    if waiting:
        yield waiting


def _add(table: Table, chunk: Sequence[Row]) -> None:
    kinds = np.fromiter(map(_kind_of, chunk), np.int64, len(chunk))
    groups: dict[int, list[Row]] = {kind: [] for kind in np.unique(kinds).tolist()}
    for row in chunk:
        groups[row[0]].append(row)
    for kind, found in groups.items():
        table[kind].add(found, np.flatnonzero(kinds == kind) + table.count)


def copy_keys(source: np.ndarray, seq: np.ndarray) -> np.ndarray:
    """(n,) int64, one number for each (source, sequence number)."""
    return (source << 40) | seq


class Finder:
    """Finds the places of numbers in `keys`, (n,): a join. Where a number occurs twice, the first place counts."""

    def __init__(self, keys: np.ndarray):
        self._order = np.argsort(keys, kind="stable")
        self._sorted = keys[self._order]

    def places(self, wanted: np.ndarray) -> np.ndarray:
        """(m,) places in `keys`, -1 where a number is not there."""
        if not len(self._sorted):
            return np.full(len(wanted), -1, np.int64)
        at = np.minimum(np.searchsorted(self._sorted, wanted), len(self._sorted) - 1)
        return np.where(self._sorted[at] == wanted, self._order[at], -1)
