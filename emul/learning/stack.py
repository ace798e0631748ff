"""A module on many clients at once, each with parameters of its own: stacked, (G, *shape) for G clients.

Of an nn.Sequential, layers that are known work on all clients together: linear ones as batched matrix products,
convolutions as one convolution in groups, batch normalisation as one of all clients' channels; so do the layers in the
blocks of `residual`. Torch maps all other layers over the clients.func.vmap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
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
from emul.learning.residual import Block, Padding


class FuseError(EmulError):
    """A model cannot be trained for many clients at once, or their trainings do not go together."""


_PLANES = ("cuda",)         # devices on which maps of one channel a client lie plane by plane


class Hidden(NamedTuple):
    """Activations of G clients, B samples each, in one of two layouts."""

    value: Tensor           # rows: (G, B, *shape); maps: (B, G * C, H, W)
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
        """Rows (G, B, C, H, W) as (B, G * C, H, W), channels last in memory; on a GPU not if C = 1, where a convolution
        of planes is eight times faster. Maps as they are."""
        if self.maps:
            return self
        g, b, c, h, w = self.value.shape
        if c == 1 and self.value.device.type in _PLANES:
            return Hidden(self.value.transpose(0, 1).reshape(b, g, h, w).contiguous(), g, True)
        return Hidden(self.value.permute(1, 3, 4, 0, 2).contiguous().view(b, h, w, -1).permute(0, 3, 1, 2), g, True)


Factors = list[tuple[Tensor, Tensor]]                       # products (G, n, B) (G, B, m), which add up


class Values(dict[int, Tensor]):
    """id of a parameter or buffer -> (G, *shape)."""

    def __init__(self, values: Iterable[tuple[int, Tensor]], factors: Mapping[int, Factors] | None = None):
        super().__init__(values)
        self.factors = factors or {}        # of the weights whose gradients are not to be multiplied out


Mask = Callable[[nn.Module, tuple[int, ...]], Tensor]       # (dropout, (G, B, *shape)) -> factors of its values


class Pass(NamedTuple):
    """The values, masks and shares that layers take beside activations."""

    values: Values
    mask: Mask
    share: Tensor | None    # (G, B): of a sample in its client's mean, 0 where it is none of its; None: all count alike
    least: int              # samples of the client with the fewest


# Their effect on a value, or on the map of a channel, depends on nothing else.
_ON_VALUES = (nn.ReLU, nn.Identity, nn.Tanh, nn.Sigmoid, nn.GELU, nn.SiLU, nn.ELU, nn.LeakyReLU, nn.Softplus,
              nn.Hardtanh, nn.ReLU6)
_ON_MAPS = (nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d)
_DROPOUTS = (Dropout, nn.Dropout, nn.Dropout2d)
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)
_LARGE = 10_000             # weights of a dense layer, from which what a step reads and writes matters (`_Affine`)


class Stack:
    """Raises FuseError if the module is of a kind that cannot be stacked; `trial` finds out about the rest."""

    def __init__(self, module: nn.Module):
        self._layers = _ordered(module)
        self._cut = _cut(module)
        self._steps = [_step(layer) for layer in self._layers]
        leaves = list(_leaves(self._layers))
        self.unknown = [layer for layer in leaves if _step(layer).func is _map]
        self.modes = [layer for layer in leaves if _kind(layer) in (*_DROPOUTS, *_NORMS)]   # others in evaluation
        self.keeps = any(_kind(layer) in _NORMS for layer in leaves)    # true if a pass may change values of buffers
        for name, part in module.named_modules():
            if _takes_statistics(part) and not any(part is known for known in self.modes):
                raise FuseError(f"{_place(name, part)}: takes statistics of a batch, or keeps them, and is not "
                                "BatchNorm1d or BatchNorm2d in a sequence")
        for layer in self.unknown:
            if any(map(is_random, layer.modules())):
                raise FuseError(f"{_place('', layer)}: draws at random, and is not Dropout or Dropout2d in a sequence")

    @property
    def on_maps(self) -> bool:
        """True if the first layer that is not the same for any layout works on maps."""
        kinds = (_kind(layer) for layer in self._layers)
        return next((kind for kind in kinds if kind not in (*_ON_VALUES, *_DROPOUTS)), None) in (
            nn.Conv2d, nn.BatchNorm2d, Block, *_ON_MAPS)

    def __call__(self, x: Hidden, of: Pass) -> tuple[Tensor | None, Tensor]:
        """Features (G, B, n), None where the module is not cut, and logits (G, B, classes). Changes the values of
        buffers where the module would."""
        features = None
        for i, step in enumerate(self._steps):
            if i == self._cut:
                features = x.as_rows().value
            x = step(x, of)
        logits = x.as_rows().value
        return logits if self._cut == len(self._steps) else features, logits


def trial(module: nn.Module, x: Tensor) -> str | None:
    """The mistake in a module of which parts are not known: tried on a copy, for three samples and two clients."""
    copy = deepcopy(module).cpu().train()
    stack = Stack(copy)
    for layer in stack.modes:
        layer.eval()                                            # masks and statistics are not the question
    buffers = {name: buffer.clone() for name, buffer in copy.named_buffers()}
    values = Values((id(t), torch.stack([t.detach()] * 2)) for t in (*copy.parameters(), *copy.buffers()))
    try:
        with torch.no_grad():
            _, (fused, _) = stack(Hidden.rows(torch.stack([x, x])),
                                  Pass(values, lambda _, shape: torch.ones(shape), None, 3))
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


def _ordered(module: nn.Module) -> list[nn.Module]:
    """The layers of nested sequences, with ReLU after the maximum instead of before: the same values and gradients,
    computed on fewer."""
    layers = _flat(module)
    for i, (first, second) in enumerate(zip(layers, layers[1:], strict=False)):     # noqa: RUF007 (it writes to them)
        if _kind(first) is nn.ReLU and _kind(second) is nn.MaxPool2d:
            layers[i:i + 2] = second, first
    return layers


def _leaves(layers: Iterable[nn.Module]) -> Iterator[nn.Module]:
    """The layers, with those of blocks in place of these."""
    for layer in layers:
        if isinstance(layer, Block) and _kind(layer) is Block:
            yield from _leaves((*_flat(layer.f), *_flat(layer.g)))
        else:
            yield layer


def _is_sequence(module: nn.Module) -> bool:
    return type(module) is nn.Sequential and not _has_hooks(module)


def probe(input_shape: tuple[int, ...]) -> Tensor:
    """Three samples to try a module on, (3, *input_shape) float32, where there are none yet."""
    return torch.randn(3, *input_shape, generator=torch.Generator().manual_seed(0))


def _cut(module: Any) -> int | None:
    """The number of layers before the features; None where the module is not cut."""
    at = getattr(module, "features_at", None)
    return None if at is None or not _is_sequence(module) else sum(len(_flat(part)) for part in module[:at])


def _takes_statistics(part: nn.Module) -> bool:
    return isinstance(part, nn.modules.batchnorm._BatchNorm) or (
        isinstance(part, nn.modules.batchnorm._NormBase) and part.track_running_stats)


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
    if kind in _NORMS:
        return partial(_normalise, layer)
    if kind is Block:
        return partial(_add, [_step(part) for part in _ordered(layer.f)], [_step(part) for part in _ordered(layer.g)])
    if kind is Padding:
        return partial(_pad, layer)
    return partial(_map, layer)


# --- layers -------------------------------------------------------------------------------------------------------

def _nothing(layer: nn.Module, x: Hidden, of: Pass) -> Hidden:
    return x


def _on_values(layer: nn.Module, x: Hidden, of: Pass) -> Hidden:
    return x.of(layer(x.value))


def _on_maps(layer: nn.Module, x: Hidden, of: Pass) -> Hidden:
    x = x.as_maps()
    return x.of(layer(x.value))


def _convolve(layer: nn.Conv2d, x: Hidden, of: Pass) -> Hidden:
    x = x.as_maps()
    weight = of.values[id(layer.weight)].flatten(0, 1)                                     # (G * O, C, h, w)
    bias = None if layer.bias is None else of.values[id(layer.bias)].flatten()
    return x.of(F.conv2d(x.value, weight, bias, layer.stride, layer.padding, layer.dilation, x.clients * layer.groups))


def _linear(layer: nn.Linear, x: Hidden, of: Pass) -> Hidden:
    x = x.as_rows()
    rows = x.value.reshape(x.clients, -1, layer.in_features)
    weight, bias = of.values[id(layer.weight)], None if layer.bias is None else of.values[id(layer.bias)].unsqueeze(1)
    if layer.weight.numel() >= _LARGE:
        found = _Affine.apply(rows, weight, bias, of.values.factors.get(id(layer.weight)))
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


def _normalise(layer: nn.BatchNorm1d | nn.BatchNorm2d, x: Hidden, of: Pass) -> Hidden:
    x = x.as_maps() if isinstance(layer, nn.BatchNorm2d) else x.as_rows()
    value = x.value if x.maps else x.value.transpose(0, 1).flatten(1, 2)                # (B, G * C, ...)
    weight, bias, mean, var = (None if t is None else of.values[id(t)].flatten()
                               for t in (layer.weight, layer.bias, layer.running_mean, layer.running_var))
    if layer.training or mean is None:
        if of.least * value[0, 0].numel() == 1:
            raise ValueError("Expected more than 1 value per channel when training, got input size "
                             f"{torch.Size((1, layer.num_features, *value.shape[2:]))}")         # as torch says it
        if of.share is None:
            mean, var = value.new_zeros(2, value.shape[1])      # with momentum 1 they become those of the batch
            found = F.batch_norm(value, mean, var, weight, bias, True, 1.0, layer.eps)
        else:
            share = of.share.t().repeat_interleave(layer.num_features, 1)
            found, mean, var = _OfShares.apply(value, weight, bias, share, layer.eps)
        _keep(layer, of.values, mean, var)
    else:
        found = F.batch_norm(value, mean, var, weight, bias, False, 0.0, layer.eps)
    return x.of(found if x.maps else found.unflatten(1, (x.clients, -1)).transpose(0, 1))


def _keep(layer: nn.BatchNorm1d | nn.BatchNorm2d, values: Values, mean: Tensor, var: Tensor) -> None:
    """Let mean and variance of each client's batch, (G * C,), go into its running ones."""
    if not (layer.training and layer.track_running_stats):
        return
    rate: float | Tensor = layer.momentum or 0.0
    if layer.num_batches_tracked is not None:
        counted = values[id(layer.num_batches_tracked)].add_(1)
        if layer.momentum is None:
            rate = counted.to(mean.dtype).reciprocal().unsqueeze(1)
    for kept, new in ((layer.running_mean, mean), (layer.running_var, var)):
        if kept is not None:
            values[id(kept)].lerp_(new.view(-1, layer.num_features), rate)


