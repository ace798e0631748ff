"""The models against a Linux kernel: `python -m benchmarks.fidelity_kernel`, as root, about five minutes.

Three network namespaces in a row (source, router, sink) joined by veth, offloads off; shaping by tbf and htb on the
router, losses by iptables, a delay line of 20 ms each way over two TUN devices. Each experiment is compared
with the results of emul's own models for the same sizes, times and probabilities. Names begin with "emulfid" and
all is taken away at the end. Without CAP_NET_ADMIN, or where a tool or a feature of the kernel is missing, it says so
and ends. Every socket sets its congestion control.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from math import sqrt
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.common import Figure, Options, main
from benchmarks.tcp_formulas import mathis_bps, pftk_bps
from emul.base.streams import generator
from emul.network import FlowLink, Fluid, Link, LinkRule, OutageSpec, TopologySpec, build
from emul.network.models.background import Traffic
from emul.network.models.outages import GilbertSpec, outage

PEER = Path(__file__).with_name("fidelity_kernel_peer.py")
A, R, B = (f"emulfid{os.getpid()}{end}" for end in "arb")
SINK = "10.77.1.2"
FRAME, MSS = 1514, 1448             # of a full segment: what tc counts, and its payload
SIZES = (2_000_000, 4_000_000, 6_000_000, 8_000_000)
BANDWIDTH = 40_000_000
CC = ("reno", "cubic", "bbr")


def sh(command: str) -> str:
    done = subprocess.run(command.split(), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{command}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


# --- namespaces -----------------------------------------------------------------------------------------------------

@contextlib.contextmanager
def network() -> Iterator[None]:
    """source u0 -- v0 router u1 -- v1 sink."""
    try:
        for name in (A, R, B):
            sh(f"ip netns add {name}")
            sh(f"ip -n {name} link set lo up")
        sh(f"ip link add u0 netns {A} type veth peer name v0 netns {R}")
        sh(f"ip link add u1 netns {R} type veth peer name v1 netns {B}")
        for name, device, address in ((A, "u0", "10.77.0.1"), (R, "v0", "10.77.0.2"), (R, "u1", "10.77.1.1"),
                                      (B, "v1", SINK)):
            sh(f"ip -n {name} addr add {address}/24 dev {device}")
            sh(f"ip netns exec {name} ethtool -K {device} tso off gso off gro off tx off rx off")
            sh(f"ip -n {name} link set {device} up")
        sh(f"ip netns exec {R} sysctl -qw net.ipv4.ip_forward=1")
        sh(f"ip -n {A} route add 10.77.1.0/24 via 10.77.0.2")
        sh(f"ip -n {B} route add 10.77.0.0/24 via 10.77.1.1")
        yield
    finally:
        for name in (A, R, B):
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


@contextlib.contextmanager
def shaped(*rules: str) -> Iterator[None]:
    """tc rules on the router's way to the sink."""
    try:
        for rule in rules:
            sh(f"tc -n {R} {rule}")
        yield
    finally:
        subprocess.run(["tc", "-n", R, "qdisc", "del", "dev", "u1", "root"], capture_output=True)


def start(namespace: str, mode: str, job: dict[str, Any]) -> subprocess.Popen[str]:
    """A peer in a namespace ("": in none); sinks and relays are listening when this returns."""
    command = [sys.executable, str(PEER), mode]
    if namespace:
        command = ["ip", "netns", "exec", namespace, *command]
    peer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert peer.stdin is not None
    assert peer.stdout is not None
    peer.stdin.write(json.dumps(job) + "\n")
    peer.stdin.flush()
    if not mode.endswith("source") and peer.stdout.readline() != "ready\n":
        raise RuntimeError(f"the {mode} did not start")
    return peer


def answer(peer: subprocess.Popen[str], timeout_s: float = 120) -> dict[str, Any]:
    try:
        return json.loads(peer.communicate(timeout=timeout_s)[0])
    finally:
        peer.kill()


def exchange(kind: str, sink: dict[str, Any], source: dict[str, Any], ends: tuple[str, str] = (A, B),
             address: str = SINK) -> tuple[dict[str, Any], dict[str, Any]]:
    """(what the source says, what the sink says) of one transfer."""
    taking = start(ends[1], f"{kind}_sink", {"address": address, **sink})
    try:
        sent = answer(start(ends[0], f"{kind}_source", {"address": address, **source}))
        return sent, answer(taking)
    finally:
        taking.kill()


