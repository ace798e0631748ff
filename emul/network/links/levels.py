"""The rates of flows over media and wires: each link has a level, and worth is by link.

A flow j gets x_j = min over its links l of level_l * s_lj, and a link that limits anything is full: the sum of
c_lj * x_j is its capacity. s is 1 on a wire and in a medium fair in throughput, r_j / k in one fair in airtime (k flows
of one station). c is 1 on a wire, the seconds of a bit in a medium. With s = 1 everywhere that is max-min fairness. A
weight r_j for the whole network would also split a wire behind a cell by r_j, which no such wire does.

The levels are found by turns: each link in turn is filled, as the others stand. Once the links that limit the flows are
the same as a round before, the levels are the solution of a linear system, which is then checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf
from typing import TypeAlias

import numpy as np

from emul.base.errors import NetworkError
from emul.network.links.media import SharedMedium, stopped
from emul.network.links.shares import Flow, SharedLink

MOST_ROUNDS = 50
_TOLERANCE = 1e-9           # relative, in the check of a solution
_CAP = -1                   # stands for a flow's own cap among the links that may limit it
# of a flow on a link: its cap; another link of it, with the share there, and further ones; share, cost, their product
_Bound: TypeAlias = tuple[float, int, float, list[tuple[int, float]], float, float, float]


@dataclass(slots=True)
class Filled:
    """A link with two flows or more: its capacity, and (flow, share s, cost c) of each flow by number."""

    capacity: float
    terms: list[tuple[int, float, float]]
    bounds: list[_Bound]                # of each term
    several: bool = False               # a flow has more than one other link

    def bind(self, number: int, caps: Sequence[float], on: Sequence[Sequence[tuple[int, float]]], none: int) -> None:
        """Note the cap of each flow, and its links but this one, which is `number`. none: in place of a link."""
        for i, s, c in self.terms:
            others = [way for way in on[i] if way[0] != number] or [(none, 1.0)]
            self.several = self.several or len(others) > 1
            self.bounds.append((caps[i], *others[0], others[1:], s, c, c * s))

    def fill(self, levels: Sequence[float]) -> float:
        """The level at which the link is full where each flow takes no more than its other links, at these levels, and
        its cap let it; inf: it is never full."""
        if self.several:
            waiting = [(most / s, weight, c * most) for cap, n, share, more, s, c, weight in self.bounds
                       for most in (min([cap, levels[n] * share, *(levels[m] * t for m, t in more)]),)]
        else:                           # by far the most: without a list for each flow
            waiting = [(most / s, weight, c * most) for cap, n, share, _, s, c, weight in self.bounds
                       for rate in (levels[n] * share,) for most in (rate if rate < cap else cap,)]
        waiting.sort()
        loads = list(accumulate([weight for _, weight, _ in reversed(waiting)]))
        loads.reverse()
        left = self.capacity
        for (key, _, taken), load in zip(waiting, loads, strict=True):
            if key * load > left:
                return left / load
            left -= taken
            if left < 0.0:
                left = 0.0
        return inf


def fill(flows: Iterable[Flow], links: Iterable[SharedLink]) -> None:
    """Set `rate_bps` of the flows, which have all their finite links among `links`. Raises NetworkError where no
    solution is found in MOST_ROUNDS rounds."""
    moving: list[Flow] = []
    for flow in flows:
        flow.rate_bps = 0.0
        if not stopped(flow):
            moving.append(flow)
    number = {flow: i for i, flow in enumerate(moving)}
    caps, filled = [inf] * len(moving), list[Filled]()
    for link in links:
        users = [flow for flow in link.flows if flow in number]
        if isinstance(link, SharedMedium):
            capacity, terms = link.terms(users)
        else:
            assert link.bandwidth_bps is not None
            capacity, terms = link.bandwidth_bps, [(flow.weight, 1.0) for flow in users]
        if len(users) == 1:             # what a flow has for itself is a cap
            i = number[users[0]]
            caps[i] = min(caps[i], capacity / terms[0][1])
        elif users:
            filled.append(Filled(capacity, [(number[flow], s, c) for flow, (s, c) in zip(users, terms, strict=True)],
                                 []))
    # the tightest first, by the rate that equal flows would get: so most levels are right after one turn
    filled.sort(key=lambda one: one.capacity / sum(c for _, _, c in one.terms))
    for flow, rate in zip(moving, _solution(caps, filled), strict=True):
        flow.rate_bps = rate


def _solution(caps: list[float], links: list[Filled]) -> list[float]:
    on: list[list[tuple[int, float]]] = [[] for _ in caps]              # flow -> (link, share) of its links
    for n, link in enumerate(links):
        for i, s, _ in link.terms:
            on[i].append((n, s))
    for n, link in enumerate(links):
        link.bind(n, caps, on, len(links))
    levels = [inf] * (len(links) + 1)           # one more, of no link: inf for good
    limits: list[int] = []
    for _ in range(MOST_ROUNDS):
        for n, link in enumerate(links):
            levels[n] = link.fill(levels)
        before, limits = limits, [_limit(cap, ways, levels) for cap, ways in zip(caps, on, strict=True)]
        if limits == before:
            found = _linear(caps, links, on, limits)
            if found is not None:
                return found
    # Links that are alike: no system of equations tells their levels apart, or they limit the flows in turn.
    found = _as_filled(caps, links, on, levels)
    if found is not None:
        return found
    raise NetworkError(f"the rates of {len(caps)} flows over {len(links)} links and media that they share: no solution "
                       f"after {MOST_ROUNDS} rounds")


def _as_filled(caps: list[float], links: list[Filled], on: list[list[tuple[int, float]]],
               levels: Sequence[float]) -> list[float] | None:
    """The rates at these levels; None: a link has more than it carries, or a flow could have more."""
    rates = [min([cap, *(levels[n] * s for n, s in ways)]) for cap, ways in zip(caps, on, strict=True)]
    used = [sum(c * rates[i] for i, _, c in link.terms) for link in links]
    if any(load > link.capacity * (1 + _TOLERANCE) for load, link in zip(used, links, strict=True)):
        return None
    for rate, cap, ways in zip(rates, caps, on, strict=True):
        if rate < cap and not any(levels[n] * s <= rate * (1 + _TOLERANCE)
                                  and used[n] >= links[n].capacity * (1 - _TOLERANCE) for n, s in ways):
            return None
    return rates


def _limit(cap: float, ways: list[tuple[int, float]], levels: Sequence[float]) -> int:
    """The link that limits a flow: the one of the least rate, the first of them."""
    least, limit = cap, _CAP
    for n, s in ways:
        rate = levels[n] * s
        if rate < least:
            least, limit = rate, n
    return limit


def _linear(caps: list[float], links: list[Filled], on: list[list[tuple[int, float]]],
            limits: list[int]) -> list[float] | None:
    """The rates if each flow is limited by that link, and these links are full; None: they are not, or there are none.
    """
    full = sorted({n for n in limits if n != _CAP})
    place = {n: row for row, n in enumerate(full)}
    share = [dict(ways).get(n, 1.0) for n, ways in zip(limits, on, strict=True)]        # of a cap: 1
    matrix, right = np.zeros((len(full), len(full))), np.zeros(len(full))
    for row, n in enumerate(full):
        right[row] = links[n].capacity
        for i, _, c in links[n].terms:
            if limits[i] == _CAP:
                right[row] -= c * caps[i]
            else:
                matrix[row, place[limits[i]]] += c * share[i]
        size = links[n].capacity or 1.0         # seconds and bit/s are told apart by a factor of 10^8
        matrix[row] /= size
        right[row] /= size
    try:
        levels: list[float] = np.linalg.solve(matrix, right).tolist() if full else []
    except np.linalg.LinAlgError:
        return None
    rates = [caps[i] if n == _CAP else levels[place[n]] * share[i] for i, n in enumerate(limits)]
    over, most = 1 + _TOLERANCE, max(rates, default=0.0)
    if not all(-_TOLERANCE * most <= rate < inf for rate in rates):
        return None
    rates = [max(0.0, rate) for rate in rates]          # of a link that caps alone fill
    most_at = [max(0.0, levels[place[n]]) if n in place else inf for n in range(len(links))]
    for rate, cap, ways in zip(rates, caps, on, strict=True):
        if rate > cap * over:
            return None
        for n, s in ways:
            if rate > most_at[n] * s * over:
                return None
    for n, link in enumerate(links):
        if n not in place and sum(c * rates[i] for i, _, c in link.terms) > link.capacity * over:
            return None
    return rates
