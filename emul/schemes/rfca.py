"""RFCA: clustered learning that weights updates by their cosine with a trusted reference. Li et al., AAAI-25, Alg. 2.

    server      g0^c from part c of its root data; sends theta_1 .. theta_m
    client i    j_i = argmin_c loss(D_i; theta_c), g_i = local training from theta_{j_i}
    server      w_i = max(0, cos(g_i, g0^{j_i}));  theta_c += eta scale norm_c sum_{j_i = c} w_i g_i / |g_i| / DEN

DEN is the sum of all weights (`joint`, Algorithm 2) or of the cluster's (`per_cluster`, equation 1). It is in the clear
what `ebs_cfl` computes under masks: the server sees every update and every choice. With one cluster and a reference
that is made anew in every round it is FLTrust.

Deviations: Algorithm 2 subtracts, though clients send differences; it divides by n where part means are meant; a round
whose weights add up to less than `least_weight` changes nothing. Bytes of the arrays: Models 4 m l, Choice 4 l.

Protects: the model from malicious updates, by their cosine with trusted references. Not: updates and clusters from the
server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from emul.primitives.robust.rfca import Clustered, Weighting, rfca
from emul.protocols import clustered, trust
from emul.protocols.clustered import Models
from emul.protocols.demands import both, demand, shaped
from emul.protocols.trust import (
    Clusters,
    Trusting,
    doubtful_trust,
    moved,
    prepare,
    step_norms,
    wrong_trust,
)
from emul.roles import Message, Node, Scheme, Vector, World, checks
from emul.roles.example import example


@dataclass(frozen=True)
class Params(Trusting):
    deadline_s: float | None = None     # of a round at the server; None: until the fates are known


@dataclass(frozen=True)
class Choice(Message):
    """Client to server."""

    cluster: int                        # j_i
    update: Vector                      # g_i, (l,) float32


async def server(node: Node, p: Params) -> None:
    s = node.state(Clusters())
    sound = both(shaped(update=(node.task.dimension,)),
                 lambda message: demand(0 <= message.cluster < p.clusters, "cluster: out of range"))
    async for round_ in node.rounds():
        with round_:
            models, g0 = await prepare(node, p, s, round_)
            cohort = node.sample(node.clients, p.fraction)
            node.offer("cohort", cohort)
            node.offer("reference", g0)
            node.broadcast(cohort, Models(models))
            got = await node.gather(Choice, cohort, timeout_s=p.deadline_s, accept=sound)
            norms = await step_norms(node, p, s)
            found = await node.compute("aggregate", judge, got, g0, p.weighting, work=len(got) * models.shape[1])
            s.models = moved(models, found.directions, norms, found.totals.tolist(), p, g0, round_)
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


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    return wrong_trust(params, world) + checks.times(deadline=params.deadline_s)


def warn(params: Params, world: World) -> list[str]:
    """Warnings of parameters that are allowed, but may leave a cluster behind."""
    return doubtful_trust(params)


EXAMPLE = example("rfca", "deadline: 1 s", topology="star_mesh, clients: 5",
                  task=("clusters: {rotate: [0, 90]}", "root: {samples: 60}"), solver="lr: 0.1, steps: 2, batch: 16")

SCHEME = Scheme(
    params=Params, roles={"server": server, "client": client}, messages=(*clustered.MESSAGES, Choice),
    stateless=("client",), timeouts=("deadline_s",), honest=clustered.honest_update, check=check, warn=warn,
    accuracy="cluster", example=EXAMPLE)
