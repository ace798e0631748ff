"""Results that cannot repeat themselves: kept as they come, read back as they were, and left out of digests."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from emul.base.errors import NotDecodable, ProtocolFailure, RoleError
from emul.roles import Scheme
from emul.workers.volatile import Volatile, VolatileError, file_of, read


@dataclass(frozen=True)
class Pair:
    left: Any
    right: int = 0


class Unlucky(ProtocolFailure):
    """A failure of this scheme."""


class Stranger(ProtocolFailure):
    """A failure that the scheme's `results` do not name."""


def scheme() -> Scheme[Any]:
    return Scheme(params=object, roles={}, results=(Pair, Unlucky))


def through(value: Any, failure: BaseException | None = None) -> tuple[Any, Any]:
    return Volatile(scheme(), None, {}).settle((1, 2), "draw", value, failure)


leaves = st.one_of(st.none(), st.booleans(), st.integers(-2**70, 2**70), st.floats(allow_nan=False),
                   st.text(max_size=5), st.binary(max_size=5))
values = st.recursive(leaves, lambda inner: st.one_of(
    st.lists(inner, max_size=3), st.tuples(inner, inner), st.dictionaries(st.integers() | st.text(max_size=3), inner,
                                                                          max_size=3),
    st.builds(Pair, inner, st.integers(0, 9))), max_leaves=8)


@given(values)
def test_a_value_comes_back_as_what_it_was(value: Any) -> None:
    result, failure = through(value)
    assert failure is None
    assert (result, type(result)) == (value, type(value))


def test_arrays_come_back_aligned_and_read_only_and_numbers_keep_their_types() -> None:
    value = {"a": np.arange(6, dtype=np.uint16).reshape(2, 3)[:, ::2], "s": np.float32(0.1), "t": torch.arange(3)}
    result, _ = through(value)
    assert np.array_equal(result["a"], value["a"])
    assert result["a"].dtype == np.uint16
    assert not result["a"].flags.writeable
    assert result["a"].ctypes.data % 64 == 0
    assert (type(result["s"]), result["s"]) == (np.float32, np.float32(0.1))
    assert torch.equal(result["t"], value["t"])


@pytest.mark.parametrize("value", [object(), {1, 2}, [lambda: 0], Pair(object()),
                                   dataclasses.make_dataclass("Pair", [])()])
def test_what_cannot_be_kept_is_an_error_that_says_what_can(value: Any) -> None:
    result, failure = through(value)
    assert result is None
    assert isinstance(failure, RoleError)
    assert str(failure).startswith("compute('draw', volatile=True) gave what cannot be kept: ")


def test_failures_of_the_protocol_are_kept_and_others_go_their_way() -> None:
    for failure in (Unlucky("this time"), NotDecodable("too few")):
        _, found = through(None, failure)
        assert (type(found), str(found)) == (type(failure), str(failure))
    bug = LookupError("a bug")
    assert through(None, bug) == (None, bug)
    assert "the failure Stranger" in str(through(None, Stranger("who"))[1])


def written(folder: Path) -> Path:
    path = file_of(str(folder), 3)
    assert path is not None
    log = Volatile(scheme(), path, {})
    log.settle((1, 0), "draw", (1, [2.5]), None)
    log.settle((1, 1), "draw", np.arange(4.0), None)
    log.settle((2, 7), "draw", None, Unlucky("again"))
    log.close()
    return path


def test_what_was_kept_is_recalled_by_node_and_number(tmp_path: Path) -> None:
    written(tmp_path)
    again = Volatile(scheme(), None, read(tmp_path))
    assert again.recall((1, 0)) == ((1, [2.5]), None)
    assert np.array_equal(again.recall((1, 1))[0], np.arange(4.0))
    assert type(again.recall((2, 7))[1]) is Unlucky
    assert not again.recalls((2, 8))


def test_a_last_entry_that_was_cut_short_is_left_out_wherever_it_was_cut(tmp_path: Path) -> None:
    path = written(tmp_path)
    content = path.read_bytes()
    for cut in range(len(content)):
        path.write_bytes(content[:cut])
        assert len(read(tmp_path)) < 3
    path.write_bytes(content)
    assert len(read(tmp_path)) == 3


def test_a_flipped_byte_is_found_and_named(tmp_path: Path) -> None:
    path = written(tmp_path)
    content = path.read_bytes()
    for place in range(24, 60):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1:])
        with pytest.raises(VolatileError, match=r"volatile-3, byte 0: the entry's digest is wrong$"):
            read(tmp_path)


def test_a_file_of_results_is_never_overwritten(tmp_path: Path) -> None:
    path = written(tmp_path)
    with pytest.raises(FileExistsError):
        Volatile(scheme(), path, {})


def test_nan_is_nan() -> None:
    assert math.isnan(through(float("nan"))[0])
