"""A run that lasts some seconds, with a plug-in that lies here, and what becomes of it: for workers elsewhere."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emul import engine
from emul.registry import schemes
from emul.scenario import Scenario, loads
from emul.workers.cluster import Cluster
from emul.workers.pool import Workers
from emul.workers.ray_actors import Actors
from emul.workers.slurm import Steps

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
workers: {timeout: 120 s}               # Ray may need more than 30 s to know that a machine is lost
"""


def example(name: str) -> Scenario:
    """A scheme's EXAMPLE."""
    return loads(schemes.find(name).example, name)


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


def starts(kind: type[Actors] | type[Steps] = Actors) -> tuple[list[Any], Any]:
    """(the workers of the first pool that it starts, a replacement of the launcher's `start`)."""
    started: list[Any] = []
    start = kind.start

    def noting(launcher: Any, every: Any) -> Any:
        now = start(launcher, every)
        started.extend(() if started else now)
        return now
    return started, noting


def dies_and_is_gone_on_with(out: Path, workers: Cluster, again: Cluster, lose_node: Callable[[], None] | None = None,
                             kind: type[Actors] | type[Steps] = Actors) -> None:
    """A worker is killed while a run lasts, or `lose_node` called: the run ends and says so, and `resume` comes to the
    digest that it has here."""
    expected = slow(out / "here", 0).summary
    assert expected is not None
    with pytest.MonkeyPatch.context() as patch:
        started, noting = starts(kind)
        patch.setattr(kind, "start", noting)
        thread = once_begun(out / "there" / "slow-echo_scheme-1" / "journal",
                            lose_node or (lambda: os.kill(started[1].pid, signal.SIGKILL)))
        there = slow(out / "there", workers)
        thread.join(60)
    assert there.error is not None
    assert there.worker_died, there.error
    code = r"-?\d+" if lose_node else "-9"
    # A worker's actor ends soon after it, and on a busy machine Ray tells of the actor first.
    assert re.match(r"^WorkerDied: worker \d \(process \d+ on [\d.]+\) "
                    rf"(ended with exit code {code}|is lost: its actor or its machine has ended)", there.error)
    assert there.directory is not None
    (found,) = engine.resume(there.directory, workers=again, plugins=["echo_scheme"])
    assert found.summary is not None, found.error
    assert found.summary["digest"] == expected["digest"]


def left_behind(out: Path, launcher: Actors | Steps | None = None) -> dict[str, bytes]:
    """Models and arrays in the directory of a run whose workers are started so; None: in this process."""
    scenario = loads(SLOW.replace("echo_scheme, busy: 100 ms, length: 650", "keeping_scheme").replace("20}", "3}"),
                     plugins=["keeping_scheme"])
    with contextlib.ExitStack() as stack:
        workers = 0 if launcher is None else stack.enter_context(Workers(3, launcher=launcher))
        (run,) = engine.run(scenario, workers=workers, out=out, plugins=["keeping_scheme"])
    assert run.error is None
    assert run.directory is not None
    assert not list(run.directory.glob(".place-*"))
    left = {part: list((run.directory / part).rglob("*.*")) for part in ("models", "artefacts")}
    assert all(left.values())
    return {str(path.relative_to(run.directory)): path.read_bytes() for paths in left.values() for path in paths}


class _Apart:
    """As if the second and third worker's machines had none of this one's files."""

    def _all(self, method: str, *given: Any) -> list[Any]:
        answers = super()._all(method, *given)          # type: ignore[misc]
        return [answers[0], None, None] if method == "sizes" else answers


class Apart(_Apart, Actors):
    """On Ray."""


class ApartInSlurm(_Apart, Steps):
    """In Slurm."""
