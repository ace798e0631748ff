"""One local training, said before it is done, and how it is done alone; `fused` does many as one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from emul.learning.objectives import CROSS_ENTROPY, Objective
from emul.learning.parameters import FlatModule
from emul.learning.solver import Solver
from emul.learning.training import Samples, Stream, train


@dataclass(frozen=True, eq=False)
class Local:
    """All that decides about the result of a local training, but for the model."""

    before: np.ndarray                      # (d,) float32, where it begins; only read
    samples: Samples
    solver: Solver
    stream: Stream
    objective: Objective = CROSS_ENTROPY
    only: np.ndarray | None = None          # (trained,) float32: 1 where an entry is trained, 0 where it stays


def train_alone(model: FlatModule, local: Local) -> np.ndarray:
    """The state after the training, (d,) float32, a fresh array. `model` is a place to compute, left in that state."""
    model.load(local.before)
    only = None if local.only is None else model.device.put(local.only)
    train(model, local.samples, local.solver, local.stream, local.objective, only)
    return model.read()
