"""States over time against brute force, and the draws that they are made of."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from emul.base.streams import key64, uniform_at, uniforms_at
from emul.network.models.steps import StepFunction
from emul.network.models.timelines import Slots, first_slot

KEY = key64(7, "test", "a", "b")


@st.composite
def steps(draw):
    gaps = draw(st.lists(st.integers(1, 6), max_size=6))
    times = [sum(gaps[:i]) for i in range(len(gaps) + 1)]
    values = [draw(st.sampled_from([0.0, 0.3, 1.0])) for _ in times]
    return StepFunction(times, values, draw(st.none() | st.integers(times[-1] + 1, times[-1] + 6)))


@given(steps(), st.integers(0, 60), st.integers(0, 40))
def test_steps_are_what_they_are_at_every_instant(steps, t, length):
    def value(at):
        at = at if steps.period_ns is None else at % steps.period_ns
        return max((time, v) for time, v in zip(steps.times, steps.values, strict=True) if time <= at)[1]

    assert steps.value_at(t) == value(t)
    change = steps.next_change(t)
    assert change == next((n for n in range(t + 1, t + 100) if value(n) != value(t)), None)
    assert steps.most(t, t + length) == max(value(n) for n in range(t, t + max(1, length)))
    whole = steps.times[-1] if steps.period_ns is None else steps.period_ns
    assert whole == 0 or abs(steps.mean() - sum(value(n) for n in range(whole)) / whole) < 1e-12


@given(st.integers(0, 2**40), st.integers(1, 50))
def test_draws_in_a_block_are_the_draws_one_by_one(first, count):
    assert uniforms_at(KEY, first, count).tolist() == [uniform_at(KEY, first + i) for i in range(count)]


@given(st.sampled_from([0, 1e-3, 0.02, 0.5, 1]), st.integers(0, 10**6), st.integers(0, 3000), st.booleans())
def test_the_first_slot_of_a_state_is_found_near_and_far(p, begin, length, down):
    expected = next((s for s in range(begin, begin + length) if (uniform_at(KEY, s) < p) == down), None)
    assert first_slot(KEY, p, begin, begin + length, down) == expected


def test_a_change_that_is_very_far_counts_as_none():
    assert Slots(KEY, 1e-12, 1000).next_change(0) is None
