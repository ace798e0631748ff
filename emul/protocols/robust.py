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
    """`synchronous_server` that aggregates by the rule `written`, w <- w + rate * A, or as `mean` does."""
    if written == MEAN:
        assert mean is not None
        await synchronous_server(node, mean, fraction=fraction, deadline_s=deadline_s, finish_at=finish_at,
                                 personal=personal, selection=selection)
        return
    rule = robust.choose(written)
    reference: list[Vector] = []        # of this round

    async def aggregate(model: Vector, updates: dict[int, Update]) -> Vector:
        return await judged(node, node.state(State(model)), rule, updates, reference, rate)

    async def prepare(model: Vector) -> None:
        reference[:] = await reference_of(node, rule, model)

    await synchronous_server(node, aggregate, fraction=fraction, deadline_s=deadline_s, finish_at=finish_at,
                             prepare=prepare, personal=personal, selection=selection)


def rule_of(written: WrittenChoice) -> robust.Chosen | None:
    """The rule that a scenario has written; None: the scheme's mean."""
    return None if written == MEAN else robust.choose(written)


async def reference_of(node: Node, rule: robust.Chosen | None, model: Vector) -> list[Vector]:
    """[g_0]: what the server's own training gives, for a rule that judges updates by it; [] for any other."""
    if rule is None or not rule.rule.reference:
        return []
    update, _ = await node.compute("reference", node.task.local_update, model)
    node.offer("reference", update)
    return [update]


async def judged(node: Node, s: State, rule: robust.Chosen, updates: dict[int, Update], reference: list[Vector],
                 rate: float = 1.0) -> Vector:
    """w + rate * A, A the aggregate of the updates by the rule; w if there are none."""
    if not updates:
        return s.model
    found = await node.compute("aggregate", apply, rule, updates, reference, s.rule, work=len(updates) * s.model.size)
    s.rule = found.state
    _tell(node, sorted(updates), found)
    return (s.model + rate * found.aggregate).astype(np.float32)


def apply(rule: robust.Chosen, updates: Mapping[int, Update], reference: list[Vector], state: object) -> Aggregation:
    """The rule on updates in the order of their clients. Raises what the rule raises, such as TooManyByzantine."""
    clients = sorted(updates)
    given = Given(tuple(clients), np.array([updates[k].samples for k in clients]),
                  reference[0] if reference else None, state)
    return rule([updates[k].delta for k in clients], given)


def _tell(node: Node, clients: list[int], found: Aggregation) -> None:
    kept = [clients[row] for row in found.kept]
    weights = None if found.weights is None else dict(zip(clients, found.weights.tolist(), strict=True))
    node.judged(clients, kept, weights)


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
