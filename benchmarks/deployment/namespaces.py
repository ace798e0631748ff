"""A star of network namespaces around a router that forwards, each link shaped by the kernel at both of its ends.

    node i:  device `uplink`, its root qdisc the link to the router        router:  device `d<i>`, the link to node i

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
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.deployment.cases import Net
from benchmarks.deployment.processes import Place
from benchmarks.fidelity_kernel import sh, start

PORT = 7100
UP = "uplink"
FRAME = 1514
_NAME = re.compile(r"emuldep(\d+)\w+")
_LOSSES = 1 << 17                   # packets whose fate is drawn; then they begin anew


def namespace(i: int) -> str:
    """Of node i; -1: of the router."""
    return f"emuldep{os.getpid()}{'r' if i < 0 else f'n{i}'}"


def address(i: int) -> str:
    """Of node i."""
    return f"10.79.{i}.2"


def places(nodes: int) -> list[Place]:
    """Where the nodes of a deployment are."""
    return [Place((address(i), PORT), namespace(i)) for i in range(nodes)]


# --- shaping --------------------------------------------------------------------------------------------------------

def shaping(net: Net, device: str, mbit: float, others: Sequence[int], side: str) -> list[str]:
    """Lines for `tc -batch`: the link of this device. side: `dst` or `src`, which end of a packet says what flow it is
    of: that of one of `others`."""
    rate = f"{round(mbit * 1000)}kbit"
    if net.discipline == "tbf":
        return [f"qdisc add dev {device} root handle 1: tbf rate {rate} burst {2 * FRAME} limit 150000"]
    share, small = f"{max(8, round(mbit * 1000 / 2 / len(others)))}kbit", f"burst {2 * FRAME} cburst {2 * FRAME}"
    small += f" quantum {FRAME}"
    lines = [f"qdisc add dev {device} root handle 1: htb default 9",
             f"class add dev {device} parent 1: classid 1:1 htb rate {rate} ceil {rate} {small}",
             f"class add dev {device} parent 1:1 classid 1:9 htb rate {share} ceil {rate} {small}"]
    for other in others:
        leaf = f"1:{16 + other:x}"
        lines += [f"class add dev {device} parent 1:1 classid {leaf} htb rate {share} ceil {rate} {small}",
                  f"qdisc add dev {device} parent {leaf} pfifo limit 60",
                  f"filter add dev {device} parent 1: protocol ip prio 1 u32 match ip {side} {address(other)}/32 "
                  f"flowid {leaf}"]
    return lines


def _shape(net: Net) -> None:
    for i in range(net.nodes):
        others = [j for j in range(net.nodes) if j != i]
        _tc(namespace(i), shaping(net, UP, net.up_mbit[i], others, "dst"))
        _tc(namespace(-1), shaping(net, f"d{i}", net.down_mbit[i], others, "src"))


def _tc(name: str, lines: Sequence[str]) -> None:
    done = subprocess.run(["tc", "-n", name, "-batch", "-"], input="\n".join(lines) + "\n", capture_output=True,
                          text=True)
    if done.returncode:
        raise RuntimeError(f"tc -n {name}: {done.stderr.strip()}")


# --- links ----------------------------------------------------------------------------------------------------------

@contextlib.contextmanager
def built(net: Net) -> Iterator[None]:
    """The network, while the block lasts. Raises RuntimeError, with what `ip` or `tc` has said."""
    sweep()
    with contextlib.ExitStack() as stack:
        stack.callback(_take_away, net.nodes)
        for i in range(-1, net.nodes):
            sh(f"ip netns add {namespace(i)}")
            sh(f"ip -n {namespace(i)} link set lo up")
        sh(f"ip netns exec {namespace(-1)} sysctl -qw net.ipv4.ip_forward=1")
        for i in range(net.nodes):
            if net.device == "tun":
                stack.enter_context(_relayed(net, i))
            else:
                _veth(i)
            sh(f"ip -n {namespace(i)} route add default via 10.79.{i}.1")
        _shape(net)
        yield


def _veth(i: int) -> None:
    here, router = namespace(i), namespace(-1)
    sh(f"ip link add name {UP} netns {here} type veth peer name d{i} netns {router}")
    for name, device, end in ((here, UP, 2), (router, f"d{i}", 1)):
        sh(f"ip -n {name} addr add 10.79.{i}.{end}/24 dev {device}")
        sh(f"ip -n {name} link set {device} gso_max_segs 1")        # a packet is one segment, as on a wire
        sh(f"ip -n {name} link set {device} up")


@contextlib.contextmanager
def _relayed(net: Net, i: int) -> Iterator[None]:
    here, router = namespace(i), namespace(-1)
    lost = "00"
    if net.loss and i:
        drawn = np.random.default_rng((7, i)).random(_LOSSES) < net.loss
        lost = np.packbits(drawn, bitorder="little").tobytes().hex()
    relay = start("", "relay", {"delay_s": net.delay_ms[i] / 1e3, "lost": lost, "ends": [
        {"namespace": here, "device": UP}, {"namespace": router, "device": f"d{i}"}]})
    try:
        for name, device, mine, other in ((here, UP, 2, 1), (router, f"d{i}", 1, 2)):
            sh(f"ip -n {name} addr add 10.79.{i}.{mine} peer 10.79.{i}.{other} dev {device}")
            sh(f"ip -n {name} link set {device} up")
        yield
    finally:
        relay.kill()
        relay.wait()


def _take_away(nodes: int) -> None:
    for i in range(-1, nodes):
        subprocess.run(["ip", "netns", "del", namespace(i)], capture_output=True)


def sweep() -> None:
    """Take away what processes that are no more have left."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout
    for line in listed.splitlines():
        found = _NAME.fullmatch(line.partition(" ")[0])
        if found is not None and not Path("/proc", found[1]).exists():
            subprocess.run(["ip", "netns", "del", found[0]], capture_output=True)


def wire_bytes(nodes: int) -> dict[str, int]:
    """Link -> bytes that its qdisc has let through so far, as tc counts them: acknowledgements too."""
    found = {}
    for i in range(nodes):
        for name, device, link in ((namespace(i), UP, f"n{i + 2}->n1"), (namespace(-1), f"d{i}", f"n1->n{i + 2}")):
            said = json.loads(sh(f"tc -n {name} -s -j qdisc show dev {device}"))
            found[link] = next(one["bytes"] for one in said if one.get("root"))
    return found


def missing() -> str | None:
    """Why no such network can be built here, if so."""
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
