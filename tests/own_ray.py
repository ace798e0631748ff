"""Ray clusters of a test alone, which nobody else on the machine finds, and which find nobody."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

# a client's server may take longer to start than Ray's 30 s, and longer to be spoken to
PATIENT = {"RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S": "60", "TIMEOUT_FOR_SPECIFIC_SERVER_S": "240"}
NODES = Path(__file__).resolve().parent / "workers" / "ray_nodes.py"


@contextmanager
def own_ray() -> Iterator[None]:
    """Within, Ray has a directory of its own, and $RAY_ADDRESS says to begin a cluster where none is named.

    A cluster of `ray.cluster_utils` notes its address in Ray's directory, for every `ray.init()` of the machine that
    names none. Another pytest process once took it so while the cluster was being taken down, and asked it for minutes.
    """
    place = tempfile.mkdtemp(prefix="ray", dir="/tmp")      # short: names of sockets below it have at most 107 bytes
    try:
        with mock.patch.dict(os.environ, RAY_TMPDIR=place, RAY_ADDRESS="local"):
            yield
    finally:
        shutil.rmtree(place, ignore_errors=True)


def patiently(begin: Callable[[], Any]) -> Any:
    """What Ray begins; it gives up after 30 s of its own, which a busy machine takes."""
    for _ in range(5):
        try:
            return begin()
        except Exception as e:
            if "timed out during startup" not in str(e):
                raise
    pytest.skip("Ray gave up five times to begin a node within its 30 s: this machine is too busy")


@dataclass
class Elsewhere:
    """A cluster of two nodes in processes that are not this one's. address: of its server for Ray's client."""

    address: str
    process: subprocess.Popen[str]

    def kill(self, what: str) -> None:
        """What `ray_nodes` ends."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"


@contextmanager
def elsewhere_begun(host: str = "", prefix: Sequence[str] = ()) -> Iterator[Elsewhere]:
    """One; host: the address of its machine, prefix: of the command that begins it. Skips without Ray's client."""
    pytest.importorskip("ray", reason="Ray is not installed: install emul[ray]")
    pytest.importorskip("grpc", reason="Ray's client is not installed: install emul[ray]")
    with socket.create_server(("", 0)) as free:
        port = str(free.getsockname()[1])
    with own_ray():
        process = subprocess.Popen([*prefix, sys.executable, NODES, port, *([host] if host else [])],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                   env={**os.environ, **PATIENT,
                                        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)})
        assert process.stdout is not None
        try:
            said = next((line for line in process.stdout if line == "ready\n"), "")
            if not said:
                pytest.skip("Ray began no two nodes within its 30 s: this machine is too busy")
            yield Elsewhere(f"ray://{host or '127.0.0.1'}:{port}", process)
        finally:
            process.communicate(timeout=120)
