"""Random patterns of losses against one scheme that hides its inputs: each sum is exact, or given up for a reason.

    python -m benchmarks.loss_patterns --scheme secagg_plus --count 5000 --seed 0

A pattern is a number of clients (5 to 12, one in ten up to 30), parameters, clients that drop out at random stages and
copies of messages that are lost, all drawn by (seed, scheme, number of the pattern); `--only K` runs one of them alone
and says what it was. Rounds are run in this process, with real cryptography and a model of 8 numbers. Exact: every
element of the sum is that of the inputs that it says it has, in the ring or field. Ends with 1 if one was wrong, if
both secrets of a client were given away, or if nobody knows why a round was given up.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from benchmarks.summing import SumOutcome, sums
from emul.base import rows
from emul.base.streams import generator
from emul.schemes.safelearning.groups import DETECTORS

Parameters = dict[str, Any]
BAD = ("wrong", "exposed", "other")


def _pairwise(rng: np.random.Generator) -> Parameters:
    return {"route": str(rng.choice(["direct", "server"])), "weights": str(rng.choice(["uniform", "samples"])),
            "stage_deadline_s": 0.08 if rng.random() < 0.3 else None, "bits": 12}


def _secagg(n: int, rng: np.random.Generator) -> Parameters:
    active = rng.random() < 0.1
    least = n // 2 + 1 if active else 2
    return _pairwise(rng) | {"threshold": int(rng.integers(least, n + 1)),
                             "adversary": "active" if active else "semi_honest"}


def _sparse(rng: np.random.Generator) -> Parameters:
    return _pairwise(rng) | {"small_neighbourhood": str(rng.choice(["abort", "prune"]))}


def _secagg_plus(n: int, rng: np.random.Generator) -> Parameters:
    k = 2 * int(rng.integers(1, min(5, (n - 1) // 2) + 1))
    active = rng.random() < 0.1
    least = (min(k, n - 1) + 1) // 2 + 1 if active else 2
    return _sparse(rng) | {"neighbours": k, "threshold": int(rng.integers(least, min(k, n - 1) + 1)),
                             "adversary": "active" if active else "semi_honest"}


def _ccesa(n: int, rng: np.random.Generator) -> Parameters:
    p = float(rng.uniform(0.4, 0.95))
    return _sparse(rng) | {"p": p, "threshold": int(rng.integers(2, max(2, int(0.7 * p * (n - 1))) + 1))}


def _safelearning(n: int, rng: np.random.Generator) -> Parameters:
    group = int(rng.integers(3, max(3, min(8, n // 2)) + 1))
    return {"group": group, "least": 2, "threshold": int(rng.integers(2, group + 3)),
            "detector": str(rng.choice(["none", "some", "distance"])), "partners": 2,
            "stage_deadline_s": 0.08 if rng.random() < 0.3 else None}


def _coding(rng: np.random.Generator) -> Parameters:
    return {"weights": str(rng.choice(["uniform", "samples"])), "verify_spare": bool(rng.random() < 0.3),
            "stage_deadline_s": 0.08 if rng.random() < 0.3 else None, "bits": 12}


def _coded_mask(rng: np.random.Generator) -> Parameters:
    return _coding(rng) | {"route": str(rng.choice(["direct", "server"])), "offline": bool(rng.random() < 0.5)}


def _lightsecagg(n: int, rng: np.random.Generator) -> Parameters:
    T = int(rng.integers(0, n // 3 + 1))
    return _coded_mask(rng) | {"colluders": T, "answers": int(rng.integers(max(T, n // 2) + 1, n + 1))}


def _fastsecagg(n: int, rng: np.random.Generator) -> Parameters:
    if rng.random() < 0.5:
        return _coded_mask(rng) | {"code": "product", "colluders": int(rng.integers(0, 2))}
    return _lightsecagg(n, rng) | {"code": "rs"}


def _swiftagg_plus(n: int, rng: np.random.Generator) -> Parameters:
    T, D = int(rng.integers(0, 3)), int(rng.integers(0, 3))
    return _coding(rng) | {"colluders": T, "dropouts": D, "segments": int(rng.integers(1, max(1, n - T - D) + 1))}


def _pefl(n: int, rng: np.random.Generator) -> Parameters:
    return {"bits": 256, "variant": str(rng.choice(["full", "lean"])), "real_up_to": int(rng.choice([0, 8])),
            "reject": float(rng.choice([0.0, 0.5])), "deadline_s": 0.08 if rng.random() < 0.3 else None}


def some(means: np.ndarray, limit: float) -> np.ndarray:
    """A detector that flags each group with probability 0.3, drawn by what it sees."""
    return np.random.Generator(np.random.Philox(key=int(1e6 * np.abs(means).sum()))).random(len(means)) < 0.3


DETECTORS["some"] = some

# scheme -> parameters for n clients, drawn; a scheme that is not here runs with its defaults
DRAWN: dict[str, Callable[[int, np.random.Generator], Parameters]] = {
    "secagg": _secagg, "secagg_plus": _secagg_plus, "ccesa": _ccesa, "safelearning": _safelearning,
    "lightsecagg": _lightsecagg, "fastsecagg": _fastsecagg, "swiftagg_plus": _swiftagg_plus,
    "pefl": _pefl}


@dataclass(frozen=True)
class Pattern:
    """The settings of one round."""

    n: int
    params: Parameters
    drops: dict[int, str]                       # client -> the message before which it drops out
    lost: float                                 # probability of each copy


@cache
def stages(scheme: str, params: tuple[tuple[str, Any], ...]) -> tuple[str, ...]:
    """The messages that clients send, in the order in which they first do."""
    seen = sums(scheme, 8, dict(params))
    return tuple(dict.fromkeys(row[5] for row in seen.rows if row[0] == rows.SEND and row[2] in seen.clients))


def pattern(scheme: str, seed: int, number: int) -> Pattern:
    """The pattern of this number."""
    rng = generator(seed, "loss pattern", scheme, number)
    n = int(rng.integers(13, 31) if rng.random() < 0.1 else rng.integers(5, 13))
    params = DRAWN[scheme](n, rng) if scheme in DRAWN else {}
    known = stages(scheme, tuple((key, params[key]) for key in ("route", "adversary") if key in params))
    rate = float(rng.choice([0.0, 0.05, 0.1, 0.2]))
    drops = {i: str(rng.choice(known)) for i in range(1, n + 1) if rng.random() < rate}
    return Pattern(n, params, drops, float(rng.choice([0.0, 0.0, 0.005, 0.02])))


def run(scheme: str, seed: int, number: int) -> tuple[Pattern, SumOutcome]:
    """One round under the pattern of this number."""
    chosen = pattern(scheme, seed, number)
    rng = generator(seed, "lost copies", scheme, number)
    loses = None if not chosen.lost else lambda *_: bool(rng.random() < chosen.lost)
    return chosen, sums(scheme, chosen.n, chosen.params, lost=loses, drops=chosen.drops, seed=number + 1)


def verdicts(scheme: str, seed: int, count: int) -> Iterator[tuple[int, str]]:
    """(number, verdict) of the first `count` patterns."""
    for number in range(count):
        yield number, run(scheme, seed, number)[1].verdict()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scheme", required=True)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="run this pattern alone, and say what it is")
    said = parser.parse_args()
    if said.only is not None:
        chosen, found = run(said.scheme, said.seed, said.only)
        print(chosen, found.verdict(), found.rounds, found.wrong, found.exposed, sep="\n")
        return int(found.verdict() in BAD)
    found_all: Counter[str] = Counter()
    begin = time.process_time()
    for number, verdict in verdicts(said.scheme, said.seed, said.count):
        found_all[verdict] += 1
        if verdict in BAD:
            print(f"pattern {number}: {verdict}")
    cpu = time.process_time() - begin
    print(f"{said.scheme}, seed {said.seed}: {said.count} patterns in {cpu:.0f} s of CPU ({said.count / cpu:.0f}/s): "
          + ", ".join(f"{count} {verdict}" for verdict, count in found_all.most_common()))
    return int(any(found_all[verdict] for verdict in BAD))


if __name__ == "__main__":
    sys.exit(main())
