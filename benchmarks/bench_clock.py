"""CPU microseconds of `emul.Clock` for each client and round beyond the loop's own work, which is none here.

100 clients on a star, no training, with blocks as a loop writes them. Sizes are declared, or arrays of 1,000 numbers of
which each client sends its own. The cost of a clock itself, from its making to the end of its first round, is apart.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable
from statistics import median
from typing import Any

import numpy as np

import emul
from benchmarks.common import Figure, Options, main

CLIENTS, ROUNDS = 100, 50
MOST_US = 100.0                             # a client and round
NETWORK: dict[str, Any] = {"emul": 1, "name": "clock", "seed": 1, "topology": {"generator": "star", "clients": CLIENTS},
                           "links": [{"match": "*", "latency": "20 ms", "bandwidth": "20 Mbit/s"}]}


def spent(arrays: bool, out: str) -> tuple[float, float]:
    """(CPU seconds until the first round has ended, of all rounds after it); all threads of the process."""
    model = np.zeros(1000, np.float32)
    updates = [model + k for k in range(CLIENTS)]
    begin = time.process_time()
    clock = emul.Clock(NETWORK, out=out)
    marks = list[float]()
    for _ in range(1 + ROUNDS):
        with clock.round() as now:
            for c, update in zip(clock.clients, updates, strict=True):
                with now.client(c, down=model if arrays else 4000) as at:
                    at.takes(0.1)
                    at.up(update if arrays else 4000)
            now.gather(deadline=10)
        marks.append(time.process_time())
    clock.finish()
    return marks[0] - begin, marks[-1] - marks[0]


def clock(options: Options) -> Iterable[Figure]:
    with tempfile.TemporaryDirectory() as out:
        spent(True, out)                    # imports
        for name, arrays in (("sizes declared", False), ("arrays of 4 kB", True)):
            each = [spent(arrays, out) for _ in range(options.repeats)]
            yield Figure(f"a client and round, {name}", 1e6 * median(later for _, later in each) / (CLIENTS * ROUNDS),
                         "us of CPU", at_most=MOST_US)
        yield Figure("a clock, until its first round has ended", 1e3 * median(first for first, _ in each), "ms of CPU")


if __name__ == "__main__":
    main(clock, text=__doc__)
