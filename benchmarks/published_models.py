"""The nets of published training times, for images of 224 x 224 and 1,000 classes: as their papers have them.

VGG-16 (Simonyan and Zisserman, ICLR 2015, table 1, D), ResNets (He et al., CVPR 2016, table 1, stride in the 3 x 3
layer) and ViTs of patches of 16 (Dosovitskiy et al., ICLR 2021; tiny and small: Touvron et al., ICML 2021). They are
made to be counted: weights are torch's own, nothing is trained with them.
"""

from __future__ import annotations

import torch
from torch import nn

FINE_TUNED = " head alone"              # behind a name: all but the last linear layer is frozen


def make(name: str) -> nn.Module:
    """The net of a name such as `resnet50`, or `vit_tiny head alone`. Raises KeyError."""
    net = _NETS[name.removesuffix(FINE_TUNED)]()
    if name.endswith(FINE_TUNED):
        net.requires_grad_(False)
        [part for part in net.modules() if isinstance(part, nn.Linear)][-1].requires_grad_(True)
    return net


def vgg16() -> nn.Module:
    """13 convolutions and 3 linear layers, 138 million parameters."""
    layers: list[nn.Module] = []
    channels = 3
    for width, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True)]
            channels = width
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(25088, 4096), nn.ReLU(inplace=True), nn.Linear(4096, 4096),
                         nn.ReLU(inplace=True), nn.Linear(4096, 1000))


class Residual(nn.Module):
    """x -> ReLU(body(x) + short(x))."""

    def __init__(self, inside: int, width: int, outside: int, stride: int):
        super().__init__()
        self.body = nn.Sequential(*_normed(inside, width, 3, stride), nn.ReLU(inplace=True), *_normed(
            width, outside, 3)) if width == outside else nn.Sequential(
            *_normed(inside, width, 1), nn.ReLU(inplace=True), *_normed(width, width, 3, stride), nn.ReLU(inplace=True),
            *_normed(width, outside, 1))
        self.short = nn.Identity() if (inside, stride) == (outside, 1) else nn.Sequential(
            *_normed(inside, outside, 1, stride))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(b, inside, h, w) -> (b, outside, h / stride, w / stride)."""
        return torch.relu(self.body(x) + self.short(x))


def _normed(inside: int, outside: int, kernel: int, stride: int = 1) -> tuple[nn.Module, nn.Module]:
    return nn.Conv2d(inside, outside, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outside)


def resnet(counts: tuple[int, int, int, int], expansion: int) -> nn.Module:
    """expansion: 1 for blocks of two layers, 4 for bottlenecks of three."""
    layers: list[nn.Module] = [*_normed(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for stage, count in enumerate(counts):
        width = 64 << stage
        for block in range(count):
            layers.append(Residual(channels, width, width * expansion, 2 if stage and not block else 1))
            channels = width * expansion
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))


class Vit(nn.Module):
    """196 patches of 16 x 16 and a class token through 12 blocks of attention."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.token, self.places = nn.Parameter(torch.zeros(1, 1, width)), nn.Parameter(torch.zeros(1, 197, width))
        self.blocks = nn.Sequential(*(nn.TransformerEncoderLayer(
            width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True) for _ in range(12)))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 1000))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(b, 3, 224, 224) -> (b, 1000)."""
        patches = self.patches(x).flatten(2).transpose(1, 2)
        found: torch.Tensor = self.head(self.blocks(
            torch.cat([self.token.expand(len(x), 1, -1), patches], 1) + self.places)[:, 0])
        return found


_NETS = {
    "vgg16": vgg16,
    "resnet18": lambda: resnet((2, 2, 2, 2), 1), "resnet34": lambda: resnet((3, 4, 6, 3), 1),
    "resnet50": lambda: resnet((3, 4, 6, 3), 4), "resnet152": lambda: resnet((3, 8, 36, 3), 4),
    "vit_tiny": lambda: Vit(192, 3), "vit_small": lambda: Vit(384, 6),
}
