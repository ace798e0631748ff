"""Training on the data of another client: what gradient coding needs."""

from __future__ import annotations

import numpy as np
import pytest

from emul.learning import Task
from emul.learning.attack import Attack, Transform

SPEC = {"data": {"set": "digits"}, "partition": {"dirichlet": 0.3}, "model": "digits_mlp",
        "solver": {"sgd": {"lr": 0.1, "steps": 3, "batch": 16}}}


def test_all_who_hold_a_share_get_the_same_update_whatever_else_they_train() -> None:
    task = Task(SPEC, 4, 3)
    theta = task.initial_parameters()
    one, two = (task.for_node(f"client{k + 1}", k, lambda: 5) for k in (0, 1))
    alone, samples = one.local_update(theta, share=2)
    two.local_update(theta)
    two.local_update(theta, share=0)
    again, _ = two.local_update(theta, share=2)
    assert np.array_equal(alone, again)
    assert samples == task.samples(2)
    assert not np.array_equal(one.local_update(theta, share=0)[0], alone)
    later = task.for_node("client1", 0, lambda: 6).local_update(theta, share=2)[0]
    assert not np.array_equal(later, alone)                         # other batches in another round


def test_a_share_shifts_no_stream_of_the_nodes_own_training() -> None:
    task = Task(SPEC, 4, 3)
    theta = task.initial_parameters()
    plain = task.for_node("client1", 0, lambda: 1).local_update(theta)[0]
    node = task.for_node("client1", 0, lambda: 1)
    node.local_update(theta, share=3)
    assert np.array_equal(node.local_update(theta)[0], plain)


def test_a_poisoned_node_poisons_each_share_that_it_trains_on_once() -> None:
    task, seen = Task(SPEC, 4, 3), []

    def flip(x: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        seen.append(len(y))
        return x, 9 - y

    class Flip(Attack):
        def poison(self, round_: int) -> tuple[int, Transform]:
            return 0, flip
    node = task.for_node("client1", 0, lambda: 1, Flip())
    theta = task.initial_parameters()
    clean = task.for_node("client2", 1, lambda: 1).local_update(theta, share=2)[0]
    for _ in range(2):
        assert not np.array_equal(node.local_update(theta, share=2)[0], clean)
        node.local_update(theta)
    assert seen == [task.samples(2), task.samples(0)]


def test_there_is_no_share_beyond_the_clients() -> None:
    task = Task(SPEC, 4, 3)
    with pytest.raises(Exception, match=r"^expected a client in 0\.\.3, found 4$"):
        task.for_node("client1", 0, lambda: 1).local_update(task.initial_parameters(), share=4)
