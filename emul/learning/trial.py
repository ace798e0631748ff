"""A learning task tried out before a run: data, partition, model and objective are made, and one batch goes through.

The parts that users bring may be wrong in ways that no look at the scenario shows. Here each part is made as a run
would make it, and whatever its code raises is said at the part, with the line of the user's file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from emul.base.errors import EmulError
from emul.base.tracebacks import said
from emul.learning import columns
from emul.learning.partition import parse

if TYPE_CHECKING:
    from emul.learning.task import Task

_SAMPLES = 3

Wrong = tuple[tuple[str, ...], str]             # (place below `task`, what is wrong there)


def trial(task: Task) -> Wrong | None:
    """The first thing that is wrong with a task whose names are known; None: a run can train on it. Imports torch."""
    for place, work in _steps(task):
        try:
            work()
        except Exception as error:              # the code of a plug-in may raise anything
            return place, said(error)
    return None


def disguised(task: Task) -> Wrong | None:
    """The reason why no scheme can use the task's model in disguise (`emul.learning.disguise`); None: one can."""
    try:
        _ = task.disguise
    except Exception as error:              # the model's code runs
        return ("model",), said(error)
    return None


def _steps(task: Task) -> Iterator[tuple[tuple[str, ...], Callable[[], object]]]:
    yield ("clusters",) if task.spec.get("clusters") else ("data", "set"), lambda: task.data
    yield ("root",) if task.spec.get("root") else ("data", "held_out"), task.held_out
    yield ("partition",), lambda: _partition(task)
    yield ("model",), lambda: _model(task)
    yield ("model",), lambda: _forward(task)
    yield ("objective",), lambda: _objective(task)


def _partition(task: Task) -> None:
    sizes = [task.samples(client) for client in range(min(task.clients, 1000))]
    if not any(sizes):
        raise EmulError("no client holds a sample")
    if parse(task.spec.get("partition") or "iid")[0] == columns.NAME:
        _ = task.columns                        # the samples may not have them


def _model(task: Task) -> None:
    from torch import nn

    module = task.module()
    if not isinstance(module, nn.Module):
        raise EmulError(f"expected a torch.nn.Module, found {type(module).__name__}")
    if not any(p.requires_grad for p in module.parameters()):
        raise EmulError("expected a parameter that is trained (requires_grad)")
    task.prepare()
    if not np.array_equal(task._model.read(), task.initial_parameters()):
        raise EmulError("expected the same parameters each time that it is made: drawn by torch, or constants")


def _forward(task: Task) -> None:
    import torch

    batch = task.examples(_SAMPLES)
    with torch.no_grad():
        found = task._model.module.eval()(batch.x)
    if not isinstance(found, torch.Tensor) or found.ndim == 0 or len(found) != _SAMPLES:
        shape = tuple(found.shape) if isinstance(found, torch.Tensor) else type(found).__name__
        raise EmulError(f"for {_SAMPLES} samples: expected a tensor ({_SAMPLES}, ...), found {shape}")


def _objective(task: Task) -> None:
    import torch

    from emul.learning.objectives import Outputs, equal_weights
    from emul.learning.training import forward_of

    batch, objective = task.examples(_SAMPLES), task.objective
    outputs: Outputs = forward_of(task._model, objective.on_features, objective.linear)(batch.x)
    weights = equal_weights(batch.y)
    losses = objective(outputs, batch, weights)
    if not isinstance(losses, torch.Tensor) or losses.shape != (_SAMPLES,):
        shape = tuple(losses.shape) if isinstance(losses, torch.Tensor) else type(losses).__name__
        raise EmulError(f"{objective}: for {_SAMPLES} samples: expected losses of shape ({_SAMPLES},), found {shape}; "
                        f"the model gives {tuple(outputs.logits.shape)}, targets are {tuple(batch.y.shape)} "
                        f"{str(batch.y.dtype).removeprefix('torch.')}")
    total = objective.total(outputs, batch, weights)
    if not total.requires_grad:
        raise EmulError(f"{objective}: expected a loss with a gradient by the model's parameters")
    total.backward()
