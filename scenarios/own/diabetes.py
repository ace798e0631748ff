"""Regression: how a disease goes on after a year, by ten measures of a patient. Efron et al. 2004; scikit-learn has it.

`cd scenarios/own && emul run diabetes.yaml --plugin diabetes`. A client holds patients of one age (`by: decade`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.datasets import load_diabetes
from torch import Tensor, nn
from torch.nn.functional import huber_loss

from emul.learning.objectives import Batch, Objective, Outputs

TEST_EVERY = 5                      # each fifth patient is a test sample


def diabetes(spec: dict[str, Any]) -> dict[str, np.ndarray]:
    """Ten measures (n, 10) float32 and the target (n,) float32, of mean 0 and deviation 1; `decade` is of the age."""
    bunch = load_diabetes(scaled=False)
    test = np.arange(len(bunch.target)) % TEST_EVERY == 0
    x, y = ((v - v[~test].mean(0)) / v[~test].std(0) for v in (bunch.data, bunch.target))
    decade = np.clip(bunch.data[:, 0] // 10, 3, 6).astype(np.int64)         # below 40, 40s, 50s, 60 and above
    return {"train_x": x[~test], "train_y": y[~test], "train_decade": decade[~test],
            "test_x": x[test], "test_y": y[test], "test_decade": decade[test]}


@dataclass(frozen=True, eq=False)
class Huber(Objective):
    """Square where the model is off by less than delta, straight beyond. Huber 1964."""

    delta: float = 1.0

    def __call__(self, outputs: Outputs, batch: Batch, weights: Tensor) -> Tensor:
        return huber_loss(outputs.logits.reshape(batch.y.shape), batch.y, reduction="none", delta=self.delta)


DATA = {"diabetes": diabetes}
MODELS = {"linear": lambda input_shape, outputs: nn.Linear(input_shape[0], outputs)}
OBJECTIVES = {"huber": Huber}
