"""Keys: equal for equal values, different for everything else."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emul.store import KEY_BYTES, KeyMaker, Unkeyable

LEAVES = (st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
          | st.binary(max_size=5))
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6)


@dataclass(frozen=True)
class Sgd:
    lr: float
    steps: int | None = None


@dataclass(frozen=True)
class Adam:
    lr: float
    steps: int | None = None


def spelled(value: Any) -> Any:
    """The value with the types of its leaves, so that 1, 1.0 and True are three; floats by their bits."""
    if isinstance(value, list):
        return tuple(spelled(v) for v in value)
    if isinstance(value, dict):
        return frozenset((k, spelled(v)) for k, v in value.items())
    return type(value).__name__, value.hex() if isinstance(value, float) else value


@given(VALUES, VALUES)
def test_two_values_have_one_key_only_if_they_are_the_same(one: Any, other: Any) -> None:
    assert (KeyMaker().key(one) == KeyMaker().key(other)) == (spelled(one) == spelled(other))


@given(st.lists(LEAVES, max_size=4), st.integers(0, 4))
def test_what_belongs_together_shows_in_the_key(values: list[Any], cut: int) -> None:
    keys = KeyMaker()
    assert len(keys.key(*values)) == KEY_BYTES
    assert keys.key(values[:cut], values[cut:]) != keys.key(values)


def test_every_property_of_an_array_counts() -> None:
    base = np.arange(6, dtype=np.float32)
    changed = base.copy()
    changed[5] = np.nextafter(changed[5], np.float32(9))
    others = [base.astype(np.float64), base.reshape(2, 3), base.reshape(3, 2), base[:5], changed, base.view(np.int32),
              -base, base.tolist()]
    keys = [KeyMaker().key(array) for array in [base, *others]]
    assert len(set(keys)) == len(keys)
    assert KeyMaker().key(base[::-1][::-1]) == keys[0]
    assert KeyMaker().key(np.asfortranarray(base.reshape(2, 3))) == keys[2]


def test_a_dataclass_counts_by_its_type_and_every_field() -> None:
    keys = [KeyMaker().key(v) for v in (Sgd(0.1), Sgd(0.2), Sgd(0.1, 1), Adam(0.1), {"lr": 0.1, "steps": None})]
    assert len(set(keys)) == len(keys)
    assert KeyMaker().key(dataclasses.replace(Sgd(0.3), lr=0.1)) == keys[0]


def test_the_order_of_a_dictionary_does_not_count() -> None:
    assert KeyMaker().key({"a": 1, "b": 2}) == KeyMaker().key({"b": 2, "a": 1})


def test_what_has_no_value_has_no_key() -> None:
    @dataclass
    class Mutable:
        x: int = 0

    for value, said in [(print, "builtin_function_or_method"), (Mutable(), "Mutable is no frozen dataclass"),
                        (np.array([None]), "dtype object"), ({1, 2}, "set"), (1j, "complex")]:
        with pytest.raises(Unkeyable, match=said):
            KeyMaker().key([value])


def test_a_read_only_array_is_hashed_once_and_a_writable_one_every_time() -> None:
    keys, array = KeyMaker(), np.zeros(10_000, np.float32)
    before = keys.key(array)
    array[3] = 1.0
    assert keys.key(array) != before, "it could be written to, so what is known of it may be wrong"
    array.flags.writeable = False
    frozen = keys.key(array)
    assert len(keys._known) == 1
    assert keys.key(array[:]) == frozen
    assert keys.key(array.reshape(100, 100)) != frozen


def test_a_view_that_cannot_be_written_of_an_array_that_can_is_hashed_every_time() -> None:
    keys, array = KeyMaker(), np.zeros(10_000, np.float32)
    view = array[:]
    view.flags.writeable = False
    before = keys.key(view)
    array[0] = 1.0
    assert keys.key(view) != before


def test_the_memory_of_arrays_is_limited() -> None:
    keys = KeyMaker()
    for i in range(30):
        array = np.full(5000, i, np.float32)
        array.flags.writeable = False
        keys.key(array)
    assert len(keys._known) <= 8
