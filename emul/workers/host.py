"""The host of one worker on another machine, an actor of Ray or a step of Slurm. Text and bytes cross alone."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import emul
from emul.base.machine import chip
from emul.learning.data import cache_directory
from emul.workers import shipping
from emul.workers.forks import ENVIRONMENT
from emul.workers.launcher import unreached
from emul.workers.shipping import Files
from emul.workers.transport import WorkerSettings


class ProcessHost:
    """Starts a worker's process, so that it has an interpreter of its own as everywhere, and ends with it."""

    def __init__(self, address: str = "") -> None:
        """address: that of this machine at which the others reach it; "": that by which Ray knows it."""
        self._address = address or _address_of_ray()
        self._home = Path(tempfile.mkdtemp(prefix="emul-"))
        self._open: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def about(self) -> tuple[str, str, str]:
        """(address, versions of emul, Python and torch, processor)."""
        versions = f"emul {emul.__version__}, Python {platform.python_version()}, torch {version('torch')}"
        return self._address, versions, chip()

    def meet(self, control: str) -> tuple[str, int]:
        """(what keeps this machine from the coordinator's socket, "" for nothing; a port of this machine that the
        coordinator should reach until the worker starts)."""
        host, _, port = control.removeprefix("tcp://").rpartition(":")
        self._open = socket.create_server((self._address, 0))
        return unreached(host, int(port)), self._open.getsockname()[1]

    def start(self, text: str) -> int:
        """Start the worker with what it is told; its process."""
        if self._open is not None:
            self._open.close()
        told = WorkerSettings.of(text)
        told.transport = told.transport.at(self._address)           # type: ignore[union-attr]
        told.watched, told.leftovers = os.getpid(), [str(self._home)]
        paths = [*(path for path in sys.path if path), str(self._home / "plugins")]     # they hide no library's module
        environment = {**os.environ, **ENVIRONMENT, "PYTHONPATH": os.pathsep.join(paths)}
        self._process = subprocess.Popen([sys.executable, "-m", "emul.workers.entry"], stdin=subprocess.PIPE,
                                         env=environment, cwd=self._home)
        assert self._process.stdin is not None
        self._process.stdin.write(told.text().encode())             # and not in its arguments: it holds keys
        self._process.stdin.close()
        return self._process.pid

    def wait(self) -> int:
        """The worker's exit code, once it has ended."""
        assert self._process is not None
        return self._process.wait()

    def sizes(self, path: str) -> list[tuple[str, int]] | None:
        """Of the files that lie here under this path."""
        return shipping.sizes(path)

    def install(self, files: Files) -> None:
        """Put modules where the worker finds them."""
        shipping.unpacked(files, self._home / "plugins")

    def lay(self, files: Files, name: str) -> str:
        """Put files into a folder of this worker's alone, which is made; its path."""
        folder = self._home / name
        folder.mkdir(parents=True, exist_ok=True)
        shipping.unpacked(files, folder)
        return str(folder)

    def kept(self, key: str) -> str:
        """The folder of the files with this key on this machine, whoever put them there; "": there is none yet."""
        folder = _shipped(key)
        return str(folder) if folder.is_dir() else ""

    def keep(self, key: str, files: Files) -> str:
        """Put files where all workers of this machine have them, in this run and later ones; their folder."""
        folder = _shipped(key)
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=folder.parent))
        shipping.unpacked(files, made)
        with contextlib.suppress(OSError):          # another has just done it
            made.rename(folder)
        shutil.rmtree(made, ignore_errors=True)
        return str(folder)

    def left(self, name: str) -> Files:
        """The files that the worker has left in a folder of its own; they are gone from there."""
        files = shipping.packed(self._home / name)
        shutil.rmtree(self._home / name, ignore_errors=True)
        return files

    def end(self) -> None:
        """The worker has ended: nothing of it stays."""
        if self._open is not None:
            self._open.close()
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
        shutil.rmtree(self._home, ignore_errors=True)


def _address_of_ray() -> str:
    import ray

    return str(ray.util.get_node_ip_address())


def _shipped(key: str) -> Path:
    return cache_directory().parent / "shipped" / key