# --- E1: four flows through one bottleneck --------------------------------------------------------------------------

def completions() -> np.ndarray:
    """(flows,) seconds, by `Fluid`, at the share of the line that is payload."""
    fluid = Fluid()
    link = fluid.add_link(BANDWIDTH * MSS / FRAME)
    for i, size in enumerate(SIZES):
        fluid.start(0, i, size, [link])
    ends = np.zeros(len(SIZES))
    while (due := fluid.next_change()) is not None:
        for done in fluid.completions(due):
            assert isinstance(done.item, int)
            ends[done.item] = done.exact_ns / 1e9
    return ends


def measured(cc: str) -> np.ndarray:
    flows = [{"port": 6001 + i, "bytes": size} for i, size in enumerate(SIZES)]
    sent, got = exchange("tcp", {"flows": flows, "cc": cc}, {"flows": flows, "cc": cc})
    if got["got"] != list(SIZES):
        raise RuntimeError(f"{cc}: {got['got']} bytes arrived of {SIZES}")
    return (np.array(got["ends"]) - sent["begin"]) / 1e9


def fair_rules() -> list[str]:
    """A leaf per flow, all borrowing from one root: HTB's deficit round robin."""
    small = "burst 3028 cburst 3028 quantum 1514"
    rules = ["qdisc add dev u1 root handle 1: htb default 9",
             f"class add dev u1 parent 1: classid 1:1 htb rate 40mbit ceil 40mbit {small}",
             f"class add dev u1 parent 1:1 classid 1:9 htb rate 1mbit ceil 40mbit {small}"]
    for i in range(1, len(SIZES) + 1):
        rules += [f"class add dev u1 parent 1:1 classid 1:1{i} htb rate 1mbit ceil 40mbit {small}",
                  f"qdisc add dev u1 parent 1:1{i} pfifo limit 50",
                  f"filter add dev u1 parent 1: protocol ip prio 1 u32 match ip dport 600{i} 0xffff flowid 1:1{i}"]
    return rules


def bottleneck(options: Options) -> Iterable[Figure]:
    expected = completions()
    text = " ".join(f"{t:.3f}" for t in expected)
    for name, rules in (("HTB, a leaf per flow", fair_rules()),
                        ("FIFO", ["qdisc add dev u1 root tbf rate 40mbit burst 3028 limit 150000"])):
        for cc in CC:
            with shaped(*rules):
                runs = [measured(cc) for _ in range(options.repeats)]
            errors = np.abs(np.array(runs) / expected - 1)
            note = (f"model {text} s; last run {' '.join(f'{t:.3f}' for t in runs[-1])}; flows: mean "
                    f"{errors.mean():.2%}, largest {errors.max():.2%}")
            if name == "FIFO":
                value = max(abs(run.max() / expected.max() - 1) for run in runs)
                yield Figure(f"E1 {name}, {cc}: error of the makespan", float(value), "", at_most=0.02, note=note)
            else:
                yield Figure(f"E1 {name}, {cc}: largest error of a flow", float(errors.max()), "", at_most=0.02,
                             note=note)


# --- E4: waiting times of a queue -----------------------------------------------------------------------------------

def queue(options: Options) -> Iterable[Figure]:
    """Frames of 1,250 bytes at 2 Mbit/s: 5 ms each. A token bucket of one packet delays by the wait alone."""
    size, payload, n = 1250, 1250 - 42, 1500
    for rho in (0.5, 0.8):
        gaps = generator(1, "fidelity/kernel", f"rho {rho}").exponential(0.005 / rho, n).tolist()
        with shaped(f"qdisc add dev u1 root tbf rate 2mbit burst {size} mtu {size} limit 3000000"):
            sent, got = exchange("udp", {"port": 5555}, {"port": 5555, "payload": payload, "gaps_s": gaps})
        arrived, waits = dict(got["got"]), waits_ns(sent["sent"], size, 2_000_000)
        delays = np.array([arrived[i] - at for i, at in enumerate(sent["sent"]) if i in arrived]) / 1e6
        errors = delays - np.array([waits[i] for i in range(n) if i in arrived]) / 1e6
        yield Figure(f"E4 M/D/1 at {rho}: median error of a packet's wait", float(np.median(np.abs(errors))), "ms",
                     at_most=0.5, note=f"{len(arrived)} of {n} packets; mean wait {delays.mean():.3f} ms, Link on the "
                     f"same sending times {np.mean(waits) / 1e6:.3f}, theory {rho / (1 - rho) * 2.5:.3f}; 90 % of the "
                     f"errors below {np.quantile(np.abs(errors), 0.9):.2f} ms, 99 % below "
                     f"{np.quantile(np.abs(errors), 0.99):.2f}")


