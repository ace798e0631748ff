"""Secure aggregation by double masking. Bonawitz et al., CCS 2017, figure 4 without the consistency check of stage 3.

The server learns the sum of the updates of U3, the clients whose masked input came in time, and nothing else, as long
as it sees the shares of fewer than t clients (semi-honest). Each stage closes a set, and only the set counts from then
on: U0 selected > U1 sent keys > U2 shared > U3 sent a masked input > U5 revealed shares.

    y_i = x_i + PRG(b_i) + sum_{j in N_i & U2} sgn(i, j) PRG(s_ij)      in Z_2^32, sgn(i, j) = +1 if i < j, else -1
    sum_{U3} x = sum_{U3} y - sum_{U3} PRG(b_i) - sum_{j in U2 - U3} sum_{i in N_j & U3} sgn(j, i) PRG(s_ij)

Deviation: encrypted shares go from client to client, not through the server. A share that is lost is missing at the
unmasking, nothing more. The masks run over the U2 that the server announces: of each of its members it has heard
that the shares are out.

Stages, messages and their bytes: `emul.protocols.pairwise`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from emul.learning import NodeTask
from emul.primitives.quantise import RING, Quantiser, QuantiserOverflow
from emul.protocols import pairwise
from emul.protocols.pairwise.client import pairwise_client
from emul.protocols.pairwise.messages import Begin
from emul.protocols.pairwise.server import pairwise_server
from emul.protocols.rounds import train_once
from emul.roles import Node, Received, Vector, World, checks


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


def threshold(p: Params, clients: int) -> int:
    """t, by default floor(2n/3) + 1 for the n clients drawn each round: sound against server and n/3 clients."""
    return p.threshold if p.threshold is not None else 2 * cohort_size(p, clients) // 3 + 1


def cohort_size(p: Params, clients: int) -> int:
    """n = |U0|, as `node.sample` draws it."""
    return max(1, round(p.fraction * clients))


def complete(nodes: Sequence[int]) -> Mapping[int, frozenset[int]]:
    """SecAgg's mask graph: everybody is everybody's neighbour."""
    return dict.fromkeys(nodes, frozenset(nodes))


async def server(node: Node, p: Params) -> None:
    await pairwise_server(node, complete, threshold(p, len(node.clients)), partial(add_mean, p=p), fraction=p.fraction,
                          deadline_s=p.stage_deadline_s, extra=p.weights == "samples")


async def client(node: Node, p: Params) -> None:
    clients = len(node.clients)
    await pairwise_client(node, threshold(p, clients), partial(train_once, node),
                          partial(ring_input, p=p, n=cohort_size(p, clients)), deadline_s=p.stage_deadline_s)


def ring_input(update: Vector, samples: int, p: Params, n: int) -> tuple[np.ndarray, float]:
    """(x_i, fraction of the update's values that were clipped). x_i: (d,) uint32, or weighted (d + 1,): w q and w.

    Raises QuantiserOverflow if n clients of this weight could pass the ring.
    """
    quantiser = Quantiser(p.clip, p.bits)
    q, clipped = quantiser.quantise(update), quantiser.clip_fraction(update)
    if p.weights == "uniform":
        return q, clipped
    if n * samples * quantiser.top >= RING:
        most = (RING - 1) // (n * quantiser.top)
        raise QuantiserOverflow(f"quantiser_overflow: {samples} samples of one client, but n = {n} clients and "
                                f"{quantiser.bits} bits allow {most} each; use fewer bits or weights: uniform")
    return np.append(q * np.uint32(samples), np.uint32(samples)), clipped


def add_mean(model: Vector, total: np.ndarray, n: int, p: Params) -> Vector:
    """model + mean of the updates of the n clients in `total`, (d,) float32."""
    if p.weights == "samples":
        total, n = total[:-1], int(total[-1])
    return model + Quantiser(p.clip, p.bits).dequantise_mean(total, n) if n else model


def honest(task: NodeTask, received: Received, j: int) -> Vector:
    """What client j's training gives, before it is quantised and masked, if it follows the protocol."""
    update: Vector = task.local_update(received[Begin].model)[0]
    return update


HONEST = honest
MESSAGES = pairwise.MESSAGES
ROLES = {"server": server, "client": client}
STATELESS = ("client",)


def check(params: Params, world: World) -> list[str]:
    """What is wrong with these parameters, if anything."""
    p, errors = params, []
    if not 0 < p.fraction <= 1:
        return checks.fractions(fraction=p.fraction)
    n = cohort_size(p, world.clients)
    if n < 2:
        errors.append(f"fraction = {p.fraction}: draws {n} of {world.clients} clients, a sum needs at least 2")
    elif p.threshold is not None and not 2 <= p.threshold <= n:
        errors.append(f"threshold = {p.threshold}: expected 2..{n}, the clients of a round")
    errors += checks.times(stage_deadline=p.stage_deadline_s)
    if not p.clip > 0:
        errors.append(f"clip = {p.clip}: expected a number above 0")
    elif not 1 <= p.bits <= 32:
        errors.append(f"bits = {p.bits}: expected 1..32")
    else:
        try:
            Quantiser(p.clip, p.bits).check_sum(n)
        except (QuantiserOverflow, ValueError) as e:
            errors.append(f"bits = {p.bits}: {e}")
    return errors


def warn(params: Params, world: World) -> list[str]:
    """What is allowed and unsafe: below 2 t > n a server that shows two versions of U3 learns both secrets of one."""
    n, t = cohort_size(params, world.clients), threshold(params, world.clients)
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
