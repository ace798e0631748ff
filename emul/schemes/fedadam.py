"""FedOpt: the mean update is a gradient for the server's own optimiser. Reddi et al., ICLR 2021, Algorithm 2.

    Delta   the mean of the updates, weighted as `weights` says
    m       <- beta1 m + (1 - beta1) Delta
    v       <- beta2 v + (1 - beta2) Delta^2                            adam
               v - (1 - beta2) Delta^2 sign(v - Delta^2)                yogi
               v + Delta^2                                              adagrad
    x       <- x + rate m / (sqrt(v) + tau)

m is 0 and v is tau^2 at first. `fedyogi` and `fedadagrad` are variants. A round in which nobody answers moves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from emul.primitives.means import weighted_sum
from emul.primitives.written import WrittenChoice
from emul.protocols import rounds
from emul.protocols.rounds import State, Update, synchronous_client, synchronous_server, train_once
from emul.protocols.selection import by_plan, telling, wrong_selection
from emul.roles import Node, Scheme, Vector, World, checks
from emul.roles.example import example

Moments = tuple[np.ndarray, np.ndarray]             # m, v, (d,) float64 each


@dataclass(frozen=True)
class Params:
    second: Literal["adam", "yogi", "adagrad"] = "adam"     # the rule that moves v
    rate: float = 0.01                  # eta, the server's
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 0.001                  # the degree to which a coordinate adapts
    weights: Literal["samples", "uniform"] = "samples"      # of the mean
    fraction: float = 1.0               # of the clients, drawn each round
    deadline_s: float | None = None     # None: wait until the fate of every update is known
    selection: WrittenChoice | None = None     # as in fedavg: a rule that chooses who takes part


async def server(node: Node, p: Params) -> None:
    async def aggregate(model: Vector, updates: dict[int, Update]) -> Vector:
        s = node.state(State(model))
        found, s.rule = await node.compute("aggregate", moved, model, updates, s.rule, p,
                                           work=len(updates) * model.size)
        return found

    await synchronous_server(node, aggregate, fraction=p.fraction, deadline_s=p.deadline_s, selection=p.selection)


def moved(model: Vector, updates: Mapping[int, Update], before: Moments | None, p: Params,
          ) -> tuple[Vector, Moments | None]:
    """(x, moments) of the next round; before: None in the first."""
    n = {k: update.samples if p.weights == "samples" else 1 for k, update in updates.items()}
    if not sum(n.values()):
        return model, before
    delta = weighted_sum({k: update.delta for k, update in updates.items()}, n) / sum(n.values())
    m, v = (np.zeros(model.shape), np.full(model.shape, p.tau**2)) if before is None else before
    m, square = p.beta1 * m + (1 - p.beta1) * delta, delta**2
    if p.second == "adam":
        v = p.beta2 * v + (1 - p.beta2) * square
    elif p.second == "yogi":
        v = v - (1 - p.beta2) * square * np.sign(v - square)
    else:
        v = v + square
    return (model + p.rate * m / (np.sqrt(v) + p.tau)).astype(np.float32), (m, v)


async def client(node: Node, p: Params) -> None:
    await synchronous_client(node, partial(train_once, node), selection=p.selection)


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    unused = [f"beta2 = {params.beta2}: adagrad has no such weight"] \
        if params.second == "adagrad" and params.beta2 != Params.beta2 else []
    return (checks.positive(rate=params.rate, tau=params.tau) + checks.fractions(fraction=params.fraction)
            + checks.times(deadline=params.deadline_s) + wrong_selection(params.selection, world, params.fraction)
            + checks.below_one(beta1=params.beta1, beta2=params.beta2) + unused)


EXAMPLE = example("fedadam", "deadline: 1 s")

SCHEME = Scheme(
    params=Params, roles={"server": server, "client": client}, messages=rounds.MESSAGES, stateless=("client",),
    interchangeable=("client",),
    oblivious=lambda p: telling(p.selection), compress=("up", "down"), timeouts=("deadline_s",),
    honest=rounds.honest_update, knows_topology=by_plan, check=check, example=EXAMPLE)
