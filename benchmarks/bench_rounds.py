"""Real seconds a round of FedAvg with 100 clients, no-op and one epoch, against one process without a framework.

Journal on disk, wire format, network model and the evaluation of every round are on. Median of the rounds after the
first; CPU seconds are those of the process tree over the same rounds. Start-up: from the start of the interpreter to
the end of the first round, against a bare `import torch`.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.common import ROOT, Figure, Options, Run, cpu_seconds, main, python, run
from benchmarks.turns import Turn

if TYPE_CHECKING:
    from emul.kernel.state import Kernel

SCENARIO = Path(__file__).with_name("digits.yaml")
PEERS = ROOT / "benchmarks" / "peers"
NO_OP_TARGET_S = 0.05
FLOOR_TARGET = 1.6                          # times faster than the floor, one epoch
START_TARGET = 1.5                          # torch imports: "about one"
FUSE = "fuse={clients: 50, lanes: 2}"       # all of a worker's clients at once, with two workers
_EPOCHS_ROUNDS = {0: 21, 1: 9}


@dataclass(frozen=True)
class Rounds:
    """The report of a contender on its rounds: seconds of each, accuracy after each, and how it was run."""

    per_round: list[float]
    accuracies: list[float]
    cpu_s: float                            # of the process tree, a round after the first
    run: Run
    computed_s: float = 0.0                 # of emul: CPU of what its roles computed, trainings above all, a round

    @property
    def later_s(self) -> float:
        """Median seconds of a round after the first."""
        return median(self.per_round[1:])

    @property
    def rest_s(self) -> float:
        """Wall seconds of everything else: start, first round, end."""
        return self.run.wall_s - sum(self.per_round[1:])


def probe(clients: int, epochs: int, rounds: int, workers: int, sets: Sequence[str] = (), turns: int = 0) -> None:
    """Run the workload once and print a line as the peers' scripts do. turns: rounds of a block, see `Turn`."""
    from emul.cli import options  # as `emul run` begins
    if hasattr(options, "expect_workers"):                                  # `benchmarks.against` has others, too
        options.expect_workers(None, workers)
    from emul.engine import execute, header, pool_of, wire
    from emul.record.journal import Journal
    from emul.scenario import load

    scenario = load(SCENARIO, sets=[f"topology.clients={clients}", f"task.solver.sgd.epochs={epochs}",
                                    f"stop.rounds={rounds}", *sets])
    wired = wire(scenario, *scenario.schemes[0], workers=max(1, workers))
    marks: list[float] = []
    used: list[float] = []
    turn = Turn(turns)

    def mark(kernel: Kernel) -> None:
        if not kernel.round_ended:          # it is told of long rounds in between, too
            return
        if not marks:                       # before the clock is read: looking takes a while
            used.append(cpu_seconds(os.getpid()))
        marks.append(time.monotonic())
        if turn.is_over(len(marks)):        # no evaluation is done while others have their turn
            kernel.port.observation(wired.plan.deciders[0], len(marks))
        turn.ended(len(marks))

    with tempfile.TemporaryDirectory() as folder, pool_of(workers) as pool:
        journal = Journal(Path(folder, "journal"), header(wired))
        begin = time.monotonic()
        outcome = execute(wired, pool, journal, mark)
        journal.close()
        end = time.monotonic()
        used.append(cpu_seconds(os.getpid()))
    per = [b - a for a, b in zip([begin, *marks], marks, strict=False)]
    accuracies = [round(o.values["accuracy"], 4) for o in outcome.observations]
    print(f"EMUL clients={clients} rounds={rounds} first_round_ended={marks[0]:.4f} "
          f"after_last_round={end - marks[-1]:.4f} per_round={[round(s, 4) for s in per]} acc={accuracies} "
          f"cpu={(used[1] - used[0]) / (rounds - 1):.4f} "
          f"computed={sum(one.cpu_ns for one in outcome.timings) / 1e9 / rounds:.4f}")


def emul(clients: int, epochs: int, rounds: int, workers: int = 2, *sets: str) -> Rounds:
    return parse(run(command(clients, epochs, rounds, workers, *sets)))


def command(clients: int, epochs: int, rounds: int, workers: int, *sets: str, turns: int = 0) -> list[str]:
    """The command that runs `probe`."""
    call = f"probe({clients}, {epochs}, {rounds}, {workers}, {sets!r}, {turns})"
    return python(f"from benchmarks.bench_rounds import probe; {call}")