def waits_ns(sent: list[int], size: int, bandwidth_bps: int) -> list[float]:
    """By `Link`: how long each message of `size` bytes, sent at these times, waits before its transmission."""
    link = Link(0, 1, 0, bandwidth_bps)
    ends: list[float] = []

    def run_until(now_ns: float) -> None:
        while (due := link.next_change()) is not None and due <= now_ns:
            ends.extend(due for _ in link.advance(due))

    for i, at in enumerate(sent):
        run_until(at - sent[0])
        link.offer(at - sent[0], i, size, 0)
    run_until(float("inf"))
    service = 8 * 10**9 * size // bandwidth_bps
    return [end - (at - sent[0]) - service for at, end in zip(sent, ends, strict=True)]


# --- Gilbert --------------------------------------------------------------------------------------------------------

def gilbert(options: Options) -> Iterable[Figure]:
    """A chain in connection marks drops at the sink; p = .05, r = .25. Against `GilbertSpec` on as many packets."""
    p, r, n = 0.05, 0.25, 50_000
    table = f"ip netns exec {B} iptables -t mangle"
    for rule in ("-N GE", "-A INPUT -p udp --dport 5555 -m conntrack --ctstate ESTABLISHED,NEW -j GE",
                 f"-A GE -m connmark --mark 0 -m statistic --mode random --probability {p} -j CONNMARK --set-mark 2",
                 f"-A GE -m connmark --mark 1 -m statistic --mode random --probability {r} -j CONNMARK --set-mark 3",
                 "-A GE -m connmark --mark 2 -j CONNMARK --set-mark 1",
                 "-A GE -m connmark --mark 3 -j CONNMARK --set-mark 0", "-A GE -m connmark --mark 1 -j DROP"):
        sh(f"{table} {rule}")
    _, got = exchange("udp", {"port": 5555}, {"port": 5555, "payload": 64, "gaps_s": [0.0001] * n})
    sh(f"{table} -F")
    kernel = np.ones(n, bool)
    kernel[[number for number, _ in got["got"]]] = False
    model = outage(GilbertSpec(p, r), 1, "kernel", "model")
    assert model is not None
    ours = np.array([model.lost(0, 0, 0, k, 1) for k in range(n)])
    in_bad = p / (p + r)
    decay = 1 - p - r
    error = sqrt(in_bad * (1 - in_bad) * (1 + 2 * decay / (1 - decay)) / n)
    score = abs(kernel.mean() - ours.mean()) / (error * sqrt(2))
    yield Figure("Gilbert: losses, standard score of the difference", score, "", at_most=4,
                 note=f"kernel {kernel.mean():.4f}, model {ours.mean():.4f}, expected {in_bad:.4f}, "
                 f"standard error {error:.4f}, {n:,} packets")
    a, b = bursts(kernel), bursts(ours)
    error = sqrt((1 - r) / r**2 * (1 / len(a) + 1 / len(b)))
    yield Figure("Gilbert: mean burst, standard score of the difference", abs(a.mean() - b.mean()) / error, "",
                 at_most=4, note=f"kernel {a.mean():.3f}, model {b.mean():.3f}, expected {1 / r:g}")


def bursts(lost: np.ndarray) -> np.ndarray:
    return np.array([len(list(run)) for state, run in itertools.groupby(lost.tolist()) if state])


# --- E5: TCP under loss ---------------------------------------------------------------------------------------------

