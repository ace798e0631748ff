"""A round of PPFPL under CKKS, 20 clients: seconds of CPU by label, bytes, and what plain runs state and declare.

Clients of digits hold 2 to 5 classes each and train no step, so that what is measured is the protocol. Seconds are of
one core, as `compute: measured` takes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from statistics import median
from typing import Any

from benchmarks.common import Figure, Options, main
from emul import engine
from emul.base import rows as R
from emul.scenario import loads
from emul.testing.world import run_wiring
from emul.workers.twin import Twin

ROUNDS, CLIENTS = 3, 20
SCENARIO = """
emul: 1
name: bench_ppfpl
seed: 1
topology: {generator: star_mesh, clients: CLIENTS, servers: 3}
links: [{match: "*", latency: 1 ms}]
task:
  data: {set: digits}
  partition: {class_space: {avg: 3, std: 2, shots: 5, test_shots: 5}}
  model: digits_classic
  solver: {sgd: {lr: 0.01, steps: 0}}
compute: {mode: measured}
schemes: [{name: ppfpl, WHAT}]
stop: {rounds: ROUNDS}
evaluation: {every: 1000}
"""
KEYS = ("KeyRequest", "Keys", "NoKeys")
ONCE = ("keygen", "load_keys")


def measured(what: str) -> tuple[Counter[str], Counter[str]]:
    """({role, label: seconds a round, or of what is done once}, {message: bytes of the last round, or of all keys})."""
    text = SCENARIO.replace("CLIENTS", str(CLIENTS)).replace("ROUNDS", str(ROUNDS)).replace("WHAT", what)
    scenario = loads(text, "bench_ppfpl")
    (name, raw), = scenario.schemes
    world = run_wiring(engine.wire(scenario, name, raw), Twin())
    assert not world.summary["rounds_failed"]
    seconds = Counter({f"{role} {label}": total / (1 if label in ONCE else ROUNDS)
                       for role, labels in world.summary["compute_virtual_seconds"].items()
                       for label, total in labels.items() if label != "train"})
    size: Counter[str] = Counter()
    for row in world.rows:
        if row[0] == R.SEND and (row[8] == ROUNDS or row[5] in KEYS):
            size[row[5]] += row[6]
    return seconds, size


def of_round(seconds: Counter[str]) -> float:
    """All labels of a round, together."""
    return sum(value for label, value in seconds.items() if label.split()[1] not in ONCE)


def ppfpl(options: Options) -> Iterable[Figure]:
    for what, targets in (("layout: packed", (4.0, 40.1 * 1.02)), ("compare: max_iter", (None, None)),
                          ("layout: per_class", (None, None))):
        runs = [measured(f"he: ckks, {what}") for _ in range(options.repeats)]
        stated, declared = measured(f"he: plain, {what}")
        seconds = {label: median(found[label] for found, _ in runs) for label in runs[0][0]}
        size = runs[0][1]
        yield Figure(f"{what}, a round", median(of_round(found) for found, _ in runs), "s", at_most=targets[0],
                     note=f"plain runs state {of_round(stated):.2f} s")
        later = {kind: value for kind, value in size.items() if kind not in KEYS}
        bare = sum(later.values()) - later["GlobalPrototypes"]
        yield Figure(f"{what}, bytes of a round", bare / 1e6, "MB", at_most=targets[1],
                     note=f"and {later['GlobalPrototypes'] / 1e6:.2f} MB of global prototypes, not in the first; "
                          f"plain: {abs(sum(declared.values()) - sum(size.values())):,} bytes more or less")
        yield Figure(f"{what}, keys", size["Keys"] / 1e6, "MB", note="once")
        yield from labels(what, seconds, stated)


def labels(what: str, seconds: dict[str, Any], stated: Counter[str]) -> Iterable[Figure]:
    """A figure for each label of one way."""
    for label in sorted(seconds):
        yield Figure(f"{what}, {label}", seconds[label], "s", note=f"plain runs state {stated[label]:.3f} s")


if __name__ == "__main__":
    main(ppfpl, text=__doc__)
