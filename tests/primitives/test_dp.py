"""MP-DP's noise and its accounting against closed forms, printed numbers and dp-accounting."""

from __future__ import annotations

import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from emul.primitives import dp
from emul.primitives.dp import graph, laws
from emul.primitives.privacy import ldp

N = 200_000


def rng() -> np.random.Generator:
    return np.random.default_rng(5)


@pytest.mark.parametrize("scale", [
    lambda r: laws.chi3(r, N),
    lambda r: laws.duplicated_row(r, N) * laws.duplicated_column(r, N),
    lambda r: laws.series(r, N) * laws.series(r, N)], ids=["chi3", "pair", "series"])
def test_check_1_scale_times_uniform_noise_is_gaussian(scale) -> None:
    r = rng()
    product = scale(r) * laws.uniform_noise(r, N, 2.0)
    assert stats.kstest(product, stats.norm(scale=2.0).cdf).pvalue > 1e-3
    assert product.var() == pytest.approx(4.0, rel=0.01)


def test_check_1_the_cut_series_loses_variance() -> None:
    r = rng()
    product = np.ones(N)
    for _ in range(2):
        product *= laws.series(r, N, terms=10, tail=False)
    assert (product**2).mean() / 1.5 == pytest.approx(11 / 11.5, abs=0.01)


def test_check_2_the_laws_of_order_one() -> None:
    wide = math.sqrt(2) * 3.0
    assert stats.kstest(laws.uniform_noise(rng(), N, 3.0), stats.uniform(-wide, 2 * wide).cdf).pvalue > 1e-3
    assert stats.kstest(laws.chi3(rng(), N), stats.chi(3, scale=math.sqrt(0.5)).cdf).pvalue > 1e-3
    narrow = laws.log_uniform(rng(), N, 1.5, 2)
    assert 1.5**-0.5 <= narrow.min() < 0.8170 < 1.2240 < narrow.max() <= 1.5**0.5


@pytest.mark.parametrize(("eps", "sigma"), [
    (0.5, 7.0318), (1, 3.7306), (2, 1.9938), (3, 1.3906), (5, 0.8919), (8, 0.6002)])
def test_check_9_noise_that_a_guarantee_needs(eps: float, sigma: float) -> None:
    found = dp.sigma_over_sensitivity(eps, 1e-5)
    assert found == pytest.approx(sigma, rel=1e-4)
    assert found == pytest.approx(dp_accounting.get_sigma_gaussian(eps, 1e-5), rel=1e-5)


def test_check_9_theta_of_a_complete_graph_has_a_closed_form() -> None:
    def closed(K: int, eta: float, delta: float) -> float:
        return 1 / (K * eta**2) + (1 - 1 / K) / (eta**2 + K * delta**2)

    for K, eta, delta in ((5, 0.7, 2.0), (20, 0.3, 0.1), (100, 0.16, 5.0)):
        assert dp.theta(dp.complete(range(K)), range(K), eta, delta) == pytest.approx(closed(K, eta, delta), rel=1e-10)
    assert dp.theta(dp.complete(range(100)), range(100), 0.16, 5.0) == pytest.approx(0.39102, abs=1e-5)


@pytest.mark.parametrize(("eps", "K", "x", "wanted"), [
    (1, 5, 1.01, 10.60), (1, 5, 1.05, 4.83), (1, 5, 1.10, 3.49), (1, 100, 1.01, 2.64), (1, 100, 1.05, 1.22),
    (1, 100, 1.10, 0.89),
    (3, 5, 1.01, 3.95), (3, 5, 1.05, 1.80), (3, 5, 1.10, 1.30), (3, 100, 1.01, 0.986), (3, 100, 1.05, 0.454),
    (3, 100, 1.10, 0.332)])
