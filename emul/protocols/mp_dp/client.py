"""A client's contribution from the disguised model: gradients of the blocks, clipped, with its own noise."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from emul.primitives import ring
from emul.protocols.demands import Demand, demand, shaped
from emul.protocols.mp_dp.messages import Disguised
from emul.protocols.mp_dp.opening import drawn_secrets, law
from emul.protocols.mp_dp.settings import Settings
from emul.roles import Node

if TYPE_CHECKING:
    from emul.learning import NodeTask
    from emul.learning.disguise import Disguise


def as_agreed(s: Settings, task: NodeTask, disguise: Disguise) -> Demand:
    """Sizes and types are those agreed on."""
    directions = (s.directions, disguise.outputs) if s.additive == "compact" else (0, 0)
    shapes = shaped(parameters=(task.dimension,), diagonals=(disguise.diagonals,), directions=directions)

    def accept(message: Disguised) -> None:
        shapes(message)
        demand(message.parameters.dtype == message.diagonals.dtype == np.dtype(s.dtype), "parameters: not as agreed on")
        demand(0 <= message.sigma_eta < 1e9 and 0 <= message.sigma_delta < 1e9, "sigma: out of range")
    return accept


async def contribution(node: Node, s: Settings, opening: Disguised) -> tuple[np.ndarray, int, float]:
    """A client's share of the sum of a round, before masks: c times its blocks, and its own noise on the first.

    ((S d,) float64, number of samples, c).
    """
    found, samples = await node.compute("lmt", gradients, node.task, opening, s)
    if s.mean_samples is not None:
        found = found * found.dtype.type(samples / s.mean_samples)      # w_k, before clipping: B bounds it, too
    noisy, c = await node.compute("noise", clipped_and_noisy, found, node.task, s, opening, node.seed, node.round,
                                  node.stream("noise"), work=found.size)
    return noisy, samples, c


@dataclass
class Contribution:
    """A client's contribution to the sum of a round, as `contribute` and `take_part` take it."""

    node: Node
    s: Settings
    opening: Disguised
    K: int
    clipping: float = 1.0

    async def values(self) -> tuple[np.ndarray, int]:
        """((S d,) float64, number of samples)."""
        values, samples, self.clipping = await contribution(self.node, self.s, self.opening)
        return values, samples

    def encoded(self, values: np.ndarray, samples: int) -> tuple[np.ndarray, float]:
        """(values in the ring, or as they are where masks are real; 1 if they were clipped)."""
        clipped = float(self.clipping < 1)
        if self.s.masks == "real":
            return values, clipped
        return ring.encode(values, self.s.f(self.K), self.s.ring_bits, self.K), clipped


def gradients(task: NodeTask, opening: Disguised, s: Settings) -> tuple[np.ndarray, int]:
    """((S, d), or of each sample of the batch (B, d) where they are clipped one by one; number of samples)."""
    from emul.protocols.mp_dp.algebra import blocks

    return blocks(task, opening.parameters, opening.diagonals, public_directions(opening, s), s.additive != "off",
                  s.loss, each=s.records is not None)


def public_directions(opening: Disguised, s: Settings) -> np.ndarray | None:
    """(G, n_L) of the compact variant, else None."""
    return opening.directions if s.additive == "compact" else None


def clipped_and_noisy(found: np.ndarray, task: NodeTask, s: Settings, opening: Disguised, seed: int, round_: int,
                      rng: np.random.Generator) -> tuple[np.ndarray, float]:
    """((S d,) float64: c times the blocks, and noise on ghat; c). With records, ghat = sum_i c_i ghat_i / b over the
    samples of the batch, and c the mean of the c_i."""
    from emul.protocols.mp_dp.algebra import clipping_factor, noise

    disguise, secrets = task.disguise(), law(s)
    known = drawn_secrets(disguise, s, seed, round_) if s.clip == "oracle" else None
    factor = partial(clipping_factor, bound=s.bound, clip=s.clip, disguise=disguise, known=known, bounds=secrets.bounds,
                     directions=public_directions(opening, s))
    if s.records is None:
        c = factor(found)
        values = c * found.astype(np.float64)
    else:
        each = np.array([factor(one[None]) for one in found])
        c, values = float(each.mean()), (each @ found.astype(np.float64) / s.records)[None]
    if opening.sigma_eta:
        values[0] += noise(s.noise, opening.sigma_eta, disguise, secrets, rng)
    return values.reshape(-1), c
