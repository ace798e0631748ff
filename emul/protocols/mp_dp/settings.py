"""What server and clients of MP-DP have agreed on before the first round."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from emul.primitives.dp import complete, largest_mu, n_out, sigma_pairwise
from emul.primitives.dp.graph import Edges
from emul.primitives.ring import largest_fraction
from emul.protocols.pairwise.rules import Rules

Preset = Literal["sound", "paper", "masked"]
Scales = Literal["chi3", "chi3_series", "log_uniform"]
Additive = Literal["full", "compact", "off"]
Clip = Literal["message", "oracle", "off"]
Noise = Literal["gaussian", "uniform"]
Masks = Literal["ring", "real"]
Repair = Literal["shamir", "seeds", "off"]
Graph = Literal["n_out", "complete"]
Loss = Literal["squared", "task"]
Precision = Literal["float32", "float64"]

_FRACTION_64 = 24


@dataclass(frozen=True)
class Settings:
    """The parameters of `emul.schemes.mp_dp`, those of the preset filled in."""

    preset: Preset
    eps: float | None
    delta: float
    budget: Literal["round", "total"]
    rounds: int | None
    bound: float
    mean_samples: float | None
    graph: Graph
    n: int
    inflation: float
    losses: int
    scales: Scales
    kappa: float
    additive: Additive
    directions: int
    output_scale: float | None
    clip: Clip
    noise: Noise
    masks: Masks
    sigma_delta: float | None
    ring_bits: Literal[64, 32]
    ring_fraction: int | None
    repair: Repair
    threshold: int | None
    loss: Loss
    lr: float
    dtype: Precision
    fraction: float
    stage_deadline_s: float | None

    def cohort(self, clients: int) -> int:
        """K of a round, as `node.sample` draws it."""
        return max(1, round(self.fraction * clients))

    @property
    def mu(self) -> float | None:
        """mu of a round that is wanted; None: no noise."""
        if self.eps is None:
            return None
        return largest_mu(self.eps, self.delta, (self.rounds or 1) if self.budget == "total" else 1)

    def sigma_eta(self, K: int) -> float:
        """Of each of K clients: sigma_CDP / sqrt(K), more of it where masks are real or clients may be lost."""
        if self.mu is None:
            return 0.0
        inflation = self.inflation if self.masks == "real" else 1.0
        return inflation * self.bound / self.mu / math.sqrt(K - self.losses)

    def edges(self, clients: list[int], rng: np.random.Generator) -> Edges:
        """The mask graph of a round. Raises ValueError if it always falls apart."""
        return complete(clients) if self.graph == "complete" else n_out(clients, self.n, rng)

    def sigma_pair(self, edges: Edges, clients: list[int]) -> float:
        """sigma_Delta: what is given, or the least that is enough by the exact theta; ring masks: inf."""
        if self.masks == "ring":
            return math.inf
        if self.sigma_delta is not None or self.mu is None:
            return self.sigma_delta or 0.0
        return sigma_pairwise(edges, clients, self.sigma_eta(len(clients)), self.mu, self.bound)

    def degree(self, K: int) -> int:
        """The least degree in the mask graph of K clients."""
        return K - 1 if self.graph == "complete" else min(self.n, K - 1)

    def rules(self, K: int) -> Rules:
        """Of the pairwise protocol; t: tau = floor(2 deg / 3) + 1 by default."""
        t = self.threshold if self.threshold is not None else 2 * self.degree(K) // 3 + 1
        return Rules(t, self.stage_deadline_s, "server", word_bits=self.ring_bits)

    def f(self, K: int) -> int:
        """Bits after the point in the ring: K (B + 8 sigma_eta) 2^f < 2^(bits - 1)."""
        if self.ring_fraction is not None:
            return self.ring_fraction
        most = largest_fraction(self.bound + 8 * self.sigma_eta(K), self.ring_bits, K)
        return min(_FRACTION_64, most)

    # --- what follows from them -------------------------------------------------------------------------------------

    def flaws(self) -> list[str]:
        """Why no (eps, delta) holds against the server; [] where it does."""
        found = []
        if self.eps is None:
            found.append("no noise is added")
        if self.additive != "off":
            found.append("the sums of Psi and Phi are exact" if self.masks == "ring" else
                         "Psi and Phi travel without any noise and give away the inputs")
        if self.noise == "uniform":
            found.append("the server knows R, so the noise that it sees is uniform and bounded, not Gaussian")
        if self.clip == "oracle":
            found.append("clipping needs a norm that the client cannot compute")
        if self.clip == "off":
            found.append("nothing bounds what a client contributes")
        return found

    @property
    def guarantee(self) -> str:
        """What holds against the server, in words."""
        flaws = self.flaws()
        if flaws:
            return "none: " + "; ".join(flaws)
        return ("(eps, delta)-DP of one client's whole contribution, which is there or zero, against a server that "
                "follows the protocol and colludes with nobody")
