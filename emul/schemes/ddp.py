"""Distributed data parallel: peers add up the gradients of their batches in every step. Li et al., VLDB 2020.

    peer m      g_m: the gradient of one batch at theta
    all         g = (1/n) sum_m g_m, by a collective (`emul.protocols.collective`);  theta <- solver(theta, g)

A round is one step. Every peer takes the same step of the task's solver with moments of its own, which are the same at
all: theta and moments are replicas. `steps` and `epochs` of the solver are not used. All gradients count alike,
whatever the number of samples. Buffers such as running statistics stay as they were at first.

The whole gradient goes out after the backward pass, not layer by layer while it runs. A peer whose round fails takes no
step; if others have taken theirs, its replica differs from then on, since nothing brings it back.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from emul.protocols import collective, peers
from emul.protocols.collective import How, Part, all_reduce, wrong_group
from emul.protocols.rounds import finite
from emul.roles import Node, Scheme, Vector, World, checks


@dataclass(frozen=True)
class Params:
    how: How = "ring"                   # the collective that adds up
    timeout_s: float | None = None      # of a collective, from a peer's call; None: until fates are known


@dataclass
class State:
    model: Vector                       # theta, (d,) float32


async def peer(node: Node, p: Params) -> None:
    s = node.state(State(node.task.initial_parameters()))
    members = node.nodes("peer")
    async for round_ in node.rounds(sync=node.peers):
        with round_:
            gradient, _ = await node.compute("train", node.task.gradient, s.model, cost_s=node.training_s(1))
            total = await all_reduce(node, members, gradient, p.how, p.timeout_s)
            mean = total / np.float32(len(members))
            s.model = finite(await node.compute("step", node.task.descend, s.model, mean))
            node.report(parameters=s.model)


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    return (checks.times(timeout=params.timeout_s) + wrong_group(params.how, world)
            + [f"task.solver.{found}: ddp needs keep: true, or the solver begins anew in every step"
               for found in collective.begins_anew(world)])


EXAMPLE = """
emul: 1
name: ddp
seed: 7
topology: {generator: complete, peers: 4}
links: [{match: "*", latency: 20 ms, bandwidth: 20 Mbit/s}]
task: {data: {set: digits}, partition: iid, model: logistic, solver: {sgd: {lr: 0.1, steps: 1, batch: 16}}}
compute: {mode: zero}
schemes: [{name: ddp, how: ring, timeout: 10 s}]
stop: {rounds: 3}
"""

SCHEME = Scheme(
    params=Params, roles={"peer": peer}, messages=(Part,), places=peers.PLACES, oblivious=True, declares=True,
    timeouts=("timeout_s",), check=check, example=EXAMPLE)
