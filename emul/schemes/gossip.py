"""D-PSGD: peers average with their neighbours while they train; there is no server. Lian et al., NeurIPS 2017, Alg. 1.

    peer i      x_i <- sum_j W_ij x_j + Delta_i         Delta_i: local training from x_i, parameters after minus before

W are Metropolis weights. One step of SGD is the paper's rule; more are its usual extension.
For a model that does not come from a neighbour a client takes its own. A round is over for a peer when its neighbours'
models of the round are there, or their fates known, or at `deadline`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from emul.primitives.means import weighted_sum
from emul.protocols import peers
from emul.protocols.demands import shaped
from emul.protocols.peers import Graph, neighbours
from emul.protocols.rounds import finite
from emul.roles import Message, Node, Scheme, Vector, World, checks
from emul.roles.example import example, lossy


@dataclass(frozen=True)
class Model(Message):
    """To every neighbour."""

    parameters: Vector                  # x_i, (d,) float32


@dataclass(frozen=True)
class Params:
    graph: Graph = "topology"           # the graph of neighbours
    deadline_s: float | None = None     # of a round; None: until the fate of every model is known


@dataclass
class State:
    model: Vector


def metropolis(i: int, neighbours: Mapping[int, Collection[int]]) -> dict[int, float]:
    """{j: W_ij} of node i and its neighbours: W_ij = 1 / (1 + max(deg i, deg j)), W_ii = 1 - the sum of these.

    neighbours: of i and of each of its neighbours. The matrix of all nodes is symmetric and doubly stochastic, whatever
    the graph is. Xiao, Boyd, Kim, *Distributed average consensus with least-mean-square deviation*, 2007, section 2.

    >>> {j: round(weight, 4) for j, weight in metropolis(1, {1: [2, 3], 2: [1], 3: [1, 4, 5]}).items()}
    {1: 0.4167, 2: 0.3333, 3: 0.25}
    """
    own = len(neighbours[i])
    weights = {j: 1 / (1 + max(own, len(neighbours[j]))) for j in sorted(neighbours[i])}
    return {i: 1 - sum(weights.values()), **weights}


async def peer(node: Node, p: Params) -> None:
    s = node.state(State(node.task.initial_parameters()))
    near = neighbours(node.world, node.id, p.graph)
    weights = metropolis(node.id, {i: neighbours(node.world, i, p.graph) for i in (node.id, *near)})
    sound = shaped(parameters=s.model.shape)
    async for round_ in node.rounds(sync=near):
        with round_:
            begun_s = node.now
            node.broadcast(near, Model(s.model))
            delta, _ = await node.compute("train", node.task.local_update, s.model)
            left_s = None if p.deadline_s is None else max(0.0, begun_s + p.deadline_s - node.now)
            got = await node.gather(Model, near, timeout_s=left_s, accept=sound)
            models = {node.id: s.model, **{j: message.parameters for j, message in got.items()}}
            s.model = finite(await node.compute("average", averaged, node.id, models, weights, delta))
            node.report(parameters=s.model, received=len(got))


def averaged(i: int, models: Mapping[int, Vector], weights: Mapping[int, float], delta: Vector) -> Vector:
    """sum_j W_ij x_j + Delta_i, in float64, by ascending j. For a missing x_j it takes x_i."""
    present = {j: weights[j] for j in models if j != i}
    mixed = weighted_sum(models, {**present, i: 1 - sum(present.values())})
    return (mixed + delta).astype(np.float32)


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    return checks.times(deadline=params.deadline_s) + peers.alone(world, params.graph)


EXAMPLE = example("gossip", "graph: ring, deadline: 1 s", topology="complete, peers: 5", links=(lossy("*->peer1"),))

SCHEME = Scheme(
    params=Params, roles={"peer": peer}, messages=(Model,), places=peers.PLACES, knows_topology=True, oblivious=True,
    timeouts=("deadline_s",), check=check, example=EXAMPLE)
