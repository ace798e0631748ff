"""Descent on clipped gradients with Gaussian noise, of a trusted server or of each client. Abadi et al., CCS 2016.

    central   c_k = clip_B(g_k);                     w <- w - lr / |S| (sum_{k in S} c_k + N(0, sigma^2 B^2))
    local     c_k = clip_B(g_k) + N(0, sigma^2 B^2);  w <- w - lr / |S| sum_{k in S} c_k

S: those of the cohort whose gradients have come. With central noise the server sees every gradient and is trusted, it
clips once more; nobody else learns more than noisy sums. With local noise nobody is trusted, at |S| times the variance.
The unit is a client's whole contribution to a round, not a sample as in the paper; nothing is claimed for the sampling
of clients. `analysis` says what was spent, by who really took part.

Bytes of the arrays in each message, without its header: Model 4 d, Gradient 4 d.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from emul.base.errors import TooFewClients
from emul.primitives.clip import clipped
from emul.primitives.privacy.mechanism import noisy
from emul.protocols import noisy_gradients
from emul.protocols.demands import shaped
from emul.protocols.noisy_gradients import Private, mu_of, noisy_gradient, spent, stepped, wrong_privacy
from emul.protocols.rounds import Model
from emul.roles import Analysis, Message, Node, Realised, Setting, Vector, World, checks


@dataclass(frozen=True)
class Gradient(Message):
    """Client to server."""

    gradient: Vector                # c_k, (d,) float32


@dataclass(frozen=True)
class Params(Private):
    noise_at: Literal["central", "local"] = "central"       # whose noise it is
    fraction: float = 1.0               # of the clients, drawn each round
    deadline_s: float | None = None     # None: wait until the fate of every gradient is known


@dataclass
class ServerState:
    model: Vector


async def server(node: Node, p: Params) -> None:
    s = node.state(ServerState(node.task.initial_parameters()))
    central = p.noise if p.noise_at == "central" else 0.0
    async for round_ in node.rounds():
        with round_:
            cohort = node.sample(node.clients, p.fraction)
            node.offer("cohort", cohort)
            node.broadcast(cohort, Model(s.model))
            got = await node.gather(Gradient, cohort, timeout_s=p.deadline_s, accept=shaped(gradient=s.model.shape))
            if not got:
                raise TooFewClients("no gradient has come")
            summed = await node.compute("aggregate", total, [m.gradient for m in got.values()],
                                        p.clip if p.noise_at == "central" else None, work=len(got) * s.model.size)
            if central:
                summed = await node.compute("noise", noisy, summed, None, central, node.stream("noise"),
                                            work=s.model.size)
            s.model = await node.compute("step", stepped, s.model, summed, len(got), p.lr)
            node.report(parameters=s.model, received=len(got), cohort=len(cohort))


def total(gradients: Sequence[Vector], clip: float | None) -> Vector:
    """Their sum, (d,) float32, each clipped to the norm `clip`; None: as it is."""
    return np.sum([clipped(one, clip).astype(np.float64) for one in gradients], axis=0).astype(np.float32)


async def client(node: Node, p: Params) -> None:
    own = p.noise if p.noise_at == "local" else 0.0
    async for round_ in node.rounds(of=node.server):
        with round_:
            model = await node.recv(Model, node.server, accept=shaped(parameters=(node.task.dimension,)))
            node.send(node.server, Gradient(await noisy_gradient(node, model.parameters, p.clip, own)))


HONEST = noisy_gradients.honest_gradient
MESSAGES = (Model, Gradient)
ROLES = {"server": server, "client": client}
STATELESS = ("client",)


def check(params: Params, world: World) -> list[str]:
    """What is wrong with these parameters, if anything."""
    return (wrong_privacy(params) + checks.fractions(fraction=params.fraction)
            + checks.times(deadline=params.deadline_s))


def analysis(params: Params, setting: Setting, run: Realised) -> Analysis:
    """Epsilon against the server and against another client, of the rounds in which each client took part.

    The server sees every gradient that was sent; others see the model, so sums of the rounds that were completed. To
    another client of a round all noise is left but its own.
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
    return spent("server", of_server, p.delta) | spent("client", of_client, p.delta)


EXAMPLE = """
emul: 1
name: dp_fedavg
seed: 7
topology: {generator: star, clients: 5}
links:
  - {match: "*", latency: 20 ms, bandwidth: 20 Mbit/s}
  - {match: "client*->server*", outage: {model: bernoulli, p: 0.1, per: round}}
task: {data: {set: digits}, partition: {dirichlet: 0.5}, model: logistic,
       solver: {sgd: {lr: 0.1, steps: 1, batch: 16}}}
compute: {mode: zero}
schemes: [{name: dp_fedavg, deadline: 1 s}]
stop: {rounds: 3}
"""
