"""The command for a machine with a GPU, small on the CPU; and what it does with parts that hang, fail or end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks import bench_gpu
from benchmarks.bench_gpu import PARTS, SMALL, Scale
from benchmarks.common import Figure

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.release
def test_every_part_runs_small_on_a_cpu(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "benchmarks.bench_gpu", "--out", tmp_path / "out", "--budget", "8m",
                           "--device", "cpu"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    written = json.loads((tmp_path / "out/gpu.json").read_text())
    assert written["about"]["device"] == "cpu"
    assert [part["part"] for part in written["parts"]] == list(PARTS)
    assert all(part["figures"] and not part["error"] for part in written["parts"])
    said = {figure["name"]: figure for part in written["parts"] for figure in part["figures"]}
    assert said["out of memory: the same models"]["note"] == "groups of another size may round otherwise"
    assert all(f"cohort: {net}, 3 clients, as one, times faster than bare PyTorch" in said for net in SMALL.nets)
    assert all(said[f"memory: {net}, a client"]["value"] > 0 for net in SMALL.nets)


def part(*figures: Any) -> Callable[[Scale], Iterator[Figure]]:
    def found(scale: Scale) -> Iterator[Figure]:
        for one in figures:
            if callable(one):
                one()
            else:
                yield Figure(one, 1.0, "x")
    return found


def fail() -> None:
    raise ValueError("no such kernel")


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_gpu, "PARTS", {
        "hangs": (part("first", lambda: time.sleep(100), "never"), 0.05), "fails": (part("second", fail), 0.5),
        "ends": (part("third", lambda: os._exit(7)), 0.5), "sound": (part("fourth", "fifth"), 0.5)})


@pytest.mark.usefixtures("parts")
def test_what_a_part_found_before_it_hung_failed_or_ended_is_kept_and_the_next_one_runs(tmp_path: Path) -> None:
    bench_gpu.run(["hangs", "fails", "ends", "sound"], SMALL, tmp_path, 40)
    found = json.loads((tmp_path / "gpu.json").read_text())["parts"]
    assert [(one["part"], [f["name"] for f in one["figures"]], one["error"]) for one in found] == [
        ("hangs", ["first"], "cut off after 2 s"), ("fails", ["second"], "ValueError: no such kernel"),
        ("ends", ["third"], "ended with 7"), ("sound", ["fourth", "fifth"], "")]
    assert 1.9 <= found[0]["seconds"] < 30


@pytest.mark.usefixtures("parts")
def test_a_part_for_which_no_time_is_left_is_said(tmp_path: Path) -> None:
    bench_gpu.run(["sound"], SMALL, tmp_path, 0)
    assert json.loads((tmp_path / "gpu.json").read_text())["parts"] == [
        {"part": "sound", "seconds": 0.0, "error": "no time was left", "figures": []}]
