"""The core stands without schemes: it runs the README's gossip where schemes, attacks and protocols are removed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
REMOVED = ("schemes", "attacks", "protocols")
SCENARIO = """
emul: 1
name: gossip
seed: 7
topology: {generator: complete, peers: 5}
links: [{match: "*", latency: 20 ms, bandwidth: 20 Mbit/s, outage: {model: bernoulli, p: 0.1, per: round}}]
task: {data: {set: digits}, partition: {dirichlet: 0.5}, model: logistic, solver: {sgd: {lr: 0.1, steps: 1, batch: 16}}}
compute: {mode: zero}
schemes: [gossip]
stop: {rounds: 3}
"""
# an editable install finds the modules that are removed here in the checkout; without its finder nobody does
NO_EDITABLE = """
import sys
sys.meta_path[:] = [one for one in sys.meta_path if not getattr(one, "__module__", "").startswith("__editable__")]
"""
# of the tests of the core those that are about schemes of emul, or run one
ABOUT_SCHEMES = ("base/test_lazy.py", "base/test_extras.py", "network/test_features.py",
                 "network/test_positions.py")


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout whose package is the core alone."""
    root = tmp_path_factory.mktemp("core")
    shutil.copytree(ROOT / "emul", root / "emul", ignore=lambda folder, names: [
        name for name in names if name == "__pycache__" or (Path(folder) == ROOT / "emul" and name in REMOVED)])
    (root / "sitecustomize.py").write_text(NO_EDITABLE)
    return root


def python(core: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *args], cwd=core, capture_output=True, text=True, check=False, timeout=280,
                          env={**os.environ, "PYTHONPATH": str(core)})


@pytest.mark.slow
def test_the_readmes_gossip_runs_on_the_core_alone(core: Path) -> None:
    code, = (block for block in re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
             if "async def peer" in block)
    (core / "gossip.py").write_text(code)
    (core / "gossip.yaml").write_text(SCENARIO)
    done = python(core, "-m", "emul", "run", "gossip.yaml", "--plugin", "gossip", "--out", "runs")
    assert done.returncode == 0, done.stdout + done.stderr
    row = next(line.split() for line in done.stdout.splitlines() if line.startswith("gossip "))
    assert row[1:3] == ["3", "0"]                                   # rounds, failed
    listed = python(core, "-m", "emul", "schemes")
    assert (listed.returncode, listed.stdout) == (0, "")
    asked = python(core, "-m", "emul", "run", "gossip.yaml", "--set", "schemes=[fedavg]")
    assert "unknown scheme" in asked.stderr


@pytest.mark.release
def test_the_tests_of_the_core_pass_on_the_core_alone(core: Path) -> None:
    shutil.copytree(ROOT / "tests", core / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", core)
    for folder in ("topologies", "scenarios", "docs"):              # files that some of them read
        shutil.copytree(ROOT / folder, core / folder)
    done = python(core, "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider", "-n", "2",
                  *(f"tests/{part}" for part in ("base", "network", "kernel", "store", "roles")),
                  *(f"--ignore=tests/{part}" for part in ABOUT_SCHEMES))
    assert done.returncode == 0, done.stdout[-4000:]
