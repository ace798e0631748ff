"""FedAvg with client sampling and a round deadline. McMahan et al., AISTATS 2017, Algorithm 1.

    client k    Delta_k = w_k - w, w_k: local training from w
    server      w <- w + sum_{k in S_t} n_k Delta_k / sum_{k in S_t} n_k       S_t: those drawn that have answered

`aggregate` puts a robust rule in the place of that mean. Deviation: the server averages updates (differences) instead
of models, which is the same sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from emul.protocols import rounds
from emul.protocols.robust import MEAN, robust_server, wrong_rule
from emul.protocols.rounds import Update, synchronous_client, train_once
from emul.protocols.selection import wrong_selection
from emul.roles import Node, Vector, World, checks, weighted_mean


@dataclass(frozen=True)
class Params:
    deadline_s: float | None = None     # None: wait until the fate of every update is known
    fraction: float = 1.0               # C: of the clients, drawn each round
    weights: Literal["samples", "uniform"] = "samples"      # n_k / n, or 1 / K; of the mean
    aggregate: str | dict[str, Any] = MEAN      # or a rule of emul.primitives.robust: median, {krum: {f: 2}}
    personal: bool = False              # `accuracy` is that of the clients' models after local training, on their own
    #                                     test samples, beside that of the received one
    selection: str | dict[str, Any] | None = None       # or a rule of emul.primitives.selection: {oort: {count: 10}}


async def server(node: Node, p: Params) -> None:
    async def mean(model: Vector, updates: dict[int, Update]) -> Vector:
        return await node.compute("aggregate", weighted_mean, model, updates, p.weights)

    await robust_server(node, p.aggregate, mean, fraction=p.fraction, deadline_s=p.deadline_s,
                        personal=p.personal, selection=p.selection)


async def client(node: Node, p: Params) -> None:
    await synchronous_client(node, partial(train_once, node), personal=p.personal, selection=p.selection)


HONEST = rounds.honest_update
MESSAGES = rounds.MESSAGES
ROLES = {"server": server, "client": client}
OBLIVIOUS = True
STATELESS = ("client",)


def check(params: Params, world: World) -> list[str]:
    """What is wrong with these parameters, if anything."""
    return (checks.fractions(fraction=params.fraction) + checks.times(deadline=params.deadline_s)
            + wrong_selection(params.selection, world, params.fraction)
            + wrong_rule(params.aggregate, params.fraction, world, params.selection))


EXAMPLE = """
emul: 1
name: fedavg
seed: 7
topology: {generator: star, clients: 5}
links:
  - {match: "*", latency: 20 ms, bandwidth: 20 Mbit/s}
  - {match: "client*->server*", outage: {model: bernoulli, p: 0.1, per: round}}
task: {data: {set: digits}, partition: {dirichlet: 0.5}, model: logistic,
       solver: {sgd: {lr: 0.1, steps: 1, batch: 16}}}
compute: {mode: zero}
schemes: [{name: fedavg, deadline: 1 s}]
stop: {rounds: 3}
"""
