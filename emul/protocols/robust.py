"""A server of synchronous rounds that aggregates by a robust rule, or by the mean.

    w <- w + A(Delta_1, ..., Delta_n)       A: a rule of `emul.primitives.robust`, over the updates that have come

A scheme has a parameter `aggregate`, as a scenario writes it: `mean`, `median`, `{krum: {f: 2}}`. The default is the
mean, weighted as the scheme says. The state of a rule from round to round is part of the server's state. FLTrust's root
data is what the task holds out. Deviation from Cao et al., NDSS 2021, Algorithm 2: the server trains its reference
before it sends the model, and not while the clients train, so that it can offer it to attackers that know all; a round
lasts longer by that training.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from emul.primitives import robust
from emul.primitives.robust import Aggregation, Given
from emul.primitives.written import WrittenChoice
from emul.protocols.rounds import Aggregate, State, Update, synchronous_server
from emul.protocols.selection import name_of, taking_part
from emul.roles import Node, Vector, World, checks

MEAN = "mean"


async def robust_server(node: Node, written: WrittenChoice, mean: Aggregate | None, *, fraction: float | None = None,
                        deadline_s: float | None = None, finish_at: int | None = None, personal: bool = False,
                        rate: float = 1.0, selection: WrittenChoice | None = None) -> None:
    """`synchronous_server` that aggregates by the rule `written`, w <- w + rate * A, or as `mean` does. A round without
    updates leaves w."""
    if written == MEAN:
        assert mean is not None
        await synchronous_server(node, mean, fraction=fraction, deadline_s=deadline_s, finish_at=finish_at,
                                 personal=personal, selection=selection)
        return
    rule = robust.choose(written)
    reference: list[Vector] = []        # [g_0]: what the server's own training gives, for a rule that judges by it

    async def prepare(model: Vector) -> None:
        if rule.rule.reference:
            reference[:] = [(await node.compute("reference", node.task.local_update, model))[0]]
            node.offer("reference", reference[0])

    async def aggregate(model: Vector, updates: dict[int, Update]) -> Vector:
        if not updates:
            return model
        s = node.state(State(model))
        found = await node.compute("aggregate", apply, rule, updates, reference, s.rule, work=len(updates) * model.size)
        s.rule = found.state
        clients, weights = sorted(updates), found.weights
        node.judged(clients, [clients[row] for row in found.kept],
                    None if weights is None else dict(zip(clients, weights.tolist(), strict=True)))
        return (model + rate * found.aggregate).astype(np.float32)

    await synchronous_server(node, aggregate, fraction=fraction, deadline_s=deadline_s, finish_at=finish_at,
                             prepare=prepare, personal=personal, selection=selection)


def apply(rule: robust.Chosen, updates: Mapping[int, Update], reference: list[Vector], state: object) -> Aggregation:
    """The rule on updates in the order of their clients. Raises what the rule raises, such as TooManyByzantine."""
    clients = sorted(updates)
    given = Given(tuple(clients), np.array([updates[k].samples for k in clients]),
                  reference[0] if reference else None, state)
    return rule([updates[k].delta for k in clients], given)


def judging(written: WrittenChoice) -> list[str]:
    """The reasons why a run with this rule depends on what was learned (`Scheme.oblivious`); []: it does not."""
    if written == MEAN:
        return []
    return [f"aggregate = {name_of(written)}: judges updates by their values: expected mean"]


def wrong_rule(written: WrittenChoice, fraction: float, world: World,
               selection: WrittenChoice | None = None) -> list[str]:
    """Mistakes in a rule, for a scheme's `check`. fraction: of the clients, drawn each round; or a sound rule
    that chooses them."""
    if written == MEAN:
        return []
    try:
        rule = robust.choose(written)
    except ValueError as error:
        return [f"aggregate = {written if isinstance(written, str) else next(iter(written), written)}: {error}"]
    said, errors = f"aggregate = {rule.name}", []
    expected = taking_part(selection, fraction, world.clients)
    if rule.least > expected:
        errors.append(f"{said}: needs {rule.least} updates, {expected} clients take part in a round")
    if rule.rule.reference and not checks.root_samples(world.task):
        errors.append(f"{said}: needs root data at the server: root of the task, the number of its samples")
    return errors
