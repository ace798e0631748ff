"""Oort: clients whose data teach most for the time that they take. Lai et al., OSDI 2021, Algorithm 1.

    U(i) = |B_i| sqrt(sum_k Loss(k)^2 / |B_i|)                          statistical utility, told with the update
    Util(i) = (U(i) + sqrt(0.1 ln R / L(i))) (T / D(i))^alpha           the last factor where T < D(i)

R: this round, L(i): the last in which i was chosen, D(i): from the choice to its update, T: the duration that the pacer
prefers. U is clipped at its quantile `clip`. Of K clients a share epsilon are unexplored ones, the others are drawn
with probabilities as Util from those above c times the Util of the last that would be taken by rank. Every W rounds the
pacer adds `step` to T if the explored have lost utility: sum U(R - 2W : R - W) > sum U(R - W : R).

Deviations: U is of the model that a client receives, on all of its samples, and costs a forward pass; unexplored
clients are drawn uniformly, since the server knows no speed of theirs; who was chosen and did not answer in time has
D(i) of at least the time that it was waited for, and U(i) = 0 if none is known; T is in seconds as in the paper, where
the public code takes a quantile of the durations; there is no fairness knob.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from emul.primitives.selection.rule import Common, Heard, Tells, drawn


@dataclass(frozen=True)
class Oort(Common):
    """An epsilon of unexplored clients; the others by utility, U(i) = |B_i| sqrt(mean of squared losses), raised with
    the rounds since they were last chosen and cut by (T / D(i))^alpha where they take longer than T. Lai et al., OSDI
    2021, Algorithm 1. Defaults are those of the paper, but for `step`, which is on the scale of the scenario."""

    tells: ClassVar[Tells] = "utility"

    step_s: float = 10.0                # Delta: T at first, and what the pacer adds to it
    window: int = 20                    # W, rounds between two looks of the pacer
    alpha: float = 2.0                  # penalty of those that take longer than T
    explore: float = 0.9                # epsilon of the first round
    decay: float = 0.98                 # the factor of epsilon from round to round
    explore_least: float = 0.2          # the least epsilon
    cutoff: float = 0.95                # c
    clip: float = 0.95                  # quantile
    most: int | None = None             # times after which a client is chosen no more; None: no such limit

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.step_s <= 0:
            raise ValueError(f"step = {self.step_s} s: expected a time above 0")
        if self.window < 1:
            raise ValueError(f"window = {self.window}: expected at least 1")
        if self.alpha < 0:
            raise ValueError(f"alpha = {self.alpha}: expected at least 0")
        if self.most is not None and self.most < 1:
            raise ValueError(f"most = {self.most}: expected at least 1, or none")
        for name in ("explore", "decay", "explore_least", "cutoff", "clip"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} = {getattr(self, name)}: expected a number in [0, 1]")


@dataclass
class ExploredClient:
    """The knowledge of a client that has been chosen."""

    utility: float                      # U
    seconds: float                      # D
    last: int                           # L
    times: int                          # that it has been chosen


@dataclass
class OortRule:
    """The explored clients, and the pacer."""

    p: Oort
    known: dict[int, ExploredClient] = field(default_factory=dict)
    won: list[float] = field(default_factory=list)      # round -> sum of the U that it brought
    preferred_s: float = 0.0            # T

    def __post_init__(self) -> None:
        self.preferred_s = self.preferred_s or self.p.step_s

    def candidates(self, rng: np.random.Generator, clients: Sequence[int], count: int) -> list[int]:
        return list(clients)

    def choose(self, rng: np.random.Generator, clients: Sequence[int], count: int, round_: int,
               answers: Mapping[int, float]) -> list[int]:
        able = [k for k in clients if k in self.known and (self.p.most is None or self.known[k].times < self.p.most)]
        new = [k for k in clients if k not in self.known]
        explored = min(len(new), max(round(self.epsilon(round_) * count), count - len(able)))
        chosen = self._exploit(rng, able, count - explored, round_)
        return sorted(chosen + drawn(rng, new, explored))

    def _exploit(self, rng: np.random.Generator, able: list[int], count: int, round_: int) -> list[int]:
        if count <= 0 or not able:
            return []
        values = self.utilities(able, round_)
        bound = self.p.cutoff * sorted(values.values(), reverse=True)[min(count, len(able)) - 1]
        admitted = [k for k in able if values[k] >= bound]
        return drawn(rng, admitted, count, [values[k] for k in admitted])

    def utilities(self, able: Sequence[int], round_: int) -> dict[int, float]:
        """Util(i) of clients that are known."""
        most = float(np.quantile([self.known[k].utility for k in able], self.p.clip))
        found = {}
        for k in able:
            one = self.known[k]
            value = min(one.utility, most) + math.sqrt(0.1 * math.log(round_) / one.last)
            late = self.preferred_s < one.seconds
            found[k] = value * (self.preferred_s / one.seconds) ** self.p.alpha if late else value
        return found

    def epsilon(self, round_: int) -> float:
        """The share of unexplored clients in a round."""
        return max(self.p.explore_least, self.p.explore * self.p.decay ** (round_ - 1))

    def learn(self, heard: Heard) -> None:
        for k in heard.chosen:
            before = self.known.get(k)
            times = 1 if before is None else before.times + 1
            utility, seconds = heard.told.get(k), heard.seconds.get(k)
            if utility is None:
                utility = 0.0 if before is None else before.utility
            if seconds is None:
                seconds = heard.waited if before is None else max(heard.waited, before.seconds)
            self.known[k] = ExploredClient(utility, seconds, heard.round, times)
        self.won.append(sum(heard.told.get(k, 0.0) for k in heard.chosen))
        W = self.p.window
        if len(self.won) % W == 0 and len(self.won) >= 2 * W and sum(self.won[-2 * W:-W]) > sum(self.won[-W:]):
            self.preferred_s += self.p.step_s
