"""A module's state as one flat float32 vector: trained parameters first, then frozen ones and buffers.

Parameters are views on the vector, so that loading a vector is one copy and reading it is one copy; gradients are
views on a second one, so that a step of SGD is one operation whatever the number of layers.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

from emul.base.errors import EmulError
from emul.learning.dropout import Dropout


class ParameterError(EmulError):
    """A module's state cannot be a float32 vector, or a vector does not fit the module."""


class FlatModule:
    """A module whose whole state is `vector`, (d,) float32, in this order: trained parameters (as the module names
    them), frozen parameters, persistent buffers. Integer buffers (BatchNorm's step counter) are carried as floats,
    exact below 2**24. The module belongs to this object from now on: nothing else may replace its parameters.
    """

    def __init__(self, module: nn.Module):
        self.module = module
        self.draws = _draws(module)                                  # whether a forward pass may draw at random
        trained = [p for p in module.parameters() if p.requires_grad]
        self._integers: list[tuple[slice, torch.Tensor]] = []        # (place in vector, buffer)
        rest = [*(p for p in module.parameters() if not p.requires_grad), *_persistent_buffers(module)]
        self.trained = sum(p.numel() for p in trained)               # entries of `vector` that are trained
        self.dimension = self.trained + sum(t.numel() for t in rest)
        self.vector = torch.empty(self.dimension)
        self.weights = self.vector[: self.trained]                   # view
        self.gradient = torch.zeros(self.trained)
        self._array = self.vector.numpy()                            # the same memory
        place = 0
        for tensor in (*trained, *rest):
            place = self._take_over(tensor, place)
        self._read_integers()

    def _take_over(self, tensor: torch.Tensor, start: int) -> int:
        """Move the tensor's values into the vector from `start` and make it a view; return where it ends."""
        stop = start + tensor.numel()
        if tensor.is_floating_point():
            if tensor.dtype != torch.float32:
                raise ParameterError(f"expected float32 parameters and buffers, found {tensor.dtype}")
            self.vector[start:stop] = tensor.detach().reshape(-1)
            tensor.data = self.vector[start:stop].view(tensor.shape)
            if tensor.requires_grad:
                tensor.grad = self.gradient[start:stop].view(tensor.shape)
        else:
            self._integers.append((slice(start, stop), tensor))
        return stop

    def _read_integers(self) -> None:
        for place, buffer in self._integers:
            self.vector[place] = buffer.reshape(-1).to(torch.float32)

    def load(self, vector: np.ndarray) -> None:
        """Make the module's state equal to `vector`, (d,). Raises ParameterError if its shape is another."""
        if vector.shape != (self.dimension,):
            raise ParameterError(f"expected parameters of shape ({self.dimension},), found {vector.shape}")
        np.copyto(self._array, vector, casting="same_kind")
        for place, buffer in self._integers:
            buffer.copy_(self.vector[place].view(buffer.shape))

    def read(self) -> np.ndarray:
        """The module's state, (d,) float32: a fresh array on a 64-byte boundary."""
        self._read_integers()
        return self.vector.clone().numpy()

    def difference(self, before: np.ndarray) -> np.ndarray:
        """The module's state minus `before`, (d,) float32: a fresh array on a 64-byte boundary."""
        self._read_integers()
        # torch's allocator aligns to 64 bytes, NumPy's does not: results of later matrix products depend on it
        return np.subtract(self._array, before, out=torch.empty(self.dimension).numpy(), casting="same_kind")


def _persistent_buffers(module: nn.Module) -> Iterator[torch.Tensor]:
    saved = module.state_dict().keys()
    return (buffer for name, buffer in module.named_buffers() if name in saved)


# Layers of torch.nn that draw, but for those with a rate in an attribute `dropout` (recurrent, attention).
_RANDOM_LAYERS = (Dropout, nn.modules.dropout._DropoutNd, nn.RReLU, nn.FractionalMaxPool2d, nn.FractionalMaxPool3d)


def _draws(module: nn.Module) -> bool:
    """Whether the module may draw random numbers: by a layer known to, or in code of a class outside torch.nn."""
    def may_draw(layer: nn.Module) -> bool:
        known = type(layer).__module__.startswith("torch.nn.")
        return not known or isinstance(layer, _RANDOM_LAYERS) or bool(getattr(layer, "dropout", 0))

    return any(may_draw(layer) for layer in module.modules())
