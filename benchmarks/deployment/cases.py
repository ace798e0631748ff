"""The deployed cases: schemes and networks, as scenarios that the deployment and its emulation share to the letter.

Every network is a tree of links around a router that forwards: vertex i has a link to the one above it (`up`) and one
from it (`down`). All that differs between a deployment and its emulation is where computations take their time from: a
deployed node takes what the case declares (or what training really takes), an emulated one what the deployed one took,
and a predicted one what is declared and what a calibration has found.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from emul.base import rows as R
from emul.base.rows import Row

PLUGINS = ("benchmarks.flat_task",)     # 100,000 parameters, 400 kB
APP = Path(__file__).parent / "flower_app"
MBIT = 1_000_000
FRAME = 1514                                            # bytes of a full packet, as tc counts it on a veth
HEADERS = {"veth": 66, "tun": 52}                       # of a packet, as tc counts on each kind of device
ACKS = {"veth": 33, "tun": 26}                          # of an acknowledgement, one for two packets
ROUTER = -1


@dataclass(frozen=True)
class Kernel:
    """Switches of the kernel that take away a part of TCP; as they stand: none."""

    idle_restart: bool = True           # of slow start, on a connection that has been silent (RFC 2861)
    window: int = 0                     # packets that a new connection may have on its way; 0: ten, as usual
    acks: bool = True                   # whether acknowledgements share the line with data, or have a way of their own
    hystart: bool = True                # by which Cubic ends slow start before a loss; off for the whole machine


@dataclass(frozen=True)
class Net:
    """A tree of vertices below the router; the first `nodes` are nodes, node 0 is the server, if the scheme has one."""

    name: str
    discipline: Literal["htb", "tbf"]   # a leaf of HTB for each flow, served in turn; or a token bucket, one queue
    up_mbit: Sequence[float]            # vertex -> to the one above it
    down_mbit: Sequence[float]          # vertex -> from the one above it
    delay_ms: Sequence[float] = ()      # vertex -> of its links, each way, over a relay in user space; (): veth, none
    loss: float = 0.0                   # of packets of data on the way up of all nodes but 0; needs the relay
    queue: int = 400                    # packets that a leaf of HTB holds: a model waits, and nothing is dropped
    buffer: int = 150_000               # bytes that the queue of a token bucket holds
    above: Sequence[int] = ()           # vertex -> what its link leads to; (): the router, for all
    routers: int = 0                    # how many of the vertices, the last ones, are no nodes
    kernel: Kernel = Kernel()

    @property
    def vertices(self) -> int:
        return len(self.up_mbit)

    @property
    def nodes(self) -> int:
        return self.vertices - self.routers

    @property
    def device(self) -> str:
        return "tun" if self.delay_ms else "veth"

    def over(self, i: int) -> int:
        """The end to which the link of vertex i leads."""
        return self.above[i] if self.above else ROUTER

    def below(self, i: int) -> list[int]:
        """The vertices whose links lead to i, ascending."""
        return [j for j in range(self.vertices) if self.over(j) == i]

    def subtree(self, i: int) -> list[int]:
        """Vertex i and all that is below it, ascending."""
        return sorted([i, *(k for j in self.below(i) for k in self.subtree(j))])

    def way_up(self, i: int) -> Iterator[int]:
        """Vertices from i to the router, without that."""
        while i != ROUTER:
            yield i
            i = self.over(i)

    def links(self, source: int, target: int) -> list[tuple[int, bool]]:
        """The way between two nodes: vertex and whether its link is taken up."""
        up, down = list(self.way_up(source)), list(self.way_up(target))
        while up and down and up[-1] == down[-1]:
            up.pop(), down.pop()
        return [(i, True) for i in up] + [(i, False) for i in reversed(down)]

    def rate_bps(self, vertex: int, up: bool) -> float:
        return (self.up_mbit if up else self.down_mbit)[vertex] * MBIT

    def latency_s(self, vertex: int) -> float:
        return self.delay_ms[vertex] / 1e3 if self.delay_ms else 0.0


@dataclass(frozen=True)
class Model:
    """The links of a case as the emulator takes them."""

    sharing: str = "connections"
    switching: str = "store_and_forward"
    tcp: str = ""                       # the congestion control of windows: `cubic`; "": without windows
    lost: bool = False                  # with the packets that the relay has dropped, in place of draws
    connections: int = 1                # from one node to another

    @property
    def name(self) -> str:
        parts = [self.sharing, "packetized" if self.switching != "store_and_forward" else "", self.tcp,
                 "replayed" if self.lost else ""]
        return " ".join(part for part in parts if part)

    @property
    def written(self) -> str:
        """As a scenario has it."""
        keys = [f"sharing: {self.sharing}", "switching: packetized" if self.switching != "store_and_forward" else "",
                f"transport: {{tcp: {{congestion: {self.tcp}}}}}" if self.tcp else ""]
        return ", ".join(f"`{key}`" for key in keys if key) + ", the losses that happened" * self.lost


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
    repeats: int = 1                    # how often it is deployed
    edges: Sequence[int] = ()           # nodes that are edges, between the clients and the server

    @property
    def name(self) -> str:
        return f"{self.scheme} {self.net.name}{', ' * bool(self.variant)}{self.variant}"

    @property
    def asynchronous(self) -> bool:
        """True if a round ends with whoever comes first: a repeat differs from itself."""
        return self.scheme == "fedbuff"

    @property
    def drawn(self) -> bool:
        """True if one deployment differs from the next: it is judged by its law."""
        return self.asynchronous or bool(self.net.loss)

    @property
    def peers(self) -> bool:
        """True if there is no server."""
        return self.scheme in ("gossip", "adpsgd")

    @property
    def roles(self) -> dict[str, list[int]]:
        """role -> its nodes."""
        if self.peers:
            return {"peer": list(range(self.net.nodes))}
        clients = [i for i in range(1, self.net.nodes) if i not in self.edges]
        return {"server": [0], **({"edge": list(self.edges)} if self.edges else {}), "client": clients}

    def tells_apart(self, model: Model) -> Model:
        """The simplest model that is this one here: windows of connections know whether a link is fair."""
        sharing = model.sharing
        if model.tcp:
            sharing = "tcp_fifo" if self.net.discipline == "tbf" else "connections"
        return replace(model, sharing=sharing, lost=model.lost and bool(self.net.loss))


TCP, REPLAYED = Model(tcp="cubic"), Model(tcp="cubic", lost=True)
PLAIN = Model()                     # without windows
BEST = TCP                          # what docs/fidelity.md recommends
MODELS = (REPLAYED, TCP, PLAIN, Model("maxmin"), Model("fifo", "packetized"))


def vertex_name(i: int) -> str:
    """n1 is the router."""
    return f"n{i + 2}"


def names(case: Case) -> list[str]:
    """Of the nodes, in their order."""
    return [vertex_name(i) for i in range(case.net.nodes)]


def scenario(case: Case, folder: Path, trace: Path | None, model: Model = PLAIN, seed: int = 7,
             replay: Path | None = None) -> str:
    """The scenario; computations take their time from the trace, and nothing where that has none. The graph of the
    network goes into the folder. replay: a record of what the links have lost."""
    net, nodes = case.net, names(case)
    graph = folder / "network.edgelist"
    graph.write_text("".join(f"{vertex_name(net.over(i))} {vertex_name(i)}\n" for i in range(net.vertices)))
    roles = ", ".join(f"{role}: [{', '.join(nodes[i] for i in of)}]" for role, of in case.roles.items())
    slow = [f"{{match: {nodes[i]}, speed: {1 / factor:g}}}" for i, factor in case.slow.items()]
    flower = case.scheme == "flower"
    params = case.params or f"app: {APP}, config: {{num-server-rounds: {case.rounds}}}" * flower
    return "\n".join([
        "emul: 1", f"name: {case.scheme}", f"seed: {seed}",
        f"topology: {{file: {graph}, roles: {{{roles}}}}}",
        "links:", *(f"  - {link}" for link in _links(case, model)),
        *([] if case.train_s else [f"nodes: [{', '.join(slow)}]"] if slow else []),
        f"task: {{data: {{set: drawn}}, model: flat, solver: {{sgd: {{lr: 0.1, steps: {case.steps}, batch: 20}}}}}}",
        *(["training: skip"] if case.train_s and not flower else []), "evaluation: {every: 1000000}",
        "compute: {mode: zero}" if trace is None else f"compute: {{trace: {trace}, take: in order, default: zero}}",
        f"schemes: [{{name: {case.scheme}{', ' * bool(params)}{params}}}]",
        *([f"network: {{replay: {replay}}}"] if replay is not None else []), f"stop: {{rounds: {case.rounds}}}", ""])


def _links(case: Case, model: Model) -> list[str]:
    """Rules of the scenario: what all links have in common, then those of each vertex."""
    net = case.net
    switching = model.switching if model.switching == "store_and_forward" else "packetized"
    head = HEADERS[net.device]
    if model.tcp and case.peers and net.kernel.acks:
        head += ACKS[net.device]            # as much is received as is sent: acknowledgements take their share
    common = f"sharing: {model.sharing}, switching: {switching}, overhead: {{bytes: {head}, mtu: 1448 B}}"
    if model.tcp:
        held = net.buffer if net.discipline == "tbf" else net.queue * FRAME
        several = f", connections: {model.connections}" * (model.connections > 1)
        common += f", transport: {{tcp: {{congestion: {model.tcp}, buffer: {held} B{_switched(net.kernel)}{several}}}}}"
    elif net.loss and model.sharing == "fifo":
        common += ", transport: reliable"
    heeds = model.tcp or model.sharing == "fifo"        # flows without windows have no way to send again
    links = [f'{{match: "*", {common}}}']
    for i in range(net.vertices):
        lossy = f", outage: {{model: bernoulli, p: {net.loss:g}, per: packet}}" if loses(net, i) and heeds else ""
        late = f", latency: {(net.delay_ms[i] if net.delay_ms else 0):g} ms"
        one, other = vertex_name(i), vertex_name(net.over(i))
        links += [f'{{match: "{one}->{other}", bandwidth: {net.up_mbit[i]:g} Mbit/s{late}{lossy}}}',
                  f'{{match: "{other}->{one}", bandwidth: {net.down_mbit[i]:g} Mbit/s{late}}}']
    return links


def _switched(kernel: Kernel) -> str:
    """The keys of a scenario for the parts of TCP that the kernel lacks."""
    return (", idle_restart: false" * (not kernel.idle_restart) + ", hystart: false" * (not kernel.hystart)
            + f", initial_window: {kernel.window}" * bool(kernel.window))


def loses(net: Net, vertex: int) -> bool:
    """True if packets are lost on the way up of this vertex."""
    return bool(net.loss) and 0 < vertex < net.nodes


def fingerprint(text: str, folder: Path) -> str:
    """Of a scenario and the files beside it, wherever the folder lies."""
    found = hashlib.sha256(text.replace(str(folder), "").replace(str(APP), "").encode())
    for file in sorted(folder.iterdir()):
        found.update(file.name.encode() + b"\0" + file.read_bytes())
    return found.hexdigest()[:16]


# --- what computations take -----------------------------------------------------------------------------------------

Costs = Mapping[str, Mapping[str, float]]           # role -> label -> seconds


def declared(case: Case, file: Path, costs: Costs | None = None) -> Path | None:
    """The trace of a deployment: each node's trainings differ by a tenth from one to the next, the slow one is slow.
    None: the work is really done. costs: of a prediction, what other computations take, by role and label."""
    if not case.train_s:
        return None
    lines = [(node, "train", training_s(case, i) * (1 + 0.1 * ((i + turn) % 3 - 1)))
             for i, node in enumerate(names(case)) for turn in range(3)]
    lines += [(vertex_name(i), label, seconds) for role, nodes in case.roles.items() for i in nodes
              for label, seconds in (costs or {}).get(role, {}).items() if label != "train"]
    return _write(file, lines)


def training_s(case: Case, node: int) -> float:
    """The declared mean time of a training of a node."""
    return case.train_s * (1 + case.spread * node) * case.slow.get(node, 1.0)


def recorded(case: Case, rows: Sequence[Row], file: Path) -> Path:
    """The trace of an emulation: what each computation of the deployment took, from when it was asked for until its
    role went on."""
    place = names(case)
    return _write(file, [(place[row[2]], row[3], row[4] / 1e9) for row in rows if row[0] == R.COMPUTE])


def replayed(case: Case, lost: Sequence[Sequence[Any]], file: Path) -> Path:
    """The record of a network that loses what the relays of a deployment have dropped."""
    with file.open("w", newline="") as f:
        writer = csv.writer(f)
        writer.writerow(("source", "destination", "what", "round", "k", "value", "sender", "receiver"))
        for vertex, source, target, number, k, which in lost:
            ends = vertex_name(vertex), vertex_name(case.net.over(vertex))
            writer.writerows((*ends, "lost_packet", number, k, one, vertex_name(source), vertex_name(target))
                             for one in which or [""])
    return file


def _write(file: Path, lines: Sequence[tuple[str, str, float]]) -> Path:
    with file.open("w", newline="") as f:
        writer = csv.writer(f)
        writer.writerow(("node", "label", "seconds"))
        writer.writerows((node, label, f"{seconds:.9f}") for node, label, seconds in lines)
    return file