def against_probe(clients: int = 100, rounds: int = 21) -> None:
    """Print seconds of a no-op round after the first, wall and CPU, for `benchmarks.against`."""
    done = emul(clients, 0, rounds)
    print(json.dumps({"no-op round, s": done.later_s, "no-op round, CPU of all, s": done.cpu_s}))


def can_fuse() -> bool:
    """True if scenarios have that key yet."""
    from emul.base.errors import ScenarioError
    from emul.scenario import load

    try:
        load(SCENARIO, sets=[FUSE])
    except ScenarioError:
        return False
    return True


def floor(clients: int, epochs: int, rounds: int, interpreter: str = sys.executable) -> Rounds:
    return parse(run([interpreter, "inproc_floor.py", str(clients), str(rounds)], PEERS, EPOCHS=str(epochs)))


def parse(done: Run) -> Rounds:
    """Read "... per_round=[...] acc=[...] cpu=...".

    Raises ValueError if the rounds used more CPU time than the cores have: then their clock is not that of the wall.
    """
    per_round, accuracies, (cpu_s,) = (_floats(done.output, name) for name in ("per_round", "acc", "cpu"))
    wall_s, used_s, cores = sum(per_round[1:]), cpu_s * (len(per_round) - 1), os.cpu_count() or 1
    if used_s > cores * wall_s + 1:             # a second for what is counted a little before or after
        raise ValueError(f"rounds of {wall_s:.2f} s in all used {used_s:.2f} s of CPU on {cores} cores")
    computed_s = _floats(done.output, "computed")[0] if "computed=" in done.output else 0.0
    return Rounds(per_round, accuracies, cpu_s, done, computed_s)


def _floats(text: str, name: str) -> list[float]:
    return [float(value) for value in re.findall(rf"\b{name}=\[?([\d., e-]*)", text)[-1].split(",")]


def rounds(options: Options) -> Iterable[Figure]:
    yield from _rounds(options)
    yield from start_up(options)


def _rounds(options: Options) -> Iterable[Figure]:
    found: dict[tuple[str, int], list[Rounds]] = {}
    fuse = can_fuse()
    for _ in range(options.repeats):                        # interleaved: a change of load meets everybody
        for epochs, count in _EPOCHS_ROUNDS.items():
            found.setdefault(("emul", epochs), []).append(emul(100, epochs, count))
            found.setdefault(("floor", epochs), []).append(floor(100, epochs, count))
            if fuse and epochs:
                found.setdefault(("fused", epochs), []).append(emul(100, epochs, count, 2, FUSE))
    later = {key: median(r.later_s for r in runs) for key, runs in found.items()}
    yield Figure("no-op round, 100 clients, 2 workers", later["emul", 0], "s", at_most=NO_OP_TARGET_S,
                 note=f"floor {later['floor', 0]:.3f} s; {_said(found['emul', 0])}")
    yield Figure("round of one epoch, 100 clients, 2 workers", later["emul", 1], "s",
                 note=f"floor {later['floor', 1]:.3f} s; {_said(found['emul', 1])}")
    if fuse:
        yield Figure("round of one epoch, 100 clients, 2 workers, fused", later["fused", 1], "s",
                     note=_said(found["fused", 1]))
        yield Figure("one epoch fused, times faster than unfused", later["emul", 1] / later["fused", 1], "x")
    yield Figure("one epoch, times faster than the floor", later["floor", 1] / later["emul", 1], "x",
                 at_least=FLOOR_TARGET)
    ours, theirs = emul(10, 5, 8).accuracies, floor(10, 5, 8).accuracies
    yield Figure("accuracy after 8 rounds, 10 clients, 5 epochs", ours[-1], "",
                 note=f"rounds 1 to 8: {_list(ours)}; floor (other initial weights and shards): {_list(theirs)}")


def start_up(options: Options) -> Iterable[Figure]:
    ours, torch = [], []
    for _ in range(options.repeats + 2):
        torch.append(run(python("import torch")).wall_s)
        done = emul(100, 0, 2).run
        ours.append(_floats(done.output, "first_round_ended")[0] - done.begin)
    yield Figure("start-up until the first round has ended", median(ours), "s")
    yield Figure("start-up, in bare torch imports", median(ours) / median(torch), "x", at_most=START_TARGET,
                 note=f"import torch {median(torch):.2f} s")


def _said(runs: Sequence[Rounds]) -> str:
    left = median(_floats(r.run.output, "after_last_round")[0] for r in runs)
    return (f"CPU of the tree {median(r.cpu_s for r in runs):.3f} s a round; "
            f"evaluations after the last round: {left:.3f} s")


def _list(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.3f}" for value in values)


if __name__ == "__main__":
    main(rounds, text=__doc__)