class _OfShares(torch.autograd.Function):
    """Values (B, K, ...) normalised with the mean and the variance of each of the K channels, in which the samples have
    shares (B, K): (what comes out, means, unbiased variances). torch's own knows equal shares only."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, weight: Tensor | None, bias: Tensor | None, share: Tensor, eps: float,
                ) -> tuple[Tensor, Tensor, Tensor]:
        flat = value.flatten(2) if value.ndim > 2 else value.unsqueeze(2)               # (B, K, places)
        mean = (share * flat.mean(2)).sum(0)
        var = (share * (flat - mean.unsqueeze(1)).square_().mean(2)).sum(0)
        inverse = torch.rsqrt(var + eps)
        scale = inverse if weight is None else weight * inverse
        shift = -mean * scale if bias is None else bias - mean * scale
        ctx.save_for_backward(flat, share, mean, inverse, scale)
        unbiased = var / (1 - share[0] / flat.shape[2])                                 # 1 / the number of values
        ctx.mark_non_differentiable(mean, unbiased)
        return torch.addcmul(shift.unsqueeze(1), flat, scale.unsqueeze(1)).view(value.shape), mean, unbiased

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        flat, share, mean, inverse, scale = ctx.saved_tensors
        of_value, of_weight, of_bias, *_ = ctx.needs_input_grad
        g = gradient.reshape(flat.shape)
        total = g.sum((0, 2))
        along = ((g * flat).sum((0, 2)) - mean * total) * inverse                       # gradient of the weight
        if of_value:
            back = share * (scale / flat.shape[2])
            slope = (back * (inverse * along)).unsqueeze(2)
            level = (back * (total - mean * inverse * along)).unsqueeze(2)
            found = (g * scale.unsqueeze(1)).sub_(level).addcmul_(flat, slope, value=-1).view(gradient.shape)
        return (found if of_value else None, along if of_weight else None, total if of_bias else None, None, None)


def _add(body: list[partial[Hidden]], shortcut: list[partial[Hidden]], x: Hidden, of: Pass) -> Hidden:
    found, beside = x.as_maps(), x.as_maps()
    for step in body:
        found = step(found, of)
    for step in shortcut:
        beside = step(beside, of)
    return found.of(torch.relu(found.value + beside.value))


def _pad(layer: Padding, x: Hidden, of: Pass) -> Hidden:
    x = x.as_maps()
    places = x.value[:, :, ::layer.stride, ::layer.stride].permute(0, 2, 3, 1)          # as they are in memory
    padded = F.pad(places.unflatten(3, (x.clients, -1)), (layer.before, layer.behind)).flatten(3)
    return x.of(padded.permute(0, 3, 1, 2))


def _flatten(layer: nn.Flatten, x: Hidden, of: Pass) -> Hidden:
    x = x.as_rows()
    start, end = (d + 1 if d >= 0 else d for d in (layer.start_dim, layer.end_dim))     # behind the clients
    return x.of(x.value.flatten(start, end))


def _drop(layer: nn.Module, x: Hidden, of: Pass) -> Hidden:
    shape = x.as_rows().value.shape
    factors = Hidden.rows(of.mask(layer, tuple(shape)))
    return x.of(x.value * (factors.as_maps() if x.maps else factors).value)


def _map(layer: nn.Module, x: Hidden, of: Pass) -> Hidden:
    x = x.as_rows()
    state = {f"{prefix}.{name}" if prefix else name: of.values[id(t)]
             for prefix, part in layer.named_modules()          # each once, or functional_call would not restore it
             for name, t in (*part._parameters.items(), *part._buffers.items()) if id(t) in of.values}

    def one(state: dict[str, Tensor], rows: Tensor) -> Tensor:
        return functional_call(layer, state, (rows,), tie_weights=False)

    # contiguous: under vmap, some of torch's layers refuse what has its channels last
    return x.of(vmap(one, randomness="error")(state, x.value.contiguous()))
