"""The rows of a journal as columns, one NumPy array a field: what tables and invariants are computed from.

Chunks of rows are turned into arrays as they are read, so a run's rows never lie in memory as Python objects at once.
Arrays are kept in the narrowest integers that hold them, a third of what they take as int64, in which they are handed
out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import compress
from operator import itemgetter
from typing import Any

import numpy as np

from emul.base import rows
from emul.base.rows import Row
from emul.record.journal import Reading, RecordError

_TEXTS = {"type", "label", "why", "reason"}                   # few different ones: coded
_OBJECTS = {"values", "digest", "changes", "targets", "types"}
_FLOATS = {"work"}
_INDEX = "index"                                    # of a row in the journal: a column like the others

_CHUNK = 4096
_PACK = 1 << 16                     # rows of one kind that wait to be narrowed together
_WIDTHS = (np.int8, np.int16, np.int32, np.int64)
_kind_of = itemgetter(0)


class _Codes(dict[str, int]):
    """Text -> number, in the order of first appearance."""

    def __missing__(self, text: str) -> int:
        code = self[text] = len(self)
        return code


class Columns:
    """Columns of all rows of one kind; `columns["time_ns"]`. Field names as in `emul.base.rows.NAMES`.

    Integers: (n,) int64. type, label, why, reason: (n,) int64 codes into `texts[field]`. work: (n,) float64.
    Others: lists. `index`: (n,) int64, the row's place in the journal.
    """

    def __init__(self, kind: int):
        self.kind = kind
        self.fields = rows.NAMES[kind][1:]
        self.texts: dict[str, list[str]] = {}
        self._codes = {field: _Codes() for field in self.fields if field in _TEXTS}
        self._parts: dict[str, list[Any]] = {field: [] for field in (*self.fields, _INDEX)}
        self._packed: dict[str, list[np.ndarray]] = {field: [] for field in self._parts if field not in _OBJECTS}
        self._waiting = self._rows = 0
        self._done: dict[str, Any] = {}

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, field: str) -> Any:
        found = self._done[field]
        return found if field in _OBJECTS or field in _FLOATS else found.astype(np.int64, copy=False)

    @property
    def index(self) -> np.ndarray:
        """(n,) int64: where in the journal each row stands."""
        return self[_INDEX]

    def text(self, field: str) -> np.ndarray:
        """(n,) of str objects."""
        return np.array(self.texts[field], dtype=object)[self[field]]

    def add(self, found: list[Row], index: np.ndarray) -> None:
        """Take rows of this kind and their places in the journal, (n,). Raises ValueError for rows of another
        length."""
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
        self._parts[_INDEX].append(index)
        self._rows += n
        self._waiting += n
        if self._waiting >= _PACK:
            self._pack()

    def _pack(self) -> None:
        self._waiting = 0
        for field, packed in self._packed.items():
            parts = self._parts[field]
            if parts:
                packed.append(_narrowed(np.concatenate(parts)))
                parts.clear()

    def finish(self) -> None:
        """Make the arrays: nothing is read before it, and nothing added after it."""
        self._pack()
        for field in self._parts:
            if field in _OBJECTS:
                self._done[field] = self._parts[field]
            else:
                packed = self._packed.pop(field)
                self._done[field] = np.concatenate(packed) if packed else np.empty(0, np.int64)
        self.texts = {field: list(codes) for field, codes in self._codes.items()}
        self._parts = {}


def _narrowed(values: np.ndarray) -> np.ndarray:
    """The same integers, of as few bytes as hold them all; floats as they are."""
    if values.dtype.kind == "f" or not len(values):
        return values
    low, high = values.min(), values.max()
    return values.astype(next(w for w in _WIDTHS if np.iinfo(w).min <= low and high <= np.iinfo(w).max))


class Table(dict[int, Columns]):
    """kind -> columns, for every kind; `count` rows in all."""

    count: int


def columns(source: Iterable[Row], kinds: Collection[int] = rows.NAMES) -> Table:
    """The rows of `source` (a `Reading`, or any iterable of rows) as columns. Raises RecordError.

    kinds: those that are kept; of the others there are none, and `index` and `count` are those of all rows.
    """
    table = Table((kind, Columns(kind)) for kind in rows.NAMES)
    table.count = 0
    for chunk in source.chunks() if isinstance(source, Reading) else _chunks(source):
        try:
            _add(table, chunk, kinds)
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


def _add(table: Table, chunk: Sequence[Row], wanted: Collection[int]) -> None:
    kinds = np.fromiter(map(_kind_of, chunk), np.int64, len(chunk))
    for kind in np.unique(kinds).tolist():
        part = table[kind]                  # of a kind that there is
        if kind in wanted:
            mine = kinds == kind
            part.add(list(compress(chunk, mine.tolist())), np.flatnonzero(mine) + table.count)


def copy_keys(source: np.ndarray, seq: np.ndarray) -> np.ndarray:
    """(n,) int64, one number for each (source, sequence number)."""
    return (source << 40) | seq


class KeyIndex:
    """Finds the positions of numbers in `keys`, (n,): a join. Of a number that occurs twice, the first one counts."""

    def __init__(self, keys: np.ndarray):
        self._order = np.argsort(keys, kind="stable")
        self._sorted = keys[self._order]

    def positions(self, wanted: np.ndarray) -> np.ndarray:
        """(m,) positions in `keys`, -1 where a number is not there."""
        if not len(self._sorted):
            return np.full(len(wanted), -1, np.int64)
        at = np.minimum(np.searchsorted(self._sorted, wanted), len(self._sorted) - 1)
        return np.where(self._sorted[at] == wanted, self._order[at], -1)


@dataclass(frozen=True)
class Messages:
    """All copies of a run as arrays, (n,) each, in the order of sending. Nanoseconds and bytes; -1: null."""

    source: np.ndarray
    seq: np.ndarray
    target: np.ndarray
    kind: np.ndarray                    # codes into `kinds`
    kinds: list[str]
    round: np.ndarray
    payload_bytes: np.ndarray
    declared_bytes: np.ndarray          # of these
    wire_bytes: np.ndarray
    retransmitted_bytes: np.ndarray
    hops: np.ndarray
    sent_ns: np.ndarray
    arrived_ns: np.ndarray
    fate: np.ndarray                    # into `emul.record.tables.FATES`
    lost_ns: np.ndarray
    lost_vertex: np.ndarray
    lost_next: np.ndarray
    unread: np.ndarray                  # bool
    reason: np.ndarray                  # of a rejection: codes into `reasons`; -1: none
    reasons: list[str]


@dataclass(frozen=True)
class Computations:
    """All computations as arrays, (n,) each, in the order in which they began. Nanoseconds; end -1: the run ended."""

    node: np.ndarray
    label: np.ndarray                   # codes into `labels`
    labels: list[str]
    round: np.ndarray
    start_ns: np.ndarray
    cost_ns: np.ndarray
    end_ns: np.ndarray
    work: np.ndarray
    finished: np.ndarray                # bool
    declared: np.ndarray                # bool: the scheme stated the cost
    activity: np.ndarray                # its number at the node; 0: the role itself
    lane: np.ndarray                    # codes into the lanes of the header
