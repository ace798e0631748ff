"""Weights of prototypes by cosine, in the clear: the oracle that encrypted computation is compared with."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emul.schemes.ppfpl.decisions import WeightRule, aligned, aligned_classes, cosine_quantiles, excess, weight_of


def at_cosines(*cosines: float, n: int = 6) -> dict[int, np.ndarray]:
    """Unit vectors with these cosines with the first axis, whose other parts cancel: the sum lies on that axis."""
    found = []
    for i, c in enumerate(cosines):
        rest = np.sqrt(1 - c * c)
        for sign in (1, -1):
            v = np.zeros(n)
            v[0], v[1 + i] = c, sign * rest
            found.append(v)
    return dict(enumerate(found))


@pytest.mark.parametrize(("d", "scaled", "printed"), [
    (3, True, [0.464533, 0.479190, 0.529190, 0.714533, 0.939662]),
    (9, True, [0.500000, 0.499557, 0.549557, 0.750000, 0.950000]),
    (3, False, [0.425530, 0.477106, 0.527106, 0.675530, 0.874413])])
def test_check_4_the_iterated_maximum_has_the_values_of_the_specification(d: int, scaled: bool, printed: list[float]):
    sims = np.array([-0.5, -0.1, 0.1, 0.5, 0.9])
    assert np.abs(excess(sims / 2, d, scaled) + 0.5 - printed).max() < 1e-6


@pytest.mark.parametrize("chi", [-0.7, 0.0, 0.35, 0.9])
@pytest.mark.parametrize("d", range(10))
def test_check_4_any_number_of_iterations_decides_exactly(chi: float, d: int):
    sims = np.linspace(-1, 1, 200_001)
    wrong = (excess((sims - chi) / 2, d) > 1e-6) != (sims > chi)
    assert np.abs(sims[wrong] - chi).max(initial=0.0) < 1e-5


@pytest.mark.parametrize(("d", "scaled", "largest"), [
    (3, True, 4.0e-2), (9, True, 3.5e-3), (18, True, 9.2e-5), (24, True, 8.1e-6), (9, False, 7.1e-3)])
def test_the_error_of_the_weight_is_that_of_the_specification(d: int, scaled: bool, largest: float):
    q = np.concatenate([np.linspace(-1, 1, 10_001), np.logspace(-9, 0, 20_001), -np.logspace(-9, 0, 20_001)])
    assert np.abs(excess(q, d, scaled) - np.maximum(q, 0)).max() == pytest.approx(largest, rel=0.03)


@pytest.mark.parametrize(("weight", "expected"), [
    ("sim", [0.375, 0.3333, 0.2917]), ("shifted", [0.3519, 0.3333, 0.3148]), ("uniform", [1 / 3] * 3)])
def test_check_5_nobody_is_zeroed_where_nobody_is_below_chi(weight: str, expected: list[float]):
    b, j = weight_of(np.array([0.9, 0.8, 0.7]), WeightRule(weight=weight))  # type: ignore[arg-type]
    assert b.all()
    assert np.round(j / j.sum(), 4).tolist() == pytest.approx(expected, abs=1e-4)


def test_check_5_the_printed_rule_zeroes_the_least_similar_honest_client():
    sims, p = np.array([0.9, 0.8, 0.7]), 1.3
    h = p * (1 + sims) / 2
    printed = np.where(np.round(h, 6) == np.round(h, 6).min(), 0.0, h)
    assert (printed / printed.sum()).round(4).tolist() == [0.5135, 0.4865, 0.0]     # why it is not done so


def test_check_6_one_holder_gets_its_own_prototype_and_nobody_none():
    u = np.array([0.6, 0.8])
    found = aligned({4: u}, WeightRule())
    assert found.prototype is not None
    assert np.abs(found.prototype - u).max() < 1e-12
    assert aligned({}, WeightRule()).prototype is None


def test_check_6_where_nobody_is_accepted_the_class_keeps_what_it_has():
    found = aligned(at_cosines(0.3, 0.2), WeightRule(chi=0.9))
    assert found.prototype is None
    assert found.accepted == frozenset()
    assert aligned({0: np.array([1.0, 0.0]), 1: np.array([-1.0, 0.0])}, WeightRule()).prototype is None  # |T| = 0


def test_two_holders_have_one_cosine_and_are_both_kept():
    u = {0: np.array([1.0, 0.0]), 1: np.array([0.6, 0.8])}
    found = aligned(u, WeightRule())
    assert found.cosines[0] == pytest.approx(found.cosines[1])
    assert found.accepted == {0, 1}


def test_a_negated_prototype_is_rejected_and_does_not_count():
    honest = at_cosines(0.9, 0.95)
    bad = honest | {9: -np.eye(6)[0]}
    found = aligned(bad, WeightRule())
    assert found.accepted == set(honest)
    assert found.weights[9] == 0
    assert found.prototype is not None
    assert found.prototype[0] > 0.9


def test_fewer_accepted_holders_than_are_wanted_leave_the_class_alone():
    assert aligned(at_cosines(0.9), WeightRule(min_holders=2)).prototype is not None
    assert aligned(at_cosines(0.9), WeightRule(min_holders=3)).prototype is None


@given(st.integers(0, 2**31), st.sampled_from(["sim", "shifted", "uniform"]), st.sampled_from([0.0, 0.2, 0.6]))
def test_the_rule_is_that_of_a_loop_over_clients(seed: int, weight: str, chi: float):
    rng = np.random.default_rng(seed)
    own = {m: v / np.linalg.norm(v) for m, v in enumerate(rng.standard_normal((5, 4)) + rng.standard_normal(4))}
    T = sum(own.values())
    t = np.linalg.norm(T)
    total, weights = np.zeros(4), 0.0
    for u in own.values():
        sim = float(u @ T / t)
        j = 1.0 if weight == "uniform" else 0.0 if sim <= chi else sim if weight == "sim" else (1 + sim) / 2
        total, weights = total + j * u, weights + j
    found = aligned(own, WeightRule(chi=chi, weight=weight)).prototype      # type: ignore[arg-type]
    if weights < 1e-3 or t < 1e-3:
        assert found is None
    else:
        assert found is not None
        assert np.abs(found - total / weights).max() < 1e-9


def test_classes_are_apart_and_quantiles_are_over_all_of_them():
    own = {0: {1: np.array([1.0, 0.0]), 3: np.array([0.0, 1.0])}, 1: {3: np.array([0.6, 0.8])}}
    assert list(aligned_classes(own, WeightRule())) == [1, 3]
    found = cosine_quantiles(own)
    assert found["cosine_largest"] == pytest.approx(1.0)
    assert found["cosine_least"] == pytest.approx(np.sqrt(0.9))
    assert cosine_quantiles({}) == {}
