"""LoRA: what is frozen, what is trained, and that an adapted layer is a layer with a sum of low rank."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from emul.learning.adapters import AdapterError, Lora, lora, merge


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Sequential(nn.Linear(8, 5, bias=False), nn.Linear(5, 3)))


def stirred(module: nn.Module) -> nn.Module:
    """With numbers in every B, which is 0 at first."""
    with torch.no_grad():
        for part in module.modules():
            if isinstance(part, Lora):
                part.up.copy_(torch.arange(part.up.numel()).reshape(part.up.shape) / part.up.numel())
    return module


def test_at_first_nothing_has_changed_and_the_layers_are_frozen():
    plain = net()
    x = torch.randn(4, 6)
    before = plain(x)
    adapted = lora(plain, rank=2)
    assert torch.equal(adapted(x), before)
    trained = {name: tuple(p.shape) for name, p in adapted.named_parameters() if p.requires_grad}
    assert trained == {"0.down": (2, 6), "0.up": (8, 2), "2.0.down": (2, 8), "2.0.up": (5, 2),
                       "2.1.down": (2, 5), "2.1.up": (3, 2)}


@pytest.mark.parametrize(("alpha", "factor"), [(None, 1.0), (8.0, 4.0)])
def test_an_adapted_layer_adds_alpha_over_rank_times_b_a(alpha: float | None, factor: float):
    linear = nn.Linear(6, 8)
    layer = Lora(linear, 2, 2 if alpha is None else alpha)
    stirred(layer)
    x = torch.randn(3, 5, 6)
    expected = x @ (linear.weight + factor * layer.up @ layer.down).T + linear.bias
    assert torch.allclose(layer(x), expected, atol=1e-5)


def test_merging_gives_plain_layers_that_do_the_same():
    adapted, x = stirred(lora(net(), rank=2, alpha=4)), torch.randn(4, 6)
    expected = adapted(x)
    merged = merge(adapted)
    assert torch.allclose(merged(x), expected, atol=1e-5)
    assert [type(part) for part in merged.modules() if isinstance(part, Lora)] == []
    assert merged.state_dict().keys() == net().state_dict().keys()


def test_layers_are_chosen_and_parts_may_stay_trained_whole():
    adapted = lora(net(), rank=1, layers=lambda name: name != "0", trained=lambda name: name.startswith("2.1."))
    trained = {name for name, p in adapted.named_parameters() if p.requires_grad}
    assert trained == {"2.0.down", "2.0.up", "2.1.weight", "2.1.bias"}


def test_gradients_reach_adapters_alone():
    adapted = stirred(lora(net(), rank=2))
    adapted(torch.randn(4, 6)).sum().backward()
    assert {name for name, p in adapted.named_parameters() if p.grad is not None} == {
        name for name, p in adapted.named_parameters() if name.endswith((".down", ".up"))}


@pytest.mark.parametrize(("module", "rank", "layers", "said"), [
    (net, 0, lambda name: True, "rank = 0: expected 1 or more"),
    (net, 2, lambda name: False, "expected a module with linear layers that get an adapter, found none of them"),
    (lambda: nn.Linear(2, 2), 2, lambda name: True, "expected a module .*, found a linear layer itself")])
def test_what_cannot_be_adapted_is_told(module: Callable[[], nn.Module], rank: int, layers: Callable[[str], bool],
                                        said: str):
    with pytest.raises(AdapterError, match=f"^{said}$"):
        lora(module(), rank, layers=layers)
