"""Krum, Multi-Krum and Bulyan against loops over their formulas, on whole numbers, where ties are exact."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from emul.base.errors import TooFewClients
from emul.primitives.robust import TooManyByzantine, bulyan, krum, multi_krum
from emul.primitives.robust import aggregation as module
from emul.primitives.robust.distances import squared_distances

WHOLE = st.integers(-3, 3).map(float)
COLUMN = np.array([[0.0], [1.0], [2.0], [3.0], [4.0], [5.0], [100.0]])


@st.composite
def cases(draw, least):
    """(updates, f) with n >= least(f)."""
    f = draw(st.integers(0, 2))
    n = draw(st.integers(least(f), least(f) + 4))
    return draw(arrays(np.float64, (n, draw(st.integers(1, 3))), elements=WHOLE)), f


def slow_scores(x, f):
    """s(i) by the definition; one neighbour at least, as Flower counts."""
    scores = []
    for i in range(len(x)):
        others = sorted(float(((x[i] - x[j]) ** 2).sum()) for j in range(len(x)) if j != i)
        scores.append(sum(others[:max(1, len(x) - f - 2)]))
    return scores


def slow_bulyan(x, f):
    left, chosen = list(range(len(x))), []
    for _ in range(len(x) - 2 * f):
        scores = slow_scores(x[left], f)
        chosen.append(left.pop(scores.index(min(scores))))
    chosen.sort()
    beta = len(x) - 4 * f
    result = []
    for column in x[chosen].T:
        median = float(np.median(column))
        nearest = sorted(range(len(column)), key=lambda i: (abs(column[i] - median), i))[:beta]
        result.append(sum(column[i] for i in sorted(nearest)) / beta)
    return chosen, result


@given(cases(lambda f: 2 * f + 3))
def test_krum_is_the_first_row_of_the_least_score(case):
    x, f = case
    scores = slow_scores(x, f)
    best = scores.index(min(scores))
    found = krum(x, f)
    assert found.scores.tolist() == scores
    assert found.kept == (best,)
    assert found.aggregate.tolist() == x[best].tolist()
    assert found.weights.tolist() == [float(i == best) for i in range(len(x))]


@given(cases(lambda f: 2 * f + 3), st.data())
def test_multi_krum_is_the_mean_of_the_rows_of_least_scores(case, data):
    x, f = case
    m = data.draw(st.integers(1, len(x)))
    best = sorted(range(len(x)), key=lambda i: (slow_scores(x, f)[i], i))[:m]
    found = multi_krum(x, f, m)
    assert found.kept == tuple(sorted(best))
    np.testing.assert_allclose(found.aggregate, x[best].mean(axis=0), atol=1e-15)


@given(cases(lambda f: 4 * f + 3))
def test_bulyan_chooses_by_krum_and_averages_around_the_median(case):
    x, f = case
    chosen, result = slow_bulyan(x, f)
    found = bulyan(x, f)
    assert found.kept == tuple(chosen)
    assert found.aggregate.tolist() == result
    assert found.scores.sum() == pytest.approx(len(x) - 4 * f)      # beta rows a coordinate
    assert [i for i in range(len(x)) if found.scores[i] > 0 and i not in chosen] == []


def test_krum_by_hand():
    """Rows 1 and 3 are the same and closest; the first wins, as by argmin in Flower's `aggregate_krum`."""
    found = krum(np.array([[0.0], [0.1], [0.2], [0.1], [9.0]], np.float32), f=1)
    assert found.kept == (1,)
    assert found.aggregate.tolist() == [np.float32(0.1)]
    assert found.scores[:4].tolist() == pytest.approx([0.02, 0.01, 0.02, 0.01])
    assert found.why == "sum of the squared distances to the 2 nearest others; the 1 least are kept"


