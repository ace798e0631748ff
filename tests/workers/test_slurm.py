"""Workers in an allocation of a real Slurm of two nodes, both this machine: the same runs, and what ends them."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from digested import digests
from own_slurm import own_slurm
from slow_run import SLOW, ApartInSlurm, dies_and_is_gone_on_with, example, left_behind, once_begun

from emul.workers.cluster import Cluster, cluster
from emul.workers.pool import Workers
from emul.workers.ray_address import NoCluster
from emul.workers.slurm import Steps
from emul.workers.twin import Twin

HERE = Path(__file__).resolve().parent
pytestmark = [pytest.mark.machine, pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.xdist_group("cluster")]


@pytest.fixture(scope="module")
def two_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    paths = os.pathsep.join(path for path in sys.path if path)
    with own_slurm(tmp_path_factory.mktemp("slurm")) as environment:
        yield {**environment, "PYTHONPATH": paths}


@contextlib.contextmanager
def allocation(environment: dict[str, str], tasks: int, *more: str) -> Iterator[None]:
    """This process is in a job with so many CPUs on each node, as in a shell of `salloc`."""
    done = subprocess.run(["salloc", "--nodes=2", f"--ntasks-per-node={tasks}", "--mem=500", *more, "--no-shell"],
                          text=True, env=environment, capture_output=True, check=True, timeout=60)
    job = re.findall(r"Granted job allocation (\d+)", done.stderr)[0]
    given = {**environment, "SLURM_JOB_ID": job, "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_MEM_PER_NODE": "500",
             "SLURM_JOB_CPUS_PER_NODE": f"{tasks}(x2)"}
    try:
        with mock.patch.dict(os.environ, given):
            yield
            assert steps(environment, job) == []            # nothing is left of a pool that was closed
    finally:
        subprocess.run(["scancel", job], env=environment, check=True, timeout=60)


def steps(environment: dict[str, str], job: str) -> list[str]:
    """The steps of a job that go on, after some time to end."""
    until = time.monotonic() + 30
    while True:
        said = subprocess.run(["squeue", "--steps", "--noheader", f"--jobs={job}", "--format=%i"], env=environment,
                              text=True, capture_output=True, check=True, timeout=60)
        left = [one for one in said.stdout.split() if not one.endswith(".extern")]
        if not left or time.monotonic() > until:
            return left
        time.sleep(0.2)


def test_schemes_have_the_digests_that_they_have_here_and_share_no_files(two_nodes: dict[str, str], tmp_path: Path,
                                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE.parent))
    with allocation(two_nodes, 2):
        with Twin() as twin, Workers(3, launcher=Steps(cluster("slurm", 3))) as pool:
            assert [one.place.rpartition(" ")[2] for one in pool._processes] == ["127.0.0.1"] * 3
            for name in ("fedavg", "secagg", "gossip"):
                assert digests(example(name), pool) == digests(example(name), twin)
        there = left_behind(tmp_path / "there", ApartInSlurm(cluster("slurm", 3)))
    assert there == left_behind(tmp_path / "here")


def test_two_jobs_on_the_same_nodes_do_not_meet(two_nodes: dict[str, str]) -> None:
    with Twin() as twin, contextlib.ExitStack() as open_:
        expected = digests(example("fedavg"), twin)
        pools = []
        for _ in range(2):
            open_.enter_context(allocation(two_nodes, 1))
            pools.append(open_.enter_context(Workers(2, launcher=Steps(cluster("slurm", 2)))))
        assert [digests(example("fedavg"), pool) for pool in pools] == [expected] * 2


def test_a_job_without_room_says_so(two_nodes: dict[str, str]) -> None:
    with allocation(two_nodes, 1), pytest.raises(NoCluster, match=(
            r"^no room for 3 workers of 1 CPUs: the job of Slurm has room for 2 on 2 nodes$")):
        Workers(3, launcher=Steps(cluster("slurm", 3)))


def test_each_worker_is_bound_to_a_gpu_of_its_own_or_to_none(two_nodes: dict[str, str],
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPUs are pretended: Slurm hands them out, and says so to the workers as it does with real ones."""
    monkeypatch.setenv("SLURM_GPUS_PER_NODE", "2")          # as salloc and sbatch set it
    with allocation(two_nodes, 2, "--gpus-per-node=2"):
        with Workers(4, launcher=Steps(cluster("slurm?gpus=1", 4))) as pool:
            assert sorted(visible(pool)) == ["0", "0", "1", "1"]
        with Workers(2, launcher=Steps(cluster("slurm", 2))) as pool:
            assert visible(pool) == []


def visible(pool: Workers) -> list[str]:
    """CUDA_VISIBLE_DEVICES of each worker that has it, all of which are on this machine."""
    return [found for worker in pool._processes for found in re.findall(
        r"\0CUDA_VISIBLE_DEVICES=([^\0]*)", Path(f"/proc/{worker.pid}/environ").read_text())]


def test_a_worker_that_dies_ends_the_run_which_can_be_gone_on_with(two_nodes: dict[str, str], tmp_path: Path) -> None:
    with allocation(two_nodes, 2):
        dies_and_is_gone_on_with(tmp_path, Cluster(3, "slurm"), Cluster(2, "slurm"), kind=Steps)


def test_a_coordinator_that_is_killed_leaves_no_step(two_nodes: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "slow.yaml").write_text(SLOW)
    with allocation(two_nodes, 2):
        run = subprocess.Popen([sys.executable, "-P", "-m", "emul", "run", "slow.yaml", "--plugin", "echo_scheme",
                                "--on", "slurm", "--workers", "2", "--quiet"], cwd=tmp_path)
        once_begun(tmp_path / "runs/slow-echo_scheme-1/journal", lambda: run.send_signal(signal.SIGKILL)).join(300)
        assert run.wait(60) == -signal.SIGKILL
