"""FedAvg with client sampling and a round deadline. McMahan et al., AISTATS 2017, Algorithm 1.

Deviation: the server averages updates (differences) instead of models, which is the same sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from emul.roles import Message, Node, Vector, weighted_mean


@dataclass(frozen=True)
class Model(Message):
    """Server to client."""

    parameters: Vector              # (d,) float32


@dataclass(frozen=True)
class Update(Message):
    """Client to server."""

    delta: Vector                   # (d,) float32, parameters after minus before
    samples: int


@dataclass(frozen=True)
class Params:
    deadline_s: float | None = None     # None: wait until the fate of every update is known
    fraction: float = 1.0               # C: of the clients, drawn each round
    weights: Literal["samples", "uniform"] = "samples"      # n_k / n, or 1 / K


@dataclass
class State:
    model: Vector


async def server(node: Node, p: Params) -> None:
    s = node.state(State(node.task.initial_parameters()))
    async for t in node.rounds():
        with t:
            cohort = node.sample(node.clients, p.fraction)                            # S_t
            node.broadcast(cohort, Model(s.model))
            updates = await node.gather(Update, cohort, timeout_s=p.deadline_s)
            s.model = await node.compute("aggregate", weighted_mean, s.model, updates, p.weights)
            node.report(parameters=s.model, received=len(updates), cohort=len(cohort))


async def client(node: Node, p: Params) -> None:
    async for t in node.rounds(of=node.server):
        with t:
            model = await node.recv(Model, node.server)
            delta, samples = await node.compute("train", node.task.local_update, model.parameters)
            node.send(node.server, Update(delta, samples))


ROLES = {"server": server, "client": client}
STATELESS = ("client",)


def check(params: Params, world: object) -> list[str]:
    """What is wrong with these parameters, if anything."""
    errors = []
    if not 0 < params.fraction <= 1:
        errors.append(f"fraction = {params.fraction}: expected a number in (0, 1]")
    if params.deadline_s is not None and params.deadline_s <= 0:
        errors.append(f"deadline = {params.deadline_s} s: expected a time above 0, or none")
    return errors

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
