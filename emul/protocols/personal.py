"""Synchronous rounds in which every client keeps a model of its own, and shares a part of it.

    server      w <- sum_k n_k w_k / sum_k n_k over what arrived, w: the shared part; sends it at the next round's start
    client      puts the shared part into its own model, trains, keeps the result, sends the shared part back

A scheme says which part ("all", "representation", "convolutions"; `emul.learning.models`) and how a client trains:

    async def client(node, p): await personal_client(node, "convolutions", train)

Clients report their own models, which are evaluated on their own test samples, so that `accuracy` of a run is the mean
over the clients that no attack has poisoned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from emul.learning import NodeTask
from emul.primitives.means import weighted_sum
from emul.protocols import updates
from emul.protocols.demands import both, shaped, weighed
from emul.protocols.rounds import finite
from emul.protocols.updates import Compression, Mirror, PackedModel, PackedUpdate, Sent
from emul.roles.node import Node
from emul.wire import Message, Vector

Train = Callable[[NodeTask, Vector], Vector]         # (node.task, model) -> the model after local training


@dataclass(frozen=True)
class Shared(Message):
    """Server to client."""

    parameters: Vector              # (p,) float32, the part that is shared


@dataclass(frozen=True)
class Trained(Message):
    """Client to server."""

    parameters: Vector              # (p,) float32
    samples: int


MESSAGES = (Shared, Trained, PackedModel, PackedUpdate)


@dataclass
class ServerState:
    shared: Vector
    mirror: Mirror = field(default_factory=Mirror)


@dataclass
class ClientState:
    model: Vector                   # (d,) float32, this client's own
    sent: Sent = field(default_factory=Sent)


async def personal_server(node: Node, part: str, deadline_s: float | None) -> None:
    """Rounds of the server: average the shared part, weighted by samples."""
    s = node.state(ServerState(node.task.initial_parameters()[node.task.part(part)]))
    how = updates.compression(node, part=part)
    async for round_ in node.rounds():
        with round_:
            await updates.send_model(node, how, s.mirror, node.clients, s.shared, Shared)
            got = await gather_trained(node, how, s, deadline_s)
            s.shared = finite(await node.compute("aggregate", mean_of, s.shared, got, work=len(got) * s.shared.size))
            node.report(received=len(got), uploaded=len(got) * s.shared.size)


async def gather_trained(node: Node, how: Compression, s: ServerState, deadline_s: float | None) -> dict[int, Trained]:
    """{client: its shared part}, ascending, of those that came in time."""
    if how.up is None:
        sound = both(shaped(parameters=s.shared.shape), weighed)
        got = await node.gather(Trained, node.clients, timeout_s=deadline_s, accept=sound)
        updates.answered(node, how, s.mirror, got)
        return got
    sent = s.shared if s.mirror.model is None else s.mirror.model
    steps = await updates.gather_updates(node, how, s.mirror, node.clients, sent.size, deadline_s)
    return {k: Trained(sent + step.delta, step.samples) for k, step in steps.items()}


async def personal_client(node: Node, part: str, train: Train) -> None:
    """Train from the own model with the shared part put in."""
    places = node.task.part(part)
    s = node.state(ClientState(node.task.initial_parameters()))
    how = updates.compression(node, part=part)
    async for round_ in node.rounds(of=node.server):
        with round_:
            shared = await updates.receive_model(node, how, s.sent, places.size, Shared)
            s.model = await node.compute("train", train, node.task, merged(s.model, places, shared))
            node.report(s.model, evaluate=node.task.evaluate_own)
            if how.up is None:
                node.send(node.server, Trained(s.model[places], node.task.samples()))
            else:
                await updates.send_update(node, how, s.sent, s.model[places] - shared, node.task.samples())


def merged(model: Vector, places: np.ndarray, shared: Vector) -> Vector:
    """`model` with `shared` in `places`; a new array."""
    found = model.copy()
    found[places] = shared
    return found


def mean_of(shared: Vector, got: Mapping[int, Trained]) -> Vector:
    """sum_k n_k w_k / sum_k n_k, in float64, clients in order; nothing arrived: `shared` itself."""
    samples = {k: m.samples for k, m in got.items()}
    if not sum(samples.values()):
        return shared
    total = weighted_sum({k: m.parameters for k, m in got.items()}, samples)
    return (total / sum(samples.values())).astype(np.float32)
