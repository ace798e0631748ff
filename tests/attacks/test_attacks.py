"""What attacks make of data and of prototypes, and that a scenario names them."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emul.attacks.data import feature_noise, label_random
from emul.base.errors import ScenarioError
from emul.registry import attacks
from emul.scenario import AttackSpec, NamedAttack, loads
from emul.testing import SMALL


@given(st.lists(st.integers(0, 9), min_size=1, max_size=200), st.integers(0, 100))
@settings(max_examples=30)
def test_random_labels_are_all_wrong_and_all_classes(labels, seed):
    x, y = np.zeros((len(labels), 2), np.float32), np.array(labels)
    same, wrong = label_random(x, y, 10, np.random.default_rng(seed))
    assert same is x
    assert not (wrong == y).any()
    assert set(wrong.tolist()) <= set(range(10))


def test_random_labels_are_uniform_over_the_others():
    _, wrong = label_random(np.zeros((9000, 1)), np.full(9000, 3), 10, np.random.default_rng(0))
    counts = np.bincount(wrong, minlength=10)
    assert counts[3] == 0
    assert abs(counts[counts > 0] - 1000).max() < 150


def test_noise_has_the_range_of_the_inputs_and_nothing_of_them():
    x = np.random.default_rng(1).normal(0, 1, (500, 8)).astype(np.float32)
    noise, y = feature_noise(x, np.arange(500), 10, np.random.default_rng(2))
    assert noise.dtype == np.float32
    assert x.min() <= noise.min() < noise.max() <= x.max()
    assert abs(np.corrcoef(noise.ravel(), x.ravel())[0, 1]) < 0.05
    assert y.tolist() == list(range(500))


def test_prototypes_are_shifted_negated_amplified_or_turned():
    own = {2: np.full(200, 3.0, np.float32), 7: np.linspace(0, 1, 200, dtype=np.float32)}
    found = {name: attacks.make(attacks.Planned("prototypes", name))(own, np.random.default_rng(4))
             for name in attacks.known("prototypes")}
    assert all(sorted(v) == [2, 7] for v in found.values())
    assert 3.5 < np.std(found["shift"][2]) < 4.5
    np.testing.assert_array_equal(found["negate"][2], -own[2])
    np.testing.assert_allclose(found["amplify"][7], 10 * own[7])
    assert np.linalg.norm(found["random"][2]) == pytest.approx(np.linalg.norm(own[2]), rel=1e-4)
    assert abs(np.corrcoef(found["random"][7], own[7])[0, 1]) < 0.3


def test_a_scenario_names_attacks_with_parameters_rounds_and_knowledge():
    text = SMALL.replace("SCHEME", "fedavg")
    scenario = loads(text + "attacks: [{nodes: [client1], data: {name: backdoor, target: 3}, update: scale},"
                            " {nodes: {fraction: 0.5}, update: {name: alie, z: 1.5}, rounds: 10.., knows: all}]\n", "t")
    assert scenario.attacks == [
        AttackSpec(nodes=("client1",), data=NamedAttack("backdoor", {"target": 3}), update=NamedAttack("scale")),
        AttackSpec(fraction=0.5, update=NamedAttack("alie", {"z": 1.5}), first=10, knows="all")]
    assert loads(scenario.resolved(), "again") == scenario
    assert "rounds: 10.." in scenario.resolved()
    for wrong, said in (
            ("{nodes: [client1]}", "expected at least one of data, prototypes, update"),
            ("{nodes: [client1], prototypes: negat}",
             'line 17  attacks[0].prototypes  "negat"  unknown attack on prototypes; did you mean "negate"?'),
            ("{nodes: [client1], update: {name: ali}}",
             'attacks[0].update.name  "ali"  unknown attack on an update; did you mean "alie"?'),
            ("{nodes: [client1], update: {name: alie, zz: 1}}", 'attacks[0].update.zz  1  unknown parameter'),
            ("{nodes: [client1], update: {name: ipm, epsilon: -1}}",
             "attacks[0].update.epsilon  epsilon = -1.0  expected a number above 0"),
            ("{nodes: [client1], update: alie, knows: own}", "own  alie needs to know at least: colluders"),
            ("{nodes: [client1], update: alie, knows: some}", 'attacks[0].knows  "some"  unknown knowledge'),
            ("{nodes: [client1], data: label_flip, knows: all}", "all  is used by attacks on updates alone"),
            ("{nodes: [client1], data: label_flip, rounds: 9..3}", "expected rounds such as 3..9 or 10.."),
            ("{nodes: [client1], update: 3}", "expected the name of an attack or a mapping such as")):
        with pytest.raises(ScenarioError, match=re.escape(said)):
            loads(f"{text}attacks: [{wrong}]\n", "t")


def test_a_scheme_that_does_not_say_what_is_honest_offers_own_knowledge_only():
    text = SMALL.replace("SCHEME", "secagg")
    loads(text + "attacks: [{nodes: [client1], update: sign_flip}]\n", "t")
    with pytest.raises(ScenarioError, match="expected own: scheme fedper does not say what an honest node sends"):
        loads(SMALL.replace("SCHEME", "fedper") + "attacks: [{nodes: [client1], update: ipm}]\n", "t")
