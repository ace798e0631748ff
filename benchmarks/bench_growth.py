"""The growth of a run's cost with one of its sizes: four sizes of each law, CPU seconds of the whole run, exponents.

Every run is a process of its own with everything imported before the clock starts: it checks, runs in that process
without training and without computing time, writes its tables. The exponent of a law is that between its last two
sizes, after the seconds of the first size, which are mostly fixed, were taken away. A law whose exponent is 0.15
higher than in the published table has got worse.
"""

from __future__ import annotations

import json
import os
import resource
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import log
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.common import ROOT, Figure, Options, main, python, run

Entries = dict[str, Any]

JITTER = {"match": "*", "latency": {"distribution": "uniform", "mean": "20 ms", "jitter": "5 ms"}}


def federation(clients: int, scheme: str, rounds: int, link: Entries | None = None, **entries: Any) -> Entries:
    """A scenario on a star without training, where computing takes no time."""
    return {"emul": 1, "name": "law", "seed": 1, "topology": {"generator": "star", "clients": clients},
            "links": [link or {"match": "*", "latency": "20 ms"}],
            "task": {"data": {"set": "digits"}, "partition": {"bootstrap": 4}, "model": "logistic",
                     "solver": {"sgd": {"lr": 0.1, "steps": 1, "batch": 4}}},
            "training": "skip", "compute": {"mode": "zero"}, "schemes": [scheme], "stop": {"rounds": rounds}, **entries}


def rules_of_nodes(clients: int) -> Entries:
    plan = federation(clients, "fedavg", 1)
    plan["nodes"] = [{"match": f"client{k}", "speed": 1 + k % 7} for k in range(clients)]
    return plan


def rules_of_links(clients: int) -> Entries:
    plan = federation(clients, "fedavg", 1)
    plan["links"] += [{"match": f"client{k}<->server", "latency": f"{10 + k % 50} ms"} for k in range(clients)]
    return plan


def on_a_ring(peers: int) -> Entries:
    plan = federation(peers, "gossip", 3)
    plan["topology"] = {"generator": "ring", "peers": peers}
    return plan


def tree(clients: int) -> Entries:
    plan = federation(clients, "fedavg", 1, {"match": "*", "latency": "20 ms", "bandwidth": "20 Mbit/s",
                                             "sharing": "maxmin"})
    depth = len(str(clients)) - 1
    plan["topology"] = {"generator": "tree", "branching": 10, "height": depth,
                        "roles": {"server": ["n1"], "client": {"rule": "leaves"}}}
    return plan


def trace(rows: int) -> Entries:
    Path("rates.csv").write_text("t_s,bandwidth_mbps\n" + "".join(f"{k},{1 + k % 97}\n" for k in range(rows)))
    return federation(10, "fedavg", 1, {"match": "*", "latency": "20 ms", "bandwidth": {"trace": "rates.csv"}})


def drawn_trace(rows: int) -> Entries:
    plan = trace(rows)
    plan["topology"]["clients"] = 1_000
    plan["links"][0]["bandwidth"]["take"] = "drawn"
    return plan


def faults_of_links(faults: int) -> Entries:
    plan = federation(1_000, "fedavg", 1)
    plan["faults"] = [{"at": f"{k + 1} ms", "link": "client*->server", "for": "5 s",
                       "set": {"latency": f"{20 + k % 7} ms"}} for k in range(faults)]
    return plan


LIMITED = {"match": "*", "latency": "20 ms", "bandwidth": "20 Mbit/s"}


def traffic_of_clients(clients: int) -> Entries:
    plan = federation(clients, "fedavg", 1, LIMITED)
    plan["traffic"] = [{"link": f"client{k + 1}->server", "name": f"t{k}", "rate": "1 Mbit/s"} for k in range(clients)]
    return plan


def traffic_of_a_link(entries: int) -> Entries:
    plan = federation(10, "fedavg", 1, LIMITED)
    plan["traffic"] = [{"link": "client1->server", "name": f"t{k}", "rate": "1 kbit/s"} for k in range(entries)]
    return plan


