"""A learning task tried out before a run: data, partition, model and objective are made, and one batch goes through.

The parts that users bring may be wrong in ways that no look at the scenario shows. Here each part is made as a run
would make it, and whatever its code raises is said at the part, with the line of the user's file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from emul.base.errors import EmulError
from emul.base.tracebacks import one_line
from emul.learning import columns
from emul.learning.dataset import is_token
from emul.learning.partition import NEVER_FAIL, parse, require

if TYPE_CHECKING:
    from emul.learning.task import Task

_SAMPLES = 3

Wrong = tuple[tuple[str, ...], str]             # (place below `task`, what is wrong there)


def trial(task: Task, trains: bool = True) -> Wrong | None:
    """The first thing that is wrong with a task whose names are known; None: a run can train on it.

    trains: also make model and objective and try a batch, which imports torch.
    """
    for place, work in (*_divides(task), *(_trains(task) if trains else ())):
        try:
            work()
        except Exception as error:              # the code of a plug-in may raise anything
            return place, one_line(error)
    return None


def disguised(task: Task) -> Wrong | None:
    """The reason why no scheme can use the task's model in disguise (`emul.learning.disguise`); None: one can."""
    try:
        _ = task.disguise
    except Exception as error:              # the model's code runs
        return ("model",), one_line(error)
    return None


def measures(task: Task) -> set[str]:
    """The names of what an evaluation of the task's model measures; none without test samples."""
    from emul.learning.evaluation import measured
    from emul.learning.training import Samples

    few = np.arange(min(_SAMPLES, len(task.data.test_y)))
    return set(measured(task._model, task.initial_parameters(), Samples(task.data.testing, few), task.objective)
               ) if len(few) else set()


Step = tuple[tuple[str, ...], Callable[[], object]]


def _divides(task: Task) -> Iterator[Step]:
    yield ("clusters",) if task.spec.get("clusters") else ("data", "set"), lambda: task.data
    yield ("root",) if task.spec.get("root") else ("data", "held_out"), task.held_out
    yield ("partition",), lambda: _partition(task)


def _trains(task: Task) -> Iterator[Step]:
    yield ("data", "set"), lambda: _few_classes(task)
    yield ("model",), lambda: _model(task)
    yield ("model",), lambda: _forward(task)
    yield ("objective",), lambda: _objective(task)


def _partition(task: Task) -> None:
    name = parse(task.spec.get("partition") or "iid")[0]
    if name in NEVER_FAIL:
        task.divided(require)               # to divide takes seconds for 100,000 clients
        return
    sizes = [task.samples(client) for client in range(min(task.clients, 1000))]
    if not any(sizes):
        raise EmulError("no client holds a sample")
    if name == columns.NAME:
        _ = task.columns                        # the samples may not have them


def _few_classes(task: Task) -> None:
    """A label of 1,000,000 that is a number of a customer makes a model with as many outputs."""
    data = task.data
    tokens = not isinstance(data.train_x, np.ndarray) or is_token(data.train_x.dtype)
    # a few samples of a set with 1,000 classes, such as a test takes, are no mistake
    if data.labelled and not tokens and data.classes > max(10_000, len(data.train_y) + len(data.test_y)):
        raise EmulError(f"expected labels that number the classes from 0, found {data.classes - 1} as a label of "
                        f"{len(np.unique(data.train_y))} different ones; number them, or give texts")


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
        try:
            found = task._model.module.eval()(batch.x)
        except RuntimeError as error:
            if not (isinstance(batch.x, torch.Tensor) and batch.x.dtype == torch.int64):
                raise
            raise EmulError(f"takes no integers, which the inputs are: give pixels as uint8, other numbers as float32; "
                            f"{error}") from error
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
