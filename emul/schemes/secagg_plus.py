"""Secure aggregation over a random k-regular graph (SecAgg+). Bell et al., CCS 2020.

The protocol is that of SecAgg, with N_i the k neighbours of i: the server puts the clients on a ring in random order,
anew each round, and joins each with k/2 on either side. So a client's cost grows with k, about log n, instead of n.

k and t follow from gamma (fraction of colluding clients), delta (of those that drop out), sigma and eta: the smallest
even k, and for it the smallest t, for which by union bounds

    survivors fall apart: n (n-k-1)/2 C(n-k, A+D-k) / C(n, A+D) <= 2^-(sigma+1)       A = gamma n, D = delta n
    t colluders around one client: n P[Hyp(n-1, A, k) >= t] <= 2^-(sigma+1)
    too few survivors around one: n P[Hyp(n-1, n-1-D, k) < t] <= 2^-eta

Where no k below n - 1 will do, the graph is complete and t = floor(2n/3) + 1. Against a server that only looks, and up
to gamma n clients with it. With `adversary: active` keys are signed, survivors are agreed on and t is larger; but the
edges are still the server's to draw, where the paper has the clients choose theirs.

The search follows public code of the paper's authors: k may differ by 2 from the paper's. Stages, messages and their
bytes: `emul.protocols.pairwise`.

Protects: a client's update from the server and up to gamma n colluding clients, but for 2^-sigma: they see the sum over
U3 alone. Not: the sum itself, who took part, false inputs, a server that draws the graph to its liking.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from emul.primitives.crypto.graphs import Closed, complete, degree_and_threshold, ring
from emul.protocols import pairwise
from emul.protocols.pairwise.quantised import PairwiseSum, join, serve
from emul.protocols.sums import cohort_size, honest_update, wrong_coding, wrong_cohort
from emul.roles import Node, Scheme, World, checks
from emul.roles.example import example


@dataclass(frozen=True)
class Params(PairwiseSum):
    neighbours: int | None = None           # k, even; None: from the next four. From n - 1 on the graph is complete
    threshold: int | None = None            # t; given with `neighbours` or not at all
    gamma: float = 0.1                      # of the clients collude with the server
    delta: float = 0.1                      # of the clients drop out
    sigma: int = 40                         # inputs are exposed with at most 2^-sigma
    eta: int = 20                           # a round is lost with at most 2^-eta
    adversary: Literal["semi_honest", "active"] = "semi_honest"
    # prune: a client with too few neighbours left, after keys or shares, is left out; abort: the round is given up
    small_neighbourhood: Literal["abort", "prune"] = "abort"


def density(p: Params, clients: int) -> tuple[int, int]:
    """(k, t) for the n clients drawn each round; k = n - 1: the complete graph."""
    n = cohort_size(p.fraction, clients)
    if p.neighbours is not None and p.threshold is not None:
        return min(p.neighbours, n - 1), p.threshold
    return _searched(n, p.gamma, p.delta, p.sigma, p.eta, p.adversary == "active")


_searched = lru_cache(maxsize=64)(degree_and_threshold)


async def server(node: Node, p: Params) -> None:
    k, t = density(p, len(node.clients))
    rng = node.stream("mask graph")

    def graph(nodes: Sequence[int]) -> Closed:
        return complete(nodes) if k >= len(nodes) - 1 else ring(nodes, k, rng)

    await serve(node, p, graph, t, p.adversary == "active", p.small_neighbourhood == "prune")


async def client(node: Node, p: Params) -> None:
    await join(node, p, density(p, len(node.clients))[1], p.adversary == "active")


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    p, errors = params, wrong_cohort(params.fraction, world)
    if errors:
        return errors
    n = cohort_size(p.fraction, world.clients)
    errors = wrong_coding(p, n)
    if p.receipts and p.adversary == "active":
        errors.append("receipts: expected with adversary: semi_honest: what clients have signed says nothing of K")
    if (p.neighbours is None) != (p.threshold is None):
        errors.append("neighbours: expected with threshold, or neither: t has to fit k")
    elif p.neighbours is not None and p.threshold is not None:
        most = min(p.neighbours, n - 1) + 1
        if p.neighbours < 2 or (p.neighbours % 2 and p.neighbours < n - 1):
            errors.append(f"neighbours = {p.neighbours}: expected an even number, 2 or above")
        elif not 2 <= p.threshold <= most:
            errors.append(f"threshold = {p.threshold}: expected 2..{most}, a client and its neighbours")
        elif p.adversary == "active" and 2 * p.threshold <= most:
            errors.append(f"threshold = {p.threshold}: against an active server more than half of {most}, a client "
                          "and its neighbours")
    return errors + wrong_chances(p)


def wrong_chances(p: Params) -> list[str]:
    """gamma = 0 would give t = 2, which protects nobody."""
    errors = checks.probabilities(gamma=p.gamma) + checks.below_one(delta=p.delta)
    if 0 <= p.delta < 1 <= p.gamma + p.delta:
        errors.append(f"delta = {p.delta}: expected less than 1 - gamma")
    return errors + checks.at_least(1, "1 or more", sigma=p.sigma, eta=p.eta)


def warn(params: Params, world: World) -> list[str]:
    """Warnings of cases that the security statement leaves out."""
    if params.adversary != "active":
        return []
    found = ["adversary = active: the server draws the edges; in the paper the clients do, and only then no server can "
             "surround a client by its own"]
    if params.neighbours is not None and params.threshold is not None:
        holders = min(params.neighbours, cohort_size(params.fraction, world.clients) - 1) + 1
        found.append(f"threshold = {params.threshold}: holds against fewer than {2 * params.threshold - holders} "
                     "colluding neighbours of a client; by default it is derived from gamma")
    return found


EXAMPLE = example("secagg_plus", "neighbours: 4, threshold: 3, audit: true", topology="star, clients: 8", links=(),
                  sections="""
faults:
  - {node: client2, stage: Masked, drop: true, rounds: 2}
  - {node: client5, stage: Reveal, drop: true, rounds: 2}
""")

SCHEME = Scheme(
    params=Params, roles={"server": server, "client": client}, messages=pairwise.MESSAGES, stateless=("client",),
    unsent=lambda p: pairwise.unsent(p.route), oblivious=True, timeouts=("stage_deadline_s",), audits=True,
    honest=honest_update, check=check, warn=warn, example=EXAMPLE)
