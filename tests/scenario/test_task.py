"""What is wrong with a learning task as a scenario writes it."""

from __future__ import annotations

import copy
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emul import engine
from emul.base.errors import ScenarioError
from emul.scenario import load
from emul.scenario.task import cannot_fuse, mistakes

SPEC: dict[str, Any] = {"data": {"set": "digits"}, "partition": {"dirichlet": 0.3}, "model": "digits_cnn",
                        "solver": {"sgd": {"lr": 0.1, "steps": 3, "batch": 10}}}


def spec(**changes: Any) -> dict[str, Any]:
    return copy.deepcopy(SPEC) | changes


def test_looking_for_mistakes_loads_neither_torch_nor_sklearn() -> None:
    code = ("import sys; from emul.scenario.task import mistakes; "
            f"print(mistakes({SPEC!r}, 10), [m for m in ('torch', 'sklearn') if m in sys.modules])")
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[] []"


@pytest.mark.parametrize(("changes", "place", "found", "expected"), [
    ({"model": "digit_cnn"}, ("model",), '"digit_cnn"', 'unknown model; did you mean "digits_cnn"?'),
    ({"model": 3}, ("model",), "3",
     "expected the name of a model, or one with options such as {transformer: {blocks: 5}}"),
    ({"model": "mnist_pooled"}, ("model",), '"mnist_pooled"',
     "mnist_pooled takes samples of shape (1, 28, 28), the data have (1, 8, 8)"),
    ({"data": {"set": "digit"}}, ("data", "set",), '"digit"', 'unknown data set; did you mean "digits"?'),
    ({"data": "digits"}, ("data",), '"digits"', "expected a data set such as {set: digits}, or "
     "{set: csv, directory: FILE, y: COLUMN}"),
    ({"data": {"set": "digits", "directry": "x"}}, ("data", "directry",), '"x"',
     'unknown key; did you mean "directory"?'),
    ({"data": {"set": "digits", "held_out": 1500}}, ("data", "held_out",), "1500", "expected an integer in 0..1499"),
    ({"data": {"set": "digits", "normalise": {"std": 0}}}, ("data", "normalise",), "{'std': 0}",
     "expected such as {mean: 0.1307, std: 0.3081}, std > 0"),
    ({"data": {"set": "mnist"}, "model": "mnist_pooled"}, ("data", "directory",), "nothing",
     'data set "mnist": expected a directory with its IDX files, in the task or in $EMUL_DATA'),
    ({"partition": "dirichlet"}, ("partition", "dirichlet",), "nothing", "expected a concentration > 0"),
    ({"partition": {"dirichlet": 0}}, ("partition", "dirichlet",), "0", "expected a concentration > 0"),
    ({"partition": {"classes": 11}}, ("partition", "classes",), "11", "expected a number of classes in 1..10"),
    ({"partition": {"bootstrap": 0}}, ("partition", "bootstrap",), "0", "expected a number of samples >= 1"),
    ({"partition": {"sizes": "cubic"}}, ("partition", "sizes"), '"cubic"', "expected linear, square, exponential, or "
     "{lognormal: sigma} with a sigma above 0, at most 10"),
    ({"partition": {"sizes": {"lognormal": 0}}}, ("partition", "sizes"), "{'lognormal': 0}", "expected linear, square, "
     "exponential, or {lognormal: sigma} with a sigma above 0, at most 10"),
    ({"partition": {"shards": 0.5}}, ("partition", "shards"), "0.5", "expected a number of shards >= 1"),
    ({"partition": {"dirichlt": 1}}, ("partition",), '"dirichlt"', 'unknown partition; did you mean "dirichlet"?'),
    ({"partition": [1]}, ("partition",), "[1]", "expected one partition such as iid or {dirichlet: 0.2}"),
    ({"solver": {"sgd": {"lr": -1, "steps": 1}}}, ("solver", "sgd", "lr",), "-1", "expected a number > 0"),
    ({"modle": 1}, ("modle",), '"modle"', 'unknown key; did you mean "model"?'),
])
def test_a_mistake_is_found_with_its_place(changes: dict[str, Any], place: tuple[str, ...], found: str,
                                           expected: str) -> None:
    assert mistakes(spec(**changes), 10) == [(place, found, expected)]


