"""Mask graphs of secure aggregation, and how dense one must be: SecAgg, SecAgg+, CCESA.

    complete    everybody masks with everybody                           Bonawitz et al., CCS 2017
    ring        k nearest on a ring in random order                      Bell et al., CCS 2020 (SecAgg+)
    random      every edge with probability p                            Choi et al., arXiv:2012.05433 (CCESA)

Three bad events bound k and t of SecAgg+ (A colluders, D dropouts of n clients): the honest survivors fall apart, some
client has t colluding neighbours, some client has less than t neighbours that survive. Probabilities are union bounds.
The population of a neighbourhood is n - 1, after public code; k may differ by 2 from the paper's.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from emul.base.extras import optional

Closed = Mapping[int, frozenset[int]]       # i -> A_i = N_i + i

_REDRAWS = 1000                             # of a random graph whose least degree is too small


def complete(nodes: Sequence[int]) -> Closed:
    """Everybody is everybody's neighbour: one object for all."""
    return dict.fromkeys(nodes, frozenset(nodes))


def ring(nodes: Sequence[int], k: int, rng: np.random.Generator) -> Closed:
    """The k nearest on a ring in an order drawn by `rng`, k/2 on either side. k: even; from n - 1 on complete."""
    n = len(nodes)
    if k >= n - 1:
        return complete(nodes)
    order = [nodes[int(i)] for i in rng.permutation(n)]
    return {order[i]: frozenset(order[(i + step) % n] for step in range(-k // 2, k // 2 + 1)) for i in range(n)}


def random(nodes: Sequence[int], p: float, least: int, rng: np.random.Generator) -> Closed:
    """Every edge with probability p, drawn by `rng`; drawn again until every node has at least `least` neighbours,
    since one with fewer could never be recovered. ValueError: 1000 draws had none."""
    n = len(nodes)
    if p >= 1:
        return complete(nodes)
    for _ in range(_REDRAWS):
        edges = np.triu(rng.random((n, n)) < p, 1)
        edges |= edges.T
        if n and edges.sum(axis=1).min() >= least:
            np.fill_diagonal(edges, True)
            return {i: frozenset(nodes[int(j)] for j in np.flatnonzero(row)) for i, row in
                    zip(nodes, edges, strict=True)}
    raise ValueError(f"no graph of {n} nodes with p = {p:.4g} in {_REDRAWS} draws has {least} neighbours for each")


def _law(name: str) -> Any:
    """A distribution of SciPy, imported here: it takes a second, and a complete graph needs none."""
    with optional("exact chances of a mask graph need", "stats"):
        from scipy import stats
    return getattr(stats, name)


def connected(A: Closed, members: Collection[int]) -> bool:
    """True if the graph induced on `members` is of one piece. Else the sum of each piece is exposed."""
    left = set(members)
    if not left:
        return True
    border = [left.pop()]
    while border:
        reached = A[border.pop()] & left
        left -= reached
        border += reached
    return not left


# --- SecAgg+ --------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Chances:
    """Union bounds of the three bad events of a ring of k neighbours."""

    disconnected: float
    colluders: float
    lonely: float


def chances(n: int, k: int, t: int, colluders: int, dropouts: int) -> Chances:
    """The bounds for n clients with k neighbours each and a threshold of t shares."""
    hypergeom = _law("hypergeom")
    bad = colluders + dropouts
    apart = 0.0
    if k <= bad and n - k - 1 > 0:
        runs = math.log(n * (n - k - 1) / 2)
        apart = math.exp(runs + _log_choose(n - k, bad - k) - _log_choose(n, bad))
    return Chances(apart, n * float(hypergeom.sf(t - 1, n - 1, colluders, k)),
                   n * float(hypergeom.cdf(t - 1, n - 1, n - 1 - dropouts, k)))


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def degree_and_threshold(n: int, gamma: float, delta: float, sigma: int = 40, eta: int = 20,
                         active: bool = False) -> tuple[int, int]:
    """(k, t) of SecAgg+: the smallest even k for which there is a t, and the smallest such t.

    gamma, delta: fractions of colluders and dropouts. Each security event has at most 2^-(sigma + 1), the loss of a
    round 2^-eta. active: also 2 t > k + 1 (the neighbours of a client and itself, who sign and hold shares) + as many
    colluding neighbours as one has with that probability, so that a server that shows two sets of survivors learns no
    two secrets of one. Where no k below n - 1 will do: the complete graph
    with t = floor(2 n / 3) + 1.
    """
    colluders, dropouts = max(1, math.floor(gamma * n)), math.floor(delta * n)      # 0 would give t = 1
    secure, lively = 2.0 ** -(sigma + 1), 2.0 ** -eta
    for k in range(2, n - 1, 2):
        if k <= colluders + dropouts and chances(n, k, 1, colluders, dropouts).disconnected > secure:
            continue
        t = _least_threshold(n, k, colluders, secure, active)
        if t <= k and chances(n, k, t, colluders, dropouts).lonely <= lively:
            return k, t
    return n - 1, 2 * n // 3 + 1


def _least_threshold(n: int, k: int, colluders: int, secure: float, active: bool) -> int:
    """The smallest t for which t colluding neighbours are unlikely; at least 2."""
    hypergeom = _law("hypergeom")
    beyond = n * hypergeom.sf(np.arange(k + 1), n - 1, colluders, k)       # [a]: more than a colluders around somebody
    quantile = int(np.argmax(beyond <= secure))             # `isf` works with 1 - 2^-51, which is 1
    t = max(2, quantile + 1)
    return max(t, (k + 1 + quantile) // 2 + 1) if active else t


# --- CCESA ----------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Density:
    """p, the probability of an edge, and t, the threshold."""

    p: float
    t: int


def stage_loss(q_total: float) -> float:
    """q, the chance to drop out of one of the four stages, of that to drop out of a round."""
    return 1 - (1 - q_total) ** 0.25


def published_density(n: int, q_total: float) -> Density:
    """p = max(p_r, p_p) and t of CCESA's Theorems, for n clients that drop out of a round with probability q_total.

    p above 1 means the complete graph. ValueError, `bad_parameters`, from q_total = 0.5 on, where p_r is not defined.
    """
    if n < 3 or not 0 <= q_total < 0.5:
        raise ValueError(f"bad_parameters: the formulas of CCESA hold for 0 <= q_total < 0.5 and n >= 3, not for "
                         f"q_total = {q_total:g} and n = {n}")
    q = stage_loss(q_total)
    spread = math.sqrt((n - 1) * math.log(n - 1))
    reliable = (3 * spread - 1) / ((n - 1) * (2 * (1 - q) ** 4 - 1))
    m = math.ceil(n * (1 - q) ** 3 - math.sqrt(n * math.log(n)))
    private = math.log(m) / m if m > 1 else 1.0
    p = min(1.0, max(reliable, private))
    return Density(p, min(n, math.ceil(((n - 1) * p + spread + 1) / 2)))


def failure_chance(n: int, p: float, t: int, q_total: float) -> float:
    """1 - exp(-b), b the expected number of clients that cannot be recovered: the exact counts of section 4."""
    binom = _law("binom")
    u = 1 - stage_loss(q_total)
    q = 1 - u

    def below(count: int) -> float:
        return float(binom.cdf(count, n - 1, p * u ** 4))

    expected = n * u ** 3 * (u * below(t - 2) + q * below(t - 1)) + n * (u ** 2 - u ** 3) * below(t - 1)
    return 1 - math.exp(-expected)


def tight_density(n: int, q_total: float, gamma: float = 0.1, sigma: int = 40, eta: int = 20) -> Density:
    """The thinnest graph, p in steps of 0.01, and the least t for it, by exact counts instead of the published bounds.

    Rounds fail with at most 2^-eta; t colluders around one client, or survivors that fall apart, have at most
    2^-(sigma + 1). The complete graph with t = floor(2 n / 3) + 1 where none will do.
    """
    binom = _law("binom")
    secure, lively = 2.0 ** -(sigma + 1), 2.0 ** -eta
    honest = max(1, math.floor(n * (1 - gamma) * (1 - stage_loss(q_total)) ** 3))
    for step in range(1, 100):
        p = step / 100
        if honest * (1 - p) ** (honest - 1) > secure:
            continue
        t = max(2, int(np.argmax(n * binom.sf(np.arange(n), n - 1, p * gamma) <= secure)) + 1)
        if t <= n and failure_chance(n, p, t, q_total) <= lively:
            return Density(p, t)
    return Density(1.0, 2 * n // 3 + 1)
