"""The Ray cluster that is meant, the origin of its address, and a check that it answers.

Ray goes on asking a cluster that has ended for twelve minutes, and says neither whose address it is nor what to do.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
from contextlib import chdir, suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from emul.base.errors import RunError
from emul.base.extras import MissingExtra

_ANSWER_S = 20                                      # for whoever listens, on a machine that is busy
_TRIES = 3                                          # to have a process of Ray's for this client, which
_NOT_SERVED = ("Starting Ray client server failed",         # does not always start in time, or
               "ZombieProcess", "NoSuchProcess")            # ends before Ray looks at it
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])      # of HTTP/2: RFC 9113, 3.4
_FRAME, _SETTINGS = 9, 4                            # bytes of a frame's header; the kind of the one that answers
_VARIABLE = "$RAY_ADDRESS"
CUT_OFF = "the cluster has ended, or Ray's client was cut off from it"


class NoCluster(RunError):
    """There is no cluster at that address, or no room for the workers on it."""


@dataclass(frozen=True)
class Meant:
    """A cluster. address: HOST:PORT, or ray://HOST:PORT of a Ray client's server; by: who names it."""

    address: str
    by: str

    @property
    def client(self) -> bool:
        """True if this process speaks to the cluster from outside."""
        return self.address.startswith("ray://")

    def require_answer(self) -> None:
        """Raises NoCluster where nobody answers as Ray would."""
        if "://" in self.address and not self.client:
            return                                  # of another vendor: Ray knows how to ask
        host, _, port = self.address.removeprefix("ray://").rpartition(":")
        if wrong := _wrong_at(host.strip("[]"), port):
            raise NoCluster(f"no Ray cluster answers at {self.address}, which {self.by} names: {wrong}; {self._mend()}")

    def _mend(self) -> str:
        if self.by == _VARIABLE:
            return "begin it, or unset RAY_ADDRESS"
        if self.client:
            return "`ray start --head --ray-client-server-port=10001` begins what is asked there"
        return ("it has ended: `ray start --head` begins another, RAY_ADDRESS=HOST:PORT names one elsewhere, and "
                "RAY_ADDRESS=local is for one of this process alone")


def join(asked: str | None) -> None:
    """Connect this process, which is connected to no cluster, to the one that is meant, see `meant`; where there is
    none, Ray begins one. Raises NoCluster, MissingExtra."""
    # emul asks for the address first, because Ray waits for minutes and does not say whose address it used
    # (`test_an_address_of_nobody_ends_a_sweep_and_a_pool_at_once`).
    found = meant(asked)
    if found is not None:
        if found.client and find_spec("grpc") is None:
            raise MissingExtra("ray://... needs Ray's client, which is not installed: pip install 'emul[ray]'")
        found.require_answer()
    try:
        _patiently("local" if found is None else found.address)
    except (ConnectionError, OSError, RuntimeError) as e:
        if found is None:
            raise NoCluster(f"Ray begins no cluster here: {e}") from None
        raise NoCluster(f"cannot join the Ray cluster at {found.address}, which {found.by} names: {_reason(e)}"
                        + ("" if found.client else
                           f"; is this machine part of it? `ray start --address={found.address}`")) from None


def _patiently(address: str) -> None:
    """`ray.init`, again where the cluster has not begun the process that it begins for each client."""
    import ray

    for attempt in range(_TRIES):
        try:
            # Ray's workers would search the current folder, in which a stranger's numpy.py may lie, before Python's
            # library (`test_ray_does_not_learn_of_the_current_folder`).
            with chdir("/"):
                ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
            return
        except (ConnectionError, RuntimeError) as e:        # Ray tells its own RuntimeError as a broken connection
            if attempt == _TRIES - 1 or not unserved(e):
                raise


def unserved(error: Exception) -> bool:
    """True if the cluster answered but has not begun the process that it begins for each client."""
    return any(sign in str(error) for sign in _NOT_SERVED)


def _reason(error: Exception) -> str:
    """In one line; what Ray passes on of its lower layers is a text with a traceback, which ends with the reason."""
    lines = str(error.__cause__ or error).strip().splitlines() or [type(error).__name__]
    return lines[-1] if any(line.startswith("  File ") for line in lines) else lines[0]


def outside() -> bool:
    """True if this process speaks to its cluster by Ray's client, and need not be on one of its machines."""
    client: Any = sys.modules.get("ray.util.client")        # before it is imported nobody has connected by it
    return client is not None and client.ray.is_connected()


def meant(asked: str | None) -> Meant | None:
    """The cluster that Ray would take. asked: an address, "auto", or None: any, or else a new one.

    None: Ray is to begin one here. Raises NoCluster: "auto", and there is none.
    """
    if asked is not None and asked != "auto":
        return Meant(asked, "--on")
    named = os.environ.get("RAY_ADDRESS", "")
    if named == "local":
        return None
    if named not in ("", "auto"):
        return Meant(named, _VARIABLE)
    services: Any = import_module("ray._private.services")
    services.find_gcs_addresses.cache_clear()       # as `ray.init` does
    try:
        address = services.get_ray_address_from_environment(asked, None)
    except ConnectionError:
        raise NoCluster("no Ray cluster runs on this machine, and $RAY_ADDRESS names none elsewhere: "
                        "`ray start --head` begins one") from None
    return None if address is None else Meant(address, _finder(address))


def _finder(address: str) -> str:
    """The origin of this address, which Ray found on this machine: the file of the last `ray start`, or a process."""
    noted = Path(os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp", "ray", "ray_current_cluster")
    with suppress(OSError):
        if noted.read_text().strip() == address:
            return str(noted)
    return "a process of Ray on this machine"


def _wrong_at(host: str, port: str) -> str:
    """The reason why Ray does not answer there; "": a server that speaks its gRPC, which is HTTP/2, does."""
    try:
        with socket.create_connection((host, int(port)), timeout=_ANSWER_S) as connection:
            if os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
                return ""
            connection.sendall(_HELLO)
            answer = b""
            while len(answer) < _FRAME and (some := connection.recv(_FRAME - len(answer))):
                answer += some
    except ValueError:
        return f'expected HOST:PORT, with a number, but "{port}" is none'
    except TimeoutError:
        return f"nothing comes back within {_ANSWER_S} s"
    except OSError as e:
        return e.strerror or str(e)
    return "" if answer[3:4] == bytes([_SETTINGS]) else "what listens there is not Ray"
