"""Measure what computations cost, and write it as a profile."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from emul.engine.costs import PROFILE_VERSION, CostSource
from emul.engine.findings import header
from emul.engine.session import execute, round_of
from emul.engine.wiring import wire
from emul.record import rundir
from emul.record.journal import MemoryJournal
from emul.record.summary import versions
from emul.scenario import Scenario
from emul.workers.pool import Workers

Points = dict[float, list[float]]           # work -> seconds that were measured


class MeasuredCost(NamedTuple):
    """Cost = a + b * work seconds. spread: the quartiles of what was measured over that. alike: the other entries that
    are of the same computation and cost the same."""

    a: float
    b: float
    spread: tuple[float, float]
    alike: tuple[str, ...] = ()


def profile(scenario: Scenario, path: Path, *, plugins: Sequence[str] = (), repeat: int = 3,
            tell: Callable[[str], None] = lambda step: None) -> dict[str, MeasuredCost]:
    """Measure every computation of every scheme of a scenario, one after the other, and write a profile.

    Cost = a + b * work seconds, a least-squares line through the median measurement of each size of work; b = 0
    where the work does not vary or is not said. Requests that schemes make to the learning task in the same way, such
    as a local training, is one computation: all its measurements together make one cost, or the state of the machine
    while a scheme was measured would decide a comparison. tell: is told how far it has come. Raises RunError.
    """
    points: dict[str, Points] = defaultdict(lambda: defaultdict(list))
    same: dict[str, set[str]] = defaultdict(set)
    with Workers(1, scenario.workers.timeout_s) as pool:
        for number in range(1, repeat + 1):         # in turn: what the machine does meanwhile meets all of them
            for name, raw in scenario.schemes:
                wiring = wire(scenario, name, raw, 1, plugins, CostSource("measured"))
                step = f"{wiring.label}, run {number} of {repeat}"
                tell(step)
                finished = execute(wiring, pool, MemoryJournal(header(wiring)),
                                   partial(round_of, tell, step, scenario.stop.rounds))
                for timing in finished.timings:
                    key = f"{name}/{wiring.plan.roles[timing.node]}/{timing.label}"
                    points[key][timing.work].append(timing.cpu_ns / 1e9)
                    same[key].add(timing.same)
    costs = pooled(points, same)
    rundir.write_json(path, {
        "emul_profile": PROFILE_VERSION, "costs": {key: [found.a, found.b] for key, found in costs.items()},
        "spread": {key: list(found.spread) for key, found in costs.items()},
        "alike": [[key, *found.alike] for key, found in costs.items() if found.alike and key < found.alike[0]],
        "machine": versions()})
    return costs


def pooled(points: Mapping[str, Points], same: Mapping[str, set[str]]) -> dict[str, MeasuredCost]:
    """The costs of entries by what was measured of each. same: what each computes; entries that compute one thing and
    nothing else, and that has a name, get one cost."""
    groups: dict[str, list[str]] = defaultdict(list)
    for key in sorted(points):
        what = min(same[key])
        groups[what if what and len(same[key]) == 1 else f"entry {key}"].append(key)
    costs: dict[str, MeasuredCost] = {}
    for keys in groups.values():
        together: Points = defaultdict(list)
        for key in keys:
            for work, seconds in points[key].items():
                together[work] += seconds
        a, b = fit(together)
        # what was measured over what it is charged; of what is charged nothing 1
        over = [second / (a + b * work) for work, each in together.items() for second in each if a + b * work > 0]
        quartiles = np.quantile(over or [1.0], [0.25, 0.75])
        spread = round(float(quartiles[0]), 4), round(float(quartiles[1]), 4)
        for key in keys:
            costs[key] = MeasuredCost(a, b, spread, tuple(other for other in keys if other != key))
    return dict(sorted(costs.items()))


def fit(points: dict[float, list[float]]) -> tuple[float, float]:
    """(a, b) of seconds = a + b * work, both >= 0, through the medians of each size, weighted by their number."""
    work = np.array(sorted(points))
    seconds = np.array([np.median(points[w]) for w in work])
    weight = np.array([len(points[w]) for w in work], float)
    mean = float(np.average(seconds, weights=weight))
    if len(work) < 2:
        return mean, 0.0
    centre = np.average(work, weights=weight)
    slope = float(np.average((work - centre) * (seconds - mean), weights=weight)
                  / np.average((work - centre) ** 2, weights=weight))
    slope = max(0.0, slope)
    start = mean - slope * float(centre)
    if start < 0:                                   # a line through the origin is the nearest sound one
        return 0.0, float(np.average(work * seconds, weights=weight) / np.average(work * work, weights=weight))
    return start, slope
