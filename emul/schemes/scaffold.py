"""SCAFFOLD: control variates take out of local steps what drifts from client to client. Karimireddy et al., ICML 2020.

    client k    y <- y - lr (g_k(y) + c - c_k), K times from x
                c_k+ = c_k - c + (x - y) / (K lr);  sends y - x, c_k+ - c_k;  c_k <- c_k+         Algorithm 1, option II
    server      x <- x + rate mean of (y - x);  c <- c + sum of (c_k+ - c_k) / N         over those that have answered

c, c_k are 0 at first; N is the number of all clients. The local solver is plain descent: with momentum or Adam, x - y
is no sum of gradients. No other update tells what a lost one would have told of c_k: c then differs from the mean of
c_k.

Bytes of the arrays in each message, without its header: Controlled 8 d, ControlledUpdate 8 d.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from emul.learning import NodeTask
from emul.learning.objectives import Linear
from emul.primitives.means import weighted_sum
from emul.primitives.selection import choose
from emul.primitives.written import WrittenChoice
from emul.protocols import selection as selecting
from emul.protocols.demands import both, shaped, weighed
from emul.protocols.rounds import finite
from emul.protocols.selection import Selecting, by_plan
from emul.roles import Message, Node, Received, Scheme, Vector, World, checks, weighted_mean
from emul.roles.example import example


@dataclass(frozen=True)
class Controlled(Message):
    """Server to client."""

    parameters: Vector              # x, (d,) float32
    control: Vector                 # c, (d,) float32


@dataclass(frozen=True)
class ControlledUpdate(Message):
    """Client to server."""

    delta: Vector                   # y - x, (d,) float32
    control: Vector                 # c_k+ - c_k, (d,) float32
    samples: int


@dataclass(frozen=True)
class Params:
    rate: float = 1.0                   # eta_g, the server's
    weights: Literal["uniform", "samples"] = "uniform"      # of the mean; the paper's is uniform
    fraction: float = 1.0               # of the clients, drawn each round
    selection: WrittenChoice | None = None     # as in fedavg: a rule that chooses who takes part
    deadline_s: float | None = None     # None: wait until the fate of every update is known


@dataclass
class ServerState:
    model: Vector                       # x
    control: Vector                     # c
    selecting: Selecting | None = None


@dataclass
class ClientState:
    control: Vector                     # c_k


async def server(node: Node, p: Params) -> None:
    first = node.task.initial_parameters()
    s = node.state(ServerState(first, np.zeros_like(first), selecting.begin(p.selection)))
    sound = both(shaped(delta=s.model.shape, control=s.model.shape), weighed)
    async for round_ in node.rounds():
        with round_:
            cohort = await selecting.cohort_of(node, s.selecting, s.model, p.fraction, p.deadline_s)
            node.offer("cohort", cohort)
            node.broadcast(cohort, Controlled(s.model, s.control))
            got = await selecting.updates_of(node, s.selecting, ControlledUpdate, cohort, p.deadline_s, sound,
                                             lambda update: update.samples)
            s.model, s.control = await node.compute("aggregate", stepped, s.model, s.control, got, p,
                                                    len(node.clients), work=len(got) * s.model.size)
            node.report(parameters=s.model, received=len(got), cohort=len(cohort),
                        control_norm=float(np.linalg.norm(s.control)))


def stepped(model: Vector, control: Vector, got: Mapping[int, ControlledUpdate], p: Params, clients: int,
            ) -> tuple[Vector, Vector]:
    """(x, c) of the next round. Raises NotDecodable if x is not finite."""
    if not got:
        return model, control
    mean = weighted_mean(np.zeros_like(model), got, p.weights)
    moved = weighted_sum({k: m.control for k, m in got.items()}, dict.fromkeys(got, 1.0)) / clients
    return finite(model + np.float32(p.rate) * mean), finite((control + moved).astype(np.float32))


async def client(node: Node, p: Params) -> None:
    s = node.state(ClientState(np.zeros(node.task.dimension, np.float32)))
    sound = shaped(parameters=s.control.shape, control=s.control.shape)
    rule = None if p.selection is None else choose(p.selection)
    async for round_ in node.rounds(of=node.server):
        with round_:
            if not (await selecting.asked(node, rule))[0]:
                continue
            got = await node.recv(Controlled, node.server, accept=sound)
            since_ns = node.now_ns
            delta, moved, samples = await node.compute("train", controlled, node.task, got.parameters, got.control,
                                                       s.control)
            s.control = s.control + moved
            await selecting.tell(node, rule, got.parameters, since_ns)
            node.send(node.server, ControlledUpdate(delta, moved, samples))


def controlled(task: NodeTask, model: Vector, control: Vector, own: Vector) -> tuple[Vector, Vector, int]:
    """(y - x, c_k+ - c_k, number of samples): local training whose every gradient has c - c_k added."""
    delta, samples = task.minimise(model, task.objective + Linear(control - own))
    steps = task.local_steps()
    moved = -control - delta / np.float32(steps * task.solver.lr) if steps else np.zeros_like(control)
    return delta, moved, samples


def honest(task: NodeTask, received: Received, j: int) -> Vector:
    """The result of client j's training without its c_k, which nobody else knows."""
    return task.local_update(received[Controlled].parameters)[0]


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    return (checks.positive(rate=params.rate) + checks.fractions(fraction=params.fraction)
            + checks.times(deadline=params.deadline_s) + checks.plain_descent("scaffold", world.task)
            + selecting.wrong_without_probing(params.selection, world, params.fraction, "training needs c, too"))


EXAMPLE = example("scaffold", "deadline: 1 s", solver="lr: 0.1, steps: 2, batch: 16")

SCHEME = Scheme(
    params=Params, roles={"server": server, "client": client},
    messages=(Controlled, ControlledUpdate, *selecting.MESSAGES), stateless=("client",),
    oblivious=lambda p: selecting.telling(p.selection), timeouts=("deadline_s",), honest=honest,
    knows_topology=by_plan, check=check, example=EXAMPLE)
