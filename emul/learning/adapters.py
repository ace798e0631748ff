"""Fine-tuning with adapters: LoRA, low-rank updates of frozen linear layers. Hu et al., ICLR 2022.

    W x + b    becomes    W x + b + (alpha / rank) B A x,    A (rank, in), B (out, rank), B = 0 at first

W and b are frozen: no part of a parameter vector, so that only A and B (and whatever else is left to be trained) are
trained, sent and averaged. For models of users, see docs/fine-tuning.md.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from emul.base.errors import EmulError


class AdapterError(EmulError):
    """A module cannot be adapted; the text says why."""


class Lora(nn.Module):
    """A linear layer, which is frozen from now on, with an update of low rank beside it.

    A is drawn as torch draws the weights of a linear layer, so that it comes from emul's stream where a model is made.
    """

    def __init__(self, linear: nn.Linear, rank: int, alpha: float):
        super().__init__()
        self.linear, self.scale = linear.requires_grad_(False), alpha / rank
        self.down = nn.Parameter(nn.Linear(linear.in_features, rank, bias=False).weight.detach().clone())   # A
        self.up = nn.Parameter(torch.zeros(linear.out_features, rank))                                      # B

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) -> (..., out)."""
        changed: Tensor = self.linear(x) + self.scale * F.linear(F.linear(x, self.down), self.up)
        return changed

    def merged(self) -> nn.Linear:
        """A plain linear layer that does the same: W + (alpha / rank) B A. It is not frozen."""
        found = nn.Linear(self.linear.in_features, self.linear.out_features, self.linear.bias is not None)
        with torch.no_grad():
            found.weight.copy_(self.linear.weight + self.scale * self.up @ self.down)
            if self.linear.bias is not None:
                found.bias.copy_(self.linear.bias)
        return found


def lora(module: nn.Module, rank: int, alpha: float | None = None, layers: Callable[[str], bool] = lambda name: True,
         trained: Callable[[str], bool] = lambda name: False) -> nn.Module:
    """The module, in place: all of it frozen, its linear layers with adapters.

    alpha: None: the rank, which is a factor of 1. layers: which linear layers get one, by their names in the module,
    such as `blocks.0.query`. trained: parameters that stay trained whole, by their names; a linear layer of theirs gets
    no adapter. Raises AdapterError: no layer is left.

    >>> net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> net = lora(net, rank=2, trained=lambda name: name.startswith("2"))
    >>> {name: tuple(p.shape) for name, p in net.named_parameters() if p.requires_grad}
    {'0.down': (2, 8), '0.up': (8, 2), '2.weight': (3, 8), '2.bias': (3,)}
    """
    if rank < 1:
        raise AdapterError(f"rank = {rank}: expected 1 or more")
    whole = {name for name, _ in module.named_parameters() if trained(name)}
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name in whole)
    found = [(name, part) for name, part in module.named_modules() if isinstance(part, nn.Linear) and layers(name)
             and not whole & {f"{name}.weight", f"{name}.bias"}]
    if not found or found[0][0] == "":
        raise AdapterError("expected a module with linear layers that get an adapter, found "
                           + ("none of them" if not found else "a linear layer itself"))
    for name, linear in found:
        place, _, last = name.rpartition(".")
        setattr(module.get_submodule(place), last, Lora(linear, rank, rank if alpha is None else alpha))
    return module


def merge(module: nn.Module) -> nn.Module:
    """The module, in place, with every adapter added to its layer: as it was before `lora`, but for what was learnt."""
    for name, part in [(name, part) for name, part in module.named_modules() if isinstance(part, Lora)]:
        place, _, last = name.rpartition(".")
        setattr(module.get_submodule(place), last, part.merged())
    return module
