"""Savings and costs of the store of trainings: a sweep over networks, a resumed run, storing where nothing is found.

The sweep is `store.yaml` (MNIST, from $EMUL_DATA): 5 latencies x 2 bandwidths x 3 seeds, one training of each seed.
Resumed rounds are those of a run that finds all its trainings; beside them stands the same run with zero epochs, whose
evaluations are found as well. Journal, encoding, network and cryptography are in all of them.
"""

from __future__ import annotations

import csv
import json
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median

from benchmarks.common import Figure, Options, Run, main, run

WORKLOAD, SWEEP = Path(__file__).with_name("digits.yaml"), Path(__file__).with_name("store.yaml")
LARGE = ("task.data={set: cifar10}", "task.model=cinic_cnn", "topology.clients=20", "stop.rounds=3",
         "task.solver.sgd={lr: 0.05, steps: 5, batch: 64}")
_CELLS, _SEEDS = 30, 3


def emul(*words: object, store: Path | None = None) -> Run:
    """A command of emul with two workers and this store, or with none."""
    return run([sys.executable, "-m", "emul", *map(str, words), "--workers", "2", "--quiet"],
               EMUL_STORE="none" if store is None else str(store))


def sweep(scheme: str, folder: Path, store: Path | None, *sets: str) -> tuple[Run, list[dict[str, str]]]:
    """The sweep of one scheme: (what it took, rows of its table without what no two runs share)."""
    out = Path(tempfile.mkdtemp(dir=folder))
    took = emul("sweep", SWEEP, "--schemes", scheme, "--out", out, *_sets(sets), store=store)
    with open(out / "results.csv", encoding="utf-8", newline="") as file:
        rows = [{name: value for name, value in row.items() if not name.startswith("real_")}
                for row in csv.DictReader(file)]
    return took, rows


def _sets(sets: Sequence[str]) -> list[str]:
    return [word for one in sets for word in ("--set", one)]


def sweeps(folder: Path) -> Iterable[Figure]:
    """Each scheme's sweep without and with a store, and the bound that what is not training leaves.

    The bound: of 30 cells 3 train, 27 take what a cell without training takes, evaluations found.
    """
    for scheme, least in (("fedavg", 6.0), ("secagg", 0.0)):
        without, plain = sweep(scheme, folder, None)
        with_store, found = sweep(scheme, folder, folder / scheme)
        if plain != found:
            raise RuntimeError(f"{scheme}: results with the store are other ones")
        idle = folder / f"{scheme}-idle"
        no_training = "task.solver.sgd.steps=0"
        sweep(scheme, folder, idle, no_training)
        bare, _ = sweep(scheme, folder, idle, no_training)
        bound = _CELLS / (_SEEDS + (_CELLS - _SEEDS) * bare.wall_s / without.wall_s)
        gain = without.wall_s / with_store.wall_s
        yield Figure(f"sweep of {_CELLS} cells, {scheme}, without the store", without.wall_s, "s")
        yield Figure(f"sweep of {_CELLS} cells, {scheme}, with it", with_store.wall_s, "s")
        yield Figure(f"the sweep of {scheme} is faster by", gain, "x", at_least=least or None,
                     note=f"bound {bound:.1f} x: a cell without training takes {bare.wall_s / _CELLS:.2f} s")
        yield Figure(f"share of the bound, {scheme}", gain / bound, "", at_least=0.9 if scheme == "secagg" else None)


def rounds_s(scenario: Path, folder: Path, store: Path | None, *sets: str, scheme: str = "fedavg") -> tuple[float, str]:
    """(real seconds of the rounds of a run, its digest)."""
    out = Path(tempfile.mkdtemp(dir=folder))
    emul("run", scenario, "--scheme", scheme, "--out", out, *_sets(sets), store=store)
    (path,) = out.glob("*/summary.json")
    summary = json.loads(path.read_text(encoding="utf-8"))
    return float(summary["real_seconds"]), str(summary["digest"])


def resumed(folder: Path, repeats: int) -> Iterable[Figure]:
    """Rounds whose trainings are found against rounds without training, in turn."""
    for scenario, scheme in ((WORKLOAD, "fedavg"), (SWEEP, "secagg")):
        key = "epochs" if scenario is WORKLOAD else "steps"
        sets, none = ("stop.rounds=30",), f"task.solver.sgd.{key}=0"
        kept, idle = folder / f"resumed-{scheme}", folder / f"none-{scheme}"
        _, digest = rounds_s(scenario, folder, kept, *sets, scheme=scheme)
        rounds_s(scenario, folder, idle, *sets, none, scheme=scheme)
        pairs = []
        for _ in range(repeats):
            found_s, again = rounds_s(scenario, folder, kept, *sets, scheme=scheme)
            if again != digest:
                raise RuntimeError(f"{scheme}: the run that finds its trainings is another one")
            pairs.append(found_s / rounds_s(scenario, folder, idle, *sets, none, scheme=scheme)[0])
        yield Figure(f"{scheme}, trainings found, against zero epochs", median(pairs), "x", at_most=1.3)


def storing(folder: Path, repeats: int) -> Iterable[Figure]:
    """The cost of keeping every training where none is found, in turn."""
    for name, sets in (("3,658 parameters, 100 clients", ()), ("1.2 M parameters, 20 clients", LARGE)):
        pairs = []
        for number in range(repeats):
            kept_s, digest = rounds_s(WORKLOAD, folder, folder / f"new-{name}-{number}", *sets)
            plain_s, plain = rounds_s(WORKLOAD, folder, None, *sets)
            if digest != plain:
                raise RuntimeError("a run with a store is another one than without")
            pairs.append(kept_s / plain_s)
        yield Figure(f"one epoch with a store that has nothing, {name}", median(pairs), "x of without", at_most=1.03)


def store(options: Options) -> Iterable[Figure]:
    with tempfile.TemporaryDirectory(prefix="emul-bench-") as name:
        yield from storing(Path(name), options.repeats)
        yield from resumed(Path(name), options.repeats)
        yield from sweeps(Path(name))


if __name__ == "__main__":
    main(store, text=__doc__)
