"""The adaptive attack on FLTrust: updates that it trusts and that turn the model away. Cao et al., NDSS 2021, IV-C.

    e_i = U_i / |U_i|, e_0 = g_0 / |g_0|, c_i = <e_i, e_0>, r = max(0, .), s = sign(sum_i r(c_i) e_i)
    maximise over e'_1 .. e'_f of length 1
    h = |g_0| s . ( a - [sum_{i<=f} r(c'_i) e'_i + sum_{i>f} r(c_i) e_i] / [sum_{i<=f} r(c'_i) + sum_{i>f} r(c_i)] )

a is FLTrust's aggregate without an attack. The paper starts from the trim attack and takes gradients from two values of
h. h depends on e' by <e', e_0> and s . e' alone: the best e' lies in the plane of e_0 and s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from emul.attacks.fang import trim_range
from emul.attacks.updates import Vector
from emul.roles.attackers import Known

if TYPE_CHECKING:
    import torch

_LIFTED = 0.05                          # the cosine of a start without trust, once it is lifted
_ANGLES = np.linspace(0.0, np.pi / 2, 181)      # of `plane`


@dataclass(frozen=True)
class Adaptive:
    """Updates that FLTrust trusts and that turn its aggregate away. Cao et al., NDSS 2021, section IV-C.

    From the trim attack on, `passes` times for each attacker, `steps` steps along a random direction of normal entries
    with `variance`, as long as its slope from a step of `gamma` and the rate `eta` say.

    search: `steps` is the paper's, whose steps are longer than e' where there are 3,000 dimensions or more, so that h
    ends below that of the start; `plane` takes in each pass the best of 181 angles between e_0 and -s for every
    attacker. lift: a start with a cosine of 0 or less, where h is flat, is lifted to 0.05; the paper does not. g_0 is
    what the server offers as its reference, in schemes with clusters that of the attackers' own (more than EBS-CFL's
    threat model allows). If nobody offers one, or with `reference: estimated`, the mean of the honest updates stands
    for it.
    """

    NEEDS: ClassVar[str] = "all"
    passes: int = 10
    steps: int = 10
    gamma: float = 0.005
    eta: float = 0.01
    variance: float = 0.5
    lift: bool = True
    search: Literal["steps", "plane"] = "steps"
    reference: Literal["offered", "estimated"] = "offered"

    def __call__(self, own: Vector, rng: np.random.Generator, knows: Known) -> Vector:
        return knows.one_each(self, self.crafted)

    def crafted(self, knows: Known) -> np.ndarray:
        """The vectors that the attackers send, (f, d) float32, in their order, each of the length of g_0."""
        import torch  # here: who only looks at a scenario loads the names of attacks, and not torch

        offered = knows.reference if self.reference == "offered" else None
        reference = knows.honest.mean(axis=0) if offered is None else offered
        size = float(np.linalg.norm(reference))
        if size == 0:
            return np.zeros((int(knows.attackers.sum()), len(reference)), np.float32)
        rng = knows.common
        least, most = trim_range(knows.honest)
        start = least + rng.random((int(knows.attackers.sum()), len(reference))) * (most - least)
        game = Game(knows.updates.astype(np.float64), knows.attackers, reference / size,
                    np.stack([self._lifted(e, reference / size) for e in map(_unit, start)]))
        normal = torch.Generator().manual_seed(int(rng.integers(2**63)))    # draws five times as fast as NumPy's
        for _ in range(self.passes):
            for i in range(len(start)):
                if self.search == "plane":
                    _turn(game, i)
                else:
                    self._walk(game, i, normal)
        return (size * game.said).astype(np.float32)

    def _walk(self, game: Game, i: int, normal: torch.Generator) -> None:
        """`steps` steps of attacker i. h and lengths depend on inner products alone, which are made for all directions
        at once; the vector itself only at the end."""
        import torch

        rows = np.empty((1 + self.steps, len(game.e0)), np.float32)         # e, u_1, u_2, ...
        torch.from_numpy(rows[1:]).normal_(0.0, float(np.sqrt(self.variance)), generator=normal)
        rows[0] = game.said[i]
        with_e0_s = (rows @ game.e0_s).astype(np.float64)                   # (1 + steps, 2)
        gram = (rows @ rows.T).astype(np.float64)
        at = np.zeros(len(rows))                                            # e now is at @ rows
        at[0] = 1.0
        for j in range(1, len(rows)):
            here = at @ with_e0_s
            slope = (game.at(i, *(here + self.gamma * with_e0_s[j])) - game.at(i, *here)) / self.gamma
            at[j] = self.eta * slope
            at /= max(float(np.sqrt(at @ gram @ at)), 1e-300)
        game.put(i, _unit((at.astype(np.float32) @ rows).astype(np.float64)))

    def _lifted(self, e: np.ndarray, e0: np.ndarray) -> np.ndarray:
        if not self.lift or e @ e0 > 0:
            return e
        across = _unit(e - (e @ e0) * e0)
        return _LIFTED * e0 + np.sqrt(1 - _LIFTED**2) * across


class Game:
    """h / |g_0| as a function of what one attacker says, of which two products of length d are enough."""

    def __init__(self, updates: np.ndarray, attackers: np.ndarray, e0: np.ndarray, said: np.ndarray):
        """updates: (n, d) before the attack; attackers: (n,) bool; said: (f, d) of length 1."""
        lengths = np.maximum(np.linalg.norm(updates, axis=1), 1e-300)
        trust = np.maximum(updates @ e0 / lengths, 0.0)
        weights = trust / lengths
        a = weights @ updates / max(float(trust.sum()), 1e-300)
        self.e0, self.s = e0, np.sign(a)
        self.e0_s = np.stack([self.e0, self.s], axis=1).astype(np.float32)      # (d, 2)
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
        return self.at(i, float(e @ self.e0), float(e @ self.s))

    def at(self, i: int, cosine: float, along: float) -> float:
        """The same of any e with these inner products with e_0 and with s."""
        trust = max(0.0, cosine)
        against, trusted = self._parts.sum(axis=0) - self._parts[i] + (trust * along, trust)
        total = trusted + self._trusted
        return self._from - (against + self._against) / total if total > 0 else self._from

    def put(self, i: int, e: np.ndarray) -> None:
        """Attacker i says e from now on."""
        self.said[i], self._parts[i] = e, self._part(e)


def _turn(game: Game, i: int) -> None:
    """Attacker i says e_0, turned towards -s by the angle that is best while the others stay."""
    forward = float(game.s @ game.e0)
    across = forward * game.e0 - game.s
    size = float(np.linalg.norm(across))
    if size == 0:
        return
    values = [game.at(i, c, c * forward - d * size) for c, d in zip(np.cos(_ANGLES), np.sin(_ANGLES), strict=True)]
    best = _ANGLES[int(np.argmax(values))]
    game.put(i, np.cos(best) * game.e0 + np.sin(best) / size * across)


def _unit(vector: np.ndarray) -> np.ndarray:
    return vector / max(float(np.linalg.norm(vector)), 1e-300)
