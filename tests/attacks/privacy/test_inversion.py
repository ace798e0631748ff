"""Samples from gradients: labels, distances, pictures, and runs of FedAvg, DP-FedAvg and MP-DP's presets."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from emul import engine
from emul.attacks.privacy import NotKept
from emul.attacks.privacy.inversion import cosine_distance, labels_of, squared_distance, total_variation
from emul.attacks.privacy.pixels import matched, psnr, ssim
from emul.engine.reopening import attack
from emul.record.attacks import png, read_attack, side_by_side
from emul.report.build import attacked
from emul.report.page import render
from emul.scenario import loads
from emul.workers.twin import Twin

SCENARIO = """
emul: 1
name: seen
seed: 2
topology: {generator: star, clients: 3}
task: {data: {set: digits}, model: digits_mlp, objective: {squared_error: {factor: 0.5, over: sum}},
       solver: {sgd: {lr: 0.1, steps: 1, batch: 1}}}
compute: {mode: zero}
schemes:
  - fedavg
  - {name: dp_fedavg, noise_at: local, label: local}
  - {name: mp_dp, preset: paper, label: paper}
  - {name: mp_dp, preset: masked, label: masked}
  - {name: mp_dp, preset: sound, label: sound}
stop: {rounds: 1}
record: {payloads: [Model, Update, Gradient, Disguised, Blocks, Masked]}
"""
Open = Callable[..., Path]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Open:
    """The run of one entry, with changes of the scenario; each made once."""
    made: dict[tuple[Any, ...], Path] = {}

    def run(label: str, *sets: str) -> Path:
        if (label, sets) not in made:
            result, = engine.run(loads(SCENARIO, "t", list(sets)), scheme=label, workers=0,
                                 out=tmp_path_factory.mktemp("seen"))
            assert result.directory is not None
            made[label, sets] = result.directory
        return made[label, sets]
    return run


# --- parts ------------------------------------------------------------------------------------------------------------

@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-4, 4, width=16), min_size=2, max_size=8), st.data())
def test_the_label_of_one_sample_is_the_negative_entry_under_cross_entropy(logits: list[float], data: Any) -> None:
    label = data.draw(st.integers(0, len(logits) - 1))
    p = np.exp(logits) / np.exp(logits).sum()
    assert labels_of(p - np.eye(len(logits))[label], 1).tolist() == [label]


def test_labels_of_a_batch_are_counted_where_outputs_say_nothing_yet() -> None:
    labels = np.array([1, 3, 3, 7])
    assert labels_of(0.1 - np.eye(10)[labels].mean(0), 4).tolist() == [1, 3, 3, 7]


def test_distances_are_those_of_vectors() -> None:
    a, b = torch.tensor([3.0, 4.0]), torch.tensor([4.0, -3.0])
    assert cosine_distance(a, b).item() == pytest.approx(1)
    assert cosine_distance(2 * a, a).item() == pytest.approx(0)
    assert squared_distance(a, b).item() == pytest.approx(50 / 25)
    assert total_variation(torch.ones(2, 1, 3, 3)).item() == 0


def test_measures_of_images_are_0_error_at_the_truth_and_know_a_known_error() -> None:
    images = np.random.default_rng(1).uniform(size=(3, 1, 8, 8))
    assert psnr(images, images) == 200
    assert psnr(images + 0.1, images) == pytest.approx(20)
    assert ssim(images, images) == pytest.approx(1)
    assert ssim(1 - images, images) < 0
    order = np.array([2, 0, 1])
    assert matched(images[order], images).tolist() == np.argsort(order).tolist()


@pytest.mark.parametrize("channels", [1, 3])
def test_a_png_is_what_another_library_reads(channels: int) -> None:
    from PIL import Image

    image = np.random.default_rng(channels).integers(0, 256, (5, 4, 3), dtype=np.uint8)
    image = image if channels == 3 else image[:, :, 0]
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(png(image)))), image)
    both = np.asarray(Image.open(io.BytesIO(side_by_side(np.zeros((channels, 8, 8)), np.ones((channels, 8, 8))))))
    assert both.shape[:2] == (96, 96 + 8 + 96)
    assert (both[:, :96] == 0).all()
    assert (both[:, 96:] == 255).all()


# --- runs -------------------------------------------------------------------------------------------------------------

def test_inverting_gradients_shows_what_a_client_of_fedavg_has_trained_on(opened: Open) -> None:
    row, = attack(opened("fedavg"), "gradient_inversion", {"node": "client2", "iterations": 200}).rows.to_dict(
        "records")
    assert (row["node"], row["round"], row["samples"], row["labels_right"]) == ("client2", 1, 1, 1)
    assert row["psnr"] > 40 > 15 > row["psnr_blind"]
    assert row["test_mse"] == pytest.approx(10 ** (-row["psnr"] / 10) / 0.3763**2, rel=1e-6)
    assert row["ssim"] > 0.99
    assert row["feat_mse"] < 0.01
    assert row["seen_cosine"] == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("labels", ["known", "joint"])
def test_dlg_finds_the_same_by_l_bfgs_and_its_label_on_the_way(opened: Open, labels: str) -> None:
    given_ = {"by": "dlg", "most": 1, "iterations": 300, "node": "client2", "labels": labels, "restarts": 2}
    row, = attack(opened("fedavg"), "gradient_inversion", given_).rows.to_dict("records")
    assert row["node"] == "client2"
    assert row["labels_right"] == 1
    assert row["psnr"] > 30


def test_a_difference_after_several_steps_is_gone_through_step_by_step(opened: Open) -> None:
    path = opened("fedavg", "task.solver.sgd.steps=3", "task.solver.sgd.batch=2", "task.solver.sgd.momentum=0.5",
                  "task.objective=cross_entropy")
    row, = attack(path, "gradient_inversion", {"most": 1, "iterations": 2, "labels": "known"}).rows.to_dict("records")
    assert row["samples"] == 6
    assert row["seen_cosine"] == pytest.approx(1, abs=1e-6)


def test_noise_of_a_clients_own_leaves_less_than_the_mean_image(opened: Open) -> None:
    row, = attack(opened("local"), "gradient_inversion", {"most": 1, "iterations": 60, "labels": "known"}).rows.to_dict(
        "records")
    assert row["psnr"] < row["psnr_blind"]
    assert row["seen_cosine"] < 0.2


@pytest.mark.parametrize("preset", ["paper", "masked", "sound"])
def test_gradients_of_every_preset_are_as_hidden_as_noise_makes_them(opened: Open, preset: str) -> None:
    row, = attack(opened(preset), "gradient_inversion", {"most": 1, "iterations": 60}).rows.to_dict("records")
    assert row["psnr"] < row["psnr_blind"]
    assert row["seen_cosine"] < 0.2


def test_without_noise_and_masks_the_server_has_the_gradient_of_its_own_model(opened: Open) -> None:
    path = opened("paper", "schemes.paper.eps=null", "schemes.paper.sigma_delta=0")
    row, = attack(path, "gradient_inversion", {"most": 1, "iterations": 2}).rows.to_dict("records")
    assert row["seen_cosine"] == pytest.approx(1, abs=1e-9)


def test_phi_shows_the_sample_whatever_the_noise_on_the_gradient_is(opened: Open) -> None:
    row, = attack(opened("paper"), "gradient_inversion", {"match": "clear", "most": 1, "iterations": 200},
                  label="clear").rows.to_dict("records")
    assert row["psnr"] > 30
    assert row["seen_cosine"] == pytest.approx(1, abs=1e-9)
    for preset, said in (("masked", "are masked"), ("sound", "are masked")):
        with pytest.raises(NotKept, match=f"clear: the blocks of preset {preset} {said}"):
            attack(opened(preset), "gradient_inversion", {"match": "clear"})
    with pytest.raises(NotKept, match="only runs of mp_dp"):
        attack(opened("fedavg"), "gradient_inversion", {"match": "clear"})


def test_the_same_attack_finds_the_same(opened: Open) -> None:
    given_ = {"most": 1, "iterations": 3}
    first = attack(opened("fedavg"), "gradient_inversion", given_, label="twice").rows
    assert attack(opened("fedavg"), "gradient_inversion", given_, label="twice").rows.equals(first)


# --- the sum ----------------------------------------------------------------------------------------------------------

SUM = """
emul: 1
name: summed
seed: 2
topology: {generator: star_mesh, clients: 3}
task: {data: {set: digits}, model: digits_mlp, objective: {squared_error: {factor: 0.5, over: sum}},
       partition: {dirichlet: 1.0}, solver: {sgd: {lr: 0.1, steps: 1, batch: 1}}}
