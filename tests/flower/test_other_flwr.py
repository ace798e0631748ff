"""Other versions of Flower: the newest of those whose Grid takes a run's number and not the run, in which apps run all
the same, and the one behind the pin, whose waits are those of the pin and in which both runtimes run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

NEEDS = ("sqlalchemy", "alembic", "mako", "tomli", "tomli_w", "pathspec")       # of what it imports, missing here
FOLDER = "EMUL_FLWR_{}"             # a folder in which `pip install --no-deps --target` has put it already
HERE = Path(__file__).resolve().parent
APPS = ("test_flower_reference.py", "test_flower_apps.py", "test_flower_secaggplus.py")
WAITS = """
from emul.schemes.flower import Params, installed
p = Params(app="")
print(installed.version(), installed.waits(p), installed.simulation(p), sep="\\n")
"""


def folder_of(version: str, path: Path) -> Path:
    """The folder. What else it imports are the versions of emul's environment."""
    known = FOLDER.format(version.replace(".", "_"))
    if known in os.environ:
        return Path(os.environ[known])
    done = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(path),
                           f"flwr=={version}", *NEEDS], capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        pytest.skip(f"pip cannot install flwr=={version} here, and {known} names no folder: {done.stderr[-300:]}")
    return path


def said(folder: Path | None, *command: str) -> str:
    """The output of a Python with this version; None: with that of the environment."""
    path = [str(HERE.parents[1])] if folder is None else [str(folder), str(HERE.parents[1])]
    done = subprocess.run([sys.executable, *command], cwd=HERE.parents[1], capture_output=True, text=True, check=False,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(path)}, timeout=2400)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    return done.stdout


@pytest.mark.release
@pytest.mark.timeout(3000)
@pytest.mark.parametrize(("version", "tests"), [
    ("1.27.0", APPS), ("1.42.0", ("test_flower_superlink.py", "test_flower_simulation.py"))])
def test_the_apps_run_with_another_flower(version: str, tests: tuple[str, ...], tmp_path: Path) -> None:
    folder = folder_of(version, tmp_path)
    assert said(folder, "-c", "import importlib.metadata as m; print(m.version('flwr'))").strip() == version
    files = (str(HERE / name) for name in tests)
    said(folder, "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider", *files)


@pytest.mark.release
def test_the_next_flower_has_the_waits_and_sizes_of_the_pin(tmp_path: Path) -> None:
    newer, *found = said(folder_of("1.42.0", tmp_path), "-c", WAITS).splitlines()
    _, *pinned = said(None, "-c", WAITS).splitlines()
    assert (newer, found) == ("1.42.0", pinned)
