"""Krum: of all updates the one that is nearest to its neighbours. Blanchard et al., NeurIPS 2017.

    score(k) = sum over the n - f - 2 updates nearest to Delta_k of ||Delta_k - Delta_j||^2
    w <- w + Delta_k*, k* of the least score; ties: the lowest k                n updates, f of them malicious

The proof needs n >= 2f + 3. Equal weights, messages and rounds as FedAvg. `m` > 1 is Multi-Krum: the mean of the m of
the least scores.

Protects: the model from up to f malicious updates of n >= 2f + 3. Not: updates from the server.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from emul.base.plain import PlainDict
from emul.primitives import robust
from emul.primitives.written import WrittenChoice
from emul.protocols import rounds
from emul.protocols.robust import robust_server
from emul.protocols.rounds import Update, synchronous_client, train_once
from emul.protocols.selection import by_plan, taking_part, wrong_selection
from emul.roles import Node, Scheme, Vector, World, checks, weighted_mean
from emul.roles.example import example


@dataclass(frozen=True)
class Params:
    f: int = 1                          # malicious clients among those of a round
    m: int = 1                          # updates that are averaged
    unproven: bool = False              # also with fewer than 2f + 3 updates, as long as there are f + 3
    deadline_s: float | None = None     # None: wait until the fate of every update is known
    fraction: float = 1.0               # of the clients, drawn each round
    personal: bool = False              # as in fedavg: `accuracy` is that of the clients' models after local training
    selection: WrittenChoice | None = None     # as in fedavg: a rule that chooses who takes part


def rule(p: Params) -> PlainDict:
    """The rule as `aggregate` of other schemes writes it."""
    if p.m == 1:
        return {"krum": {"f": p.f, "unproven": p.unproven}}
    return {"multi_krum": {"f": p.f, "m": p.m, "unproven": p.unproven}}


async def server(node: Node, p: Params) -> None:
    async def mean(model: Vector, updates: dict[int, Update]) -> Vector:
        return weighted_mean(model, updates, "uniform")

    await robust_server(node, rule(p), mean, fraction=p.fraction, deadline_s=p.deadline_s, personal=p.personal,
                        selection=p.selection)


async def client(node: Node, p: Params) -> None:
    await synchronous_client(node, partial(train_once, node), personal=p.personal, selection=p.selection)


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    p, expected = params, taking_part(params.selection, params.fraction, world.clients)
    errors = (checks.fractions(fraction=p.fraction) + checks.times(deadline=p.deadline_s)
              + wrong_selection(p.selection, world, p.fraction))
    try:
        least = robust.choose(rule(p)).least
    except ValueError as error:
        return [*errors, f"f = {p.f}: {error}"]
    if least > expected:
        errors.append(f"f = {p.f}: needs {least} updates, {expected} clients take part in a round")
    return errors


EXAMPLE = example("krum", "f: 1, deadline: 1 s", topology="star, clients: 6")

SCHEME = Scheme(
    params=Params, roles={"server": server, "client": client}, messages=rounds.MESSAGES, stateless=("client",),
    compress=("up", "down"), timeouts=("deadline_s",), honest=rounds.honest_update,
    knows_topology=by_plan, check=check, accuracy=rounds.accuracy_of, example=EXAMPLE)
