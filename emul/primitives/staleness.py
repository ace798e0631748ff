"""The weight of an update that was made from an old model: s(u), u the versions of the model that it has missed.

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
_HAS: dict[str, tuple[str, ...]] = {"constant": (), "polynomial": ("a",), "hinge": ("a", "b")}


@dataclass(frozen=True)
class Staleness:
    """The function s, as a value. a, b: None where the function has none, or for 0.5 and 4.

    >>> Staleness("hinge", a=10, b=4)(6) == 1 / 21
    True
    """

    form: Form = "constant"
    a: float | None = None              # of the polynomial and of the hinge
    b: float | None = None              # of the hinge: so many missed versions cost nothing

    def __call__(self, u: int) -> float:
        """s(u), in (0, 1]. u: 0 or above."""
        a, b = 0.5 if self.a is None else self.a, 4.0 if self.b is None else self.b
        if self.form == "polynomial":
            return float((u + 1) ** -a)
        if self.form == "hinge" and u > b:
            return 1 / (a * (u - b) + 1)
        return 1.0

    def unused(self) -> list[str]:
        """The mistakes of an `a` or `b` that is given to a function without it.

        >>> Staleness("constant", a=0.5).unused()
        ['a = 0.5: expected none, for constant staleness has no a']
        """
        given = {name: value for name, value in (("a", self.a), ("b", self.b)) if value is not None}
        return [f"{name} = {value}: expected none, for {self.form} staleness has no {name}"
                for name, value in given.items() if name not in _HAS[self.form]]
