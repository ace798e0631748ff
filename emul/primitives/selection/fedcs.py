"""FedCS: as many clients as can end within a round. Nishio, Yonetani, ICC 2019, Protocol 2 and Algorithm 3.

    candidates drawn at random say that they are there;  S = {}, Theta = 0
    x       <- the candidate with the least  T_d(S + x) - T_d(S) + t_UL + max(0, t_UD - Theta)
    Theta'  =  Theta + t_UL + max(0, t_UD - Theta)
    x joins S, Theta <- Theta', if T_d(S + x) + Theta' < T_round;  on to the next candidate

t_UD: a training, t_UL: an upload, T_d(S): the slowest download of S; uploads go one after the other. `uploads: at_once`
is the rule of Wu et al., IEEE TC 2021, whose clients have a link each: x joins S if 2 t_UL + t_UD < T_round.

Deviations: candidates do not foretell their times. The server knows t_UD from what a client told with its last update,
and takes half of the other time that this update took as t_UL and as its download. A client of which it has had no
update is tried: it counts as 0 at first, and then as long as the server has waited for it. T_CS and T_Agg are 0, and
clients send when they are ready, whatever the estimate supposes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from emul.primitives.selection.rule import Asks, Common, Heard, Tells, drawn


@dataclass(frozen=True)
class FedCS(Common):
    """Of clients that are asked whether they are there, as many as can end within a round by the times of their last
    updates. Nishio, Yonetani, ICC 2019, Algorithm 3. `uploads`: one after the other, as in the paper, or at once."""

    asks: ClassVar[Asks] = "presence"
    tells: ClassVar[Tells] = "seconds"

    round_s: float = 180.0              # T_round
    window_s: float = 1.0               # the time that candidates have to answer
    uploads: Literal["in_turn", "at_once"] = "in_turn"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("round", "window"):
            if getattr(self, f"{name}_s") <= 0:
                raise ValueError(f"{name} = {getattr(self, f'{name}_s')} s: expected a time above 0")


@dataclass
class FedCSRule:
    """Remembers the times of the clients' last updates."""

    p: FedCS
    training: dict[int, float] = field(default_factory=dict)            # client -> t_UD, s
    upload: dict[int, float] = field(default_factory=dict)              # client -> t_UL, s

    def candidates(self, rng: np.random.Generator, clients: Sequence[int], count: int) -> list[int]:
        return drawn(rng, clients, count)

    def choose(self, rng: np.random.Generator, clients: Sequence[int], count: int, round_: int,
               answers: Mapping[int, float]) -> list[int]:
        training = {k: self.training.get(k, 0.0) for k in sorted(answers)}
        upload = {k: self.upload.get(k, 0.0) for k in sorted(answers)}
        if self.p.uploads == "at_once":
            return [k for k in training if 2 * upload[k] + training[k] < self.p.round_s]
        return within(self.p.round_s, training, upload)

    def learn(self, heard: Heard) -> None:
        for k, seconds in heard.seconds.items():
            if k in heard.told:
                self.training[k] = heard.told[k]
                self.upload[k] = max(0.0, seconds - heard.told[k]) / 2
        for k in heard.chosen:          # it was there; else one that is always too slow would be tried in each round
            if k not in heard.seconds and k not in self.upload:
                self.training[k] = heard.waited


def within(round_s: float, training: Mapping[int, float], upload: Mapping[int, float]) -> list[int]:
    """Algorithm 3: the clients that can end in turn within `round_s`, ascending. training, upload: s of each client;
    ties go to the first.

    >>> within(10.0, {1: 4.0, 2: 1.0, 3: 9.0}, {1: 2.0, 2: 1.0, 3: 2.0})
    [1, 2]
    """
    left, chosen = list(training), list[int]()
    download = theta = 0.0
    while left:
        added = {k: max(0.0, upload[k] - download) + upload[k] + max(0.0, training[k] - theta) for k in left}
        x = min(left, key=added.__getitem__)
        left.remove(x)
        ends = theta + upload[x] + max(0.0, training[x] - theta)
        if max(download, upload[x]) + ends < round_s:
            download, theta = max(download, upload[x]), ends
            chosen.append(x)
    return sorted(chosen)
