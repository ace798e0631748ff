"""Workers and sweeps on a Ray cluster from outside, by Ray's client: the same runs as here, and what ends them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from digested import digests
from own_ray import Elsewhere, elsewhere_begun
from slow_run import Apart, dies_and_is_gone_on_with, example, left_behind

from emul.study.engines import in_turn
from emul.study.runs import Where
from emul.study.sweep import sweep
from emul.workers import ray_address
from emul.workers.cluster import Cluster, cluster
from emul.workers.pool import Workers
from emul.workers.ray_actors import Actors, Remote
from emul.workers.ray_address import CUT_OFF, NoCluster
from emul.workers.transport import WorkerSettings
from emul.workers.twin import Twin

HERE = Path(__file__).resolve().parent
pytestmark = [pytest.mark.machine, pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.xdist_group("cluster")]


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Elsewhere]:
    with elsewhere_begun() as one:
        yield one


@pytest.fixture(autouse=True)
def served(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that Ray begins for each client does not always start, however long one waits; and on a busy machine
    Ray's client can lose its server and not find back ("Expected to receive a chunk from request with id")."""
    patiently, start = ray_address._patiently, Actors.start

    def tried(address: str) -> None:
        try:
            patiently(address)
        except (ConnectionError, RuntimeError) as e:
            if ray_address.unserved(e):
                pytest.skip("Ray has not started its process for this client, three times")
            raise

    def started(launcher: Actors, every: Sequence[WorkerSettings]) -> list[Remote]:
        try:
            return start(launcher, every)
        except NoCluster as e:
            if str(e).startswith(CUT_OFF):
                pytest.skip("Ray's client lost its server before the workers ran")
            raise
    monkeypatch.setattr(ray_address, "_patiently", tried)
    monkeypatch.setattr(Actors, "start", started)


def test_schemes_have_the_digests_that_they_have_here(elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", elsewhere.address)
    with Twin() as twin, Workers(3, launcher=Actors(cluster("ray:auto", 3))) as pool:
        for name in ("fedavg", "secagg", "fedbuff", "gossip"):
            assert digests(example(name), pool) == digests(example(name), twin)


def test_machines_that_share_no_files_are_sent_them_and_send_back_what_was_left(
        elsewhere: Elsewhere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE.parent))
    assert left_behind(tmp_path / "there", Apart(Cluster(3, elsewhere.address))) == left_behind(tmp_path / "here")


def test_a_sweep_gives_the_results_that_it_gives_here(elsewhere: Elsewhere, small: Path,
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    from emul.study.engines import on_ray

    monkeypatch.setenv("RAY_ADDRESS", elsewhere.address)
    options = {"seeds": [0, 1], "schemes": ["fedavg"]}
    a = sweep(small, Where(in_turn, 0), out=Path("a"), **options)
    b = sweep(small, Where(on_ray, 1), out=Path("b"), **options)
    assert (len(b.runs), b.failed) == (2, [])
    assert {cell.key: digest_of(b.path, cell.key) for cell in b.runs} == {
        cell.key: digest_of(a.path, cell.key) for cell in a.runs}


def digest_of(study: Path, key: str) -> str:
    import emul

    return str(emul.load_run(str(study / "cells" / key)).summary["digest"])


@pytest.mark.release                    # `test_ray` has it without the client
def test_a_worker_that_dies_ends_the_run_which_can_be_gone_on_with(elsewhere: Elsewhere, tmp_path: Path) -> None:
    dies_and_is_gone_on_with(tmp_path, Cluster(4, elsewhere.address), Cluster(2, elsewhere.address))


@pytest.mark.release                    # `test_ray` has it without the client
def test_a_node_that_dies_ends_the_run_which_can_be_gone_on_with(elsewhere: Elsewhere, tmp_path: Path) -> None:
    """The last test: the node stays away."""
    dies_and_is_gone_on_with(tmp_path, Cluster(4, elsewhere.address), Cluster(2, elsewhere.address),
                             lambda: elsewhere.kill("node"))
