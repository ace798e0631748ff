"""Dropout: shares and means, its own stream, nothing outside training."""

from __future__ import annotations

import pytest
import torch

from emul.base.streams import torch_stream
from emul.learning.dropout import Dropout


def dropped(p: float, *names: int, shape: tuple[int, ...] = (64, 1000)) -> torch.Tensor:
    layer = Dropout(p)
    with torch_stream(7, "dropout", *names):
        return layer(torch.ones(shape))


@pytest.mark.parametrize("p", [0.2, 0.5, 0.9])
def test_a_share_of_p_is_zero_and_the_mean_is_kept(p: float) -> None:
    out = dropped(p)
    n = out.numel()
    zeros = int((out == 0).sum())
    assert abs(zeros - n * p) < 4 * (n * p * (1 - p)) ** 0.5
    assert torch.unique(out).tolist() == pytest.approx([0, 1 / (1 - p)], rel=1e-4)
    assert float(out.mean()) == pytest.approx(1, abs=4 * (p / (1 - p) / n) ** 0.5)


def test_the_stream_decides_about_it_and_a_second_pass_draws_anew() -> None:
    assert torch.equal(dropped(0.5, 1), dropped(0.5, 1))
    assert not torch.equal(dropped(0.5, 1), dropped(0.5, 2))
    layer = Dropout(0.5)
    with torch_stream(7, "dropout"):
        assert not torch.equal(layer(torch.ones(100)), layer(torch.ones(100)))


def test_values_are_dropped_independently_in_sizes_that_four_does_not_divide() -> None:
    out = torch.stack([dropped(0.5, i, shape=(7,)) for i in range(2000)]) > 0
    shares = out.float().mean(0)
    assert ((shares - 0.5).abs() < 4 * 0.5 / 2000**0.5).all()
    together = torch.corrcoef(out.float().T) - torch.eye(7)
    assert together.abs().max() < 5 / 2000**0.5


def test_the_gradient_goes_through_what_is_kept() -> None:
    layer, x = Dropout(0.2), torch.ones(50, requires_grad=True)
    with torch_stream(7, "dropout"):
        out = layer(x)
    out.sum().backward()
    assert torch.equal(x.grad, out.detach())


def test_nothing_happens_outside_training_or_with_p_of_zero() -> None:
    x = torch.ones(10)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0)(x) is x
    with pytest.raises(ValueError, match=r"expected a probability in \[0, 1\)"):
        Dropout(1.0)
