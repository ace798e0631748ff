"""How much an update counts that was made from an old model: s(u), u the versions of the model that it has missed.

    constant    s(u) = 1
    polynomial  s(u) = (u + 1)^-a
    hinge       s(u) = 1 if u <= b, else 1 / (a (u - b) + 1)

Xie, Koyejo, Gupta, *Asynchronous Federated Optimization*, OPT 2020, section 5.2, with u for t - tau; an update made
from the newest model has u = 0. FedBuff's 1 / sqrt(1 + u) is the polynomial with a = 1/2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Form = Literal["constant", "polynomial", "hinge"]


@dataclass(frozen=True)
class Staleness:
    """The function s, as a value.

    >>> Staleness("hinge", a=10, b=4)(6) == 1 / 21
    True
    """

    form: Form = "constant"
    a: float = 0.5                      # of the polynomial and of the hinge
    b: float = 4.0                      # of the hinge: so many missed versions cost nothing

    def __call__(self, u: int) -> float:
        """s(u), in (0, 1]. u: 0 or above."""
        if self.form == "polynomial":
            return float((u + 1) ** -self.a)
        if self.form == "hinge" and u > self.b:
            return 1 / (self.a * (u - self.b) + 1)
        return 1.0
