"""For `--plugin`: the net of the accuracies of SAFA from a model trained before (docs/reproductions/others.md).

    emul export RUN --model safa_begun.safetensors      # beside this module
"""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import load_file
from torch import nn

from emul.learning.models import mnist_lenet

BEGUN = Path(__file__).with_suffix(".safetensors")


def mnist_begun(input_shape: tuple[int, ...], outputs: int) -> nn.Module:
    """`mnist_lenet` with the weights of the file."""
    model = mnist_lenet(input_shape, outputs)
    model.load_state_dict(load_file(BEGUN))
    return model


MODELS = {"mnist_begun": mnist_begun}
