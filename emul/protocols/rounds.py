"""Synchronous rounds: one server sends its model, clients train from it, the server aggregates what came in time.

    server      w <- aggregate(w, {k: Delta_k}) over the k of the cohort that have answered
    client k    Delta_k, n_k = train(w)

A scheme says how to train and how to aggregate, each as one or more computations of its node:

    async def server(node, p): await synchronous_server(node, aggregate, deadline_s=p.deadline_s)
    async def client(node, p): await synchronous_client(node, train)

Bytes of the arrays in each message, without its header: Model 4 d, Update 4 d.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from emul.base.errors import NotDecodable
from emul.learning import NodeTask
from emul.protocols.demands import both, shaped, weighed
from emul.roles import Message, Node, Received, Vector


@dataclass(frozen=True)
class Model(Message):
    """Server to client."""

    parameters: Vector              # w, (d,) float32


@dataclass(frozen=True)
class Update(Message):
    """Client to server."""

    delta: Vector                   # Delta_k, (d,) float32, parameters after minus before
    samples: int                    # n_k


MESSAGES = (Model, Update)

Train = Callable[[Vector], Awaitable[tuple[Vector, int]]]               # w -> (Delta_k, n_k)
Aggregate = Callable[[Vector, dict[int, Update]], Awaitable[Vector]]    # w, {client: its update} -> w of the next round

Prepare = Callable[[Vector], Awaitable[None]]                           # w
Evaluate = Callable[[Vector], dict[str, float]]                         # off the clock


@dataclass
class State:
    model: Vector
    rule: Any = None                # what a robust rule wants back in the next round


async def synchronous_server(node: Node, aggregate: Aggregate, *, fraction: float | None = None,
                             deadline_s: float | None = None, finish_at: int | None = None,
                             prepare: Prepare | None = None, personal: bool = False) -> None:
    """Rounds of the server, from the task's initial parameters.

    prepare: what it does with the model before it sends it.
    fraction: of the clients, drawn each round; None: all of them. deadline_s: how long to wait for updates; None: until
    the fate of every one is known. finish_at: end with this round; None: where the scenario says. personal: what counts
    as accuracy are the clients' models; see `synchronous_client`.
    """
    s = node.state(State(node.task.initial_parameters()))
    sound = both(shaped(delta=s.model.shape), weighed)
    async for round_ in node.rounds():
        with round_:
            cohort = node.clients if fraction is None else node.sample(node.clients, fraction)
            if prepare is not None:
                await prepare(s.model)
            node.offer("cohort", cohort)
            node.broadcast(cohort, Model(s.model))
            updates = await node.gather(Update, cohort, timeout_s=deadline_s, accept=sound)
            s.model = finite(await aggregate(s.model, updates))
            evaluate = partial(of_all, node.task.evaluate) if personal else None
            if fraction is None:
                node.report(parameters=s.model, evaluate=evaluate, received=len(updates))
            else:
                node.report(parameters=s.model, evaluate=evaluate, received=len(updates), cohort=len(cohort))
            if finish_at is not None and round_ >= finish_at:
                return


def finite(model: Vector) -> Vector:
    """The model itself. Raises NotDecodable if it is no model: finite updates may have a sum that is not."""
    if not np.isfinite(model).all():
        raise NotDecodable("the aggregate is not finite")
    return model


async def synchronous_client(node: Node, train: Train, *, personal: bool = False) -> None:
    """Rounds of a client, which keeps nothing between them.

    personal: it has what it received and what it made of that evaluated on its own test samples, side by side.
    """
    async for round_ in node.rounds(of=node.server):
        with round_:
            model = await node.recv(Model, node.server, accept=shaped(parameters=(node.task.dimension,)))
            delta, samples = await train(model.parameters)
            if personal:
                report_both(node, model.parameters, delta)
            node.send(node.server, Update(delta, samples))


def report_both(node: Node, received: Vector, delta: Vector) -> None:
    """At a client: `accuracy` is that of its model after local training, `accuracy_received` that of the one before."""
    node.report(received + delta, evaluate=partial(trained_and_received, node.task.evaluate_own, received))


def trained_and_received(evaluate: Evaluate, received: Vector, trained: Vector) -> dict[str, float]:
    """{"accuracy", "loss"} of a model, and with the ending `_received` of the one that it was trained from."""
    return {**evaluate(trained), **{f"{name}_received": value for name, value in evaluate(received).items()}}


def of_all(evaluate: Evaluate, model: Vector) -> dict[str, float]:
    """{"accuracy_global", "loss_global"} of a server's model: `accuracy` is that of the clients' models."""
    return {f"{name}_global": value for name, value in evaluate(model).items()}


async def train_once(node: Node, model: Vector) -> tuple[Vector, int]:
    """Local training as the scenario says it: (update, number of samples)."""
    update: tuple[Vector, int] = await node.compute("train", node.task.local_update, model)
    return update


def honest_update(task: NodeTask, received: Received, j: int) -> Vector:
    """`HONEST` of a scheme whose clients `train_once`: what client j sends if it follows the protocol."""
    update: Vector = task.local_update(received[Model].parameters)[0]
    return update
