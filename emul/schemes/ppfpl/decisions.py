"""Class prototypes averaged by how well they agree with their mean direction: the rule of PPFPL, in the clear.

    for each class k, over the clients that hold it:
    T = sum_m u_m          t = |T|          sim_m = u_m . T / t              u_m (n,) of length 1
    b_m = 1 if sim_m > chi else 0
    j_m = b_m sim_m  (weight: sim),  b_m (1 + sim_m) / 2  (shifted),  1  (uniform)
    C = sum_m j_m u_m / sum_m j_m; none if t < 1e-3 or sum_m j_m < 1e-3

Zhang et al., arXiv 2504.03173, equations 7 and 8 corrected; what two servers compute on ciphertexts is compared with
this. `compare: max_iter` (Algorithm 6) replaces h = max(sim', chi'), x' = (1 + x) / 2, by `excess` + chi': the decision
stays exact, for any number of iterations; the weight is approximate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

LEAST = 1e-3                            # of |T|, and of a sum of weights

Weight = Literal["sim", "shifted", "uniform"]
Compare = Literal["masked_sign", "max_iter"]


@dataclass(frozen=True)
class WeightRule:
    """The rule that makes weights of cosines."""

    chi: float = 0.0                    # in [-1, 1)
    weight: Weight = "sim"
    compare: Compare = "masked_sign"
    d: int = 9                          # iterations of `excess`
    scaled: bool = True                 # iterate on q, not on q / 2 as printed
    min_holders: int = 1                # accepted clients of a class, below which it keeps what it has


@dataclass(frozen=True)
class Aligned:
    """The result of aligning one class."""

    prototype: np.ndarray | None        # C (n,) float64; None: the class keeps what it has
    cosines: dict[int, float]           # client -> sim
    accepted: frozenset[int]            # clients; {}: too small a sum
    weights: dict[int, float]           # client -> j


def excess(q: Any, d: int, scaled: bool = True) -> Any:
    """max(q, 0) by d iterations, h - chi' of q = sim' - chi' in (-1, 1); above 0 exactly where q is.

    r = q, or q / 2 as printed;  w = r / sqrt(2);  a_0 = w^2 + w^2;  u_0 = w^2 - 1/2
    a_{i+1} = a_i (1 - u_i);  u_{i+1} = u_i^2 (u_i - 3/2);  a_d -> |r|

    >>> [round(float(excess((s - 0.0) / 2, 9)) + 0.5, 6) for s in (-0.5, -0.1, 0.1, 0.9)]
    [0.5, 0.499557, 0.549557, 0.95]
    """
    w = q * ((1.0 if scaled else 0.5) / np.sqrt(2.0))
    square = w * w
    a, u = square + square, square + -0.5
    for _ in range(d):
        a, u = iterate(a, u)
    return q * 0.5 + a * (0.5 if scaled else 1.0)


def iterate(a: Any, u: Any) -> tuple[Any, Any]:
    """One iteration: (a (1 - u), u^2 (u - 3/2)). Two rescales of ciphertexts, without a constant factor."""
    return a - a * u, (u * u) * (u + -1.5)


def weight_of(sim: np.ndarray, rule: WeightRule) -> tuple[np.ndarray, np.ndarray]:
    """(b, j) of cosines, both (m,)."""
    if rule.weight == "uniform":
        return np.ones(len(sim), bool), np.ones(len(sim))
    if rule.compare == "masked_sign":
        b = sim > rule.chi
        shifted = (1 + sim) / 2
    else:
        over = excess((sim - rule.chi) / 2, rule.d, rule.scaled)
        b = over > 1e-6                 # a cosine within 1e-5 of chi may fall either way
        shifted = over + (1 + rule.chi) / 2
    exact = rule.compare == "masked_sign" and rule.weight == "sim"
    return b, np.where(b, sim if exact else shifted if rule.weight == "shifted" else 2 * shifted - 1, 0.0)


def aligned(own: Mapping[int, np.ndarray], rule: WeightRule) -> Aligned:
    """The rule for one class: {client: u (n,)}, of the clients that hold it."""
    clients = sorted(own)
    if not clients:
        return Aligned(None, {}, frozenset(), {})
    U = np.stack([np.asarray(own[m], np.float64) for m in clients])                 # (m, n)
    T = U.sum(0)
    t = float(np.linalg.norm(T))
    if t < LEAST:
        return Aligned(None, {}, frozenset(), {})
    sim = U @ T / t
    b, j = weight_of(sim, rule)
    accepted = frozenset(m for m, kept in zip(clients, b.tolist(), strict=True) if kept)
    C = j @ U / j.sum() if j.sum() >= LEAST and len(accepted) >= rule.min_holders else None
    return Aligned(C, dict(zip(clients, sim.tolist(), strict=True)), accepted,
                   dict(zip(clients, j.tolist(), strict=True)))


def aligned_classes(prototypes: Mapping[int, Mapping[int, np.ndarray]], rule: WeightRule) -> dict[int, Aligned]:
    """The rule for every class that somebody holds: {client: {class: u (n,)}}, classes ascending."""
    held = sorted({k for own in prototypes.values() for k in own})
    return {k: aligned({m: own[k] for m, own in prototypes.items() if k in own}, rule) for k in held}


def cosine_quantiles(prototypes: Mapping[int, Mapping[int, np.ndarray]]) -> dict[str, float]:
    """The distribution of the cosines with the mean direction of their class: {client: {class: u (n,)}}; {} of none."""
    found = [sim for one in aligned_classes(prototypes, WeightRule()).values() for sim in one.cosines.values()]
    if not found:
        return {}
    least, low, median, most = np.quantile(found, [0.0, 0.1, 0.5, 1.0]).tolist()
    return {"cosine_least": least, "cosine_p10": low, "cosine_median": median, "cosine_largest": most}
