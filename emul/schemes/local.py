"""Every client learns alone: the floor of personalised federated learning. No message is sent.

    w_k <- local training of w_k on D_k, all from the same initial parameters
"""

from __future__ import annotations

from dataclasses import dataclass

from emul.roles import Node, Scheme, Vector


@dataclass(frozen=True)
class Params:
    """None."""


@dataclass
class State:
    model: Vector


async def server(node: Node, p: Params) -> None:
    """Has nothing to do."""


async def client(node: Node, p: Params) -> None:
    s = node.state(State(node.task.initial_parameters()))
    async for round_ in node.rounds():
        with round_:
            delta, _ = await node.compute("train", node.task.local_update, s.model)
            s.model = s.model + delta
            node.report(s.model, evaluate=node.task.evaluate_own, uploaded=0)


EXAMPLE = """
emul: 1
name: local
seed: 7
topology: {generator: star, clients: 5}
links:
  - {match: "*", latency: 20 ms, bandwidth: 20 Mbit/s}
  - {match: "client*->server*", outage: {model: bernoulli, p: 0.1, per: round}}
task: {data: {set: digits}, partition: {dirichlet: 0.5}, model: logistic,
       solver: {sgd: {lr: 0.1, steps: 1, batch: 16}}}
compute: {mode: zero}
schemes: [local]
stop: {rounds: 3}
"""

SCHEME = Scheme(
    params=Params, roles={"server": server, "client": client}, decides="client", oblivious=True,
    accuracy="personal", example=EXAMPLE)
