"""Results from a store: found only for what is equal in everything that they depend on, and then equal to the bit."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emul.base.clock import cpu_ns, off_the_clock
from emul.learning import Task
from emul.learning.attack import Attack
from emul.learning.results import Results, _packed, _unpacked, place_of
from emul.learning.training import Samples
from emul.store import Store

SPEC = {"data": {"set": "digits", "held_out": 20}, "partition": {"dirichlet": 0.5}, "model": "digits_classic",
        "solver": {"sgd": {"lr": 0.1, "steps": 2, "batch": 8}}}


class Flipped(Attack):
    """Learns from labels turned around."""

    def poison(self, round_: int) -> tuple[int, Any]:
        return 0, lambda x, y, rng: (x, 9 - y)


def task(folder: Path | None, **changes: Any) -> Task:
    seed = changes.pop("seed", 1)
    return Task({**SPEC, **changes}, 4, seed, store=None if folder is None else Store(folder))


def node(task: Task, name: str = "a", client: int | None = 1, round_: int = 3, **rest: Any) -> Any:
    return task.for_node(name, client, lambda: round_, **rest)


USES: dict[str, Callable[[Any, np.ndarray], Any]] = {
    "training": lambda n, w: n.local_update(w)[0],
    "gradient": lambda n, w: n.gradient(w)[0],
    "evaluation": lambda n, w: np.array(list(n.evaluate(w).values())),
}


@pytest.mark.parametrize("use", USES)
def test_what_is_found_is_what_was_computed_and_can_be_written_to(use: str, tmp_path: Path) -> None:
    plain, first = task(None), task(tmp_path)
    w = plain.initial_parameters()
    expected = USES[use](node(plain), w)
    assert np.array_equal(USES[use](node(first), w), expected)
    first.results.close()
    second = task(tmp_path)
    found = USES[use](node(second), w)
    assert second.results.counts[0] >= 1
    assert second.results.counts[1] == 0, "nothing is computed twice"
    assert np.array_equal(found, expected)
    found += 1


def test_trainings_that_are_one_are_found_by_all_their_members(tmp_path: Path) -> None:
    def updates(folder: Path | None, clients: list[int]) -> tuple[Task, list[np.ndarray]]:
        t, out = task(folder), {}
        w = t.initial_parameters()
        nodes = {c: node(t, f"client{c}", c) for c in clients}

        def piece(c: int) -> None:
            out[c] = nodes[c].local_update(w)[0]

        t.together.run([lambda c=c: piece(c) for c in clients])
        return t, [out[c] for c in clients]

    _, expected = updates(None, [0, 1, 2])
    first, _ = updates(tmp_path, [0, 1, 2])
    first.results.close()
    second, found = updates(tmp_path, [0, 1, 2])
    assert second.results.counts[:2] == (1, 0)
    assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))
    third, _ = updates(tmp_path, [0, 1])
    assert third.results.counts[:2] == (0, 1), "another group rounds otherwise"


CHANGES: dict[str, Callable[[Path, np.ndarray], Any]] = {
    "where it begins": lambda f, w: node(task(f)).local_update(np.nextafter(w, np.float32(9))),
    "the node's name": lambda f, w: node(task(f), "b").local_update(w),
    "the client's samples": lambda f, w: node(task(f), "a", 2).local_update(w),
    "the round": lambda f, w: node(task(f), round_=4).local_update(w),
    "the call": lambda f, w: (n := node(task(f)), n._stream(), n.local_update(w)),
    "the steps": lambda f, w: node(task(f)).local_update(w, steps=3),
    "the epochs": lambda f, w: node(task(f)).local_update(w, epochs=1),
    "the part": lambda f, w: node(task(f)).local_update(w, only="decision"),
    "the rate": lambda f, w: node(task(f, solver={"sgd": {"lr": 0.2, "steps": 2, "batch": 8}})).local_update(w),
    "the batch": lambda f, w: node(task(f, solver={"sgd": {"lr": 0.1, "steps": 2, "batch": 9}})).local_update(w),
    "the momentum": lambda f, w: node(task(f, solver={"sgd": {"lr": 0.1, "steps": 2, "batch": 8, "momentum": 0.5}})
                                      ).local_update(w),
    "the solver": lambda f, w: node(task(f, solver={"adam": {"lr": 0.1, "steps": 2, "batch": 8}})).local_update(w),
    "the seed": lambda f, w: node(task(f, seed=2)).local_update(w),
    "the normalisation": lambda f, w: node(task(f, data={"set": "digits", "held_out": 20, "normalise":
                                                         {"mean": 0.1, "std": 0.3}})).local_update(w),
    "the model": lambda f, w: (t := task(f, model="logistic"), node(t).local_update(t.initial_parameters())),
    "poisoned samples": lambda f, w: node(task(f), attack=Flipped()).local_update(w),
    "what is computed": lambda f, w: node(task(f)).gradient(w),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_any_input_finds_nothing(change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = task(tmp_path)
    w = first.initial_parameters()
    node(first).local_update(w)
    first.results.close()
    asked: list[Task] = []
    init = Task.__init__

    def noted(self: Task, *args: Any, **rest: Any) -> None:
        init(self, *args, **rest)
        asked.append(self)

    monkeypatch.setattr(Task, "__init__", noted)
    CHANGES[change](tmp_path, w)
    assert asked[0].results.counts[:2] == (0, 1)


@pytest.mark.parametrize("field", ["sources", "source_of", "processor"])
def test_other_code_or_another_processor_finds_nothing(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from emul.learning import results

    def place() -> object:
        return place_of("logistic", (1, 8, 8), 10, 1, "cpu", ["emul.schemes.fedavg"])

    before = place()
    monkeypatch.setattr(results, field, lambda *args: b"another")
    assert place() != before


def test_no_key_no_store(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        results = Results(store, ())
        for _ in range(2):
            assert results.of("x", print, lambda: [np.ones(3)])[0].sum() == 3
        assert results.counts == (0, 0, 0)


def test_what_computing_took_is_counted_where_it_is_found(tmp_path: Path) -> None:
    def busy() -> list[np.ndarray]:
        sum(i * i for i in range(300_000))
        return [np.zeros(2)]

    with Store(tmp_path) as store:
        results = Results(store, ())
        results.of("x", 1, busy)
        assert results.saved_ns == 0
        begin = cpu_ns()
        results.of("x", 1, busy)
        once = results.saved_ns
        assert once > 3_000_000
        assert cpu_ns() - begin >= once
        with off_the_clock():
            begin = cpu_ns()
            results.of("x", 1, busy)
        assert cpu_ns() - begin < once
        assert results.saved_ns == 2 * once


@pytest.mark.parametrize("array", [np.zeros((0, 3), np.float32), np.arange(6.0).reshape(2, 3), np.array(7, np.int64),
                                   np.array([True]), np.arange(10, dtype=np.float32)[::2]])
def test_arrays_come_back_as_they_were(array: np.ndarray) -> None:
    spent_ns, (same, other) = _unpacked(b"".join(_packed(12, [array, np.ones(1)])))
    assert (spent_ns, same.dtype, same.shape) == (12, array.dtype, array.shape)
    assert np.array_equal(same, array)
    assert other.tolist() == [1.0]


def test_a_data_set_is_hashed_once_and_by_all_its_fields() -> None:
    data = task(None).data
    key = data.content_key
    assert data.content_key is key
    for change in ({"train_x": data.train_x[:5]}, {"test_y": data.test_y[:5]}, {"scale": 2.0}, {"mean": 0.5},
                   {"classes": 11}):
        assert dataclasses.replace(data, **change).content_key != key
    assert Samples(data, np.arange(3)).data.content_key is key
