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
from functools import partial

import numpy as np

from emul.learning import NodeTask
from emul.learning.models import BUILT_IN, name_of
from emul.message.wire import Message, Vector
from emul.primitives.means import weighted_sum
from emul.primitives.selection import choose
from emul.primitives.written import WrittenChoice
from emul.protocols import selection as selecting
from emul.protocols import updates
from emul.protocols.demands import both, shaped, weighed
from emul.protocols.rounds import finite
from emul.protocols.selection import Selecting
from emul.protocols.updates import Compression, Mirror, PackedModel, PackedUpdate, Sent
from emul.roles.node import Node
from emul.roles.world import World

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


MESSAGES = (Shared, Trained, PackedModel, PackedUpdate, *selecting.MESSAGES)


def wrong_model(world: World) -> list[str]:
    """The mistake of a built-in model that cannot be cut in a representation and a decision; none for other models."""
    name = name_of(world.task.get("model"))
    model = BUILT_IN.get(name)
    if model is None or model.features is not None:
        return []
    return [f"model = {name}: expected one with a representation and a decision, such as "
            f"{', '.join(known for known, built in BUILT_IN.items() if built.features)}"]


@dataclass
class ServerState:
    shared: Vector
    mirror: Mirror = field(default_factory=Mirror)
    selecting: Selecting | None = None


@dataclass
class ClientState:
    model: Vector                   # (d,) float32, this client's own
    sent: Sent = field(default_factory=Sent)


async def personal_server(node: Node, part: str, deadline_s: float | None,
                          selection: WrittenChoice | None = None) -> None:
    """Rounds of the server: average the shared part, weighted by samples. selection: a rule that chooses who takes part
    (`emul.protocols.selection`); None: all clients do."""
    s = node.state(ServerState(node.task.initial_parameters()[node.task.part(part)],
                               selecting=selecting.begin(selection)))
    how = updates.compression(node, part=part)
    async for round_ in node.rounds():
        with round_:
            cohort = node.joined(node.clients)
            if s.selecting is not None:
                cohort = await s.selecting.cohort(node, s.shared, len(cohort), deadline_s)
            if s.selecting is None or not s.selecting.probed:
                await updates.send_model(node, how, s.mirror, cohort, s.shared, Shared)
            got = await gather_trained(node, how, s, cohort, deadline_s)
            if s.selecting is not None:
                await s.selecting.learn(node, {k: trained.samples for k, trained in got.items()})
            s.shared = finite(await node.compute("aggregate", mean_of, s.shared, got, work=len(got) * s.shared.size))
            node.report(received=len(got), uploaded=len(got) * s.shared.size)


async def gather_trained(node: Node, how: Compression, s: ServerState, cohort: list[int], deadline_s: float | None,
                         ) -> dict[int, Trained]:
    """{client: its shared part}, ascending, of those that came in time."""
    rule = None if s.selecting is None else partial(s.selecting.gather, node, deadline_s)
    if how.up is None:
        sound = both(shaped(parameters=s.shared.shape), weighed)
        got = await (node.gather(Trained, cohort, timeout_s=deadline_s, accept=sound) if rule is None else
                     rule(Trained, sound))
        updates.answered(node, how, s.mirror, cohort, got)
        return got
    sent = s.shared if s.mirror.model is None else s.mirror.model
    steps = await updates.gather_updates(node, how, s.mirror, cohort, sent.size, deadline_s, rule)
    return {k: Trained(sent + step.delta, step.samples) for k, step in steps.items()}


async def personal_client(node: Node, part: str, train: Train, selection: WrittenChoice | None = None) -> None:
    """Train from the own model with the shared part put in. selection: as at the server."""
    coordinates = node.task.part(part)
    s = node.state(ClientState(node.task.initial_parameters()))
    how, p = updates.compression(node, part=part), None if selection is None else choose(selection)
    async for round_ in node.rounds(of=node.server):
        with round_:
            taking_part, shared = await selecting.asked(node, p, lambda part: merged(s.model, coordinates, part),
                                                        coordinates.size)
            if not taking_part:
                continue
            if shared is None:
                shared = await updates.receive_model(node, how, s.sent, coordinates.size, Shared)
            received, since_ns = merged(s.model, coordinates, shared), node.now_ns
            s.model = await node.compute("train", train, node.task, received)
            await selecting.tell(node, p, received, since_ns)
            node.report(s.model, evaluate=node.task.evaluate_own)
            if how.up is None:
                node.send(node.server, Trained(s.model[coordinates], node.task.samples()))
            else:
                await updates.send_update(node, how, s.sent, s.model[coordinates] - shared, node.task.samples())


def merged(model: Vector, coordinates: np.ndarray, shared: Vector) -> Vector:
    """`model` with `shared` at `coordinates`; a new array."""
    found = model.copy()
    found[coordinates] = shared
    return found


def mean_of(shared: Vector, got: Mapping[int, Trained]) -> Vector:
    """sum_k n_k w_k / sum_k n_k, in float64, clients in order; nothing arrived: `shared` itself."""
    samples = {k: m.samples for k, m in got.items()}
    if not sum(samples.values()):
        return shared
    total = weighted_sum({k: m.parameters for k, m in got.items()}, samples)
    return (total / sum(samples.values())).astype(np.float32)
