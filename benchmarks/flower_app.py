"""A Flower app in emul against Flower's own simulation: python -m benchmarks.flower_app PEER_PYTHON

The app is benchmarks/peers/digits_app, the same on either side: 100 clients, no-op and one epoch. In emul all its
messages are encoded by Flower's own serialisation and cross links with latency and bandwidth; Flower hands them on in
memory. The contenders run in turn. Seconds are those of the rounds after the first, and so are CPU seconds, of the
whole process tree; start-up is everything else: imports, workers or Ray, the first round, the end.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.bench_rounds import PEERS, SCENARIO, Rounds, parse
from benchmarks.common import (
    Figure,
    Options,
    Table,
    arguments,
    keep,
    listed,
    machine_facts,
    measure,
    python,
    run,
    said,
    versions,
)

if TYPE_CHECKING:
    from emul.kernel.state import Kernel

APP = PEERS / "digits_app"
ROUND_TARGETS, START_TARGET = (4.0, 3.0), 0.5   # times faster a round of no epoch and of one; of Flower's start-up
HOSTED, FLOWER = "emul, 2 workers, Flower's app", "Flower, 2 actors"
Contender = Callable[[int, int, int], Rounds]           # (clients, epochs, rounds)


def probe(clients: int, rounds: int, workers: int) -> None:
    """Run the app in emul once and print the line that it writes, and seconds of its rounds by this process's clock.

    The app's own clock shows virtual time there.
    """
    import emul.cli  # noqa: F401, what a user's start costs
    from emul.engine import execute, header, pool_of, wire
    from emul.record.journal import Journal
    from emul.scenario import load

    os.environ["CLOCK_ROOT"] = str(os.getpid())
    marks = [time.monotonic()]

    def mark(kernel: Kernel) -> None:
        if kernel.round_ended:
            marks.append(time.monotonic())

    with tempfile.TemporaryDirectory() as folder:
        said = Path(folder, "said")
        config = {"clients": clients, "num-server-rounds": rounds, "results": str(said)}
        scheme = json.dumps([{"name": "flower", "app": str(APP), "config": config}])
        scenario = load(SCENARIO, sets=[f"topology.clients={clients}", f"schemes={scheme}", f"stop.rounds={rounds}"])
        wired = wire(scenario, *scenario.schemes[0], workers=max(1, workers))
        with pool_of(workers) as pool:
            journal = Journal(Path(folder, "journal"), header(wired))
            execute(wired, pool, journal, mark)
            journal.close()
        print(said.read_text(), f"wall of rounds: per_round={[b - a for a, b in pairwise(marks)]}")


def emul(clients: int, epochs: int, rounds: int) -> Rounds:
    code = f"from benchmarks.flower_app import probe; probe({clients}, {rounds}, 2)"
    path = os.pathsep.join([str(PEERS), os.environ.get("PYTHONPATH", "")])
    return parse(run(python(code), EPOCHS=str(epochs), PYTHONPATH=path))


def flower(interpreter: str) -> Contender:
    return lambda clients, epochs, rounds: parse(
        run([interpreter, "flwr_digits.py", str(clients), str(rounds)], PEERS, EPOCHS=str(epochs)))


def compared(ours: list[Rounds], theirs: list[Rounds], epochs: int) -> Iterable[Figure]:
    """The factor by which emul is faster a round, and its start-up in parts of Flower's; in the notes those of CPU."""
    what = "no-op round" if not epochs else "one epoch"
    ratios = sorted(b.later_s / a.later_s for a, b in zip(ours, theirs, strict=True))
    cpu = median(r.cpu_s for r in theirs) / median(r.cpu_s for r in ours)
    yield Figure(f"{what} of the Flower app, times faster than {FLOWER}",
                 median(r.later_s for r in theirs) / median(r.later_s for r in ours), "x",
                 at_least=ROUND_TARGETS[epochs],
                 note=f"{cpu:.2f} x in CPU seconds; repeats {ratios[0]:.2f} to {ratios[-1]:.2f} x")
    cpu = median(_start_cpu(r) for r in ours) / median(_start_cpu(r) for r in theirs)
    yield Figure(f"start-up of the Flower app, {what}, part of that of {FLOWER}",
                 median(r.rest_s for r in ours) / median(r.rest_s for r in theirs), "x", at_most=START_TARGET,
                 note=f"{cpu:.2f} x in CPU seconds")


def _start_cpu(one: Rounds) -> float:
    """CPU seconds of everything but the rounds after the first."""
    return max(0.01, one.run.cpu_s - one.cpu_s * (len(one.per_round) - 1))


def flower_app(interpreter: str, clients: int, rounds: int) -> Callable[[Options], Iterable[Figure]]:
    def benchmark(options: Options) -> Iterable[Figure]:
        contenders = {HOSTED: emul, FLOWER: flower(interpreter)}
        for epochs in (0, 1):
            found: dict[str, list[Rounds]] = {name: [] for name in contenders}
            for _ in range(options.repeats):
                for name, contend in contenders.items():
                    found[name].append(contend(clients, epochs, rounds))
            for name, runs in found.items():
                yield Figure(f"round, {clients} clients, {epochs} epochs: {name}", median(r.later_s for r in runs), "s",
                             note=_said(runs))
            yield from compared(found[HOSTED], found[FLOWER], epochs)

    return benchmark


def _said(runs: list[Rounds]) -> str:
    return (f"CPU of the tree {median(r.cpu_s for r in runs):.3f} s a round; start-up "
            f"{median(r.rest_s for r in runs):.2f} s, {median(_start_cpu(r) for r in runs):.2f} s of CPU; accuracies "
            f"{', '.join(f'{a:.3f}' for a in runs[0].accuracies)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("python", metavar="PEER_PYTHON")
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=8)
    arguments(parser)
    chosen = parser.parse_args()
    load = os.getloadavg()[0]
    table = Table("flower_app", chosen.repeats, load)
    interpreter = str(Path(chosen.python).absolute())       # run in another folder; a venv's link stays one
    measure(table, flower_app(interpreter, chosen.clients, chosen.rounds), lambda: keep([table], chosen.json))
    print(f"\n{said(machine_facts(), load)}; {listed(versions())}")
    sys.exit(table.error is not None)


if __name__ == "__main__":
    main()
