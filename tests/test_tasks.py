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


def tasks() -> list[tuple[str, list[tuple[str, str]]]]:
    """(title, its blocks: language and text) of each task."""
    parts = re.split(r"^## (.+)$", PAGE, flags=re.MULTILINE)[1:]
    return [(title, BLOCK.findall(text)) for title, text in zip(parts[::2], parts[1::2], strict=True)
            if title[0].isdigit()]


def test_there_are_ten_tasks_each_with_commands() -> None:
    found = tasks()
    assert [title.partition(".")[0] for title, _ in found] == [str(k) for k in range(1, 11)]
    assert all(any(kind == "sh" for kind, _ in blocks) for _, blocks in found)
    assert len(MAKES.findall(PAGE)) >= 8
    rows = re.findall(r"^\| (\d+)\. [^|]+\| \d+ \| (.+) \|$", PAGE, re.MULTILINE)
    assert [number for number, _ in rows] == [str(k) for k in range(1, 11)]
    for _, named in rows:                       # the tests that hold it besides are there
        files = re.findall(r"`(tests/[\w/]+\.py)`", named)
        assert files
        assert all((ROOT / file).is_file() for file in files)


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_every_task_does_what_it_says(tmp_path: Path) -> None:
    home = tmp_path / "bin"
    home.mkdir()
    for name, words in {"emul": "-m emul", "python": ""}.items():
        (home / name).write_text(f'#!/bin/sh\nexec {sys.executable} {words} "$@"\n')
        (home / name).chmod(0o755)
    here = tmp_path / "here"
    here.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{home}{os.pathsep}{os.environ['PATH']}"}
    for title, blocks in tasks():
        begin = time.monotonic()
        for kind, text in blocks:
            if kind != "sh":
                name, _, content = text.partition("\n")
                (here / name.removeprefix("# ")).write_text(content, encoding="utf-8")
                continue
            done = subprocess.run(["bash", "-e", "-c", text], cwd=here, env=environment, text=True,
                                  capture_output=True, check=False, timeout=900)
            assert done.returncode == 0, (title, done.stdout, done.stderr)
            for made in MAKES.findall(text):
                assert (here / made).stat().st_size > 0, (title, made)
        sys.stdout.write(f"{title}: {time.monotonic() - begin:.0f} s\n")