def tcp(options: Options) -> Iterable[Figure]:
    """A delay line of 20 ms each way drops packets as `OutageSpec` says: goodput against the formulas of `tcp`."""
    rtt_ns = 40_000_000
    for cc, seconds in (("reno", 20), ("cubic", 10), ("bbr", 6)):
        for p in (0.0025, 0.01, 0.04):
            goodputs, losses = zip(*(goodput(cc, p, seconds, run) for run in range(options.repeats)), strict=True)
            value = median(goodputs)
            mathis, pftk = mathis_bps(rtt_ns, p), pftk_bps(rtt_ns, p)
            ratio = value / mathis
            at_least, at_most = (None, None) if cc != "reno" else (0.7, None) if ratio < 1 else (None, 1.4)
            note = (f"{value / 1e6:.2f} Mbit/s, {value / pftk:.2f} of PFTK; runs "
                    f"{' '.join(f'{g / 1e6:.2f}' for g in goodputs)}; {np.mean(losses):.4f} of the packets dropped")
            yield Figure(f"E5 {cc}, loss {p:g}: goodput over Mathis", ratio, "", at_least=at_least, at_most=at_most,
                         note=note)


def goodput(cc: str, p: float, seconds: float, run: int) -> tuple[float, float]:
    """(bit/s, share of the packets dropped) of one transfer of so many seconds through the delay line."""
    model = outage(OutageSpec(p), run, "kernel", "loss")
    assert model is not None
    lost = np.packbits([model.lost(0, 0, 0, k, 1) for k in range(1 << 17)], bitorder="little").tobytes().hex()
    ends = [{"namespace": name, "device": "tun0"} for name in (A, B)]
    line = start("", "relay", {"ends": ends, "delay_s": 0.02, "lost": lost})
    try:
        for name, address, other in ((A, "10.78.0.1", "10.78.0.2"), (B, "10.78.0.2", "10.78.0.1")):
            sh(f"ip -n {name} addr add {address} peer {other} dev tun0")
            sh(f"ip -n {name} link set tun0 up")
        flows = [{"port": 6001, "bytes": 10**12}]
        sent, got = exchange("tcp", {"flows": flows, "cc": cc}, {"flows": flows, "cc": cc, "seconds": seconds},
                             address="10.78.0.2")
        said = answer(line)
        return 8e9 * got["got"][0] / (got["ends"][0] - sent["begin"]), said["dropped"] / said["packets"]
    finally:
        line.kill()


# --- E6: background traffic ------------------------------------------------------------------------------------------

Steps = Sequence[tuple[float, float]]       # of a rate: bit/s of frames, seconds
CROSSING: dict[str, Steps] = {              # datagrams, as iperf sends them
    "constant 12 Mbit/s": [(12e6, 6.0)],
    "24 Mbit/s, on and off for 0.5 s each": [(24e6, 0.5), (0.0, 0.5)] * 5,
    "steps of 6 Mbit/s up to 30": [(6e6 * i, 0.4) for i in range(1, 6)] * 3}
GREEDY = 3                                  # connections that never end


def traffic(options: Options) -> Iterable[Figure]:
    """A transfer of 8 MB over 40 Mbit/s beside background traffic, against the same link with `traffic`.

    Datagrams have a class of HTB with as much guaranteed rate as they take, so they are served first; greedy
    connections have a leaf each, as the transfer has one.
    """
    size = SIZES[-1]
    small = "burst 3028 cburst 3028 quantum 1514"
    served_first = [
        "qdisc add dev u1 root handle 1: htb default 9",
        f"class add dev u1 parent 1: classid 1:1 htb rate 40mbit ceil 40mbit {small}",
        f"class add dev u1 parent 1:1 classid 1:9 htb rate 1mbit ceil 40mbit prio 1 {small}",
        f"class add dev u1 parent 1:1 classid 1:8 htb rate 39mbit ceil 40mbit prio 0 {small}",
        "qdisc add dev u1 parent 1:9 pfifo limit 50", "qdisc add dev u1 parent 1:8 pfifo limit 1000",
        "filter add dev u1 parent 1: protocol ip prio 1 u32 match ip protocol 17 0xff flowid 1:8"]
    for name, steps in CROSSING.items():
        with shaped(*served_first):
            took = [beside_datagrams(size, steps) for _ in range(options.repeats)]
        entries = [Traffic(f"{i}", round(rate), link="client1->server", at_ns=round(1e9 * begin),
                           for_ns=round(1e9 * lasts))
                   for i, (begin, rate, lasts) in enumerate(_placed(steps)) if rate]
        yield _crossed(f"E6 {name}", took, transfer_s(size, entries))
    with shaped(*fair_rules()):
        took = [beside_connections(size) for _ in range(options.repeats)]
    greedy = Traffic("greedy", 0, link="client1->server", greedy=GREEDY)
    yield _crossed(f"E6 {GREEDY} greedy connections", took, transfer_s(size, [greedy]))


