"""Asynchronous DiLoCo: a server steps along each difference as it comes, and by its momentum once in N of them. Liu et
al., arXiv 2401.09135, Algorithm 3 and equation 6: delayed Nesterov.

    worker m    from theta' that it was handed: H_m steps of the task's solver;  g = theta' - theta_m
                H_m = floor(H v_m / max_k v_k), v its speed (dynamic local updates)
    server      for arrival t = 0, 1, ...:  D <- D + g
                (t + 1) mod N = 0:  m <- beta m + D / N
                                    theta <- theta - eta ((1 - c N + c) beta m + g / N);  D <- 0
                else                theta <- theta - eta (c beta m + g / N)

Over N arrivals the momentum has the weight 1, whatever c is: at once (c = 0), or in equal parts (c = 1 / N). By default
N is the number of workers. A round is one arrival. A worker trains on the model that it was handed, however many have
arrived since, and is handed the newest when its difference has come (`emul.protocols.asynchronous`).

The speed v_m is what the scenario says of the node, times the rate of its GPUs where a model is declared. Slowdowns and
jitter are not known beforehand. The paper shortens training only; so does this: messages are those of whole models.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import numpy as np

from emul.protocols import asynchronous, collective
from emul.protocols.asynchronous import Arrived, asynchronous_client, asynchronous_server
from emul.protocols.rounds import finite
from emul.roles import Node, Scheme, Vector, World, checks
from emul.roles.example import example


@dataclass(frozen=True)
class Params:
    rate: float = 0.7                   # eta
    momentum: float = 0.9               # beta
    delay: int | None = None            # N, arrivals between two steps of the momentum; None: the number of workers
    c: float = 0.0                      # share of the momentum in each other step, at most 1 / N
    steps: int | None = None            # H, inner steps of the fastest worker; None: as many as the solver says
    adapt: bool = True                  # H_m by the worker's speed; false: H for all
    timeout_s: float = 86_400.0         # a worker that is not heard of for so long is given up


@dataclass
class State(asynchronous.State):
    momentum: Vector = field(default_factory=lambda: np.zeros(0, np.float32))       # m, (d,) float32
    waiting: Vector = field(default_factory=lambda: np.zeros(0, np.float32))        # D, (d,) float32


async def server(node: Node, p: Params) -> None:
    first = node.task.initial_parameters()
    s = node.state(State(first, momentum=np.zeros_like(first), waiting=np.zeros_like(first)))
    delay = p.delay or len(node.clients)

    async def aggregate(model: Vector, arrived: dict[int, Arrived]) -> Vector:
        (one,) = arrived.values()
        model, momentum, waiting = await node.compute(
            "outer", outer, model, s.momentum, s.waiting, one.vector, s.version, delay, p)
        finite(model)
        s.momentum, s.waiting = momentum, waiting
        return model

    await asynchronous_server(node, aggregate, timeout_s=p.timeout_s)


async def client(node: Node, p: Params) -> None:
    world = node.world
    steps = inner_steps(p.steps or node.task.local_steps(), world.rates[node.id], world.fastest
                        ) if p.adapt else p.steps
    update = partial(node.task.local_update, steps=steps)

    async def train(model: Vector) -> tuple[Vector, int]:
        return await node.compute("train", update, model, cost_s=node.training_s(steps))

    await asynchronous_client(node, train)


def inner_steps(most: int, speed: float, fastest: float) -> int:
    """H_m, 1 at least. most: H of the fastest.

    >>> [inner_steps(100, speed, 1.0) for speed in (1.0, 0.5, 0.25, 0.001)]
    [100, 50, 25, 1]
    """
    return max(1, int(most * speed / fastest * (1 + 1e-12)))        # a ratio of floats may be just below a whole number


def outer(model: Vector, momentum: Vector, waiting: Vector, update: Vector, t: int, delay: int, p: Params,
          ) -> tuple[Vector, Vector, Vector]:
    """(theta, m, D) after arrival t, (d,) float32 each. update: -g. delay: N."""
    waiting = waiting - update
    weight = p.c
    if (t + 1) % delay == 0:
        momentum, waiting = np.float32(p.momentum) * momentum + waiting / np.float32(delay), np.zeros_like(waiting)
        weight = 1 - p.c * delay + p.c
    step = np.float32(weight * p.momentum) * momentum - update / np.float32(delay)
    return model - np.float32(p.rate) * step, momentum, waiting


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    wrong = checks.below_one(momentum=params.momentum)
    delay = params.delay or world.clients
    if not 0 <= params.c * delay <= 1:
        wrong.append(f"c = {params.c}: expected a number in [0, 1/{delay}]: in {delay} arrivals the momentum has the "
                     "weight 1")
    return (wrong + checks.positive(rate=params.rate) + checks.times(timeout=params.timeout_s)
            + checks.steps(steps=params.steps) + checks.at_least(1, "an integer >= 1", delay=params.delay))


EXAMPLE = example("async_diloco", "timeout: 1 s", topology="star, clients: 4",
                  links=('match: "client1<->server", latency: 90 ms',), partition="iid",
                  solver="lr: 0.1, steps: 4, batch: 16", rounds=8)

SCHEME = Scheme(
    params=Params, roles={"server": server, "client": client}, messages=asynchronous.PLAIN, oblivious=True,
    declares=True, timeouts=("timeout_s",), check=check, warn=collective.warn, example=EXAMPLE)
