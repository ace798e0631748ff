"""Activations a second: PHOLD with journal and message table, and timers in lockstep.

Every node has 8 links of constant latency, 1 to 10 ms; each activation sends one message over one of them; the loss of
each is drawn. The time is that of the whole run on an open pool, from set-up until `messages.parquet` is written.
"""

from __future__ import annotations

import gc
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import networkx as nx
import numpy as np
import pyarrow.parquet as pq

from benchmarks import kernel_parts, lockstep, phold
from benchmarks.common import Figure, Options, cpu_seconds, main
from emul.engine import Wiring, execute, header, pool_of
from emul.kernel import Plan, StopRule
from emul.network import LinkRule, OutageSpec, RoleRule, TopologySpec, build
from emul.record.columns import columns
from emul.record.journal import Journal, read
from emul.record.tables import messages_of, messages_table
from emul.registry import schemes
from emul.workers import collections
from emul.workers.setup import Setup

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
                    worker_of=worker_of, behaviours={}, task=None, cost_mode="zero", profile={}, recorded={})
              for w in range(workers)]
    scheme = schemes.find(setups[0].scheme, setups[0].plugins)
    return Wiring(scheme, scheme.name, (), scheme.params(**params), network, plan, setups, [])


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
            with _as_the_engine_makes_tables():
                source = read(journal.path)
                found = messages_table(messages_of(columns(source)), source.header)
                pq.write_table(found, Path(folder, "messages.parquet"), compression="zstd")
        return Measured(finished.kernel.activations, ran - begin, time.perf_counter() - ran,
                        time.process_time() - cpu, digest)


def _as_the_engine_makes_tables() -> AbstractContextManager[None]:
    """With rare collections of garbage; where `against` puts a revision here that had none for tables, with as many."""
    seldom: Callable[[], AbstractContextManager[None]] = getattr(collections, "seldom", nullcontext)
    return seldom()


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


# --- parts, and probes of one interpreter each ------------------------------------------------------------------------

def placed(nodes: int, workers: int, placement: str, activations: int = ACTIVATIONS) -> Wiring:
    """PHOLD. placement: "crossing", every message goes to another worker; "half": every second one stays."""
    module, params, virtual_ns = phold_for(nodes)
    wired = wiring(module, params, nodes, workers, virtual_ns * activations // ACTIVATIONS)
    if placement == "half":             # shifts are odd, and of either parity halved
        wired.plan.worker_of[:] = [node // 2 % workers for node in range(nodes)]    # type: ignore[index]
        for setup in wired.setups:
            setup.worker_of = list(wired.plan.worker_of)
    return wired


def parts_probe(nodes: int, activations: int = 60_000) -> None:
    """Print CPU us an activation of the kernel alone and of a worker alone, for each placement."""
    found = {}
    for workers, placement in ((1, "crossing"), (2, "crossing"), (2, "half")):
        def wire(workers: int = workers, placement: str = placement) -> Wiring:
            return placed(nodes, workers, placement, activations)

        taped = kernel_parts.tape(wire)
        name = f"{workers} workers, {placement}" if workers > 1 else "1 worker"
        found[f"kernel alone, {name}, us"] = min(kernel_parts.kernel_alone(taped, wire, True) for _ in range(3))
        found[f"worker alone, {name}, us"] = min(kernel_parts.worker_alone(taped) for _ in range(3))
    print(json.dumps(found))


def first_probe(nodes: int) -> None:
    """Print CPU us a link of its first use in the network, and an activation of a kernel that meets all for the first
    time."""
    def wire() -> Wiring:
        return placed(nodes, 1, "crossing", 60_000)

    links = kernel_parts.first_use(wire)
    taped = kernel_parts.tape(wire)
    print(json.dumps({"route and link, us": links,
                      "kernel alone, us an activation": kernel_parts.kernel_alone(taped, wire, False)}))


def table_probe(nodes: int, activations: int = 60_000) -> None:
    """Print CPU us a message of reading the journal, deriving the message table and writing it."""
    wired = placed(nodes, 1, "crossing", activations)
    with tempfile.TemporaryDirectory() as folder, pool_of(0) as pool:
        journal = Journal(Path(folder, "journal"), header(wired))
        execute(wired, pool, journal)
        journal.close()
        spent = []
        for _ in range(3):
            begin = time.process_time()
            source = read(journal.path)
            found = messages_table(messages_of(columns(source)), source.header)
            pq.write_table(found, Path(folder, "messages.parquet"), compression="zstd")
            spent.append(time.process_time() - begin)
    print(json.dumps({"table, us a message": 1e6 * min(spent) / len(found)}))


def run_probe(nodes: int, workers: int, placement: str = "crossing") -> None:
    """Print us an activation of a whole run with its table: wall, CPU of this process, CPU of all."""
    with pool_of(workers) as pool:
        measure(placed(100, max(1, workers), placement), pool)
        before = cpu_seconds(os.getpid())
        found = measure(placed(nodes, max(1, workers), placement), pool)
        tree = cpu_seconds(os.getpid()) - before
    print(json.dumps({"wall, us": 1e6 / found.rate, "coordinator's CPU, us": 1e6 * found.cpu_s / found.activations,
                      "CPU of all, us": 1e6 * tree / found.activations}))


def _spread(make: Any, nodes: int, workers: int) -> tuple[Any, dict[str, Any], int, int, int]:
    module, params, virtual_ns = make(nodes)
    return module, params, nodes, max(1, workers), virtual_ns


if __name__ == "__main__":
    main(kernel, text=__doc__)
