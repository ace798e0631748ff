"""FedNova: updates count by local step, so that who takes more of them weighs no more. Wang et al., NeurIPS 2020.

    client k    Delta_k = y - x after tau_k local steps
    server      x <- x + rate (sum_k p_k a_k) sum_k p_k Delta_k / a_k,  p_k = n_k / n over those that have answered
                a_k = |a|_1 = tau_k, with momentum rho (tau_k - rho (1 - rho^tau_k) / (1 - rho)) / (1 - rho)    eq. 3, 6

With equal tau_k it is FedAvg. tau_k differs where the solver has `epochs` and clients different numbers of samples.
Deviation: all clients have the solver of the task, so the server works a_k out of the n_k that it is told; in the paper
clients send it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from emul.learning.solver import Sgd, Solver, steps_of
from emul.primitives.means import weighted_sum
from emul.primitives.written import WrittenChoice
from emul.protocols import rounds
from emul.protocols.rounds import Update, synchronous_client, synchronous_server, train_once
from emul.protocols.selection import by_plan, telling, wrong_selection
from emul.roles import Node, Scheme, Vector, World, checks
from emul.roles.example import example


@dataclass(frozen=True)
class Params:
    rate: float = 1.0                   # of the server
    fraction: float = 1.0               # of the clients, drawn each round
    deadline_s: float | None = None     # None: wait until the fate of every update is known
    selection: WrittenChoice | None = None     # as in fedavg: a rule that chooses who takes part


async def server(node: Node, p: Params) -> None:
    async def aggregate(model: Vector, updates: dict[int, Update]) -> Vector:
        return await node.compute("aggregate", normalised, model, updates, node.task.solver, p.rate,
                                  work=len(updates) * model.size)

    await synchronous_server(node, aggregate, fraction=p.fraction, deadline_s=p.deadline_s, selection=p.selection)


def normalised(model: Vector, updates: Mapping[int, Update], solver: Solver, rate: float) -> Vector:
    """x of the next round, (d,) float32. Updates of clients that took no step count as nothing."""
    a = {k: weight_of_steps(solver, steps_of(solver, update.samples)) for k, update in updates.items()}
    took = {k: update for k, update in updates.items() if a[k] > 0 and update.samples > 0}
    if not took:
        return model
    n = sum(update.samples for update in took.values())
    share = {k: update.samples / n for k, update in took.items()}
    direction = weighted_sum({k: update.delta for k, update in took.items()}, {k: share[k] / a[k] for k in took})
    return (model + rate * sum(share[k] * a[k] for k in sorted(took)) * direction).astype(np.float32)


def weight_of_steps(solver: Solver, steps: int) -> float:
    """a = |a|_1: how often gradients enter what `steps` steps of this solver add up.

    >>> weight_of_steps(Sgd(lr=0.1, steps=3), 3), weight_of_steps(Sgd(lr=0.1, steps=3, momentum=0.5), 2)
    (3.0, 2.5)
    """
    rho = solver.momentum if isinstance(solver, Sgd) else 0.0
    return (steps - rho * (1 - rho**steps) / (1 - rho)) / (1 - rho)


async def client(node: Node, p: Params) -> None:
    await synchronous_client(node, partial(train_once, node), selection=p.selection)


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    return (checks.positive(rate=params.rate) + checks.fractions(fraction=params.fraction)
            + checks.times(deadline=params.deadline_s) + wrong_selection(params.selection, world, params.fraction)
            + checks.plain_descent("fednova", world.task, momentum=True))


EXAMPLE = example("fednova", "deadline: 1 s", partition="{dirichlet: 0.3}", solver="lr: 0.1, epochs: 1, batch: 64")

SCHEME = Scheme(
    params=Params, roles={"server": server, "client": client}, messages=rounds.MESSAGES, stateless=("client",),
    interchangeable=("client",),
    oblivious=lambda p: telling(p.selection), compress=("up", "down"), timeouts=("deadline_s",),
    honest=rounds.honest_update, knows_topology=by_plan, check=check, example=EXAMPLE)
