"""Columns keep narrow integers and hand out what was put in."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emul.base import rows
from emul.record import columns as record_columns
from emul.record.columns import columns
from emul.record.journal import RecordError

whole = st.sampled_from([-2**63, -2**31 - 1, -2**31, -129, -128, -1, 0, 127, 128, 2**15, 2**31 - 1, 2**31, 2**63 - 1])


@given(st.lists(st.tuples(st.just(rows.SEND), whole, whole, whole, whole, st.sampled_from(["Model", "Update"]), whole,
                          whole, whole, whole, whole) | st.tuples(st.just(rows.COMPUTED), whole, whole),
                max_size=30), st.sampled_from([1, 3, 1 << 16]))
@settings(deadline=None)
def test_every_integer_comes_back_however_it_was_packed(found: list[tuple], pack: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_columns, "_PACK", pack)
        patch.setattr(record_columns, "_CHUNK", 2)
        table = columns(found)
    for kind in (rows.SEND, rows.COMPUTED):
        mine = [row for row in found if row[0] == kind]
        part = table[kind]
        assert len(part) == len(mine)
        assert part.index.tolist() == [i for i, row in enumerate(found) if row[0] == kind]
        for place, field in enumerate(rows.NAMES[kind][1:], 1):
            if field == "type":
                assert part.text(field).tolist() == [row[place] for row in mine]
            else:
                assert part[field].dtype == np.int64
                assert part[field].tolist() == [row[place] for row in mine]


def test_they_take_a_few_bytes_a_value() -> None:
    table = columns((rows.DELIVER, 10**9 + i, i % 100, i, 0) for i in range(200_000))
    part = table[rows.DELIVER]
    assert sum(part._done[field].nbytes for field in ("time_ns", "source", "seq", "fate", "index")) / len(part) <= 22
    assert part["seq"][-1] == 199_999


def test_rows_of_other_kinds_are_left_out_and_count_in_the_places() -> None:
    found = [(rows.COMPUTED, 1, 0), (rows.DELIVER, 2, 0, 0, 0), (rows.COMPUTED, 3, 0)]
    table = columns(found, (rows.COMPUTED,))
    assert (table.count, table[rows.COMPUTED].index.tolist(), len(table[rows.DELIVER])) == (3, [0, 2], 0)
    with pytest.raises(RecordError, match="no row of a journal: 99"):
        columns([(99, 1)], (rows.COMPUTED,))
