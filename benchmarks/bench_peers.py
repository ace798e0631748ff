"""emul against Flower, pfl and one process without a framework: python -m benchmarks.bench_peers PEER_PYTHON

The contenders run in turn, again and again, so that a change of the machine's load meets all of them. `PEER_PYTHON` is
the interpreter of the peers' environment, see benchmarks/peers/README.md.
"""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median

from benchmarks.bench_rounds import PEERS, Rounds, emul, floor, parse
from benchmarks.common import Figure, Options, report, run

_VERSIONS = ("import importlib.metadata as m\n"
             "print(', '.join(f'{p} {m.version(p)}' for p in ('flwr', 'ray', 'pfl', 'torch', 'numpy')))")
Contender = Callable[[int, int, int], Rounds]           # (clients, epochs, rounds)


def contenders(python: str) -> dict[str, Contender]:
    def script(*command: str) -> Contender:
        return lambda clients, epochs, rounds: parse(
            run([python, *command, str(clients), str(rounds)], PEERS, EPOCHS=str(epochs)))

    torchrun = ("-m", "torch.distributed.run", "--nproc_per_node=2", "--master_addr=127.0.0.1", "--master_port=29511")
    return {
        "floor": lambda clients, epochs, rounds: floor(clients, epochs, rounds, python),
        "emul, 2 workers": emul,
        "pfl, 1 process": script("pfl_digits.py"),
        "pfl, 2 processes": script(*torchrun, "pfl_digits.py"),
        "Flower, 2 actors": script("flwr_digits.py"),
    }


def peers(python: str, clients: int, rounds: int) -> Callable[[Options], Iterable[Figure]]:
    def benchmark(options: Options) -> Iterable[Figure]:
        chosen = contenders(python)
        for epochs in (0, 1):
            found: dict[str, list[Rounds]] = {name: [] for name in chosen}
            for _ in range(options.repeats):
                for name, contend in chosen.items():
                    found[name].append(contend(clients, epochs, rounds))
            yield from _compare(found, f"{clients} clients, {epochs} epochs")

    return benchmark


def _compare(found: dict[str, list[Rounds]], what: str) -> Iterable[Figure]:
    later = {name: median(r.later_s for r in runs) for name, runs in found.items()}
    for name, runs in found.items():
        ratios = ", ".join(f"{later[name] / later[other]:.2f} x {other.partition(',')[0]}"
                           for other in ("floor", "emul, 2 workers") if other != name)
        yield Figure(f"round, {what}: {name}", later[name], "s", note=f"{ratios}; last accuracy "
                     f"{runs[-1].accuracies[-1]:.3f}; start, round 1 and end {median(r.rest_s for r in runs):.2f} s; "
                     f"CPU of the tree {median(r.run.cpu_s for r in runs):.1f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("python", metavar="PEER_PYTHON")
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, metavar="FILE")
    chosen = parser.parse_args()
    python = str(Path(chosen.python).absolute())        # the scripts run in their own folder; a venv's link stays one
    print("peers: " + subprocess.check_output([python, "-c", _VERSIONS], text=True))
    report([peers(python, chosen.clients, chosen.rounds)], Options(chosen.repeats), chosen.json)


if __name__ == "__main__":
    main()
