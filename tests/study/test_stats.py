"""Bootstrap intervals: against a known case, and how often they hold the truth."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from scipy.stats import t as t_distribution

from emul.study.stats import MOST_SEEDS, Interval, holm, interval, power, seeds_needed, student

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


# --- Student's t, Holm, power ---------------------------------------------------------------------------------------

def test_the_t_interval_of_three_values_is_that_of_the_textbook() -> None:
    found = interval([1.0, 2.0, 6.0]).student
    half = 4.302652729749464 * 7**0.5 / 3**0.5              # t_{0.975, 2}, s = sqrt(7)
    assert found is not None
    assert (found.low, found.high, found.sd) == pytest.approx((3 - half, 3 + half, 7**0.5))
    assert found.p == pytest.approx(2 * t_distribution.sf(3 / (7 / 3)**0.5, 2))
    assert interval([1.0, 2.0]).student is None


def test_the_t_interval_holds_the_truth_with_three_seeds_where_the_bootstrap_does_not() -> None:
    drawn = np.random.default_rng(5).normal(size=(2000, 3))
    found = [student(values) for values in drawn]
    assert np.mean([s.low <= 0 <= s.high for s in found]) == pytest.approx(0.95, abs=0.015)
    assert np.mean([s.p < 0.05 for s in found]) == pytest.approx(0.05, abs=0.015)


def test_values_that_do_not_vary_are_settled_without_a_warning() -> None:
    assert (student([0.25] * 3).low, student([0.25] * 3).p, student([0.0] * 3).p) == (0.25, 0.0, 1.0)


def test_an_interval_turned_round_is_that_of_the_negative_values() -> None:
    values = [0.5, 2.0, 1.0, 4.0]
    turned, negative = interval(values, "x").reversed(), student([-v for v in values])
    assert turned.student is not None
    assert (turned.student.low, turned.student.high, turned.student.p) == pytest.approx(
        (negative.low, negative.high, negative.p))
    assert (turned.low, turned.mean) == (-interval(values, "x").high, -1.875)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=9))
def test_holm_is_that_of_statsmodels(p: list[float]) -> None:
    multitest = pytest.importorskip("statsmodels.stats.multitest", reason="of the extra `test`")
    assert holm(p) == pytest.approx(list(multitest.multipletests(p, method="holm")[1]), abs=1e-12)
    assert all(mine >= one - 1e-12 for mine, one in zip(holm(p), p, strict=True))


@pytest.mark.parametrize(("mean", "sd", "n", "alpha"), [
    (0.5, 1.0, 10, 0.05), (2.0, 1.0, 3, 0.05), (-1.0, 1.5, 20, 0.01)])
def test_power_is_that_of_statsmodels(mean: float, sd: float, n: int, alpha: float) -> None:
    tests = pytest.importorskip("statsmodels.stats.power", reason="of the extra `test`")
    assert power(mean, sd, n, alpha) == pytest.approx(tests.TTestPower().power(mean / sd, n, alpha), abs=1e-6)


def test_the_seeds_that_are_said_are_the_fewest_with_that_power() -> None:
    for mean, sd, tests in ((1.0, 1.0, 1), (0.3, 1.0, 1), (1.0, 1.0, 6), (-0.2, 1.1, 3)):
        n = seeds_needed(mean, sd, tests)
        assert n is not None
        assert power(mean, sd, n, 0.05 / tests) >= 0.8 > power(mean, sd, n - 1, 0.05 / tests)
    assert seeds_needed(1.0, 1.0) == 10                     # the textbook's: d = 1, alpha = 5 %, power 80 %
    assert seeds_needed(0.001, 1.0) is None
    assert seeds_needed(0.0, 0.0) is None
    assert seeds_needed(5.0, 1e-9) == 3
    assert power(1.0, 1.0, 252, 0.05) == pytest.approx(1.0)     # where scipy's distribution has no number
    assert MOST_SEEDS == 1000
