"""FedAT: tiers of similar speed, synchronous within and asynchronous to each other. Chai et al., SC 2021, Algorithm 2.

    client k    w_k <- argmin~ F_k(w) + (lambda / 2) |w - w_g|^2, from w_g, the newest model when its tier began
    server      tier m has answered: w_m <- sum_k n_k w_k / sum_k n_k, T_m <- T_m + 1
                w_g <- sum_m (T_(M + 1 - m) / T) w_m        T: the updates of all M tiers so far

A tier that is often updated so counts for as much as the opposite one has been. A round of the server is a tier's
update. The first is the profiling: all clients train, their times cut them into tiers of equal size, the fastest first,
and every w_m begins as their mean; who does not answer within `timeout` is left out. Deviations: profiling trains; no
compression of the paper's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from emul.base.errors import TimedOut, TooFewClients
from emul.primitives.means import weighted_sum
from emul.primitives.selection.rule import drawn
from emul.primitives.selection.tifl import by_latency
from emul.protocols import asynchronous
from emul.protocols.asynchronous import Handed, Update, answer, asynchronous_client, train_model
from emul.protocols.demands import Demand
from emul.protocols.rounds import finite
from emul.roles import Node, Scheme, Vector, World, checks
from emul.roles.example import example, lossy


@dataclass(frozen=True)
class Params:
    tiers: int = 5                      # M
    count: int | None = None            # clients of a tier that are drawn for each of its rounds; None: all
    lambda_: float = 0.4                # weight of the proximal term
    timeout_s: float = 600.0            # a tier goes on without those that it has waited for so long


@dataclass
class TierRound:
    """A tier's round."""

    waiting: set[int]
    since_s: float
    until_s: float
    got: dict[int, Update] = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)


@dataclass
class State:
    model: Vector                       # w_g
    tiers: list[list[int]] = field(default_factory=list)        # []: not profiled yet
    models: list[Vector] = field(default_factory=list)          # w_m
    updates: list[int] = field(default_factory=list)            # T_m
    running: dict[int, TierRound] = field(default_factory=dict)    # tier -> its round
    handed: Handed = field(default_factory=Handed)


async def server(node: Node, p: Params) -> None:
    s = node.state(State(node.task.initial_parameters()))
    sound = answer(s.model.shape)
    async for round_ in node.rounds():
        with round_:
            begin(node, s, p)
            m, cohort = await next_tier(node, s, sound)
            mean = finite(await node.compute("aggregate", mean_of, s.model, cohort.got))
            if s.tiers:
                s.models[m], s.updates[m] = mean, s.updates[m] + 1
                s.model = await node.compute("weigh", weighed_tiers, s.models, s.updates)
            else:
                s.tiers = by_latency(cohort.seconds, p.tiers)
                s.models, s.updates = [mean] * len(s.tiers), [0] * len(s.tiers)
                s.model = mean
            node.report(parameters=s.model, received=len(cohort.got), tier=m, dropped=s.handed.take_dropped())


async def client(node: Node, p: Params) -> None:
    await asynchronous_client(node, partial(train_model, node, p.lambda_))


def begin(node: Node, s: State, p: Params) -> None:
    """A round of every tier that has none; before there are tiers, of all clients as one. Clients that join later were
    not profiled: they come into the slowest tier."""
    if s.tiers and node.world.rounds:
        known = {k for tier in s.tiers for k in tier}
        s.tiers[-1] += [k for k in node.joined(node.clients) if k not in known and not node.world.takes_part(k, 1)]
    for m, tier in enumerate(s.tiers or [node.clients]):
        if m in s.running:
            continue
        tier = node.joined(tier)
        if not tier:
            continue
        members = drawn(node.stream("hand out"), tier, p.count or len(tier)) if s.tiers else tier
        s.handed.out(node, members, s.model, 0)
        s.running[m] = TierRound(set(members), node.now, node.now + p.timeout_s)


async def next_tier(node: Node, s: State, sound: Demand) -> tuple[int, TierRound]:
    """The first tier whose round is over, and what has come. Raises TimedOut: nothing has, of one that is given up."""
    if not s.running:
        raise TooFewClients("no client takes part in this round")
    tier_of = {k: m for m, cohort in s.running.items() for k in cohort.waiting}
    while True:
        m = min(s.running, key=lambda m: (s.running[m].until_s, m))
        try:
            update = await node.recv_any(Update, timeout_s=max(0.0, s.running[m].until_s - node.now), accept=sound)
        except TimedOut:
            cohort = s.running.pop(m)
            s.handed.forget(cohort.waiting)
            if not cohort.got:
                raise
            return m, cohort
        if s.handed.back(update) is None:
            continue
        m = tier_of[update.sender]
        cohort = s.running[m]
        cohort.got[update.sender], cohort.seconds[update.sender] = update, node.now - cohort.since_s
        cohort.waiting.discard(update.sender)
        if not cohort.waiting:
            return m, s.running.pop(m)


def mean_of(model: Vector, got: Mapping[int, Update]) -> Vector:
    """sum_k n_k w_k / sum_k n_k in float64, clients in order; nobody has samples: `model` itself."""
    samples = {k: update.samples for k, update in got.items()}
    if not sum(samples.values()):
        return model
    total = weighted_sum({k: update.vector for k, update in got.items()}, samples)
    return (total / sum(samples.values())).astype(np.float32)


def weighed_tiers(models: Sequence[Vector], updates: Iterable[int]) -> Vector:
    """w_g = sum_m (T_(M + 1 - m) / T) w_m in float64; at least one T is above 0."""
    weights = dict(enumerate(reversed(list(updates))))
    return (weighted_sum(dict(enumerate(models)), weights) / sum(weights.values())).astype(np.float32)


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    errors = (checks.at_least(1, "at least 1", tiers=params.tiers, count=params.count)
              + checks.not_negative(lambda_=params.lambda_) + checks.times(timeout=params.timeout_s))
    if params.tiers > world.clients:
        errors.append(f"tiers = {params.tiers}: expected at most {world.clients}, the number of clients")
    return errors


EXAMPLE = example("fedat", "tiers: 2, timeout: 500 ms",
                  links=('match: "client1<->server", latency: 90 ms', 'match: "client2<->server", latency: 70 ms',
                         lossy()), rounds=5)

SCHEME = Scheme(
    params=Params, roles={"server": server, "client": client}, messages=asynchronous.PLAIN, oblivious=True,
    timeouts=("timeout_s",), check=check, example=EXAMPLE)
