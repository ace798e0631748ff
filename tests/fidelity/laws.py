"""What the fidelity tests share: standard scores, Poisson arrivals, and a link driven to its end."""

from __future__ import annotations

from math import sqrt

import numpy as np

from emul.base.streams import generator

MS = 10**6
S = 10**9
BYTE_A_NS = 8 * S               # bit/s: with it a size in bytes is a time in ns, and nothing is rounded
FOREVER = 10**18
BATCHES = 20


def batch_z(values, expected, batches=BATCHES):
    """Standard score of the mean of a correlated series: the standard error is that of the means of batches."""
    means = np.array([part.mean() for part in np.array_split(np.asarray(values, dtype=float), batches)])
    return float((means.mean() - expected) / (means.std(ddof=1) / sqrt(batches)))


def mean_z(values, expected, variance=None):
    """Standard score of the mean of independent values; with their known variance, if given."""
    values = np.asarray(values, dtype=float)
    variance = values.var(ddof=1) if variance is None else variance
    return float((values.mean() - expected) / sqrt(variance / len(values)))


def count_z(count, n, p):
    """Standard score of a binomial count."""
    return (count - n * p) / sqrt(n * p * (1 - p))


def poisson_ns(n, mean_ns, *names):
    """n arrival times of a Poisson process in whole ns."""
    return np.cumsum(generator(1, "fidelity/arrivals", *names).exponential(mean_ns, n)).astype(np.int64).tolist()


def sizes_of(law, n, mean, *names):
    """n sizes in whole bytes of a law with this mean."""
    rng = generator(1, "fidelity/sizes", law, *names)
    draws = {"constant": lambda: np.ones(n), "exponential": lambda: rng.exponential(1, n),
             "lognormal": lambda: rng.lognormal(-0.5, 1, n),                # sigma 1: cs^2 = e - 1
             "two point": lambda: np.where(rng.random(n) < 0.1, 5.5, 0.5)}[law]()
    return np.rint(draws * mean).astype(np.int64).tolist()


def through(link, arrivals, sizes):
    """(delivered, lost): {index: when it left or its loss was known}, each offered at its arrival."""
    left = ({}, {})

    def run_until(now):
        while (due := link.next_change()) is not None and due <= now:
            for item, delivered, *_ in link.advance(due):
                left[not delivered][item] = due

    for i, (now, size) in enumerate(zip(arrivals, sizes, strict=True)):
        run_until(now)
        link.offer(now, i, size, 0)
    run_until(FOREVER)
    assert link.in_flight() == []
    return left


def fluid_ends(fluid, arrivals):
    """{item: when it ended, in ns before rounding} of flows (now, item, size, links), ascending in time."""
    ends = {}

    def run_until(now):
        while (due := fluid.next_change()) is not None and due <= now:
            ends.update((done.item, done.exact_ns) for done in fluid.completions(due))

    for now, item, size, links in arrivals:
        run_until(now)
        fluid.start(now, item, size, links)
    run_until(FOREVER)
    return ends
