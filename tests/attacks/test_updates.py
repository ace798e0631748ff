"""Attacks on updates against their papers' formulas."""

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from emul.attacks.updates import Alie, Gaussian, Ipm, Known, MinMax, MinSum, Scale, SignFlip, largest_gamma, z_max
from emul.registry import attacks

RNG = np.random.default_rng(0)
UPDATES = arrays(np.float32, st.tuples(st.integers(2, 8), st.integers(1, 12)), elements=st.floats(-8, 8, width=32))


def known(honest, attackers=1, n=10, m=4):
    """Honest updates, after those of the attackers, which are far away and must not count."""
    far = np.full((attackers, honest.shape[1]), 1e6, np.float32)
    return Known(np.concatenate([far, honest]), np.arange(attackers + len(honest)) < attackers, n, m)


def test_signs_are_turned_and_updates_scaled():
    own = np.array([1, -2, 0.5], np.float32)
    knows = known(own[None], n=10, m=4)
    assert SignFlip()(own, RNG, knows).tolist() == [-1, 2, -0.5]
    assert SignFlip(4)(own, RNG, knows).tolist() == [-4, 8, -2]
    assert Scale(3)(own, RNG, knows).tolist() == [3, -6, 1.5]
    np.testing.assert_allclose(Scale()(own, RNG, knows), 2.5 * own)


def test_scaled_attackers_together_replace_the_mean():
    own = np.arange(5, dtype=np.float32)
    sent = Scale()(own, RNG, known(own[None], n=10, m=4))
    np.testing.assert_allclose((4 * sent + 6 * np.zeros(5)) / 10, own)


def test_gaussian_has_nothing_of_the_update():
    own = np.full(50_000, 7.0, np.float32)
    found = Gaussian(3.0)(own, np.random.default_rng(1), known(own[None]))
    assert found.dtype == np.float32
    assert abs(found.mean()) < 0.1
    assert found.std() == pytest.approx(3.0, rel=0.02)


