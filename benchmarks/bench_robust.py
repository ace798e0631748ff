"""Robust rules on 100 updates of 1,000,000 parameters: seconds of one thread, and memory beside the updates.

float32 normal draws, 400 MB, as n vectors, which no rule copies as a whole. f = 20 malicious where a rule asks. Memory
is the largest resident size during the call, looked at every 5 ms, less that before it. FoolsGold's is its history.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from statistics import median
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.common import Figure, Options, main
from emul.base.streams import generator
from emul.primitives.robust import Aggregation, Chosen, Given, choose

CLIENTS, PARAMETERS = 100, 1_000_000
PAGE = 4096
RULES: tuple[Any, ...] = (
    {"krum": {"f": 20}}, {"multi_krum": {"f": 20}}, "median", {"trimmed_mean": {"f": 20}}, "geometric_median",
    "foolsgold", "fltrust", {"norm_clipping": {"bound": 1}}, {"centred_clipping": {"radius": 1}}, {"bulyan": {"f": 20}})


def resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * PAGE


def measured(rule: Chosen, updates: list[np.ndarray], given: Given) -> tuple[float, int, Aggregation]:
    """(CPU seconds, bytes at most beside the updates, result) of one call."""
    before = most = resident_bytes()
    ended = threading.Event()

    def watch() -> None:
        nonlocal most
        while not ended.wait(0.005):
            most = max(most, resident_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    begin = time.process_time()
    found = rule(updates, given)
    took = time.process_time() - begin
    ended.set()
    watcher.join()
    return took, max(most, resident_bytes()) - before, found


def robust(options: Options) -> Iterable[Figure]:
    updates = [generator(1, "bench/robust", i).standard_normal(PARAMETERS, dtype=np.float32) for i in range(CLIENTS)]
    given = Given(clients=tuple(range(CLIENTS)), reference=updates[0])
    with threadpool_limits(1):
        for written in RULES:
            rule = choose(written)
            runs = [measured(rule, updates, given) for _ in range(options.repeats)]
            yield Figure(rule.name, median(took for took, _, _ in runs), "s",
                         note=f"{max(most for _, most, _ in runs) / 2**20:,.0f} MiB beside the updates; "
                              f"{len(runs[0][2].kept)} of {CLIENTS} kept")


if __name__ == "__main__":
    main(robust, text=__doc__)
