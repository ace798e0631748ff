"""Measure what computations cost, and write it as a profile."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from emul.engine.costs import PROFILE_VERSION, CostSource
from emul.engine.findings import header
from emul.engine.running import execute
from emul.engine.wiring import wire
from emul.record import rundir
from emul.record.journal import MemoryJournal
from emul.record.summary import versions
from emul.scenario import Scenario
from emul.workers.pool import Workers


def profile(scenario: Scenario, path: Path, *, plugins: Sequence[str] = (), repeat: int = 3,
            ) -> dict[str, tuple[float, float]]:
    """Measure every computation of every scheme of a scenario, one after the other, and write a profile.

    Cost = a + b * work seconds, a least-squares line through the median measurement of each size of work; b = 0
    where the work does not vary or is not said. Raises RunError.
    """
    measured: dict[str, dict[float, list[float]]] = {}
    with Workers(1, scenario.workers.timeout_s) as pool:
        for name, raw in scenario.schemes:
            for _ in range(repeat):
                wiring = wire(scenario, name, raw, 1, plugins, CostSource("measured"))
                finished = execute(wiring, pool, MemoryJournal(header(wiring)))
                for timing in finished.timings:
                    key = f"{name}/{wiring.plan.roles[timing.node]}/{timing.label}"
                    measured.setdefault(key, {}).setdefault(timing.work, []).append(timing.cpu_ns / 1e9)
    costs = {key: fit(points) for key, points in sorted(measured.items())}
    rundir.write_json(path, {"emul_profile": PROFILE_VERSION, "costs": {k: list(v) for k, v in costs.items()},
                             "machine": versions()})
    return costs


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
