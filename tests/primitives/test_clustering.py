"""Agreement of clusterings, against scikit-learn and against all matchings."""

import math
from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from emul.primitives.clustering import adjusted_rand, matched

PAIRS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30)


@given(PAIRS)
def test_the_adjusted_rand_index_is_that_of_scikit_learn(pairs):
    chosen, truth = zip(*pairs, strict=True)
    assert math.isclose(adjusted_rand(chosen, truth), adjusted_rand_score(truth, chosen), abs_tol=1e-12)


@given(PAIRS)
def test_matched_is_the_best_of_all_renamings(pairs):
    chosen, truth = zip(*pairs, strict=True)
    best = max(sum(names[c] == t for c, t in pairs) for names in permutations(range(4)))
    assert math.isclose(matched(chosen, truth), best / len(pairs))


def test_of_nothing_nothing_is_known():
    assert math.isnan(matched([], []))
    assert math.isnan(adjusted_rand([], []))
