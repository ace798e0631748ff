"""Local training: batches in a keyed order, gradients of an objective, steps on one flat vector."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from math import prod
from operator import itemgetter
from typing import Any, Protocol

import numpy as np
import torch

from emul.base.streams import generator, key64, torch_stream
from emul.learning.dataset import DataSet, mapped
from emul.learning.objectives import CROSS_ENTROPY, Batch, Objective, Outputs, split
from emul.learning.parameters import FlatModule, parts
from emul.learning.solver import Adam, AdamW, Sgd, Solver

# Below this batch size torch's own convolutions beat oneDNN's, whose calls cost more than they compute: a step of
# digits_cnn at batch 10 takes 0.33 ms instead of 0.61; from 32 on oneDNN wins on every net measured.
NATIVE_BELOW = 32
# From so many input values a batch on, oneDNN is faster with channels last: a step of mnist_printed at batch 128 takes
# 40 ms instead of 51. Smaller ones lose by the conversion.
_CHANNELS_LAST_FROM = 1 << 16
_CHUNK_VALUES = 1 << 20             # of inputs made float32 at once (4 MB): a few large copies instead of many small


@dataclass(frozen=True)
class Samples:
    """The training samples of one node."""

    data: DataSet
    indices: np.ndarray             # (n,) into data.train_*

    def __len__(self) -> int:
        return len(self.indices)

    def take(self, order: np.ndarray) -> Batch:
        """Inputs and targets of these samples, as the model takes them, on the CPU."""
        rows = self.indices[order]
        x = self.data.inputs(mapped(lambda part: part[rows], self.data.train_x))
        return Batch(mapped(aligned, x), torch.from_numpy(self.data.targets(self.data.train_y[rows])))


@dataclass(frozen=True)
class Stream:
    """Names of the streams of one local update."""

    seed: int
    node: str
    round: int
    call: int                       # k-th local update of this node in this round, from 0


def aligned(x: np.ndarray) -> torch.Tensor:
    """A copy on torch's 64-byte boundary: a matrix product may differ in its last bit by the address of its input."""
    return torch.from_numpy(x).clone()


