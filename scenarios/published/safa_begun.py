"""For `--plugin`: the net of the accuracies of SAFA from a model trained before (docs/reproductions/others.md).

    emul export RUN --model safa_begun.safetensors      # beside this module
"""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor, nn

from emul.learning.models import mnist_lenet

BEGUN = Path(__file__).with_suffix(".safetensors")


def mnist_begun(input_shape: tuple[int, ...], outputs: int) -> nn.Module:
    """`mnist_lenet` with the weights of the file."""
    model = mnist_lenet(input_shape, outputs)
    model.load_state_dict(load_file(BEGUN))
    return model


class Strided(nn.Sequential):
    """Takes images of one channel as if channels came last, which is the same memory: torch then has a convolution for
    batches of 40 that takes 12 ms a step in place of 18 (one core of an AMD EPYC), and other last bits."""

    def forward(self, x: Tensor) -> Tensor:
        _, _, height, width = x.shape
        return super().forward(x.contiguous().as_strided(x.shape, (height * width, 1, width, 1)))


def mnist_begun_strided(input_shape: tuple[int, ...], outputs: int) -> nn.Module:
    """The same net for long runs."""
    return Strided(*mnist_begun(input_shape, outputs))


MODELS = {"mnist_begun": mnist_begun, "mnist_begun_strided": mnist_begun_strided}
