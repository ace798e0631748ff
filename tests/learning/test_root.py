"""Root data at a server: drawn apart, as biased as it is said, and cut into parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emul.learning import Task, TaskError
from emul.learning.root import RootError
from emul.scenario.task import mistakes


def made(seed: int = 1, clients: int = 10, **changes: Any) -> Task:
    spec: dict[str, Any] = {"data": {"set": "digits"}, "model": "logistic", "root": {"samples": 100},
                            "solver": {"sgd": {"lr": 0.1, "steps": 2, "batch": 20}}}
    return Task(spec | changes, clients, seed)


def labels(task: Task) -> np.ndarray:
    return task.data.train_y[task.held_out()]


def test_root_data_belong_to_no_client_and_train_the_server():
    task = made()
    held = set(task.held_out().tolist())
    assert len(held) == 100
    assert not held & {i for c in range(10) for i in task.indices(c).tolist()}
    node = task.for_node("server", None, lambda: 1)
    assert node.local_update(task.initial_parameters())[1] == node.samples() == 100


def test_root_data_have_a_stream_of_their_own():
    assert not np.array_equal(made().held_out(), made(seed=2).held_out())
    np.testing.assert_array_equal(made().held_out(), made(partition={"dirichlet": 0.1}, clients=3).held_out())
    held = made(root=None, data={"set": "digits", "held_out": 100}).held_out()
    assert len(held) == 100
    assert not np.array_equal(made().held_out(), held)


def test_bias_is_the_share_of_one_class_and_the_rest_is_of_all_others():
    found = labels(made(root={"samples": 100, "bias": 0.6, "class": 3}))
    assert (found == 3).sum() == 60
    assert set(found.tolist()) == set(range(10))
    assert (labels(made(root={"samples": 50, "bias": 0})) != 0).all()


def test_too_few_samples_of_a_class_are_an_error():
    with pytest.raises(RootError, match=r"^root: needs 1000 training samples of class 0, there are 1\d\d$"):
        made(root={"samples": 1000, "bias": 1.0}).held_out()


def test_parts_are_disjoint_and_together_all_of_it():
    task = made(root={"samples": 100, "parts": "labels"})
    parts = [task.root_part(c, 3) for c in range(3)]
    assert sorted(np.concatenate(parts).tolist()) == task.held_out().tolist()
    of = [task.data.train_y[part] for part in parts]
    assert of[0].max() <= of[1].min() <= of[1].max() <= of[2].min()
    node = task.for_node("server", None, lambda: 1)
    w = task.initial_parameters()
    assert node.local_update(w, root=(0, 3))[1] == 34
    assert node.loss(w, root=(0, 3)) != node.loss(w, root=(2, 3)) != node.loss(w)


def test_a_client_has_no_root_data_and_a_part_must_exist():
    task = made()
    with pytest.raises(TaskError, match=r'^node "client1" is a client: it has no root data$'):
        task.for_node("client1", 0, lambda: 1).local_update(task.initial_parameters(), root=(0, 2))
    with pytest.raises(RootError, match=r"^root: expected a part in 0..1, found 2$"):
        task.root_part(2, 2)


def test_with_clusters_each_gives_an_equal_share_and_is_a_part():
    task = made(clusters={"rotate": [0, 90]}, root={"samples": 31, "bias": 0.5})
    of = task.data.columns["cluster"].train
    parts = [task.root_part(c, 2) for c in range(2)]
    assert [len(p) for p in parts] == [16, 15]
    assert [set(of[p].tolist()) for p in parts] == [{0}, {1}]
    assert [(task.data.train_y[p] == 0).sum() for p in parts] == [8, 8]
    with pytest.raises(RootError, match=r"^root: 3 parts of data with 2 clusters$"):
        task.root_part(0, 3)


@pytest.mark.parametrize(("root", "place", "expected"), [
    (3, ("root",), "expected such as {samples: 100}, or {samples: 100, bias: 0.5, class: 3}"),
    ({"samples": 0}, ("root", "samples"), "expected an integer in 1..1499"),
    ({"samples": 10, "bias": 2}, ("root", "bias"), "expected a share of the root samples in [0, 1]"),
    ({"samples": 10, "class": 10}, ("root", "class"), "expected a class in 0..9"),
    ({"samples": 10, "parts": "x"}, ("root", "parts"), "expected random or labels"),
    ({"sample": 10, "samples": 9}, ("root", "sample"), 'unknown key; did you mean "samples"?'),
])
def test_what_is_wrong_with_root_is_told(root: Any, place: tuple[str, ...], expected: str):
    spec = {**made().spec, "root": root}
    assert [(p, e) for p, _, e in mistakes(spec, 10)] == [(place, expected)]


def test_root_and_held_out_are_not_both_said():
    spec = {**made().spec, "data": {"set": "digits", "held_out": 5}}
    assert [(p, e) for p, _, e in mistakes(spec, 10)] == [(("root",), "expected either root or data.held_out")]
