"""A learning task whose training is next to nothing, with 100,000 parameters: for what a scheme does with updates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import nn

FEATURES, CLASSES = 100, 1000


def drawn(spec: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """400 samples of 100 normal numbers in 1,000 classes."""
    rng = np.random.default_rng(7)
    x = rng.standard_normal((400, FEATURES)).astype(np.float32)
    y = np.append(rng.integers(0, CLASSES, 399), CLASSES - 1)
    return {"train_x": x, "train_y": y, "test_x": x[:10], "test_y": np.append(y[:9], CLASSES - 1)}


def flat(input_shape: tuple[int, ...], outputs: int) -> nn.Module:
    """One linear layer without a bias: 100 times 1,000 parameters."""
    return nn.Linear(FEATURES, outputs, bias=False)


DATA = {"drawn": drawn}
MODELS = {"flat": flat}
