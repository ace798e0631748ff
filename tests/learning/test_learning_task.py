import copy
import warnings

import numpy as np
import pytest

from emul.base.clock import cpu_ns, off_the_clock
from emul.learning import Task, TaskError
from emul.learning.attack import Attack

SPEC = {"data": {"set": "digits"}, "partition": {"dirichlet": 0.3}, "model": "digits_cnn",
        "solver": {"sgd": {"lr": 0.1, "steps": 3, "batch": 10}}}


def spec(**changes):
    return copy.deepcopy(SPEC) | changes


def read_only(vector):
    copied = vector.copy()
    copied.flags.writeable = False
    return copied


class Round:
    def __init__(self, now=1):
        self.now = now

    def __call__(self):
        return self.now


def test_everybody_starts_from_the_same_read_only_vector():
    one, two = Task(spec(), 10, 1), Task(spec(), 10, 1)
    two.for_node("client1", 0, Round()).local_update(two.initial_parameters())
    initial = one.initial_parameters()
    assert initial.shape == (one.dimension,) == (3658,)
    assert initial.dtype == np.float32
    assert initial.ctypes.data % 64 == 0
    np.testing.assert_array_equal(initial, two.for_node("server", None, Round()).initial_parameters())
    assert not np.array_equal(initial, Task(spec(), 10, 2).initial_parameters())
    with pytest.raises(ValueError, match="read-only"):
        initial[0] = 1


def test_a_local_update_is_after_minus_before_and_only_reads_its_input():
    task = Task(spec(), 10, 1)
    node = task.for_node("client4", 3, Round())
    before = read_only(task.initial_parameters())
    kept = before.copy()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        delta, n = node.local_update(before)
    assert n == node.samples() == task.samples(3) == 150
    np.testing.assert_array_equal(before, kept)
    np.testing.assert_array_equal(delta, task._model.read() - before)
    assert delta.dtype == np.float32
    assert delta.flags.writeable
    assert 0 < np.abs(delta).max() < 1
    again = delta.copy()
    node.local_update(before)                                   # must not write into what was returned
    np.testing.assert_array_equal(delta, again)


def test_calls_of_one_round_differ_and_a_new_round_counts_anew():
    task = Task(spec(), 10, 1)
    now = Round(1)
    node, w = task.for_node("client1", 0, now), task.initial_parameters()
    first, second = node.local_update(w)[0], node.local_update(w)[0]
    now.now = 2
    later = node.local_update(w)[0]
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, later)
    fresh = task.for_node("client1", 0, now)                    # k = 0 in round 2, whatever was called in round 1
    np.testing.assert_array_equal(fresh.local_update(w)[0], later)
    now.now = 1
    np.testing.assert_array_equal(fresh.local_update(w)[0], first)


def test_what_other_nodes_did_before_does_not_matter():
    w = Task(spec(), 10, 1).initial_parameters()
    alone = Task(spec(), 10, 1).for_node("client2", 1, Round()).local_update(w)[0]
    busy = Task(spec(), 10, 1)
    busy.for_node("client9", 8, Round()).local_update(w)
    busy.evaluate(w * 2)
    np.testing.assert_array_equal(busy.for_node("client2", 1, Round()).local_update(w)[0], alone)
    other = busy.for_node("client3", 1, Round()).local_update(w)[0]     # the same samples, another name
    assert not np.array_equal(other, alone)


def test_steps_replace_those_of_the_solver():
    task = Task(spec(), 10, 1)
    w = task.initial_parameters()

    def update(steps):
        return task.for_node("client1", 0, Round()).local_update(w, steps=steps)[0]
    np.testing.assert_array_equal(update(3), update(None))
    assert not update(0).any()
    assert not np.array_equal(update(1), update(3))


