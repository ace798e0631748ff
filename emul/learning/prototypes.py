"""Class prototypes: mean pooled features, the losses that draw features to them, and how well they tell classes apart.

C (B, n) is the output of a model's representation, p = pool(C) (B, n'), P^j the mean of p over the samples of class j.
The decision works on C, never on p.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from emul.learning.data import DataSet
from emul.learning.device import Device
from emul.learning.parameters import FlatModule
from emul.learning.pooling import Pool
from emul.learning.training import Loss, Samples, aligned, laid_out

LOSSES = ("l2_sum", "l2_mean", "mse")
_EPS = 1e-12                            # keeps the gradient of a distance finite at 0
_CHUNK = 500


@dataclass(frozen=True, eq=False)
class Pull:
    """A term of the loss that draws pooled features to the global prototypes of their classes."""

    means: Mapping[int, np.ndarray]     # {class: G^j (n',)}
    weight: float
    kind: str                           # of LOSSES
    pool: Pool

    def __bool__(self) -> bool:
        """Whether there is anything to be drawn to."""
        return bool(self.means) and bool(self.weight)


def _parts(model: FlatModule) -> tuple[nn.Sequential, nn.Sequential]:
    """(representation, decision), of the same modules."""
    module: Any = model.module
    return module[:module.features_at], module[module.features_at:]


def places(model: FlatModule, name: str) -> np.ndarray:
    """Where "representation", "decision" or "convolutions" lie in the vector: (p,) int64, ascending; buffers, too."""
    module: Any = model.module
    cut = module.features_at if name in ("representation", "decision") else module.convolutions_at
    front = {id(t) for part in module[:cut] for t in (*part.parameters(), *part.buffers())}
    parameters = list(module.parameters())
    order = [*(p for p in parameters if p.requires_grad), *(p for p in parameters if not p.requires_grad),
             *module.buffers()]
    found, at = [], 0
    for tensor in order:
        if (id(tensor) in front) != (name == "decision"):
            found.append(np.arange(at, at + tensor.numel()))
        at += tensor.numel()
    assert at == model.dimension, "a buffer that is not part of the state"
    return np.concatenate(found)


def loss(model: FlatModule, pull: Pull) -> Loss | None:
    """cross entropy + weight * distance of the pooled features to the global prototypes of their classes.

        l2_sum      sum over the classes j of the batch that have a G^j of the mean over its samples of
                    sqrt(|p - G^j|^2 + eps)
        l2_mean     the same over the number of those classes
        mse         mean over the samples that have one and over coordinates of (p - G^j)^2

    Yan et al., arXiv 2401.07558, equations 9 and 10; mse: the public code of FedProto. None: cross entropy alone.
    """
    if not pull:
        return None
    means, weight, kind, pool = pull.means, pull.weight, pull.kind, pull.pool
    known = sorted(means)
    device = model.device
    table = device.put(np.stack([np.asarray(means[j], np.float32) for j in known]))            # (J', n')
    place = np.full(max(known) + 1, -1)
    place[known] = np.arange(len(known))
    representation, decision = _parts(model)

    def of_batch(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        c = representation(x)
        total = cross_entropy(decision(c), y)
        labels = device.fetch(y).numpy()
        row = np.where(labels < len(place), place[np.minimum(labels, len(place) - 1)], -1)
        mine = np.flatnonzero(row >= 0)
        if not len(mine):
            return total
        row, p = row[mine], pool(c)
        off = (p if len(mine) == len(p) else p[device.put(mine)]) - table[device.put(row)]                  # (b, n')
        if kind == "mse":
            return total + weight * (off**2).mean()
        distance = torch.sqrt((off**2).sum(1) + _EPS)
        count = np.bincount(row, minlength=len(known))
        share = weight / count[row] / (1 if kind == "l2_sum" else np.count_nonzero(count))  # of a sample in its class
        return total + distance @ device.put(share.astype(np.float32))

    return of_batch


class Pulls:
    """The terms that `loss` adds, of many clients at once: their weights, kinds and pools are the same."""

    def __init__(self, each: Sequence[Pull], device: Device):
        self._device = device
        self._weight, self._kind, self._pool = each[0].weight, each[0].kind, each[0].pool
        size = np.shape(next(iter(each[0].means.values())))
        self._table = np.zeros((len(each), 1 + max(max(pull.means) for pull in each), *size), np.float32)  # (G, J, n')
        self._known = np.zeros(self._table.shape[:2], bool)
        for i, pull in enumerate(each):
            for j, mean in pull.means.items():
                self._table[i, j], self._known[i, j] = mean, True

    def __call__(self, c: torch.Tensor, labels: np.ndarray, sizes: np.ndarray) -> torch.Tensor:
        """Sum over the first g clients. c: (g, B, n), labels: (g, B), of which sizes[i] samples of client i count."""
        client, row = np.arange(len(c))[:, None], np.minimum(labels, self._table.shape[1] - 1)
        mine = (row == labels) & self._known[client, row] & (np.arange(c.shape[1]) < sizes[:, None])
        off = self._pool(c.flatten(0, 1)).view(*c.shape[:2], -1) - self._device.put(self._table[client, row])
        square = (off**2).sum(2)                                                            # (g, B)
        if self._kind == "mse":
            share = self._weight / (np.maximum(mine.sum(1, keepdims=True), 1) * off.shape[2])
        else:
            square = torch.sqrt(square + _EPS)
            count = np.zeros(self._known.shape)
            np.add.at(count, (client, row), mine)
            share = self._weight / np.maximum(count[client, row], 1)
            if self._kind == "l2_mean":
                share = share / np.maximum(np.count_nonzero(count[: len(c)], axis=1), 1)[:, None]
        return (square * self._device.put((mine * share).astype(np.float32))).sum()


def _pooled(model: FlatModule, x: np.ndarray, data: DataSet, pool: Pool) -> np.ndarray:
    """Pooled features of raw inputs, (len(x), n') float32, dropout off."""
    representation, _ = _parts(model)
    was_training = model.module.training
    model.module.eval()
    parts = []
    try:
        with torch.no_grad():
            for i in range(0, len(x), _CHUNK):
                inputs = aligned(data.inputs(x[i:i + _CHUNK]))
                features = representation(laid_out(inputs, len(inputs)).to(model.device.kind))
                parts.append(model.device.fetch(pool(features)).numpy())
    finally:
        model.module.train(was_training)
    return np.concatenate(parts)


def of_samples(model: FlatModule, samples: Samples, pool: Pool) -> tuple[dict[int, np.ndarray], dict[int, int]]:
    """({class: P (n',) float32}, {class: samples}) over all samples of a node; ({}, {}) without any."""
    if not len(samples):
        return {}, {}
    labels = samples.data.train_y[samples.indices]
    p = _pooled(model, samples.data.train_x[samples.indices], samples.data, pool)
    held = np.unique(labels).tolist()
    return ({j: p[labels == j].mean(0, dtype=np.float64).astype(np.float32) for j in held},
            {j: int((labels == j).sum()) for j in held})


def nearest(model: FlatModule, data: DataSet, means: Mapping[int, np.ndarray], pool: Pool,
            among: set[int]) -> dict[str, float]:
    """{"accuracy"} on the test samples of `data` whose class is in `among`, by the nearest of their prototypes.

    Ties go to the lower class; {} where there is no prototype or no sample.
    """
    known = [j for j in sorted(means) if j in among]
    chosen = np.flatnonzero(np.isin(data.test_y, sorted(among)))
    if not known or not len(chosen):
        return {}
    p = _pooled(model, data.test_x[chosen], data, pool)
    table = np.stack([np.asarray(means[j], np.float32) for j in known])
    distance = ((p[:, None, :] - table[None]) ** 2).sum(2)                      # (m, J')
    return {"accuracy": float((np.array(known)[distance.argmin(1)] == data.test_y[chosen]).mean())}


def quality(prototypes: Mapping[int, Mapping[int, np.ndarray]]) -> dict[str, float]:
    """{"silhouette", "failure_rate"} of what clients have sent, {client: {class: (n',)}}.

    silhouette: mean over the prototypes of (b - a) / max(a, b), a = mean distance to the others of the same class, b =
    least mean distance to another class; those alone in their class count 0 (Rousseeuw 1987). failure_rate: the share
    of the prototypes that lie nearer to the mean prototype of another class than to that of their own. {} without two
    classes, or where a value is not finite.
    """
    points = [(j, np.asarray(v, np.float64)) for _, own in sorted(prototypes.items()) for j, v in sorted(own.items())]
    labels = np.array([j for j, _ in points])
    known = np.unique(labels)
    if len(known) < 2:
        return {}
    x = np.stack([v for _, v in points])                                        # (m, n')
    if not np.isfinite(x).all():
        return {}
    distance = np.sqrt(((x[:, None] - x[None]) ** 2).sum(2))                    # (m, m)
    member = labels[:, None] == known[None]                                     # (m, J)
    count = member.sum(0)
    total = distance @ member
    own = np.searchsorted(known, labels)
    rows = np.arange(len(x))
    a = total[rows, own] / np.maximum(count[own] - 1, 1)
    other = total / count
    other[rows, own] = np.inf
    b = other.min(1)
    score = np.where(count[own] > 1, (b - a) / np.maximum(np.maximum(a, b), 1e-300), 0.0)
    centre = (member.T @ x) / count[:, None]
    to_centre = ((x[:, None] - centre[None]) ** 2).sum(2)
    return {"silhouette": float(score.mean()), "failure_rate": float((to_centre.argmin(1) != own).mean())}
