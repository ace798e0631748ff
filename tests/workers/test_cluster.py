"""What is said of a cluster, and files on their way to its machines: without one, and without Ray."""

from __future__ import annotations

import io
import socket
import sys
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from emul.base.errors import ScenarioError
from emul.base.extras import MissingExtra
from emul.workers import shipping
from emul.workers.cluster import Cluster, cluster
from emul.workers.ray_actors import Actors, Remote, _require_meeting
from emul.workers.ray_address import CUT_OFF, NoCluster
from emul.workers.slurm import Steps, places
from emul.workers.transport import Tcp, WorkerSettings


@pytest.mark.parametrize(("text", "meant"), [
    ("ray:auto", Cluster(8)),
    ("ray:auto?gpus=0.25", Cluster(8, gpus=0.25)),
    ("ray://head:10001", Cluster(8, "ray://head:10001")),
    ("ray://head:10001?cpus=2&gpus=1", Cluster(8, "ray://head:10001", 2.0, 1.0)),
    ("slurm", Cluster(8, "slurm")),
    ("slurm?cpus=2&gpus=1", Cluster(8, "slurm", 2.0, 1.0)),
])
def test_places_of_a_cluster_are_read(text: str, meant: Cluster) -> None:
    assert cluster(text, 8) == meant
    assert meant.client == ("head" in text)


@pytest.mark.parametrize("text", ["", "ray", "auto", "ray:head", "ray://head", "ray://head:1/x", "dask:auto",
                                  "ray:auto?gpu=1", "ray:auto?gpus=two", "ray:auto?cpus=-1", "ray:auto?cpus=nan",
                                  "slurm:auto", "slurm?gpus=0.5", "slurm?cpus=0", "slurm://head:1"])
def test_what_is_no_cluster_is_refused(text: str) -> None:
    with pytest.raises(ScenarioError, match=r"^command line: 1 error\n +--on "):
        cluster(text, 8)


@pytest.mark.parametrize("workers", [None, 0])
def test_how_many_workers_has_to_be_said(workers: int | None) -> None:
    with pytest.raises(ScenarioError, match=r"--workers  .* expected with --on: how many, over all machines together$"):
        cluster("ray:auto", workers)


def test_without_ray_its_workers_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    said = r"^--on ray:... needs Ray, which is not installed: pip install 'emul\[ray\]'$"
    with pytest.raises(MissingExtra, match=said):
        Actors(Cluster(1)).transport()


def test_slurm_is_for_a_process_in_an_allocation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    with pytest.raises(NoCluster, match=r"^--on slurm is for a process in an allocation: expected \$SLURM_JOB_ID, as"):
        Steps(Cluster(1, "slurm")).transport()
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-2]")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(NoCluster, match=r"^scontrol show hostnames n\[1-2\]: .*No such file"):
        Steps(Cluster(1, "slurm")).transport()


def test_workers_of_a_job_go_to_its_nodes_in_turn() -> None:
    job = {"SLURM_JOB_CPUS_PER_NODE": "4(x2),2"}
    assert places(["a", "b", "c"], job, 5, 1) == ["a", "b", "c", "a", "b"]
    assert places(["a", "b", "c"], job, 5, 2) == ["a", "b", "c", "a", "b"]
    with pytest.raises(NoCluster, match=r"^no room for 3 workers of 4 CPUs: the job of Slurm has room for 2 on 3"):
        places(["a", "b", "c"], job, 3, 4)


# --- files ------------------------------------------------------------------------------------------------------------

def test_a_folder_comes_out_as_it_went_in(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "one").write_bytes(b"1")
    (tmp_path / "a" / "b" / "two").write_bytes(b"22")
    files = shipping.packed(tmp_path / "a")
    assert files == {"one": b"1", "b/two": b"22"}
    shipping.unpacked(files, tmp_path / "c")
    assert shipping.sizes(tmp_path / "c") == shipping.sizes(tmp_path / "a") == [("b/two", 2), ("one", 1)]
    assert shipping.packed(tmp_path / "c") == files
    assert shipping.packed(tmp_path / "a", ["b/*"]) == {"b/two": b"22"}
    assert shipping.sizes(tmp_path / "nowhere") is None


@pytest.mark.parametrize("name", ["../out", "/out", "a/../../out"])
def test_no_name_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=r"expected a path below the folder$"):
        shipping.unpacked({name: b""}, tmp_path / "in")


def test_a_key_tells_files_apart_by_names_and_contents() -> None:
    every = [{}, {"a": b""}, {"a": b"b"}, {"ab": b""}, {"a": b"", "b": b""}, {"b": b""}]
    assert len({shipping.key_of(files) for files in every}) == len(every)
    assert shipping.key_of({"a": b"1", "b": b"2"}) == shipping.key_of({"b": b"2", "a": b"1"})


def test_a_plug_in_goes_with_what_lies_beside_it_and_a_package_whole(tmp_path: Path,
                                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "ship_alone.py").write_text("import ship_helper\n")
    (tmp_path / "ship_helper.py").write_text("")
    (tmp_path / "notes.txt").write_text("")
    package = tmp_path / "ship_package"
    (package / "inner").mkdir(parents=True)
    for name in ("__init__.py", "inner/__init__.py", "inner/table.csv"):
        (package / name).write_text("")
    assert shipping.plugin_files(["ship_alone"]).keys() == {"ship_alone.py", "ship_helper.py"}
    assert shipping.plugin_files(["ship_package.inner"]).keys() == {
        "ship_package/__init__.py", "ship_package/inner/__init__.py", "ship_package/inner/table.csv"}
    assert shipping.plugin_files(["numpy"]) == {}               # is installed


