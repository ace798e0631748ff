"""Which GPU a worker has: in turn, by the numbers that CUDA_VISIBLE_DEVICES gives. No GPU is needed."""

from __future__ import annotations

import os
from typing import Any

import pytest

from emul import engine
from emul.engine import setups
from emul.scenario import loads
from emul.workers.cluster import Cluster
from emul.workers.core import Core, Setup
from emul.workers.ray_actors import Actors

SCENARIO = """
emul: 1
name: small
seed: 1
topology: {generator: star_mesh, clients: 6}
links: [{match: "*", latency: 1 ms, bandwidth: 10 Mbit/s}]
task: {data: {set: digits}, partition: iid, model: logistic, solver: {sgd: {lr: 0.1, steps: 2, batch: 4}}}
compute: {mode: zero, device: cuda}
schemes: [fedavg]
stop: {rounds: 2}
"""


def wired(workers: int, gpus: int, monkeypatch: pytest.MonkeyPatch) -> list[Setup]:
    monkeypatch.setattr(setups, "gpus", lambda: gpus)
    scenario = loads(SCENARIO)
    return list(engine.wire(scenario, *scenario.schemes[0], workers).setups)


@pytest.mark.parametrize(("workers", "gpus", "devices", "sharing"), [
    (1, 2, [0], [1]), (2, 2, [0, 1], [1, 1]), (5, 2, [0, 1, 0, 1, 0], [3, 2, 3, 2, 3]), (3, 1, [0, 0, 0], [3, 3, 3]),
    (4, 8, [0, 1, 2, 3], [1, 1, 1, 1])])
def test_workers_have_the_gpus_in_turn_and_know_with_how_many_they_share_one(
        workers: int, gpus: int, devices: list[int], sharing: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    found = wired(workers, gpus, monkeypatch)
    assert [setup.device for setup in found] == [f"cuda:{i}" for i in devices]
    assert [setup.sharing for setup in found] == sharing


@pytest.mark.parametrize("visible", ["1,3", "", None])
def test_a_worker_numbers_gpus_as_the_coordinator_does(visible: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    setup, = wired(1, 2, monkeypatch)
    assert setup.visible == visible
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")         # of a worker that was started earlier
    setup.device, setup.task = "cpu", None
    Core(setup)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ("7" if visible is None else visible)


@pytest.mark.parametrize(("gpus", "sharing"), [(1.0, 1), (2.0, 1), (0.5, 2), (0.25, 4)])
def test_on_ray_a_worker_sees_its_own_gpu_alone(gpus: float, sharing: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")         # of this machine, which says nothing about others
    actors: Any = object.__new__(Actors)
    actors._cluster, actors._plugins = Cluster(3, gpus=gpus), ""
    actors._with_data = iter
    found = actors.prepare(wired(3, 1, monkeypatch))
    assert [(setup.device, setup.sharing, setup.visible) for setup in found] == [("cuda:0", sharing, None)] * 3
