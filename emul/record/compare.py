"""The first difference between two runs, in words: what `emul replay` says when a journal does not come out again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from emul.base import rows
from emul.base.plain import PlainMapping
from emul.base.rows import Row
from emul.record.golden import virtual_seconds
from emul.record.journal import encode


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
