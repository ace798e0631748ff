"""FoolsGold: clients whose histories are too much alike are one attacker. Fung, Yoon, Beschastnikh, RAID 2020, Alg. 1.

    cs_ij = cos(h_i, h_j), h_i = sum over rounds of x_i;  v_i = max_{j != i} cs_ij, at least 0
    pardoning:  cs_ij <- cs_ij v_i / v_j  where v_i < v_j
    a_i = 1 - max_j cs_ij in [0, 1];  a <- a / max a;  a_i <- kappa (ln(a_i / (1 - a_i)) + 1/2) in [0, 1]

Details are those of the authors' code (deep-fg/fg/foolsgold.py): v_i is at least 0, and an a_i of 1 is taken as 0.99
before the logit. Deviations: the code adds sum_i a_i x_i, here that is divided by sum_i a_i, since the size of a step
should not grow with n; whole updates are compared, not the output layer alone; if all histories are one, the authors'
code divides 0 by 0, here nobody is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from emul.primitives.robust.aggregation import (
    Aggregation,
    Floats,
    Rows,
    Updates,
    above_zero,
    rows_of,
    weighted_mean_of,
)
from emul.primitives.robust.distances import gram

ALMOST_ONE = 0.99
SAME = 1e-12        # histories whose cosine is this close to 1 are one: rounding of sums of d products


@dataclass(frozen=True)
class History:
    """The sum of all updates of each client so far, in the type of the updates. A round makes a new one."""

    sums: Mapping[int, NDArray[np.floating]] = field(default_factory=dict)      # client -> (d,)

    def with_round(self, clients: Sequence[int], rows: Rows) -> History:
        """The history after a round. Raises ValueError if a client's update has another length than before."""
        added = dict(self.sums)
        for client, row in zip(clients, rows, strict=True):
            before = added.get(client)
            if before is not None and before.shape != row.shape:
                raise ValueError(f"client {client} has a history of shape {before.shape} and an update of {row.shape}")
            added[client] = np.array(row) if before is None else before + row
        return History(added)


def foolsgold(updates: Updates, clients: Sequence[int], history: History | None = None,
              kappa: float = 1.0) -> Aggregation:
    """The mean of the updates, weighted by how unlike others their clients' histories are.

    updates: (n, d). clients: whose they are, n different ids. history: after the round before; None: the first
    round. `state` of the result is the history after this one. kappa: confidence, above 0. Scores are max_j cs_ij after
    pardoning: 1 is a copy. Nobody left: zeros. Raises ValueError for other arguments.
    """
    rows = rows_of(updates)
    if len(clients) != len(rows) or len(set(clients)) != len(rows):
        raise ValueError(f"clients are {list(clients)}, expected {len(rows)} different ids")
    if not kappa > 0:
        raise ValueError(f"kappa is {kappa}, expected a number above 0")
    history = (history or History()).with_round(clients, rows)
    alike = similarity(cosines([history.sums[client] for client in clients]))
    aggregate, weights = weighted_mean_of(rows, learning_rates(alike, kappa))
    return Aggregation(aggregate, above_zero(weights), weights, alike,
                       "largest cosine with another client's history, after pardoning; 1: a copy", state=history)


def cosines(rows: Rows) -> Floats:
    """(n, n) cosines of the rows, 0 on the diagonal and for rows of zeros."""
    products = gram(rows)
    sizes = np.sqrt(np.diag(products))
    sizes = np.where(sizes > 0, sizes, 1.0)
    between = products / (sizes[:, None] * sizes)
    np.fill_diagonal(between, 0.0)      # as in the authors' code: the largest of a row is 0 at least
    return between


def similarity(between: Floats) -> Floats:
    """(n,) largest cosine of each client after pardoning those that are less alike than the other. between: (n, n)."""
    largest = between.max(axis=1)                                                        # v
    pardon = np.ones_like(between)
    np.divide(largest[:, None], largest, out=pardon, where=largest[:, None] < largest)   # v_i / v_j
    return (between * pardon).max(axis=1)


def learning_rates(alike: Floats, kappa: float) -> Floats:
    """a, (n,) in [0, 1], from max_j cs_ij; zeros if all are copies."""
    a = np.clip(1.0 - alike, 0.0, 1.0)
    a[a < SAME] = 0.0
    if not a.max() > 0:
        return a
    a = a / a.max()
    a[a == 1.0] = ALMOST_ONE
    with np.errstate(divide="ignore"):      # ln 0: a copy, which ends at 0
        return np.clip(kappa * (np.log(a / (1.0 - a)) + 0.5), 0.0, 1.0)
