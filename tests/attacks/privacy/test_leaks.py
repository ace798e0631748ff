"""Whole batches from clear blocks: the algebra alone, and on runs of MP-DP in its presets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emul import engine
from emul.attacks.privacy.clear_blocks import BlocksUndetermined, inputs_of_batch
from emul.attacks.privacy.pixels import matched
from emul.engine.reopening import attack
from emul.report.build import attacked
from emul.scenario import loads

SCENARIO = """
emul: 1
name: leaking
seed: 4
topology: {generator: star, clients: 3}
task: {data: {set: digits}, model: digits_mlp, solver: {sgd: {lr: 0.1, steps: 1, batch: 8}}}
compute: {mode: zero}
schemes:
  - {name: mp_dp, preset: paper, label: paper}
  - {name: mp_dp, preset: paper, additive: compact, label: compact}
  - {name: mp_dp, preset: paper, label: shared, repair: shamir}
  - {name: mp_dp, preset: masked, label: masked}
  - {name: mp_dp, preset: sound, label: sound}
  - {name: mp_cdp, label: central}
  - {name: mp_dp_naive, label: naive}
stop: {rounds: 1}
record: {payloads: [Disguised, Blocks, Masked]}
"""


def run(label: str, out: Path, *sets: str) -> Path:
    result, = engine.run(loads(SCENARIO, "t", list(sets)), scheme=label, workers=0, out=out)
    assert result.directory is not None
    return result.directory


# --- the algebra ------------------------------------------------------------------------------------------------------

@settings(max_examples=20, deadline=None)
@given(st.integers(1, 10), st.integers(2, 6), st.integers(0, 2**32))
def test_slices_of_a_tensor_give_the_samples_that_it_is_made_of(b: int, m: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, masks, delta = rng.normal(size=(b, 12)), rng.normal(size=(14, b)), rng.normal(size=(m, b))
    ones = np.pad(x, ((0, 0), (0, 1)), constant_values=1)
    found = inputs_of_batch(np.einsum("ks,is,sj->kij", delta, masks, ones), b, rng)
    np.testing.assert_allclose(found[matched(found, x)], x, rtol=1e-4, atol=1e-4)


def test_blocks_of_fewer_samples_than_there_are_said_to_be_are_refused() -> None:
    with pytest.raises(BlocksUndetermined, match="a lower rank than the batch has samples"):
        inputs_of_batch(np.zeros((3, 4, 5)), 2, np.random.default_rng(1))


# --- runs -------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("label", ["paper", "compact", "shared"])
def test_check_12_a_batch_of_8_is_recovered_exactly_with_its_labels(label: str, tmp_path: Path) -> None:
    path = run(label, tmp_path)
    found = attack(path, "clear_blocks")
    rows = found.rows
    assert rows[["samples", "rank"]].to_numpy().tolist() == [[8, 8]] * 3
    assert rows["members_told"].all()
    assert rows["residual_members"].max() < 1e-10
    assert rows["residual_others"].min() > 0.05
    assert (rows["recovered"] == 1).all()
    assert rows["input_error"].max() < 1e-8
    assert (rows["labels_right"] == 1).all()
    assert len(found.pictures) == 24
    part, = attacked(path)
    assert len(part.pictures[0][1]) == 24


@pytest.mark.parametrize(("label", "batch"), [("masked", 8), ("sound", 8), ("masked", 1)])
def test_check_12_the_same_attack_finds_nothing_in_words_of_a_ring(label: str, batch: int, tmp_path: Path) -> None:
    rows = attack(run(label, tmp_path, f"task.solver.sgd.batch={batch}"), "clear_blocks").rows
    assert not rows["members_told"].any()
    assert rows["rank"].min() >= 50                                    # as many as rows of one block
    assert (rows["recovered"].fillna(0) == 0).all()
    assert (rows["features_error"].dropna() > 0.5).all()


def test_check_12_one_sample_of_any_model_shows_its_features_and_of_a_linear_first_layer_itself(tmp_path: Path) -> None:
    mlp = attack(run("paper", tmp_path / "mlp", "task.solver.sgd.batch=1"), "clear_blocks", {"node": "client1"}).rows
    assert mlp["input_error"].max() < 1e-10
    assert mlp["features_error"].max() < 1e-9
    assert (mlp["labels_right"] == 1).all()
    net = attack(run("paper", tmp_path / "net", "task.solver.sgd.batch=1", "task.model=digits_cnn"),
                 "clear_blocks", {"node": "client1"})
    assert net.rows["features_error"].max() < 1e-9
    assert net.rows["recovered"].isna().all()
    assert net.pictures == []


@pytest.mark.parametrize("label", ["central", "naive"])
def test_the_relatives_without_masks_leak_as_the_published_scheme_does(label: str, tmp_path: Path) -> None:
    rows = attack(run(label, tmp_path), "clear_blocks").rows
    assert (rows["recovered"] == 1).all()
    assert (rows["labels_right"] == 1).all()
