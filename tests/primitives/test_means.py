"""Sums of vectors in an order that is given, and clipping."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emul.primitives.means import clipped, weighted_sum
from emul.primitives.privacy.mechanism import noisy

NUMBERS = st.floats(-100, 100, width=32)


@given(st.dictionaries(st.integers(0, 9), st.tuples(st.lists(NUMBERS, min_size=3, max_size=3), st.integers(0, 50)),
                       min_size=1), st.randoms(use_true_random=False))
def test_a_weighted_sum_is_the_plain_one_and_has_the_same_bits_in_any_order_of_arrival(sent, shuffle) -> None:
    vectors = {k: np.float32(v) for k, (v, _) in sent.items()}
    weights = {k: w for k, (_, w) in sent.items()}
    plain = np.zeros(3)
    for k in sorted(sent):
        plain = plain + weights[k] * vectors[k].astype(np.float64)
    order = list(vectors)
    shuffle.shuffle(order)
    assert weighted_sum({k: vectors[k] for k in order}, weights).tolist() == plain.tolist()


@given(st.lists(NUMBERS, min_size=1, max_size=20), st.floats(0.01, 100))
def test_what_is_clipped_points_the_same_way_and_is_no_longer_than_the_norm(values, norm) -> None:
    update = np.float32(values)
    found = clipped(update, norm)
    assert found.dtype == np.float32
    assert np.linalg.norm(found) <= norm * (1 + 1e-5)
    if float(np.linalg.norm(update)) <= norm:         # as float64: as float32 both may be equal
        assert found is update
    else:
        assert np.linalg.norm(found) == pytest.approx(norm, rel=1e-4)
        assert float(found @ update) == pytest.approx(float(np.linalg.norm(update)) * norm, rel=1e-3)


def test_without_a_bound_nothing_is_clipped_and_without_noise_nothing_is_drawn() -> None:
    update, rng = np.float32([3, 4]), np.random.default_rng(1)
    before = rng.bit_generator.state
    assert noisy(update, None, 0.0, rng) is update
    assert rng.bit_generator.state == before
    assert noisy(update, 1.0, 0.0, rng).tolist() == np.float32([0.6, 0.8]).tolist()


def test_noise_has_the_standard_deviation_that_is_asked_for() -> None:
    found = noisy(np.zeros(100_000, np.float32), 1.0, 0.3, np.random.default_rng(1))
    assert found.dtype == np.float32
    assert float(found.std()) == pytest.approx(0.3, rel=0.01)
