"""SplitFed: the clients of split learning train side by side, and their bottoms are averaged. Thapa et al., AAAI 2022,
Algorithms 1 and 2.

    client k    trains f_bottom^k from the average, each batch as in `split`
    server      v1: steps f_top^k, a top for each client, from its batches
                v2: steps the one f_top from the batches of all clients, in the order in which they come
    at the end  bottom <- sum_k n_k bottom^k / sum_k n_k            v1: the tops likewise

With v1 every client trains a whole model of its own, so that a round is one of FedAvg.

Deviations: the paper's fed server, which averages the bottoms, and its main server are one node here. It serves one
part of a batch at a time, in the order of arrival; the paper's v1 has a server that serves all at once, its v2 takes
clients in random order. Optimisers begin anew in each round. In v1 tops are averaged after the round's steps, as in
the authors' code; Algorithm 1 prints one step by the mean gradient. A client that is not done at `deadline` is left out
of both averages; in v2 its batches have been learned from.

It leaks: the server sees the activations and labels of every sample, and, being the fed server too, each client's
bottom. With the two apart, which the paper assumes, nobody has both.

Protects: raw samples, which never travel. Not: activations, gradients and labels, which the server sees.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from emul.base.errors import NotDecodable, NotSendable, TimedOut
from emul.primitives.means import weighted_sum
from emul.protocols import split
from emul.protocols.demands import demand
from emul.protocols.rounds import finite
from emul.protocols.split import (
    Activations,
    Cut,
    Done,
    Ends,
    Gradients,
    Rest,
    ServedTurn,
    Turn,
    rest_of,
    take_turn,
    whole_of,
    wrong_cut,
)
from emul.roles import Message, Node, Scheme, Vector, World, checks
from emul.roles.example import example, lossy


@dataclass(frozen=True)
class Params(Cut):
    version: Literal["v1", "v2"] = "v1"
    fraction: float = 1.0               # of the clients, drawn each round
    deadline_s: float = 60.0            # of the round at the server: who is not done by then is left out


@dataclass
class State:
    rest: Rest | None = None


async def server(node: Node, p: Params) -> None:
    s = node.state(State())
    async for round_ in node.rounds():
        with round_:
            if s.rest is None:
                s.rest = await node.compute("load", rest_of, node.task, p)
            await train_once(node, p, s.rest)


async def train_once(node: Node, p: Params, rest: Rest) -> None:
    """One round of the server."""
    until_s, cohort = node.now + p.deadline_s, node.sample(node.clients, p.fraction)
    tops = {k: rest.piece.copy() if p.version == "v1" else rest.piece for k in cohort}
    served, done = {k: ServedTurn(node, p, rest, k, tops[k]) for k in cohort}, dict[int, Done]()

    def accept(message: Message) -> None:
        demand(message.sender in served and message.sender not in done, "of no client that is served")
        served[message.sender].accept(message)

    node.broadcast(cohort, Turn(rest.ends))
    while len(done) < len(served):
        try:
            message = await node.recv_any(Activations, Done, timeout_s=max(0.0, until_s - node.now), accept=accept)
        except TimedOut:
            break
        if isinstance(message, Done):
            done[message.sender] = message
            continue
        try:
            await served[message.sender].answer(message)
        except (NotSendable, NotDecodable) as error:    # of this client's: the others go on
            if isinstance(error, NotSendable):
                node.report(diverged=str(error))
            del served[message.sender]
            node.abstain(message.sender, Gradients)
    if done:
        trained = {k: tops[k].parameters for k in done} if p.version == "v1" else {}
        rest.ends, top = await node.compute("average", averaged, done, trained)
        if top is not None:
            rest.piece.load(top)
    node.report(await node.compute("assemble", whole_of, rest), received=len(done), cohort=len(cohort))


def averaged(done: Mapping[int, Done], tops: Mapping[int, Vector]) -> tuple[Vector, Vector | None]:
    """The means of bottoms and tops by numbers of samples, in float64, by ascending client; None: there are no tops.
    Raises NotDecodable for a mean that is not finite."""
    weights = {k: max(1, message.samples) for k, message in sorted(done.items())}
    total = sum(weights.values())

    def mean(vectors: Mapping[int, Vector]) -> Vector:
        return finite((weighted_sum(vectors, weights) / total).astype(np.float32))

    bottom = mean({k: message.parameters for k, message in done.items()})
    return bottom, mean(tops) if tops else None


async def client(node: Node, p: Params) -> None:
    s = node.state(Ends())
    async for round_ in node.rounds(of=node.server):
        with round_:
            await take_turn(node, p, s)


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    return (checks.times(deadline=params.deadline_s) + checks.fractions(fraction=params.fraction)
            + wrong_cut(params, world))


EXAMPLE = example("splitfed", "cut: 2, deadline: 2 s", topology="star, clients: 3",
                  links=(lossy("client3->server", per="message"),), model="digits_mlp",
                  solver="lr: 0.1, steps: 2, batch: 16", rounds=2)

SCHEME = Scheme(
    params=Params, roles={"server": server, "client": client}, messages=split.LABELS_AT_SERVER, compress=("up", "down"),
    stateless=("client",), timeouts=("deadline_s",), batches=True, check=check, example=EXAMPLE)