@dataclass(frozen=True)
class Law:
    """A scenario for a size. targets: at most these CPU seconds at a size."""

    plan: Callable[[int], Entries]
    sizes: tuple[int, int, int, int]
    targets: tuple[tuple[int, float], ...] = ()


SIZES = (100, 400, 1_600, 6_400)
LAWS = {
    "fedasync, jitter, one update a client": Law(lambda n: federation(n, "fedasync", n, JITTER), SIZES, ((6_400, 4),)),
    "fedbuff, jitter, one update a client": Law(lambda n: federation(n, "fedbuff", n // 10, JITTER), SIZES,
                                                ((6_400, 4),)),
    "fedasync, one update a client": Law(lambda n: federation(n, "fedasync", n), SIZES),
    "fedbuff, one update a client": Law(lambda n: federation(n, "fedbuff", n // 10), SIZES),
    "one rule a client in nodes": Law(rules_of_nodes, SIZES, ((6_400, 4),)),
    "one rule a client in links": Law(rules_of_links, SIZES, ((6_400, 4),)),
    "gossip on a ring, 3 rounds": Law(on_a_ring, SIZES, ((6_400, 6),)),
    "fedavg, 3 rounds": Law(lambda n: federation(n, "fedavg", 3), SIZES),
    "async_diloco, 3 rounds": Law(lambda n: federation(n, "async_diloco", 3), SIZES),
    "sharing maxmin, a tree": Law(tree, (10, 100, 1_000, 10_000)),
    "faults that set 1,000 links": Law(faults_of_links, (3, 10, 30, 100)),
    "one entry a client in traffic": Law(traffic_of_clients, (60, 250, 1_000, 4_000)),
    "entries of traffic on one link": Law(traffic_of_a_link, (40, 160, 640, 2_560)),
    "rows of a trace that 1,000 links draw": Law(drawn_trace, (300, 3_000, 30_000, 300_000)),
    "rows of a bandwidth trace": Law(trace, (1_000, 10_000, 100_000, 1_000_000), ((1_000_000, 3),)),
}


def probe(law: str, size: int) -> None:
    """Run one size of a law once. Print the CPU seconds, the peak of the memory in MB and the run's digest."""
    import emul
    import emul.preview.explain  # all that a run imports late, so that the clock measures work alone

    plan = LAWS[law].plan
    emul.run(plan(LAWS[law].sizes[0]), workers=0, quiet=True)
    scenario = plan(size)
    begin = time.process_time()
    done, = emul.run(scenario, workers=0, quiet=True)
    print(json.dumps([time.process_time() - begin, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                      done.digest]))


def measured(law: str, size: int) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as folder:
        done = run(python(f"from benchmarks.bench_growth import probe; probe({law!r}, {size})"), Path(folder),
                   PYTHONPATH=os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    seconds, megabytes, _ = json.loads(done.output.splitlines()[-1])
    return seconds, megabytes


def growth(options: Options, only: Iterable[str] = tuple(LAWS)) -> Iterable[Figure]:
    for name in only:
        law, seconds, memory = LAWS[name], [], 0.0
        for size in law.sizes:
            each = [measured(name, size) for _ in range(options.repeats)]
            seconds.append(median(cost for cost, _ in each))
            memory = max(each)[1]
        grown = [max(cost - seconds[0], 1e-3) for cost in seconds[-2:]]
        yield Figure(f"{name}: exponent", log(grown[1] / grown[0]) / log(law.sizes[-1] / law.sizes[-2]), "",
                     note=f"{' / '.join(map(str, law.sizes))}: {' / '.join(f'{cost:.3g}' for cost in seconds)} s, "
                          f"{memory:.0f} MB")
        for size, target in law.targets:
            yield Figure(f"{name}: {size:,}", seconds[law.sizes.index(size)], "s", at_most=target)


if __name__ == "__main__":
    main(growth, text=__doc__)
