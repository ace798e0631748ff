"""Evaluation on the test set, whole and as each client would see it. Off-clock: no state, no stream changes.

A client's value is the expectation over test samples that follow the client's own training label distribution p:
sum_c p(c) * (value on the test samples of class c). That is the client's share of the test set under label skew,
without the noise of drawing one, and it costs one pass for all clients. Classes absent from the test set are left
out and p is renormalised.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from emul.base.streams import torch_stream
from emul.learning.data import DataSet
from emul.learning.parameters import FlatModule
from emul.learning.training import aligned, laid_out

_CHUNK = 250                        # test samples at once: what one layer of a convolution makes stays in the cache


@dataclass(frozen=True)
class Scores:
    """Sums over the test samples of each class, (C,) float64."""

    count: np.ndarray
    correct: np.ndarray
    loss: np.ndarray

    def overall(self) -> dict[str, float]:
        """Mean over all test samples; nan without any."""
        n = self.count.sum()
        if n == 0:
            return {"accuracy": float("nan"), "loss": float("nan")}
        return {"accuracy": float(self.correct.sum() / n), "loss": float(self.loss.sum() / n)}

    def under(self, distribution: np.ndarray) -> dict[str, float]:
        """Mean under a label distribution, (C,); nan if it has no class that the test set has."""
        p = np.where(self.count > 0, distribution, 0.0)
        if p.sum() == 0:
            return {"accuracy": float("nan"), "loss": float("nan")}
        held = np.flatnonzero(p)                # others may have an infinite or undefined loss: 0 * inf is nan
        p = p[held] / p.sum()
        return {"accuracy": float(p @ (self.correct[held] / self.count[held])),
                "loss": float(p @ (self.loss[held] / self.count[held]))}


def scores(model: FlatModule, vector: np.ndarray, data: DataSet) -> Scores:
    """Evaluate parameters `vector`, (d,), on the test set. The model is used as a place to compute only."""
    n = len(data.test_y)
    correct, loss = np.zeros(n), np.zeros(n)
    model.load(vector)
    was_training = model.module.training
    model.module.eval()
    try:
        with torch.no_grad():
            for start in range(0, n, _CHUNK):
                part = slice(start, start + _CHUNK)
                output = model.device.fetch(_forward(model, data, part))
                labels = torch.from_numpy(data.test_y[part].astype(np.int64))
                correct[part] = (output.argmax(1) == labels).numpy()
                loss[part] = cross_entropy(output, labels, reduction="none").numpy()
    finally:
        model.module.train(was_training)
    by_class = [np.bincount(data.test_y, weights=w, minlength=data.classes) for w in (np.ones(n), correct, loss)]
    return Scores(*by_class)


def _forward(model: FlatModule, data: DataSet, part: slice) -> torch.Tensor:
    x = aligned(data.inputs(data.test_x[part]))
    x = laid_out(x, len(x)).to(model.device.kind)
    if not model.draws:
        return model.module(x)
    with torch_stream(0, "evaluate", part.start):     # layers of users may draw even here: never from a node's stream
        return model.module(x)


def label_distribution(labels: np.ndarray, classes: int) -> np.ndarray:
    """Share of each class among the labels, (C,) float64; zeros without any label."""
    return np.bincount(labels, minlength=classes) / max(1, len(labels))


def spread(values: np.ndarray) -> dict[str, float]:
    """Mean, population standard deviation, least and largest of per-client values."""
    return {"mean": float(np.mean(values)), "std": float(np.std(values)),
            "min": float(np.min(values)), "max": float(np.max(values))}
