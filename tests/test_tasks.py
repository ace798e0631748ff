"""docs/tasks.md does what it says: its files are written and its commands run, task by task, in one folder.

`python -m pytest -m slow -s tests/test_tasks.py` says how long each task takes.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "tasks.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MAKES = re.compile(r"# makes (\S+)$", re.MULTILINE)
NEEDS = {"11": "optuna", "12": "hydra"}         # number of a task -> the module it needs


def tasks() -> list[tuple[str, list[tuple[str, str]]]]:
    """(title, its blocks: language and text) of each task."""
    parts = re.split(r"^## (.+)$", PAGE, flags=re.MULTILINE)[1:]
    return [(title, BLOCK.findall(text)) for title, text in zip(parts[::2], parts[1::2], strict=True)
            if title[0].isdigit()]


def test_there_are_twelve_tasks_each_with_commands() -> None:
    found = tasks()
    assert [title.partition(".")[0] for title, _ in found] == [str(k) for k in range(1, 13)]
    assert all(any(kind == "sh" for kind, _ in blocks) for _, blocks in found)
    assert len(MAKES.findall(PAGE)) >= 8
    rows = re.findall(r"^\| (\d+)\. [^|]+\| \[[^|]+\) \| (\d+) \| \d+ \| (\d+) \| ([\d.]+) \|$", PAGE, re.MULTILINE)
    assert [number for number, *_ in rows] == [str(k) for k in range(1, 13)]
    for _, words, seconds, minutes in rows:
        assert minutes == f"{int(words) / 200 + int(seconds) / 60:.1f}"


def done(title: str, blocks: list[tuple[str, str]], folder: Path) -> None:
    """Write the files of a task into `here` of the folder and run its commands there, as a user would."""
    home, here = folder / "bin", folder / "here"
    if not home.exists():
        home.mkdir()
        here.mkdir()
        for name, words in {"emul": "-m emul", "python": ""}.items():
            (home / name).write_text(f'#!/bin/sh\nexec {sys.executable} {words} "$@"\n')
            (home / name).chmod(0o755)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{home}{os.pathsep}{os.environ['PATH']}"}
    begin = time.monotonic()
    for kind, text in blocks:
        if kind != "sh":
            name, _, content = text.partition("\n")
            path = here / name.removeprefix("# ")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
            continue
        ran = subprocess.run(["bash", "-e", "-c", text], cwd=here, env=environment, text=True, capture_output=True,
                             check=False, timeout=900)
        assert ran.returncode == 0, (title, ran.stdout, ran.stderr)
        for made in MAKES.findall(text):
            assert (here / made).stat().st_size > 0, (title, made)
    sys.stdout.write(f"{title}: {time.monotonic() - begin:.0f} s\n")


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_every_task_does_what_it_says(tmp_path: Path) -> None:
    for title, blocks in tasks():
        if title.partition(".")[0] not in NEEDS:
            done(title, blocks, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("number", NEEDS)
def test_a_task_with_a_package_that_emul_does_not_ask_for_does_what_it_says(number: str, tmp_path: Path) -> None:
    pytest.importorskip(NEEDS[number], reason="`.ci/run` installs it")
    (title, blocks), = (one for one in tasks() if one[0].startswith(f"{number}."))
    done(title, [("sh", "emul init ."), *blocks], tmp_path)
