"""vertical against its one model trained by autograd, the intersection against plain sets, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from emul import engine, load_run
from emul.base.errors import ScenarioError
from emul.base.streams import generator
from emul.learning import Task
from emul.learning.columns import ColumnGroups, mistakes
from emul.learning.shards import PartitionError
from emul.learning.stacked_pieces import There
from emul.preview.explain import explain
from emul.primitives.crypto.intersection import blinded, raised
from emul.protocols.alignment import Raised, match, rows_of
from emul.scenario import loads
from emul.testing import run_text

TEXT = """
emul: 1
name: vertical
seed: 7
topology: {generator: star, clients: 2}
links: [{match: "*", latency: 20 ms}]
task: {data: {set: digits, held_out: 1300}, partition: {columns: {groups: 2, common: 0.8}}, model: digits_mlp,
       solver: {sgd: {lr: 0.2, steps: 3, batch: 16}}}
compute: {mode: zero}
schemes: [{name: vertical}]
stop: {rounds: 2}
"""


def in_one_place(task: Task, common: np.ndarray, rounds: int) -> list[np.ndarray]:
    """Top and towers, trained as one model on the same batches."""
    towers = [task.tower(k, 16) for k in range(2)]
    node = task.for_node("server", None, lambda: 1)
    top = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(32, 10))
    torch.nn.utils.vector_to_parameters(torch.from_numpy(node.top(16).parameters), top.parameters())
    parameters = [p for part in (top, *towers) for p in part.parameters()]
    descent, seeds = torch.optim.SGD(parameters, lr=0.2), generator(7, "batches", "server")
    for _ in range(rounds):
        for rows in node.plan(len(common), int(seeds.integers(2**63))):
            ids = common[rows]
            x = task.data.inputs(task.data.train_x[ids])
            halves = torch.from_numpy(x[..., :4].copy()), torch.from_numpy(x[..., 4:].copy())
            logits = top(torch.cat([tower(half) for tower, half in zip(towers, halves, strict=True)], 1))
            descent.zero_grad()
            torch.nn.functional.cross_entropy(logits, torch.from_numpy(node.labels_of(ids))).backward()
            descent.step()
    return [torch.nn.utils.parameters_to_vector(part.parameters()).detach().numpy() for part in (top, *towers)]


def test_it_is_the_one_model_of_towers_and_top_on_the_common_samples(tmp_path: Path) -> None:
    result, = engine.run(loads(TEXT, "t"), workers=0, out=tmp_path)
    run = load_run(result.directory)
    found = [run.model(name).vector() for name in ("server", "client1", "client2")]
    task = Task(loads(TEXT, "t").task, 2, 7)
    both = set(task.indices(0).tolist()) & set(task.indices(1).tolist())
    server = generator(7, "role", "server")
    server.bytes(32)                                    # its secret
    order = [id_ for id_ in server.permutation(task._pools[1]).tolist() if id_ in both]
    assert len(order) == 160
    for one, expected in zip(found, in_one_place(task, np.array(order), 2), strict=True):
        np.testing.assert_allclose(one, expected, rtol=1e-4, atol=2e-6)
    assert run.rounds["common"].tolist() == [160, 160]


def test_towers_that_are_computed_as_one_are_those_of_each_party_alone(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of equal columns, that is, although each party has first weights of its own."""
    sizes, whole = [], There.many
    monkeypatch.setattr(There, "many", staticmethod(lambda asked: sizes.append(len(asked)) or whole(asked)))
    found = []
    for sets in ([], ["fuse={clients: 2, lanes: 1}"]):
        result, = engine.run(loads(TEXT, "t", sets), workers=0, out=tmp_path / str(len(sets)))
        run = load_run(result.directory)
        found.append([run.model(name).vector() for name in ("server", "client1", "client2")])
    assert sizes == [2] * 6
    for alone, fused in zip(*found, strict=True):
        np.testing.assert_allclose(fused, alone, rtol=1e-4, atol=2e-6)


def test_a_batch_takes_a_round_trip_and_its_bytes_are_embeddings_and_gradients() -> None:
    one, two = (run_text(TEXT, "stop.rounds=1", f"task.solver.sgd.steps={n}", "schemes[0].test_every=0")
                for n in (1, 2))
    assert two.rounds[0]["left_ns"] - one.rounds[0]["left_ns"] == 2 * 20 * 10**6
    for kind in ("Embeddings", "Gradients"):
        assert len(two.payloads[kind]) == 4
        assert all(0 < size - 4 * 16 * 16 < 64 for size in two.payloads[kind])
    assert "accuracy" not in one.rounds[0] or one.rounds[0]["accuracy"] is None


def test_asynchronous_it_learns_too_and_answers_everybody() -> None:
    ran = run_text(TEXT, "schemes[0].asynchronous=true", "stop.rounds=8", "task.solver.sgd.steps=10",
                   "links[0].latency=1 ms")
    assert len(ran.payloads["Gradients"]) == len(ran.payloads["Embeddings"]) == 8 * 10 * 2
    assert ran.rounds[-1]["accuracy"] > 0.5


CODECS = "{name: vertical, compress: {up: {uniform: {bits: 8}}, down: {uniform: {bits: 8}}}}"


