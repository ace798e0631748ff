"""The exact probability that a gradient-coded round fails, and its costs. Weng et al., arXiv 2507.07565, VII,
corrected.

c_km is the probability that relay k hears client m, c_k that the server hears relay k; all links fail independently.
A partial sum is complete with pi_k = prod c_km over the others of its row, and usable with q_k = c_k pi_k. Relays use
different links, so the number of usable sums is Poisson-binomial: P_O = Pr(N <= K - s - 1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def poisson_binomial(q: Sequence[float]) -> Floats:
    """Pr(N = n), n = 0..len(q), for the number N of independent events with probabilities q."""
    law = np.ones(1)
    for p in q:
        law = np.convolve(law, (1.0 - p, p))
    return law


def complete(G: Floats, connected: Floats) -> Floats:
    """pi_k, (K,): probability that relay k hears all of its row. connected: (K, K), [k, m]; the diagonal is 1."""
    return np.prod(np.where(G != 0, connected, 1.0), axis=1)


def outage_probability(pi: Sequence[float], uplinks: Sequence[float], s: int) -> float:
    """P_O = Pr(fewer than K - s complete sums arrive).

    >>> round(outage_probability([0.9**7] * 10, [0.7] * 10, 7), 6)
    0.295701
    """
    law = poisson_binomial([c * p for c, p in zip(uplinks, pi, strict=True)])
    return float(law[:len(pi) - s].sum())


@dataclass(frozen=True)
class Events:
    """The three ways in which a round fails; they exclude each other and add up to P_O. V: incomplete sums."""

    sharing: float              # P1: V >= s + 1, whatever the uplinks do
    uplinks: float              # P2: V = 0, more than s uplinks fail
    both: float                 # P3: 1 <= V <= s, and more than s - V of the complete sums are lost

    @property
    def total(self) -> float:
        """P_O = P1 + P2 + P3."""
        return self.sharing + self.uplinks + self.both


def failure_events(pi: Sequence[float], uplinks: Sequence[float], s: int) -> Events:
    """P1, P2, P3 for links that differ, by a table over (complete, complete and arrived)."""
    K = len(pi)
    law = np.zeros((K + 1, K + 1))
    law[0, 0] = 1.0
    for p, c in zip(pi, uplinks, strict=True):
        following = (1.0 - p) * law
        following[1:] += p * (1.0 - c) * law[:-1]
        following[1:, 1:] += p * c * law[:-1, :-1]
        law = following
    failed = law[:, :K - s].sum(axis=1)                             # of each number of complete sums
    return Events(float(failed[:K - s].sum()), float(failed[K]), float(failed[K - s:K].sum()))


def gaps(P_O: float) -> tuple[float, float]:
    """(E[J], E[J^2]) of the rounds per success, J geometric: 1/(1-P_O), (1+P_O)/(1-P_O)^2."""
    return (1 / (1 - P_O), (1 + P_O) / (1 - P_O) ** 2) if P_O < 1 else (math.inf, math.inf)


@dataclass(frozen=True)
class Cost:
    """Mean transmissions a round, in units of one update of D elements."""

    sharing: float              # client to client, one for each receiver
    uplink: float
    downlink: float
    broadcast: float            # client to client if one radio transmission reaches all neighbours

    def per_success(self, P_O: float) -> float:
        """For one recovered update: everything but the model's way down, which only a success needs."""
        return (self.sharing + self.uplink) / (1 - P_O) if P_O < 1 else math.inf


def cost(G: Floats, pi: Sequence[float], P_O: float, send_incomplete: bool) -> Cost:
    """Transmissions of (Sec)CoGC: sum_k |V_k \\ k|, sum_k pi_k (or K) sums, K (1 - P_O) models; sums and all."""
    K = len(G)
    sharing = float(np.count_nonzero(G) - np.count_nonzero(np.diag(G)))
    return Cost(sharing, float(K if send_incomplete else sum(pi)), K * (1 - P_O), float(K if sharing else 0))


def convergence(K: int, T: int, steps: int, P_O: float) -> tuple[float, float]:
    """(a, b) of the bound avg E||grad L||^2 <= a ell (L(0) - L*) + b (sigma^2 + 2 kappa^2), leading terms.

    eta = (1 / ell) sqrt(K / T), ||a||_1 = I = `steps`: a = 2 / (I (1-P_O) sqrt(KT)), b = I E[J^2] sqrt(K/T).
    """
    if P_O >= 1 or steps < 1 or T < 1:
        return math.inf, math.inf
    return 2 / (steps * (1 - P_O) * math.sqrt(K * T)), steps * gaps(P_O)[1] * math.sqrt(K / T)
