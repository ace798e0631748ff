"""Power of choice: of some candidates those with the largest loss. Cho, Wang, Joshi, arXiv:2010.01243, section 4.

    pow_d       d candidates, drawn with probabilities p_k = n_k / n, have the model and tell their loss on all samples
    cpow_d      ... on `batch` of their samples
    rpow_d      nobody is asked: what a client told of its loss when it last took part counts, infinite before

The K of the largest loss take part; ties: the lowest numbers. Deviation: the server knows n_k of those from whom it has
had an update, and takes the mean of these for the others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from emul.primitives.selection.rule import Asks, Common, Heard, Tells, drawn


@dataclass(frozen=True)
class PowerOfChoice(Common):
    """Of d candidates those with the largest loss; `rpow_d` asks nobody. Cho, Wang, Joshi, arXiv:2010.01243.
    `candidates`: d, at least as many as are chosen."""

    candidates: int = 20
    loss: Literal["pow_d", "cpow_d", "rpow_d"] = "pow_d"
    batch: int = 32                     # b of cpow_d

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.candidates < max(self.count or 1, 1):
            raise ValueError(f"candidates = {self.candidates}: expected at least {self.count or 1}, those chosen")
        if self.batch < 1:
            raise ValueError(f"batch = {self.batch}: expected at least 1")

    @property
    def tells(self) -> Tells:                       # type: ignore[override]
        """The value that a client that takes part sends beside its update."""
        return "loss" if self.loss == "rpow_d" else ""

    @property
    def asks(self) -> Asks:                         # type: ignore[override]
        """The question to candidates before the choice."""
        return "" if self.loss == "rpow_d" else "loss"


@dataclass
class ChoiceRule:
    """Remembers sizes, and losses for rpow_d."""

    p: PowerOfChoice
    samples: dict[int, int] = field(default_factory=dict)
    losses: dict[int, float] = field(default_factory=dict)

    def candidates(self, rng: np.random.Generator, clients: Sequence[int], count: int) -> list[int]:
        known = [n for k in clients if (n := self.samples.get(k)) is not None]
        usual = sum(known) / len(known) if known else 1.0
        return drawn(rng, clients, max(self.p.candidates, count), [self.samples.get(k, usual) for k in clients])

    def choose(self, rng: np.random.Generator, clients: Sequence[int], count: int, round_: int,
               answers: Mapping[int, float]) -> list[int]:
        losses = dict(answers)
        if not self.p.asks:
            losses = {k: self.losses.get(k, math.inf) for k in self.candidates(rng, clients, count)}
        return sorted(sorted(losses, key=lambda k: (-losses[k], k))[:count])

    def learn(self, heard: Heard) -> None:
        self.samples |= heard.samples
        self.losses |= heard.told
