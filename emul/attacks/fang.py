"""Attacks on Krum and on the trimmed mean. Fang, Cao, Jia, Gong, USENIX Security 2020, sections 4.2 and 4.3.

They turn the model against the direction in which it would go. With `knows: all` they are the paper's attacks with full
knowledge. With `knows: colluders` what attackers would send themselves, if they were honest, stands for the others.
Here updates are differences, parameters after minus before; the paper has models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from emul.attacks.ranges import at_least
from emul.attacks.updates import Vector
from emul.primitives.robust.distances import squared_distances
from emul.primitives.robust.krum import krum_scores
from emul.roles.attackers import Known

_LEAST = 1e-5                           # lambda below which the paper gives up


@dataclass(frozen=True)
class KrumAttack:
    """-lambda sign(u), u what Krum would choose without an attack, with a lambda that makes Krum choose an attacker.
    Fang et al., USENIX Security 2020.

    Attackers but the first add a random direction of a length of `epsilon` at most, so that updates are not equal.
    lambda begins at the paper's bound and is halved until Krum takes one of them, or it is below 1e-5.
    """

    NEEDS: ClassVar[str] = "colluders"
    epsilon: float = 0.01

    def __post_init__(self) -> None:
        at_least(0, epsilon=self.epsilon)

    def __call__(self, own: Vector, rng: np.random.Generator, knows: Known) -> Vector:
        return knows.one_each(self, self.crafted)

    def crafted(self, knows: Known) -> np.ndarray:
        """The vectors that the attackers send, (f, d) float32, in their order."""
        f, honest, dimension = int(knows.attackers.sum()), knows.honest, knows.updates.shape[1]
        every = knows.updates.astype(np.float64)
        direction = np.where(every[_chosen(every, f)] < 0, -1.0, 1.0)
        # zeros for the first attacker, random directions of a length of epsilon or less for the others
        noise = knows.common.standard_normal((f, dimension))
        lengths = self.epsilon * knows.common.random(f) / np.maximum(np.linalg.norm(noise, axis=1), 1e-300)
        lengths[0] = 0.0
        noise = noise * lengths[:, None]
        size = _bound(honest, f)
        while size >= _LEAST:
            said = -size * direction + noise
            if _chosen(np.concatenate([said, honest]), f) < f:
                break
            size /= 2
        return (-size * direction + noise).astype(np.float32)


def _chosen(rows: np.ndarray, f: int) -> int:
    """The row that Krum takes."""
    return int(np.argmin(krum_scores(squared_distances(list(rows)), f)))


def _bound(honest: np.ndarray, f: int) -> float:
    """Of lambda, from the h = n - f honest updates (h, d). Theorem 1 of the paper; 1 for n - 2f - 1 if n <= 2f + 1."""
    h, dimension = honest.shape
    distances = np.sqrt(np.maximum(squared_distances(list(honest)), 0.0))
    nearest = np.sort(distances, axis=1)[:, 1:1 + max(0, h - 2)]        # the n - f - 2 nearest; itself comes first
    root = np.sqrt(dimension)
    return float(nearest.sum(axis=1).min() / (max(1, h - f - 1) * root) + np.linalg.norm(honest, axis=1).max() / root)


@dataclass(frozen=True)
class TrimAttack:
    """Beyond all honest values of a coordinate, on the side from which the mean moves back. Fang et al.,
    USENIX Security 2020, section 4.3.

    s_j, the sign of the sum of the honest values of coordinate j: if s_j < 0 the value is drawn from [max, 2 max] where
    max_j > 0, else from [max, max / 2]; if not, from [min / 2, min] where min_j > 0, else from [2 min, min].
    Every attacker draws its own.
    """

    NEEDS: ClassVar[str] = "colluders"

    def __call__(self, own: Vector, rng: np.random.Generator, knows: Known) -> Vector:
        least, most = knows.once(self, lambda: trim_range(knows.honest))
        return (least + rng.random(len(own)) * (most - least)).astype(np.float32)


def trim_range(honest: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(lowest, highest) value that `TrimAttack` draws, (d,) each, from the honest updates (h, d)."""
    high, low = honest.max(axis=0), honest.min(axis=0)
    above = np.stack([high, np.where(high > 0, 2 * high, high / 2)])
    below = np.stack([low, np.where(low > 0, low / 2, 2 * low)])
    ends = np.where(honest.sum(axis=0) < 0, above, below)
    return ends.min(axis=0), ends.max(axis=0)
