"""States over time against brute force, and the draws that they are made of."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from emul.base.streams import key64, uniform_at, uniforms_at
from emul.network.models.timelines import Slots, first_slot

KEY = key64(7, "test", "a", "b")


@given(st.integers(0, 2**40), st.integers(1, 50))
def test_draws_in_a_block_are_the_draws_one_by_one(first, count):
    assert uniforms_at(KEY, first, count).tolist() == [uniform_at(KEY, first + i) for i in range(count)]


@given(st.sampled_from([0, 1e-3, 0.02, 0.5, 1]), st.integers(0, 10**6), st.integers(0, 3000), st.booleans())
def test_the_first_slot_of_a_state_is_found_near_and_far(p, begin, length, down):
    expected = next((s for s in range(begin, begin + length) if (uniform_at(KEY, s) < p) == down), None)
    assert first_slot(KEY, p, begin, begin + length, down) == expected


def test_a_change_that_is_very_far_counts_as_none():
    assert Slots(KEY, 1e-12, 1000).next_change(0) is None
