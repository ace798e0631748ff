"""An empty environment, and the wheel of this checkout: for tests of what an installation needs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from benchmarks.install_size import closure, extras_of, places

ROOT = Path(__file__).resolve().parents[1]
PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]


def wheel_in(folder: Path) -> Path:
    """emul, built as a release is."""
    source = folder / "source"              # building leaves folders behind
    for path in subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, text=True,
                               capture_output=True, check=True, timeout=60).stdout.splitlines():
        if not path.startswith(("tests/", "benchmarks/")) and (ROOT / path).is_file():
            (source / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / path, source / path)
    return built(source, folder)


def built(project: Path, into: Path) -> Path:
    subprocess.run([*PIP, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(into), str(project)],
                   check=True, timeout=900, cwd=into)
    made, = into.glob("*.whl")
    return made


class Place:
    """A new virtual environment, and a folder where a user is."""

    def __init__(self, folder: Path):
        self.home, self.here = folder / "there", folder / "here"
        self.here.mkdir(parents=True)
        venv.create(self.home, with_pip=False, symlinks=True)
        self.packages, = self.home.glob("lib/python*/site-packages")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_"))}
        self.environment = {**kept, "PATH": f"{self.home / 'bin'}{os.pathsep}{os.environ['PATH']}",
                            "VIRTUAL_ENV": str(self.home), "XDG_CACHE_HOME": str(folder / "cache")}

    def link(self, *extras: str, more: tuple[str, ...] = ()) -> None:
        """Put there what emul needs with these extras, but for emul, and more packages."""
        for path in places(closure([*extras_of(*extras), *more])):
            there = self.packages / path.name
            if not there.exists():
                there.symlink_to(path)

    def install(self, what: str) -> None:
        """Raises CalledProcessError where something is missing that it asks for."""
        subprocess.run([*PIP, "--python", str(self.home / "bin" / "python"), "install", "--no-index", what], check=True,
                       timeout=900, cwd=self.here, env=self.environment)

    def run(self, command: str, code: int = 0) -> str:
        done = subprocess.run(command, shell=True, cwd=self.here, env=self.environment, text=True, capture_output=True,
                              check=False, timeout=900, executable=shutil.which("bash"))
        assert done.returncode == code, (command, done.stdout, done.stderr)
        return done.stdout + done.stderr
