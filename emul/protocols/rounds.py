"""Synchronous rounds: one server sends its model, clients train from it, the server aggregates what came in time.

    server      w <- aggregate(w, {k: Delta_k}) over the k of the cohort that have answered
    client k    Delta_k, n_k = train(w)

A scheme says how to train and how to aggregate, each as one or more computations of its node:

    async def server(node, p): await synchronous_server(node, aggregate, deadline_s=p.deadline_s)
    async def client(node, p): await synchronous_client(node, train)

How the model and the updates travel says `emul.protocols.updates`.

A deadline is the longest that the server waits for the updates of a round, from when it has sent the model, or asked
for reports if the cohort is chosen by them: it goes on with those that have come, with the model as it was if none has,
and an update that comes later is late. With None it waits until the fate of each update is known, which no real server
can; tables mark such runs. The wait is `Node.gather`; `emul.kernel.loop` (`DEADLINE`) and `emul.kernel.waits` end it.
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
from emul.primitives.selection import choose
from emul.primitives.written import WrittenChoice
from emul.protocols import selection as selecting
from emul.protocols import updates
from emul.protocols.selection import Selecting
from emul.protocols.updates import Mirror, Model, Sent, Update
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
    """Rounds of the server, from the task's initial parameters, or from what it had before a crash.

    prepare: what it does with the model before it sends it.
    fraction: of the clients, drawn each round; None: all of them. deadline_s: how long to wait for updates; None: until
    the fate of every one is known. finish_at: end with this round; None: where the scenario says. personal: what counts
    as accuracy are the clients' models; see `synchronous_client`. up: the scheme's own codec of updates. selection: a
    rule that chooses them (`emul.protocols.selection`).
    """
    s = node.state(State(node.task.initial_parameters(), selecting=selecting.begin(selection)))
    rule, how = s.selecting, updates.compression(node, up)
    async for round_ in node.rounds():
        with round_:
            if prepare is not None:
                await prepare(s.model)
            cohort = await selecting.cohort_of(node, rule, s.model, fraction, deadline_s)
            node.offer("cohort", cohort)
            if rule is None or not rule.probed:         # clients that were probed for their loss have the model already
                await updates.send_model(node, how, s.mirror, cohort, s.model)
            got = await updates.gather_updates(node, how, s.mirror, cohort, s.model.size, deadline_s,
                                               None if rule is None else partial(rule.gather, node, deadline_s))
            if rule is not None:
                await rule.learn(node, {k: update.samples for k, update in got.items()})
            s.model = finite(await aggregate(s.model, got))
            evaluate = partial(of_all, node.task.evaluate) if personal else None
            if fraction is None:
                node.report(parameters=s.model, evaluate=evaluate, received=len(got))
            else:
                node.report(parameters=s.model, evaluate=evaluate, received=len(got), cohort=len(cohort))
            if finish_at is not None and round_ >= finish_at:
                return


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
    s = Sent() if how is updates.PLAIN else node.state(Sent())      # nothing is kept, unless codecs want it
    p = None if selection is None else choose(selection)
    async for round_ in node.rounds(of=node.server):
        with round_:
            taking_part, model = await selecting.asked(node, p)
            if not taking_part:
                continue
            if model is None:                   # a client that was probed for its loss has it already
                model = await updates.receive_model(node, how, s, node.task.dimension)
            since_ns = node.now_ns
            delta, samples = await train(model)
            if personal:
                report_both(node, model, delta)
            await selecting.tell(node, p, model, since_ns)
            await updates.send_update(node, how, s, delta, samples)


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
