"""A disk that fails at any operation of a command leaves nothing half-written; see `benchmarks.faulty_disk`."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import faulty_disk

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.skipif(platform.system() != "Linux" or shutil.which("cc") is None,
                    reason="the failing disk is loaded before glibc, and compiled by cc")
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("sample", [
    pytest.param(3, marks=pytest.mark.slow), pytest.param(0, marks=pytest.mark.release)])
def test_a_disk_that_fails_anywhere_leaves_nothing_half_written(sample: int) -> None:
    done = subprocess.run([sys.executable, "-m", "benchmarks.faulty_disk", "--sample", str(sample)], cwd=ROOT,
                          env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_points_that_repeat_the_one_before_are_left_out() -> None:
    operations = "dcwwsrmow"
    assert {kind: faulty_disk.points_of(operations, kind) for kind in faulty_disk.KINDS} == {
        "full": [1, 2, 3, 4, 9], "broken": [1, 2, 3, 4, 5, 6, 7, 8, 9], "short": [3, 4, 9],
        "killed": [1, 2, 3, 4, 5, 7, 9]}


def test_a_state_tells_what_may_be_gone_on_with_and_no_numbers_of_processes(tmp_path: Path) -> None:
    def left(table: str, unfinished: str, number: int) -> object:
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "rounds.parquet").write_text(table)
        (tmp_path / "run" / f".summary.json.{number}.tmp").write_text(unfinished)
        return faulty_disk.state(tmp_path)

    assert left("one", "a", 11) == left("one", "bb", 12)
    assert left("one", "a", 11) != left("two", "a", 11)
