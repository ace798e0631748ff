"""Workers on a Ray cluster of three nodes, all of this machine: the same runs as here, and what ends them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from digested import digests
from own_ray import own_ray, patiently
from slow_run import Apart, dies_and_is_gone_on_with, example, left_behind

from emul import engine
from emul.base.errors import RunError
from emul.registry import schemes
from emul.workers.cluster import Cluster, cluster
from emul.workers.pool import Workers
from emul.workers.ray_actors import Actors
from emul.workers.ray_address import NoCluster
from emul.workers.twin import Twin

HERE = Path(__file__).resolve().parent
NODE = {"num_cpus": 4, "object_store_memory": 80 * 2**20}         # one that dies leaves room for the pool and a run
pytestmark = [pytest.mark.machine, pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.xdist_group("cluster")]


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


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if at % 10 == 0 else [pytest.mark.release])
                                  for at, name in enumerate(schemes.known())])
def test_a_scheme_has_the_digests_that_it_has_here(name: str, pool: Workers) -> None:
    with Twin() as twin:
        expected = digests(example(name), twin)
    assert digests(example(name), pool) == expected


def test_workers_are_spread_over_the_nodes(pool: Workers) -> None:
    import ray

    (group,) = [group for group in ray.util.placement_group_table().values() if group["state"] == "CREATED"]
    assert len(set(group["bundles_to_node_id"].values())) == 3
    assert len({worker.pid for worker in pool._processes}) == 3


def test_machines_that_share_no_files_are_sent_them_and_send_back_what_was_left(
        three_nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE.parent))
    assert left_behind(tmp_path / "there", Apart(cluster("ray:auto", 3))) == left_behind(tmp_path / "here")


def test_gpus_have_to_be_asked_for(pool: Workers) -> None:
    scenario = example("fedavg")
    wiring = engine.wire(scenario, *scenario.schemes[0], 3)
    for setup in wiring.setups:
        setup.device = "cuda:0"
    with pytest.raises(RunError, match=r'^compute.device is cuda:0, but no worker has a GPU: --on "ray:auto\?gpus=1"'):
        pool.open(wiring.setups)
    assert digests(scenario, pool)[0]                   # and the pool can be used


def test_a_cluster_without_room_says_so(three_nodes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emul.workers.ray_actors._PLACED_S", 2)
    with pytest.raises(NoCluster, match=r"^no room for 2 workers of \{'CPU': 1.0, 'GPU': 1.0\} on the cluster, which"):
        Workers(2, launcher=Actors(cluster("ray:auto?gpus=1", 2)))


def test_a_worker_that_dies_ends_the_run_which_can_be_gone_on_with(three_nodes: Any, tmp_path: Path) -> None:
    dies_and_is_gone_on_with(tmp_path, Cluster(3), Cluster(2))


def test_a_node_that_dies_ends_the_run_which_can_be_gone_on_with(three_nodes: Any, tmp_path: Path) -> None:
    """The last test: the node stays away."""
    dies_and_is_gone_on_with(tmp_path, Cluster(3), Cluster(2), lambda: three_nodes.remove_node(
        three_nodes.list_all_nodes()[-1], allow_graceful=False))
