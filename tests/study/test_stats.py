"""Bootstrap intervals: against a known case, and how often they hold the truth."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from emul.study.stats import Interval, interval

FLOATS = st.floats(-1e6, 1e6).map(lambda x: round(x, 3))


def test_the_interval_of_normal_values_is_that_of_the_textbook() -> None:
    n = 400
    values = norm.ppf((np.arange(n) + 0.5) / n, loc=3.0, scale=2.0)         # no luck involved
    found = interval(values, "known")
    half = 1.96 * values.std() / n**0.5
    assert found.mean == pytest.approx(3.0)
    assert (found.low, found.high) == pytest.approx((3.0 - half, 3.0 + half), abs=0.02)


def test_the_interval_of_three_values_is_their_range() -> None:
    """All three draws are the least one in 1 of 27 resamples, which is more than 2.5 %."""
    assert interval([4.0, 1.0, 9.0]) == Interval(3, pytest.approx(14 / 3), 1.0, 9.0)


def test_an_interval_is_the_same_twice_and_its_stream_has_a_name() -> None:
    values = np.random.default_rng(1).normal(size=20)
    assert interval(values, "a", "b") == interval(values, "a", "b")
    assert interval(values, "a", "b") != interval(values, "a", "c")


@pytest.mark.parametrize(("n", "least", "most"), [(3, 0.63, 0.83), (20, 0.88, 0.98)])
def test_an_interval_holds_the_truth_as_often_as_its_documentation_says(n: int, least: float, most: float) -> None:
    rng = np.random.default_rng(5)
    cases = 100
    hits = 0
    for case in range(cases):
        found = interval(rng.normal(size=n), "coverage", case)
        hits += found.low <= 0 <= found.high
    assert least <= hits / cases <= most


@pytest.mark.parametrize("values", [[], [1.0], [1.0, 5.0]])
def test_fewer_than_three_values_have_no_interval(values: list[float]) -> None:
    assert interval(values) == Interval(len(values), float(np.mean(values)) if values else None, None, None)
    assert not interval(values).without_zero


def test_equal_values_have_an_interval_without_width() -> None:
    assert interval([0.25] * 4) == Interval(4, 0.25, 0.25, 0.25)


@settings(max_examples=30, deadline=None)
@given(st.lists(FLOATS, min_size=3, max_size=8), st.floats(0.1, 10).map(lambda x: round(x, 2)))
def test_an_interval_lies_within_the_values_and_moves_with_them(values: list[float], shift: float) -> None:
    found = interval(values, "property")
    scale = max(map(abs, values)) + shift
    assert min(values) - 1e-9 * scale <= found.low <= found.high <= max(values) + 1e-9 * scale
    moved = interval([v + shift * 1000 for v in values], "property")
    assert (moved.low, moved.high) == pytest.approx((found.low + shift * 1000, found.high + shift * 1000),
                                                    abs=1e-6 * (scale + 1e4))
