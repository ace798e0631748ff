"""Networks and schemes that are deployed, in the order in which they are measured: each scheme on every network, then
repeats, then cases of which a part of TCP is taken away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from benchmarks.deployment.cases import ROUTER, Case, Kernel, Net

NODES = 10
SLOW_UP = [30.0, 3, 4, 5, 6, 8, 3, 4, 5, 6]                     # Mbit/s
VARIED = [30.0, 20, 5, 15, 30, 10, 25, 5, 20, 10]               # Mbit/s, each way
NEAR_AND_FAR = [0.5, 0.5, 5, 9, 14, 18, 22.5, 27, 31, 35.5]     # ms to the router: 2 to 72 ms to node 0 and back
LONG = [5.0, 10, 15, 20, 25, 30, 35, 40, 45, 50]                # ms to the router


def equal(name: str, mbit: float, delay_ms: float = 0.0, loss: float = 0.0, nodes: int = NODES) -> Net:
    """Fair queues, all links alike."""
    return Net(name, "htb", [mbit] * nodes, [mbit] * nodes, [delay_ms] * nodes if delay_ms else (), loss)


def one_queue(name: str, mbit: float, delay_ms: float, buffer: int) -> Net:
    """A token bucket with one queue on every link."""
    return Net(name, "tbf", [mbit] * NODES, [mbit] * NODES, [delay_ms] * NODES if delay_ms else (), buffer=buffer)


HTB = equal("htb", 30)
TBF = one_queue("tbf", 20, 0, 150_000)
DSL = Net("dsl", "htb", SLOW_UP, [30, *[12] * (NODES - 1)])
WAN = Net("wan", "htb", [15] * NODES, [15] * NODES, LONG, 0.005)
FAR = Net("far", "htb", VARIED, VARIED, NEAR_AND_FAR)
CLASSES = Net("classes", "htb", [40, *[20] * 9], [40, *[20] * 9], [1, *[1.5] * 5, *[39] * 4])   # RTT 5 and 80 ms
FAT = equal("fat", 100, 25, nodes=6)                            # 100 Mbit/s and 100 ms between any two
LOSSES = [equal("loss0.1", 20, 5, 0.001), equal("loss1", 20, 15, 0.01), equal("loss2", 20, 25, 0.02)]
DEEP = one_queue("deep", 20, 5, 300_000)                        # 50 kB are on their way at 20 Mbit/s and 20 ms
SHALLOW = one_queue("shallow", 20, 5, 40_000)
CABLE = Net("cable", "htb", [30, *[4] * 9], [30, *[25] * 9], [5, *[10] * 9])
TWELVE = Net("twelve", "htb", [30.0, *[20] * 11, 8], [30.0, *[20] * 11, 8], [2, *[4] * 11, 5],
             above=[*[ROUTER] * 6, *[12] * 4, ROUTER, 12, ROUTER], routers=1)       # five behind one link of 8 Mbit/s
THIRTY = Net("thirty", "htb", [60, *[10] * 29], [60, *[10] * 29], [2, *[5] * 29])

NETS = [HTB, WAN, DEEP, FAR, FAT, SHALLOW, CLASSES, *LOSSES, TBF, DSL, TWELVE, CABLE]
SLOWER = {"dsl": 0.6, "cable": 0.6, "twelve": 0.6, "wan": 0.8}      # so many of the rounds: they take longer
ROUNDS = {"fedavg": 5, "gossip": 12, "hierarchical": 5, "secagg": 4, "fedbuff": 12, "lightsecagg": 3, "flower": 4}
PARAMS = {"fedavg": "deadline: 60 s", "secagg": "stage_deadline: 60 s", "gossip": "graph: ring, deadline: 60 s",
          "fedbuff": "buffer: 3", "hierarchical": "edge_rounds: 2, deadline: 60 s, edge_deadline: 60 s",
          "lightsecagg": "stage_deadline: 60 s", "flower": ""}
TRAIN_S = 0.1
REPEATS, OFTEN = 5, 10              # of what is judged by its law: FedBuff everywhere, and these
OFTEN_OF = ("fedavg wan", "gossip wan", "secagg wan", "hierarchical wan",
            "fedavg loss1", "gossip loss1", "secagg loss1", "hierarchical loss1", "fedavg fat")


def below_edges(net: Net, edges: Sequence[int]) -> Net:
    """The same links, clients below the edges that are where they are, by turns."""
    above = []
    for i in range(net.vertices):
        near = [edge for edge in edges if net.over(edge) == net.over(i)]
        above.append(near[i % len(near)] if near and i not in (0, *edges) and i < net.nodes else net.over(i))
    return replace(net, above=above)


def case(scheme: str, net: Net, repeats: int = 1, train_s: float = TRAIN_S, variant: str = "") -> Case:
    """A scheme on a network, as it is deployed."""
    edges = (net.nodes - 2, net.nodes - 1) if scheme == "hierarchical" else ()      # as emul numbers them: at last
    rounds = max(3, round(ROUNDS[scheme] * SLOWER.get(net.name, 1.0)))
    return Case(scheme, below_edges(net, edges) if edges else net, PARAMS[scheme], rounds, train_s,
                spread=0.3 if scheme == "fedbuff" and not variant else 0.0, edges=edges, variant=variant,
                repeats=repeats)


def repeats(scheme: str, net: Net) -> int:
    """The number of deployments of a scheme on a network."""
    if scheme == "fedbuff":
        return REPEATS
    return OFTEN if f"{scheme} {net.name}" in OFTEN_OF else 1


CASES = [case(scheme, net, repeats(scheme, net), 0.4 if scheme == "fedbuff" else TRAIN_S)
         for scheme in ("fedavg", "gossip", "hierarchical", "secagg", "fedbuff", "lightsecagg") for net in NETS]
CASES += [case("flower", net) for net in (HTB, FAR, WAN, DEEP)]
CASES += [case(scheme, THIRTY) for scheme in ("fedavg", "hierarchical")]

TAKEN = ("acknowledgements apart", "no idle restart", "no slow start", "no HyStart", "no loss")


def without(name: str, part: str, kernel: Kernel, lossless: bool = False) -> Case:
    """The case of this name where the kernel lacks a part of TCP, or the network loses nothing."""
    whole = next(case for case in CASES if case.name == name)
    net = replace(whole.net, kernel=kernel, loss=0.0 if lossless else whole.net.loss)
    return replace(whole, net=net, variant=", ".join(filter(None, (whole.variant, part))),
                   repeats=REPEATS if name == "fedavg fat" else 1)


# Each takes away a part of TCP: by so much does that part change a round, measured and emulated.
PARTS = [without(name, part, kernel, lossless) for name, part, kernel, lossless in (
    ("gossip dsl", "acknowledgements apart", Kernel(acks=False), False),
    ("gossip far", "acknowledgements apart", Kernel(acks=False), False),
    ("gossip wan", "no idle restart", Kernel(idle_restart=False), False),
    ("gossip wan", "no loss", Kernel(), True),
    ("fedbuff far", "no slow start", Kernel(idle_restart=False, window=400), False),
    *(("fedavg fat", part, kernel, False) for part, kernel in (
        ("acknowledgements apart", Kernel(acks=False)), ("no idle restart", Kernel(idle_restart=False)),
        ("no HyStart", Kernel(hystart=False)), ("no slow start", Kernel(idle_restart=False, window=400)))))]
