"""A model as a function of its parameters: forward passes and gradients of several scalars, without side effects.

Nothing here changes the state of the model. A parameter vector (d,) is float32 or float64, and so is what comes out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from emul.learning.dataset import mapped
from emul.learning.objectives import Batch, Objective, Outputs, equal_weights
from emul.learning.parameters import FlatModule, parts

_HEAVY = 1 << 20                    # parameters times samples, beyond which single passes were faster (ResNet20)

# (outputs, batch, weights (B,)) -> (S,): S scalars of one forward pass
Scalars = Callable[[Outputs, Batch, Tensor], Tensor]
# (the model's tensors by name, inputs) -> outputs: another forward pass than the module's own
Forward = Callable[[Mapping[str, Tensor], Any], Outputs]


@dataclass(frozen=True, eq=False)
class Total:
    """The objective's weighted mean as the one scalar."""

    objective: Objective

    def __call__(self, outputs: Outputs, batch: Batch, weights: Tensor) -> Tensor:
        return self.objective.total(outputs, batch, weights)[None]


def tensors(model: FlatModule, vector: Tensor) -> dict[str, Tensor]:
    """The parameters and buffers of the model as (d,) has them, by name; differentiable by the vector."""
    names = {id(t): name for name, t in (*model.module.named_parameters(), *model.module.named_buffers())}
    return {names[id(t)]: _as(t, vector[place].reshape(t.shape)) for t, place in model.slices}


def forward(model: FlatModule, vector: Tensor, x: object, training: bool = False) -> Outputs:
    """One forward pass at `vector` (d,), differentiable as often as the module is. training: with dropout, drawn from
    torch's generator, and with the statistics of the batch."""
    return run(model, tensors(model, vector), x, training)


def run(model: FlatModule, named: Mapping[str, Tensor], x: Any, training: bool = False) -> Outputs:
    """One forward pass with these tensors, {name: tensor}; features too where the model is cut."""
    module = model.module
    was = module.training
    module.train(training)
    try:
        if getattr(module, "features_at", None) is None:
            return Outputs(_called(module, named, x))
        representation, decision = parts(module)            # their layers are called as in the module
        c = _called(representation, _own(representation, named), x)
        return Outputs(_called(decision, _own(decision, named), c), c)
    finally:
        module.train(was)


def _called(module: nn.Module, named: Mapping[str, Tensor], x: object) -> Any:
    """The output of the module with these tensors. Each tensor of each layer is put in once: of a layer that a module
    has under two names, functional_call would put tensors in twice and take them out once."""
    name_of = {id(t): name for name, t in (*module.named_parameters(), *module.named_buffers())}
    tensors = {f"{prefix}.{name}" if prefix else name: named[name_of[id(t)]]
               for prefix, layer in module.named_modules()
               for name, t in (*layer._parameters.items(), *layer._buffers.items())
               if t is not None and name_of[id(t)] in named}
    return functional_call(module, tensors, (x,), tie_weights=False)


def penultimate(model: FlatModule, vector: Tensor, x: object) -> Tensor | None:
    """The inputs of the module's last linear layer, (B, n), as `forward` has it; None: it has no such layer."""
    linear = [layer for layer in model.module.modules() if isinstance(layer, nn.Linear)]
    if not linear:
        return None
    fed: list[Tensor] = []
    handle = linear[-1].register_forward_pre_hook(lambda _, given: fed.append(given[0]))
    try:
        forward(model, vector, x)
    finally:
        handle.remove()
    return fed[-1].flatten(1)


