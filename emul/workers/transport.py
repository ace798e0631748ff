"""The transport of frames between the processes of a pool: through sockets of one machine, or by TCP under CURVE.

A transport is plain data. The launcher tells it to a worker, and so the worker can speak to the others. Addresses are
made where sockets are bound, and passed on. Over TCP one pair of keys is made for each pool, since all its workers are
one user's, and whoever holds one of them holds the run. Every socket has both of its keys, and takes whoever proves
that it has them, too: everybody else gets no message in, and reads none.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import zmq
from msgspec import Struct
from msgspec.structs import replace

from emul.base.files import hold_folder, remove_held_folder
from emul.workers.forks import short_folder

Context = zmq.Context[zmq.Socket[bytes]]

_DOMAIN = b"emul"                   # of authentication; a socket that names one takes nobody where nobody asks for keys
_KEEP_ALIVE_S = 60                  # idle connections stay known to what stands between two machines
_UNANSWERED_MS = 120_000            # no machine has taken a frame for so long: the connection is lost


class Ipc(Struct, frozen=True, tag="ipc"):
    """Unix sockets in a directory of mode 0700."""

    directory: str

    @classmethod
    def new(cls) -> Ipc:
        """In a new directory, whose name leaves room for a socket's: at most 107 characters in all."""
        directory = tempfile.mkdtemp(prefix="emul-", dir=short_folder())
        hold_folder(Path(directory))
        return cls(directory)

    def context(self) -> Context:
        """For all sockets of one process."""
        return Context()

    def bind(self, socket: zmq.Socket[bytes], name: str) -> str:
        """Take what comes for `name`; the address to connect to."""
        address = f"ipc://{self.directory}/{name}"
        socket.bind(address)
        return address

    def connect(self, socket: zmq.Socket[bytes], address: str) -> None:
        """Send to who is bound to this address, now or later."""
        socket.connect(address)

    def watched(self, socket: zmq.Socket[bytes]) -> None:
        """Connections within a machine are lost with one of their ends only, and that is noticed by itself."""

    @property
    def leftovers(self) -> list[str]:
        """Directories to be removed when the pool has ended."""
        return [self.directory]

    @property
    def given_up(self) -> bool:
        """True if the coordinator has closed the pool already."""
        return not os.path.isdir(self.directory)

    def remove(self) -> None:
        """The pool has ended."""
        remove_held_folder(Path(self.directory))


class Tcp(Struct, frozen=True, tag="tcp"):
    """TCP under CURVE. host: this process's own address, to which its sockets are bound, and to no other; `public` and
    `secret`: the pool's keys (Z85)."""

    host: str
    public: str
    secret: str

    @classmethod
    def new(cls, host: str = "127.0.0.1") -> Tcp:
        """With new keys; on loopback unless told otherwise."""
        public, secret = zmq.curve_keypair()
        return cls(host, public.decode(), secret.decode())

    def at(self, host: str) -> Tcp:
        """The same for a process that others reach under `host`."""
        return replace(self, host=host)

    def context(self) -> Context:
        """For all sockets of one process, with a thread that looks at the keys of those who connect."""
        from zmq.auth.thread import ThreadAuthenticator  # here: it brings asyncio, and few pools are on TCP

        context = _Guarded()
        context.guard = guard = ThreadAuthenticator(context)
        guard.start()               # until it is told of the key it lets nobody in
        guard.configure_curve_callback(_DOMAIN.decode(), _Only(self.public.encode()))
        return context

    def bind(self, socket: zmq.Socket[bytes], name: str) -> str:
        """Take what comes from holders of the keys, on a free port; the address to connect to."""
        self._give_keys(socket)
        socket.setsockopt(zmq.CURVE_SERVER, 1)
        socket.setsockopt(zmq.ZAP_DOMAIN, _DOMAIN)
        socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
        return f"tcp://{self.host}:{socket.bind_to_random_port(f'tcp://{self.host}')}"

    def connect(self, socket: zmq.Socket[bytes], address: str) -> None:
        """Send to who is bound to this address, if it has the keys."""
        self._give_keys(socket)
        socket.setsockopt(zmq.CURVE_SERVERKEY, self.public.encode())
        socket.connect(address)

    def watched(self, socket: zmq.Socket[bytes]) -> Connection:
        """Watch over a connection that is about to be made; ask for it in the thread that owns the socket."""
        return Connection(socket)

    def _give_keys(self, socket: zmq.Socket[bytes]) -> None:
        socket.setsockopt(zmq.CURVE_PUBLICKEY, self.public.encode())
        socket.setsockopt(zmq.CURVE_SECRETKEY, self.secret.encode())
        socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
        socket.setsockopt(zmq.TCP_KEEPALIVE_IDLE, _KEEP_ALIVE_S)
        socket.setsockopt(zmq.TCP_MAXRT, _UNANSWERED_MS)

    @property
    def leftovers(self) -> list[str]:
        """None."""
        return []

    @property
    def given_up(self) -> bool:
        """It cannot be known here."""
        return False

    def remove(self) -> None:
        """The pool has ended."""


Transport = Ipc | Tcp


class Connection:
    """Tells when a socket's connection is lost. ZeroMQ makes it anew without a word, but what was under way is gone."""

    # A connection can be lost while both ends live, and ZeroMQ makes it anew without a word. So the side that made it
    # watches, and the run ends (`test_a_worker_that_loses_another_ends_the_run`).

    def __init__(self, socket: zmq.Socket[bytes]):
        self.events = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
        self._made = False

    def lost(self) -> bool:
        """True if it was lost since it was first made. For one thread; `events` is readable when this may change."""
        from zmq.utils.monitor import recv_monitor_message  # here: it brings asyncio, and few pools are on TCP

        while self.events.poll(0):
            event = recv_monitor_message(self.events)["event"]
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._made = True
            elif self._made:                # else an attempt that failed: nothing had been sent
                return True
        return False


class _Only:
    """The rule that lets in only the holder of one key."""

    def __init__(self, public: bytes):
        self._public = public

    def callback(self, domain: str, key: bytes) -> bool:
        return key == self._public


class _Guarded(Context):
    """A context whose guard ends with it."""

    guard: Any = None

    def destroy(self, linger: int | None = None) -> None:
        """Close all sockets; the guard's own first, in its thread."""
        self.guard.stop()
        super().destroy(linger)


class WorkerSettings(Struct):
    """The settings that a worker gets when it is started: text alone, so that they can come by any way."""

    index: int
    token: str                      # of whoever may speak on the pool's sockets
    transport: Ipc | Tcp
    control: str                    # addresses of the coordinator's sockets
    beat: str
    watched: int                    # the process here whose end is the worker's
    leftovers: list[str] = []       # directories that it removes then

    def text(self) -> str:
        """To be taken by `of`."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def of(cls, text: str) -> WorkerSettings:
        """The settings in the text that `text` gave."""
        return msgspec.json.decode(text, type=cls)
