"""Fluid sharing against SimGrid (CM02, no cross-traffic, gamma 0): 100 random networks, every completion.

Two families of 50: links that stay, and links that change their bandwidth. All flows of a network have one latency, on
a link of their own, since CM02 weighs flows by 1/latency. Flow caps are one-flow links in SimGrid. Needs SimGrid's
Python binding (Debian: python3-simgrid) in /usr/bin/python3 or the interpreter that EMUL_SIMGRID_PYTHON names, and says
so where it is missing.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import Figure, Options, main
from emul.base.streams import generator
from emul.network.links.fluid import Fluid

PEER = Path(__file__).with_name("fidelity_simgrid_peer.py")
PYTHON = os.environ.get("EMUL_SIMGRID_PYTHON", "/usr/bin/python3")
NETWORKS = 50                       # of each family
TOLERANCE = 1e-9
US = 1000                           # starts and latencies are whole us: exact in ns, as good as exact in seconds


@dataclass(frozen=True)
class Network:
    """Times in us. flows: start, bytes, route, latency of its own link, cap in bit/s."""

    links: list[int]                                                # bit/s
    flows: list[tuple[int, int, list[int], int, int | None]]
    changes: list[tuple[int, int, int]]                             # time, link, bit/s


def draw(family: str, index: int) -> Network:
    """2 to 24 links of 1 to 100 Mbit/s, 3 to 60 flows of 10 kB to 20 MB over 1 to 5 of them within 10 s."""
    rng = generator(1, "fidelity/simgrid", family, index)
    links = [int(10 ** rng.uniform(6, 8)) for _ in range(rng.integers(2, 25))]
    latency = int(rng.integers(0, 50_000))
    flows = []
    for _ in range(rng.integers(3, 61)):
        route = rng.choice(len(links), size=min(len(links), int(rng.integers(1, 6))), replace=False).tolist()
        cap = int(10 ** rng.uniform(5.5, 7.5)) if rng.random() < 0.3 else None
        flows.append((int(rng.integers(0, 10_000_000)), int(10 ** rng.uniform(4, 7.3)), route,
                      latency, cap))
    changes = [(int(rng.integers(0, 60_000_000)), int(rng.integers(len(links))), int(10 ** rng.uniform(6, 8)))
               for _ in range(20 if family == "changing" else 0)]
    return Network(links, flows, sorted(changes))


def ours(network: Network) -> np.ndarray:
    """(flows,) completion times in seconds, before they are rounded to ns."""
    fluid = Fluid()
    for bps in network.links:
        fluid.add_link(bps)
    events: list[tuple[int, int, Any]] = [(at * US, -1, (link, bps)) for at, link, bps in network.changes]
    for i, (start, size, route, latency, cap) in enumerate(network.flows):
        events.append(((start + latency) * US, i, (size, route, cap)))
    ends = np.zeros(len(network.flows))

    def take(now_ns: int) -> None:
        for completion in fluid.completions(now_ns):
            assert isinstance(completion.item, int)
            ends[completion.item] = completion.exact_ns / 1e9

    for now_ns, i, what in sorted(events, key=lambda event: event[:2]):
        take(now_ns)
        if i < 0:
            fluid.change(now_ns, *what)
        else:
            size, route, cap = what
            fluid.start(now_ns, i, size, route, cap_bps=cap)
    while (due := fluid.next_change()) is not None:
        take(due)
    return ends


def theirs(network: Network) -> np.ndarray:
    """(flows,) completion times in seconds as SimGrid has them."""
    links = [(bps, 0.0) for bps in network.links]
    flows = []
    for start, size, route, latency, cap in network.flows:
        way = list(route)
        if latency:
            links.append((10**15, latency / 1e6))
            way.append(len(links) - 1)
        if cap is not None:
            links.append((cap, 0.0))
            way.append(len(links) - 1)
        flows.append((start / 1e6, size, way))
    changes = [(at / 1e6, link, bps) for at, link, bps in network.changes]
    done = subprocess.run([PYTHON, str(PEER)], input=json.dumps({"links": links, "flows": flows, "changes": changes}),
                          capture_output=True, text=True, check=False, timeout=120)
    if done.returncode:
        raise RuntimeError(f"SimGrid ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return np.array(json.loads(done.stdout[done.stdout.rindex("["):]))


def simgrid(options: Options) -> Iterable[Figure]:
    """The largest and the median relative error of all completions of each family."""
    for family in ("maxmin", "changing"):
        errors = []
        for index in range(NETWORKS):
            network = draw(family, index)
            a, b = ours(network), theirs(network)
            errors.append(np.abs(a - b) / b)
        every = np.concatenate(errors)
        yield Figure(f"{family}: largest relative error of a completion", float(every.max()), "", at_most=TOLERANCE,
                     note=f"{NETWORKS} networks, {len(every):,} flows; median {np.median(every):.1g}; networks over "
                          f"{TOLERANCE:g}: {sum(float(e.max()) > TOLERANCE for e in errors)}")


def missing() -> str | None:
    """The reason why SimGrid cannot be asked, if so."""
    try:
        done = subprocess.run([PYTHON, "-c", "import simgrid"], capture_output=True, text=True, timeout=60)
    except OSError as error:
        return str(error)
    return done.stderr.strip().splitlines()[-1] if done.returncode else None


if __name__ == "__main__":
    reason = missing()
    if reason is None:
        main(simgrid, text=__doc__)
    else:
        print(f"skipped: {PYTHON} has no SimGrid ({reason}); Debian: apt-get install python3-simgrid")
