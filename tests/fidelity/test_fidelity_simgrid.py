"""Fluid sharing against an independent implementation: SimGrid, where it is installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_every_completion_of_random_networks_is_simgrids_to_1e_9(tmp_path):
    done = subprocess.run([sys.executable, "-m", "benchmarks.fidelity_simgrid", "--json", str(tmp_path / "f.json")],
                          cwd=ROOT, capture_output=True, text=True, timeout=280)
    if done.stdout.startswith("skipped"):
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stderr
    (table,) = json.loads((tmp_path / "f.json").read_text())["tables"]
    figures = table["figures"]
    assert len(figures) == 2
    assert [figure["name"] for figure in figures if not figure["value"] <= 1e-9] == []
