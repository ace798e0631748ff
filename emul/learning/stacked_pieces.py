"""Passes through equal pieces of several nodes as one pass, stacked layer by layer as `fused` stacks whole trainings.

The passes of a group keep one graph. If all of them come back together, that graph is used. If others come back
together, the forward passes of these are computed once more, from the parameters and inputs of that time. Both give
the gradients of each pass alone, but for the rounding of float32.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from emul.learning.fused import Masks
from emul.learning.local import LocalTraining
from emul.learning.parameters import FlatModule
from emul.learning.stack import Hidden, Pass, Stack, Values
from emul.learning.training import Stream, channels_last, weighted_end


class Layers:
    """The layers of equal pieces. Raises FuseError if they cannot be stacked."""

    def __init__(self, module: nn.Module, flat: FlatModule, is_first: bool):
        """is_first: nobody wants a gradient by its inputs."""
        self.module, self.flat, self.is_first, self.stack = module, flat, is_first, Stack(module)
        # The text of layers that are known says all that they do. Others, and parameters that no vector has, are shared
        # by the pieces of one layout alone.
        own = self.stack.unknown or not all(p.requires_grad for p in module.parameters())
        self.kind: Hashable = id(self) if own else (repr(module), is_first)


@dataclass(frozen=True, eq=False)
class There:
    """A forward pass that a node asks for."""

    layers: Layers
    vector: Tensor              # (d,), its parameters and buffers
    x: np.ndarray               # (B, ...)
    stream: Stream              # of its dropout

    @property
    def key(self) -> Hashable:
        """The properties that passes of one stack share."""
        return "there", self.layers.kind, self.x.shape, self.x.dtype.char

    @staticmethod
    def many(asked: Sequence[There]) -> Sequence[Passed | None]:
        """Each of them in a stacked pass; None for a single one, which had better be computed alone."""
        if len(asked) == 1:
            return [None]
        layers = asked[0].layers
        stacked = _Stacked(layers, torch.stack([one.vector for one in asked]),
                           _joined([one.x for one in asked]).to(layers.flat.device.kind),
                           [one.stream for one in asked])
        buffers, outputs = stacked.forward(), layers.flat.device.fetch(stacked.outputs)
        return [Passed(stacked, i, buffers[i], row.clone(memory_format=torch.contiguous_format).numpy())
                for i, row in enumerate(outputs)]


@dataclass(frozen=True, eq=False)
class Passed:
    """A node's pass in a stacked one."""

    stacked: _Stacked
    row: int
    buffers: Tensor             # after the pass
    outputs: np.ndarray         # (B, ...)


@dataclass(frozen=True, eq=False)
class Back:
    """A backward pass that a node asks for."""

    passed: Passed
    gradient: np.ndarray        # (B, ...), by its outputs

    @property
    def key(self) -> Hashable:
        """The properties that passes of one stack share."""
        stacked = self.passed.stacked
        return "back", stacked.layers.kind, stacked.x.shape[1:], stacked.x.dtype


Asked: TypeAlias = LocalTraining | There | Back        # of what runs side by side (`Together`), to be done as one


def answered(asked: Sequence[There | Back]) -> Sequence[Passed | tuple[Tensor, np.ndarray] | None]:
    """The answers to passes of one key: those of `There.many`, or of `came_back`."""
    there = [one for one in asked if isinstance(one, There)]
    return There.many(there) if there else came_back([one for one in asked if isinstance(one, Back)])


def came_back(asked: Sequence[Back]) -> list[tuple[Tensor, np.ndarray]]:
    """(gradient by the parameters (trained,), that by the inputs (B, ...)) of each pass."""
    groups: dict[int, list[int]] = {}
    for i, one in enumerate(asked):
        groups.setdefault(id(one.passed.stacked), []).append(i)
    found: dict[int, tuple[Tensor, np.ndarray]] = {}
    rest: list[int] = []
    for members in groups.values():
        stacked = asked[members[0]].passed.stacked
        if len(members) < len(stacked.x):                   # of a pass each once: all are there if they are so many
            stacked.let_go()
            rest += members
            continue
        members.sort(key=lambda i: asked[i].passed.row)
        found.update(zip(members, stacked.backward([asked[i].gradient for i in members]), strict=True))
    if rest:
        again = _Stacked.of([asked[i].passed for i in rest])
        found.update(zip(rest, again.backward([asked[i].gradient for i in rest]), strict=True))
    return [found[i] for i in range(len(asked))]


