"""Distributed data parallel: peers add up the gradients of their batches in every step. Li et al., VLDB 2020.

    peer m      g_m: the gradient of one batch at theta
    all         g = (1/n) sum_m g_m, by a collective (`emul.protocols.collective`);  theta <- solver(theta, g)

A round is one step. Every peer takes the same step of the task's solver with moments of its own, which are the same at
all: theta and moments are replicas. `steps` and `epochs` of the solver are not used. All gradients count alike,
whatever the number of samples. Buffers such as running statistics stay as they were at first.

The whole gradient goes out after the backward pass. With `layers: L` it goes out in L equal parts while the backward
pass goes on, the last layer first, each part by a collective of its own. A third of the time of a step is the forward
pass ("forward"), the rest the L parts of the backward pass ("backward"), as in Streaming DiLoCo's model of bandwidths
(arXiv 2501.18512). `step: 0.1 s` states the time of both; else the scenario says what "forward" and "backward" cost.

A peer whose round fails takes no step; if others have taken theirs, its replica differs from then on, since nothing
brings it back.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from emul.learning.cuts import too_many_parts
from emul.protocols import collective, peers
from emul.protocols.collective import Chunk, How, Manner, Part, all_reduce, wrong_group
from emul.protocols.rounds import finite
from emul.roles import Node, Scheme, Vector, World, checks
from emul.roles.example import example


@dataclass(frozen=True)
class Params:
    how: How = "ring"                   # the collective that adds up
    timeout_s: float | None = None      # of a collective, from a peer's call; None: until fates are known
    layers: int | None = None           # L, parts in which the gradient goes out during the backward pass; None: whole
    step_s: float | None = None         # of forward and backward pass, at speed 1, with layers; None: the scenario says


@dataclass
class State:
    model: Vector                       # theta, (d,) float32


async def peer(node: Node, p: Params) -> None:
    s = node.state(State(node.task.initial_parameters()))
    members = node.nodes("peer")
    async for round_ in node.rounds(sync=node.peers):
        with round_:
            if p.layers is None:
                gradient, _ = await node.compute("train", node.task.gradient, s.model, cost_s=node.training_s(1))
                total = await all_reduce(node, members, gradient, p.how, p.timeout_s)
            else:
                total = await _by_layers(node, p, s.model, p.layers)
            mean = total / np.float32(len(members))
            s.model = finite(await node.compute("step", node.task.descend, s.model, mean))
            node.report(parameters=s.model)


async def _by_layers(node: Node, p: Params, model: Vector, layers: int) -> Vector:
    """The sum of the gradients of all peers. Collectives go on while the backward pass does, on a lane of their own."""
    members, d = node.nodes("peer"), model.size
    step_s = node.training_s(1) if p.step_s is None else p.step_s
    forward_s, backward_s = (None, None) if step_s is None else (step_s / 3, step_s * 2 / 3 / layers)
    gradient, _ = await node.compute("forward", node.task.gradient, model, cost_s=forward_s)
    sums = []
    for tag in range(layers):
        upto, since = d - d * tag // layers, d - d * (tag + 1) // layers        # the last layer first
        part = await node.compute("backward", np.copy, gradient[since:upto], cost_s=backward_s, work=upto - since)
        sums.append(node.start(all_reduce(node, members, part, p.how, p.timeout_s, Manner(tag=tag, lane="link"))))
    return np.concatenate([await one for one in sums][::-1])


def unsent(params: Params) -> Collection[str]:
    """The names of the messages that are of the other way to send gradients."""
    return {(Chunk if params.layers is None else Part).__name__}


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    alone = ["step = " + f"{params.step_s} s: states the time of a step in layers: expected layers, or none"] if (
        params.step_s is not None and params.layers is None) else []
    return (alone + checks.times(timeout=params.timeout_s, step=params.step_s)
            + checks.at_least(1, "an integer >= 1", layers=params.layers) + wrong_group(params.how, world)
            + too_many_parts(world.task, "layers", params.layers)
            + [f"task.solver.{found}: ddp needs keep: true, or the solver begins anew in every step"
               for found in collective.begins_anew(world)])


EXAMPLE = example("ddp", "how: ring, timeout: 10 s", topology="complete, peers: 4", links=(), partition="iid")

SCHEME = Scheme(
    params=Params, roles={"peer": peer}, messages=(Part, Chunk), unsent=unsent, places=peers.PLACES, oblivious=True,
    declares=True, timeouts=("timeout_s",), lanes=("compute", "link"), check=check, accuracy="global", example=EXAMPLE)
