"""The processes of a deployment: one a node, each in its network namespace, all started at one moment."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import multiprocessing
import os
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import wait
from pathlib import Path
from threading import BrokenBarrierError
from typing import Any

import msgspec

from benchmarks.deployment.node import Address, RealNode
from emul import engine
from emul.base.rows import Row
from emul.engine import Wiring
from emul.scenario import loads
from emul.workers.twin import one_thread

_CLONE_NEWNET = 0x40000000
_HEAD_START_NS = 200_000_000        # between the last that is ready and the start of the clock


class DeploymentFailed(Exception):
    """A process of a deployment raised, died or did not end in time; the text has what it said."""


@dataclass(frozen=True)
class Place:
    """The place where a node runs: its address, and its network namespace ("": this one)."""

    address: Address
    namespace: str = ""


@dataclass(frozen=True)
class Deployed:
    """The files of a deployment: rows as of a journal, and what each node has written into its sockets."""

    rows: list[Row]
    bytes_written: list[int]


def deploy(text: str, places: Sequence[Place], *, plugins: Sequence[str] = (), timeout_s: float,
           congestion: str = "cubic") -> Deployed:
    """Run a scenario of one scheme, as text, one process a node, in the order of the nodes. Raises DeploymentFailed.

    timeout_s: real seconds, connecting included; whatever still runs then is killed.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["emul.workers.preload", __name__, *plugins])        # torch is loaded once
    barrier, origin = context.Barrier(len(places) + 1), context.Value("q", 0)
    with tempfile.TemporaryDirectory(prefix="emul-deployment-") as folder:
        job = json.dumps({"text": text, "plugins": list(plugins), "places": [asdict(place) for place in places],
                          "congestion": congestion, "timeout_s": timeout_s, "folder": folder})
        children = [context.Process(target=_live, args=(job, me, barrier, origin), daemon=True)
                    for me in range(len(places))]
        try:
            for child in children:
                child.start()
            _start_clock(barrier, origin, timeout_s)
            _await_ends(children, time.monotonic() + timeout_s)
        finally:
            for child in children:
                if child.pid is not None and child.is_alive():
                    child.kill()
                    child.join()
        return _collected(Path(folder), [child.exitcode for child in children])


def _await_ends(children: Sequence[Any], until_s: float) -> None:
    """Until all have ended, one has failed, or the time is up."""
    left = {child.sentinel: child for child in children}
    while left and time.monotonic() < until_s:
        for sentinel in wait(list(left), until_s - time.monotonic()):
            if left.pop(sentinel).exitcode:
                return


def _start_clock(barrier: Any, origin: Any, timeout_s: float) -> None:
    """Once all are ready, say when it starts; they read it behind the second barrier. One that is broken stays so: the
    child that has not come will have said why."""
    with contextlib.suppress(BrokenBarrierError):
        barrier.wait(timeout_s)
        origin.value = time.monotonic_ns() + _HEAD_START_NS
        barrier.wait(timeout_s)


def _live(job: str, me: int, barrier: Any, origin: Any) -> None:
    """One process: its rows into a file, or what it raised."""
    told = json.loads(job)
    places = [Place(tuple(place["address"]), place["namespace"]) for place in told["places"]]
    folder = Path(told["folder"])

    def ready() -> int:
        barrier.wait(told["timeout_s"])
        barrier.wait(told["timeout_s"])
        return int(origin.value)

    try:
        if places[me].namespace:
            _enter(places[me].namespace)
        with one_thread():
            node = RealNode(wired(told["text"], len(places), told["plugins"]), me,
                            [place.address for place in places], told["congestion"])
            asyncio.run(node.live(ready))
        (folder / f"{me}.rows").write_bytes(msgspec.msgpack.encode((node.rows, node.bytes_written)))
    except BaseException:
        barrier.abort()
        (folder / f"{me}.error").write_text(f"node {me}: {traceback.format_exc()}")
        raise SystemExit(1) from None


def wired(text: str, workers: int = 1, plugins: Sequence[str] = ()) -> Wiring:
    """A scenario of one scheme, wired. Raises ScenarioError."""
    scenario = loads(text, "deployment", plugins=plugins)
    (name, raw), = scenario.schemes
    return engine.wire(scenario, name, raw, workers, plugins)


def _enter(namespace: str) -> None:
    """This process goes into a network namespace of `ip netns`. Raises OSError."""
    with Path("/var/run/netns", namespace).open() as place:
        if ctypes.CDLL(None, use_errno=True).setns(place.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"setns {namespace}: {os.strerror(ctypes.get_errno())}")


def _collected(folder: Path, exits: Sequence[int | None]) -> Deployed:
    errors = [file.read_text() for file in sorted(folder.glob("*.error"))]
    missing = [me for me in range(len(exits)) if not (folder / f"{me}.rows").exists()]
    if missing:
        said = [error for error in errors if BrokenBarrierError.__name__ not in error.splitlines()[-1]] or errors
        raise DeploymentFailed(f"nodes {missing} left nothing (exit codes {list(exits)}; what did not end in time is "
                               f"killed, -9)\n{chr(10).join(said)}")
    rows: list[Row] = []
    written = []
    for me in range(len(exits)):
        found, count = msgspec.msgpack.decode((folder / f"{me}.rows").read_bytes())
        rows += map(tuple, found)
        written.append(count)
    return Deployed(sorted(rows, key=lambda row: row[1]), written)
