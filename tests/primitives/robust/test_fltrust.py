"""FLTrust against a loop over its formula and by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from emul.primitives.robust import fltrust

UPDATES = arrays(np.float64, array_shapes(min_dims=2, max_dims=2, max_side=6), elements=st.integers(-9, 9).map(float))


def slow(x, reference):
    total, trusts = np.zeros(len(reference)), 0.0
    size = np.linalg.norm(reference)
    for row in x:
        if np.linalg.norm(row) and size:
            trust = max(0.0, float(row @ reference) / (np.linalg.norm(row) * size))
            total += trust * size / np.linalg.norm(row) * row
            trusts += trust
    return total / trusts if trusts else total


@given(UPDATES, st.data())
def test_it_is_the_printed_sum(x, data):
    reference = data.draw(arrays(np.float64, x.shape[1], elements=st.integers(-9, 9).map(float)))
    found = fltrust(x, reference)
    np.testing.assert_allclose(found.aggregate, slow(x, reference), atol=1e-9)
    np.testing.assert_allclose(found.weights @ x, found.aggregate, atol=1e-9)
    assert np.linalg.norm(found.aggregate) <= np.linalg.norm(reference) * (1 + 1e-9)


def test_by_hand():
    """Trust 1, 0, 0.6, 0; scaled to norm 2: (2, 0) and (1.2, 1.6); ((2 + 0.72) / 1.6, 0.96 / 1.6)."""
    x = np.array([[1.0, 0.0], [0.0, 3.0], [3.0, 4.0], [-5.0, 0.0]], np.float32)
    found = fltrust(x, np.array([2.0, 0.0], np.float32))
    assert found.scores.tolist() == pytest.approx([1, 0, 0.6, -1])
    assert found.kept == (0, 2)
    assert found.aggregate.tolist() == pytest.approx([1.7, 0.6])


@pytest.mark.parametrize("reference", [[0.0, 0.0], [-1.0, -1.0]])
def test_without_any_trust_nothing_is_learnt(reference):
    found = fltrust(np.array([[1.0, 2.0], [0.0, 0.0]]), np.array(reference))
    assert found.kept == ()
    assert not found.aggregate.any()


def test_the_size_of_an_update_has_no_effect():
    x = np.array([[1.0, 1.0], [1.0, 0.0]])
    small = fltrust(x, np.array([1.0, 0.5])).aggregate
    np.testing.assert_allclose(fltrust(x * [[1e9], [1.0]], np.array([1.0, 0.5])).aggregate, small, rtol=1e-12)


def test_a_reference_of_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"^the reference has shape \(3,\), expected that of an update, \(2,\)$"):
        fltrust(np.ones((2, 2)), np.ones(3))
