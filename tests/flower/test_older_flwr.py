"""An older Flower: the newest of those whose Grid takes a run's number and not the run. Its apps run all the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

OLDER = "1.27.0"
NEEDS = ("sqlalchemy", "alembic", "mako", "tomli", "tomli_w", "pathspec")       # of what it imports, missing here
FOLDER = "EMUL_OLDER_FLWR"          # a folder in which `pip install --no-deps --target` has put it already
HERE = Path(__file__).resolve().parent
TESTS = ("test_flower_reference.py", "test_flower_apps.py", "test_flower_secaggplus.py")


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder. What else it imports are the versions of emul's environment."""
    if FOLDER in os.environ:
        return Path(os.environ[FOLDER])
    folder = tmp_path_factory.mktemp("flwr")
    done = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder),
                           f"flwr=={OLDER}", *NEEDS], capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        pytest.skip(f"pip cannot install flwr=={OLDER} here, and {FOLDER} names no folder: {done.stderr[-300:]}")
    return folder


@pytest.mark.release
@pytest.mark.timeout(3000)
def test_the_apps_run_with_an_older_flower(older: Path) -> None:
    root = HERE.parents[1]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(older), str(root)])}
    said = subprocess.run([sys.executable, "-c", "import importlib.metadata as m; print(m.version('flwr'))"],
                          env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert said.stdout.strip() == OLDER
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider",
                           *(str(HERE / name) for name in TESTS)], cwd=root, env=environment, capture_output=True,
                          text=True, check=False, timeout=2400)
    assert done.returncode == 0, done.stdout[-5000:]
