"""How `emul run` ends when it is interrupted or killed: nothing is left behind but what should be."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from emul.record.journal import read

pytestmark = pytest.mark.machine

HERE = Path(__file__).resolve().parent
SCENARIO = """
emul: 1
name: endless
seed: 3
topology: {generator: star_mesh, clients: 4}
links: [{match: "*", latency: 5 ms, bandwidth: 100 Mbit/s}]
task: {data: {set: digits}, partition: iid, model: logistic, solver: {sgd: {lr: 0.1, steps: 1, batch: 8}}}
compute: {mode: zero}
schemes: [{name: echo_scheme, busy: 20 ms, length: 650}]
stop: {rounds: 100000}
"""


def descendants(pid: int) -> list[int]:
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found, below = [], [pid]
    while below:
        parent = below.pop()
        children = [p for p, of in parents.items() if of == parent]
        found += children
        below += children
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def until(condition: Callable[[], object], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


@pytest.fixture
def endless(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """`emul run` with two workers, in the middle of its run."""
    (tmp_path / "endless.yaml").write_text(SCENARIO)
    (tmp_path / "t").mkdir()
    env = {**os.environ, "PYTHONPATH": str(HERE), "TMPDIR": str(tmp_path / "t")}
    process = subprocess.Popen(
        [sys.executable, "-m", "emul", "run", "endless.yaml", "--plugin", "echo_scheme", "--workers", "2",
         "--out", "."],
        cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        journal = tmp_path / "endless-echo_scheme-1" / "journal"

        def begun() -> bool:
            there = journal.exists() and journal.stat().st_size > 5000                  # rows of some rounds
            return there and len(descendants(process.pid)) >= 4     # tracker, fork server, two workers
        assert until(lambda: process.poll() is not None or begun(), 300)
        assert process.poll() is None, process.communicate()
        yield process
    finally:
        for pid in [process.pid, *descendants(process.pid)]:
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
        process.communicate()


def test_an_interrupted_run_exits_130_keeps_its_journal_and_leaves_no_process(
        endless: subprocess.Popen[str], tmp_path: Path) -> None:
    processes = descendants(endless.pid)
    # Ctrl-C reaches every process of the terminal's group: the workers must not mind
    for pid in [*processes, endless.pid]:
        os.kill(pid, signal.SIGINT)
    _, err = endless.communicate(timeout=60)
    assert endless.returncode == 130, err
    assert err.splitlines()[-1] == "interrupted"
    assert "Traceback" not in err
    assert until(lambda: not any(map(alive, processes)), 5)
    directory = tmp_path / "endless-echo_scheme-1"
    assert (directory / "INCOMPLETE").exists()
    assert not (directory / "summary.json").exists()
    journal = read(directory / "journal")
    assert not journal.complete
    assert len(list(journal)) > 20
    assert list((tmp_path / "t").iterdir()) == []


def test_a_killed_coordinator_leaves_no_worker_and_no_socket(endless: subprocess.Popen[str], tmp_path: Path) -> None:
    processes = descendants(endless.pid)
    assert len(processes) >= 3
    endless.kill()
    endless.wait(10)
    assert until(lambda: not any(map(alive, processes)), 8), [p for p in processes if alive(p)]
    assert (tmp_path / "endless-echo_scheme-1" / "INCOMPLETE").exists()
    assert not list((tmp_path / "t").glob("emul-*"))


LEAVING = """
import atexit
import multiprocessing
from dataclasses import dataclass
from pathlib import Path

from emul.roles import Node, Scheme

LOCKS = []


@dataclass(frozen=True)
class Params:
    pass


async def client(node: Node, p: Params) -> None:
    LOCKS.append(multiprocessing.RLock())
    atexit.register(Path(f"left-{node.name}").touch)
    async for round_ in node.rounds():
        with round_:
            await node.sleep(1)


SCHEME = Scheme(params=Params, roles={"client": client}, example="")
"""


def test_workers_run_what_roles_have_registered_for_the_end(tmp_path: Path) -> None:
    """tqdm and others keep a lock of multiprocessing: its tracker warned of leaked semaphores after a good run."""
    (tmp_path / "leaving.py").write_text(LEAVING)
    (tmp_path / "s.yaml").write_text("{emul: 1, name: s, seed: 1, topology: {generator: star, clients: 2}, "
                                     "task: {data: {set: digits}, model: logistic, solver: {sgd: {lr: 1, steps: 1}}}, "
                                     "compute: {mode: zero}, schemes: [leaving], stop: {rounds: 1}}")
    done = subprocess.run([sys.executable, "-m", "emul", "run", "s.yaml", "--plugin", "leaving", "--workers", "2",
                           "--quiet"], cwd=tmp_path, text=True, capture_output=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "leaked" not in done.stderr
    assert {path.name for path in tmp_path.glob("left-*")} == {"left-client1", "left-client2"}
