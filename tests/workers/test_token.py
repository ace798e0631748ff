"""What another process writes to the pool's sockets harms nobody: it lacks the pool's token."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
import zmq
from small_run import digest

from emul.workers.pool import Workers
from emul.workers.transport import Ipc
from emul.workers.twin import Twin

JUNK = [[b""], [b"\xff" * 65], [b"E", b""], [b"C", b"\xc1"], [b"P", b"\xc1", b"x"], [b"R", b"\xc1"], [b"Z", b"forged"],
        [b"X", b"forged"], [b"D", b""], [b"Q"], [b"0", b"E", b""], [b"\0" * 32, b"E", b""]]


def shout(directory: Path, until: threading.Event) -> None:
    """Raw bytes, and well-formed messages of ZeroMQ, to every socket of the pool, again and again."""
    context = zmq.Context()
    while not until.is_set():
        for path in directory.iterdir():
            with suppress(OSError), socket.socket(socket.AF_UNIX) as raw:
                raw.settimeout(1)
                raw.connect(str(path))
                raw.send(b"\0junk\xff" * 100)
            for kind in (zmq.PUSH, zmq.DEALER):
                with context.socket(kind) as peer:
                    peer.setsockopt(zmq.LINGER, 0)
                    peer.setsockopt(zmq.IDENTITY, b"0")         # as the workers were once called
                    peer.connect(f"ipc://{path}")
                    with suppress(zmq.Again):       # a PUSH is hung up on as soon as the other end sees what it is
                        for message in JUNK:
                            peer.send_multipart(message, zmq.NOBLOCK)
                    time.sleep(0.01)
    context.destroy(linger=0)


def test_a_run_amid_junk_on_its_sockets_is_the_run_that_it_would_have_been() -> None:
    with Twin() as twin:
        expected = digest(twin)
    over = threading.Event()
    with Workers(2) as pool:
        assert isinstance(pool._transport, Ipc)
        thread = threading.Thread(target=shout, args=(Path(pool._transport.directory), over))
        thread.start()
        try:
            assert [digest(pool) for _ in range(2)] == [expected] * 2
        finally:
            over.set()
            thread.join()
        assert digest(pool) == expected


def test_a_pool_that_was_stopped_itself_does_not_take_its_workers_for_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    with Workers(1, timeout_s=5.0) as pool:
        late = time.monotonic() + 60            # as after Ctrl-Z and fg: nobody beat meanwhile
        monkeypatch.setattr("emul.workers.pool.time.monotonic", lambda: late)
        pool._poll()
