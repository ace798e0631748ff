"""Every client with the same chance, and only those that are there.

`over` and `least` make it the over-selection of Bonawitz et al., *Towards Federated Learning at Scale*, MLSys 2019,
section 4.2: 1.3 K are chosen, the first K count, and a round with too few of them is abandoned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from emul.primitives.selection.rule import Asks, Common, Heard, drawn


@dataclass(frozen=True)
class UniformSelection(Common):
    """Everybody with the same chance."""


class UniformRule:
    """Remembers nothing."""

    def __init__(self, p: UniformSelection):
        self.p = p

    def candidates(self, rng: np.random.Generator, clients: Sequence[int], count: int) -> list[int]:
        return list(clients)

    def choose(self, rng: np.random.Generator, clients: Sequence[int], count: int, round_: int,
               answers: Mapping[int, float]) -> list[int]:
        return drawn(rng, clients, count)

    def learn(self, heard: Heard) -> None:
        """Nothing."""


@dataclass(frozen=True)
class Available(Common):
    """Of clients that are asked whether they are there, some that answer in time. Ours."""

    asks: ClassVar[Asks] = "presence"

    of: float = 2.0                     # so many times those to be chosen are asked
    window_s: float = 1.0               # the time that they have to answer
    prefer: Literal["any", "rare"] = "any"      # rare: who has taken part least often comes first

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.of < 1:
            raise ValueError(f"of = {self.of}: expected at least 1")
        if self.window_s <= 0:
            raise ValueError(f"window = {self.window_s} s: expected a time above 0")


@dataclass
class AvailableRule:
    """Remembers how often each client has taken part."""

    p: Available
    times: dict[int, int] = field(default_factory=dict)

    def candidates(self, rng: np.random.Generator, clients: Sequence[int], count: int) -> list[int]:
        return drawn(rng, clients, round(self.p.of * count))

    def choose(self, rng: np.random.Generator, clients: Sequence[int], count: int, round_: int,
               answers: Mapping[int, float]) -> list[int]:
        there = sorted(answers)
        if self.p.prefer == "any":
            return drawn(rng, there, count)
        order = [there[i] for i in rng.permutation(len(there)).tolist()]        # ties are broken at random
        return sorted(sorted(order, key=lambda k: self.times.get(k, 0))[:count])

    def learn(self, heard: Heard) -> None:
        for k in heard.seconds:
            self.times[k] = self.times.get(k, 0) + 1