def gradients(model: FlatModule, vector: Tensor, batch: Batch, scalars: Scalars,
              forward: Forward | None = None) -> Tensor:
    """Gradients (S, d) of S scalars of one forward pass over the batch, in training mode; 0 where nothing is trained,
    but for running statistics, where the pass gives those of the batch: W - statistic in the first row, which is the
    gradient of half its square, and whose step of length momentum is that of the layer.

    One batched reverse pass: dearer than one gradient, cheaper than S; of large models on a processor, and for S = 1, a
    pass for each, since batched convolutions are dearer than plain ones there. forward: in place of the module's own;
    it gets the module's tensors by name. Yang et al., arXiv 2412.11737, need it for three kinds of scalars at once.
    """
    batch = Batch(_typed(batch.x, vector), _typed(batch.y, vector))
    trained = [name for name, p in model.module.named_parameters() if p.requires_grad]
    leaves = {name: t.detach().requires_grad_(name in trained) for name, t in tensors(model, vector.detach()).items()}
    with torch.enable_grad():
        outputs = run(model, leaves, batch.x, training=True) if forward is None else forward(leaves, batch.x)
        found = scalars(outputs, batch, equal_weights(batch.y).to(vector.dtype))
    if found.ndim != 1:
        raise ValueError(f"scalars: expected a tensor (S,), found one of shape {tuple(found.shape)}")
    wanted = [leaves[name] for name in trained]
    heavy = vector.device.type == "cpu" and model.dimension * len(batch.y) >= _HEAVY
    result = torch.zeros(len(found), model.dimension, dtype=vector.dtype, device=vector.device)
    result[:, :model.trained] = (_one_by_one if heavy or len(found) == 1 else _batched)(found, wanted)
    slices = dict(zip(leaves, (place for _, place in model.slices), strict=True))
    for name, statistic in (outputs.statistics or {}).items():
        result[0, slices[name]] = (leaves[name] - statistic).detach()
    return result


def gradients_of_each(model: FlatModule, vector: Tensor, batch: Batch, scalars: Scalars,
                      forward: Forward | None = None) -> Tensor:
    """Gradients (B, d) of the one scalar of each sample alone, as `gradients` has it of a batch of that sample; 0 in
    buffers. A pass over the batch, mapped: layers that mix samples see one at a time."""
    batch = Batch(_typed(batch.x, vector), _typed(batch.y, vector))
    fixed = tensors(model, vector.detach())
    trained = {name: fixed.pop(name) for name, p in model.module.named_parameters() if p.requires_grad}
    weight = vector.new_ones(1)

    def one(own: dict[str, Tensor], x: Any, y: Tensor) -> Tensor:
        alone = Batch(mapped(lambda t: t[None], x), y[None])
        named = {**own, **fixed}
        outputs = run(model, named, alone.x, training=True) if forward is None else forward(named, alone.x)
        return scalars(outputs, alone, weight)[0]

    each = vmap(grad(one), (None, 0, 0), randomness="different")(trained, batch.x, batch.y)
    result = vector.new_zeros(len(batch.y), model.dimension)
    result[:, :model.trained] = torch.cat([g.flatten(1) for g in each.values()], dim=1)
    return result


def _batched(scalars: Tensor, leaves: Sequence[Tensor]) -> Tensor:
    """(S, trained) in one reverse pass."""
    each = torch.autograd.grad(scalars, leaves, torch.eye(len(scalars), dtype=scalars.dtype, device=scalars.device),
                               is_grads_batched=True, allow_unused=True)
    return torch.cat([leaf.new_zeros(len(scalars), leaf.numel()) if g is None else g.flatten(1)
                      for leaf, g in zip(leaves, each, strict=True)], dim=1)


def _one_by_one(scalars: Tensor, leaves: Sequence[Tensor]) -> Tensor:
    """The same in a reverse pass each."""
    return torch.stack([torch.cat([
        leaf.new_zeros(leaf.numel()) if g is None else g.flatten()
        for leaf, g in zip(leaves, torch.autograd.grad(one, leaves, retain_graph=n < len(scalars) - 1,
                                                       allow_unused=True), strict=True)])
        for n, one in enumerate(scalars)])


def _as(tensor: Tensor, value: Tensor) -> Tensor:
    """Counters of batches are carried as floats, and are integers."""
    return value if tensor.is_floating_point() else value.detach().to(tensor.dtype)


def _own(module: nn.Module, named: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors that a part of the model has, which are called as in the whole."""
    return {name: named[name] for name, _ in (*module.named_parameters(), *module.named_buffers()) if name in named}


def _typed(value: Any, like: Tensor) -> Any:
    """On the device of `like`, and floats in its type."""
    return mapped(lambda t: t.to(like.device, like.dtype) if t.is_floating_point() else t.to(like.device), value)
