"""A module's state as one flat float32 vector: trained parameters first, then buffers.

Parameters are views on the vector, so that loading a vector is one copy and reading it is one copy; gradients are
views on a second one, so that a step of SGD is one operation whatever the number of layers.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import nn

from emul.base.errors import EmulError
from emul.learning.device import Device
from emul.learning.dropout import Dropout


class ParameterError(EmulError):
    """A module's state cannot be a float32 vector, or a vector does not fit the module."""


class FlatModule:
    """A module whose state is `vector`, (d,) float32, in this order: trained parameters (as the module names them),
    persistent buffers. Frozen parameters (`requires_grad=False`) are no part of it: they stay as the module was built,
    so that of a model that is fine-tuned only what is tuned is trained, sent and averaged. Integer buffers (BatchNorm's
    step counter) are carried as floats, exact below 2**24. All but integer buffers are views of the vector, on a GPU
    all but buffers. The module belongs to this object from now on: nothing else may replace its parameters. It moves to
    the device; arrays come from and go to the host's memory.
    """

    def __init__(self, module: nn.Module, device: Device | None = None):
        self.device = device or Device()
        self.module = module.to(self.device.kind)
        # true if a forward pass may draw at random: by a layer known to, or in code of a class outside torch.nn
        self.draws = any(is_random(layer) or not type(layer).__module__.startswith("torch.nn.")
                         for layer in module.modules())
        trained = [p for p in module.parameters() if p.requires_grad]
        self._apart: list[tuple[slice, torch.Tensor]] = []           # (place in vector, buffer that is no view of it)
        saved = module.state_dict().keys()
        rest = [buffer for name, buffer in module.named_buffers() if name in saved]
        self.trained = sum(p.numel() for p in trained)               # entries of `vector` that are trained
        self.dimension = self.trained + sum(t.numel() for t in rest)
        self.vector = torch.empty(self.dimension, device=self.device.kind)
        self.weights = self.vector[: self.trained]                   # view
        self.gradient = torch.zeros(self.trained, device=self.device.kind)
        self.slices: list[tuple[torch.Tensor, slice]] = []           # of each tensor of the module, in `vector`
        place = 0
        for tensor in (*trained, *rest):
            self.slices.append((tensor, slice(place, place + tensor.numel())))
            place = self._take_over(tensor, place)
        self._read_apart()
        if not self.device.on_cpu:
            self._aligned()

    @cached_property
    def matrices(self) -> torch.Tensor:
        """(trained,) float32: 1 where an entry is of a parameter of two dimensions or more, else 0."""
        found = torch.zeros(self.trained, device=self.device.kind)
        for tensor, place in self.slices:
            if place.stop <= self.trained and tensor.ndim > 1:
                found[place] = 1
        return found

    def _take_over(self, tensor: torch.Tensor, start: int) -> int:
        """Make the tensor a view of the vector from `start`, with its values, or note it as one apart; return where it
        ends. Raises ParameterError if its type is another than float32 or an integer."""
        stop = start + tensor.numel()
        if tensor.is_floating_point() and tensor.dtype != torch.float32:
            raise ParameterError(f"expected float32 parameters and buffers, found {tensor.dtype}")
        # ResNet-18 ended with "misaligned address" on a GPU. It is likely that kernels of batch normalisation expect
        # statistics and weights to begin at 16 bytes; step counters, of one number, had shifted the statistics.
        if tensor.is_floating_point() and (self.device.on_cpu or stop <= self.trained):
            self.vector[start:stop] = tensor.detach().reshape(-1)
            tensor.data = self.vector[start:stop].view(tensor.shape)
            if tensor.requires_grad:
                tensor.grad = self.gradient[start:stop].view(tensor.shape)
        else:
            self._apart.append((slice(start, stop), tensor))
        return stop

    def _read_apart(self) -> None:
        for place, buffer in self._apart:
            self.vector[place] = buffer.reshape(-1).to(torch.float32)

    def _aligned(self) -> None:
        """Raise ParameterError if batch normalisation has weights where a GPU's kernels cannot read them."""
        for name, layer in self.module.named_modules():
            if isinstance(layer, nn.modules.batchnorm._NormBase):
                for what, p in layer.named_parameters(recurse=False):
                    if p.storage_offset() % 4:
                        raise ParameterError(
                            f"{name}.{what}: on a GPU, expected batch normalisation whose weights begin at a multiple "
                            "of 4 numbers in the model's vector: give the layers before it numbers of channels and "
                            "outputs that are multiples of 4")

    def frozen(self) -> list[np.ndarray]:
        """The tensors that the model computes with besides the vector: frozen parameters, and buffers that are not
        persistent."""
        held = {id(tensor) for tensor, _ in self.slices}
        return [t.detach().cpu().numpy() for t in (*self.module.parameters(), *self.module.buffers())
                if id(t) not in held]

    def require(self, vector: np.ndarray) -> None:
        """Raise ParameterError unless it is (d,)."""
        if vector.shape != (self.dimension,):
            raise ParameterError(f"expected parameters of shape ({self.dimension},), found {vector.shape}")

    def named(self, vector: np.ndarray) -> dict[str, np.ndarray]:
        """The parts of `vector`, (d,), by their names in the module's `state_dict`: views in their shapes, in the order
        of the vector; integer buffers as floats, too. Raises ParameterError if its shape is another."""
        self.require(vector)
        name_of = {id(t): name for name, t in (*self.module.named_parameters(), *self.module.named_buffers())}
        return {name_of[id(tensor)]: vector[place].reshape(tuple(tensor.shape)) for tensor, place in self.slices}

    def load(self, vector: np.ndarray) -> None:
        """Make the module's state equal to `vector`, (d,). Raises ParameterError if its shape is another."""
        self.require(vector)
        if self.device.on_cpu:
            np.copyto(self.vector.numpy(), vector, casting="same_kind")
        else:
            self.vector.copy_(self.device.model(vector))
        for place, buffer in self._apart:
            buffer.copy_(self.vector[place].view(buffer.shape))

    def read(self) -> np.ndarray:
        """The module's state, (d,) float32: a fresh array on a 64-byte boundary."""
        self._read_apart()
        return self.device.fetch(self.vector).clone().numpy()


def parts(module: nn.Module, linear: bool = False) -> tuple[nn.Module, nn.Module]:
    """(representation, decision), of the same layers. linear: cut before the ReLU that ends the representation.

    Raises ParameterError unless the module is cut in two, and there.
    """
    at: Any = getattr(module, "features_at", None)
    if not isinstance(module, nn.Sequential) or at is None:
        raise ParameterError("expected a model that is an nn.Sequential, cut at `features_at`")
    if linear and not isinstance(module[at - 1], nn.ReLU):
        raise ParameterError("expected a representation that ends with a ReLU, to take features before it")
    return module[:at - linear], module[at - linear:]


# Layers of torch.nn that draw, but for those with a rate in an attribute `dropout` (recurrent, attention).
_RANDOM_LAYERS = (Dropout, nn.modules.dropout._DropoutNd, nn.RReLU, nn.FractionalMaxPool2d, nn.FractionalMaxPool3d)


def is_random(layer: nn.Module) -> bool:
    """True if it is a layer that is known to draw random numbers."""
    return isinstance(layer, _RANDOM_LAYERS) or bool(getattr(layer, "dropout", 0))