compute: {mode: zero}
schemes:
  - {name: mp_dp, label: sound, eps: null, clip: "off"}
  - {name: mp_dp, label: masked, preset: masked, eps: null, clip: "off"}
  - {name: mp_dp, label: weighed, eps: null, clip: "off", mean_samples: 500}
  - {name: mp_dp, label: noisy}
  - {name: secagg, weights: uniform}
  - {name: dp_fedavg, label: clipped, sigma: 0, clip: 100}
  - fedavg
stop: {rounds: 2}
record: {models: 1, payloads: [Model, Update, Gradient, Begin, Disguised, Blocks, Masked]}
"""


@pytest.fixture(scope="module")
def summed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    def run(label: str, *sets: str) -> Path:
        result, = engine.run(loads(SUM, "t", list(sets)), scheme=label, workers=Twin(),
                             out=tmp_path_factory.mktemp("summed"))
        assert result.directory is not None
        return result.directory
    return run


@pytest.mark.parametrize("label", ["sound", "masked", "weighed", "secagg", "clipped", "fedavg"])
def test_the_step_of_the_servers_model_is_the_mean_gradient_whatever_hides_single_ones(
        summed: Callable[[str], Path], label: str) -> None:
    rows = attack(summed(label), "gradient_inversion", {"of": "sum", "iterations": 1}).rows
    assert rows["node"].tolist() == ["all 3 clients"] * 2
    assert rows["samples"].tolist() == [3, 3]
    assert rows["seen_cosine"].min() > 1 - 1e-5          # secagg sums words of 16 bits


def test_a_sum_of_few_shows_the_samples_and_noise_hides_them(summed: Callable[[str], Path]) -> None:
    given_ = {"of": "sum", "labels": "known", "iterations": 150, "round": 1}
    found = attack(summed("sound"), "gradient_inversion", given_)
    row, = found.rows.to_dict("records")
    assert row["psnr"] > 20 > 15 > row["psnr_blind"]
    assert len(found.pictures) == 3
    noisy, = attack(summed("noisy"), "gradient_inversion", given_).rows.to_dict("records")
    assert noisy["psnr"] < noisy["psnr_blind"]
    assert noisy["seen_cosine"] < 0.3


def test_of_a_sum_neither_a_node_nor_a_clear_block_can_be_asked_for(summed: Callable[[str], Path]) -> None:
    for wrong in ({"node": "client1"}, {"match": "clear"}):
        with pytest.raises(Exception, match="of = sum: expected without node"):
            attack(summed("fedavg"), "gradient_inversion", {"of": "sum", **wrong})


# --- pictures ---------------------------------------------------------------------------------------------------------

def test_pictures_stand_beside_the_table_and_in_the_report_and_give_way_to_new_ones(opened: Open) -> None:
    path = opened("fedavg")
    attack(path, "gradient_inversion", {"most": 3, "iterations": 2}, label="shown")
    found = attack(path, "gradient_inversion", {"most": 2, "iterations": 2}, label="shown")
    folder = path / "attacks" / "shown.pictures"
    assert sorted(file.name for file in folder.iterdir()) == ["1.png", "2.png"]
    assert [said.partition(":")[0] for said, _ in found.pictures] == ["client1, round 1", "client2, round 1"]
    part, = attacked(path)
    title, pictures = next(one for one in part.pictures if one[0].startswith("shown:"))
    assert title == "shown: originals on the left, reconstructions on the right."
    assert pictures[0][1] == (folder / "1.png").read_bytes()
    page = render("t", [part])
    assert page.count('src="data:image/png;base64,') == sum(len(of) for _, of in part.pictures)
    assert f'alt="{pictures[0][0]}"' in page
    (folder / "1.png").unlink()
    assert len(read_attack(path, "shown").pictures) == 1


def test_what_is_no_image_has_no_pictures(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emul.attacks.privacy.reconstruction.is_image", lambda _: False)
    found = attack(opened("fedavg"), "gradient_inversion", {"most": 1, "iterations": 2}, label="bare")
    assert found.pictures == []
    assert "psnr" not in found.rows


# --- what is missing --------------------------------------------------------------------------------------------------

def test_what_cannot_be_attacked_is_said(opened: Open) -> None:
    bare = opened("fedavg", "record.payloads=[Model]")
    with pytest.raises(NotKept, match=r"record: \{payloads: \[Model, Update\]\} or record: \{payloads: \[Model, Grad"):
        attack(bare, "gradient_inversion")
    with pytest.raises(NotKept, match=r"no Update of client1 in round 7 has come to the server"):
        attack(opened("fedavg"), "gradient_inversion", {"node": "client1", "round": 7})
    adam = opened("fedavg", "task.solver={adam: {lr: 0.01, steps: 1, batch: 1}}")
    with pytest.raises(NotKept, match="a gradient with the solver sgd alone"):
        attack(adam, "gradient_inversion")
