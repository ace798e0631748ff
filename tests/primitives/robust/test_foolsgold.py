"""FoolsGold against loops over Algorithm 1 and by hand, with the details of the authors' code."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from emul.primitives.robust import History, foolsgold

UPDATES = arrays(np.float64, array_shapes(min_dims=2, max_dims=2, max_side=6), elements=st.integers(-4, 4).map(float))


def cosine(a, b):
    size = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / size if size else 0.0


def slow_weights(h, kappa):
    """Algorithm 1, pair by pair, with the pardon of the authors' code; None where it divides 0 by 0."""
    n = len(h)
    cs = [[0.0 if i == j else cosine(h[i], h[j]) for j in range(n)] for i in range(n)]
    v = [max(row) for row in cs]
    a = []
    for i in range(n):
        a.append(1 - max(cs[i][j] * (v[i] / v[j] if v[i] < v[j] else 1) for j in range(n)))
    a = [min(1.0, x) if x > 1e-12 else 0.0 for x in a]
    if max(a) == 0:
        return None
    weights = []
    for x in (x / max(a) for x in a):
        x = 0.99 if x == 1 else x
        weights.append(min(1.0, max(0.0, kappa * (math.log(x / (1 - x)) + 0.5))) if x else 0.0)
    return weights


@given(UPDATES, st.floats(0.5, 3))
def test_weights_are_those_of_algorithm_1(x, kappa):
    found = foolsgold(x, range(len(x)), kappa=kappa)
    weights = slow_weights(x, kappa)
    if weights is None:
        assert found.kept == ()
        assert not found.aggregate.any()
        return
    np.testing.assert_allclose(found.weights, np.array(weights) / sum(weights), atol=1e-7)
    np.testing.assert_allclose(found.aggregate, found.weights @ x, atol=1e-9)


def test_two_copies_lose_to_the_one_that_is_unlike_them():
    x = np.array([[1.0, 0.0], [3.0, 0.0], [0.0, 2.0]])
    found = foolsgold(x, [7, 8, 9])
    assert found.kept == (2,)
    assert found.aggregate.tolist() == [0.0, 2.0]
    assert found.scores.tolist() == [1, 1, 0]


def test_by_hand():
    """cos 0.6, 0 and -0.8; the largest of the last is 0, not -0.8. ln(0.4 / 0.6) + 0.5 = 0.0945."""
    x = np.array([[1.0, 0.0], [3.0, 4.0], [0.0, -1.0]])
    found = foolsgold(x, [0, 1, 2])
    small = math.log(0.4 / 0.6) + 0.5
    assert found.scores.tolist() == pytest.approx([0.6, 0.6, 0.0])
    assert found.weights.tolist() == pytest.approx([small / (1 + 2 * small)] * 2 + [1 / (1 + 2 * small)])


def test_histories_are_compared_and_handed_back():
    """In each round the two sybils send vectors at a right angle; their sums are one direction."""
    rounds = [np.array([[3.0, 0.0], [0.0, 3.0], [0.0, -1.0]]), np.array([[0.0, 3.0], [3.0, 0.0], [0.0, -1.0]])]
    first = foolsgold(rounds[0], [4, 5, 6])
    assert first.kept == (0, 1, 2)
    second = foolsgold(rounds[1], [4, 5, 6], first.state)
    assert second.kept == (2,)
    assert {client: sums.tolist() for client, sums in second.state.sums.items()} == {
        4: [3.0, 3.0], 5: [3.0, 3.0], 6: [0.0, -2.0]}
    assert first.state.sums[4].tolist() == [3.0, 0.0]               # not changed


def test_a_client_that_is_absent_keeps_its_history():
    first = foolsgold(np.array([[1.0, 0.0], [0.0, 1.0]]), [1, 2])
    second = foolsgold(np.array([[5.0, 5.0]]), [2], first.state)
    assert sorted(second.state.sums) == [1, 2]
    assert second.weights.tolist() == [1.0]


def test_if_all_are_copies_nobody_is_kept():
    x = np.tile(np.random.default_rng(0).standard_normal(50), (4, 1))
    found = foolsgold(x, range(4))
    assert found.kept == ()
    assert not found.aggregate.any()
    assert not found.weights.any()


def test_bad_arguments():
    x = np.ones((2, 2))
    with pytest.raises(ValueError, match=r"^clients are \[1, 1\], expected 2 different ids$"):
        foolsgold(x, [1, 1])
    with pytest.raises(ValueError, match=r"^kappa is 0, expected a number above 0$"):
        foolsgold(x, [1, 2], kappa=0)
    with pytest.raises(ValueError, match=r"^client 2 has a history of shape \(3,\) and an update of \(2,\)$"):
        foolsgold(x, [1, 2], History({2: np.ones(3)}))
