"""One worker against two: seconds a round of FedAvg with 100 clients, no-op, one epoch and five.

The workload of `bench_rounds`; the runs are interleaved. CPU seconds are those of the process tree. The speed-up is at
most the number of cores, and less where coordinator and workers share them.
"""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from benchmarks.bench_rounds import Rounds, emul
from benchmarks.common import Figure, Options, main

EPOCHS_ROUNDS = {0: 21, 1: 9, 5: 5}
EPOCHS = {0: "no-op", 1: "one epoch", 5: "five epochs"}


def workers(options: Options) -> Iterable[Figure]:
    found: dict[tuple[int, int], list[Rounds]] = {}
    for _ in range(options.repeats):
        for epochs, rounds in EPOCHS_ROUNDS.items():
            for count in (1, 2):
                found.setdefault((epochs, count), []).append(emul(100, epochs, rounds, count))
    for epochs in EPOCHS_ROUNDS:
        if len({tuple(run.accuracies) for count in (1, 2) for run in found[epochs, count]}) != 1:
            raise RuntimeError(f"{epochs} epochs: accuracies differ from run to run or with the number of workers")
        named = EPOCHS[epochs]
        seconds = {count: median(run.later_s for run in found[epochs, count]) for count in (1, 2)}
        for count in (1, 2):
            cpu = median(run.cpu_s for run in found[epochs, count])
            yield Figure(f"round, {named}, {count} worker{'s' * (count > 1)}", seconds[count], "s",
                         note=f"CPU of the tree {cpu:.3f} s a round")
        yield Figure(f"{named}, times faster with 2 workers", seconds[1] / seconds[2], "x")


if __name__ == "__main__":
    main(workers, text=__doc__)
