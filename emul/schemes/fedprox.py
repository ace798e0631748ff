"""FedProx: FedAvg whose local loss holds the client near the model that it received. Li et al., MLSys 2020.

    w_k <- argmin~ F_k(w) + (mu / 2) |w - w_g|^2, from w_g          w_g <- sum_k n_k w_k / sum_k n_k

mu = 0 is FedAvg. Clients send w_k - w_g.
"""

from __future__ import annotations

from dataclasses import dataclass

from emul.learning.objectives import Proximal
from emul.primitives.written import WrittenChoice
from emul.protocols import rounds
from emul.protocols.rounds import Update, synchronous_client, synchronous_server
from emul.protocols.selection import by_plan, telling, wrong_selection
from emul.roles import Node, Scheme, Vector, World, checks, weighted_mean
from emul.roles.example import example


@dataclass(frozen=True)
class Params:
    mu: float = 0.01                    # weight of the proximal term
    deadline_s: float | None = None     # of a round at the server; None: until the fates are known
    personal: bool = False              # as in fedavg: `accuracy` is that of the clients' models after local training
    selection: WrittenChoice | None = None     # as in fedavg: a rule that chooses who takes part


async def server(node: Node, p: Params) -> None:
    async def aggregate(model: Vector, updates: dict[int, Update]) -> Vector:
        return await node.compute("aggregate", weighted_mean, model, updates)

    await synchronous_server(node, aggregate, deadline_s=p.deadline_s, personal=p.personal, selection=p.selection)


async def client(node: Node, p: Params) -> None:
    async def train(model: Vector) -> tuple[Vector, int]:
        objective = node.task.objective + Proximal(p.mu) if p.mu else None
        update: tuple[Vector, int] = await node.compute("train", node.task.minimise, model, objective)
        return update

    await synchronous_client(node, train, personal=p.personal, selection=p.selection)


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    return (checks.times(deadline=params.deadline_s) + checks.not_negative(mu=params.mu)
            + wrong_selection(params.selection, world))

EXAMPLE = example("fedprox", "mu: 0.1, deadline: 1 s")

SCHEME = Scheme(
    params=Params, roles={"server": server, "client": client}, messages=rounds.MESSAGES, stateless=("client",),
    interchangeable=("client",),
    oblivious=lambda p: telling(p.selection), compress=("up", "down"), timeouts=("deadline_s",),
    knows_topology=by_plan, check=check, accuracy=rounds.accuracy_of, example=EXAMPLE)