def test_federated_averaging_learns_the_digits():
    task = Task(spec(partition="iid", solver={"sgd": {"lr": 0.2, "epochs": 1, "batch": 10}}), 5, 1)
    now = Round()
    nodes = [task.for_node(f"client{i}", i, now) for i in range(5)]
    w = task.initial_parameters()
    for now.now in range(1, 11):
        updates = [node.local_update(w) for node in nodes]
        w = w + np.float32(1 / 5) * sum(delta for delta, _ in updates)
    assert task.evaluate(w)["accuracy"] > 0.85
    assert task.evaluate(task.initial_parameters())["accuracy"] < 0.3


def test_clients_are_evaluated_by_their_own_labels():
    task = Task(spec(partition={"classes": 1}), 10, 1)
    w = task.initial_parameters()
    per_client = [task.evaluate_client(client, w) for client in range(10)]
    label = int(task.data.train_y[task.indices(4)[0]])
    mask = task.data.test_y == label
    import torch
    with torch.no_grad():
        task._model.load(w)
        output = task._model.module(torch.from_numpy(task.data.inputs(task.data.test_x[mask])))
    assert per_client[4]["accuracy"] == pytest.approx((output.argmax(1) == label).double().mean().item())
    accuracies = [value["accuracy"] for value in per_client]
    got = task.evaluate_clients(w)["accuracy"]
    assert got == {"mean": pytest.approx(np.mean(accuracies)), "std": pytest.approx(np.std(accuracies)),
                   "min": min(accuracies), "max": max(accuracies)}
    assert task.for_node("client5", 4, Round()).evaluate(w) == per_client[4]
    assert task.for_node("server", None, Round()).evaluate(w) == task.evaluate(w)


def test_evaluation_follows_the_vector_not_the_last_answer():
    task = Task(spec(), 10, 1)
    w = task.initial_parameters()
    one = task.evaluate(w)
    assert task.evaluate(w * 3) != one
    assert task.evaluate(read_only(w)) == one


def test_held_out_samples_belong_to_no_client_and_train_the_server():
    task = Task(spec(data={"set": "digits", "held_out": 100}), 10, 1)
    held = set(task.held_out().tolist())
    assert len(held) == 100
    assert [task.samples(c) for c in range(10)] == [140] * 10
    assert not held & {i for c in range(10) for i in task.indices(c).tolist()}
    delta, n = task.for_node("server", None, Round()).local_update(task.initial_parameters())
    assert n == 100
    assert delta.any()


def test_a_node_without_samples_is_told_how_to_get_some():
    task = Task(spec(), 10, 1)
    text = ('node "server" is no client and has no samples: expected root or data.held_out in the task, '
            "the number of samples kept for such nodes")
    with pytest.raises(TaskError, match=f"^{text}$"):
        task.for_node("server", None, Round()).local_update(task.initial_parameters())


def test_a_hundred_thousand_clients_cost_no_memory_of_their_own():
    task = Task(spec(partition={"bootstrap": 15}), 100_000, 1)
    node = task.for_node("client100000", 99_999, Round())
    _, n = node.local_update(task.initial_parameters())
    assert n == 15
    with pytest.raises(TaskError, match=r"^expected a client in 0..99999, found 100000$"):
        task.samples(100_000)


class Poison(Attack):
    """In rounds above 1, and in all of them where `always`."""

    def __init__(self, number, how, always=True):
        self.number, self.how, self.always = number, how, always

    def poison(self, round_):
        return (self.number, self.how) if self.always or round_ > 1 else None


class Says(Attack):
    """`how` of the own update."""

    def __init__(self, how):
        self.how = how

    def update(self, own, stream):
        return self.how(own)