@given(st.integers(3, 200), st.data())
def test_z_leaves_s_honest_nodes_on_the_attackers_side(n, data):
    m = data.draw(st.integers(1, max(1, (n - 1) // 2)))
    s = n // 2 + 1 - m
    if (n - m - s) / (n - m) > 0.5:
        assert NormalDist().cdf(z_max(n, m)) == pytest.approx(min((n - m - s) / (n - m), 0.999))
    else:
        assert z_max(n, m) == 0
    assert 3 < z_max(10, 6) < 3.2                           # a majority needs no honest node


@given(UPDATES, st.floats(0, 3))
@settings(max_examples=40)
def test_alie_is_the_mean_less_z_deviations_of_the_honest(honest, z):
    found = Alie(z)(honest[0], RNG, known(honest))
    for j in range(honest.shape[1]):
        column = [float(v) for v in honest[:, j]]
        mean = math.fsum(column) / len(column)
        std = math.sqrt(math.fsum((v - mean) ** 2 for v in column) / len(column))
        assert found[j] == pytest.approx(mean - z * std, abs=1e-4)


@given(UPDATES, st.floats(0.01, 10))
@settings(max_examples=40)
def test_ipm_turns_the_inner_product_with_the_honest_mean(honest, epsilon):
    found, mean = Ipm(epsilon)(honest[0], RNG, known(honest)), honest.astype(np.float64).mean(0)
    np.testing.assert_allclose(found, -epsilon * mean, rtol=1e-4, atol=1e-4)
    assert found @ mean <= 1e-6


@given(UPDATES, st.sampled_from(["std", "unit", "sign"]))
@settings(max_examples=60)
def test_min_max_is_as_far_as_the_honest_are_from_each_other_and_no_further(honest, direction):
    knows = known(honest)
    found = MinMax(direction)(honest[0], RNG, knows).astype(np.float64)
    rows = honest.astype(np.float64)
    diameter = max(np.linalg.norm(a - b) for a in rows for b in rows)
    assert max(np.linalg.norm(found - g) for g in rows) <= diameter * (1 + 1e-4) + 1e-4
    mean = rows.mean(0)
    p = {"std": -rows.std(0), "unit": -mean / max(np.linalg.norm(mean), 1e-12), "sign": -np.sign(mean)}[direction]
    if np.linalg.norm(p) > 1e-3:
        further = mean + (largest_gamma(rows, mean, p) + 0.01) * p
        assert max(np.linalg.norm(further - g) for g in rows) > diameter


def test_gamma_agrees_with_the_papers_halving_search():
    rows = np.random.default_rng(3).normal(0, 1, (6, 20))
    mean, p = rows.mean(0), -rows.std(0)
    diameter = max(np.linalg.norm(a - b) for a in rows for b in rows)
    low, high = 0.0, 100.0
    for _ in range(80):
        gamma = (low + high) / 2
        if max(np.linalg.norm(mean + gamma * p - g) for g in rows) <= diameter:
            low = gamma
        else:
            high = gamma
    assert largest_gamma(rows, mean, p) == pytest.approx(low, rel=1e-9)


@given(arrays(np.float64, st.tuples(st.integers(2, 7), st.integers(1, 9)), elements=st.integers(-8, 8).map(float)),
       st.sampled_from(["std", "unit", "sign"]))
@settings(max_examples=60)
def test_min_sum_goes_as_far_as_the_papers_halving_search(honest, direction):
    mean = honest.mean(0)
    p = {"std": -honest.std(0), "unit": -mean / max(np.linalg.norm(mean), 1e-12), "sign": -np.sign(mean)}[direction]
    most = max(sum(np.linalg.norm(a - b) ** 2 for b in honest) for a in honest)
    low, high = 0.0, 1e5
    for _ in range(100 if p.any() else 0):
        gamma = (low + high) / 2
        if sum(np.linalg.norm(mean + gamma * p - g) ** 2 for g in honest) <= most:
            low = gamma
        else:
            high = gamma
    found = MinSum(direction)(honest[0].astype(np.float32), RNG, known(honest.astype(np.float32)))
    np.testing.assert_allclose(found, mean + low * p, atol=1e-4)


def test_attackers_that_know_only_each_other_go_by_their_own_updates():
    own = np.array([[1, 2], [3, 4]], np.float32)
    knows = Known(own, np.array([True, True]), 5, 2)
    np.testing.assert_allclose(Ipm(1.0)(own[0], RNG, knows), [-2, -3])
    np.testing.assert_allclose(Alie(1.0)(own[0], RNG, knows), [1, 2])


@pytest.mark.parametrize("attack", [Gaussian, Ipm])
def test_parameters_that_make_no_sense_are_refused(attack):
    with pytest.raises(ValueError, match="expected a number above 0"):
        attack(-1.0)


def test_attacks_of_a_plug_in_are_found_and_made(tmp_path, monkeypatch):
    (tmp_path / "my_attacks.py").write_text(
        "def zero(own, rng, knows):\n    return 0 * own\nATTACKS = {'update': {'zero': zero}}\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert "zero" in attacks.known("update", ["my_attacks"])
    assert "zero" not in attacks.known("data", ["my_attacks"])
    attack = attacks.make(attacks.Planned("update", "zero"), ["my_attacks"])
    assert attack(np.ones(2), RNG, None).tolist() == [0, 0]
    assert attacks.make(attacks.Planned("update", "scale", {"factor": 2.0})) == Scale(2.0)


def test_a_plan_holds_in_its_rounds():
    plan = attacks.Planned("update", "alie", {}, 3, 5)
    assert [plan.holds(t) for t in (0, 1, 2, 3, 5, 6)] == [False, False, False, True, True, False]
    assert all(attacks.Planned("update", "alie").holds(t) for t in (0, 1, 10**6))
