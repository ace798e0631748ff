"""The rates of flows over media and wires: each link has a level, and worth is by link.

A flow j gets x_j = min over its links l of level_l * s_lj, and a link that limits anything is full: the sum of
c_lj * x_j is its capacity. s is 1 on a wire and in a medium fair in throughput, r_j / k in one fair in airtime (k flows
of one station). c is 1 on a wire, the seconds of a bit in a medium. With s = 1 everywhere that is max-min fairness. A
weight r_j for the whole network would also split a wire behind a cell by r_j, which no such wire does.

The levels are found by turns: each link in turn is filled, as the others stand. Once the links that limit the flows are
the same as a round before, the levels are the solution of a linear system, which is then checked. All of it works on
arrays of the flows of a link: in place of lists that is 2.4 times as fast for 400 flows, half as fast for 8
(`benchmarks/bench_media.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf

import numpy as np
from numpy.typing import NDArray

from emul.base.errors import NetworkError
from emul.network.links.media import SharedMedium, stopped
from emul.network.links.shares import Flow, SharedLink

MOST_ROUNDS = 50
_TOLERANCE = 1e-9           # relative, in the check of a solution
_CAP = -1                   # stands for a flow's own cap among the links that may limit it

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]


@dataclass(slots=True)
class Filled:
    """A link with two flows or more: its capacity, and of each of its flows the number, share s and cost c."""

    capacity: float
    flows: Ints
    shares: Floats
    costs: Floats
    weights: Floats = field(init=False)
    caps: Floats = field(init=False)        # of the flows
    others: Ints = field(init=False)        # other link of a flow x flow: its number
    worth: Floats = field(init=False)       # ... and the flow's share there

    def __post_init__(self) -> None:
        self.weights = self.costs * self.shares

    def fill(self, levels: Floats) -> float:
        """The level at which the link is full where each flow takes no more than its other links, at these levels, and
        its cap let it; inf: it is never full."""
        most = np.minimum(self.caps, (levels[self.others] * self.worth).min(axis=0))
        keys, taken = most / self.shares, self.costs * most
        order = np.lexsort((taken, self.weights, keys))             # flows with equal keys in an order of their own
        loads = self.weights[order][::-1].cumsum()[::-1]
        left = np.empty(len(order))
        left[0], left[1:] = self.capacity, taken[order[:-1]]
        left = np.maximum(np.subtract.accumulate(left), 0.0)
        full = keys[order] * loads > left
        first = int(full.argmax())
        return float(left[first] / loads[first]) if full[first] else inf


@dataclass(slots=True)
class _Problem:
    """Flows with a cap each, and the links that they share."""

    caps: Floats
    links: list[Filled]
    ways: Ints = field(init=False)          # link of a flow x flow: its number, in order; len(links): none
    shares: Floats = field(init=False)      # ... and its share there; 1: of none

    def __post_init__(self) -> None:
        none, of = len(self.links), [link.flows for link in self.links]
        most = int(np.bincount(np.concatenate(of)).max()) if of else 1
        self.ways = np.full((most, len(self.caps)), none)
        self.shares = np.ones(self.ways.shape)
        count = np.zeros(len(self.caps), np.intp)
        places = []                         # of each link, among those of its flows
        for n, (link, flows) in enumerate(zip(self.links, of, strict=True)):
            place = count[flows]
            self.ways[place, flows], self.shares[place, flows] = n, link.shares
            count[flows] += 1
            places.append(place)
        for link, flows, place in zip(self.links, of, places, strict=True):
            link.caps, link.others, link.worth = self.caps[flows], self.ways[:, flows], self.shares[:, flows]
            column = np.arange(len(flows))
            link.others[place, column], link.worth[place, column] = none, 1.0

    def solution(self) -> Floats:
        """The rates of the flows. Raises NetworkError: none is found in MOST_ROUNDS rounds."""
        levels = np.full(len(self.links) + 1, inf)          # one more, of no link: inf for good
        limits: Ints | None = None
        for _ in range(MOST_ROUNDS):
            for n, link in enumerate(self.links):
                levels[n] = link.fill(levels)
            before, limits = limits, self.limits(levels)
            if before is not None and (limits == before).all():
                found = self.linear(limits)
                if found is not None:
                    return found
        # Links that are alike: no system of equations tells their levels apart, or they limit the flows in turn.
        found = self.as_filled(levels)
        if found is not None:
            return found
        raise NetworkError(f"the rates of {len(self.caps)} flows over {len(self.links)} links and media that they "
                           f"share: no solution after {MOST_ROUNDS} rounds")

    def limits(self, levels: Floats) -> Ints:
        """The link that limits each flow: the one of the least rate, the first of them; _CAP: its cap."""
        rates = levels[self.ways] * self.shares
        least, flows = rates.argmin(axis=0), np.arange(len(self.caps))
        return np.where(rates[least, flows] < self.caps, self.ways[least, flows], _CAP)

    def linear(self, limits: Ints) -> Floats | None:
        """The rates if each flow is limited by that link, and these links are full; None: they are not, or there are
        none."""
        full = sorted(set(limits.tolist()) - {_CAP})
        place = np.full(len(self.links) + 1, -1)
        place[full] = range(len(full))
        share = np.where(self.ways == limits, self.shares, 1.0).prod(axis=0)       # of a cap: 1
        capped = limits == _CAP
        matrix, right = np.zeros((len(full), len(full))), np.zeros(len(full))
        for row, n in enumerate(full):
            link = self.links[n]
            flows, costs, right[row] = link.flows, link.costs, link.capacity
            if capped.any():
                at_cap = capped[flows]
                for taken in (costs[at_cap] * link.caps[at_cap]).tolist():
                    right[row] -= taken
                flows, costs = flows[~at_cap], costs[~at_cap]
            size = link.capacity or 1.0         # seconds and bit/s are told apart by a factor of 10^8
            matrix[row] = np.bincount(place[limits[flows]], costs * share[flows], len(full)) / size
            right[row] /= size
        levels = np.full(len(self.links) + 1, inf)
        try:
            levels[full] = np.linalg.solve(matrix, right) if len(full) else right
        except np.linalg.LinAlgError:
            return None
        rates = np.where(capped, self.caps, levels[limits] * share)
        over, most = 1 + _TOLERANCE, rates.max(initial=0.0)
        if not ((rates >= -_TOLERANCE * most) & (rates < inf)).all():
            return None
        rates, levels = np.maximum(rates, 0.0), np.maximum(levels, 0.0)     # of a link that caps alone fill
        if (rates > self.caps * over).any() or (rates > levels[self.ways] * self.shares * over).any():
            return None
        if any(place[n] < 0 and link.costs @ rates[link.flows] > link.capacity * over
               for n, link in enumerate(self.links)):
            return None
        return rates

    def as_filled(self, levels: Floats) -> Floats | None:
        """The rates at these levels; None: a link has more than it carries, or a flow could have more."""
        least = levels[self.ways] * self.shares
        rates = np.minimum(self.caps, least.min(axis=0))
        used = np.array([link.costs @ rates[link.flows] for link in self.links])
        capacity = np.array([link.capacity for link in self.links])
        if (used > capacity * (1 + _TOLERANCE)).any():
            return None
        full = np.append(used >= capacity * (1 - _TOLERANCE), False)
        held = (least <= rates * (1 + _TOLERANCE)) & full[self.ways]
        return rates if ((rates >= self.caps) | held.any(axis=0)).all() else None


def fill(flows: Iterable[Flow], links: Iterable[SharedLink]) -> None:
    """Set `rate_bps` of the flows, which have all their finite links among `links`. Raises NetworkError where no
    solution is found in MOST_ROUNDS rounds."""
    moving: list[Flow] = []
    for flow in flows:
        flow.rate_bps = 0.0
        if not stopped(flow):
            moving.append(flow)
    number = {flow: i for i, flow in enumerate(moving)}
    caps, filled = np.full(len(moving), inf), list[Filled]()
    for link in links:
        users = [flow for flow in link.flows if flow in number]
        if isinstance(link, SharedMedium):
            capacity, shares, costs = link.terms(users)
        else:
            assert link.bandwidth_bps is not None
            capacity, shares, costs = link.bandwidth_bps, [1.0] * len(users), [1.0] * len(users)
        if len(users) == 1:             # what a flow has for itself is a cap
            i = number[users[0]]
            caps[i] = min(caps[i], capacity / costs[0])
        elif users:
            filled.append(Filled(capacity, np.array([number[flow] for flow in users]), np.array(shares),
                                 np.array(costs)))
    # the tightest first, by the rate that equal flows would get: so most levels are right after one turn
    filled.sort(key=lambda one: one.capacity / sum(one.costs.tolist()))
    for flow, rate in zip(moving, _Problem(caps, filled).solution().tolist(), strict=True):
        flow.rate_bps = rate
