"""The adaptive attack on FLTrust: updates that it trusts and that turn the model away. Cao et al., NDSS 2021, IV-C.

    e_i = U_i / |U_i|, e_0 = g_0 / |g_0|, c_i = <e_i, e_0>, r = max(0, .), s = sign(sum_i r(c_i) e_i)
    maximise over e'_1 .. e'_f of length 1
    h = |g_0| s . ( a - [sum_{i<=f} r(c'_i) e'_i + sum_{i>f} r(c_i) e_i] / [sum_{i<=f} r(c'_i) + sum_{i>f} r(c_i)] )

a is FLTrust's aggregate without an attack. It starts from the trim attack and takes gradients from two values of h.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from emul.attacks.fang import trim_range
from emul.attacks.updates import Known, Vector

_LIFTED = 0.05                          # the cosine of a start without trust, once it is lifted


@dataclass(frozen=True)
class Adaptive:
    """`passes` times, for each attacker, `steps` steps along a random direction u of normal entries with `variance`, as
    long as its slope from a step of `gamma` and the rate `eta` say.

    lift: a start with a cosine of 0 or less, where h is flat, is lifted to 0.05; the paper does not. g_0 is what the
    server offers as its reference, in schemes with clusters that of the attackers' own (more than EBS-CFL's threat
    model allows). Where nobody offers one the mean of the honest updates stands for it.
    """

    NEEDS: ClassVar[str] = "all"
    passes: int = 10
    steps: int = 10
    gamma: float = 0.005
    eta: float = 0.01
    variance: float = 0.5
    lift: bool = True

    def __call__(self, own: Vector, rng: np.random.Generator, knows: Known) -> Vector:
        said: np.ndarray = knows.once(self, lambda: self.crafted(knows))
        return said[int(knows.attackers[:knows.row].sum())]

    def crafted(self, knows: Known) -> np.ndarray:
        """What the attackers say, (f, d) float32, in their order, each of the length of g_0."""
        reference = knows.honest.mean(axis=0) if knows.reference is None else knows.reference
        size = float(np.linalg.norm(reference))
        if size == 0:
            return np.zeros((int(knows.attackers.sum()), len(reference)), np.float32)
        rng = knows.common
        least, most = trim_range(knows.honest)
        start = least + rng.random((int(knows.attackers.sum()), len(reference))) * (most - least)
        game = Game(knows.updates.astype(np.float64), knows.attackers, reference / size,
                    np.stack([self._lifted(e, reference / size) for e in map(_unit, start)]))
        for _ in range(self.passes):
            for i in range(len(start)):
                for _ in range(self.steps):
                    self._step(game, i, rng)
        return (size * game.said).astype(np.float32)

    def _step(self, game: Game, i: int, rng: np.random.Generator) -> None:
        u = np.sqrt(self.variance) * rng.standard_normal(len(game.e0), dtype=np.float32)
        e = game.said[i]
        slope = (game.value(i, e + self.gamma * u) - game.value(i, e)) / self.gamma
        game.put(i, _unit(e + self.eta * slope * u))

    def _lifted(self, e: np.ndarray, e0: np.ndarray) -> np.ndarray:
        if not self.lift or e @ e0 > 0:
            return e
        across = _unit(e - (e @ e0) * e0)
        return _LIFTED * e0 + np.sqrt(1 - _LIFTED**2) * across


class Game:
    """h / |g_0| as a function of what one attacker says; each value takes two products of length d."""

    def __init__(self, updates: np.ndarray, attackers: np.ndarray, e0: np.ndarray, said: np.ndarray):
        """updates: (n, d) before the attack; attackers: (n,) bool; said: (f, d) of length 1."""
        lengths = np.maximum(np.linalg.norm(updates, axis=1), 1e-300)
        trust = np.maximum(updates @ e0 / lengths, 0.0)
        weights = trust / lengths
        a = weights @ updates / max(float(trust.sum()), 1e-300)
        self.e0, self.s = e0, np.sign(a)
        honest = ~attackers
        self._from, self._against = float(self.s @ a), float((weights[honest] @ updates[honest]) @ self.s)
        self._trusted = float(trust[honest].sum())
        self.said = said
        self._parts = np.stack([self._part(e) for e in said])           # (f, 2): r(c') s.e', r(c')

    def _part(self, e: np.ndarray) -> np.ndarray:
        trust = max(0.0, float(e @ self.e0))
        return np.array([trust * float(e @ self.s), trust])

    def value(self, i: int, e: np.ndarray) -> float:
        """h / |g_0| if attacker i says e in place of what it says now."""
        against, trusted = self._parts.sum(axis=0) - self._parts[i] + self._part(e)
        total = trusted + self._trusted
        return self._from - (against + self._against) / total if total > 0 else self._from

    def put(self, i: int, e: np.ndarray) -> None:
        """Attacker i says e from now on."""
        self.said[i], self._parts[i] = e, self._part(e)


def _unit(vector: np.ndarray) -> np.ndarray:
    return vector / max(float(np.linalg.norm(vector)), 1e-300)
