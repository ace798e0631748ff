"""A disk that fails at any operation of a command leaves nothing half-written; see `benchmarks.faulty_disk`."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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