def batches(n: int, solver: Solver, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Positions of the samples of each step, in order. `epochs: e` gives e permutations, each cut into batches, the
    last one smaller; `steps: s` gives the first s batches of the same sequence. A batch that holds all samples holds
    them in their own order, without a draw.
    """
    size = min(solver.batch or n, n)
    per_epoch = -(-n // size)
    wanted = solver.steps if solver.steps is not None else (solver.epochs or 0) * per_epoch
    return islice(_endless(n, size, rng), wanted)


def _endless(n: int, size: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    everything = np.arange(n)
    while True:
        order = everything if size == n else rng.permutation(n)
        for start in range(0, n, size):
            yield order[start:start + size]


def train(model: FlatModule, samples: Samples, solver: Solver, stream: Stream, objective: Objective | None = None,
          only: torch.Tensor | None = None, moments: Moments | None = None) -> None:
    """Train the module in place from the state it has. Deterministic: the result depends on arguments alone.

    No samples, `steps: 0` and `epochs: 0` leave the state as it is. objective: by default the cross entropy. only:
    (trained,) 1.0 where an entry of the weights is trained, 0.0 where it stays. moments: those that the solver goes on
    with, and writes to; by default it begins anew.
    """
    n = len(samples)
    if n == 0:
        return
    plan = list(batches(n, solver, generator(stream.seed, "batches", stream.node, stream.round, stream.call)))
    if not plan:            # no step: what follows would be 15 % of a round that trains nothing (13.7 ms for 11.6)
        return
    step = batch_step(model, solver, objective or CROSS_ENTROPY, only, moments)
    with _training(model, plan, stream):
        for batch in _load(samples, plan, model.device.kind):
            step(batch)


def batch_step(model: FlatModule, solver: Solver, objective: Objective, only: torch.Tensor | None = None,
               moments: Moments | None = None) -> Callable[[Batch], None]:
    """The function that takes one step of the solver on a batch: forward, backward, update. It is what `train` does for
    each batch, and what `emul.learning.counting` counts."""
    step, gradient = stepper(solver, model, only, moments), model.gradient
    descend = _gradient(model, objective, solver.accumulate)

    def take(batch: Batch) -> None:
        gradient.zero_()
        descend(batch)
        step()

    return take


def mean_gradient(model: FlatModule, samples: Samples, solver: Solver, stream: Stream,
                  objective: Objective | None = None) -> np.ndarray:
    """Gradient of the objective over the first batch of that stream, (d,) float32; 0 where nothing is trained."""
    result = torch.zeros(model.dimension, device=model.device.kind)
    if len(samples):
        plan = first_batch(len(samples), solver, stream)
        with _training(model, plan, stream):
            batch, = _load(samples, plan, model.device.kind)
            model.gradient.zero_()
            _gradient(model, objective or CROSS_ENTROPY)(batch)
        result[: model.trained] = model.gradient
    return model.device.fetch(result).clone().numpy()


def first_batch(n: int, solver: Solver, stream: Stream) -> list[np.ndarray]:
    """Positions of the first batch of that stream, in a list."""
    rng = generator(stream.seed, "batches", stream.node, stream.round, stream.call)
    return list(batches(n, solver.with_steps(1), rng))


def _gradient(model: FlatModule, objective: Objective, accumulate: int = 1) -> Callable[[Batch], None]:
    """The function that adds the gradient of the objective on a batch to `model.gradient`; accumulate: the number of
    parts that it computes a batch in, of equal size but for the last, to hold fewer activations at once."""
    loss, penalties = split(objective.bound({name: model.device.put(value)
                                             for name, value in objective.arrays().items()}))
    before = model.weights.clone() if penalties else model.weights
    forward = forward_of(model, loss is not None and loss.on_features, loss is not None and loss.linear)

    def add(batch: Batch) -> None:
        if loss is not None and accumulate == 1:
            loss.of_all(forward(batch.x), batch).backward()
        elif loss is not None:
            for part in _parts(batch, accumulate):
                (loss.of_all(forward(part.x), part) * (len(part.y) / len(batch.y))).backward()
        for penalty in penalties:
            with torch.no_grad():
                model.gradient.add_(penalty.gradient(model.weights, before))

    return add


def _parts(batch: Batch, n: int) -> Iterator[Batch]:
    """A batch in n parts of equal size, but for the last; in fewer, if it has fewer samples."""
    size = -(-len(batch.y) // n)
    for start in range(0, len(batch.y), size):
        part = slice(start, start + size)
        yield Batch(mapped(itemgetter(part), batch.x), batch.y[part])


def forward_of(model: FlatModule, features: bool, linear: bool = False) -> Callable[[object], Outputs]:
    """One forward pass of the model: inputs -> outputs, with features where they are asked for and it is cut. linear:
    those before the last activation."""
    module = model.module
    if not features:
        def whole(x: Any) -> Outputs:
            return Outputs(module(x), None, whole)

        return whole
    representation, decision = parts(module, linear)

    def cut(x: Any) -> Outputs:
        c = representation(x)
        return Outputs(decision(c), c, cut)

    return cut


@contextlib.contextmanager
def _training(model: FlatModule, plan: list[np.ndarray], stream: Stream) -> Iterator[None]:
    """Training mode, and `drawing`."""
    if not model.module.training:
        model.module.train()
    with drawing(model, len(plan[0]) if plan else NATIVE_BELOW, stream):
        yield


@contextlib.contextmanager
def drawing(model: FlatModule, batch: int, stream: Stream) -> Iterator[None]:
    """The convolutions that suit batches of that size, and a stream for dropout where the model draws."""
    with contextlib.ExitStack() as stack:
        if batch < NATIVE_BELOW:                        # by the batch, never by a measurement: bits depend on it
            stack.enter_context(native_convolutions())
        if model.draws:
            names = ("dropout", stream.node, stream.round, stream.call)
            stack.enter_context(torch_stream(stream.seed, *names))
            stack.enter_context(model.device.seeded(key64(stream.seed, *names)))
        yield


@contextlib.contextmanager
def native_convolutions() -> Iterator[None]:
    """Switch oneDNN off inside the block."""
    # Calls of oneDNN cost more than they compute below 32 samples: a step of `digits_cnn` with 10 takes 0.33 ms without
    # it and 0.61 ms with it. The bits of the result depend on the choice, so the size of the batch decides and never a
    # measurement (`test_convolutions_are_chosen_by_the_batch_and_the_choice_is_undone`).
    mkldnn: Any = torch.backends.mkldnn     # its `flags()` would also set precisions, and warns of it
    before = mkldnn.enabled
    mkldnn.enabled = False
    try:
        yield
    finally:
        mkldnn.enabled = before


def weighted_end(outputs: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """A number whose gradient by `outputs` is `gradient`, to the bit. Where `torch.autograd.grad` gets the gradient as
    its own argument, torch imports sympy to compare two shapes: 0.5 s in each process, at its first computation."""
    return (outputs * gradient).sum()


def channels_last(batch: int, input_shape: tuple[int, ...]) -> bool:
    """True if inputs of a training or a forward pass with that batch have their channels last in memory."""
    return len(input_shape) == 3 and batch >= NATIVE_BELOW and batch * prod(input_shape) >= _CHANNELS_LAST_FROM


def laid_out(x: Any, batch: int) -> Any:
    """Inputs (n, ...) in the layout that suits batches of that size."""
    return mapped(lambda part: part.to(memory_format=torch.channels_last)
                  if channels_last(batch, tuple(part.shape[1:])) else part, x)


def _load(samples: Samples, plan: list[np.ndarray], where: torch.device) -> Iterator[Batch]:
    """Each batch, converted several batches at a time; the batches are views."""
    if not plan:
        return
    values = len(plan[0]) * values_of(samples.data.input_shape)
    at_once = max(1, _CHUNK_VALUES // max(1, values))
    for first in range(0, len(plan), at_once):
        group = plan[first:first + at_once]
        x, y = samples.take(np.concatenate(group))
        x, y = mapped(lambda part: part.to(where), laid_out(x, len(plan[0]))), y.to(where)
        sizes = [len(batch) for batch in group]
        if isinstance(x, dict):
            parts = {name: part.split(sizes) for name, part in x.items()}
            x = [{name: part[i] for name, part in parts.items()} for i in range(len(group))]
        else:
            x = x.split(sizes)
        yield from map(Batch, x, y.split(sizes))


def values_of(shape: Any) -> int:
    """The number of values in a sample of that input shape, over all its tensors."""
    return sum(map(prod, shape.values())) if isinstance(shape, dict) else prod(shape)


class Descending(Protocol):
    """The weights and gradient that a solver takes steps on."""

    weights: torch.Tensor
    gradient: torch.Tensor

    @property
    def matrices(self) -> torch.Tensor:
        """(trained,) float32: 1 where an entry is of a tensor of two dimensions or more, else 0."""


@dataclass
class Moments:
    """The state of a solver: the number of steps that it has taken, and a tensor like the gradient for each moment."""

    taken: int
    tensors: list[torch.Tensor]

    @classmethod
    def zero(cls, solver: Solver, gradient: torch.Tensor) -> Moments:
        """Those of a solver that has taken no step."""
        count = 2 if isinstance(solver, Adam) else 1 if isinstance(solver, Sgd) and solver.momentum else 0
        return cls(0, [torch.zeros_like(gradient) for _ in range(count)])


def stepper(solver: Solver, model: Descending, only: torch.Tensor | None = None,
            moments: Moments | None = None) -> Callable[[], None]:
    """The function that takes one step on model.weights from model.gradient. It holds the state of the solver, which is
    `moments` where they are given."""
    state = moments or Moments.zero(solver, model.gradient)
    descend = _adam(solver, model, state) if isinstance(solver, Adam) else _sgd(solver, model, state)
    weights, gradient = model.weights, model.gradient
    decay = 0.0 if isinstance(solver, AdamW) else solver.weight_decay
    decaying = only
    if isinstance(solver, AdamW) and solver.decays == "matrices":
        decaying = model.matrices if only is None else model.matrices * only

    def step() -> None:
        state.taken += 1
        if solver.clip is not None:                     # as torch.nn.utils.clip_grad_norm_
            if only is not None:
                gradient.mul_(only)
            gradient.mul_((solver.clip / (torch.linalg.vector_norm(gradient) + 1e-6)).clamp(max=1.0))
        if decay:
            gradient.add_(weights, alpha=decay)
        if only is not None:
            gradient.mul_(only)
        rate = solver.rate(state.taken)
        if isinstance(solver, AdamW) and solver.weight_decay:
            factor = 1 - rate * solver.weight_decay
            weights.mul_(factor if decaying is None else 1 - (1 - factor) * decaying)
        descend(rate)

    return step


def _sgd(solver: Solver, model: Descending, state: Moments) -> Callable[[float], None]:
    assert isinstance(solver, Sgd)
    weights, gradient, momentum = model.weights, model.gradient, solver.momentum
    velocity = state.tensors[0] if momentum else gradient

    def descend(rate: float) -> None:
        if momentum:
            velocity.mul_(momentum).add_(gradient)
        weights.add_(velocity, alpha=-rate)

    return descend


def _adam(solver: Adam, model: Descending, state: Moments) -> Callable[[float], None]:
    weights, gradient, (m, v) = model.weights, model.gradient, state.tensors

    def descend(rate: float) -> None:
        t = state.taken
        m.mul_(solver.beta1).add_(gradient, alpha=1 - solver.beta1)
        v.mul_(solver.beta2).addcmul_(gradient, gradient, value=1 - solver.beta2)
        root = v.sqrt().div_((1 - solver.beta2**t) ** 0.5).add_(solver.eps)     # sqrt of the unbiased v, plus eps
        weights.addcdiv_(m, root, value=-rate / (1 - solver.beta1**t))

    return descend