def test_a_cluster_that_is_lost_while_workers_start_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(_launcher: Actors, _n: int) -> None:
        raise ConnectionError("Request can't be sent")
    pytest.importorskip("ray", reason="Ray is not installed: install emul[ray]")
    monkeypatch.setattr(Actors, "_reserve", lost)
    with pytest.raises(NoCluster, match=f"^{CUT_OFF}, before the workers ran: Request can't be sent$"):
        Actors(Cluster(1)).start([])


def test_an_actor_looks_after_the_files_of_its_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: install emul[ray]")
    from emul.workers.host import ProcessHost

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("ray.util.get_node_ip_address", lambda: "127.0.0.1")
    one, other = ProcessHost(), ProcessHost()
    assert one.about()[0] == "127.0.0.1"
    assert one.kept("k") == ""
    folder = one.keep("k", {"x": b"1"})
    assert other.kept("k") == other.keep("k", {"x": b"1"}) == folder        # once a machine
    assert one.sizes(folder) == [("x", 1)]
    own = one.lay({"a/b": b"2"}, "run-1")
    assert one.left("run-1") == {"a/b": b"2"}
    assert not Path(own).exists()
    one.end()
    other.end()


def test_a_machine_and_the_coordinator_find_out_whether_they_reach_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray", reason="Ray is not installed: install emul[ray]")
    from emul.workers.host import ProcessHost

    class Asked:
        """An actor, in this process."""

        def __init__(self, method: Callable[[str], tuple[str, int]]):
            self.meet, self._method = self, method

        def remote(self, control: str) -> tuple[str, int]:
            return self._method(control)

    monkeypatch.setattr("ray.util.get_node_ip_address", lambda: "127.0.0.1")
    monkeypatch.setattr(ray, "get", lambda answers: answers)
    with socket.create_server(("127.0.0.1", 0)) as coordinator:
        control = f"tcp://127.0.0.1:{coordinator.getsockname()[1]}"
        host = ProcessHost()
        _require_meeting([Asked(host.meet)], ["127.0.0.1"], control)
        host.end()
        with pytest.raises(NoCluster, match=r"^this process does not reach the machine 127.0.0.1 of the cluster: Conn"):
            _require_meeting([Asked(lambda control: ("", nobody()))], ["127.0.0.1"], control)
    host = ProcessHost()
    with pytest.raises(NoCluster, match="^the machine 127.0.0.1 of the cluster does not reach this process at "
                                        f"{control}: Connection refused; workers speak to it straight, so run this"):
        _require_meeting([Asked(host.meet)], ["127.0.0.1"], control)
    host.end()


def nobody() -> int:
    """A port at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_the_process_of_an_actor_ends_with_it_or_with_its_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here without a coordinator to speak to: it is told of an end that has come."""
    pytest.importorskip("ray", reason="Ray is not installed: install emul[ray]")
    from emul.workers import host

    monkeypatch.setattr("ray.util.get_node_ip_address", lambda: "127.0.0.1")
    monkeypatch.setattr(host.os, "getpid", lambda: 2**22 - 1)           # nobody's, to be watched
    started = host.ProcessHost()
    transport = Tcp.new()
    assert started.start(WorkerSettings(0, "token", transport, "tcp://127.0.0.1:1", "tcp://127.0.0.1:1", 0).text()) > 0
    assert started.wait() == 1
    started.end()


def test_an_actor_out_of_reach_for_a_moment_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray", reason="Ray is not installed: install emul[ray]")

    class Actor:
        """Whose answers are given in turn."""

        def __init__(self, answers: list[int | Exception]):
            self.answers, self.wait = answers, self

        def remote(self) -> Actor:
            return self

        def future(self) -> Future[int]:
            found, answer = Future[int](), self.answers.pop(0)
            found.set_exception(answer) if isinstance(answer, Exception) else found.set_result(answer)
            return found

    monkeypatch.setattr("emul.workers.ray_actors._AGAIN_S", 0.01)
    away = ray.exceptions.ActorUnavailableError("", None)
    for answers, said in (([away, away, 3], "ended with exit code 3"),
                          ([away] * 11, "is lost: its actor or its machine has ended (ActorUnavailableError)")):
        worker = Remote(Actor(list(answers)), "10.0.0.2", 17)
        worker.join(30)
        assert not worker.is_alive()
        assert worker.ending() == said
        worker.forget()


def test_the_process_of_an_actor_has_the_environment_of_every_worker(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from emul.workers import forks, host

    class Process:
        pid = 5
        stdin = io.BytesIO()

        def __init__(self, command: list[str], env: dict[str, str], **how: Any):
            self.env = env
            begun.append(self)

    begun: list[Process] = []
    monkeypatch.setattr(host.subprocess, "Popen", Process)
    monkeypatch.setenv("PYTHONHASHSEED", "5")
    begins = object.__new__(host.ProcessHost)          # its `__init__` asks Ray where it is
    begins._address, begins._home, begins._open = "127.0.0.1", tmp_path, None
    begins.start(WorkerSettings(0, "token", Tcp.new(), "tcp://127.0.0.1:1", "tcp://127.0.0.1:1", 0).text())
    assert begun[0].env.items() >= forks.ENVIRONMENT.items()
    assert forks.ENVIRONMENT["PYTHONHASHSEED"] == "0"
