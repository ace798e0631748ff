"""Descent on clipped gradients with Gaussian noise, of a trusted server or of each client. Abadi et al., CCS 2016.

    central   c_k = clip_B(g_k);                     w <- w - lr / |S| (sum_{k in S} c_k + N(0, sigma^2 B^2))
    local     c_k = clip_B(g_k) + N(0, sigma^2 B^2);  w <- w - lr / |S| sum_{k in S} c_k

S: those of the cohort whose gradients have come. With central noise the server sees every gradient and is trusted, it
clips once more; nobody else learns more than noisy sums. With local noise nobody is trusted, at |S| times the variance.
The unit is a client's whole contribution to a round, not a sample as in the paper. `analysis` says what was spent, by
who really took part.

`sampling: poisson`, with central noise: each of the K clients is in S with probability q = `fraction`, whatever the
others do, and q K takes the place of |S|, so that the number of clients stays hidden, too. An observer that sees the
models, and not who took part, learns less by that (`outsider_epsilon`). Nothing is claimed for cohorts of a fixed size.

Bytes of the arrays in each message, without its header: Model 4 d, Gradient 4 d.

Protects: a client's part in a round from all who see the model, by (eps, delta)-DP; `noise_at: local`: from the server,
too. Not: its gradient from the server with central noise; false gradients.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal

import numpy as np

from emul.base.errors import TooFewClients
from emul.primitives.dp import sampled_epsilon
from emul.primitives.means import clipped
from emul.primitives.privacy.mechanism import noisy
from emul.protocols import noisy_gradients
from emul.protocols.demands import shaped
from emul.protocols.noisy_gradients import Private, mu_of, noisy_gradient, spent, stepped, wrong_privacy
from emul.protocols.rounds import Model
from emul.roles import Analysis, Message, Node, Realised, Scheme, Setting, Vector, World, checks
from emul.roles.example import example


@dataclass(frozen=True)
class Gradient(Message):
    """Client to server."""

    gradient: Vector                # c_k, (d,) float32


@dataclass(frozen=True)
class Params(Private):
    noise_at: Literal["central", "local"] = "central"       # the side that adds the noise
    fraction: float = 1.0               # of the clients, drawn each round
    sampling: Literal["fixed", "poisson"] = "fixed"         # a cohort of a fixed size, or each client by itself
    deadline_s: float | None = None     # None: wait until the fate of every gradient is known


@dataclass
class ServerState:
    model: Vector


async def server(node: Node, p: Params) -> None:
    s = node.state(ServerState(node.task.initial_parameters()))
    central = p.noise if p.noise_at == "central" else 0.0
    async for round_ in node.rounds():
        with round_:
            cohort = drawn(node, p)
            node.offer("cohort", cohort)
            node.broadcast(cohort, Model(s.model))
            got = await node.gather(Gradient, cohort, timeout_s=p.deadline_s, accept=shaped(gradient=s.model.shape))
            # A Poisson cohort may be empty. Its round is one like others: a failed round would tell that nobody was in.
            if not got and p.sampling == "fixed":
                raise TooFewClients("no gradient has come")
            summed = await node.compute("aggregate", total, s.model.size, [m.gradient for m in got.values()],
                                        p.clip if p.noise_at == "central" else None, work=len(got) * s.model.size)
            if central:
                summed = await node.compute("noise", noisy, summed, None, central, node.stream("noise"),
                                            work=s.model.size)
            count = len(got) if p.sampling == "fixed" else p.fraction * len(node.joined(node.clients))
            s.model = await node.compute("step", stepped, s.model, summed, count, p.lr)
            node.report(parameters=s.model, received=len(got), cohort=len(cohort))


def drawn(node: Node, p: Params) -> list[int]:
    """The cohort of this round, ascending."""
    if p.sampling == "fixed":
        return node.sample(node.clients, p.fraction)
    inside = node.stream("cohort").random(len(node.clients)) < p.fraction
    return node.joined([client for client, one in zip(node.clients, inside.tolist(), strict=True) if one])


def total(dimension: int, gradients: Sequence[Vector], clip: float | None) -> Vector:
    """Their sum, (d,) float32, each clipped to the norm `clip`; None: as it is. d = `dimension`; of none: 0."""
    found = np.zeros(dimension)
    for one in gradients:
        found += clipped(one, clip)
    return found.astype(np.float32)


async def client(node: Node, p: Params) -> None:
    own = p.noise if p.noise_at == "local" else 0.0
    async for round_ in node.rounds(of=node.server):
        with round_:
            model = await node.recv(Model, node.server, accept=shaped(parameters=(node.task.dimension,)))
            node.send(node.server, Gradient(await noisy_gradient(node, model.parameters, p.clip, own)))


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    errors = (wrong_privacy(params) + checks.fractions(fraction=params.fraction)
              + checks.times(deadline=params.deadline_s))
    if params.sampling == "poisson" and params.noise_at == "local":
        errors.append("sampling = poisson: expected noise_at: central, since the server sees who sends local noise")
    if params.sampling == "poisson" and find_spec("dp_accounting") is None:
        errors.append("sampling = poisson: what it adds to privacy is told by dp-accounting, which is not installed: "
                      "pip install 'emul[privacy]'")
    return errors


def analysis(params: Params, setting: Setting, run: Realised) -> Analysis:
    """Epsilon against the server and against another client, of the rounds in which each client took part.

    The server sees every gradient that was sent; others see the model, so sums of the rounds that were completed. To
    another client of a round all noise is left but its own. With Poisson cohorts `outsider_epsilon` besides: of the
    models of all rounds, to an observer that does not know in which of them the others took part.
    """
    p, names = params, setting.roles["client"]
    heard = run.heard("Gradient", setting.roles["server"][0])
    of_server: dict[str, list[float]] = {name: [] for name in names}
    of_client: dict[str, list[float]] = {name: [] for name in names}
    for _, name, _ in sorted(run.sent("Gradient")):
        of_server[name].append(mu_of(p.clip, p.noise if p.noise_at == "local" else 0.0))
    for round_ in sorted(heard):
        left = [p.noise] * (1 if p.noise_at == "central" else max(1, len(heard[round_]) - 1))
        for name in heard[round_]:
            of_client[name].append(mu_of(p.clip, left))
    found = spent("server", of_server, p.delta) | spent("client", of_client, p.delta)
    if p.sampling == "poisson":
        outside = sampled_epsilon(p.noise / p.clip, p.fraction, len(run.completed), p.delta)
        found["outsider_epsilon"] = "unbounded" if math.isinf(outside) else outside
    return found


EXAMPLE = example("dp_fedavg", "deadline: 1 s")

SCHEME = Scheme(
    params=Params, roles={"server": server, "client": client}, messages=(Model, Gradient), stateless=("client",),
    timeouts=("deadline_s",), honest=noisy_gradients.honest_gradient, check=check, analysis=analysis, example=EXAMPLE)
