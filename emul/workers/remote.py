"""Workers on other machines, each started by a host there: files of a run go to them and come back.

A host (`emul.workers.host`) is an actor of Ray or a step of Slurm. Files are shipped where they do not lie already:
sources of plug-ins, the data set (once a machine), the files that a resumed run had kept. Files of a worker that does
not see the run's directory come back.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import msgspec

from emul.base.errors import RunError
from emul.workers import shipping
from emul.workers.cluster import Cluster
from emul.workers.launcher import unreached
from emul.workers.ray_address import NoCluster
from emul.workers.setup import Setup

_log = logging.getLogger(__name__)

_BEFORE = ("trainings/**/*", "volatile-*")      # files that a resumed run had kept, in its directory


class At(Protocol):
    """A worker that a host has started. address: of its machine."""

    address: str


W = TypeVar("W", bound=At)


class Hosted(ABC, Generic[W]):
    """The part of a launcher that speaks with hosts about files, however they are reached."""

    def __init__(self, cluster: Cluster):
        self._cluster = cluster
        self._workers: list[W] = []
        self._plugins = ""                  # key of those that were shipped last
        self._away: dict[int, tuple[str, Path]] = {}        # worker -> its own folder of the run, the run's directory
        self._runs = itertools.count(1)

    @abstractmethod
    def _all(self, method: str, *given: object) -> list[object]:
        """The answer of every host. Raises RunError if one is lost."""

    @abstractmethod
    def _answer(self, worker: W, method: str, *given: object) -> object:
        """The answer of one host. Raises RunError if it is lost."""

    @abstractmethod
    def _reach(self) -> bool:
        """True if hosts can be asked still."""

    def prepare(self, setups: Sequence[Setup]) -> Sequence[Setup]:
        """Ship what is not there: see the module. Raises RunError for GPUs that were not asked for."""
        if setups[0].device != "cpu" and not self._cluster.gpus:
            raise RunError(f"compute.device is {setups[0].device}, but no worker has a GPU: "
                           f'--on "{self._cluster.name}?gpus=1" gives each one')
        self._ship_plugins(setups[0].plugins)
        prepared = list(self._with_data(setups))
        if setups[0].directory:
            prepared = list(self._with_directory(prepared))
        # a worker sees its own GPUs alone
        sharing = max(1, int(1 / self._cluster.gpus)) if self._cluster.gpus else 1
        return [setup if setup.device == "cpu" else msgspec.structs.replace(setup, device="cuda:0", sharing=sharing,
                                                                                    visible=None)
                for setup in prepared]

    def _ship_plugins(self, modules: Sequence[str]) -> None:
        files = shipping.plugin_files(modules)
        if files and shipping.key_of(files) != self._plugins:
            self._plugins = shipping.key_of(files)
            self._all("install", files)

    def _with_data(self, setups: Sequence[Setup]) -> Iterator[Setup]:
        """Ship the files of the data set to each machine that does not have its folder, once a machine."""
        directory = (setups[0].task or {}).get("data", {}).get("directory")
        if not directory:
            yield from setups
            return
        here, files, places = shipping.sizes(directory), None, dict[str, str]()
        there = self._all("sizes", str(directory))
        for setup, worker, found in zip(setups, self._workers, there, strict=True):
            if msgspec.convert(found, list[tuple[str, int]] | None) == here:
                yield setup
                continue
            if worker.address not in places:
                files = files or shipping.packed(directory)
                places[worker.address] = self._kept(worker, files)
            assert setup.task is not None
            data = {**setup.task["data"], "directory": places[worker.address]}
            yield msgspec.structs.replace(setup, task={**setup.task, "data": data})

    def _with_directory(self, setups: Sequence[Setup]) -> Iterator[Setup]:
        """Workers that do not see the run's directory have one of their own, with what the run had kept before."""
        home, name = Path(setups[0].directory), f"run-{next(self._runs)}"
        mark = home / f".place-{secrets.token_hex(8)}"
        mark.touch()
        try:
            seen = self._all("sizes", str(mark))
        finally:
            mark.unlink()
        self._away = {}
        for index, (setup, worker, found) in enumerate(zip(setups, self._workers, seen, strict=True)):
            if found is not None:
                yield setup
                continue
            folder = self._answer(worker, "lay", {}, name)
            before = self._answer(worker, "lay", shipping.packed(home, _BEFORE), f"before-{name}")
            self._away[index] = name, home
            own = msgspec.structs.replace(setup, directory=folder, recalled=before if setup.recalled else "")
            if setup.store:
                known = [f"{before}/trainings", *(self._answer(worker, "lay", shipping.packed(path), f"store-{n}")
                                                  for n, path in enumerate([setup.store, *setup.stored])
                                                  if not Path(path).is_relative_to(home))]
                own = msgspec.structs.replace(own, store=f"{folder}/trainings", stored=known)
            yield own

    def collect(self) -> None:
        """Fetch the files that workers have left in folders of their own into the run's directory, as far as they
        live."""
        away, self._away = self._away, {}
        for index, (name, home) in away.items() if self._reach() else ():
            with contextlib.suppress(RunError):      # one that has ended answers nothing, and need not
                left = self._answer(self._workers[index], "left", name)
                shipping.unpacked(msgspec.convert(left, shipping.Files), home)

    def _kept(self, worker: W, files: shipping.Files) -> str:
        """The folder with these files on a worker's machine, which has them from an earlier run or is sent them."""
        key = shipping.key_of(files)
        return str(self._answer(worker, "kept", key) or self._answer(worker, "keep", key, files))


def require_alike(about: Sequence[tuple[str, str, str]]) -> None:
    """Raises RunError where versions differ, and warns where processors do."""
    versions = {said: address for address, said, _ in about}
    if len(versions) > 1:
        told = "; ".join(f"{address}: {said}" for said, address in versions.items())
        raise RunError(f"the machines of the cluster differ: {told}")
    chips = {chip: address for address, _, chip in about}
    if len(chips) > 1:
        told = "; ".join(f"{address}: {chip}" for chip, address in chips.items())
        _log.warning("processors differ, and with them the last bits of models: %s", told)


def require_meeting(addresses: Sequence[str], met: Sequence[tuple[str, int]], control: str) -> None:
    """met: the answers of hosts at these addresses to `meet`. Raises NoCluster where a machine and this process do not
    reach each other, as behind NAT or a firewall: they would wait for ever."""
    for address, (wrong, port) in zip(addresses, met, strict=True):
        if wrong:
            raise NoCluster(f"the machine {address} of the cluster does not reach this process at {control}: {wrong}; "
                            "workers speak to it straight, so run this on a machine that they reach")
        if wrong := unreached(address, port):
            raise NoCluster(f"this process does not reach the machine {address} of the cluster: {wrong}; it speaks to "
                            "workers straight, on ports that the system picks, so run this where it reaches them")
