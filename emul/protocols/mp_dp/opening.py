"""The opening of a round: the server draws the secrets and the mask graph, and disguises its model."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from emul.base.errors import TooFewClients
from emul.base.streams import generator
from emul.primitives.dp.graph import Edges
from emul.protocols.mp_dp.messages import Disguised
from emul.protocols.mp_dp.settings import Settings

if TYPE_CHECKING:
    from emul.learning import NodeTask
    from emul.learning.disguise import Disguise
    from emul.protocols.mp_dp.algebra import DrawnSecrets, SecretsLaw


@dataclass
class State:
    model: np.ndarray               # W, (d,) of the agreed type


@dataclass(frozen=True)
class Opened:
    """The server's knowledge of a round when it opens it."""

    known: DrawnSecrets
    message: Disguised
    edges: Edges
    sigma_delta: float
    blocks: int                     # S


def opening(task: NodeTask, model: np.ndarray, s: Settings, U0: list[int], seed: int, round_: int,
            rng: np.random.Generator) -> Opened:
    """Draws the secrets and the mask graph, and disguises the model. Raises TooFewClients if the graph falls apart."""
    from emul.protocols.mp_dp.algebra import number_of_blocks

    disguise = task.disguise()
    known = drawn_secrets(disguise, s, seed, round_)
    try:
        edges = s.edges(U0, rng)
        sigma_delta = s.sigma_pair(edges, U0)
    except ValueError as e:
        raise TooFewClients(f"too_few_neighbours: {e}") from None
    directions = np.zeros((0, 0)) if known.directions is None else known.directions
    message = Disguised(disguise.disguised(model, known.secrets).astype(s.dtype),
                        disguise.transitions(known.secrets).astype(s.dtype), directions, s.sigma_eta(len(U0)),
                        sigma_delta if math.isfinite(sigma_delta) else 0.0)
    return Opened(known, message, edges, sigma_delta, number_of_blocks(s.additive, s.directions, disguise.outputs))


def law(s: Settings) -> SecretsLaw:
    """The distribution from which secrets are drawn."""
    from emul.protocols.mp_dp.algebra import Bounds, SecretsLaw

    bounds = None if s.largest_scale is None else Bounds(s.largest_scale, s.output_bound or 0.0)
    return SecretsLaw(s.scales, s.kappa, s.additive, s.directions, s.output_scale, s.tied, bounds)


def drawn_secrets(disguise: Disguise, s: Settings, seed: int, round_: int) -> DrawnSecrets:
    """The server's secrets of a round, from a stream of the scenario's seed. Clients know them with `clip: oracle`
    alone, which nothing but an emulation can have."""
    from emul.protocols.mp_dp.algebra import drawn

    return drawn(disguise, law(s), generator(seed, "mp_dp secrets", round_))
