"""Memory a node: (PSS at 10,000 nodes - PSS at 1,000) / 9,000, of the whole process tree at its peak during PHOLD.

Each size runs in an interpreter of its own; what Python needs without any node cancels out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from statistics import median

from benchmarks.bench_kernel import measure, phold_for, wiring
from benchmarks.common import Figure, Options, Sampler, main, pss_bytes, python, run
from emul.engine import pool_of

TARGET = 20_000                             # bytes a node
SMALL, LARGE = 1_000, 10_000
_SHORTER = 2                                # of the activations of the speed benchmark: the peak comes early


def probe(nodes: int, workers: int) -> None:
    """Print the peak of the PSS in bytes. Tables are left out: they grow with messages, not with nodes."""
    module, params, virtual_ns = phold_for(nodes)
    with pool_of(workers) as pool, Sampler(pss_bytes, os.getpid()) as sampler:
        measure(wiring(module, params, nodes, max(1, workers), virtual_ns // _SHORTER), pool, table=False)
    print(int(sampler.peak))


def memory(options: Options) -> Iterable[Figure]:
    for workers in (0, 2):
        small, large = (median(_peak(nodes, workers) for _ in range(options.repeats)) for nodes in (SMALL, LARGE))
        where = f"{workers} workers" if workers else "in process"
        yield Figure(f"memory a node, {where}", (large - small) / (LARGE - SMALL) / 1e3, "kB", at_most=TARGET / 1e3,
                     note=f"PSS {small / 1e6:.0f} MB at {SMALL:,} nodes, {large / 1e6:.0f} MB at {LARGE:,}")


def against_probe() -> None:
    """Print bytes a node, for `benchmarks.against`."""
    peaks = {workers: [_peak(nodes, workers) for nodes in (SMALL, LARGE)] for workers in (0, 2)}
    print(json.dumps({f"{workers} workers, bytes a node": (large - small) / (LARGE - SMALL)
                      for workers, (small, large) in peaks.items()}))


def _peak(nodes: int, workers: int) -> int:
    return int(run(python(f"from benchmarks.bench_memory import probe; probe({nodes}, {workers})")).output)


if __name__ == "__main__":
    main(memory, text=__doc__)
