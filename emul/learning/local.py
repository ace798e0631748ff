"""One local training, said before it is done, and how it is done alone; `fused` does many as one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from emul.learning import prototypes
from emul.learning.parameters import FlatModule
from emul.learning.solver import Solver
from emul.learning.training import Loss, Samples, Stream, train


@dataclass(frozen=True, eq=False)
class Local:
    """All that decides about the result of a local training, but for the model."""

    before: np.ndarray                      # (d,) float32, where it begins; only read
    samples: Samples
    solver: Solver
    stream: Stream
    only: np.ndarray | None = None          # (trained,) float32: 1 where an entry is trained, 0 where it stays
    proximal: float = 0.0                   # mu: adds (mu / 2) |w - before|^2 to the loss
    pull: prototypes.Pull | None = None     # towards prototypes; not together with `proximal`


def train_alone(model: FlatModule, local: Local) -> np.ndarray:
    """The state after the training, (d,) float32, a fresh array. `model` is a place to compute, left in that state."""
    model.load(local.before)
    only = None if local.only is None else model.device.put(local.only)
    train(model, local.samples, local.solver, local.stream, _loss(model, local), only)
    return model.read()


def _loss(model: FlatModule, local: Local) -> Loss | None:
    """None where it is the cross entropy alone. `model` is where the training begins."""
    if local.pull is not None:
        assert not local.proximal
        return prototypes.loss(model, local.pull)
    if not local.proximal:
        return None
    anchor, mu = model.weights.clone(), local.proximal

    def with_proximal(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        weights = torch.cat([p.reshape(-1) for p in model.module.parameters() if p.requires_grad])
        return cross_entropy(model.module(x), y) + mu / 2 * ((weights - anchor) ** 2).sum()

    return with_proximal
