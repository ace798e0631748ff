"""`emul compare`: every scheme on the same realisations, and what differs between them, seed by seed.

Within a seed all schemes meet the same data, the same initial model and the same fates of links, so the difference of
two schemes on one seed is free of what both share. Its mean over the seeds is compared, with an interval.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from emul import scenario
from emul.base.errors import Problem, ScenarioError
from emul.base.plain import PlainMapping
from emul.study import tables
from emul.study.cells import Cell, cells
from emul.study.directory import Failure, opened, write_study, write_table
from emul.study.runs import StudyOutcome, Where, complete
from emul.study.stats import FEWEST, LEVEL, Interval, holm, interval, seeds_needed

if TYPE_CHECKING:
    import pandas as pd

METRICS: dict[str, tuple[str, str]] = {         # name -> (unit, what it is)
    "accuracy_at_equal_time": ("", "last accuracy observed within the virtual time that the scheme which ended first "
                                   "on this seed took"),
    "accuracy_at_equal_bytes": ("", "last accuracy observed within the bytes that the scheme which sent least on this "
                                    "seed sent"),
    "time_to_target": ("s", "virtual time of the first observation that reaches the target"),
    "bytes_to_target": ("MB", "10^6 bytes on links until then"),
}
LESS_IS_BETTER = ("time_to_target", "bytes_to_target")
TARGET_SHARE = 0.95

Values = dict[str, dict[str, dict[int, float]]]     # metric -> scheme -> seed -> value; a seed without one is missing


@dataclass(frozen=True)
class Comparison:
    """A study of schemes, and what it says. `values` of `METRICS`; `differences` by (metric, scheme, baseline).

    knowing: the schemes whose waits know fates.
    """

    study: StudyOutcome
    schemes: list[str]
    seeds: list[int]
    target: float | None
    target_from: str
    values: Values
    differences: dict[tuple[str, str, str], tuple[Interval, str]]
    knowing: frozenset[str] = frozenset()


def compare(given: scenario.Given, where: Where, *, schemes: Sequence[str] = (), seeds: Sequence[int] | None = None,
            target: float | None = None, sets: Sequence[scenario.Edit] = (), out: Path | None = None) -> Comparison:
    """Run every scheme of a scenario on every seed into `out` (default: `runs/<name>-compare`), and compare them.

    seeds: default those of the section `sweep`, else the scenario's own. target: the accuracy to reach; default
    `stop.accuracy`, else 95 % of the final accuracy of the scheme whose median over the seeds is lowest.
    Raises ScenarioError and StudyError as `emul.study.sweep.sweep` does.
    """
    base = scenario.load(given, sets, plugins=where.plugins)
    if seeds is None:
        seeds = base.sweep.seeds if base.sweep is not None and base.sweep.seeds is not None else [base.seed]
    found = cells(given, {}, seeds, schemes, sets, where.plugins)
    names = list(dict.fromkeys(cell.scheme for cell in found))
    if len(names) < 2:
        raise ScenarioError(scenario.named(given),
                            [Problem("schemes", ", ".join(names), "expected two or more to compare")])
    out = out or Path("runs") / f"{base.name}-compare"

    def save(runs: list[Cell], failed: list[Failure]) -> None:
        write_table(out, "results", tables.results(out, runs))
        write_study(out, "compare", base.name, {}, seeds, runs, failed)

    from emul.study import text  # a circle: the text of a comparison reads what is compared here

    with opened(out, base.name):
        study = complete(out, found, where, save)
        curves = tables.curves(out, study.runs)
        results = tables.results(out, study.runs)
        target, said = choose_target(target, base.stop.accuracy, results)
        values = measure(curves, results, target)
        knowing = frozenset(results[results["oracle_waits"] > 0]["scheme"])
        comparison = Comparison(study, names, list(seeds), target, said, values,
                                differences(values, names, list(seeds), knowing), knowing)
        write_table(out, "curves", curves)
        write_table(out, "metrics", metrics_table(comparison))
        write_table(out, "differences", differences_table(comparison))
        write_study(out, "compare", base.name, {}, seeds, study.runs, study.failed,
                    {"target": target, "target_from": said, "answer": text.answer(comparison)})
    return comparison


def choose_target(given: float | None, stop: float | None, results: pd.DataFrame) -> tuple[float | None, str]:
    """The accuracy to reach, and where it comes from; None if nothing was observed."""
    if given is not None:
        return given, "--target"
    if stop is not None:
        return stop, "stop.accuracy"
    final = results.dropna(subset=["accuracy"]).groupby("scheme")["accuracy"].median()
    if final.empty:
        return None, "no accuracy was observed"
    lowest = str(final.idxmin())
    return (math.floor(TARGET_SHARE * float(final.min()) * 1000) / 1000,
            f"{TARGET_SHARE:.0%} of the median final accuracy of {lowest}, the lowest")


# --- values ---------------------------------------------------------------------------------------------------------

def measure(curves: pd.DataFrame, results: pd.DataFrame, target: float | None) -> Values:
    """Every metric of every run. An accuracy that was not reached, or not yet observed, is missing."""
    values: Values = {metric: {} for metric in METRICS}
    total = {(r.scheme, r.seed): (float(r.virtual_s), r.bytes / 1e6) for r in results.itertuples()}
    least: dict[int, tuple[float, float]] = {}
    for (_, seed), (time, size) in total.items():
        before = least.get(seed, (math.inf, math.inf))
        least[seed] = min(before[0], time), min(before[1], size)
    for (scheme, seed), run in curves.groupby(["scheme", "seed"], sort=False):
        time, size, accuracy = (run[name].to_numpy(float) for name in ("virtual_s", "mb", "accuracy"))
        found = {"accuracy_at_equal_time": last_within(time, accuracy, least[seed][0]),
                 "accuracy_at_equal_bytes": last_within(size, accuracy, least[seed][1])}
        if target is not None:
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
                ) -> dict[tuple[str, str, str], tuple[Interval, str]]:
    """(metric, scheme, baseline) -> mean of scheme - baseline over the seeds that both have, and what to know of it.

    Every pair once, the baseline being the one that comes first in the scenario.
    """
    found = {}
    for metric in METRICS:
        for baseline, scheme in combinations(schemes, 2):
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


@dataclass(frozen=True)
class Judged:
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


def judged(c: Comparison) -> dict[tuple[str, str, str], Judged]:
    """(metric, scheme, baseline) -> the verdict, for those differences that have an interval."""
    found: dict[tuple[str, str, str], Judged] = {}
    for metric in METRICS:
        own = {key: i for key, (i, _) in c.differences.items() if key[0] == metric and i.student is not None}
        adjusted = holm([i.student.p for i in own.values() if i.student is not None])
        for (key, i), p in zip(own.items(), adjusted, strict=True):
            assert i.student is not None
            assert i.mean is not None
            settled = p < 1 - LEVEL
            found[key] = Judged(p, None if settled else seeds_needed(i.mean, i.student.sd, len(own)))
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

    said = judged(c)
    rows = [(*key, found.n, found.mean, found.low, found.high, *_tested(found, said.get(key)), METRICS[key[0]][0], note)
            for key, (found, note) in c.differences.items()]
    return _typed(pd.DataFrame(rows, columns=list(tables.COLUMNS["differences"])), "mean", "low", "high", "t_low",
                  "t_high", "p", "p_holm", "seeds_needed")


def _tested(found: Interval, said: Judged | None) -> tuple[float | None, ...]:
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


def verdict(c: Comparison, metric: str) -> Cheapest | None:
    """The scheme that needs least, of those that reached the target on most seeds; None if nobody did.

    Schemes that reached it more seldom cannot win: where they did not, they would have needed more.
    """
    most = max((reached(c, scheme) for scheme in c.schemes), default=0)
    if most == 0:
        return None
    candidates = {scheme: c.values[metric][scheme] for scheme in c.schemes if reached(c, scheme) == most}
    common = set.intersection(*(set(by_seed) for by_seed in candidates.values()))
    mean = {scheme: np.mean([value for seed, value in by_seed.items() if seed in common or not common])
            for scheme, by_seed in candidates.items()}
    best = min(mean, key=lambda scheme: mean[scheme])
    return Cheapest(metric, best, own(c, metric, best),
                    {scheme: (difference(c, metric, scheme, best), reached(c, scheme))
                     for scheme in c.schemes if scheme != best})


def own(c: Comparison, metric: str, scheme: str) -> Interval:
    """The mean of a scheme itself, over the seeds on which it has a value."""
    return interval(list(c.values[metric].get(scheme, {}).values()), metric, scheme)


def document(c: Comparison) -> PlainMapping:
    """The comparison as plain values, for `--json`."""
    said, tested = {}, judged(c)
    for metric in LESS_IS_BETTER:
        found = verdict(c, metric)
        said[metric] = None if found is None else found.best
    return {"target": c.target, "target_from": c.target_from, "schemes": c.schemes, "seeds": c.seeds,
            "knowing_fates": sorted(c.knowing),
            "reached": {scheme: reached(c, scheme) for scheme in c.schemes}, "least": said,
            "metrics": [{"metric": m, "scheme": s, "seed": seed, "value": v} for m, schemes in c.values.items()
                        for s, seeds in schemes.items() for seed, v in seeds.items()],
            "differences": [{"metric": m, "scheme": s, "baseline": b, "n_seeds": i.n, "mean": i.mean, "low": i.low,
                             "high": i.high,
                             **dict(zip(("t_low", "t_high", "p", "p_holm", "seeds_needed"),
                                        _tested(i, tested.get((m, s, b))), strict=True)),
                             "unit": METRICS[m][0], "note": note}
                            for (m, s, b), (i, note) in c.differences.items()]}
