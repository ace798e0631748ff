"""Every client learns alone: the floor of personalised federated learning. No message is sent.

    w_k <- local training of w_k on D_k, all from the same initial parameters
"""

from __future__ import annotations

from dataclasses import dataclass

from emul.roles import Node, Scheme, Vector
from emul.roles.example import example


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


EXAMPLE = example("local")

SCHEME = Scheme(
    params=Params, roles={"server": server, "client": client}, decides="client", oblivious=True,
    accuracy="personal", example=EXAMPLE)
