"""For `--plugin`: Boston housing as the program of SAFA's authors has it (docs/reproductions/others.md).

The table of Harrison and Rubinfeld (1978), 506 rows, is the file boston_housing.csv in $EMUL_DATA. Each column runs
from 0 to 1; the first 12 are inputs, the last is the target, the first 70 % of the rows are training samples.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from emul.learning.objectives import Batch, Outputs, SquaredError

INPUTS, TRAINING, LEAST = 12, 0.7, 14       # LEAST: samples of the smallest client; with fewer all is drawn again


def boston(spec: dict[str, Any]) -> dict[str, np.ndarray]:
    """Inputs (506, 12) and targets (506,), float32 in [0, 1]."""
    rows = np.loadtxt(Path(os.environ["EMUL_DATA"]) / "boston_housing.csv", delimiter=",", skiprows=1)
    low, high = rows.min(axis=0), rows.max(axis=0)
    rows = ((rows - low) / (high - low)).astype(np.float32)
    train, test = np.split(rows, [int(TRAINING * len(rows))])
    return {"train_x": train[:, :INPUTS], "train_y": train[:, -1], "test_x": test[:, :INPUTS], "test_y": test[:, -1]}


def blocks(targets: np.ndarray, columns: Mapping[str, np.ndarray], clients: int, deviation: float,
           rng: np.random.Generator) -> list[np.ndarray]:
    """Rows as they stand, one block a client, whose sizes are N(mean, deviation * mean)."""
    while True:
        sizes = rng.normal(1.0, deviation, clients)
        sizes *= len(targets) / sizes.sum()
        if sizes.min() >= LEAST:
            return np.split(np.arange(len(targets)), np.cumsum(sizes)[:-1].astype(int))


@dataclass(frozen=True, eq=False)
class Relative(SquaredError):
    """The squared error, with their accuracy: 1 - |y - f(x)| / max(y, f(x)), the mean over the samples. With `square`
    the accuracy is 1 less the loss, so that a table of accuracies holds the best loss."""

    square: bool = False

    def metrics(self, outputs: Outputs, batch: Batch) -> dict[str, Tensor]:
        found = outputs.logits.reshape(batch.y.shape)
        off = (batch.y - found).double()
        return {"accuracy": 1 - (off**2 if self.square else off.abs() / torch.maximum(found, batch.y))}


def zero(input_shape: tuple[int, ...], outputs: int) -> nn.Module:
    """A linear model that begins with 0."""
    model = nn.Linear(input_shape[0], outputs)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    return model


DATA = {"boston": boston}
PARTITIONS = {"blocks": blocks}
MODELS = {"zero": zero}
OBJECTIVES = {"relative": Relative}
