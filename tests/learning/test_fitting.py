"""Groups of clients that memory holds, on the CPU; `pretend_cases.py` has those of a device."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from emul import engine
from emul.base.errors import ScenarioError
from emul.learning import TaskError
from emul.learning.fitting import Fitting, met_no_memory, peak_bytes
from emul.scenario import loads


def test_what_tensors_hold_at_the_most_is_found_out() -> None:
    def work() -> None:
        a = torch.zeros(1000, 100)
        b = a.view(-1) + 1
        del a
        (b[:50_000] * 2).sum()

    assert peak_bytes(work) == 800_000
    assert peak_bytes(lambda: None) == 0


@pytest.mark.parametrize(("room", "asked", "sizes", "most"), [
    (1000, 8, [8], 0), (100 + 7 * 50, 8, [8], 0), (100 + 7 * 50 - 1, 8, [4, 4], 4), (100 + 2 * 50, 9, [3, 3, 3], 3),
    (100, 3, [1, 1, 1], 1), (0, 3, [1, 1, 1], 1), (1000, 0, [], 0)])
def test_groups_are_halves_that_fit(room: int, asked: int, sizes: list[int], most: int) -> None:
    fitting = Fitting()
    fitting.plan(room, 100, 150)
    groups = list(fitting.groups(range(asked)))
    assert [len(group) for group in groups] == sizes
    assert [one for group in groups for one in group] == list(range(asked))
    assert fitting.most == most


def test_the_models_that_come_out_take_room_too() -> None:
    fitting = Fitting()
    fitting.plan(100 + 7 * 50 + 16 * 10, 100, 150, 10)
    assert [len(group) for group in fitting.groups(range(8))] == [8]
    assert [len(group) for group in fitting.groups(range(16))] == [4] * 4       # of 8, the 16 that come out do not fit


def test_a_group_that_met_no_memory_stays_small() -> None:
    fitting = Fitting()
    fitting.halve(8)
    assert [len(group) for group in fitting.groups(range(12))] == [3] * 4
    assert fitting.halved == 1


def test_an_allocation_that_fails_is_known_from_other_errors() -> None:
    with pytest.raises(RuntimeError) as found:
        torch.empty(2**60)
    assert met_no_memory(found.value)
    assert not met_no_memory(RuntimeError("shapes do not fit"))


WIDE = """
import sys
from pathlib import Path
import numpy as np
from torch import nn
from emul.learning import Task

DATA = {"made": lambda spec: {"train_x": np.zeros((60, 64), np.float32), "train_y": np.arange(60) % 10,
                              "test_x": np.zeros((0, 64), np.float32), "test_y": np.zeros(0, int)}}
MODELS = {"wide": lambda shape, classes: nn.Sequential(nn.Linear(64, 20_000), nn.ReLU(), nn.Linear(20_000, 10))}

if __name__ == "__main__":
    task = Task({"data": {"set": "made"}, "partition": "iid", "model": "wide",
                 "solver": {"sgd": {"lr": 0.1, "steps": 2, "batch": 2}}}, 30, 1, plugins=["wide"],
                memory=int(sys.argv[1]))
    task.prepare()
    nodes = [task.for_node(f"client{i}", i, lambda: 1) for i in range(30)]
    w = task.initial_parameters()
    task.together.run([lambda node=node: node.local_update(w) for node in nodes])
    # getrusage's ru_maxrss begins with what the parent held when it forked, so the pytest process would be measured.
    peak, = (line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line)
    print(task.fitting.most, 1024 * int(peak))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="VmHWM is of Linux")
def test_a_limit_bounds_the_resident_memory_of_a_worker(tmp_path: Path) -> None:
    (tmp_path / "wide.py").write_text(WIDE)
    found: dict[int, list[int]] = {}
    for limit in (0, 700 * 2**20):
        done = subprocess.run([sys.executable, "wide.py", str(limit)], cwd=tmp_path, capture_output=True,
                              text=True, check=True)
        found[limit] = [int(number) for number in done.stdout.split()]
    (all_as_one, free), (most, bound) = found.values()
    assert all_as_one == 0
    assert 2 <= most <= 15
    assert bound <= 700 * 2**20 < free, "without the limit it takes more"


SCENARIO = """
emul: 1
name: small
seed: 1
topology: {generator: star_mesh, clients: 6}
links: [{match: "*", latency: 1 ms, bandwidth: 10 Mbit/s}]
task: {data: {set: digits}, partition: iid, model: digits_mlp, solver: {sgd: {lr: 0.1, steps: 2, batch: 4}}}
compute: {mode: zero, memory: %s}
fuse: {clients: 6, lanes: 1}
schemes: [fedavg]
stop: {rounds: 2}
"""


def test_the_summary_says_how_memory_limited_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def summary(memory: str) -> dict[str, Any]:
        result, = engine.run(loads(SCENARIO % memory), workers=0, out=tmp_path)
        assert result.error is None
        assert result.summary is not None
        return result.summary

    free = summary("null")
    assert free["real_fused"] is None
    assert summary("1 TB")["real_fused"] is None
    monkeypatch.setattr(Fitting, "_fits", lambda self, size, asked: size <= 2)
    limited = summary("1 TB")
    assert limited["real_fused"] == {"most": 2, "halved": 0}
    assert limited["virtual_seconds"] == free["virtual_seconds"]


def test_a_model_that_does_not_fit_is_an_error_before_the_run(tmp_path: Path, pools: list[Any]) -> None:
    for where in (0, pools[1]):
        try:
            said = str(engine.run(loads(SCENARIO % "400 MB"), workers=where, out=tmp_path)[0].error)
        except TaskError as error:                          # where there is no worker to say it
            said = str(error)
        assert 'model "digits_mlp": a step of one client takes ' in said
        assert "expected at most 0 MiB, which cpu has for it" in said


def test_memory_is_a_key_of_a_cpu_and_comes_back_in_the_resolved_scenario() -> None:
    scenario = loads(SCENARIO % "4 GiB")
    assert scenario.compute.memory == 4 * 2**30
    assert loads(scenario.resolved()).compute == scenario.compute
    with pytest.raises(ScenarioError, match=r"compute.memory  4 GiB  is of a CPU: what a GPU has free is found out"):
        loads(SCENARIO % "4 GiB, device: cuda")
