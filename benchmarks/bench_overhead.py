"""The costs of a round beyond its training: FedAvg, 100 clients, five epochs, nothing fused, against training alone.

*Pure training* is `benchmarks/direct.py`: the same local updates by the same code, the same mean and the same
evaluation of every round, in two processes of which each trains half of the clients; it has no kernel, network, journal
or wire format, and its models must have the accuracies of emul's. Both live side by side and take turns, five rounds
each (`benchmarks/turns.py`); a figure is the median of the ratios of those pairs in which the machine did nothing else
to speak of: load takes a core now from one and now from the other, and makes each CPU second longer. The *floor* is
that of the peers (`benchmarks/peers/inproc_floor.py`): one process, torch's optimiser and oneDNN's convolutions;
against its wall time emul runs with one worker. Evaluation is within all of them. Rounds after the first block; CPU
seconds of the process tree.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from benchmarks.bench_rounds import Rounds, command, emul, floor, parse
from benchmarks.common import Figure, Options, Run, main
from benchmarks.turns import Block, take_turns

CLIENTS, EPOCHS, ROUNDS = 100, 5, 6
BLOCK = 5                                   # rounds of a turn
PAIRS = 12                                  # of turns, with two processes; half as many with one
ENOUGH = 4                                  # calm pairs
TARGET, ONE_TARGET = 5, 4                   # % of wall and of CPU, with two processes and with one


@dataclass
class Pairs:
    """The times of emul and of pure training in turns, and their reports at their ends."""

    emul: list[Block]
    direct: list[Block]
    said: list[Rounds]

    @property
    def all(self) -> list[tuple[Block, Block]]:
        return list(zip(self.emul, self.direct, strict=True))

    @property
    def calm(self) -> list[tuple[Block, Block]]:
        """Those in which nothing else was about."""
        return [pair for pair in self.all if all(block.calm for block in pair)]

    def __add__(self, other: Pairs) -> Pairs:
        return Pairs(self.emul + other.emul, self.direct + other.direct, self.said + other.said)


def pairs(processes: int, count: int) -> Pairs:
    """emul with so many workers and pure training in so many processes, in turns."""
    rounds = BLOCK * (count + 1)
    direct = [sys.executable, "-m", "benchmarks.direct", str(CLIENTS), str(EPOCHS), str(rounds),
              "--processes", str(processes), "--turns", str(BLOCK)]
    (ours, theirs), said = take_turns([command(CLIENTS, EPOCHS, rounds, processes, turns=BLOCK), direct], count)
    return Pairs(ours, theirs, [parse(Run(text, 0.0)) for text in said])


def against_probe() -> None:
    """Print seconds of a round of five epochs after the first, for `benchmarks.against`."""
    done = emul(CLIENTS, EPOCHS, 2 * ROUNDS, 2)
    print(json.dumps({"round of five epochs, s": done.later_s, "its CPU of all, s": done.cpu_s,
                      "its CPU beyond what roles compute, s": done.cpu_s - done.computed_s}))


def overhead(options: Options) -> Iterable[Figure]:
    two, one, floors = Pairs([], [], []), Pairs([], [], []), []
    for _ in range(options.repeats):
        two += pairs(2, PAIRS)
        one += pairs(1, PAIRS // 2)
        floors.append(floor(CLIENTS, EPOCHS, ROUNDS))
    for found in (two, one):
        if any(said.accuracies != found.said[0].accuracies for said in found.said):
            raise RuntimeError("the accuracies of pure training are not emul's: "
                               f"{[said.accuracies for said in found.said[:2]]}")
    pure = "pure training in 2 processes"
    yield _wall(f"wall time over {pure}", two, TARGET)
    yield _cpu(f"CPU seconds over {pure}", two, TARGET)
    ours, theirs = (min(s for said in two.said[place::2] for s in said.per_round[1:]) for place in (0, 1))
    yield _over(f"least wall time of a round over that of {pure}", ours / theirs, ours, theirs)
    pure = "pure training in 1 process"
    yield _wall(f"wall time over {pure}", one, ONE_TARGET)
    yield _cpu(f"CPU seconds over {pure}", one, ONE_TARGET)
    ours = median(block.wall_s for block in one.emul) / BLOCK
    theirs = median(run.later_s for run in floors)
    yield _over("wall time over the floor", ours / theirs, ours, theirs, TARGET, "floor")
    ours = median(block.cpu_s for block in two.emul) / BLOCK
    theirs = median(run.cpu_s for run in floors)
    yield _over("CPU seconds over the floor", ours / theirs, ours, theirs, TARGET, "floor")


def _wall(what: str, found: Pairs, target: float | None = None) -> Figure:
    return _in_turns(what, found, lambda block: block.wall_s, target)


def _cpu(what: str, found: Pairs, target: float | None = None) -> Figure:
    return _in_turns(what, found, lambda block: block.cpu_s, target)


def _in_turns(what: str, found: Pairs, seconds: Callable[[Block], float], target: float | None) -> Figure:
    """By calm pairs. Are these too few all count, and nothing is said of the target."""
    calm = found.calm
    if len(calm) >= ENOUGH:
        chosen, said = calm, f"{len(calm)} calm pairs of {len(found.all)}"
    else:
        chosen, said, target = found.all, f"not calm ({len(calm)} of {len(found.all)} pairs were): no verdict", None
    ratios = [seconds(ours) / seconds(theirs) for ours, theirs in chosen]
    ours, theirs = (median(seconds(pair[place]) for pair in chosen) / BLOCK for place in (0, 1))
    return _over(what, median(ratios), ours, theirs, target, more=f"; {said}; {_quartiles(ratios)}")


def _quartiles(ratios: Sequence[float]) -> str:
    low, _, high = quantiles(ratios, n=4)
    return f"half of them {100 * (low - 1):.1f} to {100 * (high - 1):.1f} %"


def _over(what: str, ratio: float, ours: float, theirs: float, target: float | None = None,
          name: str = "pure training", more: str = "") -> Figure:
    return Figure(what, 100 * (ratio - 1), "%", at_most=target,
                  note=f"emul {ours:.3f} s a round, {name} {theirs:.3f} s{more}")


if __name__ == "__main__":
    main(overhead, text=__doc__)
