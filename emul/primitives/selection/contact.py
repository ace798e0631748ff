"""First contact: the clients that the plan reaches first. Kim, Svoboda, Lane, arXiv:2511.14889, section 3.

    contact                 the K clients at which the model would be whole first
    contact, training: T    the K clients whose update could be back first, if a training takes T

Ties: the lowest numbers. It assumes that the server knows the contact plan, that messages go by the earliest way alone
on every link, and that T is the same for all; a client that the plan never reaches is not chosen. Deviation: satellites
that are busy are no other than idle ones, since a synchronous round begins when the one before has ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from emul.primitives.selection.rule import Common, Heard


@dataclass(frozen=True)
class FirstContact(Common):
    """Clients that the contact plan reaches first. Kim, Svoboda, Lane, arXiv:2511.14889. `training`: the time of a
    training, the same for all clients: those come first whose update can be back first; None: the way back does not
    count."""

    plan: ClassVar[bool] = True

    training_s: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.training_s is not None and self.training_s < 0:
            raise ValueError(f"training = {self.training_s} s: expected a time of at least 0")


class FirstContactRule:
    """Remembers nothing. Its answers are the seconds of virtual time at which clients are reached, or are back."""

    def __init__(self, p: FirstContact):
        self.p = p

    def candidates(self, rng: np.random.Generator, clients: Sequence[int], count: int) -> list[int]:
        return list(clients)

    def choose(self, rng: np.random.Generator, clients: Sequence[int], count: int, round_: int,
               answers: Mapping[int, float]) -> list[int]:
        return sorted(sorted(answers, key=lambda k: (answers[k], k))[:count])

    def learn(self, heard: Heard) -> None:
        """Nothing."""
