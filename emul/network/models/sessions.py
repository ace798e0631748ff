"""Availability of phones, made by a model: short sessions, more of them at some hours, some nodes there more often.

A node's sessions last log-normal times; between them it is away for exponential times whose rate follows the hour and
the node, so that the share of nodes that are there is about mean (1 + amplitude sin(2 pi t / day)), its maximum a
quarter of a day after the beginning; long sessions flatten that a little. A node's own share is drawn by a beta law
around that of all.

The defaults give what is published of phones that are idle, charging and on WiFi: four times as many are there at the
best hour as at the worst (Bonawitz et al., MLSys 2019, section 9), 70 % of sessions last ten minutes or less (Lai et
al., FedScale, ICML 2022). The rest is ours. It is no measurement of anybody's phones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import NormalDist

from numpy.random import Generator

from emul.base import units
from emul.base.streams import generator
from emul.network.models.churn import Schedule
from emul.network.models.tracetools import Parameter, read_parameters

_SECOND = 10**9
_ALIKE = 3.0            # of the beta law, its two parameters together: the smaller, the more nodes differ
_SHORTEST = _SECOND     # sessions and absences are whole seconds, one at least


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 100_000:
        raise ValueError("expected a whole number from 1 to 100000")
    return int(text)


def _share(text: str) -> float:
    value = float(text)
    if not 0 < value < 1:
        raise ValueError("expected a number above 0, below 1")
    return value


def _duration(text: str) -> int:
    value = units.duration_ns(text)
    if value < _SHORTEST:
        raise ValueError("expected 1 s or more")
    return value


PARAMETERS: dict[str, Parameter] = {
    "nodes": Parameter(_count, "how many; they are called 1, 2, ...", "100"),
    "mean": Parameter(_share, "the share that is there, over a day", "0.25"),
    "amplitude": Parameter(_share, "of that share over the day; 0.7: four times as many at the best hour", "0.7"),
    "short": Parameter(_share, "the share of sessions of ten minutes or less", "0.7"),
    "sigma": Parameter(float, "standard deviation of the logarithm of a session, such as 1.5", "1.5"),
    "day": Parameter(_duration, "after which hours come again, such as 24 h", "24 h"),
    "length": Parameter(_duration, "of the file, which then begins anew", "24 h"),
}


def schedules(given: Mapping[str, str], seed: int) -> dict[str, Schedule]:
    """{node: when it is there} by these parameters, as text. Raises ValueError saying what is expected."""
    p = read_parameters("sessions", PARAMETERS, given)
    if not 0.01 <= p["sigma"] <= 5:
        raise ValueError("sigma: expected a number from 0.01 to 5")
    if p["mean"] * (1 + p["amplitude"]) >= 1:
        raise ValueError("mean, amplitude: expected mean (1 + amplitude) below 1")
    median_s = 600 / math.exp(p["sigma"] * NormalDist().inv_cdf(p["short"]))
    return {str(k): _schedule(generator(seed, "sessions", k), p["mean"], p["amplitude"], median_s, p["sigma"], p["day"],
                              p["length"]) for k in range(1, p["nodes"] + 1)}


def _schedule(draw: Generator, mean: float, amplitude: float, median_s: float, sigma: float, day: int, length: int,
              ) -> Schedule:
    """Of one node. A session that the end of the file cuts is kept as far as it goes. A node without any is drawn
    again: a file of availability cannot say of a node that it is never there."""
    while True:
        own = float(draw.beta(_ALIKE * mean, _ALIKE * (1 - mean)))
        present = _present(draw, own, amplitude, median_s, sigma, day, length)
        if present:
            return Schedule(tuple(present), length)


def _present(draw: Generator, own: float, amplitude: float, median_s: float, sigma: float, day: int, length: int,
             ) -> list[tuple[int, int]]:
    expected_s = median_s * math.exp(sigma**2 / 2)
    present: list[tuple[int, int]] = []
    now = 0 if draw.random() < _there(own, amplitude, 0.0) else _absence(draw, own, amplitude, expected_s, 0.0)
    while now < length:
        end = min(length, now + _whole(median_s * math.exp(sigma * float(draw.standard_normal()))))
        if present and present[-1][1] == now:
            present[-1] = present[-1][0], end
        else:
            present.append((now, end))
        now = end + _absence(draw, own, amplitude, expected_s, end / day)
    return present


def _there(own: float, amplitude: float, days: float) -> float:
    """The share of the time that a node is there around that hour."""
    return min(0.98, own * (1 + amplitude * math.sin(2 * math.pi * days)))


def _absence(draw: Generator, own: float, amplitude: float, expected_s: float, days: float) -> int:
    """Exponential; in mean such that sessions of `expected_s` in mean make up the share of this hour."""
    share = max(1e-4, _there(own, amplitude, days))
    return _whole(float(draw.exponential(expected_s * (1 - share) / share)))


def _whole(seconds: float) -> int:
    return max(1, round(seconds)) * _SECOND
