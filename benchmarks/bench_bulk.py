"""A message of its own from each of 300 nodes to each other: 89,700 a round, sent in bulk (`node.send_each`).

Links of 20 ms and 1 Gbit/s, one for each pair; the loss of each message is drawn. The time is that of the whole run on
an open pool, from set-up until `messages.parquet` is written; the first round makes the links.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from statistics import median

from benchmarks import all_to_all
from benchmarks.bench_kernel import SEED, measure
from benchmarks.common import Figure, Options, main
from emul.engine import Wiring, pool_of
from emul.kernel import Plan, StopRule
from emul.network import LinkRule, OutageSpec, TopologySpec, build
from emul.registry import schemes
from emul.roles import Node
from emul.workers.setup import Setup

NODES, ROUNDS = 300, 4


def wiring(nodes: int, rounds: int, workers: int, bulk: bool = True) -> Wiring:
    network = build(TopologySpec(generator="complete", peers=nodes),
                    [LinkRule("*", latency_ns=20_000_000, bandwidth_bps=1_000_000_000,
                              outage=OutageSpec(model="bernoulli", p=1e-3, per="message"))], SEED)
    vertices = network.roles["peer"]
    names = [network.names[v] for v in vertices]
    worker_of = [node % max(1, workers) for node in range(nodes)]
    plan = Plan(names, ["peer"] * nodes, vertices, worker_of, list(range(nodes)), StopRule(rounds=rounds))
    params = all_to_all.Params(bulk=bulk)
    setups = [Setup(worker=w, scheme="all_to_all", plugins=[all_to_all.__name__], params=asdict(params),
                    seed=SEED, names=names, roles={"peer": list(range(nodes))}, speeds=[1.0] * nodes,
                    worker_of=worker_of, behaviours={}, task=None, cost_mode="zero", profile={}, recorded={})
              for w in range(max(1, workers))]
    scheme = schemes.find(setups[0].scheme, setups[0].plugins)
    return Wiring(scheme, scheme.name, (), params, network, plan, setups, [])


def against_probe(workers: int) -> None:
    """Seconds a message, for `benchmarks.against`: one by one where `emul` sends nothing in bulk."""
    sends_each = hasattr(Node, "send_each")
    with pool_of(workers) as pool:
        measure(wiring(10, 1, workers, sends_each), pool)
        found = measure(wiring(NODES, ROUNDS, workers, sends_each), pool)
    sent = ROUNDS * NODES * (NODES - 1)
    print(json.dumps({"us a message": 1e6 * (found.run_s + found.tables_s) / sent,
                      "us a message, CPU of the coordinator": 1e6 * found.cpu_s / sent}))


def bulk(options: Options) -> Iterable[Figure]:
    digests = set()
    for workers in (0, 1, 2):
        where = f"{workers} worker{'s' * (workers > 1)}" if workers else "in process"
        with pool_of(workers) as pool:
            measure(wiring(10, 1, workers), pool)           # the first run imports
            for rounds in (1, ROUNDS):
                runs = [measure(wiring(NODES, rounds, workers), pool) for _ in range(options.repeats)]
                if rounds > 1:
                    digests |= {r.digest for r in runs}
                sent = rounds * NODES * (NODES - 1)
                yield Figure(f"all to all, {NODES} nodes, {rounds} round{'s' * (rounds > 1)}, {where}",
                             median(sent / (r.run_s + r.tables_s) for r in runs), "messages/s", minor=True,
                             note=f"run {median(r.run_s for r in runs):.2f} s, table "
                                  f"{median(r.tables_s for r in runs):.2f} s; coordinator's CPU "
                                  f"{1e6 * median(r.cpu_s for r in runs) / sent:.1f} us a message")
    if len(digests) != 1:
        raise RuntimeError("journals differ with the number of workers")


if __name__ == "__main__":
    main(bulk, text=__doc__)
