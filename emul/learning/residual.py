"""Residual nets with shortcuts that have no parameters: He et al., CVPR 2016, section 4.2, option A.

`resnet20`, `resnet56`: as printed, for 32 x 32, with batch normalisation replaced by the first weights of Zhang et al.,
"Fixup", ICLR 2019: the first convolution of a branch is smaller by 1/sqrt(branches), the last one zero. Schemes that
need gradients of single samples, or disguise a model, have no use for statistics of a batch. `resnet20_bn` and
`resnet56_bn` have it. `digits_residual`, `mnist_residual`: small ones of one block a stage.
`mnist_residual` keeps 7 x 7 places of its last features: averaged over the image it learnt nothing from squared loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    """relu(f(x) + g(x)), of maps."""

    def __init__(self, f: nn.Sequential, g: nn.Module):
        super().__init__()
        self.f, self.g = f, g

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.f(x) + self.g(x))


class Padding(nn.Module):
    """Every `stride`-th place, with `more` channels of zeros about those that there are."""

    def __init__(self, stride: int, more: int):
        super().__init__()
        self.stride, self.before, self.behind = stride, more // 2, more - more // 2

    def forward(self, x: Tensor) -> Tensor:
        x = x[:, :, ::self.stride, ::self.stride]
        return F.pad(x, (0, 0, 0, 0, self.before, self.behind))


def padded_block(inside: int, outside: int, stride: int, norm: bool) -> Block:
    """f two 3 x 3 convolutions, g the identity. Of fewer channels or a stride x is sampled and padded with zeros."""
    f = nn.Sequential(
        nn.Conv2d(inside, outside, 3, stride, 1, bias=False), nn.BatchNorm2d(outside) if norm else nn.Identity(),
        nn.ReLU(),
        nn.Conv2d(outside, outside, 3, 1, 1, bias=False), nn.BatchNorm2d(outside) if norm else nn.Identity())
    return Block(f, nn.Identity() if stride == 1 and inside == outside else Padding(stride, outside - inside))


def projected_block(inside: int, outside: int, stride: int) -> Block:
    """f two 3 x 3 convolutions, g the identity, or a 1 x 1 convolution where shapes differ."""
    f = nn.Sequential(nn.Conv2d(inside, outside, 3, stride, 1, bias=False), nn.BatchNorm2d(outside), nn.ReLU(),
                      nn.Conv2d(outside, outside, 3, 1, 1, bias=False), nn.BatchNorm2d(outside))
    return Block(f, nn.Identity() if stride == 1 and inside == outside else nn.Sequential(
        nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)))


def net(input_shape: Sequence[int], classes: int, widths: Sequence[int], blocks: int, norm: bool, pool: int = 1,
        ) -> nn.Sequential:
    """A convolution, `blocks` blocks of each width, the first of later widths with stride 2, average pool to pool x
    pool, linear."""
    layers: list[nn.Module] = [nn.Conv2d(input_shape[0], widths[0], 3, 1, 1, bias=False),
                               nn.BatchNorm2d(widths[0]) if norm else nn.Identity(), nn.ReLU()]
    inside = widths[0]
    for place, width in enumerate(widths):
        for number in range(blocks):
            layers.append(padded_block(inside, width, 2 if place and not number else 1, norm))
            inside = width
    built = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(pool), nn.Flatten(),
                          nn.Linear(inside * pool**2, classes))
    _initialise(built, blocks * len(widths), norm)
    return built


def _initialise(built: nn.Sequential, branches: int, norm: bool) -> None:
    for layer in built.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    with torch.no_grad():
        for block in (layer for layer in built if isinstance(layer, Block) and not norm):
            first, last = (layer for layer in block.f if isinstance(layer, nn.Conv2d))
            first.weight.mul_(branches**-0.5)
            last.weight.zero_()


resnet20 = partial(net, widths=(16, 32, 64), blocks=3, norm=False)          # 268,346 parameters for 10 classes
resnet20_bn = partial(net, widths=(16, 32, 64), blocks=3, norm=True)        # 269,722
resnet56 = partial(net, widths=(16, 32, 64), blocks=9, norm=False)          # 848,954
resnet56_bn = partial(net, widths=(16, 32, 64), blocks=9, norm=True)        # 853,018
digits_residual = partial(net, widths=(8, 16), blocks=1, norm=False)        # 8 x 8: 4,850
mnist_residual = partial(net, widths=(8, 16), blocks=1, norm=False, pool=7)     # 28 x 28: 12,530
