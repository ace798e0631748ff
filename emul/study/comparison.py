"""A comparison of schemes as values: what differs between them, seed by seed, and which of them is best in what.

Within a seed all schemes meet the same data, the same initial model and the same fates of links, so the difference of
two schemes on one seed is free of what both share. Its mean over the seeds is compared, with an interval.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from emul.base.plain import PlainMapping
from emul.study import tables
from emul.study.runs import StudyOutcome
from emul.study.stats import FEWEST, LEVEL, Interval, holm, interval, seeds_needed

if TYPE_CHECKING:
    import pandas as pd

METRICS: dict[str, tuple[str, str]] = {         # name -> (unit, what it is)
    "accuracy_at_equal_time": ("", "last accuracy observed within the virtual time that the scheme which ended first "
                                   "on this seed took, of those with this kind of accuracy"),
    "accuracy_at_equal_bytes": ("", "last accuracy observed within the bytes that the scheme which sent least on this "
                                    "seed sent, of those with this kind of accuracy"),
    "time_to_target": ("s", "virtual time of the first observation that reaches the target"),
    "bytes_to_target": ("MB", "10^6 bytes on links until then"),
}
LESS_IS_BETTER = ("time_to_target", "bytes_to_target")
TARGET_SHARE = 0.95

Values = dict[str, dict[str, dict[int, float]]]     # metric -> scheme -> seed -> value; a seed without one is missing


@dataclass(frozen=True)
class PairedTest:
    """The result of the paired t-test of a difference, among those of all pairs on one metric. p: adjusted by Holm's
    procedure. seeds: the number that would settle a difference of this size; None where it is settled, or where more
    than `emul.study.stats.MOST_SEEDS` would be needed.
    """

    p: float
    seeds: int | None

    @property
    def settled(self) -> bool:
        """True if there is a difference, at the level of the intervals."""
        return self.p < 1 - LEVEL


@dataclass(frozen=True)
class Comparison:
    """A study of schemes, and what it says. `values` of `METRICS`; `differences` by (metric, scheme, baseline).

    targets: scheme -> the accuracy to reach. accuracy_of: scheme -> what its accuracy is of, one of
    `emul.roles.evaluation.KINDS`, of those that have one: only schemes of one kind are compared. knowing:
    the schemes whose waits know fates.
    """

    study: StudyOutcome
    schemes: list[str]
    seeds: list[int]
    targets: dict[str, float]
    target_from: str
    values: Values
    differences: dict[tuple[str, str, str], tuple[Interval, str]]
    accuracy_of: dict[str, str]
    knowing: frozenset[str] = frozenset()
    epsilons: dict[str, str] = field(default_factory=dict)      # scheme -> in total, by observer, of its first seed

    def kinds(self) -> dict[str, list[str]]:
        """Kind of accuracy -> the schemes that have it, in the order of the scenario."""
        return tables.by_kind(self.schemes, self.accuracy_of)

    @cached_property
    def tests(self) -> dict[tuple[str, str, str], PairedTest]:
        """(metric, scheme, baseline) -> the paired t-test, of those differences that have an interval."""
        # Once: the seeds that a test would need are found by a search, and texts ask for each pair again.
        found: dict[tuple[str, str, str], PairedTest] = {}
        for metric in METRICS:
            own = {key: (i.mean, i.student) for key, (i, _) in self.differences.items()
                   if key[0] == metric and i.mean is not None and i.student is not None}
            adjusted = holm([student.p for _, student in own.values()])
            for (key, (mean, student)), p in zip(own.items(), adjusted, strict=True):
                test = PairedTest(p, None)
                found[key] = test if test.settled else replace(test, seeds=seeds_needed(mean, student.sd, len(own)))
        return found

    def test(self, metric: str, scheme: str, other: str) -> PairedTest | None:
        """The test of any two schemes, whichever of them comes first in the scenario; None: there is none."""
        return self.tests.get((metric, scheme, other)) or self.tests.get((metric, other, scheme))


def choose_targets(given: float | None, stop: float | None, results: pd.DataFrame) -> tuple[dict[str, float], str]:
    """Scheme -> the accuracy to reach, and where it comes from; empty if nothing was observed."""
    for value, said in ((given, "--target"), (stop, "stop.accuracy")):
        if value is not None:
            return dict.fromkeys(map(str, results["scheme"]), value), said
    targets: dict[str, float] = {}
    lowest = []
    for _, mine in results.dropna(subset=["accuracy"]).groupby("accuracy_of", sort=False):
        final = mine.groupby("scheme")["accuracy"].median()
        targets |= dict.fromkeys(map(str, final.index), math.floor(TARGET_SHARE * float(final.min()) * 1000) / 1000)
        lowest.append(str(final.idxmin()))
    if not targets:
        return {}, "no accuracy was observed"
    return targets, (f"{TARGET_SHARE:.0%} of the median final accuracy of {' and of '.join(lowest)}, the lowest"
                     + (" of its kind" if len(lowest) > 1 else ""))


# --- values ---------------------------------------------------------------------------------------------------------

def measure(curves: pd.DataFrame, results: pd.DataFrame, targets: Mapping[str, float]) -> Values:
    """Every metric of every run. An accuracy that was not reached, or not yet observed, is missing. targets: by scheme.
    """
    values: Values = {metric: {} for metric in METRICS}
    kinds = tables.kinds_of(results)
    least: dict[tuple[str | None, int], tuple[float, float]] = {}
    for r in results.itertuples():
        place = kinds.get(r.scheme), r.seed
        before = least.get(place, (math.inf, math.inf))
        least[place] = min(before[0], float(r.virtual_s)), min(before[1], r.bytes / 1e6)
    for (scheme, seed), run in curves.groupby(["scheme", "seed"], sort=False):
        time, size, accuracy = (run[name].to_numpy(float) for name in ("virtual_s", "mb", "accuracy"))
        within = least[kinds.get(scheme), seed]
        found = {"accuracy_at_equal_time": last_within(time, accuracy, within[0]),
                 "accuracy_at_equal_bytes": last_within(size, accuracy, within[1])}
        if (target := targets.get(str(scheme))) is not None:
            found["time_to_target"] = first_reaching(accuracy, target, time)
            found["bytes_to_target"] = first_reaching(accuracy, target, size)
        for metric, value in found.items():
            if value is not None:
                values[metric].setdefault(str(scheme), {})[int(seed)] = value
    return values


def last_within(cost: np.ndarray, accuracy: np.ndarray, budget: float) -> float | None:
    """The last accuracy whose cost is at most `budget`; (n,) each, `cost` ascending. None if there is none.

    >>> last_within(np.array([1., 2., 3.]), np.array([.5, .7, .9]), 2.5)
    0.7
    """
    n = int(np.searchsorted(cost, budget * (1 + 1e-12), side="right"))      # a budget that is one of them counts
    return float(accuracy[n - 1]) if n else None


def first_reaching(accuracy: np.ndarray, target: float, cost: np.ndarray) -> float | None:
    """The cost of the first observation of `target` or more; (n,) each. None if there is none.

    >>> first_reaching(np.array([.5, .9, .8]), .8, np.array([1., 2., 3.]))
    2.0
    """
    reached = np.flatnonzero(accuracy >= target)
    return float(cost[reached[0]]) if len(reached) else None


def differences(values: Values, schemes: Sequence[str], seeds: Sequence[int], knowing: Collection[str] = (),
                accuracy_of: Mapping[str, str] = {}) -> dict[tuple[str, str, str], tuple[Interval, str]]:
    """(metric, scheme, baseline) -> mean of scheme - baseline over the seeds that both have, and what to know of it.

    Every pair once whose accuracies are of one kind, the baseline being the one that comes first in the scenario. All
    metrics go by accuracy: times and bytes until two kinds of it reach a number do not compare either.
    """
    found = {}
    for metric in METRICS:
        for baseline, scheme in combinations(schemes, 2):
            if len({accuracy_of.get(baseline), accuracy_of.get(scheme)} - {None}) > 1:
                continue
            a, b = (values[metric].get(name, {}) for name in (scheme, baseline))
            both = [seed for seed in seeds if seed in a and seed in b]
            result = interval([a[seed] - b[seed] for seed in both], metric, scheme, baseline)
            notes = [f"{name} has a value on {len(mine)} of {len(seeds)} seeds"
                     for name, mine in ((scheme, a), (baseline, b)) if len(mine) < len(seeds)]
            if notes and both:
                notes.append(f"compared on the {len(both)} that both have")
            if 0 < len(both) < FEWEST:
                notes.append(f"no interval below {FEWEST} seeds")
            notes += [f"the waits of {name} know fates" for name in (scheme, baseline) if name in knowing]
            found[metric, scheme, baseline] = result, "; ".join(notes)
    return found


# --- tables ---------------------------------------------------------------------------------------------------------

def metrics_table(c: Comparison) -> pd.DataFrame:
    """A row for each metric, scheme and seed, also where a run has no value."""
    import pandas as pd

    rows = [(metric, scheme, seed, c.values[metric].get(scheme, {}).get(seed), unit)
            for metric, (unit, _) in METRICS.items() for scheme in c.schemes for seed in c.seeds]
    return _typed(pd.DataFrame(rows, columns=list(tables.COLUMNS["metrics"])), "value")


def differences_table(c: Comparison) -> pd.DataFrame:
    """A row for each metric, scheme and baseline: n seeds, mean and intervals of the differences, tests, and notes."""
    import pandas as pd

    rows = [(*key, found.n, found.mean, found.low, found.high, *_tested(found, c.tests.get(key)), METRICS[key[0]][0],
             note)
            for key, (found, note) in c.differences.items()]
    return _typed(pd.DataFrame(rows, columns=list(tables.COLUMNS["differences"])), "mean", "low", "high", "t_low",
                  "t_high", "p", "p_holm", "seeds_needed")


def _tested(found: Interval, said: PairedTest | None) -> tuple[float | None, ...]:
    """t_low, t_high, p, p_holm, seeds_needed."""
    if found.student is None or said is None:
        return (None,) * 5
    return found.student.low, found.student.high, found.student.p, said.p, said.seeds


def _typed(frame: pd.DataFrame, *names: str) -> pd.DataFrame:
    """A column of nothing but None is one of floats all the same."""
    return frame.astype(dict.fromkeys(names, float))


# --- what it says ---------------------------------------------------------------------------------------------------

def reached(c: Comparison, scheme: str) -> int:
    """Seeds on which a scheme reached the target."""
    return len(c.values["time_to_target"].get(scheme, {}))


def tried(c: Comparison, scheme: str) -> int:
    """Seeds on which a scheme was run: of runs that were made one by one not all have the same."""
    cells = [*c.study.runs, *(failure.cell for failure in c.study.failed)]
    return sum(cell.scheme == scheme for cell in cells) or len(c.seeds)


def difference(c: Comparison, metric: str, scheme: str, baseline: str) -> Interval:
    """The difference of any two schemes, whichever of them comes first in the scenario."""
    if (metric, scheme, baseline) in c.differences:
        return c.differences[metric, scheme, baseline][0]
    return c.differences[metric, baseline, scheme][0].reversed()


@dataclass(frozen=True)
class Cheapest:
    """The scheme that needs least of a metric. `others`: how much more each other one needs, and on how many seeds
    it reached the target."""

    metric: str
    best: str
    own: Interval
    others: dict[str, tuple[Interval, int]]


def verdict(c: Comparison, metric: str, schemes: Sequence[str]) -> Cheapest | None:
    """The scheme that needs least, of those that reached the target on most seeds; None if nobody did. schemes: those
    of one kind of accuracy.

    Schemes that reached it more seldom cannot win: where they did not, they would have needed more.
    """
    most = max((reached(c, scheme) for scheme in schemes), default=0)
    if most == 0:
        return None
    candidates = {scheme: c.values[metric][scheme] for scheme in schemes if reached(c, scheme) == most}
    common = set.intersection(*(set(by_seed) for by_seed in candidates.values()))
    mean = {scheme: np.mean([value for seed, value in by_seed.items() if seed in common or not common])
            for scheme, by_seed in candidates.items()}
    best = min(mean, key=lambda scheme: mean[scheme])
    return Cheapest(metric, best, own(c, metric, best),
                    {scheme: (difference(c, metric, scheme, best), reached(c, scheme))
                     for scheme in schemes if scheme != best})


def own(c: Comparison, metric: str, scheme: str) -> Interval:
    """The mean of a scheme itself, over the seeds on which it has a value."""
    return interval(list(c.values[metric].get(scheme, {}).values()), metric, scheme)


def document(c: Comparison) -> PlainMapping:
    """The comparison as plain values, for `--json`."""
    said = {metric: {kind: found and found.best for kind, schemes in c.kinds().items()
                     for found in [verdict(c, metric, schemes)]} for metric in LESS_IS_BETTER}
    return {"targets": c.targets, "target_from": c.target_from, "schemes": c.schemes, "seeds": c.seeds,
            "accuracy_of": c.accuracy_of,
            "knowing_fates": sorted(c.knowing),
            "reached": {scheme: reached(c, scheme) for scheme in c.schemes}, "least": said,
            "metrics": [{"metric": m, "scheme": s, "seed": seed, "value": v} for m, schemes in c.values.items()
                        for s, seeds in schemes.items() for seed, v in seeds.items()],
            "differences": [{"metric": m, "scheme": s, "baseline": b, "n_seeds": i.n, "mean": i.mean, "low": i.low,
                             "high": i.high,
                             **dict(zip(("t_low", "t_high", "p", "p_holm", "seeds_needed"),
                                        _tested(i, c.tests.get((m, s, b))), strict=True)),
                             "unit": METRICS[m][0], "note": note}
                            for (m, s, b), (i, note) in c.differences.items()]}
