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
from emul.roles import checks

Preset = Literal["sound", "paper", "masked"]
Scales = Literal["chi3", "chi3_series", "log_uniform", "uniform"]
Additive = Literal["full", "compact", "off"]
Clip = Literal["message", "oracle", "off"]
Noise = Literal["gaussian", "uniform"]
Masks = Literal["ring", "real", "off"]
Own = Literal["share", "whole", "none"]
Repair = Literal["shamir", "seeds", "off"]
Graph = Literal["n_out", "complete"]
Loss = Literal["squared", "task"]
Precision = Literal["float32", "float64"]

_FRACTION_64 = 24


@dataclass(frozen=True)
class Settings:
    """The parameters of `emul.schemes.mp_dp`, those of the preset filled in, or of one of its relatives."""

    preset: Preset | Literal["naive", "central", "pile"]
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
    tied: bool = False                  # R_ij = r_i / r_j, without transitional layers
    own: Own = "share"                  # a client's noise: its share of central noise, as much as that, none

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
        if self.mu is None or self.own == "none":
            return 0.0
        if self.own == "whole":
            return self.bound / self.mu
        inflation = self.inflation if self.masks == "real" else 1.0
        return inflation * self.bound / self.mu / math.sqrt(K - self.losses)

    def edges(self, clients: list[int], rng: np.random.Generator) -> Edges:
        """The mask graph of a round. Raises ValueError if it always falls apart."""
        if self.masks == "off":
            return frozenset()
        return complete(clients) if self.graph == "complete" else n_out(clients, self.n, rng)

    def sigma_pair(self, edges: Edges, clients: list[int]) -> float:
        """sigma_Delta: what is given, or the least that is enough by the exact theta; ring masks: inf; none: 0."""
        if self.masks == "ring":
            return math.inf
        if self.masks == "off" or self.sigma_delta is not None or self.mu is None:
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
        against = ("whoever reads its messages" if self.masks == "off" else
                   "a server that follows the protocol and colludes with nobody")
        return f"(eps, delta)-DP of one client's whole contribution, which is there or zero, against {against}"


def wrong_settings(s: Settings) -> list[str]:
    """What is wrong with the parameters that MP-DP and its relatives have in common, for a scheme's `check`."""
    errors = checks.positive(eps=s.eps, bound=s.bound, lr=s.lr, output_scale=s.output_scale,
                             mean_samples=s.mean_samples)
    errors += checks.times(stage_deadline=s.stage_deadline_s)
    errors += checks.probabilities(delta=s.delta) + checks.fractions(fraction=s.fraction)
    errors += checks.at_least(1, "1 or more", n=s.n, directions=s.directions, rounds=s.rounds)
    errors += checks.at_least(0, "0 or more", sigma_delta=s.sigma_delta, ring_fraction=s.ring_fraction)
    if not s.kappa > 1:
        errors.append(f"kappa = {s.kappa}: expected a number above 1")
    if (s.rounds is None) == (s.budget == "total"):
        errors.append(f"rounds = {s.rounds}: expected with budget: total, and only there")
    if s.additive != "off" and s.loss == "task":
        errors.append("loss = task: with the additive part only the squared loss can be recovered")
    return errors
