"""emul against Flower, pfl and one process without a framework: python -m benchmarks.bench_peers PEER_PYTHON

The contenders run in turn, again and again, so that a change of the machine's load meets all of them. Seconds are those
of the rounds after the first, and so are CPU seconds, of the whole process tree. `PEER_PYTHON` is the interpreter of
the peers' environment; `make bench-peers` makes it, see benchmarks/peers/README.md.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from statistics import mean, median

from benchmarks import document, flower_app, suite
from benchmarks.bench_rounds import FUSE, PEERS, Rounds, can_fuse, emul, floor, parse
from benchmarks.common import Figure, Options, arguments, run
from benchmarks.flower_app import FLOWER, HOSTED, Contender

_VERSIONS = ("import importlib.metadata as m\n"
             "print(', '.join(f'{p} {m.version(p)}' for p in ('flwr', 'ray', 'pfl', 'torch', 'numpy')))")
NO_OP_TARGET = 15                           # times faster than Flower
FLOWER_TARGET, PFL_TARGET = 12, 2.5         # one epoch fused, times faster than each
ONE_SAMPLE = 1.5 / 297                      # of the accuracy: one test sample, and not two
ACCURACY_TARGET = 0.03
ACCURACY_CLIENTS, ACCURACY_EPOCHS, ACCURACY_ROUNDS = 10, 5, 8
FLOOR, EMUL, FUSED = "floor", "emul, 2 workers", "emul, 2 workers, fused"
PFL = "pfl, 1 process", "pfl, 2 processes"
Found = Mapping[str, list[Rounds]]


def contenders(python: str) -> dict[str, Contender]:
    """The fused one is left out where scenarios cannot say it."""
    def script(*command: str) -> Contender:
        return lambda clients, epochs, rounds: parse(
            run([python, *command, str(clients), str(rounds)], PEERS, EPOCHS=str(epochs)))

    torchrun = ("-m", "torch.distributed.run", "--nproc_per_node=2", "--master_addr=127.0.0.1", "--master_port=29511")
    fused: Contender = lambda clients, epochs, rounds: emul(clients, epochs, rounds, 2, FUSE)       # noqa: E731
    return {
        FLOOR: lambda clients, epochs, rounds: floor(clients, epochs, rounds, python),
        EMUL: emul,
        **({FUSED: fused} if can_fuse() else {}),
        PFL[0]: script("pfl_digits.py"),
        PFL[1]: script(*torchrun, "pfl_digits.py"),
        HOSTED: flower_app.emul,
        FLOWER: flower_app.flower(python),
    }


def peers(python: str, clients: int, rounds: int) -> Callable[[Options], Iterable[Figure]]:
    def benchmark(options: Options) -> Iterable[Figure]:
        chosen = contenders(python)
        for epochs in (0, 1):
            taking_part = {name: contend for name, contend in chosen.items() if epochs or name != FUSED}
            found: dict[str, list[Rounds]] = {name: [] for name in taking_part}
            for _ in range(options.repeats):
                for name, contend in taking_part.items():
                    found[name].append(contend(clients, epochs, rounds))
            yield from _all(found, f"{clients} clients, {epochs} epochs")
            yield from _lead(found, epochs)
        yield from _accuracies({name: contend(ACCURACY_CLIENTS, ACCURACY_EPOCHS, ACCURACY_ROUNDS).accuracies
                                for name, contend in chosen.items()})

    return benchmark


def _wall(found: Found, name: str) -> float:
    return median(r.later_s for r in found[name])


def _cpu(found: Found, name: str) -> float:
    return median(r.cpu_s for r in found[name])


def _all(found: Found, what: str) -> Iterable[Figure]:
    for name, runs in found.items():
        ratios = ", ".join(f"{_wall(found, name) / _wall(found, other):.2f} x {other}"
                           for other in (FLOOR, EMUL) if other != name)
        rest = median(r.rest_s for r in runs)
        yield Figure(f"round, {what}: {name}", _wall(found, name), "s", note=f"{ratios}; CPU of the tree "
                     f"{_cpu(found, name):.3f} s a round; start, round 1 and end {rest:.2f} s")


def _lead(found: Found, epochs: int) -> Iterable[Figure]:
    """The factor by which emul is faster; in the note that of CPU seconds, and of the slowest and fastest repeat."""
    def times(ours: str, theirs: str, at_least: float | None = None) -> Figure:
        ratios = sorted(b.later_s / a.later_s for a, b in zip(found[ours], found[theirs], strict=True))
        what = "no-op round" if not epochs else f"one epoch{' fused' if ours == FUSED else ''}"
        return Figure(f"{what}, times faster than {theirs}", _wall(found, theirs) / _wall(found, ours), "x", at_least,
                      note=f"{_cpu(found, theirs) / _cpu(found, ours):.2f} x in CPU seconds; "
                           f"repeats {ratios[0]:.2f} to {ratios[-1]:.2f} x")

    yield times(EMUL, FLOWER, None if epochs else NO_OP_TARGET)
    for pfl in PFL:
        yield times(EMUL, pfl)
    yield from flower_app.compared(found[HOSTED], found[FLOWER], epochs)
    if FUSED in found:
        yield times(FUSED, FLOWER, FLOWER_TARGET)
        yield times(FUSED, PFL[0])
        yield times(FUSED, PFL[1], PFL_TARGET)


def _accuracies(found: Mapping[str, list[float]]) -> Iterable[Figure]:
    """The peers share shards, initial weights and batches: equal at first but for orders of sums. emul has its own."""
    what = f"{ACCURACY_CLIENTS} clients, {ACCURACY_EPOCHS} epochs"
    for name, values in found.items():
        yield Figure(f"accuracy after {len(values)} rounds, {what}: {name}", values[-1], "",
                     note=f"rounds 1 to {len(values)}: {', '.join(f'{value:.3f}' for value in values)}")
    early = max(abs(a - b) for name in (*PFL, FLOWER, HOSTED)
                for a, b in zip(found[name][:3], found[FLOOR][:3], strict=True))
    yield Figure("accuracy, rounds 1 to 3, largest difference of a peer to the floor", early, "", at_most=ONE_SAMPLE,
                 minor=True, note="the target is one test sample of 297, not two")
    late = {name: mean(values[-3:]) for name, values in found.items()}
    yield Figure("accuracy, mean of the last 3 rounds, largest difference to the floor",
                 max(abs(value - late[FLOOR]) for value in late.values()), "", at_most=ACCURACY_TARGET,
                 note=", ".join(f"{name} {value:.3f}" for name, value in late.items()))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("python", metavar="PEER_PYTHON")
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--write", action="store_true", help="rewrite the table of docs/benchmark-tables.md")
    arguments(parser)
    chosen = parser.parse_args()
    python = str(Path(chosen.python).absolute())        # the scripts run in their own folder; a venv's link stays one
    versions = subprocess.check_output([python, "-c", _VERSIONS], text=True).strip()
    print(f"peers: {versions}")
    return suite.run({suite.APART: peers(python, chosen.clients, chosen.rounds)}, chosen.repeats, chosen.json,
                     document.PAGES if chosen.write else None, {"peers' environment": versions})


if __name__ == "__main__":
    sys.exit(main())
