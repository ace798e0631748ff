"""Frames by TCP under CURVE: the same runs as through Unix sockets, and nothing gets in without the pool's keys."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress

import pytest
import zmq
from small_run import digest

from emul.workers.launcher import LocalLauncher
from emul.workers.pool import Workers
from emul.workers.transport import Ipc, Tcp, WorkerSettings
from emul.workers.twin import Twin

WAIT_MS = 400                       # long enough for a handshake on loopback to have succeeded


@pytest.fixture
def inbox() -> Iterator[tuple[Tcp, zmq.Socket[bytes], str]]:
    """(transport, a bound socket, its address), which has taken a message of one who has the keys."""
    transport = Tcp.new()
    context = transport.context()
    bound = context.socket(zmq.PULL)
    bound.setsockopt(zmq.RCVTIMEO, 10_000)
    address = transport.bind(bound, "w0")
    friend = context.socket(zmq.PUSH)
    transport.connect(friend, address)
    friend.send(b"ours")
    assert bound.recv() == b"ours"
    yield transport, bound, address
    context.destroy(linger=0)


def shouted(address: str, keys: dict[int, bytes]) -> zmq.Context[zmq.Socket[bytes]]:
    """A stranger that has sent a message, with these options of CURVE."""
    context = zmq.Context[zmq.Socket[bytes]]()
    stranger = context.socket(zmq.PUSH)
    stranger.setsockopt(zmq.LINGER, 0)
    for option, value in keys.items():
        stranger.setsockopt(option, value)
    stranger.connect(address)
    stranger.send(b"forged")
    return context


def foreign(transport: Tcp, case: str) -> dict[int, bytes]:
    public, secret = zmq.curve_keypair()
    return {
        "no keys": {},
        "another pool's": {zmq.CURVE_SERVERKEY: public, zmq.CURVE_PUBLICKEY: public, zmq.CURVE_SECRETKEY: secret},
        # whoever learns the public key alone, as a client of a server that asks for no names would
        "its own pair": {zmq.CURVE_SERVERKEY: transport.public.encode(), zmq.CURVE_PUBLICKEY: public,
                         zmq.CURVE_SECRETKEY: secret},
        "a public key without its secret": {zmq.CURVE_SERVERKEY: transport.public.encode(),
                                            zmq.CURVE_PUBLICKEY: transport.public.encode(),
                                            zmq.CURVE_SECRETKEY: secret},
    }[case]


@pytest.mark.parametrize("case", ["no keys", "another pool's", "its own pair", "a public key without its secret"])
def test_who_lacks_the_keys_gets_nothing_in(inbox: tuple[Tcp, zmq.Socket[bytes], str], case: str) -> None:
    transport, bound, address = inbox
    context = shouted(address, foreign(transport, case))
    assert bound.poll(WAIT_MS) == 0
    context.destroy(linger=0)


def test_bytes_that_are_no_handshake_harm_nobody(inbox: tuple[Tcp, zmq.Socket[bytes], str]) -> None:
    transport, bound, address = inbox
    host, port = address.removeprefix("tcp://").split(":")
    for garbage in (b"", b"\0" * 64, b"\xff" + b"\0" * 8 + b"\x7f" + b"\3\0NULL" + b"\0" * 48, b"GET /\r\n\r\n",
                    b"\xff" * 100_000):
        with suppress(OSError), socket.create_connection((host, int(port)), timeout=5) as raw:
            raw.sendall(garbage)
    assert bound.poll(WAIT_MS) == 0
    context = transport.context()
    friend = context.socket(zmq.PUSH)
    transport.connect(friend, address)
    friend.send(b"still here")
    assert bound.recv() == b"still here"
    context.destroy(linger=0)


def test_a_reader_without_the_keys_reads_nothing(inbox: tuple[Tcp, zmq.Socket[bytes], str]) -> None:
    """The other way round: who listens where one of ours connects to learns nothing either."""
    ours = inbox[0]
    thief = Tcp.new()
    theirs, context = thief.context(), ours.context()
    bound = theirs.socket(zmq.PULL)
    address = thief.bind(bound, "w0")
    sender = context.socket(zmq.PUSH)
    ours.connect(sender, address)
    sender.send(b"secret")
    assert bound.poll(WAIT_MS) == 0
    for one in (theirs, context):
        one.destroy(linger=0)


def test_it_is_on_loopback_and_on_no_other_address_unless_told_otherwise(
        inbox: tuple[Tcp, zmq.Socket[bytes], str]) -> None:
    port = int(inbox[2].rpartition(":")[2])
    assert inbox[2].startswith("tcp://127.0.0.1:")
    with pytest.raises(OSError, match="refused"):           # all of 127/8 is this machine
        socket.create_connection(("127.0.0.2", port), timeout=5)


def test_each_pool_has_keys_of_its_own() -> None:
    one, other = Tcp.new(), Tcp.new()
    assert len({one.public, one.secret, other.public, other.secret}) == 4


def test_a_pool_over_tcp_computes_the_same_runs() -> None:
    with Twin() as twin:
        expected = digest(twin)
    with Workers(2, launcher=LocalLauncher(Tcp.new())) as pool:
        assert [digest(pool) for _ in range(2)] == [expected] * 2


@pytest.mark.parametrize("transport", [Ipc("/somewhere"), Tcp("10.0.0.1", "public", "secret")])
def test_what_a_worker_is_told_survives_as_text(transport: Ipc | Tcp) -> None:
    told = WorkerSettings(3, "token", transport, "control", "beat", 17, ["left"])
    assert WorkerSettings.of(told.text()) == told
