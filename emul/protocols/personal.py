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
from dataclasses import dataclass

import numpy as np

from emul.learning import NodeTask
from emul.primitives.means import weighted_sum
from emul.protocols.demands import both, shaped, weighed
from emul.protocols.rounds import finite
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


MESSAGES = (Shared, Trained)


@dataclass
class ServerState:
    shared: Vector


@dataclass
class ClientState:
    model: Vector                   # (d,) float32, this client's own


async def personal_server(node: Node, part: str, deadline_s: float | None) -> None:
    """Rounds of the server: average the shared part, weighted by samples."""
    s = node.state(ServerState(node.task.initial_parameters()[node.task.part(part)]))
    sound = both(shaped(parameters=s.shared.shape), weighed)
    async for round_ in node.rounds():
        with round_:
            node.broadcast(node.clients, Shared(s.shared))
            got = await node.gather(Trained, node.clients, timeout_s=deadline_s, accept=sound)
            s.shared = finite(await node.compute("aggregate", mean_of, s.shared, got, work=len(got) * s.shared.size))
            node.report(received=len(got), uploaded=len(got) * s.shared.size)


async def personal_client(node: Node, part: str, train: Train) -> None:
    """Train from the own model with the shared part put in."""
    places = node.task.part(part)
    s = node.state(ClientState(node.task.initial_parameters()))
    async for round_ in node.rounds(of=node.server):
        with round_:
            shared = await node.recv(Shared, node.server, accept=shaped(parameters=s.model[places].shape))
            s.model = await node.compute("train", train, node.task, merged(s.model, places, shared.parameters))
            node.report(s.model, evaluate=node.task.evaluate_own)
            node.send(node.server, Trained(s.model[places], node.task.samples()))


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
