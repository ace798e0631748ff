"""FedProto: clients keep their models and exchange class prototypes. Tan et al., AAAI 2022, Algorithm 1.

    L_k = cross entropy + lambda * mean over samples and coordinates of (C - G^j)^2     j: the sample's class
    P_k^j = mean of C over client k's samples of class j            G^j = mean of P_k^j over the holders of j

As the public code has it; `weighted` averages by numbers of samples, the paper's formula without its second division.
A class that nobody sends keeps its G. Bytes of the arrays, without headers, n the length of C: Globals 4 (n + 1) a
class to each client, Own 4 (n + 2) a class held to the server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import numpy as np

from emul.learning import NodeTask
from emul.learning.objectives import CosineAlignment, Objective, PrototypePull
from emul.learning.pooling import Pooling
from emul.protocols.demands import Demand, ascending, shaped
from emul.protocols.personal import wrong_model
from emul.roles import Matrix, Message, Node, Scheme, Vector, Words, World, checks
from emul.roles.example import example

WHOLE = Pooling("none")                 # features are exchanged as they are

Prototypes = dict[int, Vector]          # class -> (n,) float32


@dataclass(frozen=True)
class Globals(Message):
    """Server to client: G."""

    labels: Words                       # (J,), ascending
    prototypes: Matrix                  # (J, n)


@dataclass(frozen=True)
class Own(Message):
    """Client to server: P_k."""

    labels: Words                       # (J_k,), ascending
    prototypes: Matrix                  # (J_k, n)
    counts: Words                       # (J_k,), samples


@dataclass(frozen=True)
class Params:
    lambda_: float = 1.0                # weight of the distance
    loss: Literal["mse", "l2_sum", "l2_mean", "cosine"] = "mse"     # cosine: over the batch's classes, as in ppfpl
    aggregate: Literal["mean", "weighted"] = "mean"
    predict: Literal["model", "nearest"] = "model"      # the evaluated prediction: the own model, or the nearest G^j
    deadline_s: float | None = None     # of a round at the server; None: until the fates are known


@dataclass
class ServerState:
    prototypes: Prototypes = field(default_factory=dict)


@dataclass
class ClientState:
    model: Vector                       # (d,) float32, this client's own


async def server(node: Node, p: Params) -> None:
    s = node.state(ServerState())
    sound = table_of(node.task.classes, node.task.feature_size)
    async for round_ in node.rounds():
        with round_:
            node.broadcast(node.clients, Globals(*tables(s.prototypes)))
            got = await node.gather(Own, node.clients, timeout_s=p.deadline_s, accept=sound)
            s.prototypes = await node.compute("aggregate", aggregate, s.prototypes, got, p.aggregate,
                                              work=sum(m.prototypes.size for m in got.values()))
            sent = {k: by_class(m.labels, m.prototypes) for k, m in got.items()}
            node.report(tables(s.prototypes)[1].reshape(-1), evaluate=partial(quality, sent), received=len(got),
                        uploaded=sum(m.prototypes.size for m in got.values()))


async def client(node: Node, p: Params) -> None:
    s = node.state(ClientState(node.task.initial_parameters()))
    async for round_ in node.rounds(of=node.server):
        with round_:
            received = await node.recv(Globals, node.server, accept=table_of(node.task.classes, node.task.feature_size))
            means = by_class(received.labels, received.prototypes)
            s.model, own, counts = await node.compute("train", train, node.task, s.model, means, p)
            node.report(s.model, evaluate=node.task.evaluate_own if p.predict == "model" or not means else
                        partial(node.task.evaluate_nearest, means=means, pool=WHOLE))
            node.send(node.server, Own(*tables(own), np.array([counts.get(j, 0) for j in sorted(own)], np.uint32)))


def table_of(classes: int, features: int) -> Demand:
    """One prototype of all features for each of the classes named, with its count where there are any."""
    def accept(message: Globals | Own) -> None:
        J = len(message.labels)
        ascending("labels", message.labels, range(classes))
        shaped(prototypes=(J, features if J else 0))(message)
        if isinstance(message, Own):
            shaped(counts=(J,))(message)
    return accept


def train(task: NodeTask, model: Vector, means: Prototypes, p: Params) -> tuple[Vector, Prototypes, dict[int, int]]:
    """L_k from `model` on: (the model after it, P_k, samples of each class)."""
    pull: Objective = CosineAlignment.to(means, task.classes, p.lambda_) if p.loss == "cosine" else \
        PrototypePull.to(means, task.classes, p.lambda_, p.loss, WHOLE)
    found: tuple[Vector, Prototypes, dict[int, int]] = task.train_prototypes(model, task.objective + pull, WHOLE)
    return found


def tables(prototypes: Prototypes) -> tuple[np.ndarray, np.ndarray]:
    """(labels (J,) uint32, prototypes (J, n) float32) of {class: (n,)}."""
    labels = np.array(sorted(prototypes), np.uint32)
    return labels, np.stack([prototypes[j] for j in sorted(prototypes)]) if prototypes else np.zeros((0, 0), np.float32)


def by_class(labels: np.ndarray, prototypes: np.ndarray) -> Prototypes:
    """The inverse of `tables`."""
    return dict(zip(labels.tolist(), prototypes, strict=True))


def aggregate(before: Prototypes, got: Mapping[int, Own], rule: str) -> Prototypes:
    """G from what arrived, clients in order, in float64; classes that nobody sent keep theirs."""
    total: dict[int, np.ndarray] = {}
    weight: dict[int, float] = {}
    for _, m in sorted(got.items()):
        for j, vector, count in zip(m.labels.tolist(), m.prototypes, m.counts.tolist(), strict=True):
            w = 1.0 if rule == "mean" else float(count)
            total[j] = total.get(j, np.zeros(vector.shape)) + w * vector.astype(np.float64)
            weight[j] = weight.get(j, 0.0) + w
    return before | {j: (total[j] / weight[j]).astype(np.float32) for j in sorted(total) if weight[j]}


def quality(sent: Mapping[int, Prototypes], _: Vector) -> dict[str, float]:
    """Silhouette and failure rate of what was sent, off the clock."""
    from emul.learning.prototypes import quality as of

    return of(sent)


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    return (checks.times(deadline=params.deadline_s) + checks.not_negative(lambda_=params.lambda_)
            + wrong_model(world))

EXAMPLE = example("fedproto", "deadline: 1 s", model="digits_classic", rounds=2)

SCHEME = Scheme(
    params=Params, roles={"server": server, "client": client}, messages=(Globals, Own), timeouts=("deadline_s",),
    check=check, accuracy="personal", example=EXAMPLE)