def _placed(steps: Steps) -> Iterator[tuple[float, float, float]]:
    """(begin in s, bit/s, seconds) of each step."""
    begin = 0.0
    for rate, lasts in steps:
        yield begin, rate, lasts
        begin += lasts


def _crossed(name: str, took: Sequence[float], expected: float) -> Figure:
    errors = [seconds / expected - 1 for seconds in took]
    return Figure(f"{name}: largest error of a transfer", max(map(abs, errors)), "", at_most=0.02,
                  note=f"model {expected:.3f} s; measured {' '.join(f'{seconds:.3f}' for seconds in took)}")


def transfer_s(size: int, entries: Sequence[Traffic]) -> float:
    """By emul: a message of so many bytes from time 0 on, over a link that its flows share with the background."""
    rule = LinkRule("*", latency_ns=0, bandwidth_bps=BANDWIDTH, sharing="maxmin", overhead_bytes=FRAME - MSS, mtu=MSS)
    network = build(TopologySpec(generator="star", clients=1), [rule], 1, traffic=entries)
    link = network.link(network.names.index("client1"), network.names.index("server"))
    assert isinstance(link, FlowLink)
    network.flows.start(0, "transfer", size, True, [link], 0)
    while True:
        now = network.flows.next_change()
        assert now is not None, "the message waits for ever"
        if network.flows.advance(now):
            return now / 1e9


def beside_datagrams(size: int, steps: Steps) -> float:
    """Seconds of a transfer that begins with the first datagram."""
    gaps = [gap for _, rate, lasts in _placed(steps) for gap in _gaps(rate, lasts)]
    at = time.monotonic() + 1.0
    taking = start(B, "udp_sink", {"address": SINK, "port": 5555})
    sending = start(A, "udp_source", {"address": SINK, "port": 5555, "payload": FRAME - 42, "gaps_s": gaps, "at": at})
    try:
        flows = [{"port": 6009, "bytes": size}]
        sent, got = exchange("tcp", {"flows": flows, "cc": "cubic"}, {"flows": flows, "cc": "cubic", "at": at})
        return (got["ends"][0] - sent["begin"]) / 1e9
    finally:
        sending.kill()
        taking.kill()


def _gaps(rate: float, lasts: float) -> list[float]:
    """Seconds before each datagram of a step; the silence of a step without any is the gap of one."""
    if not rate:
        return [lasts]
    gap = 8 * FRAME / rate
    return [gap] * round(lasts / gap)


def beside_connections(size: int) -> float:
    """Seconds of a transfer that begins together with connections that go on."""
    flows = [{"port": 6001 + i, "bytes": 10**9 if i else size} for i in range(1 + GREEDY)]
    sent, got = exchange("tcp", {"flows": flows, "cc": "cubic"}, {"flows": flows, "cc": "cubic", "seconds": 12})
    return (got["ends"][0] - sent["begin"]) / 1e9


# --- and all --------------------------------------------------------------------------------------------------------

def missing() -> str | None:
    """The reason why none of it can be done here, if so."""
    for tool in ("ip", "tc", "iptables", "ethtool"):
        if shutil.which(tool) is None:
            return f"there is no {tool}; Debian: apt-get install iproute2 iptables ethtool"
    if not Path("/dev/net/tun").exists():
        return "there is no /dev/net/tun"
    try:
        with network():
            return None
    except RuntimeError as error:
        return str(error)


def kernel(options: Options) -> Iterable[Figure]:
    with network():
        for experiment in (bottleneck, queue, gilbert, tcp, traffic):
            try:
                yield from experiment(options)
            except RuntimeError as error:           # a qdisc or a match that this kernel lacks
                print(f"\n{experiment.__name__} was not done: {error}\n", flush=True)


if __name__ == "__main__":
    reason = missing()
    if reason is None:
        main(kernel, text=__doc__)
    else:
        print(f"skipped: {reason}")
