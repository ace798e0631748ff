"""TiFL: a round's clients are all of one tier, so that no fast one waits for a slow one. Chai et al., HPDC 2020.

Profiling (section 4.2): in the first `profile` rounds all clients take part; a client's latency is the mean of its
times, each T_max for one that did not answer. A client that never answered is left out. The others are cut into `tiers`
of equal size, the fastest first.

Selection (Algorithm 2): a tier is drawn, with equal probabilities at first, among those that have credits left; each
draw costs one. Every `interval` rounds, if the tier drawn last has not gained accuracy since the time before, tiers get
new probabilities: of n tiers with credits that of the i-th worst accuracy gets (n - i) / (n (n + 1) / 2), i from 0.

Deviations: profiling rounds train, too; a tier's accuracy is the mean over its clients of what each told when it last
took part, of the model that it received on its own test samples; where targets are numbers 1 / (1 + loss) stands for an
accuracy; once no tier has credits, none is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from emul.primitives.selection.rule import Common, Heard, Tells, drawn


@dataclass(frozen=True)
class Tifl(Common):
    """Clients of one tier of similar latency; tiers of poor accuracy become likelier. Chai et al., HPDC 2020,
    Algorithm 2. `credits`: of each tier; None: without end."""

    tiers: int = 5                      # m
    profile: int = 1                    # sync_rounds
    adaptive: bool = True               # no: equal probabilities for ever, and nobody tells an accuracy
    interval: int = 20                  # I
    credits: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("tiers", "profile", "interval"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} = {getattr(self, name)}: expected at least 1")
        if self.credits is not None and self.credits < 0:
            raise ValueError(f"credits = {self.credits}: expected at least 0")

    @property
    def tells(self) -> Tells:                       # type: ignore[override]
        """The value that a client that takes part sends beside its update."""
        return "accuracy" if self.adaptive else ""


@dataclass
class TiflRule:
    """Latencies, tiers, their credits and probabilities."""

    p: Tifl
    times: dict[int, list[float]] = field(default_factory=dict)         # client -> seconds in the profiling rounds
    answered: set[int] = field(default_factory=set)
    tiers: list[list[int]] = field(default_factory=list)                # the fastest first; []: still profiling
    chances: list[float] = field(default_factory=list)
    credits: list[float] = field(default_factory=list)
    told: dict[int, float] = field(default_factory=dict)                # client -> accuracy
    before: list[float] = field(default_factory=list)                   # accuracy of each tier, `interval` rounds ago
    current: int = 0

    def candidates(self, rng: np.random.Generator, clients: Sequence[int], count: int) -> list[int]:
        return list(clients)

    def choose(self, rng: np.random.Generator, clients: Sequence[int], count: int, round_: int,
               answers: Mapping[int, float]) -> list[int]:
        if round_ <= self.p.profile:
            return sorted(clients)
        if not self.tiers:
            # latencies to tiers; if nobody has answered, all clients are one
            latency = {k: sum(times) / len(times) for k, times in sorted(self.times.items()) if k in self.answered}
            self.tiers = by_latency(latency or dict.fromkeys(clients, 0.0), self.p.tiers)
            self.chances = [1 / len(self.tiers)] * len(self.tiers)
            self.credits = [float("inf") if self.p.credits is None else self.p.credits] * len(self.tiers)
        if self.p.adaptive and round_ % self.p.interval == 0:
            now = [self._accuracy(tier) for tier in self.tiers]
            if self.before and now[self.current] <= self.before[self.current]:
                self.chances = changed(now, self.credits)
            self.before = now
        able = [t for t, left in enumerate(self.credits) if left > 0] or list(range(len(self.tiers)))
        self.current, = drawn(rng, able, 1, [self.chances[t] for t in able])
        self.credits[self.current] -= 1
        return drawn(rng, self.tiers[self.current], count)

    def _accuracy(self, tier: Sequence[int]) -> float:
        told = [self.told[k] for k in tier if k in self.told]
        return sum(told) / len(told) if told else 0.0

    def learn(self, heard: Heard) -> None:
        self.told |= heard.told
        if heard.round <= self.p.profile:
            self.answered |= heard.seconds.keys()
            for k in heard.chosen:
                self.times.setdefault(k, []).append(heard.seconds.get(k, heard.waited))


def by_latency(latency: Mapping[int, float], tiers: int) -> list[list[int]]:
    """At most so many tiers of equal size, the fastest first, each ascending; equally fast ones by their numbers.

    >>> by_latency({1: 0.5, 2: 0.1, 3: 0.9, 4: 0.2}, 2)
    [[2, 4], [1, 3]]
    """
    order = sorted(latency, key=lambda k: (latency[k], k))
    return [sorted(part.tolist()) for part in np.array_split(np.array(order), min(tiers, len(order)))]


def changed(accuracies: Sequence[float], credits: Sequence[float]) -> list[float]:
    """ChangeProbs of Algorithm 2: the worse the accuracy, the likelier; ties: the faster tier. 0 without credits.

    >>> changed([0.9, 0.5, 0.7], [1, 1, 1])
    [0.16666666666666666, 0.5, 0.3333333333333333]
    """
    able = sorted((t for t, left in enumerate(credits) if left > 0), key=lambda t: (accuracies[t], t))
    n, found = len(able), [0.0] * len(accuracies)
    for i, t in enumerate(able):
        found[t] = (n - i) / (n * (n + 1) / 2)
    return found
