"""SAFA: a round takes the first C n updates, and a server's cache keeps what came too late. Wu et al., IEEE TC 2021.

    round t     up to date (v_k = t - 1) or deprecated (t - 1 - v_k > tau): w_k <- w(t - 1);  deprecated: w*_k, too
                the others (equation 3) keep w_k, and go on with the training that they have begun, or begin one
    client k    w_k <- w_k + local training from w_k
    server      P: the first C n to come that were not in the last P; if the deadline is before, the first of the
                others, too (Algorithm 2);  Q: the rest
                w*_k <- w_k, k in P;   w(t) = sum_k n_k w*_k / n;   w*_k <- w_k, k in Q;   v_k <- t, k in P and Q

A deprecated client's update of an earlier round is dropped and counted, for its w*_k has been set anew.
v_k: the round in which the server last had an update of client k, or synchronised it by force. A round lasts until
there are C n updates of clients that were not picked in the round before, or until `deadline`. Deviations: the server
learns n_k from updates, and gives a client that it has not heard of the mean of the others'; a client that has not been
synchronised is told by a message without a model that a round has begun.

Bytes of the arrays in each message, without its header: Model 4 d, Proceed 0, Update 4 d.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from emul.base.errors import TimedOut
from emul.primitives.means import weighted_sum
from emul.protocols.asynchronous import Model, Update, answer, left, train_difference
from emul.protocols.demands import Demand, demand, shaped
from emul.protocols.rounds import finite
from emul.roles import Message, Node, Scheme, Vector, World, checks
from emul.roles.activities import Activity
from emul.roles.example import example, lossy


@dataclass(frozen=True)
class Proceed(Message, unscoped=True):
    """Server to a client that keeps its own model."""

    number: int                         # of the round


@dataclass(frozen=True)
class Params:
    fraction: float = 1.0               # C: of the clients, whose updates a round waits for
    lag: int = 5                        # tau, rounds without an update after which a client is synchronised by force
    deadline_s: float = 600.0           # T_lim, of a round


@dataclass
class State:
    model: Vector                                               # w
    cache: dict[int, Vector] = field(default_factory=dict)      # w*_k
    samples: dict[int, int] = field(default_factory=dict)       # n_k, of those that have been heard
    versions: dict[int, int] = field(default_factory=dict)      # v_k
    taken: dict[int, int] = field(default_factory=dict)         # client -> the oldest order that it may still answer
    picked: set[int] = field(default_factory=set)               # P of the last round
    last: int = 0                                               # the last round that has ended with a model


@dataclass
class Committed:
    """The updates of a round."""

    first: dict[int, Update] = field(default_factory=dict)      # of clients that were not picked in the round before
    rest: dict[int, Update] = field(default_factory=dict)       # of those that were, in the order of arrival
    dropped: int = 0                    # that answer an order which a later model has replaced

    def split(self, quota: int) -> tuple[dict[int, Update], dict[int, Update]]:
        """P and Q."""
        filled = list(self.rest)[:max(0, quota - len(self.first))]
        picked = self.first | {k: self.rest[k] for k in filled}
        return picked, {k: update for k, update in self.rest.items() if k not in picked}


async def server(node: Node, p: Params) -> None:
    s = node.state(State(node.task.initial_parameters()))
    sound = answer(s.model.shape)
    async for round_ in node.rounds():
        with round_:
            clients = node.joined(node.clients)
            synchronised, forced = distribute(node, s, p.lag, clients)
            quota = math.ceil(p.fraction * len(clients))
            came = await first_come(node, s, quota, node.now + p.deadline_s, sound)
            picked, undrafted = came.split(quota)
            s.cache |= {k: update.vector for k, update in picked.items()}
            s.samples |= {k: update.samples for k, update in (picked | undrafted).items()}
            s.model = finite(await node.compute("aggregate", merged, s.model, s.cache, s.samples))
            s.cache |= {k: update.vector for k, update in undrafted.items()}
            behind = [s.versions[k] for k in sorted(picked | undrafted)]
            s.versions |= dict.fromkeys(picked | undrafted, node.round)
            s.picked, s.last = set(picked), node.round
            node.report(parameters=s.model, received=len(picked), undrafted=len(undrafted), synchronised=synchronised,
                        forced=forced, version_variance=float(np.var(behind)), dropped=came.dropped)


def distribute(node: Node, s: State, lag: int, clients: list[int]) -> tuple[int, int]:
    """Send the model to those that are up to date or deprecated, and a word to the others: (how many get the model, how
    many of them by force)."""
    for k in clients:
        s.cache.setdefault(k, s.model)
        s.versions.setdefault(k, s.last)
    forced = [k for k in clients if s.last - s.versions[k] > lag]
    for k in forced:
        s.cache[k], s.versions[k] = s.model, s.last
    synchronised = [k for k in clients if s.versions[k] == s.last]
    s.taken |= dict.fromkeys(synchronised, node.round)
    node.broadcast(synchronised, Model(s.model, node.round))
    node.broadcast([k for k in clients if s.versions[k] != s.last], Proceed(node.round))
    return len(synchronised), len(forced)


async def first_come(node: Node, s: State, quota: int, until_s: float, sound: Demand) -> Committed:
    """The updates of a round. Raises TimedOut if there is none."""
    came = Committed()
    while len(came.first) < quota:
        try:
            update = await node.recv_any(Update, timeout_s=left(node, until_s), accept=sound)
        except TimedOut:
            if not came.first and not came.rest:
                raise
            break
        k = update.sender
        if k not in s.taken or not s.taken[k] <= update.number <= node.round:
            came.dropped += 1
            continue
        s.taken[k] = update.number + 1          # an order is answered once
        (came.rest if k in s.picked else came.first)[k] = update
    return came


Order = Model | Proceed


@dataclass
class Local:
    """The state of a client."""

    model: Vector | None = None         # w_k; None: no model has come yet
    last: int = 0                       # the newest order


async def client(node: Node, p: Params) -> None:
    s = node.state(Local())
    training: Activity[None] | None = None

    def sound(order: Order) -> None:
        demand(order.sender == node.server, "an order from somebody who is not the server")
        demand(order.number > s.last, "an order that is not newer than the last one")
        if isinstance(order, Model):
            shaped(parameters=(node.task.dimension,))(order)

    async for round_ in node.rounds():
        with round_:
            order: Order = await node.recv_any(Model, Proceed, accept=sound)
            s.last = order.number
            if isinstance(order, Model):
                if training is not None:
                    node.cancel(training)       # its work is lost: the paper's futile work
                    training = None
                s.model = order.parameters
            if s.model is not None and (training is None or training.ended):
                training = node.start(train(node, s, s.model, order.number), carry=True)


async def train(node: Node, s: Local, model: Vector, number: int) -> None:
    """One local training from the client's own model, whose result it keeps and sends."""
    delta, samples = await train_difference(node, model)
    s.model = model + delta
    node.send(node.server, Update(s.model, samples, number))


def merged(model: Vector, cache: Mapping[int, Vector], samples: Mapping[int, int]) -> Vector:
    """w = sum_k n_k w*_k / sum_k n_k in float64, clients in order; (d,) float32. n_k of those that are not in
    `samples`: the mean of the others. Nobody has samples: `model` itself."""
    mean = sum(samples.values()) / max(1, len(samples))
    weights = {k: samples.get(k, mean) for k in cache}
    if not sum(weights.values()):
        return model
    return (weighted_sum(cache, weights) / sum(weights.values())).astype(np.float32)


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    return (checks.fractions(fraction=params.fraction) + checks.at_least(1, "at least 1", lag=params.lag)
            + checks.times(deadline=params.deadline_s))


EXAMPLE = example("safa", "fraction: 0.5, lag: 2, deadline: 500 ms",
                  links=('match: "client1<->server", latency: 90 ms', lossy()), rounds=5)

SCHEME = Scheme(
    params=Params, roles={"server": server, "client": client}, messages=(Model, Update, Proceed), oblivious=True,
    timeouts=("deadline_s",), check=check, example=EXAMPLE)
