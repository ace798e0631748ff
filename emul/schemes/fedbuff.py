"""FedBuff: a new model for every K updates, whoever they are from. Nguyen et al., AISTATS 2022, Algorithm 1.

    client k    Delta_k = w_k - w, w_k: local training from w, the newest model when it was chosen
    server      w <- w + eta_g sum_k s(u_k) Delta_k / K       over the K updates in the buffer

u_k: the versions of the model that client k has missed; s(u) = 1 / sqrt(1 + u), as in the paper's experiments, is the
polynomial of `emul.primitives.staleness`. Deviations: a client has at most one update in the buffer, so that K = n
clients of any speeds are FedAvg in synchronous rounds; `weights: samples` has n_k s(u_k) / sum n_k for s(u_k) / K.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from emul.primitives.means import weighted_sum
from emul.primitives.staleness import Form, Staleness
from emul.protocols import asynchronous
from emul.protocols.asynchronous import Arrived, asynchronous_client, asynchronous_server, train_difference
from emul.roles import Node, Scheme, Vector, World, checks
from emul.roles.example import example, lossy


@dataclass(frozen=True)
class Params:
    buffer: int = 10                    # K
    concurrency: int | None = None      # clients that train at once; None: all
    rate: float = 1.0                   # eta_g, the server's learning rate
    weights: Literal["uniform", "samples"] = "uniform"
    staleness: Form = "polynomial"      # s
    a: float | None = None              # of s, 0.5
    b: float | None = None              # of the hinge, 4
    timeout_s: float = 600.0            # a client that is not heard of for so long is given up


async def server(node: Node, p: Params) -> None:
    s = Staleness(p.staleness, p.a, p.b)

    async def aggregate(model: Vector, arrived: dict[int, Arrived]) -> Vector:
        return await node.compute("aggregate", stepped, model, arrived, s, p.rate, p.weights)

    await asynchronous_server(node, aggregate, buffer=p.buffer, concurrency=p.concurrency, timeout_s=p.timeout_s)


async def client(node: Node, p: Params) -> None:
    await asynchronous_client(node, partial(train_difference, node))


def stepped(model: Vector, arrived: Mapping[int, Arrived], s: Staleness, rate: float, weights: str) -> Vector:
    """w + eta_g sum_k n_k s(u_k) Delta_k / sum_k n_k in float64, clients in order; n_k: samples, or 1."""
    n = {k: one.samples if weights == "samples" else 1 for k, one in arrived.items()}
    if not sum(n.values()):
        return model
    total = weighted_sum({k: one.vector for k, one in arrived.items()},
                         {k: n[k] * s(one.staleness) for k, one in arrived.items()})
    return (model + rate * total / sum(n.values())).astype(np.float32)


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    errors = (checks.positive(rate=params.rate, a=params.a) + checks.not_negative(b=params.b)
              + checks.times(timeout=params.timeout_s) + Staleness(params.staleness, params.a, params.b).unused()
              + checks.at_least(1, "at least 1", buffer=params.buffer, concurrency=params.concurrency))
    if params.buffer > world.clients:
        errors.append(f"buffer = {params.buffer}: expected at most {world.clients}, the number of clients, of each of "
                      "which it holds one update")
    return errors


EXAMPLE = example("fedbuff", "buffer: 2, concurrency: 4, timeout: 1 s",
                  links=('match: "client1<->server", latency: 90 ms', lossy()), rounds=4)

SCHEME = Scheme(
    params=Params, roles={"server": server, "client": client}, messages=asynchronous.MESSAGES, oblivious=True,
    compress=("up",), timeouts=("timeout_s",), check=check, example=EXAMPLE)
