"""The Sine attack: as near to a base vector as an honest update, and as far from that update as can be.

After Kasyap and Tripathy, *Sine: Similarity is Not Enough for Mitigating Local Model Poisoning Attacks in Federated
Learning*, IEEE TDSC 2024; reconstructed from code that one of its authors published, not checked against the article.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar, Literal

import numpy as np

from emul.attacks.updates import Vector
from emul.roles.attackers import Known


@dataclass(frozen=True)
class Sine:
    """c, an honest update, bent away from itself at a cosine with the base b that is `kappa` times its own. After code
    by an author of Kasyap and Tripathy, IEEE TDSC 2024.

    whose: c is the attacker's `own`, the mean of the `colluders`', or that of the `honest` nodes; None: by what it
    knows (own, colluders, all). base: `proxy`, an update made on the attackers' own clean samples, or the `server`'s
    reference, which takes `knows: all`. kappa grows by `growth` a round, from round 1 on. share: of the coordinates,
    those with the largest c - b. rho: |b| / rho < |p| < rho |b|.
    """

    NEEDS: ClassVar[str] = "own"
    PROXY: ClassVar[bool] = True
    whose: Literal["own", "colluders", "honest"] | None = None
    base: Literal["proxy", "server"] = "proxy"
    kappa: float = 3.0
    growth: float = 1.0
    share: float = 1.0
    rho: float = 100.0

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(f"share = {self.share}: expected a fraction in (0, 1]")
        if not self.rho > 1:
            raise ValueError(f"rho = {self.rho}: expected a number above 1")

    def __call__(self, own: Vector, rng: np.random.Generator, knows: Known) -> Vector:
        whose = self.whose or ("own" if len(knows.updates) == 1 else
                               "colluders" if knows.attackers.all() else "honest")
        if whose == "own":
            return self._bent(own, knows)
        found: Vector = knows.once(self, lambda: self._bent(self._mean(whose, knows), knows))
        return found

    def _mean(self, whose: str, knows: Known) -> np.ndarray:
        if whose == "honest" and knows.attackers.all():
            raise ValueError("sine: whose: honest needs knows: all")
        rows = knows.updates[knows.attackers if whose == "colluders" else ~knows.attackers]
        return (rows if len(rows) else knows.updates).astype(np.float64).mean(axis=0)

    def _bent(self, c: np.ndarray, knows: Known) -> Vector:
        base = knows.once("proxy", knows.proxy) if self.base == "proxy" and knows.proxy else \
            knows.reference if self.base == "server" else None
        if base is None:
            raise ValueError("sine: the scheme has no `honest` to make a proxy with" if self.base == "proxy"
                             else "sine: base: server needs knows: all, and a scheme whose server offers a reference")
        kappa = self.kappa + self.growth * (knows.round - 1)
        return bent(c.astype(np.float64), np.asarray(base, np.float64), kappa, self.share, self.rho).astype(np.float32)


def bent(c: np.ndarray, b: np.ndarray, kappa: float = 1.0, share: float = 1.0, rho: float = 100.0) -> np.ndarray:
    """p, (d,): coordinate by coordinate, in decreasing order of c - b, the value that keeps <p, b> / |p| in size (with
    kappa = 1; else the tracked product is exaggerated so many times) and lies farther from what it was is taken, if it
    brings p farther from c and |b| / rho < |p| < rho |b|. c itself where c or b is 0.

    One pass over plain floats: 10^5 coordinates take about 0.1 s. With D = <p, b>, e = <p, c> and n = |p|^2 so far and
    d, r what D and n are without the coordinate, the new value y has (d + y b)^2 / (r + y^2) = D^2 / n = h:

        (h - b^2) y^2 - 2 d b y + h r - d^2 = 0,    discriminant / 4 = h (d^2 - (h - b^2) r)
    """
    length, size = float(np.linalg.norm(c)), float(np.linalg.norm(b))
    p = c.copy()
    if length == 0 or size == 0:
        return p
    order = np.argsort(b - c, kind="stable")[:max(1, round(share * len(c)))]
    least, most = (size / rho) ** 2, (size * rho) ** 2
    product, n, e = kappa * float(c @ b), length * length, length * length
    h, cosine = product * product / n, e / sqrt(n)                      # the cosine with c, times |c|
    values: list[float] = c[order].tolist()
    for k, (c_k, b_k) in enumerate(zip(values, b[order].tolist(), strict=True)):
        a, d, r = h - b_k * b_k, product - c_k * b_k, n - c_k * c_k
        if a == 0:                                                      # no root of its own
            continue
        y, inner = d * b_k / a, h * (d * d - a * r)
        if inner > 0:                                                   # of two roots the one farther from c_k
            away = sqrt(inner) / a
            y += away if (y > c_k) == (a > 0) else -away
        grown = r + y * y
        if least < grown < most:
            dot = e - c_k * (c_k - y)
            turned = dot / sqrt(grown)
            if turned < cosine:
                product, n, e, cosine = d + y * b_k, grown, dot, turned
                h = product * product / n
                values[k] = y
    p[order] = values
    return p
