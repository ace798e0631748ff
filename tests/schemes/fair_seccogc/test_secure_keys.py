import re

import numpy as np
import pytest

from emul.schemes.fair_seccogc import secure_keys
from emul.schemes.fair_seccogc.secure_keys import (
    NoSuchKeys,
    covariance,
    fair_cyclic,
    fair_general,
    fair_projection,
    is_correct,
    is_fair,
    is_secure,
    pairwise,
    random_rows,
    require,
)


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


# --- Constructions III.1 and IV.1, and the projection ---------------------------------------------------------------

def test_seccogc_check_7_the_last_key_of_construction_III_1_has_nine_times_the_power():
    rng, ratios = np.random.default_rng(0), []
    for _ in range(2000):
        A = random_rows(10, 0.5, rng, 10)
        power = (A * A).sum(axis=1)
        ratios.append(power[-1] / power[:-1].mean())
        assert is_correct(A)
    assert np.mean(ratios) == pytest.approx(9.0, abs=0.35)
    assert is_secure(A)
    assert not is_fair(A, 0.5)
    assert require(A) is A
    with pytest.raises(NoSuchKeys, match=r"^the key generator matrix is not fair \(its rows have not norm 0\.5\)$"):
        require(A, 0.5)


@pytest.mark.parametrize("K", [2, 3, 5, 10, 20])
def test_seccogc_check_8_construction_IV_1(K):
    for seed in range(20):
        A = fair_general(K, 0.3, np.random.default_rng(seed))
        assert np.abs(A.sum(axis=0)).max() <= 1e-12 * 0.3
        assert np.abs((A * A).sum(axis=1) - 0.09).max() <= 1e-12 * 0.09
        assert is_secure(A)
    if K > 2:
        free = ~(np.eye(K, dtype=bool) | np.roll(np.eye(K, dtype=bool), 1, axis=1))
        assert np.abs(A[free]).min() > 0


def test_seccogc_check_8_is_solved_in_20_starts(monkeypatch):
    monkeypatch.setattr(secure_keys, "MAX_REDRAWS", 1)
    for seed in range(100):
        require(fair_general(10, 1.0, np.random.default_rng(seed)), 1.0)


def test_construction_IV_1_gives_up_where_there_is_no_solution(monkeypatch):
    monkeypatch.setattr(secure_keys, "MAX_REDRAWS", 1)
    monkeypatch.setattr(secure_keys, "MAX_STARTS", 2)
    with pytest.raises(NoSuchKeys, match=r"^no keys of Construction IV\.1 found for K = 20, free power 0\.9 lambda\^2"):
        fair_general(20, 1.0, np.random.default_rng(1), free_power=0.9)


def test_seccogc_check_8_the_projection_always_converges():
    for K in [*range(2, 31), 50, 100]:
        for seed in range(3 if K <= 30 else 1):
            A = fair_projection(K, 0.1, np.random.default_rng(seed))
            assert np.abs(A.sum(axis=0)).max() <= 1e-13 * 0.1 * 1.01
            assert require(A, 0.1) is A


def test_a_matrix_that_breaks_every_condition_is_named():
    text = ("the key generator matrix is not correct (its columns do not sum to 0), not secure (its rank is not 2), "
            "not fair (its rows have not norm 2.0)")
    with pytest.raises(NoSuchKeys, match=f"^{re.escape(text)}$"):
        require(np.eye(3), 2.0)


@pytest.mark.parametrize(("make", "error", "text"), [
    (lambda rng: random_rows(5, 1.0, rng, 3), NoSuchKeys, "L is 3, expected at least K - 1 = 4 columns: the rank must "
                                                          "be K - 1"),
    (lambda rng: random_rows(1, 1.0, rng), ValueError, "K is 1, expected at least 2 clients"),
    (lambda rng: fair_general(5, 1.0, rng, 1.0), ValueError, "free_power is 1.0, expected a number in [0, 1)"),
    (lambda rng: fair_projection(5, -1.0, rng), ValueError, "lambda is -1.0, expected a number above 0")])
def test_bad_parameters_of_random_constructions_are_refused(make, error, text):
    with pytest.raises(error, match=f"^{re.escape(text)}$"):
        make(np.random.default_rng(0))
