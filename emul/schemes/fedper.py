"""FedPer: the layers at the front are shared, those behind are each client's own. Arivazhagan et al. 2019.

    (u_k, v_k) <- local training of (u, v_k), both together          u <- sum_k n_k u_k / sum_k n_k

u: by default the convolutions, 5,280 of the 21,840 parameters of `mnist_classic`; v_k, the fully connected layers, is
never sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from emul.learning import NodeTask
from emul.protocols import personal
from emul.protocols.personal import personal_client, personal_server
from emul.protocols.selection import wrong_selection
from emul.roles import Node, Vector, World, checks


@dataclass(frozen=True)
class Params:
    shared: Literal["convolutions", "representation"] = "convolutions"
    deadline_s: float | None = None     # of a round at the server; None: until the fates are known
    selection: str | dict[str, Any] | None = None       # as in fedavg: a rule that chooses who takes part


async def server(node: Node, p: Params) -> None:
    await personal_server(node, p.shared, p.deadline_s, p.selection)


async def client(node: Node, p: Params) -> None:
    def train(task: NodeTask, model: Vector) -> Vector:
        delta, _ = task.local_update(model)
        return model + delta

    await personal_client(node, p.shared, train, p.selection)


MESSAGES = personal.MESSAGES
ROLES = {"server": server, "client": client}
OBLIVIOUS = True


def check(params: Params, world: World) -> list[str]:
    """What is wrong with these parameters, if anything."""
    return wrong_selection(params.selection, world) + checks.times(deadline=params.deadline_s)

EXAMPLE = """
emul: 1
name: fedper
seed: 7
topology: {generator: star, clients: 5}
links:
  - {match: "*", latency: 20 ms, bandwidth: 20 Mbit/s}
  - {match: "client*->server*", outage: {model: bernoulli, p: 0.1, per: round}}
task: {data: {set: digits}, partition: {dirichlet: 0.5}, model: digits_classic,
       solver: {sgd: {lr: 0.1, steps: 1, batch: 16}}}
compute: {mode: zero}
schemes: [{name: fedper, deadline: 1 s}]
stop: {rounds: 3}
"""
