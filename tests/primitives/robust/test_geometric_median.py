"""The smoothed geometric median against its definition and by hand."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from emul.primitives.robust import geometric_median

UPDATES = arrays(np.float64, array_shapes(min_dims=2, max_dims=2, max_side=6), elements=st.integers(-9, 9).map(float))


def objective(x, alpha, z):
    return sum(a * float(np.linalg.norm(row - z)) for a, row in zip(alpha, x, strict=True))


def one_step(x, alpha, z, nu):
    distances = np.linalg.norm(x - z, axis=1)
    beta = [a / max(nu * np.median(distances), distance) for a, distance in zip(alpha, distances, strict=True)]
    return sum(b * row for b, row in zip(beta, x, strict=True)) / sum(beta)


@given(UPDATES, st.integers(1, 4), st.data())
def test_each_iteration_is_the_printed_one_from_the_weighted_mean(x, iterations, data):
    alpha = np.array(data.draw(st.lists(st.integers(1, 5), min_size=len(x), max_size=len(x))), float)
    z = np.average(x, axis=0, weights=alpha)
    for _ in range(iterations):
        assume(np.median(np.linalg.norm(x - z, axis=1)) > 0)
        z = one_step(x, alpha, z, 1e-6)
    distances = np.linalg.norm(x - z, axis=1)
    assume(distances.min() > 0.11 * np.median(distances))           # or an update may be the median
    found = geometric_median(x, alpha, iterations=iterations, tolerance=0.0)
    np.testing.assert_allclose(found.aggregate, z, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found.weights @ x, found.aggregate, atol=1e-9)


@given(UPDATES, st.integers(-60, 60))
def test_updates_of_any_size_have_the_same_median(x, power):
    """To the bit: a power of two changes no digit."""
    np.testing.assert_array_equal(geometric_median(x * 2.0**power).aggregate,
                                  geometric_median(x).aggregate * 2.0**power)


@pytest.mark.slow
@settings(max_examples=200)
@given(arrays(np.float64, array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=8),
              elements=st.integers(-3, 3).map(float)))
def test_of_updates_that_are_tied_the_sum_of_distances_is_the_least_by_the_defaults(x):
    """Half of them alike, on one line, or an update on the edge of being the median: there steps become small early."""
    alpha = np.ones(len(x))
    long = geometric_median(x, nu=1e-12, iterations=3000, tolerance=0.0).aggregate
    least = min(objective(x, alpha, z) for z in [long, *x])
    assert objective(x, alpha, geometric_median(x).aggregate) <= least * (1 + 1e-5) + 1e-12


@given(UPDATES)
def test_no_row_and_not_the_mean_has_a_smaller_sum_of_distances(x):
    alpha = np.ones(len(x))
    least = objective(x, alpha, geometric_median(x, nu=1e-9, iterations=2000, tolerance=1e-12).aggregate)
    for z in [*x, x.mean(axis=0), np.median(x, axis=0)]:
        assert least <= objective(x, alpha, z) * (1 + 1e-3) + 1e-6


def test_by_hand():
    """One step from the mean 11/3 of 0, 1, 10, as the authors' `geometric_median_update` makes it; the limit is 1."""
    x = np.array([[0.0], [1.0], [10.0]])
    beta = np.array([3 / 11, 3 / 8, 3 / 19])
    one = geometric_median(x, iterations=1)
    assert one.aggregate[0] == pytest.approx((beta[1] + 10 * beta[2]) / beta.sum())
    assert one.weights.tolist() == pytest.approx((beta / beta.sum()).tolist())
    for size in (1.0, 1e-7, 1e-30, 1e30):
        found = geometric_median(x * size)
        assert found.aggregate[0] / size == pytest.approx(1.0, abs=1e-9)
        assert found.weights.tolist() == [0, 1, 0]


def test_a_minority_of_any_size_moves_it_by_little():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((20, 10)).astype(np.float32)
    honest = geometric_median(x[:12]).aggregate
    x[12:] = 1e6
    found = geometric_median(x)
    assert np.linalg.norm(found.aggregate - honest) < 4
    assert found.weights[12:].sum() < 1e-4


def test_rows_of_weight_zero_have_no_part_and_bad_weights_are_named():
    x = np.array([[0.0], [1.0], [5.0]])
    assert geometric_median(x, np.array([1, 1, 0])).kept == (0, 1)
    with pytest.raises(ValueError, match=r"expected 3 finite ones of at least 0, not all 0$"):
        geometric_median(x, np.zeros(3))
    with pytest.raises(ValueError, match=r"^nu is 0, iterations 100"):
        geometric_median(x, nu=0)