class _Stacked:
    """One pass through the pieces of G nodes."""

    def __init__(self, layers: Layers, vectors: Tensor, x: Tensor, streams: Sequence[Stream]):
        """vectors: (G, d), of its own, those before the pass. x: (G, B, ...)."""
        self.layers, self._vectors, self.x, self._streams = layers, vectors, x, streams
        self._graph: tuple[list[Tensor], Tensor, Tensor] | None = None      # parameters, inputs, outputs

    @classmethod
    def of(cls, passes: Sequence[Passed]) -> _Stacked:
        """Some passes of others, once more."""
        return cls(passes[0].stacked.layers, torch.stack([p.stacked._vectors[p.row] for p in passes]),
                   torch.stack([p.stacked.x[p.row] for p in passes]), [p.stacked._streams[p.row] for p in passes])

    @property
    def outputs(self) -> Tensor:
        """(G, B, ...)"""
        assert self._graph is not None
        return self._graph[2].detach()

    def let_go(self) -> None:
        """The graph will not be needed as it is."""
        self._graph = None

    def forward(self) -> Tensor:
        """Compute the pass. The buffers after it, (G, d - trained)."""
        layers, flat, (g, b, *shape) = self.layers, self.layers.flat, self.x.shape
        layers.module.train()
        values = {id(t): self._vectors[:, place].reshape(g, *t.shape).to(t.dtype, copy=True)
                  for t, place in flat.slices}
        frozen = {id(p): p.detach().expand(g, *p.shape) for p in layers.module.parameters() if not p.requires_grad}
        leaves = [values[id(t)].requires_grad_() for t, _ in flat.slices if t.requires_grad]
        x = self.x.detach()
        if x.is_floating_point():
            x.requires_grad_(not layers.is_first)
        masks = Masks(self._streams, [channels_last(b, tuple(shape))] * g, flat.device)
        hidden = Hidden.rows(x).as_maps() if layers.stack.on_maps else Hidden.rows(x)
        _, outputs = layers.stack(hidden, Pass(Values([*values.items(), *frozen.items()]),
                                               partial(masks, np.full(g, b)), None, b))
        self._graph = leaves, x, outputs
        buffers = torch.empty((g, flat.dimension - flat.trained), device=flat.device.kind)
        for t, place in flat.slices:
            if not t.requires_grad:
                buffers[:, place.start - flat.trained:place.stop - flat.trained] = values[id(t)].reshape(g, -1)
        return buffers

    def backward(self, gradients: Sequence[np.ndarray]) -> list[tuple[Tensor, np.ndarray]]:
        """(gradient by the parameters (trained,), that by the inputs (B, ...)) of each pass, from those by its
        outputs."""
        flat = self.layers.flat
        if self._graph is None:
            self.forward()
        assert self._graph is not None
        (leaves, x, outputs), self._graph = self._graph, None
        wanted = [*leaves, x] if x.requires_grad else leaves
        own = torch.zeros((len(x), flat.trained), device=flat.device.kind)
        by_x = torch.zeros(x.shape)
        if outputs.requires_grad:
            given = _joined(gradients).to(flat.device.kind).reshape(outputs.shape)
            found = torch.autograd.grad(weighted_end(outputs, given), wanted, allow_unused=True)
            places = [place for t, place in flat.slices if t.requires_grad]
            for place, gradient in zip(places, found, strict=False):
                if gradient is not None:
                    own[:, place] = gradient.reshape(len(x), -1)
            if x.requires_grad and (last := found[-1]) is not None:
                by_x = flat.device.fetch(last)
        return [(row, by_inputs.clone(memory_format=torch.contiguous_format).numpy())
                for row, by_inputs in zip(own, by_x, strict=True)]


def _joined(arrays: Sequence[np.ndarray]) -> Tensor:
    """(G, *shape) on torch's boundary, as `aligned`."""
    return torch.stack([torch.from_numpy(array) for array in arrays])
