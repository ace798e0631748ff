"""Operations, bytes, launches and memory of a step of training, counted from the module itself.

    F   floating-point operations of products and convolutions, forward and backward (`torch.utils.flop_counter`)
    B   bytes that each operation of torch reads and writes: weights, activations, gradients, the solver's state
    k   operations of torch that are launched; views and allocations are none

One step is done for real on a small batch, under a dispatcher that sees every operation. So a frozen layer has no
gradient of its weights in it, a layer before the first one that is trained no backward pass at all, and an adapter its
own small products. Nothing is written by hand for any layer. Attention is counted in its parts, as products and
softmax, though a device may do it as one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch._ops import OpOverload
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from emul.base.errors import EmulError
from emul.base.streams import torch_stream
from emul.learning.objectives import Batch, Objective
from emul.learning.parameters import FlatModule
from emul.learning.solver import Solver
from emul.learning.training import Moments, batch_step, native_convolutions

if TYPE_CHECKING:
    from emul.learning.task_parts import TaskParts

_FEW = 4                                # samples a part of a batch: enough for batch normalisation
_NO_WORK = ("empty", "new_empty", "_unsafe_view", "_local_scalar_dense", "lift_fresh", "is_same_size", "alias")
_FILLS = ("zero_", "fill_")                                      # write what they do not read
_LOOK_UPS = ("embedding", "index", "index_select", "gather")    # read as much of a table as they give


@dataclass(frozen=True)
class Operation:
    """An operation of a step, launched `times` times: floating-point operations and bytes of one of them."""

    times: int
    convolution: bool
    flops: float
    bytes: float


@dataclass(frozen=True)
class StepCount:
    """Of a step of training. memory: bytes of weights, gradients, the solver's state and what the backward pass reads;
    no scratch of an operation, no library's own."""

    operations: tuple[Operation, ...]
    memory: float

    @property
    def flops(self) -> float:
        """F, of all operations."""
        return sum(one.times * one.flops for one in self.operations)

    @property
    def bytes(self) -> float:
        """B, of all operations."""
        return sum(one.times * one.bytes for one in self.operations)

    @property
    def launches(self) -> int:
        """k."""
        return sum(one.times for one in self.operations)


@dataclass(frozen=True)
class StepCounts:
    """The counts of a step by its batch: the line through those of two small batches, operation by operation.

    Everything but the launches is a sum of what is asked once a step (weights, gradients, the solver) and of what is
    asked once a sample, unless a loss compares all samples of a batch with each other.
    """

    small: int
    at_small: StepCount
    at_twice: StepCount

    def of(self, batch: int) -> StepCount:
        """Of a step with so many samples. Raises EmulError: the two batches launch different operations."""
        share = (batch - self.small) / self.small

        def line(a: float, b: float) -> float:
            return max(0.0, a + (b - a) * share)

        both = list(zip(self.at_small.operations, self.at_twice.operations, strict=False))
        if self.at_small.launches != self.at_twice.launches or any(a.times != b.times for a, b in both):
            raise EmulError("the model launches other operations for another batch, so its steps cannot be counted")
        return StepCount(tuple(Operation(a.times, a.convolution, line(a.flops, b.flops), line(a.bytes, b.bytes))
                               for a, b in both), line(self.at_small.memory, self.at_twice.memory))

    def grouped(self) -> StepCounts:
        """With operations that are alike in both batches as one, for quick sums."""
        alike = Counter(zip(self.at_small.operations, self.at_twice.operations, strict=True))
        return StepCounts(self.small, *(
            StepCount(tuple(replace(pair[place], times=count) for pair, count in alike.items()), step.memory)
            for place, step in enumerate((self.at_small, self.at_twice))))


def step_counts(task: TaskParts) -> StepCounts:
    """Of the task's model, objective and solver. Reads data, imports torch, takes two small steps."""
    small = _FEW * task.solver.accumulate

    def count(samples: int) -> StepCount:
        return count_step(task.module(), task.examples(samples), task.solver, task.objective)

    found = StepCounts(small, count(small), count(2 * small))
    return found if found.at_small.launches != found.at_twice.launches else found.grouped()


def count_step(module: nn.Module, batch: Batch, solver: Solver, objective: Objective) -> StepCount:
    """One step of the solver on this batch, which changes the module. The module is used up: see `FlatModule`."""
    model = FlatModule(module)
    model.module.train()
    step = batch_step(model, solver, objective)
    held = _HeldStorages({model.vector, model.gradient, *module.parameters(), *module.buffers()})
    counter = _Operations()
    # oneDNN has recurrent nets as one operation, whose products the counter of torch does not know.
    with torch_stream(0, "count"), native_convolutions(), sdpa_kernel(SDPBackend.MATH), counter, \
            torch.autograd.graph.saved_tensors_hooks(held.note, held.read):
        step(batch)
    moments = sum(tensor.nbytes for tensor in Moments.zero(solver, model.gradient).tensors)
    return StepCount(tuple(counter.found), float(held.own + moments + held.activations))


def count_call(step: Callable[[], object]) -> StepCount:
    """The operations of one call of anybody's step of training, which is done for real. Nothing of its memory, since
    nobody says which tensors are its model's: 0."""
    counter = _Operations()
    with native_convolutions(), sdpa_kernel(SDPBackend.MATH), counter:
        step()
    alike = Counter(counter.found)
    return StepCount(tuple(replace(one, times=times) for one, times in alike.items()), 0.0)


class _Operations(TorchDispatchMode):
    """Notes the operations of torch that do something, with the bytes that they read and write."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Operation] = []

    def __torch_dispatch__(self, func: OpOverload, types: object, args: tuple[object, ...] = (),
                           kwargs: dict[str, object] | None = None) -> object:
        out: object = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if func.is_view or name.startswith(_NO_WORK):
            return out
        written = [_bytes(one) for one in tree_leaves(out) if isinstance(one, torch.Tensor)]
        read = [_bytes(one) for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
        if name in _LOOK_UPS:
            read[0] = sum(written)
        elif name in _FILLS:
            read = []
        products = flop_registry.get(func.overloadpacket)
        flops = 0 if products is None else products(*args, **(kwargs or {}), out_val=out)
        self.found.append(Operation(1, "conv" in name, float(flops), float(sum(written) + sum(read))))
        return out


def _bytes(tensor: torch.Tensor) -> int:
    """Of the values of a tensor; of one that is expanded, those that are stored."""
    return min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())


class _HeldStorages:
    """The storages that a step holds: the model's own, and what its first backward pass will read."""

    def __init__(self, own: set[torch.Tensor]):
        self._seen = {one.untyped_storage()._cdata: one.untyped_storage().nbytes() for one in own}
        self.own = sum(self._seen.values())
        self.activations = 0
        self._full = False

    def note(self, tensor: torch.Tensor) -> torch.Tensor:
        """Count the storage of a tensor that is saved for the backward pass, once."""
        storage = tensor.untyped_storage()
        if not self._full and storage._cdata not in self._seen:
            self._seen[storage._cdata] = storage.nbytes()
            self.activations += storage.nbytes()
        return tensor

    def read(self, tensor: torch.Tensor) -> torch.Tensor:
        """The backward pass has begun: what is saved after it is of the next part of the batch, the same again."""
        self._full = True
        return tensor
