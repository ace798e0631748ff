"""Clusters of clients whose data differ in kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emul.learning import Task
from emul.learning.data import load
from emul.scenario.task import mistakes

TURNED = {"rotate": [0, 90]}


def made(clusters: Any = TURNED, clients: int = 7, **changes: Any) -> Task:
    spec: dict[str, Any] = {"data": {"set": "digits"}, "model": "logistic", "clusters": clusters,
                            "solver": {"sgd": {"lr": 0.1, "steps": 2, "batch": 20}}}
    return Task(spec | changes, clients, 1)


def test_a_sample_is_turned_as_its_cluster_says():
    plain, task = load({"set": "digits"}), made()
    of = task.data.columns["cluster"].train
    assert sorted(np.bincount(of).tolist()) == [750, 750]
    np.testing.assert_array_equal(task.data.train_x[of == 0], plain.train_x[of == 0])
    np.testing.assert_array_equal(task.data.train_x[of == 1], np.rot90(plain.train_x[of == 1], 1, (-2, -1)))
    np.testing.assert_array_equal(task.data.train_y, plain.train_y)


def test_the_test_set_has_every_sample_once_for_each_cluster():
    plain, task = load({"set": "digits"}), made()
    n = len(plain.test_y)
    np.testing.assert_array_equal(task.data.test_x[:n], plain.test_x)
    np.testing.assert_array_equal(task.data.test_x[n:], np.rot90(plain.test_x, 1, (-2, -1)))
    np.testing.assert_array_equal(task.data.columns["cluster"].test, np.repeat([0, 1], n))


def test_labels_are_permuted_and_those_of_the_first_cluster_stay():
    plain, task = load({"set": "digits"}), made({"relabel": 3})
    of = task.data.columns["cluster"].train
    np.testing.assert_array_equal(task.data.train_y[of == 0], plain.train_y[of == 0])
    tables = []
    for c in (1, 2):
        before, after = plain.train_y[of == c], task.data.train_y[of == c]
        table = dict(zip(before.tolist(), after.tolist(), strict=True))
        assert [table[b] for b in before.tolist()] == after.tolist()
        assert sorted(table) == sorted(table.values())
        tables.append(table)
    assert tables[0] != tables[1]


@pytest.mark.parametrize("partition", ["iid", {"dirichlet": 0.3}, {"bootstrap": 20}])
def test_clients_hold_samples_of_their_own_cluster_only(partition: Any):
    task = made(partition=partition)
    of = task.data.columns["cluster"].train
    for client in range(7):
        assert task.cluster(client) == client % 2
        assert set(of[task.indices(client)].tolist()) == {client % 2}
        assert len(task.indices(client)) == task.samples(client) > 0
        own = task.own_test(client)
        assert len(own.test_y) == 297
    if partition != {"bootstrap": 20}:
        assert len(np.unique(np.concatenate([task.indices(c) for c in range(7)]))) == sum(map(task.samples, range(7)))


def test_the_same_place_in_two_clusters_has_labels_of_its_own():
    task = made(partition={"dirichlet": 0.1})
    assert not np.allclose(task.label_distribution(0), task.label_distribution(1))


def test_the_best_model_of_each_cluster_is_what_is_evaluated():
    task = made(clients=2)
    models = []
    for client in range(2):
        node = task.for_node(f"client{client}", client, lambda: 1)
        models.append(task.initial_parameters() + node.local_update(task.initial_parameters(), steps=60)[0])
    own = [task.evaluate_own(client, models[client])["accuracy"] for client in range(2)]
    one = task.evaluate(models[0])["accuracy"]
    node = task.for_node("server", None, lambda: 1)
    assert node.evaluate_best(np.stack(models)[::-1])["accuracy"] == pytest.approx(np.mean(own))
    assert node.evaluate_best(models[0])["accuracy"] == pytest.approx(one)
    assert np.mean(own) > one + 0.1


def test_without_clusters_each_client_has_the_best_model_for_its_labels():
    task = Task({**made().spec, "clusters": None, "partition": {"classes": 2}}, 5, 1)
    w = task.initial_parameters()
    expected = np.mean([each["accuracy"] for each in task.evaluate_each(w)])
    assert task.evaluate_best([w])["accuracy"] == pytest.approx(expected)
    assert task.cluster(3) is None


@pytest.mark.parametrize(("clusters", "place", "expected"), [
    ("x", ("clusters",), "expected such as {rotate: [0, 90]} or {relabel: 2}"),
    ({"rotate": [0]}, ("clusters", "rotate"), "expected two angles or more, multiples of 90 degrees"),
    ({"rotate": [0, 45]}, ("clusters", "rotate"), "expected two angles or more, multiples of 90 degrees"),
    ({"relabel": 1}, ("clusters", "relabel"), "expected a number of clusters >= 2"),
    ({"relabel": 8}, ("clusters", "relabel"), "expected at most 7 clusters, one a client"),
])
def test_what_is_wrong_with_clusters_is_told(clusters: Any, place: tuple[str, ...], expected: str):
    assert [(p, e) for p, _, e in mistakes({**made().spec, "clusters": clusters}, 7)] == [(place, expected)]
