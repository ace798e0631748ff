"""Workers on a Ray cluster of three nodes, all of this machine: the same runs as here, and what ends them."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from own_ray import own_ray

from emul import engine, schemes
from emul.base.errors import RunError
from emul.record.columns import columns
from emul.record.journal import MemoryJournal
from emul.record.summary import digest_model
from emul.scenario import loads
from emul.workers.actors import Actors
from emul.workers.cluster import Cluster, cluster
from emul.workers.joining import NoCluster
from emul.workers.pool import Workers
from emul.workers.twin import Twin

HERE = Path(__file__).resolve().parent
NODE = {"num_cpus": 4, "object_store_memory": 80 * 2**20}         # one that dies leaves room for the pool and a run
SLOW = """
emul: 1
name: slow
seed: 3
topology: {generator: star_mesh, clients: 5}
links: [{match: "*", latency: 5 ms, bandwidth: 100 Mbit/s}]
task: {data: {set: digits}, partition: iid, model: logistic, solver: {sgd: {lr: 0.1, steps: 1, batch: 8}}}
compute: {mode: zero}
schemes: [{name: echo_scheme, busy: 100 ms, length: 650}]
stop: {rounds: 20}
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def patiently(begin: Callable[[], Any]) -> Any:
    """What Ray begins; it gives up after 30 s of its own, which a busy machine takes."""
    for _ in range(5):
        try:
            return begin()
        except Exception as e:
            if "timed out during startup" not in str(e):
                raise
    pytest.skip("Ray gave up five times to begin a node within its 30 s: this machine is too busy")


@pytest.fixture(scope="module")
def three_nodes() -> Iterator[Any]:
    """A cluster of its own, small, and a connection to it."""
    ray = pytest.importorskip("ray", reason="Ray is not installed: install emul[ray]")
    from ray.cluster_utils import Cluster as Nodes

    with own_ray(), mock.patch.dict(os.environ, PYTHONPATH=os.pathsep.join(path for path in sys.path if path)):
        nodes = patiently(lambda: Nodes(initialize_head=True, head_node_args={"include_dashboard": False, **NODE}))
        try:
            for _ in range(2):
                patiently(lambda: nodes.add_node(**NODE))
            ray.init(address=nodes.address, log_to_driver=False, logging_level="ERROR")
            yield nodes
        finally:
            ray.shutdown()
            nodes.shutdown()


@pytest.fixture(scope="module")
def pool(three_nodes: Any) -> Iterator[Workers]:
    with Workers(3, launcher=Actors(cluster("ray:auto", 3))) as pool:
        yield pool


def digests(name: str, pool: Workers | Twin) -> tuple[str, str]:
    """(of the journal, of the models) of a scheme's EXAMPLE."""
    scenario = loads(schemes.find(name).EXAMPLE, name)
    wiring = engine.wire(scenario, *scenario.schemes[0], pool.workers)
    header = engine.header(wiring)
    journal = MemoryJournal(header)
    engine.execute(wiring, pool, journal)
    return journal.close(), digest_model(columns(journal.rows)) if header.get("deterministic", True) else ""


@pytest.mark.parametrize("name", schemes.known())
def test_a_scheme_has_the_digests_that_it_has_here(name: str, pool: Workers) -> None:
    with Twin() as twin:
        expected = digests(name, twin)
    assert digests(name, pool) == expected


def test_workers_are_spread_over_the_nodes(pool: Workers) -> None:
    import ray

    (group,) = [group for group in ray.util.placement_group_table().values() if group["state"] == "CREATED"]
    assert len(set(group["bundles_to_node_id"].values())) == 3
    assert len({worker.pid for worker in pool._processes}) == 3


class Apart(Actors):
    """As if the second and third worker's machines had none of this one's files."""

    def _all(self, method: str, *given: Any) -> list[Any]:
        answers = super()._all(method, *given)
        return [answers[0], None, None] if method == "sizes" else answers


