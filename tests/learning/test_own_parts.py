"""Parts of a task that users bring: what they may give, and what is said of what they may not."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emul.base.errors import ScenarioError
from emul.learning import Task, names, partition
from emul.learning.dataset import DataError
from emul.learning.names import PluginError, no_module
from emul.learning.shards import PartitionError
from emul.scenario import loads
from emul.testing import check_task

MODULE = '''
import numpy as np
from torch import nn
import torch

def data(spec):
    rng = np.random.default_rng(1)
    n = 60
    return {"train_x": rng.normal(size=(n, 4)), "train_y": rng.integers(0, 3, n), "train_writer": np.arange(n) % 7,
            "test_x": rng.normal(size=(20, 4)), "test_y": rng.integers(0, 3, 20), "test_writer": np.arange(20) % 7}

def net(input_shape, outputs):
    return nn.Linear(input_shape[0], outputs)

DATA, MODELS, PARTITIONS, OBJECTIVES = {"own": data}, {"net": net}, {}, {}
'''
SPEC: dict[str, Any] = {"data": {"set": "own"}, "model": "net", "solver": {"sgd": {"lr": 0.1, "steps": 2, "batch": 8}}}
TEXT = """
emul: 1
name: own
seed: 1
topology: {generator: star, clients: 3}
links: [{match: "*", latency: 20 ms}]
task:
  data: {set: own}
  partition: PARTITION
  model: net
  solver: {sgd: {lr: 0.1, steps: 2, batch: 8}}
  OBJECTIVE
