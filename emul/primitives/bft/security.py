"""The probability that the servers bear their malicious ones."""

from __future__ import annotations

from math import comb


def security_probability(servers: int, p: float) -> float:
    """P(N, p) = sum_{i <= f} binom(N, i) p^i (1 - p)^(N - i), f = floor((N - 1) / 3).

    Each of N >= 1 servers is malicious with probability p, independently. It does not grow with every server added: f
    only does with every third. Raises ValueError for p outside [0, 1].

    >>> [round(security_probability(n, 0.25), 4) for n in (4, 19, 21)]
    [0.7383, 0.8251, 0.7436]
    """
    if servers < 1 or not 0 <= p <= 1:
        raise ValueError(f"servers = {servers}, p = {p}: expected one server or more and a probability")
    return sum(comb(servers, i) * p**i * (1 - p) ** (servers - i) for i in range((servers - 1) // 3 + 1))
