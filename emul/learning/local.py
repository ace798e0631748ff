"""One local training, said before it is done, and how it is done alone; `fused` does many as one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from emul.learning.objectives import CROSS_ENTROPY, Objective
from emul.learning.parameters import FlatModule
from emul.learning.solver import Solver
from emul.learning.training import Moments, Samples, Stream, stepper, train


@dataclass(frozen=True, eq=False)
class KeptMoments:
    """The state of a solver between two local updates of a node: part of all that decides about the second."""

    taken: int                              # steps so far
    moments: tuple[np.ndarray, ...]         # (trained,) float32 each; (): zeros, where it has taken no step


@dataclass(frozen=True, eq=False)
class LocalTraining:
    """All that decides about the result of a local training, but for the model."""

    before: np.ndarray                      # (d,) float32, where it begins; only read
    samples: Samples
    solver: Solver
    stream: Stream
    objective: Objective = CROSS_ENTROPY
    only: np.ndarray | None = None          # (trained,) float32: 1 where an entry is trained, 0 where it stays
    kept: KeptMoments | None = None         # where the solver goes on; None: it begins anew


def train_alone(model: FlatModule, local: LocalTraining) -> np.ndarray:
    """The state after the training, (d,) float32, a fresh array. `model` is a place to compute, left in that state."""
    model.load(local.before)
    only = None if local.only is None else model.device.put(local.only)
    train(model, local.samples, local.solver, local.stream, local.objective, only)
    return model.read()


def train_keeping(model: FlatModule, local: LocalTraining) -> tuple[np.ndarray, KeptMoments]:
    """As `train_alone`, with the solver going on from `local.kept`: (the state after, what the solver then has)."""
    state = _begun(model, local.solver, local.kept)
    model.load(local.before)
    only = None if local.only is None else model.device.put(local.only)
    train(model, local.samples, local.solver, local.stream, local.objective, only, state)
    return model.read(), _kept(model, state)


def descend(model: FlatModule, before: np.ndarray, gradient: np.ndarray, solver: Solver, kept: KeptMoments | None,
            ) -> tuple[np.ndarray, KeptMoments]:
    """One step of a solver from `before`, (d,), along `gradient`, (d,), whose buffers do not count: as
    `train_keeping`."""
    state = _begun(model, solver, kept)
    model.load(before)
    model.gradient.copy_(model.device.put(gradient[: model.trained]))
    stepper(solver, model, None, state)()
    return model.read(), _kept(model, state)


def _begun(model: FlatModule, solver: Solver, kept: KeptMoments | None) -> Moments:
    """The moments of a solver that goes on from `kept`, or begins."""
    before = kept or KeptMoments(0, ())
    state = Moments.zero(solver, model.gradient)
    state.taken = before.taken
    for tensor, moment in zip(state.tensors, before.moments, strict=bool(before.moments)):
        tensor.copy_(torch.from_numpy(moment.copy()))
    return state


def _kept(model: FlatModule, state: Moments) -> KeptMoments:
    return KeptMoments(state.taken, tuple(model.device.fetch(tensor).clone().numpy() for tensor in state.tensors))
