"""Federated averaging with the Gaussian mechanism, over links that fail. Baseline of Weng et al., arXiv 2507.07565.

    Y_k = Delta_k + n_k,  n_k i.i.d. N(0, lambda^2 I)        Theta += 1/|S| sum_{k in S} Y_k,  S: those that arrived

"Non-blind" partial participation: the server divides by the number received, so the step is not shrunk; S empty
leaves the model as it is. Every client starts each round from Theta. All clients weigh the same. lambda = 0 is
`fl_lossy`, without outages `fl_ideal`.

Bytes of the arrays in each message, without its header: Model 4 d, Update 4 d.

Protects: an update from the server, by Gaussian noise of each client (`analysis` says how much). Not: false updates.
"""

from __future__ import annotations

from dataclasses import dataclass

from emul.primitives.privacy.mechanism import leakage_of_update, noisy
from emul.primitives.written import WrittenChoice
from emul.protocols import rounds
from emul.protocols.robust import MEAN, judging, robust_server, wrong_rule
from emul.protocols.rounds import Update, synchronous_client, train_once
from emul.roles import Analysis, Node, Realised, Scheme, Setting, Vector, World, checks, weighted_mean
from emul.roles.example import example


@dataclass(frozen=True)
class Params:
    lambda_: float = 0.1                # standard deviation of the noise, per coordinate
    clip: float | None = None           # R: updates are scaled down to this l2 norm; None: unbounded
    uplink_s: float | None = None       # the server waits that long; None: until the fate of every update is known
    finish_at: int | None = None        # T: the run ends with this round; None: where the scenario says
    ldp_delta: float = 1e-5             # of the analysis
    aggregate: WrittenChoice = MEAN     # or a rule of emul.primitives.robust: median, {krum: {f: 2}}


async def server(node: Node, p: Params) -> None:
    async def mean(model: Vector, updates: dict[int, Update]) -> Vector:                                  # over S
        return await node.compute("aggregate", weighted_mean, model, updates, "uniform",
                                  work=len(updates) * model.size)

    await robust_server(node, p.aggregate, mean, deadline_s=p.uplink_s, finish_at=p.finish_at)


async def client(node: Node, p: Params) -> None:
    async def train(model: Vector) -> tuple[Vector, int]:
        delta, samples = await train_once(node, model)
        if p.lambda_ or p.clip is not None:
            delta = await node.compute("noise", noisy, delta, p.clip, p.lambda_, node.stream("noise"),
                                       work=delta.size)                                                   # Y_k
        return delta, samples

    await synchronous_client(node, train)


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    p = params
    return (checks.not_negative(lambda_=p.lambda_) + checks.positive(clip=p.clip) + checks.times(uplink=p.uplink_s)
            + checks.at_least(1, "a round, 1 or above", finish_at=p.finish_at)
            + checks.probabilities(ldp_delta=p.ldp_delta) + wrong_rule(p.aggregate, 1.0, world))


def analysis(params: Params, setting: Setting, run: Realised) -> Analysis:
    """The theory: transmissions in updates of d elements, and the information that one noisy update gives to a
    listener."""
    p, names, hub = params, setting.roles["client"], setting.roles["server"][0]
    found: Analysis = {
        "uplinks_per_round": (float(len(names)), "messages.Update"),
        "downlinks_per_round": (float(len(names)), "messages.Model"),
        "received_per_round": (sum(1 - setting.outage(k, hub) for k in names), "received"),
    }
    if p.lambda_:
        most = max(run.participation("Update").values(), default=0)
        found |= leakage_of_update(p.lambda_, p.clip, p.ldp_delta, setting.rounds, most)
    return found

EXAMPLE = example("fl_private", "clip: 1.0, uplink: 500 ms")

SCHEME = Scheme(
    params=Params, roles={"server": server, "client": client}, messages=rounds.MESSAGES,
    oblivious=lambda p: judging(p.aggregate), compress=("up", "down"), timeouts=("uplink_s",),
    honest=rounds.honest_update, check=check, analysis=analysis, example=EXAMPLE)
