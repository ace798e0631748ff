"""Median and trimmed mean against sorting each column."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from emul.primitives.robust import TooManyByzantine, coordinate_median, trimmed_mean
from emul.primitives.robust import aggregation as module

UPDATES = arrays(np.float64, array_shapes(min_dims=2, max_dims=2, max_side=7), elements=st.integers(-4, 4).map(float))


def slow(x, f):
    """Mean without ends, and the share of coordinates in which a row is not beyond what is kept."""
    columns = [sorted(column)[f:len(x) - f] for column in x.T]
    shares = [sum(kept[0] <= value <= kept[-1] for kept, value in zip(columns, row, strict=True)) / len(columns)
              for row in x]
    return [sum(kept) / len(kept) for kept in columns], shares


@given(UPDATES)
def test_median_is_the_middle_or_the_mean_of_the_two_in_the_middle(x):
    found = coordinate_median(x)
    assert found.aggregate.tolist() == np.median(x, axis=0).tolist()
    assert found.scores.tolist() == pytest.approx(slow(x, (len(x) - 1) // 2)[1])
    assert found.kept == tuple(range(len(x)))
    assert found.weights is None


@given(UPDATES, st.data())
def test_trimmed_mean_leaves_out_f_at_each_end(x, data):
    f = data.draw(st.integers(0, (len(x) - 1) // 2))
    found = trimmed_mean(x, f)
    mean, shares = slow(x, f)
    assert found.aggregate.tolist() == mean
    assert found.scores.tolist() == pytest.approx(shares)


@given(UPDATES, st.randoms(use_true_random=False))
def test_the_order_of_the_rows_does_not_matter(x, random):
    order = list(range(len(x)))
    random.shuffle(order)
    assert coordinate_median(x[order]).aggregate.tolist() == coordinate_median(x).aggregate.tolist()


def test_by_hand():
    """Flower's `_trim_mean` cuts int(0.25 * 5) = 1 value at each end: (1 + 2 + 6) / 3."""
    x = np.array([[6.0], [1.0], [-90.0], [2.0], [70.0]])
    found = trimmed_mean(x, beta=0.25)
    assert found.aggregate.tolist() == [3.0]
    assert found.scores.tolist() == [1, 1, 0, 1, 0]
    assert coordinate_median(x).aggregate.tolist() == [2.0]
    assert trimmed_mean(x, beta=0.0).aggregate.tolist() == [x.mean()]


def test_columns_are_taken_some_at_a_time_and_the_result_is_the_same(monkeypatch):
    x = np.random.default_rng(0).standard_normal((5, 101)).astype(np.float32)
    whole = coordinate_median(x), trimmed_mean(x, 1)
    monkeypatch.setattr(module, "CHUNK_VALUES", 35)
    for before, after in zip(whole, (coordinate_median(x), trimmed_mean(x, 1)), strict=True):
        assert before.aggregate.tobytes() == after.aggregate.tobytes()
        assert before.scores.tolist() == after.scores.tolist()


def test_bad_parameters():
    x = np.zeros((4, 1))
    with pytest.raises(TooManyByzantine, match=re.escape("with f = 2 needs n >= 2f + 1 = 5 updates, n is 4")):
        trimmed_mean(x, 2)
    with pytest.raises(ValueError, match=r"^a trimmed mean takes either f or beta$"):
        trimmed_mean(x)
    with pytest.raises(ValueError, match=r"^beta is 0\.5, expected a share of the updates in \[0, 1/2\)$"):
        trimmed_mean(x, beta=0.5)
    with pytest.raises(ValueError, match=r"^f is -1, expected at least 0$"):
        trimmed_mean(x, -1)