def test_machines_that_share_no_files_are_sent_them_and_send_back_what_was_left(
        three_nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE.parent))
    scenario = loads(SLOW.replace("echo_scheme, busy: 100 ms, length: 650", "keeping_scheme").replace("20}", "3}"),
                     plugins=["keeping_scheme"])
    (here,) = engine.run(scenario, workers=0, out=tmp_path / "here", plugins=["keeping_scheme"])
    with Workers(3, launcher=Apart(cluster("ray:auto", 3))) as pool:
        (there,) = engine.run(scenario, workers=pool, out=tmp_path / "there", plugins=["keeping_scheme"])
    assert here.error is there.error is None
    assert here.directory is not None
    assert there.directory is not None
    for part in ("models", "artefacts"):
        left = {path.relative_to(here.directory): path.read_bytes() for path in (here.directory / part).rglob("*.*")}
        assert left
        assert left == {path.relative_to(there.directory): path.read_bytes()
                        for path in (there.directory / part).rglob("*.*")}
    assert not list(there.directory.glob(".place-*"))


def test_gpus_have_to_be_asked_for(pool: Workers) -> None:
    scenario = loads(schemes.find("fedavg").EXAMPLE, "fedavg")
    wiring = engine.wire(scenario, *scenario.schemes[0], 3)
    for setup in wiring.setups:
        setup.device = "cuda:0"
    with pytest.raises(RunError, match=r'^compute.device is cuda:0, but no worker has a GPU: --on "ray:auto\?gpus=1"'):
        pool.open(wiring.setups)
    assert digests("fedavg", pool)[0]                   # and the pool can be used


def test_a_cluster_without_room_says_so(three_nodes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emul.workers.actors._PLACED_S", 2)
    with pytest.raises(NoCluster, match=r"^no room for 2 workers of \{'CPU': 1.0, 'GPU': 1.0\} on the cluster, which"):
        Workers(2, launcher=Actors(cluster("ray:auto?gpus=1", 2)))


def slow(out: Path, workers: Cluster | int) -> engine.Result:
    (result,) = engine.run(loads(SLOW, plugins=["echo_scheme"]), workers=workers, out=out, plugins=["echo_scheme"])
    return result


def once_begun(journal: Path, do: Any) -> threading.Thread:
    """Do it when the journal has some rows."""
    def wait() -> None:
        end = time.monotonic() + 300
        while not (journal.exists() and journal.stat().st_size > 3000) and time.monotonic() < end:
            time.sleep(0.05)
        do()
    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("victim", ["worker", "node"])      # the node last: it stays away
def test_a_worker_or_a_node_that_dies_ends_the_run_which_can_be_gone_on_with(
        victim: str, three_nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = slow(tmp_path / "here", 0).summary
    assert expected is not None
    started: list[Any] = []
    start = Actors.start
    monkeypatch.setattr(Actors, "start", lambda self, every: started.extend(start(self, every)) or list(started))

    def kill() -> None:
        if victim == "worker":
            os.kill(started[1].pid, signal.SIGKILL)
        else:
            three_nodes.remove_node(three_nodes.list_all_nodes()[-1], allow_graceful=False)
    thread = once_begun(tmp_path / "there" / "slow-echo_scheme-1" / "journal", kill)
    there = slow(tmp_path / "there", Cluster(3))
    thread.join(60)
    assert there.worker_died
    assert there.error is not None
    how = {"worker": "WorkerDied: %s ended with exit code -9",
           "node": "(WorkerDied: %s (is lost: its actor or its machine has |)ended"      # or Ray needs longer to say so
                   "|ConnectionLost: the connection between .* and %s was lost)"}[victim]
    assert re.match(f"^{how}".replace("%s", r"worker \d \(process \d+ on [\d.]+\)"), there.error)
    assert there.directory is not None
    monkeypatch.setattr(Actors, "start", start)
    (again,) = engine.resume(there.directory, workers=Cluster(2), plugins=["echo_scheme"])
    assert again.summary is not None, again.error
    assert again.summary["digest"] == expected["digest"]
