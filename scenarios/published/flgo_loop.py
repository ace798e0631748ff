"""For `--plugin`: the loop and the net of FLGo's tutorial 4.5 (docs/reproductions/others.md).

Each round hands the model to `starts` clients that are not in training, and ends with the first `first` updates (0:
with those of all that it has started), or after `budget`. The new model is the plain mean of the models that have come,
stale ones as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import numpy as np
from torch import nn

from emul import Node, Scheme, Vector
from emul.base.errors import TimedOut
from emul.protocols.asynchronous import (
    MESSAGES,
    Model,
    Update,
    asynchronous_client,
    left,
    train_difference,
)


@dataclass(frozen=True)
class Params:
    starts: int = 20
    first: int = 0
    budget_s: float | None = None


@dataclass
class State:
    model: Vector
    training: dict[int, tuple[Vector, int]] = field(default_factory=dict)   # the model that each began with, its round


async def server(node: Node, p: Params) -> None:
    s = node.state(State(node.task.initial_parameters()))
    rng = node.stream("started")
    async for round_ in node.rounds():
        with round_:
            idle = [k for k in node.clients if k not in s.training]
            started = [int(k) for k in rng.choice(idle, min(p.starts, len(idle)), replace=False)]
            s.training |= dict.fromkeys(started, (s.model, node.round))
            node.broadcast(started, Model(s.model, node.round))
            until = None if p.budget_s is None else node.now + p.budget_s
            came: list[Vector] = []
            missed: list[int] = []
            while len(came) < p.first if p.first else any(k in s.training for k in started):
                try:
                    update = await node.recv_any(Update, timeout_s=None if until is None else left(node, until))
                except TimedOut:
                    break
                base, number = s.training.pop(update.sender)
                came.append(base + update.vector)
                missed += [node.round - number] if number < node.round else []
            if came:
                s.model = np.asarray(np.mean(came, axis=0, dtype=np.float64), np.float32)
            node.report(parameters=s.model, received=len(came), missed=float(np.mean(missed)) if missed else 0.0)


async def client(node: Node, p: Params) -> None:
    await asynchronous_client(node, partial(train_difference, node))


def flgo_cnn(input_shape: tuple[int, ...], outputs: int) -> nn.Module:
    """5 x 5 convolutions to 32 and 64 channels, each with ReLU and 2 x 2 pooling, then 512 units: 1,663,370 parameters
    for images of 28 x 28 and ten classes."""
    return nn.Sequential(nn.Conv2d(input_shape[0], 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, outputs))


SCHEME = Scheme(params=Params, roles={"server": server, "client": client}, messages=MESSAGES, oblivious=True)
MODELS = {"flgo_cnn": flgo_cnn}