def test_all_mistakes_are_found_at_once() -> None:
    wrong = spec(model="digit_cnn", partition={"classes": 0})
    assert [place for place, _, _ in mistakes(wrong, 10)] == [("partition", "classes"), ("model",)]
    assert [place for place, _, _ in mistakes({}, 1)] == [("data",), ("model",), ("solver",)]
    assert mistakes(3, 1) == [
        ((), "3", "expected the keys data, root, clusters, choose_on, partition, model, solver, objective, declared")]


def test_more_clients_than_samples_need_a_bootstrap() -> None:
    assert mistakes(spec(partition="iid"), 1501) == [(
        ("partition",), '"iid"', "iid: 1501 clients cannot share 1500 samples without repetition; use bootstrap")]
    assert mistakes(spec(partition={"bootstrap": 5}), 1501) == []
    held = {"set": "digits", "held_out": 1400}
    assert len(mistakes(spec(data=held), 101)) == 1
    assert mistakes(spec(data=held), 100) == []


@pytest.mark.parametrize(("value", "place", "expected"), [
    ({"avg": 3, "shots": 5}, ("std",), "expected a number"),
    ({"avg": 11, "std": 1, "shots": 5}, ("avg",), "expected at most the 10 classes"),
    ({"avg": 3, "std": 1, "shots": 0}, ("shots",), "expected an integer, 1 or more"),
    ({"avg": 3, "std": 1, "shot": 5}, ("shot",), 'unknown key; did you mean "shots"?'),
    (3, (), "expected such as {avg: 3, std: 2, shots: 100, test_shots: 40}")])
def test_a_class_space_that_is_none_is_said(value: Any, place: tuple[str, ...], expected: str) -> None:
    found = mistakes(spec(partition={"class_space": value}), 10)
    assert (("partition", "class_space", *place), expected) in [(path, said) for path, _, said in found]


@pytest.mark.parametrize(("normalise", "expected"), [
    ({"mean": [0.5, 0.5]}, "expected 3 numbers in a list, one for each channel"),
    ({"std": [0.5, 0.5, 0.0]}, "expected such as {mean: 0.1307, std: 0.3081}, std > 0"),
    ({"mean": []}, "expected such as {mean: 0.1307, std: 0.3081}, std > 0"),
    ({"mean": ["a", 1, 1]}, "expected such as {mean: 0.1307, std: 0.3081}, std > 0"),
    ({"mean": [0.5, 0.5, 0.5], "std": 0.2}, None)])
