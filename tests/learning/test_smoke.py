"""`emul check --device`: what is found of a device, and what is said where there is none."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch

import emul
from emul import cli
from emul.base.errors import ScenarioError
from emul.learning import smoke as module
from emul.learning.device import DeviceError
from emul.learning.smoke import absent, smoke

SCENARIO: dict[str, Any] = {
    "emul": 1, "name": "own", "seed": 3, "topology": {"generator": "star", "clients": 2},
    "links": [{"match": "*", "latency": "1 ms"}], "compute": {"mode": "zero"}, "schemes": ["fedavg"],
    "task": {"data": {"set": "digits"}, "model": "logistic", "solver": {"sgd": {"lr": 0.1, "steps": 2, "batch": 8}}},
    "stop": {"rounds": 1}}


def command(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["emul", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


def test_a_cpu_computes_what_a_cpu_does(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(monkeypatch, "check", "--device", "cpu") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"cpu: threads {torch.get_num_threads()}, torch {torch.__version__}")
    assert [line.split("  ")[0] for line in lines[3:6]] == ["train one client", "train 4 as one", "evaluate"]
    assert all(line.endswith("0.0e+00") for line in lines[3:6])
    assert lines[6:] == ["the same bits when computed again", "cpu: ok (tolerance 0.001 relative, 0.0001 absolute)"]


def test_a_scenario_has_its_own_task_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def noted(ours: Any, theirs: Any) -> list[Any]:
        asked.append((ours.spec, ours.clients, ours.seed))
        return []
    monkeypatch.setattr(module, "_compared", noted)
    assert emul.check_device("cpu", SCENARIO).ok
    (spec, clients, seed), = asked
    assert (spec["model"], clients, seed) == ("logistic", 2, 3)
    with pytest.raises(ScenarioError, match="task"):
        emul.check_device("cpu", {key: value for key, value in SCENARIO.items() if key != "task"})


@pytest.mark.parametrize(("off", "close"), [(1e-6, True), (1e-2, False), (np.nan, False)])
def test_a_device_that_computes_something_else_is_found_out(monkeypatch: pytest.MonkeyPatch, off: float, close: bool,
                                                            capsys: pytest.CaptureFixture[str]) -> None:
    true, tasks = module._trained, []

    def wrong(task: Any, client: int) -> np.ndarray:
        tasks.extend([task] * (task not in tasks))
        return true(task, client) + np.float32(off * (task is tasks[0]))        # the device's is asked first
    monkeypatch.setattr(module, "_trained", wrong)
    found = smoke("cpu")
    assert [one.close for one in found.compared] == [close, close, True]
    assert found.ok == close
    assert found.repeats == (not np.isnan(off))
    tasks.clear()
    assert command(monkeypatch, "check", "--device", "cpu") == (0 if close else 1)
    assert ("TOO LARGE" in capsys.readouterr().out) == (not close)


def test_a_device_that_computes_something_else_each_time_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    true, rng = module._fused, np.random.default_rng(1)
    monkeypatch.setattr(module, "_fused", lambda task: true(task) + rng.normal(0, 1e-7))
    found = smoke("cpu")
    assert (found.repeats, found.ok) == (False, False)
    assert "NOT the same bits when computed again" in str(found)


@pytest.mark.parametrize(("setting", "said"), [
    ({"cuda": None}, r"this torch \(.*\) is built without CUDA, so it can use no GPU; install a build with .*"),
    ({"visible": ""}, 'CUDA_VISIBLE_DEVICES = "" hides every GPU; unset it'),
    ({"smi": None}, "torch finds no GPU, and there is no nvidia-smi: no GPU of NVIDIA, or no driver for it"),
    ({}, r"torch .* finds no GPU that it can use, built for CUDA 12.8; look whether nvidia-smi lists one .*")])
def test_why_there_is_no_gpu_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
                                     setting: dict[str, Any], said: str) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", setting.get("cuda", "12.8"))
    monkeypatch.setattr("shutil.which", lambda name: setting.get("smi", "/usr/bin/nvidia-smi"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if "visible" in setting:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting["visible"])
    with pytest.raises(DeviceError, match=f'^device "cuda": {said}$'):
        emul.check_device("cuda")
    assert command(monkeypatch, "check", "--device", "cuda") == 2
    assert capsys.readouterr().err.startswith('device "cuda": ')


def test_a_gpu_that_is_one_too_many_and_what_is_none_are_said(monkeypatch: pytest.MonkeyPatch,
                                                              capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert absent("cuda:1") == 'device "cuda:1": torch finds one GPU, which is cuda:0'
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert absent("cuda:2") == 'device "cuda:2": torch finds 2 GPUs, which are cuda:0 to cuda:1'
    assert absent("cuda") is absent("cuda:1") is absent("cpu") is None
    for name in ("mps", "cuda:x", "gpu", ""):
        assert absent(name) == f'device "{name}": expected cpu, cuda (the first GPU) or such as cuda:1'
    assert command(monkeypatch, "check") == 2
    assert "expected a scenario, or --device" in capsys.readouterr().err
