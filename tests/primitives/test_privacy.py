"""Privacy of masked updates: published values, sampling, enumeration (spec checks 13, 14, 15)."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emul.primitives.privacy import ldp, lmip
from emul.primitives.privacy.patterns import link_patterns
from emul.schemes.fair_seccogc.gradient_coding import cyclic_mds
from emul.schemes.fair_seccogc.secure_keys import covariance, fair_cyclic, pairwise

G = cyclic_mds(10, 7)
UNIT = G / np.linalg.norm(G, axis=1, keepdims=True)
UP = np.ones(10)
HEARS = np.where(np.eye(10) > 0, 1.0, 0.9)


def sigma(gamma: int, lambda_: float = 1.0) -> np.ndarray:
    return covariance(fair_cyclic(10, gamma, lambda_))


# --- LMIP (check 13) ------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("gamma", "one_sum", "server", "one", "everybody"), [
    (9, 0.14720, 0.15623, 0.5045, 0.5480), (1, 0.19911, 0.2250, 0.6112, 0.7250)])
def test_seccogc_check_13_bits_a_coordinate(gamma, one_sum, server, one, everybody):
    A, S = fair_cyclic(10, gamma, 1.0), sigma(gamma)
    assert 0.9 * lmip.message(1.0, 1.0) == pytest.approx(0.45)
    assert lmip.partial_sum(UNIT[0], S, 1.0, 3, UP) == pytest.approx(one_sum, abs=1e-5)
    assert lmip.leak(UNIT, S, 1.0, 3) == pytest.approx(server, abs=1e-4)
    assert lmip.leak(G, S, 1.0, 3) == pytest.approx(lmip.leak(UNIT, S, 1.0, 3))     # the scale of a row says nothing
    assert lmip.peer_leak(A, 0, [1], 1, 1.0, "key") == pytest.approx(one, abs=1e-4)
    assert lmip.peer_leak(A, 0, range(1, 10), 1, 1.0, "key") == pytest.approx(everybody, abs=1e-4)


def test_seccogc_check_13_pairwise_keys_tell_a_peer_more():
    A = pairwise(10, 1.0)
    assert lmip.peer_leak(A, 0, [3], 3, 1.0, "components") == pytest.approx(0.5437, abs=1e-4)
    assert lmip.peer_leak(A, 0, range(1, 10), 3, 1.0, "components") == pytest.approx(0.5850, abs=1e-4)
    assert lmip.peer_leak(A, 0, [3], 3, 1.0, "everything") == math.inf
    assert np.diag(lmip.peer_view(A, 0, "components"))[1:] == pytest.approx([8 / 9] * 9)
    assert lmip.peer_view(A, 0, "components")[1, 2] == pytest.approx(-1 / 9)
    assert np.diag(lmip.peer_view(fair_cyclic(10, 9, 1.0), 0, "key"))[1:] == pytest.approx([1 - 1 / 81] * 9)


@pytest.mark.parametrize(("gamma", "left"), [(1, 0.5), (2, 1 / 6), (4, 0.05), (9, 0.0)])
def test_seeds_of_components_leave_a_neighbour_little_noise(gamma, left):
    """Client k - 1 knows all of N_k but one component: lambda^2 / (gamma^2 + gamma) is left."""
    view = lmip.peer_view(fair_cyclic(10, gamma, 1.0), 2, "components")
    assert view[3, 3] == pytest.approx(left, abs=1e-12)


def test_seccogc_check_13_limits():
    def at(lambda_):
        A = fair_cyclic(10, 9, lambda_)
        return (lmip.partial_sum(UNIT[0], covariance(A), 1.0, 3, UP), lmip.leak(G, covariance(A), 1.0, 3),
                lmip.peer_leak(A, 0, range(1, 10), 3, 1.0, "key"))
    assert at(1000.0)[0] == pytest.approx(4.7e-7, rel=0.02)
    assert at(1e4) == (pytest.approx(0.0, abs=1e-7), pytest.approx(0.0760, abs=1e-4), pytest.approx(0.0850, abs=1e-4))
    assert lmip.exact_mean(10) == pytest.approx(0.0760, abs=1e-4)
    assert lmip.partial_sum(UNIT[0], sigma(9), 1.0, 3, np.where(np.arange(10) == 3, 0.0, 1.0)) == 0.0
    assert lmip.leak(np.zeros((0, 10)), sigma(9), 1.0, 3) == 0.0
    assert lmip.leak(np.eye(10)[[3]], np.zeros((10, 10)), 1.0, 3) == math.inf          # no key: the update itself
    assert lmip.message(1.0, 0.0) == math.inf


def test_seccogc_check_13_by_regression_of_samples():
    rng, n = np.random.default_rng(1), 400_000
    updates = rng.standard_normal((10, n))
    seen = UNIT[0] @ (updates + fair_cyclic(10, 9, 1.0) @ rng.standard_normal((10, n)))
    correlation = np.corrcoef(updates[3], seen)[0, 1]
    assert -0.5 * math.log2(1 - correlation**2) == pytest.approx(0.1472, abs=0.002)


def test_dependent_rows_tell_nothing_twice():
    S = sigma(2)
    rows = UNIT[:3]
    assert lmip.leak(np.vstack([rows, rows.sum(axis=0)]), S, 1.0, 1) == pytest.approx(lmip.leak(rows, S, 1.0, 1))
    assert lmip.leak(np.vstack([rows, UNIT[3:5]]), S, 1.0, 1) == pytest.approx(lmip.leak(UNIT, S, 1.0, 1))     # rank 3


def test_a_partial_sums_mean_leak_is_that_over_all_patterns():
    S = sigma(9)
    expected = 0.0
    for pattern in product([0.0, 1.0], repeat=7):
        heard = np.array([1.0, *pattern, 0.0, 0.0])
        p = math.prod(0.9 if x else 0.1 for x in pattern)
        expected += p * lmip.leak((UNIT[0] * heard)[None], S, 1.0, 3)
    assert lmip.mean_partial_sum(UNIT[0], S, 1.0, 3, HEARS[0].tolist()) == pytest.approx(expected, rel=1e-9)


def test_what_a_server_learns_without_and_with_incomplete_sums():
    """Mean leak at the server in bits, gamma = 9: 0.156 after a success without them, 0.308 with them."""
    rng, with_all, without = np.random.default_rng(5), [], []
    for _ in range(300):
        heard = (rng.random((10, 10)) < HEARS) & (G != 0)
        up = rng.random(10) < 0.7
        complete = up & (heard == (G != 0)).all(axis=1)
        if complete.sum() >= 3:
            with_all.append(lmip.leak((G * heard)[up], sigma(9), 1.0, 3))
            without.append(lmip.leak(G[complete], sigma(9), 1.0, 3))
    assert np.mean(without) == pytest.approx(0.156, abs=1e-3)
    assert np.mean(with_all) == pytest.approx(0.308, abs=0.02)


# --- LDP (checks 14, 15) --------------------------------------------------------------------------------------------

def test_seccogc_check_14_exact_gaussian_mechanism():
    found = [ldp.epsilon(1e-5, mu) for mu in (0.1, 0.5, 1, 2, 5, 10, 20)]
    assert found == pytest.approx([0.3407, 1.9931, 4.3772, 9.9973, 33.104, 91.817, 284.39], rel=1e-4)
    assert ldp.epsilon(1e-5, ldp.peer_mu(0.5, 0.1)) == pytest.approx(91.82, abs=5e-3)
    assert ldp.epsilon(1e-5, ldp.peer_mu(0.5, 0.05)) == pytest.approx(284.39, abs=5e-3)


@pytest.mark.parametrize(("gamma", "eps", "noise"), [(9, 68.14, 0.00406605), (1, 268.29, 0.00143797)])
def test_seccogc_checks_14_and_15_relay(gamma, eps, noise):
    S = sigma(gamma, 0.1)
    mixture = ldp.relay_mixture(UNIT[0], S, HEARS[0].tolist(), 3, 0.5)
    assert len(mixture) == 64
    assert sum(p for p, _ in mixture) == pytest.approx(0.9)
    assert ldp.mixture_epsilon(1e-5, mixture) == pytest.approx(eps, abs=5e-3)
    by_enumeration = sum(p * float((UNIT[0] * h) @ S @ (UNIT[0] * h))
                         for p, h in link_patterns(UNIT[0], HEARS[0].tolist()))
    assert by_enumeration == pytest.approx(noise, abs=5e-9)


def test_an_exact_sum_is_never_private_and_sums_that_do_not_decode_may_be():
    S = sigma(9, 0.1)
    assert ldp.joint_mu(G, S, 3, 0.5) == math.inf
    # two sums that do not decode: what they tell together is more than each alone
    joint = ldp.joint_mu(G[:2], S, 3, 0.5)
    alone = [2 * 0.5 * abs(row[3]) / math.sqrt(row @ S @ row) for row in G[:2]]
    assert joint >= max(alone) * (1 - 1e-9)
    assert math.isfinite(joint)
    assert ldp.mixture_epsilon(1e-5, [(0.5, math.inf), (0.5, 1.0)]) == math.inf


def test_one_masked_message_seen_jointly_is_the_plain_mechanism():
    assert ldp.joint_mu(np.eye(10)[[3]], sigma(9, 0.1), 3, 0.5) == pytest.approx(ldp.peer_mu(0.5, 0.1))


@given(st.floats(0.01, 50), st.floats(0, 300), st.floats(1e-9, 0.1))
def test_delta_is_a_probability_that_falls_with_eps_and_epsilon_inverts_it(mu, eps, delta):
    assert 0 <= ldp.delta(eps + 1, mu) <= ldp.delta(eps, mu) <= 1
    found = ldp.epsilon(delta, mu)
    assert ldp.delta(found, mu) <= delta * (1 + 1e-6)
    if found > 1e-6:
        assert ldp.delta(found * (1 - 1e-6), mu) >= delta * (1 - 1e-3)


def test_the_logarithm_of_the_normal_distribution_goes_on_where_floats_end():
    assert ldp.log_normal_cdf(0.0) == pytest.approx(math.log(0.5))
    for x in (-19.999, -20.001):
        assert ldp.log_normal_cdf(x) == pytest.approx(-203.917155, abs=0.03)
    assert ldp.log_normal_cdf(-19.9999999) == pytest.approx(ldp.log_normal_cdf(-20.0000001), rel=1e-7)
    assert ldp.log_normal_cdf(-100.0) == pytest.approx(-5005.524209, abs=1e-5)


def test_rounds_compose_by_the_sum_of_squares():
    assert ldp.composed([3.0, 4.0]) == 5.0
    assert ldp.composed([1.0] * 9) == 3.0


def test_many_uncertain_links_are_sampled_the_same_in_every_call():
    row, connected = np.ones(30), [1.0] + [0.5] * 29
    first, again = (list(link_patterns(row, connected)) for _ in range(2))
    assert sum(p for p, _ in first) == pytest.approx(1.0)
    assert all(np.array_equal(a, b) for (_, a), (_, b) in zip(first, again, strict=True))
    assert np.mean([h.sum() for _, h in first]) == pytest.approx(15.5, abs=0.2)
    assert list(link_patterns(np.array([1.0, 0.0]), [1.0, 1.0], forced=1)) == []
