"""The tour does what it says: its commands run in their order, and say what it shows."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TOUR = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")
STEP = re.compile(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


def steps() -> list[tuple[str, list[str]]]:
    """(command, lines that it is shown to print) of all blocks that are consoles."""
    consoles = re.findall(r"^```console\n(.*?)^```$", TOUR, re.MULTILINE | re.DOTALL)
    return [(command, [line for line in said.splitlines() if line.strip()])
            for block in consoles for command, said in STEP.findall(block)]


def shape(lines: list[str]) -> list[str]:
    """What must be the same on every machine: the first word of each line, or for headings of tables the line.

    Not who wins: indented lines are the others of a verdict.
    """
    return [" ".join(line.split()) if line.startswith("scheme ") else "-" if line.startswith("  ") else
            line.split()[0].rstrip(":") for line in lines if line.strip()]


def test_the_tour_has_commands_and_shows_what_they_say() -> None:
    found = steps()
    assert len(found) >= 8
    assert all(command.startswith("emul ") and said for command, said in found)
    assert {command.split()[1] for command, _ in found} >= {"run", "replay", "compare", "report", "export", "sweep"}


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_every_command_of_the_tour_runs_and_says_what_is_shown(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "scenarios", tmp_path / "scenarios")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    for command, shown in steps():
        run = re.sub("^emul ", f"{sys.executable} -m emul ", command)
        done = subprocess.run(["bash", "-c", run], cwd=tmp_path, env=environment, capture_output=True, text=True,
                              check=False, timeout=600)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        assert shape(done.stdout.splitlines()) == shape(shown), f"{command}\n{done.stdout}"
        for line, printed in zip(shown, [line for line in done.stdout.splitlines() if line.strip()], strict=True):
            if line.startswith("fedavg ") and "B" in line:          # rounds, virtual time, bytes, losses: the network's
                same = re.compile(r"\d+/\d+|[\d.]+ MB|[\d.]+ s(?=.*MB)")
                assert same.findall(line) == same.findall(printed), command
        for path in re.findall(r"\bruns/\S+|\bfigures$|^\w+\.json", "\n".join(shown), re.MULTILINE):
            assert (tmp_path / path.rstrip(":")).exists(), f"{command}: {path}"
    snippet, = re.findall(r"^```python\n(.*?)^```$", TOUR, re.MULTILINE | re.DOTALL)
    done = subprocess.run([sys.executable, "-c", snippet], cwd=tmp_path, env=environment, capture_output=True,
                          text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "delivered" in done.stdout
    assert "time_to_target" in done.stdout
    for path in re.findall(r"`((?:runs|figures)/[\w./-]+\.\w+)`", TOUR):
        assert (tmp_path / path).is_file(), path
