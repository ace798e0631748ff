"""A module on many clients at once, each with parameters of its own: stacked, (G, *shape) for G clients.

Of an nn.Sequential, layers that are known work on all clients together: linear ones as batched matrix products,
convolutions as one convolution in groups. Torch maps all other layers over the clients.func.vmap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional as F

from emul.base.errors import EmulError
from emul.learning.dropout import Dropout
from emul.learning.parameters import is_random


class FuseError(EmulError):
    """A model cannot be trained for many clients at once, or their trainings do not go together."""


class Hidden(NamedTuple):
    """Activations of G clients, B samples each, in one of two layouts."""

    value: Tensor           # rows: (G, B, *shape); maps: (B, G * C, H, W), channels last in memory
    clients: int            # G
    maps: bool

    @classmethod
    def rows(cls, value: Tensor) -> Hidden:
        """Activations from rows, (G, B, *shape)."""
        return cls(value, len(value), False)

    def of(self, value: Tensor) -> Hidden:
        """The same clients and layout with another value."""
        return Hidden(value, self.clients, self.maps)

    def as_rows(self) -> Hidden:
        """Maps as (G, B, C, H, W), a view; rows as they are."""
        if not self.maps:
            return self
        b, _, h, w = self.value.shape
        return Hidden(self.value.view(b, self.clients, -1, h, w).transpose(0, 1), self.clients, False)

    def as_maps(self) -> Hidden:
        """Rows (G, B, C, H, W) as (B, G * C, H, W), channels last in memory; maps as they are."""
        if self.maps:
            return self
        g, b, _, h, w = self.value.shape
        return Hidden(self.value.permute(1, 3, 4, 0, 2).contiguous().view(b, h, w, -1).permute(0, 3, 1, 2), g, True)


Factors = list[tuple[Tensor, Tensor]]                       # products (G, n, B) (G, B, m), which add up


class Values(dict[int, Tensor]):
    """id of a parameter or buffer -> (G, *shape)."""

    def __init__(self, values: Iterable[tuple[int, Tensor]], factors: Mapping[int, Factors] | None = None):
        super().__init__(values)
        self.factors = factors or {}        # of the weights whose gradients are not to be multiplied out


Mask = Callable[[nn.Module, tuple[int, ...]], Tensor]       # (dropout, (G, B, *shape)) -> factors of its values

# Their effect on a value, or on the map of a channel, depends on nothing else.
_ON_VALUES = (nn.ReLU, nn.Identity, nn.Tanh, nn.Sigmoid, nn.GELU, nn.SiLU, nn.ELU, nn.LeakyReLU, nn.Softplus,
              nn.Hardtanh, nn.ReLU6)
_ON_MAPS = (nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d)
_DROPOUTS = (Dropout, nn.Dropout, nn.Dropout2d)
_LARGE = 10_000             # weights of a dense layer, from which what a step reads and writes matters (`_Affine`)


class Stack:
    """Raises FuseError if the module is of a kind that cannot be stacked; `trial` finds out about the rest."""

    def __init__(self, module: nn.Module):
        for name, part in module.named_modules():
            if isinstance(part, nn.modules.batchnorm._BatchNorm) or (
                    isinstance(part, nn.modules.batchnorm._NormBase) and part.track_running_stats):
                raise FuseError(f"{_place(name, part)}: takes statistics of a batch, or keeps them")
        self._layers = _flat(module)
        self._cut = _cut(module)
        self._swap()
        self._steps = [_step(layer) for layer in self._layers]
        self.unknown = [layer for layer, step in zip(self._layers, self._steps, strict=True) if step.func is _map]
        for layer in self.unknown:
            if any(map(is_random, layer.modules())):
                raise FuseError(f"{_place('', layer)}: draws at random, and is not Dropout or Dropout2d in a sequence")
        self.draws = any(step.func is _drop for step in self._steps)

    def _swap(self) -> None:
        """ReLU after the maximum instead of before: the same values and gradients, computed on fewer."""
        for i, (first, second) in enumerate(zip(self._layers, self._layers[1:], strict=False)):
            if _kind(first) is nn.ReLU and _kind(second) is nn.MaxPool2d:
                self._layers[i:i + 2] = second, first

    @property
    def on_maps(self) -> bool:
        """True if the first layer that is not the same for any layout works on maps."""
        kinds = (_kind(layer) for layer in self._layers)
        return next((kind for kind in kinds if kind not in (*_ON_VALUES, *_DROPOUTS)), None) in (nn.Conv2d, *_ON_MAPS)

    def __call__(self, x: Hidden, values: Values, mask: Mask) -> tuple[Tensor | None, Tensor]:
        """Features (G, B, n), None where the module is not cut, and logits (G, B, classes)."""
        features = None
        for i, step in enumerate(self._steps):
            if i == self._cut:
                features = x.as_rows().value
            x = step(x, values, mask)
        logits = x.as_rows().value
        return logits if self._cut == len(self._steps) else features, logits


def trial(module: nn.Module, x: Tensor) -> str | None:
    """The mistake in a module of which parts are not known: tried on a copy, for three samples and two clients."""
    copy = deepcopy(module).cpu().train()
    for layer in _flat(copy):
        if _kind(layer) in _DROPOUTS:
            layer.eval()                                        # its masks are not the question
    buffers = {name: buffer.clone() for name, buffer in copy.named_buffers()}
    values = Values((id(t), torch.stack([t.detach()] * 2)) for t in (*copy.parameters(), *copy.buffers()))
    try:
        with torch.no_grad():
            _, (fused, _) = Stack(copy)(Hidden.rows(torch.stack([x, x])), values, lambda _, shape: torch.ones(shape))
            first, whole = copy(x[:2]), copy(x)
    except Exception as error:                                  # the module's own code and vmap may raise anything
        return f"its forward pass cannot be mapped over clients: {str(error).strip().partition(chr(10))[0]}"
    if any(not torch.equal(buffer, buffers[name]) for name, buffer in copy.named_buffers()):
        return "its forward pass changes buffers"
    if not torch.allclose(first, whole[:2], rtol=1e-3, atol=1e-4):
        return "what it makes of a sample depends on the others of the batch"
    return None if torch.allclose(fused, whole, rtol=1e-3, atol=1e-4) else "its forward pass is not the same twice"


# --- structure ----------------------------------------------------------------------------------------------------

def _flat(module: Any) -> list[nn.Module]:
    """The layers of nested sequences."""
    return [layer for part in module for layer in _flat(part)] if _is_sequence(module) else [module]


def _is_sequence(module: nn.Module) -> bool:
    return type(module) is nn.Sequential and not _has_hooks(module)


def probe(input_shape: tuple[int, ...]) -> Tensor:
    """Three samples to try a module on, (3, *input_shape) float32, where there are none yet."""
    return torch.randn(3, *input_shape, generator=torch.Generator().manual_seed(0))


def _cut(module: Any) -> int | None:
    """The number of layers before the features; None where the module is not cut."""
    at = getattr(module, "features_at", None)
    return None if at is None or not _is_sequence(module) else sum(len(_flat(part)) for part in module[:at])


def _has_hooks(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks or module._backward_hooks
                or module._backward_pre_hooks or "forward" in vars(module))


def _kind(layer: nn.Module) -> type | None:
    """Its class, if nothing but the class says what it does."""
    return None if _has_hooks(layer) else type(layer)


def _place(name: str, part: nn.Module) -> str:
    return f"layer {name} ({type(part).__name__})" if name else type(part).__name__


def _step(layer: Any) -> partial[Hidden]:
    kind = _kind(layer)
    if kind in _ON_VALUES:
        return partial(_on_values, layer)
    if kind in _ON_MAPS and not getattr(layer, "return_indices", False):
        return partial(_on_maps, layer)
    if kind is nn.Conv2d and layer.padding_mode == "zeros":
        return partial(_convolve, layer)
    if kind is nn.Linear:
        return partial(_linear, layer)
    if kind is nn.Flatten:
        return partial(_flatten, layer)
    if kind in _DROPOUTS:
        return partial(_drop if (layer.draws if kind is Dropout else layer.p) else _nothing, layer)
    return partial(_map, layer)


# --- layers -------------------------------------------------------------------------------------------------------

def _nothing(layer: nn.Module, x: Hidden, values: Values, mask: Mask) -> Hidden:
    return x


def _on_values(layer: nn.Module, x: Hidden, values: Values, mask: Mask) -> Hidden:
    return x.of(layer(x.value))


def _on_maps(layer: nn.Module, x: Hidden, values: Values, mask: Mask) -> Hidden:
    x = x.as_maps()
    return x.of(layer(x.value))


def _convolve(layer: nn.Conv2d, x: Hidden, values: Values, mask: Mask) -> Hidden:
    x = x.as_maps()
    weight = values[id(layer.weight)].flatten(0, 1)                                     # (G * O, C, h, w)
    bias = None if layer.bias is None else values[id(layer.bias)].flatten()
    return x.of(F.conv2d(x.value, weight, bias, layer.stride, layer.padding, layer.dilation, x.clients * layer.groups))


def _linear(layer: nn.Linear, x: Hidden, values: Values, mask: Mask) -> Hidden:
    x = x.as_rows()
    rows = x.value.reshape(x.clients, -1, layer.in_features)
    weight, bias = values[id(layer.weight)], None if layer.bias is None else values[id(layer.bias)].unsqueeze(1)
    if layer.weight.numel() >= _LARGE:
        found = _Affine.apply(rows, weight, bias, values.factors.get(id(layer.weight)))
    else:
        turned = weight.transpose(1, 2)                                                 # (G, in, out)
        found = torch.bmm(rows, turned) if bias is None else torch.baddbmm(bias, rows, turned)
    return x.of(found.view(*x.value.shape[:-1], layer.out_features))


class _Affine(torch.autograd.Function):
    """rows (G, B, in) times weights (G, out, in) transposed, plus bias (G, 1, out): (G, B, out).

    torch's own gradient of the weights has its last two axes exchanged in memory: to add that to the weights took
    longer than all three products. factors: a list that gets the two factors of that gradient, in place of it.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor | None, factors: Factors | None) -> Tensor:
        ctx.save_for_backward(rows, weight)
        ctx.factors = factors
        turned = weight.transpose(1, 2)
        return torch.bmm(rows, turned) if bias is None else torch.baddbmm(bias, rows, turned)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        rows, weight = ctx.saved_tensors
        of_rows, of_weight, of_bias, _ = ctx.needs_input_grad
        left = gradient.transpose(1, 2)                                                     # (G, out, B)
        if of_weight and ctx.factors is not None:
            ctx.factors.append((left, rows.detach()))
            of_weight = False
        return (torch.bmm(gradient, weight) if of_rows else None, torch.bmm(left, rows) if of_weight else None,
                gradient.sum(1, keepdim=True) if of_bias else None, None)


def _flatten(layer: nn.Flatten, x: Hidden, values: Values, mask: Mask) -> Hidden:
    x = x.as_rows()
    start, end = (d + 1 if d >= 0 else d for d in (layer.start_dim, layer.end_dim))     # behind the clients
    return x.of(x.value.flatten(start, end))


def _drop(layer: nn.Module, x: Hidden, values: Values, mask: Mask) -> Hidden:
    shape = x.as_rows().value.shape
    factors = Hidden.rows(mask(layer, tuple(shape)))
    return x.of(x.value * (factors.as_maps() if x.maps else factors).value)


def _map(layer: nn.Module, x: Hidden, values: Values, mask: Mask) -> Hidden:
    x = x.as_rows()
    state = {f"{prefix}.{name}" if prefix else name: values[id(t)]
             for prefix, part in layer.named_modules()          # each once, or functional_call would not restore it
             for name, t in (*part._parameters.items(), *part._buffers.items()) if id(t) in values}

    def one(state: dict[str, Tensor], rows: Tensor) -> Tensor:
        return functional_call(layer, state, (rows,), tie_weights=False)

    # contiguous: under vmap, some of torch's layers refuse what has its channels last
    return x.of(vmap(one, randomness="error")(state, x.value.contiguous()))
