"""A deployment and its emulation of the same scenario compared: rounds, nodes, bytes, and the fastest case.

Both are rows of a journal; nothing here knows which is which. Times are seconds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from emul.base import rows as R
from emul.base.extras import optional
from emul.base.rows import Row
from emul.message.wire import ENVELOPE_BYTES


def round_times(rows: Sequence[Row], deciders: Collection[int]) -> list[float]:
    """(rounds,): from the end of the round before (or the start) until the last of the deciders has left this one."""
    ends: dict[int, int] = {}
    for row in rows:
        if row[0] == R.LEAVE and row[2] in deciders:
            ends[row[3]] = max(row[1], ends.get(row[3], 0))
    return (np.diff([0, *(ends[number] for number in sorted(ends))]) / 1e9).tolist()


def node_times(rows: Sequence[Row]) -> dict[tuple[int, int], float]:
    """(node, number of its round) -> from when it entered until it left it; only rounds that it has left."""
    entered, found = {}, {}
    for row in rows:
        if row[0] == R.ENTER and row[3]:
            entered[row[2], row[3]] = row[1]
        elif row[0] == R.LEAVE:
            found[row[2], row[3]] = (row[1] - entered[row[2], row[3]]) / 1e9
    return found


def sent_bytes(rows: Sequence[Row], nodes: int) -> list[int]:
    """(nodes,): frames and envelopes of what each has sent to others."""
    found = [0] * nodes
    for row in rows:
        if row[0] == R.SEND and row[2] != row[4]:
            found[row[2]] += row[6] + ENVELOPE_BYTES
    return found


def wire_total(rows: Sequence[Row]) -> int:
    """Bytes of packets on all links, as the emulator counts them: every hop, no acknowledgements."""
    return sum(row[7] if row[0] == R.SEND else row[4] for row in rows if row[0] in (R.SEND, R.HOP))


def errors(emulated: Sequence[float], measured: Sequence[float]) -> np.ndarray:
    """(n,) relative: (emulated - measured) / measured, as far as both go."""
    n = min(len(emulated), len(measured))
    return np.array(emulated[:n]) / np.array(measured[:n]) - 1


def node_errors(emulated: Mapping[tuple[int, int], float], measured: Mapping[tuple[int, int], float]) -> np.ndarray:
    """As `errors`, of the rounds of nodes that both have."""
    both = sorted(measured.keys() & emulated.keys())
    return errors([emulated[key] for key in both], [measured[key] for key in both])


def ranking(means: Mapping[str, float]) -> list[str]:
    """Names, the fastest first."""
    return sorted(means, key=lambda name: means[name])


def swapped(a: Mapping[str, float], b: Mapping[str, float]) -> list[tuple[str, str, float]]:
    """Pairs on whose order a and b differ, with how far apart they are in b, relative."""
    names = ranking(b)
    return [(x, y, b[y] / b[x] - 1) for i, x in enumerate(names) for y in names[i + 1:] if a[x] > a[y]]


def kendall(a: Mapping[str, float], b: Mapping[str, float]) -> float:
    """Kendall's tau of two measurements of the same cases, without ties: 1 where they agree on the order of every pair,
    nan where there is no pair.

    >>> kendall({"x": 1, "y": 2, "z": 3}, {"x": 1, "y": 3, "z": 2})
    0.3333333333333333
    """
    return 1 - 4 * len(swapped(a, b)) / (len(b) * (len(b) - 1)) if len(b) > 1 else float("nan")


def law(times: Sequence[float]) -> list[float]:
    """Quartiles and the 90th percentile."""
    return np.quantile(times, [0.25, 0.5, 0.75, 0.9]).tolist()


def distance(a: Sequence[float], b: Sequence[float]) -> float:
    """Kolmogorov and Smirnov's of two samples: the largest difference of their distribution functions.

    >>> distance([1, 2, 3, 4], [3, 4, 5, 6])
    0.5
    """
    with optional("laws of rounds need", "stats"):
        from scipy.stats import ks_2samp
    return float(ks_2samp(a, b).statistic)


def alike(a: Sequence[float], b: Sequence[float]) -> float:
    """Kolmogorov and Smirnov's p: how likely two samples of one law are that far apart, if rounds were independent.

    >>> alike([1, 2, 3, 4], [1, 2, 3, 4])
    1.0
    """
    with optional("laws of rounds need", "stats"):
        from scipy.stats import ks_2samp
    return float(ks_2samp(a, b).pvalue)


def distances(each: Sequence[Sequence[float]], truth: Sequence[Sequence[float]]) -> list[float]:
    """Of every sample, the distance from all of `truth` but the one at its own place."""
    return [distance(one, [x for j, other in enumerate(truth) if j != i for x in other])
            for i, one in enumerate(each)]
