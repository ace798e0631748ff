import re

import numpy as np
import pytest

from emul.primitives.codes.secure_keys import covariance, fair_cyclic, is_correct, is_fair, is_secure, pairwise


def test_seccogc_check_4_printed_example():
    assert fair_cyclic(5, 2, 6**0.5) == pytest.approx(np.array(
        [[-2, 1, 1, 0, 0], [0, -2, 1, 1, 0], [0, 0, -2, 1, 1], [1, 0, 0, -2, 1], [1, 1, 0, 0, -2]]), abs=1e-12)


def test_seccogc_check_5_correct_secure_and_fair_for_every_gamma():
    for K in range(2, 31):
        for gamma in range(1, K):
            A = fair_cyclic(K, gamma, 0.7)
            assert np.abs(A.sum(axis=0)).max() <= 1e-12
            assert np.linalg.norm(A, axis=1) == pytest.approx(0.7, rel=1e-12)
            assert np.linalg.matrix_rank(A, tol=1e-9) == K - 1
            assert is_correct(A)
            assert is_fair(A, 0.7)
            if gamma in (1, K // 2, K - 1):
                assert is_secure(A)


def test_seccogc_check_6_default_gamma_and_pairwise_have_one_covariance():
    A = fair_cyclic(10, 9, 0.1)
    assert np.diag(A) == pytest.approx(-0.0948683, abs=5e-8)
    assert A[0, 1:] == pytest.approx(0.0105409, abs=5e-8)
    Sigma = covariance(A)
    off_diagonal = Sigma[~np.eye(10, dtype=bool)]
    assert off_diagonal == pytest.approx(-1 / 900, abs=1e-15)
    assert np.abs(covariance(pairwise(10, 0.1)) - Sigma).max() <= 1e-15


@pytest.mark.parametrize("K", [2, 3, 7, 20])
def test_pairwise_is_correct_secure_and_fair(K):
    A = pairwise(K, 0.3)
    assert A.shape == (K, K * (K - 1) // 2)
    assert is_correct(A)
    assert is_secure(A)
    assert is_fair(A, 0.3)


def test_the_checks_refuse_what_they_should():
    A = fair_cyclic(6, 2, 1.0)
    changed = A.copy()
    changed[0, 0] += 1e-9
    assert not is_correct(changed)
    assert not is_fair(changed, 1.0)
    assert not is_fair(A, 1.1)
    offset_2_only = np.roll(np.eye(6), 2, axis=1) - np.eye(6)       # two separate sums are free of noise
    assert is_correct(offset_2_only)
    assert np.linalg.matrix_rank(offset_2_only) == 4
    assert not is_secure(offset_2_only)
    assert not is_secure(np.eye(6))                                  # rank K: the sum keeps noise


def test_smallest_eigenvalues_of_the_covariance_by_gamma():
    for gamma, smallest in [(1, 0.191), (2, 0.524), (3, 0.877), (5, 0.833), (9, 1.111)]:
        assert np.linalg.eigvalsh(covariance(fair_cyclic(10, gamma, 1.0)))[1] == pytest.approx(smallest, abs=5e-4)


@pytest.mark.parametrize(("make", "text"), [
    (lambda: fair_cyclic(5, 5, 1.0), "gamma is 5, expected 1..4 for K = 5"),
    (lambda: fair_cyclic(5, 0, 1.0), "gamma is 0, expected 1..4 for K = 5"),
    (lambda: fair_cyclic(1, 1, 1.0), "K is 1, expected at least 2 clients"),
    (lambda: fair_cyclic(5, 1, 0.0), "lambda is 0.0, expected a number above 0"),
    (lambda: pairwise(1, 1.0), "K is 1, expected at least 2 clients"),
])
def test_bad_parameters_are_refused(make, text):
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        make()