def test_a_poisoned_client_trains_on_changed_samples_and_others_do_not():
    task = Task(spec(), 10, 1)
    w = task.initial_parameters()
    seen = []

    def flip(x, y, rng):
        seen.append((x.copy(), y.copy()))
        return x, 9 - y

    def same(x, y, rng):
        return x, y
    honest = task.for_node("client1", 0, Round()).local_update(w)[0]
    unchanged = task.for_node("client1", 0, Round(), Poison(0, same)).local_update(w)[0]
    node = task.for_node("client1", 0, Round(), Poison(1, flip))
    poisoned = node.local_update(w)[0]
    node.local_update(w)
    np.testing.assert_array_equal(unchanged, honest)
    assert not np.array_equal(poisoned, honest)
    (x, y), = seen                                              # once, not at every update
    np.testing.assert_array_equal(x, task.data.inputs(task.data.train_x[task.indices(0)]))
    np.testing.assert_array_equal(y, task.data.train_y[task.indices(0)])
    np.testing.assert_array_equal(task.for_node("client1", 0, Round()).local_update(w)[0], honest)


def test_samples_are_poisoned_in_the_rounds_of_the_attack_alone():
    task, now = Task(spec(), 10, 1), [1]
    w = task.initial_parameters()
    node = task.for_node("client1", 0, lambda: now[0], Poison(0, lambda x, y, rng: (x, 9 - y), always=False))
    honest = task.for_node("client1", 0, lambda: now[0])
    np.testing.assert_array_equal(node.local_update(w)[0], honest.local_update(w)[0])
    now[0] = 2
    assert not np.array_equal(node.local_update(w)[0], honest.local_update(w)[0])


def test_an_attacker_says_another_update_of_what_it_trained_and_nothing_of_the_rest():
    task = Task(spec() | {"model": "digits_classic"}, 10, 1)
    w = task.initial_parameters()

    def node(attack=None):
        return task.for_node("client1", 0, Round(), attack)
    own = node().local_update(w, only="decision")[0]
    said = node(Says(lambda v: v - 1)).local_update(w, only="decision")[0]
    part = node().part("decision")
    rest = np.setdiff1d(np.arange(task.dimension), part)
    np.testing.assert_allclose(said[part], own[part] - 1, atol=1e-6)
    assert not said[rest].any()
    np.testing.assert_array_equal(node(Says(lambda v: v)).local_update(w)[0], node().local_update(w)[0])
    np.testing.assert_array_equal(node(Says(lambda v: -v)).gradient(w)[0], -node().gradient(w)[0])


def test_what_is_off_the_clock_trains_apart_and_counts_no_time():
    task, w = Task(spec(), 10, 1), None
    w = task.initial_parameters()
    alone = task.for_node("client2", 1, Round()).local_update(w)[0]
    found = {}

    def piece():
        with task.apart():
            found["apart"] = task.for_node("client2", 1, Round()).local_update(w)[0]
        before = cpu_ns()
        with task.apart(), off_the_clock():
            for _ in range(20):
                task.for_node("client2", 1, Round()).local_update(w)
        found["counted"] = cpu_ns() - before
        task.for_node("client1", 0, Round()).local_update(w)
    task.together.run([piece, lambda: task.for_node("client3", 2, Round()).local_update(w)])
    np.testing.assert_array_equal(found["apart"], alone)        # to the bit: not in a group with client3
    assert found["counted"] < 1_000_000


def test_the_gradient_points_where_one_step_of_sgd_goes():
    task = Task(spec(), 10, 1)
    w = task.initial_parameters()
    gradient, n = task.for_node("client1", 0, Round()).gradient(w)
    delta, _ = task.for_node("client1", 0, Round()).local_update(w, steps=1)
    assert n == 150
    np.testing.assert_allclose(delta, -0.1 * gradient, atol=1e-7)


def test_mnist_trains_from_its_files(shared_data):
    task = Task(spec(data={"set": "mnist", "directory": str(shared_data)}, model="mnist_pooled",
                     solver={"adam": {"lr": 0.002, "steps": 30, "batch": 64}}, partition="iid"), 100, 1)
    node, w = task.for_node("client1", 0, Round()), task.initial_parameters()
    delta, n = node.local_update(w)
    assert n == 600
    np.testing.assert_array_equal(task.for_node("client1", 0, Round()).local_update(w)[0], delta)
    assert task.evaluate(w + delta)["accuracy"] > 0.6
