"""What a client makes of the model that it got: members, and the model itself; on runs of MP-DP and FedAvg."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from emul import engine
from emul.attacks.privacy import NotKept
from emul.attacks.privacy.client_membership import Candidates, attack_model, balanced, by_network, by_threshold, halves
from emul.engine.reopening import attack
from emul.scenario import loads

SCENARIO = """
emul: 1
name: held
seed: 5
topology: {generator: star, clients: 3}
task: {data: {set: digits, held_out: 1200}, model: digits_mlp, objective: {squared_error: {factor: 0.5, over: sum}},
       solver: {sgd: {lr: 0.3, steps: 1, batch: 100}}}
compute: {mode: zero}
schemes:
  - {name: fedavg, label: plain}
  - {name: mp_dp, preset: paper, eps: null, clip: "off", sigma_delta: 1, output_scale: 1, lr: 0.3, label: published}
  - {name: mp_dp, preset: sound, label: sound}
stop: {rounds: 25}
evaluation: {every: 100}
record: {payloads: [Model, Disguised]}
"""
QUICK = {"shadow_steps": 20}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    results = engine.run(loads(SCENARIO), workers=0, out=tmp_path_factory.mktemp("held"))
    return {path.name.split("-")[1]: path for result in results if (path := result.directory) is not None}


# --- parts ------------------------------------------------------------------------------------------------------------

def learnt_by_heart(n: int = 120, seed: int = 1) -> Candidates:
    """Members' outputs are nearly right, others' are not."""
    rng = np.random.default_rng(seed)
    labels, member = rng.integers(4, size=n), np.arange(n) < n // 2
    outputs = np.eye(4)[labels] + rng.normal(size=(n, 4)) * np.where(member, 0.02, 0.6)[:, None]
    return Candidates(outputs, labels, member)


def test_halves_hold_as_many_members_as_others_and_share_none() -> None:
    member = np.arange(31) < 11
    known, other = halves(member, np.random.default_rng(1))
    assert len(set(known) | set(other)) == len(known) + len(other) == 20
    assert member[known].mean() == member[other].mean() == 0.5


@pytest.mark.parametrize("standardise", [False, True])
def test_thresholds_and_attack_models_tell_what_was_learnt_by_heart_and_nothing_of_noise(standardise: bool) -> None:
    found, rng = learnt_by_heart(), np.random.default_rng(2)
    known, other = halves(found.member, rng)
    assert by_threshold(found.only(known), found.only(other))["asr"] > 0.9
    network = attack_model(found.only(known), rng, standardise)
    assert by_network(network, found.only(other))["asr"] > 0.85
    blind = Candidates(found.outputs, found.labels, rng.permutation(found.member))
    assert abs(by_network(network, blind)["asr"] - 0.5) < 0.15


def test_a_shadow_model_of_the_same_kind_teaches_who_was_trained_on() -> None:
    shadow, target = learnt_by_heart(seed=3), learnt_by_heart(seed=4)
    assert by_network(attack_model(shadow, np.random.default_rng(1), True), target)["asr"] > 0.85


def test_candidates_are_as_many_members_as_others() -> None:
    x, labels, member = balanced((np.zeros((9, 2)), np.zeros(9, int)), (np.ones((4, 2)), np.ones(4, int)),
                                 np.random.default_rng(1))
    assert member.sum() == 4
    assert np.array_equal(labels == 0, member)
    assert np.array_equal(x[:, 0] == 0, member)


# --- runs -------------------------------------------------------------------------------------------------------------

def test_a_client_of_the_published_scheme_has_the_models_outputs_once_it_has_estimated_r(runs: dict[str, Path]) -> None:
    rows = attack(runs["published"], "extraction").rows.set_index("by")
    assert rows.index.tolist() == ["outputs", "adaptive", "probe", "student"]
    assert rows["agreement"]["adaptive"] > 0.9 > 0.5 > rows["agreement"]["outputs"]
    assert rows["output_error"]["adaptive"] < 0.3 < 1 < rows["output_error"]["outputs"]
    assert rows["accuracy"]["probe"] > rows["accuracy_true"]["probe"] - 0.1
    assert rows["agreement"]["student"] > 0.75
    assert (rows["samples"] == 100).all()


def test_a_client_of_preset_sound_has_the_models_outputs_as_they_are(runs: dict[str, Path]) -> None:
    rows = attack(runs["sound"], "extraction", {"steps": 2}).rows.set_index("by")
    assert rows["agreement"]["outputs"] == 1
    assert rows["output_error"]["outputs"] < 1e-5


def test_membership_is_told_of_the_true_the_disguised_and_the_unmasked_model_in_three_ways(
        runs: dict[str, Path]) -> None:
    rows = attack(runs["published"], "client_membership", QUICK | {"node": "client2", "round": 20}).rows
    assert rows["view"].tolist() == ["server"] * 3 + ["disguised"] * 3 + ["adaptive"] * 3
    assert rows["by"].tolist() == ["threshold", "surrogate", "shadow"] * 3
    assert (rows["members"] == 200).all()
    assert (rows["others"] == 200).all()
    assert (rows["node"] == "client2").all()
    assert (rows["round"] == 20).all()
    assert rows["r_error"].between(0, 0.3).all()
    assert rows[["asr", "auc", "tpr_at_fpr_1"]].to_numpy().min() >= 0
    assert abs(rows["auc"][6] - rows["auc"][0]) < 0.05                      # thresholds: adaptive and true


def test_a_client_of_fedavg_has_the_true_model(runs: dict[str, Path]) -> None:
    rows = attack(runs["plain"], "client_membership", QUICK).rows
    assert rows["view"].tolist() == ["server"] * 3
    assert rows["round"].tolist() == [25] * 3
    assert rows["r_error"].isna().all()
    with pytest.raises(NotKept, match=r"record: \{payloads: \[Disguised\]\}"):
        attack(runs["plain"], "extraction")


def test_what_has_not_come_to_the_attacker_is_said(runs: dict[str, Path]) -> None:
    with pytest.raises(NotKept, match="no Model of round 99 has come to client1"):
        attack(runs["plain"], "client_membership", {"node": "client1", "round": 99})
    with pytest.raises(NotKept, match="no Disguised of round any has come to server"):
        attack(runs["sound"], "client_membership", {"node": "server"})
