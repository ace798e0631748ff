"""A pool of workers in three network namespaces, over links of 100 Mbit/s: what crosses, and what does not get in.

Needs root, and makes and removes the namespaces itself. A delay of 1 ms is added where the kernel has netem.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import zmq
from digested import digests
from own_ray import elsewhere_begun
from zmq.utils.monitor import recv_monitor_message

from emul import engine
from emul.base.errors import WorkerDied
from emul.scenario import load, loads
from emul.workers.pool import Workers
from emul.workers.setup import Setup
from emul.workers.transport import Tcp, WorkerSettings
from emul.workers.twin import Twin

pytestmark = [pytest.mark.machine, pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.xdist_group("cluster")]

LENGTH = 250_000                    # floats of a payload: 1 MB
PACKETS = 100_000                   # of garbage, to every port
TEXT = """
emul: 1
name: namespaces
seed: 3
topology: {generator: star_mesh, clients: 5}
links: [{match: "*", latency: 5 ms, bandwidth: 100 Mbit/s}]
task: {data: {set: digits}, model: logistic, solver: {sgd: {lr: 0.1, steps: 1, batch: 8}}}
compute: {mode: zero}
schemes: [{name: echo_scheme, length: %d}]
stop: {rounds: %d}
"""
PLUGINS = ["echo_scheme"]
ROOT = Path(__file__).resolve().parents[2]
SCENARIO = ROOT / "scenarios" / "quickstart.yaml"
_CLONE_NEWNET = 0x40000000


def ip(*words: str, within: str = "") -> str:
    """What `ip` says of a command, in a namespace."""
    words = ("ip", *(("-n", within) if within else ()), *words)
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=30)
    if done.returncode:
        raise OSError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


@dataclass(frozen=True)
class Net:
    """Three hosts on one switch, each a namespace; names and addresses in order."""

    names: list[str]
    addresses: list[str]
    switch: str
    delayed: bool

    def crossed(self) -> int:
        """Bytes that hosts have sent so far, in frames of Ethernet."""
        links = json.loads(ip("-j", "-s", "link", "show", within=self.switch))
        return sum(link["stats64"]["rx"]["bytes"] for link in links if link["ifname"].startswith("port"))

    def packets(self) -> int:
        """That hosts have sent so far."""
        links = json.loads(ip("-j", "-s", "link", "show", within=self.switch))
        return sum(link["stats64"]["rx"]["packets"] for link in links if link["ifname"].startswith("port"))


@pytest.fixture(scope="module")
def net() -> Iterator[Net]:
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("network namespaces need Linux and root")
    if shutil.which("ip") is None or shutil.which("tc") is None:
        pytest.skip("network namespaces need ip and tc (iproute2)")
    stem = f"emul{os.getpid()}"
    switch, hosts = f"{stem}s", [f"{stem}h{i}" for i in range(3)]
    addresses = [f"10.231.77.{i + 1}" for i in range(3)]
    try:
        try:
            delayed = _make(switch, hosts, addresses)
        except OSError as e:
            pytest.skip(f"this kernel makes no network of namespaces: {e}")
        yield Net(hosts, addresses, switch, delayed)
    finally:
        for name in (*hosts, switch):
            with suppress(OSError):
                ip("netns", "del", name)


def _make(switch: str, hosts: list[str], addresses: list[str]) -> bool:
    """Hosts on a switch; whether packets are delayed, too."""
    ip("netns", "add", switch)
    ip("link", "add", "switch", "type", "bridge", within=switch)
    ip("link", "set", "switch", "up", within=switch)
    delayed = True
    for number, (host, address) in enumerate(zip(hosts, addresses, strict=True)):
        ip("netns", "add", host)
        ip("link", "add", f"port{number}", "type", "veth", "peer", "name", "eth0", "netns", host, within=switch)
        ip("link", "set", f"port{number}", "master", "switch", "up", within=switch)
        ip("addr", "add", f"{address}/24", "dev", "eth0", within=host)
        ip("link", "set", "eth0", "up", within=host)
        ip("link", "set", "lo", "up", within=host)
        delayed &= _shaped(host)
    return delayed


def _shaped(host: str) -> bool:
    """100 Mbit/s out of the host, and 1 ms where the kernel can; whether it can."""
    root = ["tc", "-n", host, "qdisc", "add", "dev", "eth0", "root"]
    slow = subprocess.run([*root, "netem", "delay", "1ms", "rate", "100mbit"], capture_output=True, check=False)
    if slow.returncode:
        subprocess.run([*root, "tbf", "rate", "100mbit", "burst", "64kb", "latency", "200ms"], capture_output=True,
                       check=True)
    return not slow.returncode


@contextlib.contextmanager
def inside(name: str) -> Iterator[None]:
    """This thread, and those that it begins, in a namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/thread-self/ns/net") as before, open(f"/var/run/netns/{name}") as there:
        if libc.setns(there.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
        try:
            yield
        finally:
            libc.setns(before.fileno(), _CLONE_NEWNET)


class Process:
    """A worker in a namespace."""

    def __init__(self, told: WorkerSettings, namespace: str):
        command = ["ip", "netns", "exec", namespace, sys.executable, "-m", "emul.workers.entry"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
                       "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)
        assert self._process.stdin is not None
        self._process.stdin.write(told.text().encode())
        self._process.stdin.close()
        self.pid, self.place = self._process.pid, f"process {self._process.pid}"
        self.sentinel = os.pidfd_open(self.pid)

    def ending(self) -> str:
        return f"ended with exit code {self._process.wait(5)}"

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        self._process.kill()

    def join(self, timeout: float) -> None:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout)


class Spread:
    """A launcher of workers in namespaces, one each; the coordinator is to be in the first."""

    def __init__(self, net: Net):
        self._net = net

    def transport(self) -> Tcp:
        return Tcp.new(self._net.addresses[0])

    def start(self, every: Sequence[WorkerSettings]) -> list[Process]:
        for told, address in zip(every, self._net.addresses, strict=True):
            assert isinstance(told.transport, Tcp)
            told.transport, told.watched = told.transport.at(address), os.getpid()
        return [Process(told, name) for told, name in zip(every, self._net.names, strict=True)]

    def prepare(self, setups: Sequence[Setup]) -> Sequence[Setup]:
        return setups

    def collect(self) -> None: ...

    def close(self) -> None: ...


@pytest.fixture
def pool(net: Net) -> Iterator[Workers]:
    with inside(net.names[0]), Workers(3, launcher=Spread(net)) as pool:
        yield pool


def digest(pool: Workers | Twin, length: int = 500, rounds: int = 10) -> str:
    scenario = dataclasses.replace(loads(TEXT % (length, rounds), plugins=PLUGINS), task={})
    return digests(scenario, pool, PLUGINS)[0]


def ports(pool: Workers) -> list[str]:
    """Addresses of all sockets that are bound: the coordinator's two, and the workers' inboxes."""
    return [pool._control.getsockopt(zmq.LAST_ENDPOINT).rstrip(b"\0").decode(),         # type: ignore[union-attr]
            pool._beats.getsockopt(zmq.LAST_ENDPOINT).rstrip(b"\0").decode(),           # type: ignore[union-attr]
            *pool._addresses]


def test_payloads_cross_once_for_each_worker_that_reads_them_and_little_else_does(net: Net, pool: Workers) -> None:
    expected = digest(Twin(), LENGTH, 3)
    shipped: list[tuple[int, ...]] = []
    ship = pool.ship
    pool.ship = lambda *told: shipped.append(told) or ship(*told)       # type: ignore[assignment, func-returns-value]
    digest(pool)                                                        # what is fetched once is not counted
    shipped.clear()
    before = net.crossed()
    assert digest(pool, LENGTH, 3) == expected
    payloads = 4 * LENGTH * len(shipped)
    assert len(shipped) > 10
    # beside them: headers of Ethernet, IP, TCP and CURVE (5 % of a packet), acknowledgements, control messages
    assert payloads <= net.crossed() - before <= 1.12 * payloads


def keys(pool: Workers, case: str) -> dict[int, bytes]:
    """Those that a stranger has."""
    transport = pool._transport
    assert isinstance(transport, Tcp)
    public, secret = zmq.curve_keypair()
    ours = transport.public.encode()
    return {"none": {},
            "wrong": {zmq.CURVE_SERVERKEY: public, zmq.CURVE_PUBLICKEY: public, zmq.CURVE_SECRETKEY: secret},
            "public alone": {zmq.CURVE_SERVERKEY: ours, zmq.CURVE_PUBLICKEY: public, zmq.CURVE_SECRETKEY: secret},
            "all": {zmq.CURVE_SERVERKEY: ours, zmq.CURVE_PUBLICKEY: ours,
                    zmq.CURVE_SECRETKEY: transport.secret.encode()}}[case]


def intrude(net: Net, pool: Workers, case: str) -> list[set[zmq.Event]]:
    """From another host, with everything else known, say to each port what would end the run; what became of the
    connections, until each was let in or refused."""
    with inside(net.names[2]):                  # its threads begin with its first socket
        context = zmq.Context[zmq.Socket[bytes]]()
        seen = [shout(context, f"inproc://{address}-{kind}", address, kind, pool._token, keys(pool, case))
                for address in ports(pool) for kind in (zmq.PUSH, zmq.DEALER)]
        context.destroy(linger=0)
    return seen


_LET_IN = {zmq.Event.HANDSHAKE_SUCCEEDED}
_REFUSED = {zmq.Event.HANDSHAKE_FAILED_AUTH, zmq.Event.HANDSHAKE_FAILED_PROTOCOL, zmq.Event.HANDSHAKE_FAILED_NO_DETAIL,
            zmq.Event.DISCONNECTED}


def shout(context: zmq.Context[zmq.Socket[bytes]], told: str, address: str, kind: int, token: bytes,
          held: dict[int, bytes]) -> set[zmq.Event]:
    stranger = context.socket(kind)
    events, seen = stranger.get_monitor_socket(addr=told), set[zmq.Event]()     # its default is not always free yet
    stranger.setsockopt(zmq.LINGER, 1000)
    stranger.setsockopt(zmq.IDENTITY, token + b"7")
    for option, value in held.items():
        stranger.setsockopt(option, value)
    stranger.connect(address)
    for message in ([token, b"P", b"\xc1", b""], [b"Z", b"forged"], [token + b"0"]):
        with suppress(zmq.Again):
            stranger.send_multipart(message, zmq.NOBLOCK)
    while not seen & (_LET_IN | _REFUSED) and events.poll(30_000):
        seen.add(recv_monitor_message(events)["event"])
    stranger.disable_monitor()
    stranger.close()                            # what could be sent goes out for a second
    return seen


def test_a_wrong_key_and_none_get_nothing_in(net: Net, pool: Workers) -> None:
    expected = digest(Twin())
    for case in ("none", "wrong", "public alone"):
        for seen in intrude(net, pool, case):
            assert zmq.Event.CONNECTED in seen
            assert seen & _REFUSED
            assert not seen & _LET_IN
        assert digest(pool) == expected


def test_who_has_all_keys_could_have_ended_the_pool(net: Net, pool: Workers) -> None:
    """So the test above can fail."""
    assert digest(pool) == digest(Twin())
    assert any(seen & _LET_IN for seen in intrude(net, pool, "all"))
    until = time.monotonic() + 30
    while any(process.is_alive() for process in pool._processes) and time.monotonic() < until:
        time.sleep(0.1)
    with pytest.raises(WorkerDied):
        digest(pool)


def litter(address: str, packets: int) -> int:
    """Garbage to one port: connections that say nonsense until they are hung up on, datagrams. How much was sent."""
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    target, sent = (host, int(port)), 0
    greeting = b"\xff\0\0\0\0\0\0\0\1\x7f"                # of ZeroMQ, so that more of it is read
    junk = [greeting + b"\3\0CURVE" + b"\0" * 60, greeting, b"\xff" * 10, b"\0junk", b"GET / HTTP/1.1\r\n\r\n"]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        while sent < packets:
            with suppress(OSError), socket.create_connection(target, timeout=5) as raw:
                raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for number in range(20):
                    raw.send(junk[(sent + number) % len(junk)])
                    sent += 1
            for number in range(80):
                with suppress(OSError):
                    datagrams.sendto(junk[number % len(junk)], target)
                    sent += 1
    return sent


def test_a_hundred_thousand_packets_of_garbage_to_every_port_change_nothing(net: Net, pool: Workers) -> None:
    expected = digest(Twin())
    before, sent = net.packets(), list[int]()
    targets = ports(pool)

    def all_of(address: str) -> None:
        with inside(net.names[1 if net.addresses[2] in address else 2]):        # from another host
            sent.append(litter(address, PACKETS))
    threads = [threading.Thread(target=all_of, args=(address,)) for address in targets]
    for thread in threads:
        thread.start()
    runs = 0
    while any(thread.is_alive() for thread in threads) or not runs:
        assert digest(pool) == expected
        runs += 1
    assert digest(pool) == expected
    assert len(sent) == len(targets) == 5
    assert min(sent) >= PACKETS
    assert net.packets() - before >= 5 * PACKETS


def test_nothing_is_bound_to_any_other_address(net: Net, pool: Workers) -> None:
    for name, address in zip(net.names, net.addresses, strict=True):
        with inside(name):
            listening = Path("/proc/thread-self/net/tcp").read_text().splitlines()[1:]
        bound = {line.split()[1].split(":")[0] for line in listening if line.split()[3] == "0A"}
        assert bound == {"".join(f"{int(part):02X}" for part in reversed(address.split(".")))}


# --- Ray --------------------------------------------------------------------------------------------------------------

def ran_here(out: Path) -> str:
    """The digest of the example, without workers."""
    (run,) = engine.run(load(SCENARIO), scheme="fedavg", workers=0, out=out)
    assert run.summary is not None
    return str(run.summary["digest"])


def test_a_coordinator_outside_of_the_cluster_has_workers_there_by_rays_client(net: Net, tmp_path: Path) -> None:
    within = [["ip", "netns", "exec", name] for name in net.names]
    with elsewhere_begun(net.addresses[1], within[1]) as cluster:
        command = [*within[0], sys.executable, "-m", "emul", "run", SCENARIO, "--scheme", "fedavg", "--quiet",
                   "--on", cluster.address, "--workers", "3", "--out", tmp_path / "there"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=environment())
    assert done.returncode == 0, done.stderr
    (summary,) = (tmp_path / "there").glob("*/summary.json")
    assert json.loads(summary.read_text())["digest"] == ran_here(tmp_path / "here")


def environment() -> dict[str, str]:
    """For commands that find this tree, and what is installed beside this interpreter."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *(path for path in sys.path if path)]),
            "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])}