compute: {mode: zero}
schemes: [fedavg]
stop: {rounds: 1}
"""
Plugin = Callable[[str], str]


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Plugin]:
    """Writes a module, the one above with more behind it, and gives its name."""
    monkeypatch.syspath_prepend(str(tmp_path))
    made: list[str] = []

    def write(more: str = "") -> str:
        name = f"own_part_{len(made)}"
        made.append(name)
        (tmp_path / f"{name}.py").write_text(MODULE + textwrap.dedent(more))
        return name

    yield write
    for name in made:
        sys.modules.pop(name, None)


def task(name: str, **changes: Any) -> Task:
    return Task(SPEC | changes, 3, 1, plugins=[name])


# --- data -----------------------------------------------------------------------------------------------------------

def test_floats_become_float32_and_columns_stand_beside_them(plugin: Plugin) -> None:
    found = task(plugin("")).data
    assert found.train_x.dtype == np.float32                            # type: ignore[union-attr]
    assert (found.classes, found.outputs, found.labelled, found.input_shape) == (3, 3, True, (4,))
    assert found.columns["writer"].train.tolist() == [i % 7 for i in range(60)]


def test_samples_of_several_tensors_are_trained_and_evaluated(plugin: Plugin) -> None:
    name = plugin('''
        def both(spec):
            own = data(spec)
            for part in ("train", "test"):
                own[f"{part}_x"] = {"numbers": own[f"{part}_x"], "word": np.arange(len(own[f"{part}_y"])) % 5}
            return own

        class Net(nn.Module):
            def __init__(self, shape, outputs):
                super().__init__()
                self.words, self.last = nn.Embedding(5, 3), nn.Linear(shape["numbers"][0] + 3, outputs)

            def forward(self, x):
                return self.last(torch.cat([x["numbers"], self.words(x["word"])], 1))

        DATA, MODELS = {"own": both}, {"net": Net}
    ''')
    found = task(name)
    assert found.data.input_shape == {"numbers": (4,), "word": ()}
    check_task(SPEC, 3, [name])                                         # trained as one: one after the other
    start = found.initial_parameters()
    update, _ = found.for_node("client1", 0, lambda: 1).local_update(start, steps=40)
    assert found.evaluate(start + update).keys() == {"accuracy", "loss"}
    assert found.for_node("client1", 0, lambda: 1).loss(start + update) < found.for_node(
        "client1", 0, lambda: 1).loss(start)


def test_targets_may_be_several_numbers(plugin: Plugin) -> None:
    name = plugin('''
        def several(spec):
            own = data(spec)
            return own | {f"{part}_y": own[f"{part}_x"][:, :2] * 2 for part in ("train", "test")}

        DATA = {"own": several}
    ''')
    found = task(name)
    assert (found.data.classes, found.data.outputs) == (0, 2)
    assert str(found.objective) == "squared_error"
    check_task(SPEC, 3, [name])
    start = found.initial_parameters()
    update, _ = found.for_node("client1", 0, lambda: 1).local_update(start, steps=200)
    assert found.evaluate(start + update)["loss"] < 0.05
    assert found.evaluate_client(0, start) == found.evaluate(start)


@pytest.mark.parametrize(("change", "said"), [
    ('{"train_x": own["train_x"]}', "expected the arrays train_x, .*, test_y, train_y, test_x, test_y not given"),
    ('own | {"train_y": own["train_y"][1:]}', "expected one target per train sample, found 60 samples in train_x, "
                                              "targets of shape"),
    ('own | {"train_y": -own["train_y"]}', r"expected targets of 0 or more, found -2"),
    ('own | {"test_x": own["test_x"][:, :3]}', r"expected samples of one shape and type for training and test, found "
                                              r"\(4,\) and \(3,\)"),
    ('own | {"train_x": own["train_x"].astype(str)}', "expected numbers for train_x, found <U32"),
    ('own | {"valid_x": 1}', 'found "valid_x"'),
    ('own | {"train_page": [1, 2]}', r"train_page: expected one value for each of the 60 samples, found an array of "
                                     r"shape \(2,\)"),
    ('3', "expected a dict with train_x, train_y, test_x, test_y, found int")])
def test_data_that_cannot_be_trained_on_are_told(plugin: Plugin, change: str, said: str) -> None:
    name = plugin(f"def wrong(spec):\n    own = data(spec)\n    return {change}\n\nDATA = {{'own': wrong}}")
    with pytest.raises(DataError, match=rf'^data set "own": .*({said})'):
        _ = task(name).data


# --- partitions -----------------------------------------------------------------------------------------------------

def test_whole_groups_are_dealt_and_own_test_samples_are_those_of_the_groups(plugin: Plugin) -> None:
    found = task(plugin(""), partition={"by": "writer"})
    held = [{int(found.data.columns["writer"].train[i]) for i in found.indices(client)} for client in range(3)]
    assert sorted(map(len, held)) == [2, 2, 3]
    assert set.union(*held) == set(range(7))
    assert sum(found.samples(client) for client in range(3)) == 60
    for client in range(3):
        own = found.test_indices(client)
        assert own is not None
        assert {int(i) % 7 for i in own} == held[client]
    losses = found.for_node("client1", 0, lambda: 1).loss(found.initial_parameters(), on="test", each=True)
    assert losses.shape == found.test_indices(0).shape                  # type: ignore[union-attr]
    other = Task(SPEC | {"partition": {"by": "writer"}}, 3, 2, plugins=[found._plugins[0]])
    assert any(not np.array_equal(found.indices(c), other.indices(c)) for c in range(3)), "dealt by the seed"


@pytest.mark.parametrize(("clients", "column", "said"), [
    (8, "writer", r'by: 8 clients cannot share the 7 values of "writer"'),
    (3, "writr", r'unknown column "writr"; did you mean "writer"\?')])
def test_groups_that_do_not_suffice_are_told(clients: int, column: str, said: str) -> None:
    with pytest.raises(PartitionError, match=f"^{said}$"):
        partition.make({"by": column}, np.zeros(60, int), clients, 1, {"writer": np.arange(60) % 7})


@pytest.mark.parametrize(("body", "said"), [
    ("return np.array_split(rng.permutation(len(targets)), clients - value)",
     'partition "mine": expected an array of indices for each of 3 clients, found 2'),
    ("return [np.arange(61)] * clients", 'partition "mine": client 0: expected indices in 0..59, found int64 of shape'),
    ("return [targets == k for k in range(clients)]",
     'partition "mine": client 0: expected indices in 0..59, found bool of shape')])
def test_a_partition_of_the_user_gives_indices_for_each_client(plugin: Plugin, body: str, said: str) -> None:
    name = plugin(f"def mine(targets, columns, clients, value, rng):\n    {body}\n\nPARTITIONS = {{'mine': mine}}")
    with pytest.raises(PartitionError, match=f"^{said}"):
        task(name, partition={"mine": 1}).indices(0)
    if "clients - value" in body:
        sizes = [task(name, partition={"mine": 0}).samples(client) for client in range(3)]
        assert sizes == [20, 20, 20]


def test_labels_are_needed_where_a_partition_goes_by_them() -> None:
    with pytest.raises(PartitionError, match=r"^dirichlet: expected a label for each sample, found targets of float32"):
        partition.make({"dirichlet": 0.3}, np.zeros(60, np.float32), 3, 1)


# --- models ---------------------------------------------------------------------------------------------------------

FROZEN = '''
    def adapted(input_shape, outputs):
        body = nn.Linear(input_shape[0], 16)
        for p in body.parameters():
            p.requires_grad_(False)
        return nn.Sequential(body, nn.ReLU(), nn.Linear(16, outputs))

    MODELS = {"net": adapted}
'''


def test_frozen_parameters_are_not_sent_and_train_as_one_as_alone(plugin: Plugin) -> None:
    name = plugin(FROZEN)
    found = task(name)
    assert found.dimension == 17 * 3
    check_task(SPEC, 3, [name])
    body = found._model.module[0].weight.clone()                        # type: ignore[index, union-attr]
    update, _ = found.for_node("client1", 0, lambda: 1).local_update(found.initial_parameters())
    assert update.any()
    assert bool((found._model.module[0].weight == body).all())          # type: ignore[index]
    assert bool((task(name)._model.module[0].weight == body).all())     # type: ignore[index]


# --- what the check says --------------------------------------------------------------------------------------------

def problems(text: str, plugins: list[str]) -> list[tuple[str, str]]:
    with pytest.raises(ScenarioError) as error:
        loads(text, plugins=plugins)
    return [(problem.place, problem.expected) for problem in error.value.problems]


def scenario(partition_: str = "iid", objective: str = "") -> str:
    return TEXT.replace("PARTITION", partition_).replace("OBJECTIVE", f"objective: {objective}" if objective else "")


@pytest.mark.parametrize(("more", "place", "said"), [
    ("def wrong(spec):\n    raise ValueError('no file')\nDATA = {'own': wrong}", "task.data.set",
     r"ValueError: no file \(own_part_0.py, line 17\)"),
    ("MODELS = {'net': lambda shape, outputs: nn.Conv2d(1, outputs, 3)}", "task.model", r"RuntimeError: .*"),
    ("MODELS = {'net': lambda shape, outputs: 3}", "task.model", "expected a torch.nn.Module, found int"),
    ("MODELS = {'net': lambda shape, outputs: nn.ReLU()}", "task.model", r"expected a parameter that is trained .*"),
    ("MODELS = {'net': lambda shape, outputs: nn.LSTM(4, outputs)}", "task.model",
     r"for 3 samples: expected a tensor \(3, ...\), found tuple"),
    ("MODELS = {'net': lambda shape, outputs: nn.Sequential(nn.Linear(4, 3), nn.Flatten(0))}", "task.model",
     r"for 3 samples: expected a tensor \(3, ...\), found \(9,\)"),
    ("import random\ndef net(s, o):\n    made = nn.Linear(4, o)\n    made.bias.data += random.random()\n"
     "    return made\nMODELS = {'net': net}", "task.model",
     "expected the same parameters each time that it is made: .*"),
    ("DATA = [data]", "task", r'plug-in "own_part_0": expected DATA = {"name": function}, found \[<function .*')])
def test_what_is_wrong_with_a_part_is_said_at_its_place(plugin: Plugin, more: str, place: str, said: str) -> None:
    found = problems(scenario(), [plugin(more)])
    assert [where for where, _ in found] == [place]
    assert re.fullmatch(said, found[0][1]), found[0][1]


@pytest.mark.parametrize(("body", "said"), [
    ("return outputs.logits", r"wrong: for 3 samples: expected losses of shape \(3,\), found \(3, 3\); the model gives "
                              r"\(3, 3\), targets are \(3,\) int64"),
    ("return (0 * batch.y).float()", "wrong: expected a loss with a gradient by the model's parameters"),
    ("return outputs.logits[:, 0] / batch.z", r"AttributeError: .*no attribute 'z' \(own_part_0.py, line \d+\)")])
def test_an_objective_is_tried_on_a_batch(plugin: Plugin, body: str, said: str) -> None:
    name = plugin(f"""
        from dataclasses import dataclass
        from emul.learning.objectives import Objective

        @dataclass(frozen=True, eq=False)
        class Wrong(Objective):
            def __call__(self, outputs, batch, weights):
                {body}

        OBJECTIVES = {{"wrong": Wrong}}
    """)
    (place, found), = problems(scenario(objective="wrong"), [name])
    assert place == "task.objective"
    assert re.fullmatch(said, found), found


def test_a_column_that_is_not_there_and_a_module_that_is_not_there_are_told(plugin: Plugin) -> None:
    name = plugin("")
    assert problems(scenario("{by: writr}"), [name]) == [
        ("task.partition", 'unknown column "writr"; did you mean "writer"?')]
    assert loads(scenario("{by: writer}"), plugins=[name]).task["partition"] == {"by": "writer"}
    with pytest.raises(PluginError, match=r'^plug-in "no_such" cannot be imported: No module named'):
        _ = Task(SPEC, 3, 1, plugins=["no_such"]).data


@pytest.mark.parametrize("plugin", ["mine.py", "./mine.py", "folder/mine", "my-task", ""])
def test_a_file_is_no_module_and_is_told_so_before_it_is_imported(plugin: str) -> None:
    assert no_module(plugin).startswith(f"--plugin {plugin}: expected the name of a module, such as ")
    with pytest.raises(PluginError, match="expected the name of a module"):
        names.imported(plugin)
    assert no_module("package.mine") == ""


@pytest.mark.parametrize("scheme", ["mp_dp", "mp_cdp", "mp_dp_naive", "{name: pile, t: 3, bits: 512}"])
def test_a_model_that_cannot_be_disguised_is_said_before_a_run_to_schemes_that_disguise_it(plugin: Plugin, scheme: str,
                                                                                            ) -> None:
    name = plugin('''
        class Twice(nn.Module):
            def __init__(self, inputs, outputs):
                super().__init__()
                self.first, self.again, self.last = nn.Linear(inputs, 3), nn.Linear(3, 3), nn.Linear(3, outputs)
            def forward(self, x):
                return self.last(torch.relu(self.again(torch.relu(self.again(torch.relu(self.first(x)))))))

        MODELS["net"] = lambda shape, outputs: Twice(shape[0], outputs)
    ''')
    text = TEXT.replace("PARTITION", "iid").replace("OBJECTIVE", "").replace("clients: 3", "clients: 5")
    assert loads(text, plugins=[name])
    if "pile" in scheme:
        text = text.replace("{generator: star,", "{generator: star_mesh, servers: 2,")
    with pytest.raises(ScenarioError) as error:
        loads(text.replace("[fedavg]", f"[{scheme}]"), plugins=[name])
    problem, = error.value.problems
    assert (problem.place, problem.expected) == ("task.model", (
        'layer "again" (Linear) cannot be disguised: it is used more than once in a pass, and its weights have one '
        "scale"))
