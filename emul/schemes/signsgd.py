"""signSGD with majority vote: one bit a coordinate up, a vote at the server. Bernstein et al., ICML 2018, Algorithm 2.

    client k    v_k = sign(g_k), g_k: the gradient of one batch at w
    server      w <- w - lr sign(sum_k v_k)         a tie moves nothing

Votes travel as bits (`emul.primitives.compress.lowbit`), d / 8 bytes. Deviation: the server sends the model in place of
the vote, since clients may miss rounds; `compress: {down: sign}` makes it one bit a coordinate for those who did not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from emul.primitives.compress import Sign
from emul.primitives.written import WrittenChoice
from emul.protocols import noisy_gradients, rounds
from emul.protocols.rounds import synchronous_client, synchronous_server
from emul.protocols.selection import by_plan, wrong_selection
from emul.protocols.updates import Update
from emul.roles import Node, Scheme, Vector, World, checks
from emul.roles.example import example

VOTES = Sign(scale="none", feedback=False)


@dataclass(frozen=True)
class Params:
    lr: float = 0.001                   # the step of every coordinate
    fraction: float = 1.0               # of the clients, drawn each round
    deadline_s: float | None = None     # None: wait until the fate of every vote is known
    selection: WrittenChoice | None = None     # as in fedavg: a rule that chooses who takes part


async def server(node: Node, p: Params) -> None:
    async def aggregate(model: Vector, votes: dict[int, Update]) -> Vector:
        return await node.compute("aggregate", voted, model, votes, p.lr, work=len(votes) * model.size)

    await synchronous_server(node, aggregate, fraction=p.fraction, deadline_s=p.deadline_s, up=VOTES,
                             selection=p.selection)


def voted(model: Vector, votes: Mapping[int, Update], lr: float) -> Vector:
    """w - lr sign(sum_k v_k), (d,) float32."""
    total = np.zeros(len(model), np.int32)
    for vote in votes.values():
        total += vote.delta > 0
    total *= 2
    return (model - np.float32(lr) * np.sign(total - len(votes))).astype(np.float32)


async def client(node: Node, p: Params) -> None:
    async def train(model: Vector) -> tuple[Vector, int]:
        return await node.compute("train", node.task.gradient, model, cost_s=node.training_s(1))

    await synchronous_client(node, train, up=VOTES, selection=p.selection)


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    own = ["compress.up: signsgd sends signs, which no other codec can carry"] if "up" in world.compress else []
    return (checks.positive(lr=params.lr) + checks.fractions(fraction=params.fraction)
            + checks.times(deadline=params.deadline_s) + wrong_selection(params.selection, world, params.fraction)
            + own)


EXAMPLE = example("signsgd", "lr: 0.01, deadline: 1 s, compress: {down: sign}")

SCHEME = Scheme(
    params=Params, roles={"server": server, "client": client}, messages=rounds.MESSAGES, stateless=("client",),
    compress=("up", "down"), timeouts=("deadline_s",), honest=noisy_gradients.honest_gradient,
    knows_topology=by_plan, check=check, example=EXAMPLE)
