"""IFCA: iterative federated clustering. Ghosh, Chung, Yin, Ramchandran, NeurIPS 2020, Algorithm 1.

    client i    j_i = argmin_c loss(D_i; theta_c)
    model       theta_c <- mean of theta_c + g_i over j_i = c           g_i: local training from theta_{j_i}
    gradient    theta_c <- theta_c - (rate / n) sum_{j_i = c} grad_i    n: clients that have answered

A cluster that nobody has chosen keeps its model. The evaluated value is the mean over the task's clusters (over the
clients, where it has none) of the best model's accuracy there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from emul.primitives.selection import choose
from emul.primitives.written import WrittenChoice
from emul.protocols import clustered
from emul.protocols import selection as selecting
from emul.protocols.clustered import Models, best, starts
from emul.protocols.demands import both, demand, shaped
from emul.protocols.rounds import finite
from emul.protocols.selection import Selecting, by_plan
from emul.roles import Message, Node, Scheme, Vector, World, checks
from emul.roles.example import example


@dataclass(frozen=True)
class Params:
    clusters: int = 2                   # m
    averaging: Literal["model", "gradient"] = "model"
    rate: float = 0.1                   # gamma, of gradient averaging
    root_steps: int = 0                 # steps on part c of the root data, before model c is first sent
    fraction: float = 1.0               # of the clients, drawn each round
    selection: WrittenChoice | None = None     # as in fedavg: a rule that chooses who takes part
    deadline_s: float | None = None     # of a round at the server; None: until the fates are known


@dataclass(frozen=True)
class Chosen(Message):
    """Client to server."""

    cluster: int                        # j_i
    update: Vector                      # g_i or grad_i, (d,) float32


@dataclass
class State:
    models: np.ndarray | None = None    # (m, d) float32; None: not made yet
    selecting: Selecting | None = None


async def server(node: Node, p: Params) -> None:
    s = node.state(State(selecting=selecting.begin(p.selection)))
    sound = both(shaped(update=(node.task.dimension,)),
                 lambda m: demand(0 <= m.cluster < p.clusters, "cluster: out of range"))
    async for round_ in node.rounds():
        with round_:
            if s.models is None:
                s.models = await node.compute("start", starts, node.task, p.clusters, p.root_steps)
            cohort = await selecting.cohort_of(node, s.selecting, s.models[0], p.fraction, p.deadline_s)
            node.offer("cohort", cohort)
            node.broadcast(cohort, Models(s.models))
            got = await selecting.updates_of(node, s.selecting, Chosen, cohort, p.deadline_s, sound, lambda _: 1)
            s.models = finite(await node.compute("aggregate", step, s.models, got, p, work=len(got) * s.models.size))
            node.report(s.models.ravel(), evaluate=node.task.evaluate_best, received=len(got))
            node.assigned({k: m.cluster for k, m in got.items()})


async def client(node: Node, p: Params) -> None:
    rule = None if p.selection is None else choose(p.selection)
    async for round_ in node.rounds(of=node.server):
        with round_:
            if not (await selecting.asked(node, rule))[0]:
                continue
            got = await node.recv(Models, node.server, accept=shaped(parameters=(p.clusters, node.task.dimension)))
            since_ns = node.now_ns
            j = await node.compute("choose", best, node.task, got.parameters)
            learnt = node.task.local_update if p.averaging == "model" else node.task.gradient
            update, _ = await node.compute("train", learnt, got.parameters[j])
            await selecting.tell(node, rule, got.parameters[j], since_ns)
            node.send(node.server, Chosen(j, update))


def step(models: np.ndarray, got: dict[int, Chosen], p: Params) -> np.ndarray:
    """The models (m, d) after a round, from what the clients have sent."""
    after = models.copy()
    for c, model in enumerate(models):
        members = [m.update for _, m in sorted(got.items()) if m.cluster == c]
        if members:
            total = np.sum(members, axis=0, dtype=np.float64)
            after[c] = model + total / len(members) if p.averaging == "model" else model - p.rate / len(got) * total
    return after


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    wrong = checks.at_least(1, "1 or more", clusters=params.clusters) + checks.positive(rate=params.rate) \
        + checks.fractions(fraction=params.fraction) + checks.times(deadline=params.deadline_s) \
        + checks.not_negative(root_steps=params.root_steps) \
        + selecting.wrong_without_probing(params.selection, world, params.fraction, "clients choose among several")
    if params.root_steps and not checks.root_samples(world.task):
        wrong.append(f"root_steps = {params.root_steps}: needs root data at the server: root of the task")
    if params.clusters > world.clients:
        wrong.append(f"clusters = {params.clusters}: expected at most {world.clients}, the number of clients")
    return wrong


EXAMPLE = example("ifca", "clusters: 2, deadline: 1 s", task=("clusters: {rotate: [0, 90]}",))

SCHEME = Scheme(
    params=Params, roles={"server": server, "client": client},
    messages=(*clustered.MESSAGES, Chosen, *selecting.MESSAGES), stateless=("client",), timeouts=("deadline_s",),
    honest=clustered.honest_update, knows_topology=by_plan, check=check, accuracy="cluster", example=EXAMPLE)
