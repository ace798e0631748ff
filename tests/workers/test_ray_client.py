"""Workers and sweeps on a Ray cluster from outside, by Ray's client: the same runs as here, and what ends them."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from own_ray import Elsewhere, elsewhere_begun
from slow_run import Apart, digests, left_behind, once_begun, slow, starts

from emul import engine
from emul.study.engines import here
from emul.study.runs import Where
from emul.study.sweep import sweep
from emul.workers import joining
from emul.workers.actors import Actors
from emul.workers.cluster import Cluster, cluster
from emul.workers.pool import Workers
from emul.workers.twin import Twin

HERE = Path(__file__).resolve().parent
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Elsewhere]:
    with elsewhere_begun() as one:
        yield one


@pytest.fixture(autouse=True)
def served(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that Ray begins for each client does not always start, however long one waits."""
    patiently = joining._patiently

    def tried(address: str) -> None:
        try:
            patiently(address)
        except RuntimeError as e:
            if joining.NOT_SERVED in str(e):
                pytest.skip("Ray has not started its process for this client, three times")
            raise
    monkeypatch.setattr(joining, "_patiently", tried)


def test_schemes_have_the_digests_that_they_have_here(elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", elsewhere.address)
    with Twin() as twin, Workers(3, launcher=Actors(cluster("ray:auto", 3))) as pool:
        for name in ("fedavg", "secagg", "fedbuff", "gossip"):
            assert digests(name, pool) == digests(name, twin)


def test_machines_that_share_no_files_are_sent_them_and_send_back_what_was_left(
        elsewhere: Elsewhere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE.parent))
    assert left_behind(tmp_path / "there", Apart(Cluster(3, elsewhere.address))) == left_behind(tmp_path / "here")


def test_a_sweep_gives_the_results_that_it_gives_here(elsewhere: Elsewhere, small: Path,
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    from emul.study.ray_engine import on_ray

    monkeypatch.setenv("RAY_ADDRESS", elsewhere.address)
    options = {"seeds": [0, 1], "schemes": ["fedavg"]}
    a = sweep(small, Where(here, 0), out=Path("a"), **options)
    b = sweep(small, Where(on_ray, 1), out=Path("b"), **options)
    assert (len(b.runs), b.failed) == (2, [])
    assert {cell.key: digest_of(b.path, cell.key) for cell in b.runs} == {
        cell.key: digest_of(a.path, cell.key) for cell in a.runs}


def digest_of(study: Path, key: str) -> str:
    import emul

    return str(emul.load_run(str(study / "cells" / key)).summary["digest"])


@pytest.mark.parametrize(("victim", "how"), [       # the node last: it stays away
    ("worker", "ended with exit code -9"),
    ("node", "(is lost: its actor or its machine has |)ended"),
])
def test_a_death_ends_the_run_which_can_be_gone_on_with(victim: str, how: str, elsewhere: Elsewhere, tmp_path: Path,
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    expected = slow(tmp_path / "here", 0).summary
    assert expected is not None
    started, noting = starts()
    monkeypatch.setattr(Actors, "start", noting)

    def kill() -> None:
        if victim == "worker":
            os.kill(started[1].pid, signal.SIGKILL)
        else:
            elsewhere.kill(victim)
    thread = once_begun(tmp_path / "there" / "slow-echo_scheme-1" / "journal", kill)
    there = slow(tmp_path / "there", Cluster(4, elsewhere.address))
    thread.join(60)
    assert there.worker_died
    assert there.error is not None
    assert re.match(rf"^WorkerDied: worker \d \(process \d+ on [\d.]+\) {how}", there.error)
    assert there.directory is not None
    (again,) = engine.resume(there.directory, workers=Cluster(2, elsewhere.address), plugins=["echo_scheme"])
    assert again.summary is not None, again.error
    assert again.summary["digest"] == expected["digest"]

