"""What a round costs beyond its training: FedAvg, 100 clients, five epochs, nothing fused, against training alone.

*Pure training* is `benchmarks/direct.py`: the same local updates by the same code, the same mean and the same
evaluation of every round, in two processes of which each trains half of the clients; it has no kernel, network, journal
or wire format, and its models must have the accuracies of emul's. The *floor* is that of the peers
(`benchmarks/peers/inproc_floor.py`): one process, torch's optimiser and oneDNN's convolutions; against its wall time
emul runs with one worker. Evaluation is within all of them. Rounds after the first; CPU seconds of the process tree.
The least round of each is the one that other load on the machine has disturbed least.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from statistics import median

from benchmarks.bench_rounds import Rounds, emul, floor, parse
from benchmarks.common import Figure, Options, main, run

CLIENTS, EPOCHS, ROUNDS = 100, 5, 6
TARGET = 6                                  # % of wall and of CPU


def direct(processes: int) -> Rounds:
    return parse(run([sys.executable, "-m", "benchmarks.direct", str(CLIENTS), str(EPOCHS), str(ROUNDS),
                      "--processes", str(processes)]))


def against_probe() -> None:
    """Print seconds of a round of five epochs after the first, for `benchmarks.against`."""
    done = emul(CLIENTS, EPOCHS, 2 * ROUNDS, 2)
    print(json.dumps({"round of five epochs, s": done.later_s, "its CPU of all, s": done.cpu_s,
                      "its CPU beyond what roles compute, s": done.cpu_s - done.computed_s}))


def overhead(options: Options) -> Iterable[Figure]:
    found: dict[str, list[Rounds]] = {name: [] for name in ("emul", "direct", "emul 1", "direct 1", "floor")}
    for _ in range(options.repeats):
        found["emul"].append(emul(CLIENTS, EPOCHS, ROUNDS, 2))
        found["direct"].append(direct(2))
        found["emul 1"].append(emul(CLIENTS, EPOCHS, ROUNDS, 1))
        found["direct 1"].append(direct(1))
        found["floor"].append(floor(CLIENTS, EPOCHS, ROUNDS))
    for name, runs in found.items():
        if name != "floor" and any(run.accuracies != found["emul"][0].accuracies for run in runs):
            raise RuntimeError(f"{name}: {runs[0].accuracies} are not emul's {found['emul'][0].accuracies}")
    wall = {name: median(run.later_s for run in runs) for name, runs in found.items()}
    cpu = {name: median(run.cpu_s for run in runs) for name, runs in found.items()}

    def over(what: str, ours: float, theirs: float, names: tuple[str, str], target: float | None = None) -> Figure:
        return Figure(what, 100 * (ours / theirs - 1), "%", at_most=target,
                      note=f"{names[0]} {ours:.3f} s a round, {names[1]} {theirs:.3f} s")

    pure = "pure training in 2 processes"
    yield over(f"wall time over {pure}", wall["emul"], wall["direct"], ("emul, 2 workers", pure), TARGET)
    yield over(f"CPU seconds over {pure}", cpu["emul"], cpu["direct"], ("emul, 2 workers", pure), TARGET)
    least = {name: min(s for run in found[name] for s in run.per_round[1:]) for name in ("emul", "direct")}
    yield over(f"least wall time of a round over that of {pure}", least["emul"], least["direct"],
               ("emul, 2 workers", pure))
    pure = "pure training in 1 process"
    yield over(f"wall time over {pure}", wall["emul 1"], wall["direct 1"], ("emul, 1 worker", pure))
    yield over(f"CPU seconds over {pure}", cpu["emul 1"], cpu["direct 1"], ("emul, 1 worker", pure))
    yield over("wall time over the floor", wall["emul 1"], wall["floor"], ("emul, 1 worker", "floor"), TARGET)
    yield over("CPU seconds over the floor", cpu["emul"], cpu["floor"], ("emul, 2 workers", "floor"), TARGET)


if __name__ == "__main__":
    main(overhead, text=__doc__)
