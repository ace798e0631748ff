"""Elastic background traffic: messages that come by a law, and flows that never end.

`arrivals` gives the messages of one entry between two ends: pure functions of the seed, of the entry's key, of both
names and of the number of the message. Their share of a link depends on the messages of the scheme.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from emul.base.streams import key64, uniform_at
from emul.network.models.laws import Exponential, Fixed, LogNormal, Pareto, QuantileLaw, UniformLaw

Arrival: TypeAlias = tuple[int, int]            # time in ns, bytes


SizeLaw: TypeAlias = Fixed | Exponential | Pareto | LogNormal | UniformLaw         # of bytes


@dataclass(frozen=True, slots=True)
class MessageLaws:
    """Messages after times drawn from `every`, of sizes drawn from `size`. The first comes after the first time."""

    every: QuantileLaw          # of ns
    size: SizeLaw

    @property
    def per_second(self) -> float:
        """Messages a second in the mean."""
        return 1e9 / self.every.mean

    @property
    def mean_bps(self) -> float:
        """bit/s in the mean, without overhead."""
        return 8 * self.size.mean * self.per_second


def arrivals(laws: MessageLaws, key: str, seed: int, source: str, destination: str, at_ns: int = 0,
             for_ns: int | None = None) -> Iterator[Arrival]:
    """The messages of the entry `key` between two ends, in the order of time, from `at_ns` on; maybe without end.

    Times are whole ns and differ by at least 1; a message has at least 1 byte.
    """
    gaps, sizes = (key64(seed, purpose, key, source, destination) for purpose in ("traffic", "traffic size"))
    every, size = laws.every.quantile, laws.size.quantile
    at, index = at_ns, 0
    end = None if for_ns is None else at_ns + for_ns
    while True:
        at += max(1, round(every(uniform_at(gaps, index))))
        if end is not None and at >= end:
            return
        yield at, max(1, round(size(uniform_at(sizes, index))))
        index += 1
