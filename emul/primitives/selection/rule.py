"""The common parts of rules of selection: their parameters, what they are told, and draws without replacement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Protocol

import numpy as np

Tells = Literal["", "utility", "loss", "accuracy", "seconds"]
Asks = Literal["", "loss", "presence"]


@dataclass(frozen=True)
class Common:
    """Parameters of every rule."""

    tells: ClassVar[Tells] = ""         # the value that a client sends beside its update
    asks: ClassVar[Asks] = ""           # the question to candidates before the choice
    plan: ClassVar[bool] = False        # True: the server reads the contact plan for its answers

    count: int | None = None            # K, updates of a round; None: the scheme's fraction of the clients
    over: float = 1.0                   # so many times K are chosen; the round ends with the first K updates
    least: int = 1                      # with fewer updates the round has failed

    def __post_init__(self) -> None:
        if self.count is not None and self.count < 1:
            raise ValueError(f"count = {self.count}: expected at least 1")
        if not 1 <= self.over <= 1e6:
            raise ValueError(f"over = {self.over}: expected at least 1, at most 1e6")
        if self.least < 0:
            raise ValueError(f"least = {self.least}: expected at least 0")


@dataclass(frozen=True)
class Heard:
    """The facts that a round has shown of those that were chosen for it."""

    round: int
    chosen: Sequence[int]
    seconds: Mapping[int, float]        # client -> from the choice to its update, of those that came
    waited: float                       # seconds that the server has waited for the others
    told: Mapping[int, float] = field(default_factory=dict)     # client -> what it sent beside its update
    samples: Mapping[int, int] = field(default_factory=dict)    # client -> n_k, as its update says


class SelectionRule(Protocol):
    """One rule over a run. It is part of a server's state."""

    def candidates(self, rng: np.random.Generator, clients: Sequence[int], count: int) -> list[int]:
        """Those that are asked before the choice, ascending; of a rule that asks nobody, all clients."""
        ...

    def choose(self, rng: np.random.Generator, clients: Sequence[int], count: int, round_: int,
               answers: Mapping[int, float]) -> list[int]:
        """At most `count` of the clients, ascending. answers: of the candidates that have answered."""
        ...

    def learn(self, heard: Heard) -> None:
        """A round is over."""
        ...


def drawn(rng: np.random.Generator, clients: Sequence[int], count: int,
          weights: Sequence[float] | np.ndarray | None = None) -> list[int]:
    """`count` of the clients (all, if there are no more) without replacement, ascending. weights: what the chance of
    each in every draw is proportional to; None, or all 0: equal. Those of weight 0 come last."""
    if count >= len(clients):
        return sorted(clients)
    if weights is None or not np.any(weights):
        return sorted(clients[i] for i in rng.choice(len(clients), count, replace=False).tolist())
    w = np.asarray(weights, np.float64)
    positive = np.flatnonzero(w)
    if len(positive) <= count:
        rest = [clients[i] for i in np.flatnonzero(w == 0).tolist()]
        return sorted([clients[i] for i in positive.tolist()] + drawn(rng, rest, count - len(positive)))
    return sorted(clients[i] for i in rng.choice(len(clients), count, replace=False, p=w / w.sum()).tolist())
