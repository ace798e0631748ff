"""FedAvg with 100 clients a round, drawn from 100 to a million registered ones: what do those cost that do nothing?

Digits, 15 samples a client drawn with replacement, `digits_cnn`, 20 rounds, 2 workers; journal, tables and invariants
as in every run. Each run has an interpreter of its own. Set-up: from its start to the end of the first round. Exponents
are those of c * N^x, fitted to the logarithms.
"""

from __future__ import annotations

import itertools
import os
import re
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.common import Figure, Options, Pss, Sampler, cpu_seconds, main, python, run

SCENARIO = Path(__file__).with_name("digits.yaml")
REGISTERED = (100, 1_000, 10_000, 100_000, 1_000_000)
SAMPLED = 100
ROUNDS = 20
WHOLE_TARGET_S = 60.0                               # of 10,000 registered
PEAK_TARGET_GIB = {10_000: 4.0, 1_000_000: 4.0}
SET_UP_TARGET_S = {100_000: 60.0, 1_000_000: 30.0}
EXPONENT_TARGET = 0.1                               # of the time a round


@dataclass(frozen=True)
class Large:
    """One run. Seconds: to the end of the first round, of each later one, and of everything."""

    first_s: float
    later: tuple[float, ...]
    whole_s: float
    peak_bytes: float
    cpu_s: float                    # of the process tree, a later round on average

    @property
    def round_s(self) -> float:
        return median(self.later)


def workload(registered: int, rounds: int = ROUNDS) -> list[str]:
    """The edits of `digits.yaml`."""
    return [f"topology.clients={registered}", f"schemes=[{{name: fedavg, fraction: {SAMPLED / registered}}}]",
            "task.partition={bootstrap: 15}", f"stop.rounds={rounds}"]


def probe(sets: Sequence[str], workers: int, rounds: int = ROUNDS) -> None:
    """Run `digits.yaml` with these edits once. Print when each round ended (time.monotonic) and, of the process tree,
    CPU seconds at the ends of the first and the last, and the peak of the PSS."""
    from emul.workers import forks

    forks.begin_ahead()                 # as the command does: torch is imported for the workers beside what follows
    from emul.engine import run
    from emul.scenario import load

    marks: list[float] = []
    cpu: list[float] = []

    def mark(*_: object) -> None:
        marks.append(time.monotonic())
        if len(marks) in (1, rounds):
            cpu.append(cpu_seconds(os.getpid()))

    with Sampler(Pss(), os.getpid()) as sampler, tempfile.TemporaryDirectory() as folder:
        result, = run(load(SCENARIO, sets=sets), workers=workers, out=Path(folder), watch=mark)
    if result.error or result.violations:
        raise RuntimeError(result.error or "; ".join(result.violations))
    print(f"ended={marks} cpu={cpu} peak={sampler.peak}")


def measure(sets: Sequence[str], workers: int = 2, rounds: int = ROUNDS) -> Large:
    done = run(python(f"from benchmarks.bench_large import probe; probe({list(sets)}, {workers}, {rounds})"))
    found = re.search(r"ended=\[(.*)\] cpu=\[(.*)\] peak=(.*)", done.output)
    assert found is not None
    ended, cpu = ([float(value) for value in text.split(",")] for text in found.groups()[:2])
    later = tuple(b - a for a, b in itertools.pairwise(ended))
    return Large(ended[0] - done.begin, later, done.wall_s, float(found[3]), (cpu[-1] - cpu[0]) / max(1, len(later)))


def exponent(sizes: Sequence[int], values: Sequence[float]) -> float:
    """x of the least-squares line log(value) = a + x log(size)."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def large(options: Options) -> Iterable[Figure]:
    found: dict[int, list[Large]] = {n: [] for n in REGISTERED}
    for _ in range(options.repeats):                    # interleaved: a change of load meets every size
        for n in REGISTERED:
            found[n].append(measure(workload(n)))
    rounds = {n: median(r.round_s for r in runs) for n, runs in found.items()}
    peaks = {n: median(r.peak_bytes for r in runs) for n, runs in found.items()}
    cpu = {n: median(r.cpu_s for r in runs) for n, runs in found.items()}
    for n, runs in found.items():
        name = f"{n:,} clients, {SAMPLED} a round"
        yield Figure(f"{name}: until the first round has ended", median(r.first_s for r in runs), "s",
                     at_most=SET_UP_TARGET_S.get(n))
        yield Figure(f"{name}: a later round", rounds[n], "s", note=f"slowest {max(max(r.later) for r in runs):.3f} s")
        yield Figure(f"{name}: {ROUNDS} rounds, start and tables included", median(r.whole_s for r in runs), "s",
                     at_most=WHOLE_TARGET_S if n == 10_000 else None)
        yield Figure(f"{name}: peak PSS of the process tree", peaks[n] / 2**30, "GiB",
                     at_most=PEAK_TARGET_GIB.get(n))
    yield Figure("seconds a round over registered clients, exponent", exponent(REGISTERED, list(rounds.values())), "",
                 at_most=EXPONENT_TARGET, note=_growth(rounds))
    yield Figure("CPU seconds a round over registered clients, exponent", exponent(REGISTERED, list(cpu.values())), "",
                 note=f"{_growth(cpu)}; of the process tree: other load changes it less")
    few, most = REGISTERED[0], REGISTERED[-1]
    yield Figure("memory a registered client", (peaks[most] - peaks[few]) / (most - few) / 1e3, "kB",
                 note=f"of {most:,} against {few:,}; of 10,000: "
                      f"{(peaks[10_000] - peaks[few]) / (10_000 - few) / 1e3:.2f} kB")
    yield Figure("peak PSS over registered clients, exponent", exponent(REGISTERED, list(peaks.values())), "",
                 note=_growth(peaks))


def _growth(values: dict[int, float]) -> str:
    """The growth from the fewest registered clients to the most."""
    few, most = REGISTERED[0], REGISTERED[-1]
    return f"x {values[most] / values[few]:.2f} from {few:,} to {most:,}"


if __name__ == "__main__":
    main(large, text=__doc__)
