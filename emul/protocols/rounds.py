"""Synchronous rounds: one server sends its model, clients train from it, the server aggregates what came in time.

    server      w <- aggregate(w, {k: Delta_k}) over the k of the cohort that have answered
    client k    Delta_k, n_k = train(w)

A scheme says how to train and how to aggregate, each as one or more computations of its node:

    async def server(node, p): await synchronous_server(node, aggregate, deadline_s=p.deadline_s)
    async def client(node, p): await synchronous_client(node, train)

How the model and the updates travel says `emul.protocols.updates`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from emul.base.errors import NotDecodable
from emul.learning import NodeTask
from emul.primitives.compress import Codec
from emul.primitives.selection import Common, choose
from emul.primitives.written import WrittenChoice
from emul.protocols import selection as selecting
from emul.protocols import updates
from emul.protocols.selection import Selecting
from emul.protocols.updates import Compression, Mirror, Model, Sent, Update
from emul.roles import Node, Received, Vector
from emul.roles.evaluation import AccuracyOf, of_all, trained_and_received

MESSAGES = (*updates.MESSAGES, *selecting.MESSAGES)

Train = Callable[[Vector], Awaitable[tuple[Vector, int]]]               # w -> (Delta_k, n_k)
Aggregate = Callable[[Vector, dict[int, Update]], Awaitable[Vector]]    # w, {client: its update} -> w of the next round

Prepare = Callable[[Vector], Awaitable[None]]                           # w


@dataclass
class State:
    model: Vector
    rule: Any = None                # the state of a robust rule for the next round
    mirror: Mirror = field(default_factory=Mirror)
    selecting: Selecting | None = None


async def synchronous_server(node: Node, aggregate: Aggregate, *, fraction: float | None = None,
                             deadline_s: float | None = None, finish_at: int | None = None,
                             prepare: Prepare | None = None, personal: bool = False,
                             up: Codec | None = None, selection: WrittenChoice | None = None) -> None:
    """Rounds of the server, from the task's initial parameters. `emul.schemes.fedavg` shows them step by step.

    prepare: what it does with the model before it sends it.
    fraction: of the clients, drawn each round; None: all of them. deadline_s: how long to wait for updates; None: until
    the fate of every one is known. finish_at: end with this round; None: where the scenario says. personal: what counts
    as accuracy are the clients' models; see `synchronous_client`. up: the scheme's own codec of updates. selection: a
    rule that chooses them (`emul.protocols.selection`).
    """
    s = begin(node, selection)
    how = updates.compression(node, up)
    async for round_ in node.rounds():
        with round_:
            if prepare is not None:
                await prepare(s.model)
            cohort = await choose_cohort(node, s, fraction, deadline_s)
            await send_model(node, how, s, cohort)
            got = await gather_updates(node, how, s, cohort, deadline_s)
            s.model = finite(await aggregate(s.model, got))
            evaluate = partial(of_all, node.task.evaluate) if personal else None
            if fraction is None:
                node.report(parameters=s.model, evaluate=evaluate, received=len(got))
            else:
                node.report(parameters=s.model, evaluate=evaluate, received=len(got), cohort=len(cohort))
            if finish_at is not None and round_ >= finish_at:
                return


def begin(node: Node, selection: WrittenChoice | None = None) -> State:
    """The server's state, from the task's initial parameters, or what it was before a crash."""
    return node.state(State(node.task.initial_parameters(), selecting=selecting.begin(selection)))


async def choose_cohort(node: Node, s: State, fraction: float | None, deadline_s: float | None) -> list[int]:
    """The clients of this round, ascending: by the rule of selection, else a fraction that is drawn, else all."""
    cohort = await selecting.cohort_of(node, s.selecting, s.model, fraction, deadline_s)
    node.offer("cohort", cohort)
    return cohort


async def send_model(node: Node, how: Compression, s: State, cohort: list[int]) -> None:
    """The model, or its code, to the cohort; clients that were probed for their loss have it already."""
    if s.selecting is None or not s.selecting.probed:
        await updates.send_model(node, how, s.mirror, cohort, s.model)


async def gather_updates(node: Node, how: Compression, s: State, cohort: list[int], deadline_s: float | None,
                         ) -> dict[int, Update]:
    """{client: its update}, ascending, of those that came in time; a rule of selection learns from them."""
    rule, size = s.selecting, s.model.size
    if rule is None:
        return await updates.gather_updates(node, how, s.mirror, cohort, size, deadline_s)
    got = await updates.gather_updates(node, how, s.mirror, cohort, size, deadline_s,
                                       partial(rule.gather, node, deadline_s))
    await rule.learn(node, {k: update.samples for k, update in got.items()})
    return got


def finite(model: Vector) -> Vector:
    """The model itself. Raises NotDecodable if it is no model: finite updates may have a sum that is not."""
    if not np.isfinite(model).all():
        raise NotDecodable("the aggregate is not finite")
    return model


async def synchronous_client(node: Node, train: Train, *, personal: bool = False, up: Codec | None = None,
                             selection: WrittenChoice | None = None) -> None:
    """Rounds of a client, which keeps nothing between them but what codecs want.

    personal: it has what it received and what it made of that evaluated on its own test samples, side by side.
    selection: as at the server.
    """
    how = updates.compression(node, up)
    s = sent_before(node, how)
    p = None if selection is None else choose(selection)
    async for round_ in node.rounds(of=node.server):
        with round_:
            model = await receive_model(node, how, s, p)
            if model is None:
                continue
            delta, samples = await train(model)
            if personal:
                report_both(node, model, delta)
            await selecting.tell(node, p, model)
            await updates.send_update(node, how, s, delta, samples)


def sent_before(node: Node, how: Compression) -> Sent:
    """The state of a client between rounds: nothing, unless codecs want it."""
    return Sent() if how is updates.PLAIN else node.state(Sent())


async def receive_model(node: Node, how: Compression, s: Sent, p: Common | None) -> Vector | None:
    """The model of this round; None: this client was asked and does not take part. p: the rule of selection."""
    taking_part, model = await selecting.asked(node, p)
    if not taking_part or model is not None:
        return model if taking_part else None
    return await updates.receive_model(node, how, s, node.task.dimension)


def report_both(node: Node, received: Vector, delta: Vector) -> None:
    """At a client: `accuracy` is that of its model after local training, `accuracy_received` that of the one before."""
    node.report(received + delta, evaluate=partial(trained_and_received, node.task.evaluate_own, received))


def accuracy_of(params: Any) -> AccuracyOf:
    """`Scheme.accuracy` of a scheme with a parameter `personal`."""
    return "personal" if params.personal else "global"


async def train_once(node: Node, model: Vector) -> tuple[Vector, int]:
    """Local training as the scenario says it: (update, number of samples)."""
    update: tuple[Vector, int] = await node.compute("train", node.task.local_update, model)
    return update


def honest_update(task: NodeTask, received: Received, j: int) -> Vector:
    """`Scheme.honest` of a scheme whose clients `train_once`: what client j sends if it follows the protocol."""
    update: Vector = task.local_update(received[Model].parameters)[0]
    return update
