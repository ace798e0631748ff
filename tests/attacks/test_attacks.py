"""What attacks make of data and of prototypes, and that a scenario names them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emul import attacks
from emul.base.errors import ScenarioError
from emul.scenario import loads
from emul.testing import SMALL


@given(st.lists(st.integers(0, 9), min_size=1, max_size=200), st.integers(0, 100))
@settings(max_examples=30)
def test_random_labels_are_all_wrong_and_all_classes(labels, seed):
    x, y = np.zeros((len(labels), 2), np.float32), np.array(labels)
    same, wrong = attacks.label_random(x, y, 10, np.random.default_rng(seed))
    assert same is x
    assert not (wrong == y).any()
    assert set(wrong.tolist()) <= set(range(10))


def test_random_labels_are_uniform_over_the_others():
    _, wrong = attacks.label_random(np.zeros((9000, 1)), np.full(9000, 3), 10, np.random.default_rng(0))
    counts = np.bincount(wrong, minlength=10)
    assert counts[3] == 0
    assert abs(counts[counts > 0] - 1000).max() < 150


def test_noise_has_the_range_of_the_inputs_and_nothing_of_them():
    x = np.random.default_rng(1).normal(0, 1, (500, 8)).astype(np.float32)
    noise, y = attacks.feature_noise(x, np.arange(500), 10, np.random.default_rng(2))
    assert noise.dtype == np.float32
    assert x.min() <= noise.min() < noise.max() <= x.max()
    assert abs(np.corrcoef(noise.ravel(), x.ravel())[0, 1]) < 0.05
    assert y.tolist() == list(range(500))


def test_prototypes_are_shifted_negated_amplified_or_turned():
    own = {2: np.full(200, 3.0, np.float32), 7: np.linspace(0, 1, 200, dtype=np.float32)}
    found = {name: attack(own, np.random.default_rng(4)) for name, attack in attacks.PROTOTYPES.items()}
    assert all(sorted(v) == [2, 7] for v in found.values())
    assert 3.5 < np.std(found["shift"][2]) < 4.5
    np.testing.assert_array_equal(found["negate"][2], -own[2])
    np.testing.assert_allclose(found["amplify"][7], 10 * own[7])
    assert np.linalg.norm(found["random"][2]) == pytest.approx(np.linalg.norm(own[2]), rel=1e-4)
    assert abs(np.corrcoef(found["random"][7], own[7])[0, 1]) < 0.3


def test_a_scenario_names_one_of_data_and_prototypes():
    text = SMALL.replace("SCHEME", "fedavg")
    scenario = loads(text + "attacks: [{nodes: [client1], prototypes: shift}]\n", "t")
    assert scenario.attacks[0].prototypes == "shift"
    assert scenario.resolved()["attacks"] == [{"nodes": ["client1"], "prototypes": "shift"}] \
        if isinstance(scenario.resolved(), dict) else "prototypes: shift" in scenario.resolved()
    for wrong in ("[{nodes: [client1]}]", "[{nodes: [client1], data: label_flip, prototypes: shift}]"):
        with pytest.raises(ScenarioError, match="expected one of data, prototypes"):
            loads(f"{text}attacks: {wrong}\n", "t")
    with pytest.raises(ScenarioError, match='did you mean "negate"'):
        loads(text + "attacks: [{nodes: [client1], prototypes: negat}]\n", "t")
