"""The predictions of others: seconds a round of a case, by closed formulas, before anything is measured.

`analytic`      sizes over the slowest rate on the way, plus latency; nobody shares a link
`appfl`         APPFL 1.12, `vsim/client_profile.py`: comm_time = 2 * 8 * model_bytes / 1024^2 / bandwidth; a client has
                one bandwidth, here the harmonic mean of up and down, so that there and back take what they take in turn
`feddes`        FedDES (SEC 2025), `simulation/algorithm/FedAvg.cpp`: the server sends one model after another and takes
                one update after another, in the order in which clients are ready. A transfer takes what SimGrid's LV08
                gives a flow alone: 13.01 latency + size / (0.97 bandwidth). FedDES' program needs SimGrid 4; this is
                its formula, without its constants of the server's work (0.05 and 0.17 s), which are of another machine

The first two know a client's cycle: receive, train, send. A synchronous round lasts as long as the longest, a round of
FedBuff as long as K updates take when all clients go on cycling. None knows bytes on the wire: a model is its
parameters, 400 kB.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.deployment.cases import Case, Net, training_s

MODEL_BYTES = 400_000
BUFFERED = 3                        # K of FedBuff, as deployed
EDGE_ROUNDS = 2
LV08_BANDWIDTH, LV08_LATENCY = 0.97, 13.01          # of SimGrid's default network model
Transfer = Callable[[int, int, float], float]       # source, target, bytes -> seconds


def alone_s(net: Net, source: int, target: int, size: float) -> float:
    """The time of a message that meets nobody: its size over the slowest rate, plus the latencies.

    >>> alone_s(Net("x", "htb", [8, 4], [8, 4], [10, 20]), 1, 0, 1_000_000)
    2.03
    """
    links = net.links(source, target)
    return 8 * size / min(net.rate_bps(i, up) for i, up in links) + sum(net.latency_s(i) for i, _ in links)


def analytic(case: Case) -> float:
    """Sizes over rates plus latency."""
    def take(source: int, target: int, size: float) -> float:
        return alone_s(case.net, source, target, size)

    if case.peers:
        n = case.net.nodes
        return max(training_s(case, i) + max(take(j % n, i, MODEL_BYTES) for j in (i - 1, i + 1)) for i in range(n))
    if case.edges:
        return max(take(0, edge, MODEL_BYTES) + take(edge, 0, MODEL_BYTES) + EDGE_ROUNDS * max(
            _cycle_s(case, take, k, edge) for k in case.roles["client"] if case.net.over(k) == edge)
            for edge in case.edges)
    cycles = [_cycle_s(case, take, k) for k in case.roles["client"]]
    return _round_s(case, cycles) + _stages_s(case, take)


def appfl(case: Case) -> float:
    """APPFL's formula on the bytes of the model's state."""
    return _round_s(case, [training_s(case, k) + 2 * 8 * MODEL_BYTES / 1024**2 / _bandwidth_mbit(case.net, k)
                           for k in case.roles.get("client", case.roles.get("peer", []))])


def feddes(case: Case) -> float | None:
    """FedDES' FedAvg; None: it has no such scheme."""
    if case.scheme not in ("fedavg", "flower"):
        return None

    def take(source: int, target: int) -> float:
        links = case.net.links(source, target)
        return (LV08_LATENCY * sum(case.net.latency_s(i) for i, _ in links)
                + 8 * MODEL_BYTES / (LV08_BANDWIDTH * min(case.net.rate_bps(i, up) for i, up in links)))

    now, ready = 0.0, list[tuple[float, int]]()
    for k in case.roles["client"]:
        now += take(0, k)
        ready.append((now + training_s(case, k), k))
    for at, k in sorted(ready):
        now = max(now, at) + take(k, 0)
    return now


def _cycle_s(case: Case, take: Transfer, client: int, server: int = 0) -> float:
    return take(server, client, MODEL_BYTES) + training_s(case, client) + take(client, server, MODEL_BYTES)


def _round_s(case: Case, cycles: Sequence[float]) -> float:
    """Of cycles of all clients: the longest, or as long as K of any clients take."""
    return BUFFERED / sum(1 / cycle for cycle in cycles) if case.asynchronous else max(cycles)


def _stages_s(case: Case, take: Transfer) -> float:
    """Of secure aggregation, beside the models: the way there and back of each further stage; the coded masks of
    LightSecAgg, n shares of d / (U - T) elements of four bytes, there and back by way of the server."""
    stages = {"secagg": 3, "lightsecagg": 2}.get(case.scheme, 0)
    clients = case.roles["client"]
    found = stages * max(take(0, k, 0) + take(k, 0, 0) for k in clients)
    if case.scheme == "lightsecagg":
        n = len(clients)
        shares = n * MODEL_BYTES / (int(0.7 * n) - n // 5)
        found += max(take(k, 0, shares) for k in clients) + max(take(0, k, shares) for k in clients)
    return found


def _bandwidth_mbit(net: Net, client: int) -> float:
    return 2 / (1 / net.up_mbit[client] + 1 / net.down_mbit[client])
