"""Evaluation on the test set, whole and as each client would see it. Off-clock: no state, no stream changes.

A client's value is the expectation over test samples that follow the client's own training label distribution p:
sum_c p(c) * (value on the test samples of class c). That is the client's share of the test set under label skew,
without the noise of drawing one, and it costs one pass for all clients. Classes absent from the test set are left
out and p is renormalised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from emul.base.streams import key64, torch_stream
from emul.learning.dataset import DataSet, mapped
from emul.learning.objectives import CROSS_ENTROPY, Batch, Objective, Outputs, equal_weights
from emul.learning.parameters import FlatModule
from emul.learning.training import Samples, forward_of, laid_out

_CHUNK = 250                        # test samples at once: what one layer of a convolution makes stays in the cache


@dataclass(frozen=True)
class Scores:
    """Sums over the test samples of each class, (C,) float64; where targets are no labels, all are of one class."""

    count: np.ndarray
    sums: dict[str, np.ndarray]             # measure -> (C,): "loss", and "accuracy" where there is one

    def overall(self) -> dict[str, float]:
        """Mean over all test samples; nan without any."""
        n = self.count.sum()
        return {name: float(value.sum() / n) if n else float("nan") for name, value in self.sums.items()}

    def under(self, distribution: np.ndarray) -> dict[str, float]:
        """Mean under a label distribution, (C,); nan if it has no class that the test set has."""
        # This is the expectation over a test set that follows the labels of the client, and one pass serves all
        # clients. With strong skew the shares of a test set that is split get tiny
        # (`test_a_client_sees_the_test_set_through_its_own_labels`).
        p = np.where(self.count > 0, distribution, 0.0)
        if p.sum() == 0:
            return dict.fromkeys(self.sums, float("nan"))
        held = np.flatnonzero(p)                # others may have an infinite or undefined loss: 0 * inf is nan
        p = p[held] / p.sum()
        return {name: float(p @ (value[held] / self.count[held])) for name, value in self.sums.items()}


def scores(model: FlatModule, vector: np.ndarray, data: DataSet, objective: Objective = CROSS_ENTROPY) -> Scores:
    """Evaluate parameters `vector`, (d,), on the test set. The model is used as a place to compute only."""
    each = measured(model, vector, Samples(data.testing, np.arange(len(data.test_y))), objective)
    labels = data.test_y if data.labelled else np.zeros(len(data.test_y), np.int64)
    classes = data.classes if data.labelled else 1
    return Scores(np.bincount(labels, minlength=classes).astype(np.float64),
                  {name: np.bincount(labels, weights=value, minlength=classes) for name, value in each.items()})


def measured(model: FlatModule, vector: np.ndarray, samples: Samples, objective: Objective) -> dict[str, np.ndarray]:
    """Of each sample the loss, and what the objective measures beside it: {name: (n,) float64}, "loss" last."""
    own = objective.bound({name: torch.from_numpy(value) for name, value in objective.arrays().items()})
    found: dict[str, list[np.ndarray]] = {}
    for outputs, batch in passes(model, vector, samples, objective.on_features, objective.linear):
        for name, value in own.metrics(outputs, batch).items():
            found.setdefault(name, []).append(value.double().numpy())
        found.setdefault("loss", []).append(own(outputs, batch, equal_weights(batch.y)).double().numpy())
    names = sorted(found, key=lambda name: name == "loss") or ["loss"]
    return {name: np.concatenate([np.zeros(0), *found.get(name, [])]) for name in names}


def features(model: FlatModule, vector: np.ndarray, samples: Samples) -> np.ndarray:
    """C of each sample, (n, f) float32, dropout off."""
    found = [outputs.features.numpy() for outputs, _ in passes(model, vector, samples, True)]     # type: ignore
    return np.concatenate(found) if found else np.zeros((0, 0), np.float32)


def passes(model: FlatModule, vector: np.ndarray, samples: Samples, on_features: bool = False, linear: bool = False,
           ) -> Iterator[tuple[Outputs, Batch]]:
    """Forward passes over the samples, in their order and without gradients, dropout off: all on the CPU."""
    model.load(vector)
    forward, fetch = forward_of(model, on_features, linear), model.device.fetch
    was_training = model.module.training
    model.module.eval()
    try:
        for start in range(0, len(samples), _CHUNK):
            batch = samples.take(np.arange(start, min(start + _CHUNK, len(samples))))
            with torch.no_grad():
                outputs = _forward(model, forward, batch.x, len(batch.y), start)
                found = Outputs(fetch(outputs.logits), None if outputs.features is None else fetch(outputs.features),
                                partial(_again, model, forward))
                yield found, batch
    finally:
        model.module.train(was_training)


def _forward(model: FlatModule, forward: Callable[[object], Outputs], x: Any, n: int, start: int) -> Outputs:
    x = mapped(lambda part: part.to(model.device.kind), laid_out(x, n))
    if not model.draws:
        return forward(x)
    # layers of users may draw even here: never from a node's stream, nor from what a GPU drew last
    with torch_stream(0, "evaluate", start), model.device.seeded(key64(0, "evaluate", start)):
        return forward(x)


def _again(model: FlatModule, forward: Callable[[Any], Outputs], x: Any) -> Outputs:
    """Another pass of the same model, for objectives with `alone`: from the CPU to the CPU, differentiable."""
    outputs = forward(mapped(lambda part: part.to(model.device.kind), x))
    return Outputs(outputs.logits.cpu(), None if outputs.features is None else outputs.features.cpu(),
                   partial(_again, model, forward))


def label_distribution(labels: np.ndarray, classes: int) -> np.ndarray:
    """Share of each class among the labels, (C,) float64; zeros without any label."""
    return np.bincount(labels, minlength=classes) / max(1, len(labels))


def spread(values: np.ndarray) -> dict[str, float]:
    """Mean, population standard deviation, least and largest of per-client values."""
    return {"mean": float(np.mean(values)), "std": float(np.std(values)),
            "min": float(np.min(values)), "max": float(np.max(values))}
