"""FedAvg with client sampling and a round deadline. McMahan et al., AISTATS 2017, Algorithm 1.

    client k    Delta_k = w_k - w, w_k: local training from w
    server      w <- w + sum_{k in S_t} n_k Delta_k / sum_{k in S_t} n_k       S_t: those drawn that have answered

`aggregate` puts a robust rule in the place of that mean. Deviation: the server averages updates (differences) instead
of models, which is the same sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from emul.primitives.written import WrittenChoice
from emul.protocols import rounds
from emul.protocols.robust import MEAN, judging, robust_server, wrong_rule
from emul.protocols.rounds import Update, synchronous_client
from emul.protocols.selection import by_plan, telling, wrong_selection
from emul.roles import Node, Scheme, Vector, World, checks, weighted_mean
from emul.roles.example import example


@dataclass(frozen=True)
class Params:
    deadline_s: float | None = None     # None: wait until the fate of every update is known
    fraction: float = 1.0               # C: of the clients, drawn each round
    weights: Literal["samples", "uniform"] = "samples"      # n_k / n, or 1 / K; of the mean
    aggregate: WrittenChoice = MEAN     # or a rule of emul.primitives.robust: median, {krum: {f: 2}}
    personal: bool = False              # `accuracy` is that of the clients' models after local training, on their own
    #                                     test samples, beside that of the received one
    selection: WrittenChoice | None = None     # or a rule of emul.primitives.selection: {oort: {count: 10}}


async def server(node: Node, p: Params) -> None:
    async def mean(model: Vector, updates: dict[int, Update]) -> Vector:
        found: Vector = await node.compute("aggregate", weighted_mean, model, updates, p.weights)
        return found

    await robust_server(node, p.aggregate, mean, fraction=p.fraction, deadline_s=p.deadline_s, personal=p.personal,
                        selection=p.selection)


async def client(node: Node, p: Params) -> None:
    async def train(model: Vector) -> tuple[Vector, int]:
        update: tuple[Vector, int] = await node.compute("train", node.task.local_update, model,
                                                        cost_s=node.training_s())
        return update

    await synchronous_client(node, train, personal=p.personal, selection=p.selection)


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    return (checks.fractions(fraction=params.fraction) + checks.times(deadline=params.deadline_s)
            + wrong_selection(params.selection, world, params.fraction)
            + wrong_rule(params.aggregate, params.fraction, world, params.selection))


EXAMPLE = example("fedavg", "deadline: 1 s")

SCHEME = Scheme(
    params=Params, roles={"server": server, "client": client}, messages=rounds.MESSAGES, stateless=("client",),
    interchangeable=("client",),
    oblivious=lambda p: judging(p.aggregate) + telling(p.selection), compress=("up", "down"),
    declares=True, timeouts=("deadline_s",), honest=rounds.honest_update,
    knows_topology=by_plan, check=check, accuracy=rounds.accuracy_of, example=EXAMPLE)
