"""RFCA: clustered learning that weights updates by their cosine with a trusted reference. Li et al., AAAI-25, Alg. 2.

    server      g0^c from part c of its root data; sends theta_1 .. theta_m
    client i    j_i = argmin_c loss(D_i; theta_c), g_i = local training from theta_{j_i}
    server      w_i = max(0, cos(g_i, g0^{j_i}));  theta_c += eta scale norm_c sum_{j_i = c} w_i g_i / |g_i| / DEN

DEN is the sum of all weights (`joint`, Algorithm 2) or of the cluster's (`per_cluster`, equation 1). It is in the clear
what `ebs_cfl` computes under masks: the server sees every update and every choice. With one cluster and a reference
that is made anew in every round it is FLTrust.

Deviations: Algorithm 2 subtracts, though clients send differences; it divides by n where part means are meant; a round
whose weights add up to less than `least_weight` changes nothing. Bytes of the arrays: Models 4 m l, Choice 4 l.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from emul.primitives.robust.rfca import Clustered, Weighting, rfca
from emul.protocols import clustered, trust
from emul.protocols.clustered import Models
from emul.protocols.demands import both, demand, shaped
from emul.protocols.trust import (
    Clusters,
    Refresh,
    StepNorm,
    Trusting,
    doubtful_trust,
    moved,
    prepare,
    step_norms,
    wrong_trust,
)
from emul.roles import Message, Node, Vector, World, checks


@dataclass(frozen=True)
class Params:
    clusters: int = 2                   # m
    weighting: Weighting = "joint"      # what the weights are divided by
    rate: float = 1.0                   # eta
    step_norm: StepNorm = "root"        # length of a step: of a training on root data, of g0 (the paper), or a number
    step_scale: float | None = None     # what it is multiplied with; none: m for joint weights, else 1. The paper: 1
    reference: Refresh = "init"         # when g0 is made: once, or {refresh: k}, every k rounds
    parts: Literal["forced", "chosen"] = "forced"       # part c of the root data is of cluster c, or of its best model
    start_steps: int = 10               # on part c, before model c is first sent
    reference_steps: int | None = None  # T_s, of g0; none: as many as clients take
    root_steps: int | None = None       # T_l, of `step_norm: root`; none: as many as clients take
    least_weight: float = 1e-6          # W_min: where the sum of the weights is below it, nothing is moved
    fraction: float = 1.0               # of the clients, drawn each round
    deadline_s: float | None = None     # of a round at the server; None: until the fates are known


@dataclass(frozen=True)
class Choice(Message):
    """Client to server."""

    cluster: int                        # j_i
    update: Vector                      # g_i, (l,) float32


def design(p: Params) -> Trusting:
    """How the server trusts and moves."""
    return Trusting(p.clusters, p.weighting, p.rate, p.step_norm, p.step_scale, p.reference, p.parts, p.start_steps,
                    p.reference_steps, p.root_steps, p.least_weight)


async def server(node: Node, p: Params) -> None:
    d, s = design(p), node.state(Clusters())
    sound = both(shaped(update=(node.task.dimension,)),
                 lambda message: demand(0 <= message.cluster < p.clusters, "cluster: out of range"))
    async for round_ in node.rounds():
        with round_:
            models, g0 = await prepare(node, d, s, round_)
            cohort = node.sample(node.clients, p.fraction)
            node.offer("cohort", cohort)
            node.offer("reference", g0)
            node.broadcast(cohort, Models(models))
            got = await node.gather(Choice, cohort, timeout_s=p.deadline_s, accept=sound)
            norms = await step_norms(node, d, s)
            found = await node.compute("aggregate", judge, got, g0, p.weighting, work=len(got) * models.shape[1])
            s.models = moved(models, found.directions, norms, found.totals.tolist(), d)
            node.assigned({k: message.cluster for k, message in got.items()})
            trust.tell(node, s, sorted(got), dict(zip(sorted(got), found.weights.tolist(), strict=True)),
                       float(found.totals.sum()), received=len(got))


def judge(got: Mapping[int, Choice], g0: np.ndarray, weighting: Weighting) -> Clustered:
    """RFCA of what has come, in the order of the clients."""
    return rfca([got[k].update for k in sorted(got)], [got[k].cluster for k in sorted(got)], g0, weighting)


async def client(node: Node, p: Params) -> None:
    async for round_ in node.rounds(of=node.server):
        with round_:
            models = await node.recv(Models, node.server, accept=shaped(parameters=(p.clusters, node.task.dimension)))
            update, j = await node.compute("train", trust.chosen_update, node.task, models.parameters)
            node.send(node.server, Choice(j, update))


HONEST = clustered.honest_update
MESSAGES = (*clustered.MESSAGES, Choice)
ROLES = {"server": server, "client": client}
STATELESS = ("client",)


def check(params: Params, world: World) -> list[str]:
    """What is wrong with these parameters, if anything."""
    return wrong_trust(design(params), params.fraction, world) + checks.times(deadline=params.deadline_s)


def warn(params: Params, world: World) -> list[str]:
    """What is allowed, and may leave a cluster behind."""
    return doubtful_trust(design(params))


EXAMPLE = """
emul: 1
name: rfca
seed: 7
topology: {generator: star_mesh, clients: 5}
links:
  - {match: "*", latency: 20 ms, bandwidth: 20 Mbit/s}
  - {match: "client*->server*", outage: {model: bernoulli, p: 0.1, per: round}}
task: {data: {set: digits}, clusters: {rotate: [0, 90]}, root: {samples: 60}, partition: {dirichlet: 0.5},
       model: logistic, solver: {sgd: {lr: 0.1, steps: 2, batch: 16}}}
compute: {mode: zero}
schemes: [{name: rfca, deadline: 1 s}]
stop: {rounds: 3}
"""
