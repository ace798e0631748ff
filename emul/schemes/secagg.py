"""Secure aggregation by double masking. Bonawitz et al., CCS 2017, figure 4.

The server learns the sum of the updates of U3, the clients whose masked input came in time, and nothing else, as long
as it sees the shares of fewer than t clients (semi-honest). With `adversary: active` it may also deviate: keys are
signed, and a client reveals nothing before t clients have signed the U3 that it was shown. Each stage closes a set, and
only the set counts from then on: U0 selected > U1 sent keys > U2 shared > U3 sent a masked input > U4 signed U3 (active
only) > U5 revealed shares.

    y_i = x_i + PRG(b_i) + sum_{j in N_i & U2} sgn(i, j) PRG(s_ij)      in Z_2^32, sgn(i, j) = +1 if i < j, else -1
    sum_{U3} x = sum_{U3} y - sum_{U3} PRG(b_i) - sum_{j in U2 - U3} sum_{i in N_j & U3} sgn(j, i) PRG(s_ij)

Deviation: by default (`route: direct`) encrypted shares go from client to client, not through the server. A share that
is lost is missing at the unmasking, nothing more. The masks run over the U2 that the server announces: of each of its
members it has heard that the shares are out.

Stages, messages and their bytes: `emul.protocols.pairwise`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from emul.primitives.crypto.graphs import complete
from emul.protocols import pairwise
from emul.protocols.pairwise.quantised import join, serve
from emul.protocols.sums import cohort_size, honest_update, wrong_coding, wrong_cohort
from emul.roles import Node, World


@dataclass(frozen=True)
class Params:
    # t, shares that give a secret; None: floor(2n/3) + 1. At n/2 or below, a server that shows two versions of U3 to
    # two halves of the clients learns both secrets of one
    threshold: int | None = None
    stage_deadline_s: float | None = None   # of each of the four stages; None: until the fates are known
    bits: int = 16                          # of a quantised value
    clip: float = 1.0                       # values of an update outside [-clip, clip] are cut, and counted
    fraction: float = 1.0                   # of the clients, drawn each round
    # "samples" sends n_k x_k and n_k: it needs sum n_k (2^bits - 1) < 2^32, hence the default
    weights: Literal["samples", "uniform"] = "uniform"
    route: Literal["direct", "server"] = "direct"               # of encrypted shares
    adversary: Literal["semi_honest", "active"] = "semi_honest"
    verify_spare: bool = False              # hold the shares beyond t against the others
    audit: bool = False                     # leave inputs, sums and what was revealed in the run directory


def threshold(p: Params, clients: int) -> int:
    """t, by default floor(2n/3) + 1 for the n clients drawn each round: sound against server and n/3 clients."""
    return p.threshold if p.threshold is not None else 2 * cohort_size(p.fraction, clients) // 3 + 1


async def server(node: Node, p: Params) -> None:
    await serve(node, p, complete, threshold(p, len(node.clients)), p.adversary == "active")


async def client(node: Node, p: Params) -> None:
    await join(node, p, threshold(p, len(node.clients)), p.adversary == "active")


HONEST = honest_update
MESSAGES = pairwise.MESSAGES
ROLES = {"server": server, "client": client}
OBLIVIOUS = True
STATELESS = ("client",)


def check(params: Params, world: World) -> list[str]:
    """What is wrong with these parameters, if anything."""
    p, errors = params, wrong_cohort(params.fraction, world)
    if not 0 < p.fraction <= 1:
        return errors
    n, t = cohort_size(p.fraction, world.clients), threshold(p, world.clients)
    if n >= 2 and not 2 <= t <= n:
        errors.append(f"threshold = {p.threshold}: expected 2..{n}, the clients of a round")
    elif p.adversary == "active" and 2 * t <= n:
        errors.append(f"threshold = {t}: against an active server more than half of the {n} clients of a round, so "
                      "that no two sets of survivors find t signatures each")
    return errors + wrong_coding(p, n)


def warn(params: Params, world: World) -> list[str]:
    """What is allowed and unsafe: below 2 t > n a server that shows two versions of U3 learns both secrets of one."""
    n, t = cohort_size(params.fraction, world.clients), threshold(params, world.clients)
    if 2 * t > n:
        return []
    return [f"threshold = {t}: at most half of the {n} clients of a round; a server that tells two parts of them "
            f"different survivors unmasks single updates; sound from {n // 2 + 1} on"]


EXAMPLE = """
emul: 1
name: secagg
seed: 7
topology: {generator: star_mesh, clients: 5}
links:
  - {match: "*", latency: 20 ms, bandwidth: 20 Mbit/s}
  - {match: "client*->server*", outage: {model: bernoulli, p: 0.1, per: round}}
task: {data: {set: digits}, partition: {dirichlet: 0.5}, model: logistic,
       solver: {sgd: {lr: 0.1, steps: 1, batch: 16}}}
compute: {mode: zero}
schemes: [{name: secagg, stage_deadline: 500 ms}]
stop: {rounds: 3}
"""
