"""Federated averaging with the Gaussian mechanism, over links that fail. Baseline of Weng et al., arXiv 2507.07565.

    Y_k = Delta_k + n_k,  n_k i.i.d. N(0, lambda^2 I)        Theta += 1/|S| sum_{k in S} Y_k,  S: those that arrived

"Non-blind" partial participation: the server divides by the number received, so the step is not shrunk; S empty
leaves the model as it is. Every client starts each round from Theta. All clients weigh the same. lambda = 0 is
`fl_lossy`, without outages `fl_ideal`.

Bytes of the arrays in each message, without its header: Model 4 d, Update 4 d.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from emul.primitives.privacy import ldp, lmip
from emul.primitives.privacy.mechanism import noisy
from emul.protocols import rounds
from emul.protocols.rounds import Update, synchronous_client, synchronous_server, train_once
from emul.roles import Analysis, Node, Setting, Vector, weighted_mean


@dataclass(frozen=True)
class Params:
    lambda_: float = 0.1                # standard deviation of the noise, per coordinate
    clip: float | None = None           # R: updates are scaled down to this l2 norm; None: unbounded
    uplink_s: float | None = None       # the server waits that long; None: until the fate of every update is known
    finish_at: int | None = None        # T: the run ends with this round; None: where the scenario says
    ldp_delta: float = 1e-5             # of the analysis


async def server(node: Node, p: Params) -> None:
    if node.index > 0:
        return                          # a second server deals keys in other schemes; here it has nothing to do

    async def aggregate(model: Vector, updates: dict[int, Update]) -> Vector:                             # over S
        return await node.compute("aggregate", weighted_mean, model, updates, "uniform",
                                  work=len(updates) * model.size)

    await synchronous_server(node, aggregate, deadline_s=p.uplink_s, finish_at=p.finish_at)


async def client(node: Node, p: Params) -> None:
    async def train(model: Vector) -> tuple[Vector, int]:
        delta, samples = await train_once(node, model)
        if p.lambda_ or p.clip is not None:
            delta = await node.compute("noise", noisy, delta, p.clip, p.lambda_, node.stream("noise"),
                                       work=delta.size)                                                   # Y_k
        return delta, samples

    await synchronous_client(node, train)


MESSAGES = rounds.MESSAGES
ROLES = {"server": server, "client": client}


def DECIDES(roles: Mapping[str, Sequence[int]]) -> list[int]:
    """The first server."""
    return list(roles["server"][:1])


def check(params: Params, world: object) -> list[str]:
    """What is wrong with these parameters, if anything."""
    p, errors = params, []
    if not (p.lambda_ >= 0 and math.isfinite(p.lambda_)):
        errors.append(f"lambda = {p.lambda_}: expected a number, 0 or above")
    if p.clip is not None and not p.clip > 0:
        errors.append(f"clip = {p.clip}: expected a norm above 0, or none")
    if p.uplink_s is not None and p.uplink_s <= 0:
        errors.append(f"uplink = {p.uplink_s} s: expected a time above 0, or none")
    if p.finish_at is not None and p.finish_at < 1:
        errors.append(f"finish_at = {p.finish_at}: expected a round, 1 or above")
    if not 0 < p.ldp_delta < 1:
        errors.append(f"ldp_delta = {p.ldp_delta}: expected a number between 0 and 1")
    return errors


def analysis(params: Params, setting: Setting) -> Analysis:
    """What theory says: transmissions in updates of d elements, and what one noisy update tells who hears it."""
    p, names, hub = params, setting.roles["client"], setting.roles["server"][0]
    found: Analysis = {
        "uplinks_per_round": (float(len(names)), "messages.Update"),
        "downlinks_per_round": (float(len(names)), "messages.Model"),
        "received_per_round": (sum(1 - setting.outage(k, hub) for k in names), "received"),
    }
    if p.lambda_:
        found["lmip_update_bits"] = lmip.message(p.lambda_, p.lambda_)          # at zeta = lambda
        found["ldp_update_epsilon"] = ("unbounded" if p.clip is None else
                                       ldp.epsilon(p.ldp_delta, ldp.peer_mu(p.clip, p.lambda_)))
    return found

EXAMPLE = """
emul: 1
name: fl_private
seed: 7
topology: {generator: star, clients: 5}
links:
  - {match: "*", latency: 20 ms, bandwidth: 20 Mbit/s}
  - {match: "client*->server*", outage: {model: bernoulli, p: 0.1, per: round}}
task: {data: {set: digits}, partition: {dirichlet: 0.5}, model: logistic,
       solver: {sgd: {lr: 0.1, steps: 1, batch: 16}}}
compute: {mode: zero}
schemes: [{name: fl_private, clip: 1.0, uplink: 500 ms}]
stop: {rounds: 3}
"""
