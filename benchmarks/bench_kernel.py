"""Activations a second: PHOLD with journal and message table, and timers in lockstep.

Every node has 8 links of constant latency, 1 to 10 ms; each activation sends one message over one of them; the loss of
each is drawn. The time is that of the whole run on an open pool, from set-up until `messages.parquet` is written.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import networkx as nx
import numpy as np
import pyarrow.parquet as pq

from benchmarks import lockstep, phold
from benchmarks.common import Figure, Options, main
from emul.engine import Wiring, execute, header, pool_of
from emul.kernel import Plan, StopRule
from emul.network import LinkRule, OutageSpec, RoleRule, TopologySpec, build
from emul.record.columns import columns
from emul.record.journal import Journal, read
from emul.record.tables import messages_of, messages_table
from emul.workers.core import Setup

REACH = 8                                   # links out of a node
SEED = 1
TARGETS = {1_000: 60_000, 10_000: 35_000}   # nodes -> activations a second
LOCKSTEP_TARGET = 100_000
ACTIVATIONS = 200_000                       # about so many in a run
_LATENCY_NS = 1_000_000, 10_000_000


@dataclass(frozen=True)
class Measured:
    activations: int
    run_s: float                            # set-up, run, journal closed
    tables_s: float                         # journal read, message table derived and written
    cpu_s: float                            # of this process, all of it: less than the wall clock says under load
    digest: str

    @property
    def rate(self) -> float:
        return self.activations / (self.run_s + self.tables_s)


def shifts(nodes: int) -> list[int]:
    """Node i has links to (i + shift) mod nodes, a multiple of 10.

    Shifts are 1 modulo 10: another way to a neighbour has 11 links or more, so that the link to it is the shortest way.
    """
    return sorted((1 + 10 * np.random.default_rng(SEED).choice(nodes // 10, REACH, replace=False)).tolist())


def graph(nodes: int) -> nx.DiGraph:
    rng = np.random.default_rng(SEED)
    found = nx.DiGraph()
    found.add_nodes_from((i, {"name": f"peer{i}"}) for i in range(nodes))
    reached = shifts(nodes)
    latencies = rng.integers(*_LATENCY_NS, size=(nodes, REACH)).tolist()
    found.add_edges_from((i, (i + shift) % nodes, {"latency_ns": latency, "bandwidth_bps": 1_000_000_000})
                         for i in range(nodes) for shift, latency in zip(reached, latencies[i], strict=True))
    return found


def phold_for(nodes: int) -> tuple[Any, dict[str, Any], int]:
    """Module, parameters, and the virtual time after which a run has had its activations."""
    mean_ns = sum(_LATENCY_NS) // 2
    return phold, {"shifts": shifts(nodes)}, ACTIVATIONS * mean_ns // nodes


def lockstep_for(nodes: int) -> tuple[Any, dict[str, Any], int]:
    return lockstep, {"period_s": 0.01}, ACTIVATIONS * 10_000_000 // nodes


def wiring(module: Any, params: dict[str, Any], nodes: int, workers: int, virtual_ns: int) -> Wiring:
    """A scheme on that graph, without a learning task."""
    network = build(TopologySpec(graph=graph(nodes), roles={"peer": RoleRule("all")}),
                    [LinkRule("*", outage=OutageSpec(model="bernoulli", p=1e-5, per="message"))], SEED)
    vertices = network.roles["peer"]
    names = [network.names[v] for v in vertices]
    worker_of = [node % workers for node in range(nodes)]
    plan = Plan(names, ["peer"] * nodes, vertices, worker_of, list(range(nodes)), StopRule(virtual_ns=virtual_ns))
    setups = [Setup(worker=w, scheme=module.__name__.rpartition(".")[2], plugins=[module.__name__], params=params,
                    seed=SEED, names=names, roles={"peer": list(range(nodes))}, speeds=[1.0] * nodes,
                    workers=worker_of, behaviours={}, task=None, cost_mode="zero", profile={}, recorded={})
              for w in range(workers)]
    return Wiring(setups[0].scheme, setups[0].scheme, (), module, module.Params(**params), network, plan, setups, [])


def measure(wired: Wiring, pool: Any, table: bool = True) -> Measured:
    """One run, its journal on disk; with `table` the message table, too."""
    gc.collect()                                # what the run before has left is not this one's work
    with tempfile.TemporaryDirectory() as folder:
        begin, cpu = time.perf_counter(), time.process_time()
        journal = Journal(Path(folder, "journal"), header(wired))
        finished = execute(wired, pool, journal)
        digest = journal.close()
        ran = time.perf_counter()
        if table:
            source = read(journal.path)
            found = messages_table(messages_of(columns(source)), source.header)
            pq.write_table(found, Path(folder, "messages.parquet"), compression="zstd")
        return Measured(finished.kernel.activations, ran - begin, time.perf_counter() - ran,
                        time.process_time() - cpu, digest)


def kernel(options: Options) -> Iterable[Figure]:
    digests: dict[tuple[str, int], set[str]] = {}
    for workers in (0, 1, 2):
        where = f"{workers} worker{'s' * (workers > 1)}" if workers else "in process"
        with pool_of(workers) as pool:
            measure(wiring(*_spread(phold_for, 100, workers)), pool)        # the first run imports
            for make, sizes in ((phold_for, TARGETS), (lockstep_for, {1_000: LOCKSTEP_TARGET})):
                for nodes, target in sizes.items():
                    name = "PHOLD" if make is phold_for else "lockstep timers"
                    runs = [measure(wiring(*_spread(make, nodes, workers)), pool, table=make is phold_for)
                            for _ in range(options.repeats)]
                    digests.setdefault((name, nodes), set()).update(r.digest for r in runs)
                    middle = sorted(runs, key=lambda r: r.rate)[len(runs) // 2]
                    yield Figure(f"{name}, {nodes:,} nodes, {where}", median(r.rate for r in runs), "activations/s",
                                 at_least=target, note=f"{middle.activations:,} in {middle.run_s:.2f} s"
                                 + (f" + {middle.tables_s:.2f} s for the table" if make is phold_for else "")
                                 + f"; coordinator's CPU {middle.cpu_s:.2f} s", minor=workers == 0)
                    if workers == 1:
                        yield Figure(f"{name}, {nodes:,} nodes, {where}, by CPU seconds of the coordinator",
                                     median(r.activations / r.cpu_s for r in runs), "activations/s")
    for (name, nodes), found in digests.items():
        if len(found) != 1:
            raise RuntimeError(f"{name}, {nodes} nodes: journals differ with the number of workers")


def _spread(make: Any, nodes: int, workers: int) -> tuple[Any, dict[str, Any], int, int, int]:
    module, params, virtual_ns = make(nodes)
    return module, params, nodes, max(1, workers), virtual_ns


if __name__ == "__main__":
    main(kernel, text=__doc__)
