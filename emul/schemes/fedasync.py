"""FedAsync: every model that comes back is mixed into the server's at once. Xie, Koyejo, Gupta, OPT 2020, Algorithm 1.

    client k    w_k <- argmin~ F_k(w) + (rho / 2) |w - w_tau|^2, from w_tau
    server      w <- (1 - alpha_t) w + alpha_t w_k,  alpha_t = alpha s(t - tau)

t - tau: the versions of the model that client k has missed; s: constant, polynomial or hinge
(`emul.primitives.staleness`). A round is one mixing. Deviation: the paper's scheduler begins trainings at random times;
here `concurrency` clients train at any time.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from emul.primitives.staleness import Form, Staleness
from emul.protocols import asynchronous
from emul.protocols.asynchronous import Arrived, asynchronous_client, asynchronous_server, train_model
from emul.roles import Node, Scheme, Vector, World, checks
from emul.roles.example import example, lossy


@dataclass(frozen=True)
class Params:
    alpha: float = 0.6                  # alpha, mixing weight of a fresh model
    staleness: Form = "polynomial"      # s
    a: float | None = None              # of s, 0.5: the paper has 0.5 for the polynomial, 10 for the hinge
    b: float | None = None              # of the hinge, 4
    rho: float = 0.005                  # weight of the proximal term
    concurrency: int | None = None      # clients that train at once; None: all
    timeout_s: float = 600.0            # a client that is not heard of for so long is given up


async def server(node: Node, p: Params) -> None:
    s = Staleness(p.staleness, p.a, p.b)

    async def aggregate(model: Vector, arrived: dict[int, Arrived]) -> Vector:
        (one,) = arrived.values()
        return await node.compute("aggregate", mixed, model, one.vector, p.alpha * s(one.staleness))

    await asynchronous_server(node, aggregate, concurrency=p.concurrency, timeout_s=p.timeout_s)


async def client(node: Node, p: Params) -> None:
    await asynchronous_client(node, partial(train_model, node, p.rho))


def mixed(model: Vector, other: Vector, alpha: float) -> Vector:
    """(1 - alpha) model + alpha other, in float64; (d,) float32."""
    return ((1 - alpha) * model.astype(np.float64) + alpha * other.astype(np.float64)).astype(np.float32)


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    s = Staleness(params.staleness, params.a, params.b)
    return (checks.fractions(alpha=params.alpha) + checks.positive(a=params.a) + s.unused()
            + checks.not_negative(b=params.b, rho=params.rho) + checks.times(timeout=params.timeout_s)
            + checks.at_least(1, "at least 1", concurrency=params.concurrency))


EXAMPLE = example("fedasync", "timeout: 1 s",
                  links=('match: "client1<->server", latency: 90 ms', 'match: "client5<->server", latency: 8 ms',
                         lossy()), rounds=8)

SCHEME = Scheme(
    params=Params, roles={"server": server, "client": client}, messages=asynchronous.PLAIN, oblivious=True,
    timeouts=("timeout_s",), check=check, example=EXAMPLE)