@pytest.mark.parametrize("asynchronous", ["false", "true"])
def test_a_codec_packs_embeddings_and_gradients(asynchronous: str) -> None:
    plain, packed = (run_text(TEXT, f"schemes=[{scheme}]", f"schemes[0].asynchronous={asynchronous}", "stop.rounds=1")
                     for scheme in ("{name: vertical}", CODECS))
    for kind in ("Embeddings", "Gradients"):
        assert len(plain.payloads[kind]) == len(packed.payloads[kind]) == 6
        assert max(packed.payloads[kind]) < min(plain.payloads[kind]) / 3
    assert plain.payloads["TestActivations"] == packed.payloads["TestActivations"]
    assert packed.rounds[0]["completed"]
    assert packed.models != plain.models


def test_the_intersection_is_that_of_the_sets_and_nothing_else_matches() -> None:
    a, b = bytes(range(32)), bytes(range(1, 33))
    mine, theirs = np.array([5, 9, 1, 7]), np.array([9, 2, 5])
    yours = rows_of(raised(blinded(mine.tolist(), a), b))
    found = match(mine, Raised(yours, rows_of(blinded(theirs.tolist(), b))), a)
    assert found == {0: 9, 2: 5}
    with pytest.raises(ValueError, match=r"\S"):
        raised([bytes(32)], a)


@pytest.mark.parametrize(("partition", "said"), [
    ("{columns: {groups: 2, common: 0}}", "parties without common samples"),
    ("{columns: {groups: 2, common: 0.0001}}", "share of one sample or more: parties without common samples, of 200"),
    ("{columns: {groups: 2, labels: [client1, client2]}}", "the labels are at one node"),
    ("{columns: {groups: 3}}", "expected a group for each of the 2 clients"),
    ("{columns: {groups: [[0, 1], [1, 2]]}}", "expected each column at one party"),
    ("{columns: {groups: [[0], [64]]}}", r"samples have the columns 0\.\.63"),
    ("{columns: {common: 0.5}}", "expected such as"), ("iid", "vertical needs one by columns")])
def test_what_is_wrong_with_a_partition_by_columns_is_said(partition: str, said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        loads(TEXT.replace("{columns: {groups: 2, common: 0.8}}", partition), "t")


def test_a_model_that_does_not_fit_the_columns_of_a_party_is_an_error_of_check() -> None:
    with pytest.raises(ScenarioError, match=r"over the columns of client 1: .* the data have \(1, 8, 4\)"):
        loads(TEXT, "t", ["task.model=digits_classic"])


def test_groups_take_halves_of_images_or_columns_by_number() -> None:
    data = Task(loads(TEXT, "t").task, 2, 7).data
    whole = data.inputs(data.train_x[[3, 8]])
    left, right = (ColumnGroups.of({"groups": 2}, (1, 8, 8)).take(data, np.array([3, 8]), k) for k in range(2))
    assert np.array_equal(np.concatenate([left, right], axis=3), whole)
    some = ColumnGroups.of({"groups": [[0, 63], [9]]}, (1, 8, 8))
    assert some.shape_of(0) == (2,)
    assert np.array_equal(some.take(data, np.array([3, 8]), 1), whole.reshape(2, -1)[:, [9]])
    with pytest.raises(PartitionError, match=r"samples have the columns 0\.\.63"):
        ColumnGroups.of({"groups": [[0], [64]]}, (1, 8, 8))
    assert not list(mistakes({"groups": [[0], [1]], "labels": "server"}, 2))


def test_parties_learn_from_a_table_of_ones_own_what_neither_could_alone(tmp_path: Path) -> None:
    x = np.random.default_rng(5).normal(size=(600, 4))
    lines = [f"{','.join(f'{value:.3f}' for value in row)},{int(row[0] + row[2] > 0)}" for row in x]
    (tmp_path / "own.csv").write_text("\n".join(["a,b,c,d,label", *lines]))
    text = TEXT.replace("{set: digits, held_out: 1300}", "{set: csv, directory: own.csv, y: label}").replace(
        "groups: 2", "groups: [[0, 1], [2, 3]]").replace("digits_mlp", "logistic")
    solver = "task.solver={sgd: {lr: 0.5, steps: 30, batch: 32}}"
    result, = engine.run(loads(text, "own", [solver, "stop.rounds=3"], base=tmp_path), workers=0, out=tmp_path / "runs")
    assert result.summary is not None
    assert result.summary["accuracy"] > 0.9                 # a alone tells three quarters of the rows apart


def test_explain_says_what_a_batch_sends() -> None:
    """The samples are aligned, one batch goes there and back, and both parties send what a test needs."""
    by_type = {row["type"]: row for row in explain(loads(TEXT, "t"))["schemes"][0]["round"]["by_type"]}
    assert {kind: row["messages"] for kind, row in by_type.items()} == dict.fromkeys(
        ("Begin", "Blinded", "Raised", "Matches", "Aligned", "Embeddings", "Gradients", "TestActivations"), 2)
    for kind in ("Embeddings", "Gradients"):
        assert 0 < by_type[kind]["payload_bytes"] - 2 * 4 * 16 * 16 < 2 * 64
