"""NoLoCo: peers train alone for H steps, then each moves towards one other peer. No collective, no barrier.
Kolehmainen et al., arXiv 2506.10911.

    peer i      theta_i: H steps of the task's solver from phi_i;  D_i = theta_i - phi_i
    pair i, j   D_i and phi_i go to j, D_j and phi_j to i
                m_i <- alpha m_i + beta (D_i + D_j) / 2 - gamma (phi_i - phi_j) / 2
                phi_i <- phi_i + m_i;  theta_i <- phi_i

m is 0 at first. All draw the same pairs of a round from the seed. The replicas phi_i differ by design, and gamma pulls
those of a pair together: by default gamma = beta, as in the authors' code. The paper speaks of Nesterov's momentum, but
nothing looks ahead in that code, nor here. The inner solver is AdamW whose moments stay at the peer: `keep: true` of
the solver. The paper has H = 50.

A peer takes its own D_i and phi_i for those of a partner if it has none, as one of an odd number has in every round, or
if nothing of the partner comes, or too late. A peer that hears from two others that they are two rounds or more ahead,
as one that was gone does, skips to their round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from emul.base.streams import generator
from emul.protocols import collective, peers
from emul.protocols.demands import shaped
from emul.protocols.rounds import finite
from emul.roles import Message, Node, Scheme, Vector, World, checks
from emul.roles.example import example


@dataclass(frozen=True)
class Replica(Message):
    """To the partner of the round."""

    update: Vector                      # D_i, (d,) float32
    model: Vector                       # phi_i, (d,) float32


@dataclass(frozen=True)
class Params:
    momentum: float = 0.5               # alpha
    rate: float = 0.7                   # beta, of the mean difference of a pair
    gamma: float | None = None          # of the pull towards the partner's model; None: as large as the rate
    steps: int | None = None            # H, inner steps a round; None: as many as the solver says
    timeout_s: float | None = None      # the time that the partner is waited for; None: until its fate is known


@dataclass
class State:
    model: Vector                       # phi_i, (d,) float32
    momentum: Vector                    # m_i, (d,) float32


async def peer(node: Node, p: Params) -> None:
    first = node.task.initial_parameters()
    s = node.state(State(first, np.zeros_like(first)))
    members, sound = node.nodes("peer"), shaped(update=first.shape, model=first.shape)
    train = partial(node.task.local_update, steps=p.steps)
    # a peer that was gone and counts by itself would stay behind, and its partners would wait for it; of two others,
    # since one alone may be ahead because it had no partner
    async for round_ in node.rounds(sync=node.peers, quorum=min(2, len(node.peers))):
        with round_:
            # update: D_i
            update, _ = await node.compute("train", train, s.model, cost_s=node.training_s(p.steps))
            own = Replica(update, s.model)
            partner = partner_of(node.seed, round_, members, node.id)
            node.broadcast(partner, own)
            got = await node.gather(Replica, partner, p.timeout_s, accept=sound)
            theirs = next(iter(got.values()), own)
            model, momentum = await node.compute("outer", outer, s.momentum, own, theirs, p)
            s.model, s.momentum = finite(model), momentum
            node.report(parameters=s.model, paired=len(got) == 1)


def partner_of(seed: int, round_: int, members: Sequence[int], i: int) -> list[int]:
    """[the partner of peer i in a round]; []: it has none, as one of an odd number has in each round."""
    order = [members[at] for at in generator(seed, "pairs", round_).permutation(len(members))]
    at = order.index(i) ^ 1
    return order[at:at + 1]


def outer(momentum: Vector, own: Replica, theirs: Replica, p: Params) -> tuple[Vector, Vector]:
    """(phi, m) of a peer after the step, (d,) float32 each. momentum: m before."""
    gamma = p.rate if p.gamma is None else p.gamma
    momentum = (np.float32(p.momentum) * momentum + np.float32(p.rate / 2) * (own.update + theirs.update)
                - np.float32(gamma / 2) * (own.model - theirs.model))
    return own.model + momentum, momentum


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    return (checks.below_one(momentum=params.momentum) + checks.positive(rate=params.rate)
            + checks.not_negative(gamma=params.gamma) + checks.steps(steps=params.steps)
            + checks.times(timeout=params.timeout_s) + checks.at_least(2, "two or more", peers=world.count("peer")))


EXAMPLE = example("noloco", "timeout: 10 s", topology="complete, peers: 5", links=(), partition="iid",
                  solver="lr: 0.1, steps: 5, batch: 16")

SCHEME = Scheme(
    params=Params, roles={"peer": peer}, messages=(Replica,), places=peers.PLACES, oblivious=True, declares=True,
    timeouts=("timeout_s",), check=check, warn=collective.warn, example=EXAMPLE)
