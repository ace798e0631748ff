"""What only Linux has is done otherwise elsewhere: pidfd, the fork server, affinity, /proc, O_DIRECT."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest
import torch
import zmq

from emul.base import machine
from emul.workers import collections, forks, process
from emul.workers.process import Ending
from emul.workers.transport import Ipc, WorkerSettings

SCENARIO = Path(__file__).resolve().parents[2] / "scenarios" / "quickstart.yaml"


def forbidden(pid: int, flags: int = 0) -> int:
    raise PermissionError(pid)


@pytest.fixture(params=["missing", "forbidden", "there"])
def pidfd(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "missing":
        monkeypatch.delattr(os, "pidfd_open", raising=False)
    elif request.param == "forbidden":
        monkeypatch.setattr(os, "pidfd_open", forbidden, raising=False)
    return str(request.param)


def test_the_end_of_a_process_is_known_with_and_without_a_descriptor(pidfd: str) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        ending = Ending(other.pid)
        assert (ending.descriptor is None) == (pidfd != "there" or not hasattr(os, "pidfd_open"))
        assert not ending.come()
        other.communicate(b"\n", timeout=60)
    assert ending.come()
    assert Ending(other.pid).come()
    if ending.descriptor is not None:
        os.close(ending.descriptor)


def test_a_child_knows_that_its_parent_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getppid", lambda: 17)
    ending = Ending(17)
    assert not ending.come()
    monkeypatch.setattr(os, "getppid", lambda: 1)
    assert ending.come()


class Orphaned(Exception):
    """Raised in place of the end of the process."""


def orphaned() -> NoReturn:
    raise Orphaned


@pytest.mark.usefixtures("pidfd")
def test_a_worker_hears_of_the_coordinators_end(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as coordinator:
        ending = Ending(coordinator.pid)
        coordinator.communicate(b"\n", timeout=60)
    with zmq.Context() as context:
        told = WorkerSettings(0, "token", Ipc(str(tmp_path)), "", f"ipc://{tmp_path}/beat", 0)
        io = process.IO(context, told, ending, orphaned)
        with pytest.raises(Orphaned):
            io._serve_forever()
        io._inbox.close(0)
        io._beat.close(0)


def test_there_is_no_fork_server_on_a_mac_nor_where_python_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks.multiprocessing, "get_all_start_methods", lambda: ["spawn", "forkserver"])
    monkeypatch.setattr(forks.sys, "platform", "linux")
    assert forks.forks()
    monkeypatch.setattr(forks.sys, "platform", "darwin")
    assert not forks.forks()
    monkeypatch.setattr(forks.sys, "platform", "linux")
    monkeypatch.setattr(forks.multiprocessing, "get_all_start_methods", lambda: ["spawn"])
    assert not forks.forks()


def test_cores_are_counted_where_affinity_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert machine.cores() == 6
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert machine.cores() == 1


@pytest.mark.parametrize(("system", "told", "name"), [
    ("Darwin", "Apple M9\n", "Apple M9"), ("Darwin", None, "arm64"), ("FreeBSD", None, "arm64")])
def test_a_processor_has_a_name_without_proc(system: str, told: str | None, name: str,
                                             monkeypatch: pytest.MonkeyPatch) -> None:
    def sysctl(asked: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        if told is None:
            raise FileNotFoundError(asked[0])
        return subprocess.CompletedProcess(asked, 0, told)

    real = Path.read_text

    def unreadable(path: Path, encoding: str | None = None, errors: str | None = None) -> str:
        if path.is_relative_to("/proc"):
            raise FileNotFoundError(path)
        return real(path, encoding, errors)
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    monkeypatch.setattr(machine.subprocess, "run", sysctl)
    monkeypatch.setattr(Path, "read_text", unreadable)
    text = machine.processor.__wrapped__()
    assert text.startswith(f"{name} ")
    assert text.endswith(f"torch {torch.__version__}")


def test_memory_is_kept_only_where_glibc_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collections.ctypes, "CDLL", lambda _: object())
    collections.keep_memory()


def test_names_of_files_differ_by_more_than_case() -> None:
    root = SCENARIO.parents[1]
    names = [str(path.relative_to(root)) for folder in ("emul", "scenarios", "topologies", "docs", "tests")
             for path in (root / folder).rglob("*") if path.is_file() and "_build" not in path.parts]
    assert len({name.lower() for name in names}) == len(names)


@pytest.mark.slow
def test_a_run_without_all_of_these_has_the_same_digest(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("""
import multiprocessing.util
import os
import platform
for name in ("pidfd_open", "sched_getaffinity", "O_DIRECT"):
    if hasattr(os, name):
        delattr(os, name)
multiprocessing.get_all_start_methods = lambda: ["spawn"]
multiprocessing.util.abstract_sockets_supported = False
platform.system = lambda: "Unknown"
""")
    code = f"""
import os, emul
from emul.workers import forks
runs = emul.run({str(SCENARIO)!r}, schemes=["fedavg", "secagg"], set={{"stop.rounds": 2}}, workers=2, quiet=True)
print(forks.forks(), hasattr(os, "pidfd_open"), *[run.summary["digest"] for run in runs])
"""
    said = []
    for extra in ("", f"{tmp_path}{os.pathsep}"):
        path = f"{extra}{SCENARIO.parents[1]}"
        done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, cwd=tmp_path,
                              capture_output=True, text=True, check=False, timeout=240)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout.split())
    usual, elsewhere = said
    assert usual[2:] == elsewhere[2:]
    assert elsewhere[:2] == ["False", "False"]
