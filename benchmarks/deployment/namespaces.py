"""A tree of network namespaces around a router that forwards, each link shaped by the kernel at both of its ends.

    vertex i:  device `uplink`, its root qdisc the link up        the one above it:  device `d<i>`, the link to vertex i

Links without latency are veth pairs. This needs no netem: a link with latency is a pair of TUN
devices with a relay between them, which holds every packet for so long and drops what is to be lost; shaping stays the
kernel's. Names begin with "emuldep" and a process number; all is taken away at the end, whatever ends it, and what a
process that was killed has left is taken away by the next.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.deployment.cases import FRAME, ROUTER, Net, loses, vertex_name
from benchmarks.deployment.processes import Place
from benchmarks.fidelity_kernel import sh

PORT = 7100
UP = "uplink"
RELAY = Path(__file__).with_name("relay.py")
_NAME = re.compile(r"emuldep(\d+)\w+")
_BUFFER = 1 << 22
_LATE_S = 0.002                     # a timer that is so late costs a link no rate; with none rounds were 0.5 % longer
HYSTART = Path("/sys/module/tcp_cubic/parameters/hystart")
_LOSSES = 1 << 17                   # packets whose fate is drawn; then they begin anew
_ACK_BITS = "match u16 0 0xff80 at 2"       # packets below 128 bytes


def namespace(i: int) -> str:
    """Of vertex i; -1: of the router."""
    return f"emuldep{os.getpid()}{'r' if i < 0 else f'n{i}'}"


def address(i: int) -> str:
    """Of vertex i."""
    return f"10.79.{i}.2"


def places(nodes: int) -> list[Place]:
    """The places of the nodes of a deployment."""
    return [Place((address(i), PORT), namespace(i)) for i in range(nodes)]


# --- shaping --------------------------------------------------------------------------------------------------------

Flows = Sequence[tuple[int, int]]           # (source, target) nodes


def crossing(net: Net, i: int) -> tuple[Flows, Flows]:
    """The flows that may cross the link of vertex i on the way up, and those on the way down."""
    below = [j for j in net.subtree(i) if j < net.nodes]
    beyond = [j for j in range(net.nodes) if j not in below]
    up = [(one, other) for one in below for other in beyond]
    return up, [(other, one) for one, other in up]


def shaping(net: Net, device: str, mbit: float, flows: Flows) -> list[str]:
    """Lines for `tc -batch`: the link of this device, which these flows may cross."""
    rate, burst = f"{round(mbit * 1000)}kbit", 2 * FRAME + round(mbit * 1e6 / 8 * _LATE_S)
    if net.discipline == "tbf":
        return [f"qdisc add dev {device} root handle 1: tbf rate {rate} burst {burst} limit {net.buffer}"]
    share, small = f"{max(8, round(mbit * 1000 / 2 / len(flows)))}kbit", f"burst {burst} cburst {burst}"
    small += f" quantum {FRAME}"
    lines = [f"qdisc add dev {device} root handle 1: htb default 9",
             f"class add dev {device} parent 1: classid 1:1 htb rate {rate} ceil {rate} {small}",
             f"class add dev {device} parent 1:1 classid 1:9 htb rate {share} ceil {rate} {small}"]
    if not net.kernel.acks:             # they go to no class: at once
        lines += [f"filter add dev {device} parent 1: protocol ip prio 1 u32 {_ACK_BITS} flowid 1:0"]
    for number, (source, target) in enumerate(flows, 16):
        leaf = f"1:{number:x}"
        lines += [f"class add dev {device} parent 1:1 classid {leaf} htb rate {share} ceil {rate} {small}",
                  f"qdisc add dev {device} parent {leaf} pfifo limit {net.queue}",
                  f"filter add dev {device} parent 1: protocol ip prio 2 u32 match ip src {address(source)}/32 "
                  f"match ip dst {address(target)}/32 flowid {leaf}"]
    return lines


def _shape(net: Net) -> None:
    for i in range(net.vertices):
        up, down = crossing(net, i)
        _batch("tc", namespace(i), shaping(net, UP, net.up_mbit[i], up))
        _batch("tc", namespace(net.over(i)), shaping(net, f"d{i}", net.down_mbit[i], down))


def _batch(tool: str, name: str, lines: Sequence[str]) -> None:
    done = subprocess.run([tool, "-n", name, "-batch", "-"], input="\n".join(lines) + "\n", capture_output=True,
                          text=True)
    if done.returncode:
        raise RuntimeError(f"{tool} -n {name}: {done.stderr.strip()}")


# --- links ----------------------------------------------------------------------------------------------------------

Passed = dict[int, list[Any]]       # vertex -> what its relay has seen: [source, target, port, packets] of connections


@contextlib.contextmanager
def built(net: Net, repeat: int = 0) -> Iterator[Passed]:
    """The network, while the block lasts; each repeat loses other packets. The packets of data that have crossed lossy
    links are known behind the block. Raises RuntimeError, with what `ip` or `tc` has said."""
    sweep()
    passed: Passed = {}
    with contextlib.ExitStack() as stack:
        stack.callback(_take_away, net.vertices)
        if not net.kernel.hystart:      # no namespace has one of its own
            stack.callback(HYSTART.write_text, HYSTART.read_text())
            HYSTART.write_text("0")
        for i in range(-1, net.vertices):
            sh(f"ip netns add {namespace(i)}")
            sh(f"ip -n {namespace(i)} link set lo up")
            if net.below(i):
                sh(f"ip netns exec {namespace(i)} sysctl -qw net.ipv4.ip_forward=1")
        for i in range(net.vertices):
            if net.device == "tun":
                stack.enter_context(_relayed(net, i, repeat, passed))
            else:
                _veth(net, i)
        for i in range(-1, net.vertices):
            _route(net, i)
        _shape(net)
        yield passed


def _route(net: Net, i: int) -> None:
    """From vertex i to all others, with the switches of its TCP."""
    kernel = net.kernel
    # Programs that say nothing, such as Flower's, have the congestion control of the machine, which may be another than
    # the one that is predicted.
    window = " congctl cubic" + f" initcwnd {kernel.window} initrwnd {kernel.window}" * bool(kernel.window)
    own = f" src {address(i)}" if i != ROUTER else ""       # whichever device a packet leaves by
    lines = [f"route add default via 10.79.{i}.1{own}{window}"] * (i != ROUTER)
    for child in net.below(i):
        lines += [f"route replace 10.79.{child}.0/24 dev d{child}{own}{window}"]
        lines += [f"route add 10.79.{j}.0/24 via {address(child)}{own}{window}"
                  for j in net.subtree(child) if j != child]
    _batch("ip", namespace(i), lines)
    settings = {"tcp_slow_start_after_idle": "0"} if not kernel.idle_restart else {}
    if kernel.window:                   # buffers that have room for it from the beginning
        settings |= {"tcp_rmem": f"4096 {_BUFFER} {2 * _BUFFER}", "tcp_wmem": f"4096 {_BUFFER} {2 * _BUFFER}"}
    for key, value in settings.items():
        subprocess.run(["ip", "netns", "exec", namespace(i), "sysctl", "-qw", f"net.ipv4.{key}={value}"], check=True)


def _veth(net: Net, i: int) -> None:
    here, there = namespace(i), namespace(net.over(i))
    sh(f"ip link add name {UP} netns {here} type veth peer name d{i} netns {there}")
    for name, device, end in ((here, UP, 2), (there, f"d{i}", 1)):
        _batch("ip", name, [f"addr add 10.79.{i}.{end}/24 dev {device}",
                            f"link set {device} gso_max_segs 1",        # a packet is one segment, as on a wire
                            f"link set {device} up"])


@contextlib.contextmanager
def _relayed(net: Net, i: int, repeat: int, passed: Passed) -> Iterator[None]:
    here, there = namespace(i), namespace(net.over(i))
    lost = ""
    if loses(net, i):
        drawn = np.random.default_rng((7 + repeat, i)).random(_LOSSES) < net.loss
        lost = np.packbits(drawn, bitorder="little").tobytes().hex()
    job = {"delay_s": net.delay_ms[i] / 1e3, "lost": lost,
           "ends": [{"namespace": here, "device": UP}, {"namespace": there, "device": f"d{i}"}]}
    relay = subprocess.Popen([sys.executable, str(RELAY)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert relay.stdin is not None
        assert relay.stdout is not None
        relay.stdin.write(json.dumps(job) + "\n")
        relay.stdin.flush()
        if relay.stdout.readline() != "ready\n":
            raise RuntimeError(f"the relay of {vertex_name(i)} did not start")
        for name, device, mine, other in ((here, UP, 2, 1), (there, f"d{i}", 1, 2)):
            _batch("ip", name, [f"addr add 10.79.{i}.{mine} peer 10.79.{i}.{other}/24 dev {device}",
                                f"link set {device} gso_max_segs 1", f"link set {device} up"])
        yield
        passed[i] = json.loads(relay.communicate(timeout=30)[0])
    finally:
        relay.kill()
        relay.wait()


def _take_away(vertices: int) -> None:
    for i in range(-1, vertices):
        subprocess.run(["ip", "netns", "del", namespace(i)], capture_output=True)


def sweep() -> None:
    """Take away what processes that are no more have left."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout
    for line in listed.splitlines():
        found = _NAME.fullmatch(line.partition(" ")[0])
        if found is not None and not Path("/proc", found[1]).exists():
            subprocess.run(["ip", "netns", "del", found[0]], capture_output=True)


def counted(net: Net) -> dict[str, tuple[int, int]]:
    """Link -> (bytes that its qdisc has let through so far, packets that it has dropped), as tc counts them:
    acknowledgements too."""
    found = {}
    for i in range(net.vertices):
        one, other = vertex_name(i), vertex_name(net.over(i))
        for name, device, link in ((namespace(i), UP, f"{one}->{other}"),
                                   (namespace(net.over(i)), f"d{i}", f"{other}->{one}")):
            said = json.loads(sh(f"tc -n {name} -s -j qdisc show dev {device}"))
            root = next(qdisc for qdisc in said if qdisc.get("root"))
            found[link] = root["bytes"], root["drops"]
    return found


def missing() -> str | None:
    """The reason why no such network can be built here, if so."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            return f"there is no {tool}; Debian: apt-get install iproute2"
    if not Path("/dev/net/tun").exists():
        return "there is no /dev/net/tun"
    try:
        for discipline in ("htb", "tbf"):
            with built(Net("try", discipline, [1, 1], [1, 1])):
                pass
    except RuntimeError as error:
        return str(error)
    return None