def test_check_9_pairwise_noise_of_a_complete_graph(eps: float, K: int, x: float, wanted: float) -> None:
    eta = x * dp.sigma_over_sensitivity(eps, 1e-5) / math.sqrt(K)
    found = dp.sigma_pairwise(dp.complete(range(K)), range(K), eta, dp.largest_mu(eps, 1e-5))
    assert found == pytest.approx(wanted, rel=0.01)


def test_check_9_own_noise_that_is_too_little_is_refused() -> None:
    with pytest.raises(ValueError, match="with perfect masks theta is"):
        dp.sigma_pairwise(dp.complete(range(5)), range(5), 0.1, dp.largest_mu(3, 1e-5))


def test_check_10_rounds_compose() -> None:
    hundred = ldp.composed([1 / 1.3906] * 100)
    assert ldp.epsilon(1e-5, hundred) == pytest.approx(55.74, abs=0.05)
    assert ldp.epsilon(1e-5, ldp.composed([1 / 13.906] * 100)) == pytest.approx(3.0, abs=0.005)
    assert dp.sigma_over_sensitivity(3, 1e-5, rounds=100) == pytest.approx(13.906, rel=1e-4)
    accountant = pld.from_gaussian_mechanism(13.906).self_compose(100)
    assert accountant.get_epsilon_for_delta(1e-5) == pytest.approx(3.0, abs=0.01)


def test_a_graph_is_connected_and_has_the_mean_degree() -> None:
    edges = dp.n_out(range(100), 5, rng())
    assert len(dp.components(edges, range(100))) == 1
    assert 2 * len(edges) / 100 == pytest.approx(10 - 25 / 99, abs=0.6)
    assert dp.n_out(range(4), 5, rng()) == dp.complete(range(4))
    degrees = {client: len(others) for client, others in graph.neighbours(edges, range(100)).items()}
    assert np.diag(dp.laplacian(edges, range(100))).tolist() == [degrees[client] for client in range(100)]
    with pytest.raises(ValueError, match="fell apart"):
        dp.n_out(range(400), 1, rng(), tries=1)


@given(st.integers(2, 8), st.floats(0.1, 5), st.floats(0, 5), st.integers(0, 2**32 - 1))
def test_a_graph_protects_no_more_than_its_components_sums_and_no_less_than_own_noise(
        K: int, eta: float, delta: float, seed: int) -> None:
    draw = np.random.default_rng(seed)
    edges = frozenset(edge for edge in dp.complete(range(K)) if draw.random() < 0.5)
    found = dp.theta(edges, range(K), eta, delta)
    assert dp.theta(edges, range(K), eta, math.inf) * (1 - 1e-9) <= found <= 1 / eta**2 * (1 + 1e-9)


def test_who_is_lost_leaves_a_thinner_graph() -> None:
    whole = dp.theta(dp.complete(range(10)), range(10), 0.5, 5.0)
    left = dp.theta(dp.complete(range(10)), range(8), 0.5, 5.0)
    assert left == pytest.approx(whole * 10 / 8, rel=0.01)


def test_one_sampled_round_is_the_integral_of_its_two_densities() -> None:
    """Hockey-stick divergence of (1 - q) N(0, s^2) + q N(1, s^2) from N(0, s^2), both ways, by quadrature."""
    sigma, rate, delta = 1.39, 0.1, 1e-5
    x = np.linspace(-30, 30, 600_001)
    without = stats.norm.pdf(x, 0, sigma)
    with_ = (1 - rate) * without + rate * stats.norm.pdf(x, 1, sigma)
    found = dp.sampled_epsilon(sigma, rate, 1, delta)

    def divergence(eps: float) -> float:
        return max(np.trapezoid(np.maximum(a - math.exp(eps) * b, 0), x)
                   for a, b in ((with_, without), (without, with_)))

    assert divergence(found) <= delta * (1 + 1e-6)
    assert divergence(found - 5e-3) > delta
    in_full = dp.sampled_epsilon(sigma, 1.0, 10, delta)
    assert in_full == pytest.approx(ldp.epsilon(delta, math.sqrt(10) / sigma), abs=0.02)