def test_a_normalisation_is_a_number_or_one_for_each_channel(tmp_path: Path, normalise: Any,
                                                             expected: str | None) -> None:
    for name in (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"):
        (tmp_path / name).touch()                       # nothing is read
    found = mistakes({"data": {"set": "cifar10", "directory": str(tmp_path), "normalise": normalise},
                      "model": "cinic_cnn", "solver": {"sgd": {"lr": 0.1, "steps": 1}}}, 2)
    assert [said for _, _, said in found] == ([] if expected is None else [expected])


def test_files_that_are_not_there_are_told() -> None:
    task = {"data": {"set": "cifar10", "directory": "/nowhere"}, "model": "cinic_cnn",
            "solver": {"sgd": {"lr": 0.1, "steps": 1}}}
    (place, found, said), = mistakes(task, 2)
    assert (place, found) == (("data", "directory"), '"/nowhere"')
    assert said.startswith("/nowhere: expected the binary batches of CIFAR-10")


def test_what_can_be_fused_is_told_before_the_run() -> None:
    assert cannot_fuse(SPEC) is None
    assert cannot_fuse({**SPEC, "data": {"set": "cifar10"}, "model": "resnet18"}) is None
    clipped = {"sgd": {"lr": 0.1, "steps": 1, "clip": 1.0}}
    assert str(cannot_fuse({**SPEC, "solver": clipped})).startswith("the solver: expected sgd or adam without clip")


@pytest.mark.parametrize(("clients", "task", "said"), [
    (1000, {"partition": {"shards": 2}}, "shards: 1000 clients with 2 shards each need 2000 samples, there are 1500"),
    (5, {"partition": {"degree": 0.5}}, "degree: 5 clients make no group for each of the 10 classes"),
    (5, {"partition": {"class_space": {"avg": 3, "std": 0, "shots": 400}}}, "class_space: class "),
    (1, {"partition": {"class_space": {"avg": 3, "std": 0, "shots": 4}}}, "leave one of 10 classes without a holder"),
    (700, {"partition": {"shards": 3}, "clusters": {"relabel": 2}, "root": {"samples": 100}},
     "shards: 350 clients with 3 shards each need 1050 samples, there are 700"),
    (5, {"partition": {"by": "writer"}}, "the built-in data sets have no columns"),
    (5, {"root": {"samples": 500, "bias": 1.0}}, "root: needs 500 training samples of class 0, there are "),
    (5, {"objective": {"squared_error": {"factor": "x"}}}, "TypeError: "),
    (5, {"model": "characters_mlp"}, "characters_mlp takes rows of tokens, such as those of the set text")])
def test_check_makes_what_a_run_cannot_make(clients: int, task: dict[str, Any], said: str) -> None:
    with pytest.raises(ScenarioError) as wrong:
        load({"emul": 1, "name": "p", "seed": 3, "topology": {"generator": "star", "clients": clients},
              "links": [{"match": "*", "latency": "1 ms"}], "compute": {"mode": "zero"}, "schemes": ["fedavg"],
              "stop": {"rounds": 1}, "task": {**SPEC, "model": "logistic", "partition": "iid"} | task})
    problem, = wrong.value.problems
    assert problem.place.startswith(f"task.{next(iter(task))}")
    assert said in problem.expected


# --- a random task that `check` accepts, a run accepts ----------------------------------------------------------------

SGD = {"lr": 0.1, "steps": 1, "batch": 4}
VALUES: dict[str, list[Any]] = {        # of each key what is usual first, then what is rare or wrong
    "data": [{"set": "digits"}, *({"set": "arrays", "directory": f"{name}.npz"} for name in (
        "table", "regression", "column", "images", "tokens", "sequences", "no_tests", "far", "no_inputs")),
        {"set": "csv", "directory": "t.csv", "y": "label"}, {"set": "csv", "directory": "t.csv", "y": "b", "x": ["a"]},
        {"set": "csv", "directory": "t.csv", "y": "label", "x": []}, {"set": "csv", "directory": "t.csv", "y": "what"},
        {"set": "digits", "held_out": 1499}, {"set": "digits", "held_out": -1}, {"set": "images"}, {"set": 0}, 0, {},
        {"set": "arrays", "directory": "table.npz", "held_out": 40},
        {"set": "arrays", "directory": "table.npz", "held_out": 39}],
    "partition": ["iid", {"shards": 2}, {"shards": 800}, {"shards": 0}, {"dirichlet": 0.1}, {"dirichlet": 1e-300},
                  {"classes": 2}, {"classes": 11}, {"class_space": {"avg": 2, "std": 0, "shots": 3}}, {"degree": 1.0},
                  {"class_space": {"avg": 2, "std": 1, "shots": 500}}, {"bootstrap": 1}, {"sizes": {"lognormal": 10}},
                  {"by": "who"}, {"by": 0}, {"columns": {"groups": 2}}, {"columns": {"groups": [[0, 1], [9]]}}, 0, {},
                  "what", {"iid": 3}, ""],
    "model": ["logistic", "digits_mlp", "digits_cnn", "characters_mlp", {"transformer": {"blocks": 1, "width": 8}},
              {"transformer": {"heads": 3}}, "mnist_classic", {"logistic": {"x": 1}}, "", 0, {}],
    "solver": [{"sgd": SGD}, {"sgd": {**SGD, "lr": 1e30}}, {"sgd": {"lr": 0, "steps": 1}}, {"sgd": {}}, {"sgd": 0}, {},
               0, {"sgd": {**SGD, "clip": 1.0, "momentum": 0.9}}, {"adam": {"lr": 0.1, "epochs": 1}}],
    "objective": [None, "cross_entropy", "squared_error", {"squared_error": {"factor": 0.5}}, "", 0, {},
                  {"squared_error": {"factor": "x"}}],
    "root": [None, {"samples": 10}, {"samples": 0}, {"samples": 500, "bias": 1.0}, {"samples": 39, "parts": "labels"},
             {"samples": 10, "bias": 0.5, "class": 99}, 0],
    "clusters": [None, {"rotate": [0, 90]}, {"rotate": [0, 45]}, {"relabel": 2}, {"relabel": 9}, 0, {}],
    "choose_on": [None, 5, -1, "", 10**9]}


@pytest.fixture(scope="module")
def brought(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, rng = tmp_path_factory.mktemp("brought"), np.random.default_rng(0)
    x, y = rng.normal(size=(60, 4)).astype(np.float32), rng.integers(0, 3, 60)
    tokens = rng.integers(0, 9, (60, 5))
    for name, inputs, targets, n in (
            ("table", x, y, 20), ("regression", x, x[:, 0], 20), ("column", x, y[:, None], 20),
            ("images", (x > 0).astype(np.uint8).repeat(16, 1).reshape(60, 1, 8, 8), y, 20),
            ("no_inputs", x[:, :0], y, 20), ("tokens", tokens, y, 20),
            ("sequences", tokens, tokens, 20), ("no_tests", x, y, 0), ("far", x, y * 10**6, 20)):
        np.savez(folder / f"{name}.npz", train_x=inputs[n:], train_y=targets[n:], test_x=inputs[:n], test_y=targets[:n],
                 train_who=y[n:])
    (folder / "t.csv").write_text("a,b,c,label\n" + "".join(
        f"{i % 7},{i / 2},{'xyz'[i % 3]},{i % 2}\n" for i in range(50)))
    return folder


@pytest.mark.parametrize("seed", [*range(8), pytest.param(range(400), marks=pytest.mark.slow)])
def test_a_task_that_check_accepts_a_run_accepts(seed: int | range, brought: Path, tmp_path: Path,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(brought)
    accepted = 0
    for one in seed if isinstance(seed, range) else range(seed * 1000, seed * 1000 + 5):
        rng = random.Random(one)
        odd = rng.sample(sorted(VALUES), rng.choice([1, 1, 2, 3]))
        task = {key: value for key, values in VALUES.items()
                if (value := rng.choice(values) if key in odd else values[0]) is not None}
        document = {"emul": 1, "name": "p", "seed": 3, "task": task, "compute": {"mode": "zero"}, "schemes": ["fedavg"],
                    "topology": {"generator": "star", "clients": rng.choice([1, 2, 7])},
                    "links": [{"match": "*", "latency": "1 ms"}],
                    "stop": {"rounds": 1} | rng.choice([{}, {}, {"accuracy": 0.9}, {"loss": 0.001}]),
                    "evaluation": {"scope": rng.choice(["global", "per_client"])}}
        try:
            plan = load(document)
        except ScenarioError:
            continue
        accepted += 1
        result, = engine.run(plan, workers=0, out=tmp_path, quiet=True)
        assert result.error is None, task
    assert accepted or not isinstance(seed, range)
