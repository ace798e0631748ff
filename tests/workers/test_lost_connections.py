"""A TCP connection that breaks while both of its ends live ends the run with a word, and never leaves it waiting."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress

import pytest
import zmq
from small_run import digest

from emul.base.errors import ConnectionLost, WorkerDied
from emul.workers.launcher import Child, LocalLauncher
from emul.workers.pool import Workers
from emul.workers.transport import Tcp, WorkerSettings


class Relay:
    """Stands between who connects and the address that he means, and can break the connections that it carries."""

    def __init__(self, target: str):
        host, port = target.removeprefix("tcp://").split(":")
        self._target = host, int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self._ends: list[socket.socket] = []
        self.carried = 0                    # bytes
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):             # of the listener that is closed
            while True:
                one, _ = self._listener.accept()
                try:
                    other = socket.create_connection(self._target)
                except ConnectionRefusedError:
                    one.close()
                    continue
                self._ends += [one, other]
                for source, sink in ((one, other), (other, one)):
                    threading.Thread(target=self._carry, args=(source, sink), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
                self.carried += len(data)

    def cut(self) -> None:
        """Break what is connected; who connects again is carried again."""
        ends, self._ends = self._ends, []
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)       # else who waits at it takes one more
        self._listener.close()
        self.cut()


class Relayed(LocalLauncher):
    """Workers reach the coordinator's control socket through a relay."""

    relay: Relay

    def start(self, every: Sequence[WorkerSettings]) -> list[Child]:
        self.relay = Relay(every[0].control)
        for told in every:
            told.control = self.relay.address
        return super().start(every)


@pytest.fixture
def launcher() -> Iterator[Relayed]:
    launcher = Relayed(Tcp.new())
    yield launcher
    launcher.relay.close()


def broken(pool: Workers, relay: Relay) -> str:
    """What a long run says whose connections through `relay` break once they have carried 20 kB more."""
    def cut() -> None:
        enough = relay.carried + 20_000
        while relay.carried < enough:
            time.sleep(0.01)
        relay.cut()
    threading.Thread(target=cut, daemon=True).start()
    with pytest.raises(ConnectionLost) as error:
        digest(pool, "stop.rounds=3000", "task.model=digits_cnn")
    with pytest.raises(WorkerDied, match=r"^this pool has lost a worker; make a new one$"):
        digest(pool)
    return str(error.value)


def test_workers_that_lose_the_coordinator_end_the_run(launcher: Relayed) -> None:
    with Workers(2, launcher=launcher) as pool:
        assert re.match(r"^the connection between the coordinator and worker [01] \(process \d+\) was lost, and with "
                        "it perhaps what was on its way; `emul resume` goes on with the run$",
                        broken(pool, launcher.relay))


def test_a_worker_that_loses_another_ends_the_run(launcher: Relayed) -> None:
    with Workers(2, launcher=launcher) as pool:
        between = Relay(pool._addresses[1])
        pool._addresses[1] = between.address            # as worker 0 is told it
        assert re.match(r"^the connection between worker 1 and worker 0 \(process \d+\) was lost",
                        broken(pool, between))
        between.close()


class Detour(Tcp, frozen=True, tag="tcp"):
    """The coordinator reaches the workers' inboxes through relays; to workers it is plain TCP."""

    def connect(self, socket: zmq.Socket[bytes], address: str) -> None:
        detours.append(Relay(address))
        super().connect(socket, detours[-1].address)


detours: list[Relay] = []


@pytest.mark.slow
def test_a_coordinator_that_loses_a_worker_ends_the_run() -> None:
    with Workers(2, launcher=LocalLauncher(Detour.new())) as pool:
        assert re.match(r"^the connection between the coordinator and worker [01] \(process \d+\) was lost",
                        broken(pool, detours[0]))
    for relay in detours:
        relay.close()


class Remote(Relayed):
    """Worker 1 reaches the coordinator through relays alone, as from a machine that can be lost."""

    relays: list[Relay]

    def start(self, every: Sequence[WorkerSettings]) -> list[Child]:
        one = every[1]
        self.relays = [Relay(one.control), Relay(one.beat)]
        one.control, one.beat = (relay.address for relay in self.relays)
        return LocalLauncher.start(self, every)


@pytest.mark.slow
def test_a_worker_that_is_heard_of_no_more_is_the_one_that_was_lost_not_its_connection() -> None:
    launcher = Remote(Tcp.new())
    with Workers(2, timeout_s=6, launcher=launcher) as pool:
        digest(pool)
        for relay in launcher.relays:
            relay.close()
        with pytest.raises(WorkerDied, match=r"^worker 1 \(process \d+\) sent no heartbeat for 6 s$"):
            digest(pool, "stop.rounds=3000", "task.model=digits_cnn")


def test_a_connection_that_is_not_made_yet_cannot_be_lost() -> None:
    transport = Tcp.new()
    context = transport.context()
    relay = Relay("tcp://127.0.0.1:1")                  # where nobody is: each attempt ends at once
    sender, bound = context.socket(zmq.PUSH), context.socket(zmq.PULL)
    connection = transport.watched(sender)
    transport.connect(sender, relay.address)
    assert not connection.events.poll(500) or not connection.lost()
    relay._target = ("127.0.0.1", int(transport.bind(bound, "").rpartition(":")[2]))
    sender.send(b"first")
    assert bound.poll(10_000)
    assert not connection.lost()
    relay.cut()
    assert connection.events.poll(10_000)
    assert connection.lost()
    context.destroy(linger=0)
    relay.close()
