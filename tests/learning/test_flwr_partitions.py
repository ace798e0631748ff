"""Partitioners of flwr-datasets by name: they divide as the package does, and what is wrong with them is said."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from emul import engine
from emul.base.errors import ScenarioError
from emul.base.streams import generator, key64
from emul.learning import flwr_partitions
from emul.learning.partition import make
from emul.learning.shards import PartitionError
from emul.scenario import loads

LABELS = np.random.default_rng(3).integers(0, 5, 400)
COLUMNS = {"writer": np.array([f"w{k % 8}" for k in range(400)]), "age": np.linspace(0, 1, 400)}
SEED = 11
TEXT = """
emul: 1
name: divided
seed: 3
topology: {generator: star, clients: 4}
links: [{match: "*", latency: 20 ms, bandwidth: 20 Mbit/s}]
task:
  data: {set: digits}
  partition: {flwr_datasets: {DirichletPartitioner: {alpha: 0.3}}}
  model: logistic
  solver: {sgd: {lr: 0.1, steps: 2, batch: 16}}
compute: {mode: zero}
schemes: [{name: fedavg, deadline: 2 s}]
stop: {rounds: 2}
"""


def parts(value: Any, clients: int = 4, seed: int = SEED, labels: np.ndarray = LABELS) -> list[np.ndarray]:
    made = make({"flwr_datasets": value}, labels, clients, seed, COLUMNS)
    return [made.indices(client) for client in range(clients)]


@pytest.fixture
def partitioners() -> ModuleType:
    """Those of the package itself."""
    found: ModuleType = pytest.importorskip(
        "flwr_datasets.partitioner", reason="flwr-datasets is not installed: pip install 'emul[flwr_datasets]'")
    return found


@pytest.mark.parametrize(("name", "arguments"), [
    ("DirichletPartitioner", {"alpha": 0.3, "min_partition_size": 5}), ("IidPartitioner", {}),
    ("InnerDirichletPartitioner", {"partition_sizes": [40, 80, 120, 160], "alpha": 0.5}),
    ("PathologicalPartitioner", {"num_classes_per_partition": 2}),
    ("ShardPartitioner", {"num_shards_per_partition": 2}), ("LinearPartitioner", {}), ("SquarePartitioner", {}),
    ("ExponentialPartitioner", {}), ("SizePartitioner", {"partition_sizes": [40, 80, 120, 160]}),
    ("ContinuousPartitioner", {"partition_by": "age", "strictness": 0.8}),
    ("GroupedNaturalIdPartitioner", {"partition_by": "writer", "group_size": 2})])
def test_parts_are_those_that_the_package_makes_of_the_same_rows(partitioners: ModuleType, name: str,
                                                                 arguments: dict[str, Any]) -> None:
    from datasets import Dataset

    kind = getattr(partitioners, name)
    order = generator(SEED, "partition", "flwr_datasets").permutation(400)
    takes = kind.__init__.__code__.co_varnames[:kind.__init__.__code__.co_argcount]
    wanted = {"num_partitions": 4, "partition_by": "label", "seed": key64(SEED, "partition", "flwr_datasets") >> 33}
    theirs = kind(**{**{k: v for k, v in wanted.items() if k in takes}, **arguments})
    theirs.dataset = Dataset.from_dict({
        "row": order.tolist(), "label": LABELS[order].tolist(), "writer": COLUMNS["writer"][order].tolist(),
        "age": COLUMNS["age"][order].tolist()})
    found = parts({name: arguments} if arguments else name)
    assert [part.tolist() for part in found] == [list(theirs.load_partition(k)["row"]) for k in range(4)]
    everything = np.concatenate(found)
    assert len(set(everything.tolist())) == len(everything)


@pytest.mark.usefixtures("partitioners")
def test_dirichlet_makes_unequal_sizes_by_the_seed() -> None:
    value = {"DirichletPartitioner": {"alpha": 0.3, "min_partition_size": 5}}
    assert len({len(part) for part in parts(value)}) > 1
    assert parts(value)[0].tolist() == parts(value)[0].tolist()
    assert parts(value)[0].tolist() != parts(value, seed=12)[0].tolist()


@pytest.mark.usefixtures("partitioners")
@pytest.mark.parametrize(("value", "said"), [
    ({"DirichletPartitioner": {}}, "alpha"), ({"DirichletPartitioner": {"alpha": -1.0}}, "greater than zero"),
    ({"DirichletPartitioner": {"alpah": 1.0}}, "unknown argument alpah; it takes num_partitions, partition_by, alpha"),
    ({"SizePartitioner": {"partition_sizes": [200, 200]}}, "it makes 2 parts for 4 clients"),
    ({"NaturalIdPartitioner": {"partition_by": "writer"}}, "it makes 8 parts for 4 clients"),
    ({"NaturalIdPartitioner": {"partition_by": "colour"}}, "colour")])
def test_an_argument_that_the_package_refuses_is_an_error_of_the_partition(value: Any, said: str) -> None:
    with pytest.raises(PartitionError, match=said):
        parts(value)


@pytest.mark.usefixtures("partitioners")
def test_targets_that_are_no_column_are_refused() -> None:
    with pytest.raises(PartitionError, match="one target for each sample"):
        parts("IidPartitioner", labels=np.zeros((400, 2)))


@pytest.mark.usefixtures("partitioners")
def test_a_run_has_such_parts(tmp_path: Path) -> None:
    found = engine.run(loads(TEXT), workers=0, out=tmp_path)[0]
    assert found.error is None


@pytest.mark.parametrize(("value", "said"), [
    ("{DirichletPartitoner: {alpha: 0.3}}", 'unknown partitioner; did you mean "DirichletPartitioner"?'),
    ("{VerticalEvenPartitioner: {}}", "unknown partitioner"), ("[1, 2]", "expected one partitioner"),
    ("{IidPartitioner: 3}", "expected its arguments by their names")])
def test_check_says_what_is_wrong_without_the_package(value: str, said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        loads(TEXT.replace("{DirichletPartitioner: {alpha: 0.3}}", value))


def test_without_the_package_check_and_partition_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flwr_partitions, "find_spec", lambda name: None)
    with pytest.raises(ScenarioError, match=r"which is not installed: pip install 'emul\[flwr_datasets\]'"):
        loads(TEXT)
    monkeypatch.setitem(sys.modules, "flwr_datasets", None)
    with pytest.raises(PartitionError, match=r"DirichletPartitioner needs flwr-datasets, .*emul\[flwr_datasets\]"):
        parts({"DirichletPartitioner": {"alpha": 0.3}})
