"""Costs of computations while a node's speed changes, against a sum over single nanoseconds."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emul.roles.costs import Costs

pieces = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 4), st.integers(1, 4)), max_size=4,
                  unique_by=lambda p: p[0]).map(sorted)


@settings(max_examples=100)
@given(pieces, st.integers(0, 50), st.integers(0, 60))
def test_the_integral_of_the_speed_over_the_time_is_the_cost(slow, start, cost):
    taken = Costs("profile", "s", slowdowns={3: slow}).stretched(3, start, cost)
    done = Fraction(0)

    def speed(t):
        before = [(numerator, denominator) for begin, numerator, denominator in slow if begin <= t]
        return Fraction(before[-1][1], before[-1][0]) if before else Fraction(1)

    for t in range(start, start + taken):
        assert done < cost
        done += speed(t)
    assert done >= cost


def test_other_nodes_and_costs_that_are_recorded_or_nothing_stay_as_they_are():
    slow = {3: [(0, 4, 1)]}
    assert Costs("profile", "s", slowdowns=slow).stretched(2, 0, 10) == 10
    assert Costs("measured", "s", slowdowns=slow).stretched(3, 0, 10) == 40
    assert [Costs(mode, "s", slowdowns=slow).stretched(3, 0, 10) for mode in ("recorded", "zero")] == [10, 10]


@pytest.mark.parametrize(("start", "expected"), [(0, 15), (5, 20), (10, 20), (25, 13), (30, 10)])
def test_a_slowdown_that_ends(start, expected):
    """Twice as slow from 5 to 30: of a cost of 10 what falls into it takes twice the time."""
    assert Costs("profile", "s", slowdowns={0: [(5, 2, 1), (30, 1, 1)]}).stretched(0, start, 10) == expected
