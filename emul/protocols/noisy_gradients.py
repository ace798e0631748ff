"""Clipped gradients under Gaussian noise, one step of descent a round, and what the noise really protects.

    client k    c_k = g_k min(1, B / ||g_k||_2) + N(0, std^2 I),  g_k: the gradient of one batch
    server      w <- w - lr / |S| sum_{k in S} c_k

Each scheme hides single c_k in its own way. Unit of privacy: the whole contribution of one client to a round, as
against none: sensitivity B in the l2 norm. A round whose view of that contribution has noise of variance v is a
Gaussian mechanism of mu = B / sqrt(v); rounds add up by mu^2, over those in which the client really took part, and eps
follows exactly (Balle and Wang 2018). Batches are no random samples here: nothing is claimed for sampling.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from emul.learning import NodeTask
from emul.primitives.dp import sigma_over_sensitivity
from emul.primitives.privacy import ldp
from emul.primitives.privacy.mechanism import noisy
from emul.protocols.rounds import Model, finite
from emul.roles import Analysis, Node, Realised, Received, Setting, Vector, checks


@dataclass(frozen=True)
class Private:
    """Parameters of descent under a guarantee."""

    lr: float = 0.1                     # of the step
    clip: float = 1.0                   # B: the l2 norm that a gradient cannot exceed
    eps: float = 3.0                    # the guarantee that the noise is chosen for
    delta: float = 1e-5
    over: int = 1                       # rounds that together have it
    sigma: float | None = None          # standard deviation of the noise over B; None: what the guarantee needs

    @property
    def noise(self) -> float:
        """Standard deviation, per coordinate, with which one sum is (eps, delta)-private."""
        return self.clip * (sigma_over_sensitivity(self.eps, self.delta, self.over) if self.sigma is None
                            else self.sigma)


def wrong_privacy(p: Private) -> list[str]:
    """Mistakes in these parameters, for a scheme's `check`."""
    return (checks.positive(lr=p.lr, clip=p.clip) + checks.epsilons(eps=p.eps) + checks.probabilities(delta=p.delta)
            + checks.at_least(1, "1 round or more", over=p.over)
            + ([] if p.sigma is None else checks.not_negative(sigma=p.sigma)))


async def noisy_gradient(node: Node, model: Vector, clip: float, std: float) -> Vector:
    """At a client: c_k, (d,) float32, from its next batch."""
    gradient, _ = await node.compute("train", node.task.gradient, model, cost_s=node.training_s(1))
    found: Vector = await node.compute("noise", noisy, gradient, clip, std, node.stream("noise"), work=gradient.size)
    return found


def honest_gradient(task: NodeTask, received: Received, j: int) -> Vector:
    """`Scheme.honest` of a scheme of noisy gradients: what client j sends, before clipping and noise."""
    return task.gradient(received[Model].parameters)[0]


def stepped(model: Vector, summed: np.ndarray, count: float, lr: float) -> Vector:
    """w - lr / count * summed. Raises NotDecodable if it is not finite."""
    return finite((model - lr / count * summed).astype(np.float32))


def mu_of(clip: float, noises: Sequence[float] | float) -> float:
    """mu of one view: B over the root of the sum of the noises' variances; inf without noise. noises: standard
    deviations of those that the observer does not know.

    >>> mu_of(1.0, [3.0, 4.0])
    0.2
    """
    total = math.sqrt(sum(one * one for one in np.atleast_1d(noises)))
    return clip / total if total > 0 else math.inf


def spent(name: str, views: Mapping[str, Sequence[float]], delta: float) -> Analysis:
    """The privacy that rounds have cost: `<name>_epsilon_round`, of the worst view, and `<name>_epsilon`, of the client
    that has lost most over all. views: {client: mu of every round in which it took part}; mu = inf: "unbounded"."""
    totals = [ldp.composed(mus) for mus in views.values()]
    worst = max((mu for mus in views.values() for mu in mus), default=0.0)
    return {f"{name}_epsilon_round": _epsilon(worst, delta),
            f"{name}_epsilon": _epsilon(max(totals, default=0.0), delta)}


def spent_by_sums(p: Private, setting: Setting, run: Realised, opened: Collection[int], noise: float,
                  colluding: int) -> Analysis:
    """`spent` where single `Upload`s stay hidden and in the rounds `opened` their sum was read, by all.

    noise: standard deviation of each client's. To the server and `colluding` clients with it the noise of all other
    summands is left, one's own at least; one more client, the observer, knows its own besides.
    """
    heard, found = run.heard("Upload", setting.roles["server"][0]), Analysis()
    for observer, known in (("server", colluding), ("client", colluding + 1)):
        views: dict[str, list[float]] = {name: [] for name in setting.roles["client"]}
        for round_ in sorted(heard.keys() & set(opened)):
            mu = mu_of(p.clip, [noise] * max(1, len(heard[round_]) - known))
            for name in heard[round_]:
                views[name].append(mu)
        found |= spent(observer, views, p.delta)
    return found


def _epsilon(mu: float, delta: float) -> object:
    found = ldp.epsilon(delta, mu)
    return "unbounded" if math.isinf(found) else found
