"""Norm clipping and centred clipping against loops over their formulas."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from emul.primitives.robust import centred_clipping, norm_clipping

UPDATES = arrays(np.float64, array_shapes(min_dims=2, max_dims=2, max_side=6), elements=st.integers(-9, 9).map(float))
RADIUS = st.floats(0.1, 20)


def clipped(vector, radius):
    return vector / max(1.0, float(np.linalg.norm(vector)) / radius)


@given(UPDATES, RADIUS, st.data())
def test_norm_clipping_is_the_weighted_mean_of_clipped_rows(x, bound, data):
    alpha = np.array(data.draw(st.lists(st.integers(1, 5), min_size=len(x), max_size=len(x))))
    found = norm_clipping(x, bound, alpha)
    expected = sum(a * clipped(row, bound) for a, row in zip(alpha, x, strict=True)) / alpha.sum()
    np.testing.assert_allclose(found.aggregate, expected, atol=1e-12)
    assert np.linalg.norm(found.aggregate) <= bound * (1 + 1e-12)


@given(UPDATES, RADIUS, st.integers(1, 4))
def test_centred_clipping_is_the_printed_iteration(x, radius, iterations):
    v = np.zeros(x.shape[1])
    for _ in range(iterations):
        v = v + sum(clipped(row - v, radius) for row in x) / len(x)
    found = centred_clipping(x, radius, iterations)
    np.testing.assert_allclose(found.aggregate, v, atol=1e-12)


@given(UPDATES, RADIUS)
def test_one_row_moves_the_centre_by_no_more_than_the_radius_over_n(x, radius):
    v = centred_clipping(x, radius).aggregate
    x = x.copy()
    x[0] = 1e9
    moved = np.linalg.norm(centred_clipping(x, radius).aggregate - v)
    assert moved <= 2 * radius / len(x) + 1e-9


def test_norm_clipping_by_hand():
    found = norm_clipping(np.array([[3.0, 4.0], [30.0, 40.0], [0.0, 0.0]]), bound=5)
    assert found.aggregate.tolist() == pytest.approx([2.0, 8 / 3])
    assert found.scores.tolist() == [5, 50, 0]
    assert found.weights.tolist() == pytest.approx([1 / 3, 1 / 30, 1 / 3])


def test_centred_clipping_by_hand_and_its_state():
    """As in Blades: the second round starts at the first one's aggregate."""
    x = np.array([[1.0], [9.0]])
    first = centred_clipping(x, radius=2)                           # (1 + 2) / 2
    assert first.aggregate.tolist() == [1.5]
    assert first.scores.tolist() == pytest.approx([1, 2 / 9])
    second = centred_clipping(x, radius=2, centre=first.state)      # 1.5 + (-0.5 + 2) / 2
    assert second.aggregate.tolist() == [2.25]
    assert first.state.tolist() == [1.5]                            # not changed
    assert centred_clipping(x, radius=2, iterations=2).aggregate.tolist() == [2.25]


def test_bad_parameters():
    x = np.ones((2, 3))
    with pytest.raises(ValueError, match=r"^bound is 0, expected a number above 0$"):
        norm_clipping(x, 0)
    with pytest.raises(ValueError, match=r"^radius is nan, expected a number above 0$"):
        centred_clipping(x, float("nan"))
    with pytest.raises(ValueError, match=r"^iterations is 0, expected at least 1$"):
        centred_clipping(x, 1, 0)
    with pytest.raises(ValueError, match=r"^centre has shape \(2,\), expected that of an update, \(3,\)$"):
        centred_clipping(x, 1, centre=np.zeros(2))
