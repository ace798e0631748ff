"""What is deployed: schemes and networks, as scenarios that the deployment and its emulation share to the letter.

Every network is a star around a router that forwards: node i has a link to it (`up`) and one from it (`down`). All that
differs between a deployment and its emulation is where computations take their time from: a deployed node takes what
the case declares (or what training really takes), an emulated one what the deployed one took.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from emul.base import rows as R
from emul.base.rows import Row

PLUGINS = ("benchmarks.flat_task",)     # 100,000 parameters, 400 kB
MBIT = 1_000_000
HEADERS = {"veth": "tc_tcp", "tun": "ipv4_tcp"}         # what tc counts of a packet on each kind of device


@dataclass(frozen=True)
class Net:
    """One network of `nodes`; node 0 is the server, if the scheme has one."""

    name: str
    discipline: Literal["htb", "tbf"]   # a leaf of HTB for each flow, served in turn; or a token bucket, one queue
    up_mbit: Sequence[float]            # node -> to the router
    down_mbit: Sequence[float]          # node -> from the router
    delay_ms: Sequence[float] = ()      # node -> of its links, each way, over a relay in user space; (): veth, none
    loss: float = 0.0                   # of packets of data on the way up of all nodes but 0; needs the relay

    @property
    def nodes(self) -> int:
        return len(self.up_mbit)

    @property
    def device(self) -> str:
        return "tun" if self.delay_ms else "veth"


@dataclass(frozen=True)
class Model:
    """How the emulator takes the links of a case."""

    sharing: str = "connections"
    switching: str = "store_and_forward"
    tcp: str = ""                       # a formula of `transport: {tcp: ...}`

    @property
    def name(self) -> str:
        parts = [self.sharing, "packetized" if self.switching != "store_and_forward" else "", self.tcp]
        return " ".join(part for part in parts if part)

    @property
    def written(self) -> str:
        """As a scenario has it."""
        keys = [f"sharing: {self.sharing}", f"switching: {self.switching}" if self.name.endswith("packetized") else "",
                f"transport: {{tcp: {self.tcp}}}" if self.tcp else ""]
        return ", ".join(f"`{key}`" for key in keys if key)


@dataclass(frozen=True)
class Case:
    """A scheme on a network."""

    scheme: str
    net: Net
    params: str = ""                    # of the scheme, as YAML
    rounds: int = 8
    train_s: float = 0.4                # what a training takes, declared; 0: the work is really done
    spread: float = 0.0                 # node i takes 1 + spread * i times as long
    slow: Mapping[int, float] = field(default_factory=lambda: {3: 3.0})     # node -> so many times slower
    steps: int = 1                      # of SGD, where the work is done
    variant: str = ""

    @property
    def name(self) -> str:
        return f"{self.scheme} {self.net.name}{', ' * bool(self.variant)}{self.variant}"

    @property
    def peers(self) -> bool:
        """Whether there is no server."""
        return self.scheme in ("gossip", "adpsgd")

    def tells_apart(self, model: Model) -> Model:
        """The simplest model that is this one here: no formula caps a flow without loss, and without latency all RTTs
        are one."""
        sharing = "maxmin" if model.sharing == "rtt_weighted" and not self.net.delay_ms else model.sharing
        return replace(model, sharing=sharing, tcp=model.tcp if self.net.loss else "")


BEST = Model(tcp="mathis")          # what docs/fidelity.md recommends
MODELS = (BEST, Model(tcp="pftk"), Model(), Model("maxmin", tcp="mathis"), Model("maxmin"), Model("rtt_weighted"),
          Model("fifo", "packetized"), Model("fifo"))


def names(case: Case) -> list[str]:
    """Of the nodes, in their order: the tree's leaves, whose root is the router."""
    return [f"n{i + 2}" for i in range(case.net.nodes)]


def scenario(case: Case, trace: Path | None, model: Model = BEST) -> str:
    """The scenario; computations take their time from the trace, and nothing where that has none."""
    nodes, net = names(case), case.net
    roles = "{peer: {rule: leaves}}" if case.peers else f"{{server: [{nodes[0]}], client: {{rule: leaves}}}}"
    head = HEADERS[net.device]
    switching = model.switching if model.switching == "store_and_forward" else "packetized"
    common = f"sharing: {model.sharing}, switching: {switching}, overhead: {{preset: {head}}}"
    if model.tcp:
        common += f", transport: {{tcp: {model.tcp}}}"
    elif net.loss and model.sharing == "fifo":
        common += ", transport: reliable"
    links = [f'{{match: "*", {common}}}']
    heeds = model.tcp or model.sharing == "fifo"        # flows without a formula have no way to send again
    for i, node in enumerate(nodes):
        lossy = f", outage: {{model: bernoulli, p: {net.loss:g}, per: packet}}" if net.loss and i and heeds else ""
        late = f", latency: {net.delay_ms[i]:g} ms" if net.delay_ms else ""
        links += [f'{{match: "{node}->n1", bandwidth: {net.up_mbit[i]:g} Mbit/s{late}{lossy}}}',
                  f'{{match: "n1->{node}", bandwidth: {net.down_mbit[i]:g} Mbit/s{late}}}']
    slow = [f"{{match: {nodes[i]}, speed: {1 / factor:g}}}" for i, factor in case.slow.items()]
    return "\n".join([
        "emul: 1", f"name: {case.scheme}", "seed: 7",
        f"topology: {{generator: tree, branching: {net.nodes}, height: 1, roles: {roles}}}",
        "links:", *(f"  - {link}" for link in links),
        *([] if case.train_s else [f"nodes: [{', '.join(slow)}]"] if slow else []),
        f"task: {{data: {{set: drawn}}, model: flat, solver: {{sgd: {{lr: 0.1, steps: {case.steps}, batch: 20}}}}}}",
        *(["training: skip"] if case.train_s else []), "evaluation: {every: 1000000}",
        "compute: {mode: zero}" if trace is None else f"compute: {{trace: {trace}, take: in order}}",
        f"schemes: [{{name: {case.scheme}{', ' * bool(case.params)}{case.params}}}]",
        f"stop: {{rounds: {case.rounds}}}", ""])


# --- what computations take -----------------------------------------------------------------------------------------

def declared(case: Case, file: Path) -> Path | None:
    """The trace of a deployment: each node's trainings differ by a tenth from one to the next, the slow one is slow.
    None: the work is really done."""
    if not case.train_s:
        return None
    each = [case.train_s * (1 + case.spread * i) * case.slow.get(i, 1.0) for i in range(case.net.nodes)]
    lines = [(node, "train", each[i] * (1 + 0.1 * ((i + turn) % 3 - 1)))
             for i, node in enumerate(names(case)) for turn in range(3)]
    return _write(file, lines)


def recorded(case: Case, rows: Sequence[Row], file: Path) -> Path:
    """The trace of an emulation: what each computation of the deployment took, from when it was asked for until its
    role went on."""
    place = names(case)
    return _write(file, [(place[row[2]], row[3], row[4] / 1e9) for row in rows if row[0] == R.COMPUTE])


def _write(file: Path, lines: Sequence[tuple[str, str, float]]) -> Path:
    with file.open("w", newline="") as f:
        writer = csv.writer(f)
        writer.writerow(("node", "label", "seconds"))
        writer.writerows((node, label, f"{seconds:.9f}") for node, label, seconds in lines)
    return file
