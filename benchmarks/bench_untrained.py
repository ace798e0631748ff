"""Times and bytes of 131,072 clients without training (`training: skip`): the size of FedDES' largest runs (SEC 2025).

Digits, `logistic` (650 parameters), links of 20 ms and 20 Mbit/s, no costs of computing, 2 workers; every message is
encoded, carried and journalled, tables and invariants as in every run. Each run has an interpreter of its own; wall
times include its start. Beside them, in one process, 100 rounds of INTELLECT-1: 14 nodes, a model of 10^10 parameters.
"""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from benchmarks.bench_large import Large, measure
from benchmarks.common import ROOT, Figure, Options, main, python, run

CLIENTS, SAMPLED, ROUNDS = 131_072, 100, 1_000
COMMON = [f"topology.clients={CLIENTS}", "training=skip", "compute={mode: zero}", "task.model=logistic",
          "task.partition={bootstrap: 15}"]
ALL_TARGET_S, ALL_TARGET_GIB = 7.0, 2.2              # one synchronous round of all
ROUNDS_TARGET_S = 12.0                              # 1,000 rounds of 100
INTELLECT1 = ROOT / "scenarios" / "internet" / "intellect1.yaml"
INTELLECT1_TARGET_S = 15.0                          # CPU
SCHEMES = {"FedAvg": f"{{name: fedavg, fraction: {SAMPLED / CLIENTS}}}",
           "FedBuff": f"{{name: fedbuff, buffer: {SAMPLED}, concurrency: {2 * SAMPLED}}}"}


def intellect1_s() -> float:
    """CPU seconds of the run alone, in a process that trains nothing."""
    return float(run(python(
        "import time; from pathlib import Path; from emul.testing import run_text; "
        f"text = Path({str(INTELLECT1)!r}).read_text(encoding='utf-8'); begun = time.process_time(); "
        "run_text(text, 'stop.rounds=100'); print(time.process_time() - begun)")).output)


def untrained(options: Options) -> Iterable[Figure]:
    of_all: list[Large] = []
    sampled: dict[str, list[Large]] = {name: [] for name in SCHEMES}
    for _ in range(options.repeats):
        of_all.append(measure([*COMMON, "schemes=[fedavg]", "stop.rounds=1"], rounds=1))
        for name, entry in SCHEMES.items():
            sampled[name].append(measure([*COMMON, f"schemes=[{entry}]", f"stop.rounds={ROUNDS}"], rounds=ROUNDS))
    yield Figure(f"FedAvg, one round of {CLIENTS:,} clients: everything", median(r.whole_s for r in of_all), "s",
                 at_most=ALL_TARGET_S)
    yield Figure(f"FedAvg, one round of {CLIENTS:,} clients: peak PSS of the process tree",
                 median(r.peak_bytes for r in of_all) / 2**30, "GiB", at_most=ALL_TARGET_GIB)
    for name, runs in sampled.items():
        yield Figure(f"{name}, {ROUNDS:,} rounds of {SAMPLED} of {CLIENTS:,}: everything",
                     median(r.whole_s for r in runs), "s", at_most=ROUNDS_TARGET_S)
        yield Figure(f"{name}, {ROUNDS:,} rounds of {SAMPLED} of {CLIENTS:,}: a later round",
                     median(r.round_s for r in runs), "s")
    yield Figure("INTELLECT-1, 14 nodes, 100 rounds: CPU", median(intellect1_s() for _ in range(options.repeats)), "s",
                 at_most=INTELLECT1_TARGET_S)


if __name__ == "__main__":
    main(untrained, text=__doc__)
