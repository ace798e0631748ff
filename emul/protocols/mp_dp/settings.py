"""The settings that server and clients of MP-DP have agreed on before the first round."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from emul.primitives.dp import complete, largest_mu, n_out, sigma_pairwise
from emul.primitives.dp.graph import Edges
from emul.primitives.ring import largest_fraction
from emul.protocols.pairwise.rules import PairwiseRules
from emul.roles import checks

Preset = Literal["sound", "paper", "masked"]
Scales = Literal["chi3", "chi3_series", "log_uniform", "uniform"]
Additive = Literal["full", "compact", "off"]
Clip = Literal["message", "bound", "oracle", "off"]
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
    # features that a scheme of this family may have; the defaults are those of one without them
    eps: float | None = None
    delta: float = 1e-5
    budget: Literal["round", "total"] = "round"
    rounds: int | None = None
    bound: float = 1.0
    mean_samples: float | None = None
    graph: Graph = "complete"
    n: int = 1
    inflation: float = 1.0
    losses: int = 0
    scales: Scales = "chi3"
    kappa: float = 1.5
    additive: Additive = "off"
    directions: int = 1
    output_scale: float | None = None
    clip: Clip = "off"
    noise: Noise = "gaussian"
    masks: Masks = "off"
    sigma_delta: float | None = None
    ring_bits: Literal[64, 32] = 64
    ring_fraction: int | None = None
    repair: Repair = "off"
    threshold: int | None = None
    verify_spare: bool = False
    scale_bound: float | None = None
    output_bound: float | None = None
    loss: Loss = "squared"
    lr: float = 0.1
    dtype: Precision = "float64"
    fraction: float = 1.0
    stage_deadline_s: float | None = None
    tied: bool = False                  # R_ij = r_i / r_j, without transitional layers
    own: Own = "none"                   # a client's noise: its share of central noise, as much as that, none
    records: int | None = None

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
            return self.unit_bound / self.mu
        inflation = self.inflation if self.masks == "real" else 1.0
        return inflation * self.unit_bound / self.mu / math.sqrt(K - self.losses)

    @property
    def unit_bound(self) -> float:
        """The bound that noise is made for: the most that one unit of privacy adds to a message in the l2 norm, by
        clipping. B of a client's whole contribution, B / b of one record of a batch of b."""
        return self.bound / (self.records or 1)

    @property
    def largest_scale(self) -> float | None:
        """R_max, which no R passes, with `clip: bound`: as given, or kappa of log_uniform scales; else None."""
        if self.clip != "bound":
            return None
        return self.kappa if self.scale_bound is None and self.scales == "log_uniform" else self.scale_bound

    @property
    def sensitivity(self) -> float:
        """The most that one unit of privacy changes, in the l2 norm, in the part of a message that noise is on: its
        bound, or with `clip: bound` that over R_max, since it then bounds R_max times that norm and more."""
        return self.unit_bound / (self.largest_scale or 1.0)

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
        return sigma_pairwise(edges, clients, self.sigma_eta(len(clients)), self.mu, self.unit_bound)

    def sigma_self(self, sigma_eta: float, sigma_delta: float) -> float:
        """Of a real self mask, with `masks: real` and `repair: shamir`: the least that keeps at mu the message of a
        client that was said to have dropped out, of which the server knows the noise of all pairs; without own noise
        sigma_Delta."""
        if self.mu is None:
            return sigma_delta
        return math.sqrt(max(0.0, (self.unit_bound / self.mu) ** 2 - sigma_eta**2))

    def mu_late(self, K: int) -> float:
        """mu of a message that comes when its sender has been said to have dropped out and the noise of its pairs was
        revealed: 0 if a self mask of the ring hides it, else by what noise it has of its own. inf without any."""
        if self.repair == "shamir" and self.masks == "ring":
            return 0.0
        eta = self.sigma_eta(K)
        own = self.sigma_self(eta, 0.0) if self.repair == "shamir" else 0.0
        return self.sensitivity / math.hypot(eta, own) if eta or own else math.inf

    def degree(self, K: int) -> int:
        """The least degree in the mask graph of K clients."""
        return K - 1 if self.graph == "complete" else min(self.n, K - 1)

    def rules(self, K: int) -> PairwiseRules:
        """Of the pairwise protocol; t: tau = floor(2 deg / 3) + 1 by default, and 2 at least, or one neighbour alone
        would have a client's secrets."""
        t = self.threshold if self.threshold is not None else max(2, 2 * self.degree(K) // 3 + 1)
        return PairwiseRules(t, self.stage_deadline_s, "server", word_bits=8 * self.word.itemsize,
                             verify_spare=self.verify_spare)

    @property
    def word(self) -> np.dtype:
        """The type of a number as it travels: a word of the ring, or a real."""
        return np.dtype(f"u{self.ring_bits // 8}" if self.masks == "ring" else self.dtype)

    def f(self, K: int) -> int:
        """Bits after the point in the ring: K (B + 8 sigma_eta) 2^f < 2^(bits - 1)."""
        if self.ring_fraction is not None:
            return self.ring_fraction
        most = largest_fraction(self.bound + 8 * self.sigma_eta(K), self.ring_bits, K)
        return min(_FRACTION_64, most)

    # --- what follows from them -------------------------------------------------------------------------------------

    def flaws(self) -> list[str]:
        """The reasons why no (eps, delta) holds against the server; [] where it does."""
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
        """The guarantee that holds against the server, in words."""
        flaws = self.flaws()
        if flaws:
            return "none: " + "; ".join(flaws)
        against = ("whoever reads its messages" if self.masks == "off" else
                   "a server that follows the protocol and colludes with nobody")
        unit = "one client's whole contribution" if self.records is None else "one record of a client"
        return f"(eps, delta)-DP of {unit}, which is there or zero, against {against}"


def wrong_settings(s: Settings) -> list[str]:
    """The mistakes in the parameters that MP-DP and its relatives have in common, for a scheme's `check`."""
    errors = checks.epsilons(eps=s.eps)
    errors += checks.positive(bound=s.bound, lr=s.lr, output_scale=s.output_scale, mean_samples=s.mean_samples)
    errors += checks.times(stage_deadline=s.stage_deadline_s)
    errors += checks.probabilities(delta=s.delta) + checks.fractions(fraction=s.fraction)
    errors += checks.at_least(1, "1 or more", n=s.n, directions=s.directions, rounds=s.rounds, records=s.records)
    errors += checks.at_least(0, "0 or more", sigma_delta=s.sigma_delta, ring_fraction=s.ring_fraction)
    if not s.kappa > 1:
        errors.append(f"kappa = {s.kappa}: expected a number above 1")
    if (s.rounds is None) == (s.budget == "total"):
        errors.append(f"rounds = {s.rounds}: expected with budget: total, and only there")
    errors += _wrong_bounds(s)
    if s.additive != "off" and s.loss == "task":
        errors.append("loss = task: with the additive part only the squared loss can be recovered")
    return errors


def _wrong_bounds(s: Settings) -> list[str]:
    """Of `clip: bound`, which needs what is public of the secrets."""
    errors = checks.positive(scale_bound=s.scale_bound, output_bound=s.output_bound)
    for name, value, needed, why in (
            ("scale_bound", s.scale_bound, s.scales != "log_uniform", f"scales: {s.scales} have none of their own"),
            ("output_bound", s.output_bound, s.additive != "off", f"additive: {s.additive} has none of its own")):
        if s.clip != "bound" and value is not None:
            errors.append(f"{name} = {value}: expected with clip: bound, and only there")
        if s.clip == "bound" and needed and value is None:
            errors.append(f"{name} = None: expected a number with clip: bound, since {why}")
    return errors
