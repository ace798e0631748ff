"""The fork server that begins before workers are asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from emul.workers import forks

BEGUN = """
import multiprocessing.forkserver, os, signal, sys
from emul.workers import forks
forks.begin_ahead()
server = multiprocessing.forkserver._forkserver
pid = server._forkserver_pid
open(sys.argv[1], "w").write(str(pid))
"""
ASKED = """
with forks.starting() as context:
    print(context.get_start_method(), server._forkserver_pid == pid, "torch" in sys.modules)
forks._end_idle()
os.kill(pid, 0)
os.kill(pid, signal.SIGKILL)        # else it imports to the end before it sees that nobody is left
"""

pytestmark = [pytest.mark.machine, pytest.mark.skipif(not forks.forks(), reason="no fork server here")]


def pid_and_output(code: str, folder: Path) -> tuple[int, str]:
    """The fork server of a process that has run this, and what that process printed."""
    with open(folder / "out", "w+") as out:             # no pipe: the fork server would keep it open
        subprocess.run([sys.executable, "-c", code, str(folder / "pid")], stdout=out, check=True, timeout=300)
    return int((folder / "pid").read_text()), (folder / "out").read_text()


def test_a_process_that_asks_for_no_workers_leaves_no_fork_server(tmp_path: Path) -> None:
    pid, _ = pid_and_output(BEGUN, tmp_path)
    assert not Path(f"/proc/{pid}").exists()


def test_workers_come_from_the_fork_server_that_has_begun(tmp_path: Path) -> None:
    """And it is no longer ended with the process's exit handlers."""
    _, said = pid_and_output(BEGUN + ASKED, tmp_path)
    assert said.split() == ["forkserver", "True", "False"]


SEEDED = """
import os, sys
from emul.workers import forks
os.environ["PYTHONHASHSEED"] = "5"
with forks.starting() as context:
    worker = context.Process(target=exec, args=("import sys; print(sys.flags.hash_randomization, flush=True)",))
    worker.start()
worker.join()
print(os.environ["PYTHONHASHSEED"])
open(sys.argv[1], "w").write("0")
"""


def test_workers_hash_text_by_one_seed_and_this_process_keeps_its_own(tmp_path: Path) -> None:
    """The flag is 0 where PYTHONHASHSEED was 0 when the interpreter started."""
    _, said = pid_and_output(SEEDED, tmp_path)
    assert said.split() == ["0", "5"]


def test_only_workers_of_this_machine_are_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    from emul.cli.options import expect_workers

    begun: list[bool] = []
    monkeypatch.setattr(forks, "begin_ahead", lambda: begun.append(True))
    expect_workers(None, 0)
    expect_workers("ray:auto", 2)
    assert not begun
    expect_workers(None, 2)
    expect_workers(None, None)
    assert len(begun) == 2