def test_scores_are_squared_distances_as_in_the_paper_and_in_flower():
    """Blades sums their squares: it would find 1 + 1 + 36^2 + 49^2."""
    x = np.array([[0.0], [1.0], [-1.0], [7.0], [-7.0], [6.0], [30.0]])
    assert krum(x, f=1).scores[0] == 1 + 1 + 36 + 49


def test_multi_krum_by_hand():
    x = np.array([[0.0], [1.0], [2.0], [3.0], [100.0]])           # scores 5, 2, 2, 5, 97^2 + 98^2
    assert multi_krum(x, f=1).kept == (1, 2)                       # m = n - f - 2 = 2
    assert multi_krum(x, f=1).aggregate.tolist() == [1.5]
    assert multi_krum(x, f=1, m=3).kept == (0, 1, 2)               # of rows 0 and 3, the first


def test_bulyan_by_hand():
    """n = 7, f = 1: Krum takes 2, 3, 1, 4, 0 in this order, five of them; the three around their median 2 are left."""
    found = bulyan(COLUMN, f=1)
    assert found.kept == (0, 1, 2, 3, 4)
    assert found.aggregate.tolist() == [2.0]
    assert found.scores.tolist() == [0, 1, 1, 1, 0, 0, 0]


def test_too_many_malicious_are_an_outcome_that_says_how_many_updates_it_takes():
    text = "krum with f = 3 needs n >= 2f + 3 = 9 updates, n is 7"
    with pytest.raises(TooManyByzantine, match=f"^{re.escape(text)}$"):
        krum(COLUMN, f=3)
    with pytest.raises(TooManyByzantine, match=re.escape("bulyan with f = 2 needs n >= 4f + 3 = 11 updates")):
        bulyan(COLUMN, f=2)
    assert krum(COLUMN, f=4, unproven=True).kept == (0,)           # the nearest one alone: five rows score 1
    with pytest.raises(TooManyByzantine, match=re.escape("krum with f = 5 needs n >= f + 3 = 8 updates")):
        krum(COLUMN, f=5, unproven=True)


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match=r"^f is -1, expected at least 0$"):
        krum(COLUMN, f=-1)
    with pytest.raises(ValueError, match=r"^m is 8, expected 1\.\.7 of the 7 updates$"):
        multi_krum(COLUMN, f=1, m=8)
    with pytest.raises(TooFewClients, match=r"^0 updates to aggregate, expected at least 1$"):
        krum([], f=0)
    with pytest.raises(ValueError, match=r"^update 2 has shape \(2,\), expected a vector as long as the first"):
        krum([np.ones(3), np.ones(3), np.ones(2)], f=0)
    with pytest.raises(ValueError, match=r"^update 1 holds values that are not finite or above 1e\+150$"):
        krum(np.array([[1.0], [np.nan], [2.0]], np.float32), f=0)


def test_distances_survive_a_large_common_part_and_are_zero_between_copies(monkeypatch):
    """Sums of squares of 10^6 lose all digits of differences of 10^-3; colluders send the same to the bit."""
    rng = np.random.default_rng(0)
    x = 1e6 + 1e-3 * rng.standard_normal((6, 500))
    x[3] = x[1]
    exact = np.array([[((a - b) ** 2).sum() for b in x] for a in x])
    for width in (1 << 20, 100):                                    # 100 values: 16 columns at a time
        monkeypatch.setattr(module, "CHUNK_VALUES", width)
        found = squared_distances(list(x))
        np.testing.assert_allclose(found, exact, rtol=1e-10)
        assert found[3, 1] == found[1, 3] == 0
        assert (found == found.T).all()


def test_a_list_of_vectors_and_their_array_are_the_same():
    x = np.random.default_rng(1).standard_normal((9, 40)).astype(np.float32)
    for rule in (krum, multi_krum, bulyan):
        one, other = rule(x, f=1), rule(list(x), f=1)
        assert one.aggregate.tobytes() == other.aggregate.tobytes()
        assert one.kept == other.kept
        assert one.aggregate.dtype == np.float64
