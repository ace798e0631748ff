"""Seconds to load a measured network, to find all routes between a server and 100 clients, and to run FedAvg on it.

Hosts are spread over all places, latencies come from the map. FedAvg: 5 rounds on digits without training, in process.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from statistics import median

from benchmarks.common import ROOT, Figure, Options, main

NETWORKS = ("Geant2012", "Colt", "Kdl")
ROUNDS = 5
TEXT = """
emul: 1
name: bench
seed: 7
topology:
  file: {file}
  latency: distance
  capacity: 1 Gbit/s
  roles:
    server: {{rule: highest_betweenness}}
    client: {{rule: all, count: 100, access: {{latency: 5 ms, bandwidth: 20 Mbit/s}}}}
task: {{data: {{set: digits}}, model: digits_mlp, solver: {{sgd: {{lr: 0.1, steps: 0, batch: 10}}}}}}
compute: {{mode: zero}}
schemes: [fedavg]
stop: {{rounds: {rounds}}}
evaluation: {{every: {rounds}}}
"""


def measured(name: str) -> tuple[float, float, float, float]:
    """(load, all routes, FedAvg, mean hops) of one network."""
    from emul import engine
    from emul.network import build
    from emul.network.graph.roles import by_betweenness
    from emul.record.journal import MemoryJournal
    from emul.scenario import loads
    from emul.workers.twin import Twin

    text = TEXT.format(file=ROOT / "topologies" / f"{name}.graphml", rounds=ROUNDS)
    plan = loads(text)
    by_betweenness.cache_clear()
    begin = time.perf_counter()
    network = build(plan.topology, plan.link_rules, plan.seed)
    built = time.perf_counter()
    (server,), clients = network.roles["server"], network.roles["client"]
    hops = sum(len(network.route(*ends)) - 1 for c in clients for ends in ((server, c), (c, server)))
    routed = time.perf_counter()
    wiring = engine.wire(plan, *plan.schemes[0])
    with Twin() as twin:
        start = time.perf_counter()
        engine.execute(wiring, twin, MemoryJournal(engine.header(wiring)))
        ran = time.perf_counter() - start
    return built - begin, routed - built, ran, hops / 200


def topologies(options: Options) -> Iterable[Figure]:
    measured(NETWORKS[0])                       # imports, the data set
    found = {name: [measured(name) for _ in range(options.repeats)] for name in NETWORKS}
    for name, runs in found.items():
        load, route, ran, hops = (median(column) for column in zip(*runs, strict=True))
        yield Figure(f"{name}: load and choose the server", load, "s")
        yield Figure(f"{name}: routes of 100 clients, both ways", route, "s", note=f"{hops:.1f} hops on average")
        yield Figure(f"{name}: FedAvg, {ROUNDS} rounds without training", ran, "s",
                     note=f"{ROUNDS * 200 * hops:,.0f} hops of messages, the first use of every link included")


if __name__ == "__main__":
    main(topologies, text=__doc__)
