"""The labels of u_split from the gradients that its server gets, those of vertical from what its parties get."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from emul import engine, load_run
from emul.attacks.privacy import NotKept
from emul.attacks.privacy.label_leakage import clusters, nearest
from emul.engine.reopening import attack
from emul.scenario import loads

TEXT = """
emul: 1
name: leaking
seed: 3
topology: {generator: star, clients: 2}
links: [{match: "*", latency: 5 ms}]
task: {data: {set: digits}, partition: {classes: 4}, model: digits_classic,
       solver: {sgd: {lr: 0.1, steps: 4, batch: 32}}}
compute: {mode: zero}
schemes: [{name: u_split, cut: 2, head: 8, micro_batches: 3}]
stop: {rounds: 1}
record: {payloads: [HeadGradients]}
"""

VERTICAL = """
emul: 1
name: leaking
seed: 3
topology: {generator: star, clients: 2}
links: [{match: "*", latency: 5 ms}]
task: {data: {set: digits, held_out: 1400}, partition: {columns: {groups: 2, common: 0.8}}, model: digits_mlp,
       solver: {sgd: {lr: 0.2, steps: 4, batch: 32}}}
compute: {mode: zero}
schemes: [{name: vertical, deadline: 1 s}]
stop: {rounds: 2}
record: {payloads: [Begin, Aligned, Gradients]}
"""


def run(folder: Path, *sets: str, text: str = TEXT) -> Path:
    result, = engine.run(loads(text, "t", list(sets)), workers=0, out=folder)
    assert result.directory is not None
    return result.directory


def test_labels_that_never_left_a_client_are_found(tmp_path: Path) -> None:
    path = run(tmp_path)
    blind, told = attack(path, "label_leakage").rows, attack(path, "label_leakage", {"known": 2}, label="told").rows
    assert blind["samples"].tolist() == [4 * 32] * 2
    assert blind["node"].tolist() == ["client1", "client2"]
    assert (told["accuracy"] > 0.9).all()
    assert (blind["accuracy"] > blind["majority"] + 0.3).all()


def test_a_party_of_vertical_finds_the_labels_that_only_the_server_has(tmp_path: Path) -> None:
    """Also where the samples were aligned anew, after a round that a lost message ended."""
    lost = '{match: "client2->server", outage: {model: bernoulli, p: 0.05, per: message}}'
    path = run(tmp_path, f'links=[{{match: "*", latency: 5 ms}}, {lost}]', "stop.rounds=4", "seed=2", text=VERTICAL)
    rows = attack(path, "label_leakage", {"known": 2}).rows
    assert [one.message.align for one in load_run(path).payload("Begin")] == [True, False, True, False]
    assert list(zip(rows["node"], rows["round"], strict=True)) == [
        (party, round_) for party in ("client1", "client2") for round_ in (1, 2, 3, 4)]
    assert (rows["accuracy"] > rows["majority"] + 0.5).all()
    one = attack(path, "label_leakage", {"node": "client1"}, label="blind").rows
    assert set(one["node"]) == {"client1"}


def test_labels_are_the_ones_of_the_samples_that_were_sent() -> None:
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 3, 60)
    x = np.eye(3)[labels] + 0.01 * rng.standard_normal((60, 3))
    assert nearest(x, labels, 1, rng) == 1.0
    assert len({*zip(clusters(x, 3, 3, rng).tolist(), labels.tolist(), strict=True)}) == 3
    noise = rng.standard_normal((600, 8))
    assert nearest(noise, rng.integers(0, 3, 600), 2, rng) < 0.5


def test_gradients_that_were_not_kept_or_are_packed_are_said(tmp_path: Path) -> None:
    with pytest.raises(NotKept, match=r"run its scenario again with record: \{payloads: \[HeadGradients\]\}"):
        attack(run(tmp_path / "none", "record={payloads: [Turn]}"), "label_leakage")
    with pytest.raises(NotKept, match=r"with record: \{payloads: \[Begin, Aligned, Gradients\]\}"):
        attack(run(tmp_path / "some", "record={payloads: [Gradients]}", text=VERTICAL), "label_leakage")
    packed = run(tmp_path / "packed", "schemes[0].compress={up: {uniform: {bits: 8}}}")
    with pytest.raises(NotKept, match="gradients are packed"):
        attack(packed, "label_leakage")
