"""Class prototypes: mean pooled features, and how well they tell classes apart.

C (B, n) is the output of a model's representation, p = pool(C) (B, n'), P^j the mean of p over the samples of class j.
The decision works on C, never on p.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from emul.learning.dataset import DataSet, mapped
from emul.learning.parameters import FlatModule, parts
from emul.learning.pooling import Pooling
from emul.learning.training import Samples, laid_out

_CHUNK = 500


def coordinates(model: FlatModule, name: str) -> np.ndarray:
    """Coordinates of "representation", "decision" or "convolutions" in the vector: (p,) int64, ascending; with
    buffers."""
    module: Any = model.module
    cut = module.features_at if name in ("representation", "decision") else module.convolutions_at
    front = {id(t) for part in module[:cut] for t in (*part.parameters(), *part.buffers())}
    chosen = [np.arange(place.start, place.stop) for tensor, place in model.slices
              if (id(tensor) in front) != (name == "decision")]
    return np.concatenate([np.empty(0, np.int64), *chosen])


def _pooled(model: FlatModule, samples: Samples, pool: Pooling, linear: bool = False) -> np.ndarray:
    """Pooled features of samples, (n, n') float32, dropout off. linear: before the last activation."""
    representation, _ = parts(model.module, linear)
    was_training = model.module.training
    model.module.eval()
    found = []
    try:
        with torch.no_grad():
            for i in range(0, len(samples), _CHUNK):
                x, y = samples.take(np.arange(i, min(i + _CHUNK, len(samples))))
                features = representation(mapped(lambda part: part.to(model.device.kind), laid_out(x, len(y))))
                found.append(model.device.fetch(pool(features)).numpy())
    finally:
        model.module.train(was_training)
    return np.concatenate(found)


def of_samples(model: FlatModule, samples: Samples, pool: Pooling, linear: bool = False,
               ) -> tuple[dict[int, np.ndarray], dict[int, int]]:
    """({class: P (n',) float32}, {class: samples}) over all samples of a node; ({}, {}) without any. linear: of
    features before the last activation."""
    if not len(samples):
        return {}, {}
    labels = samples.data.train_y[samples.indices]
    p = _pooled(model, samples, pool, linear)
    held = np.unique(labels).tolist()
    return ({j: p[labels == j].mean(0, dtype=np.float64).astype(np.float32) for j in held},
            {j: int((labels == j).sum()) for j in held})


def directions(means: Mapping[int, np.ndarray], least: float = 1e-6) -> dict[int, np.ndarray]:
    """{class: P / |P| (n',) float64}, without those shorter than `least`; what is not finite stays as it is."""
    found = {}
    for j, mean in means.items():
        wide = np.asarray(mean, np.float64)
        length = float(np.linalg.norm(wide))
        if not length < least:
            found[j] = wide / length if np.isfinite(length) else wide
    return found


def nearest(model: FlatModule, data: DataSet, means: Mapping[int, np.ndarray], pool: Pooling,
            among: set[int]) -> dict[str, float]:
    """{"accuracy"} on the test samples of `data` whose class is in `among`, by the nearest of their prototypes.

    Ties go to the lower class; {} where there is no prototype or no sample.
    """
    known = [j for j in sorted(means) if j in among]
    chosen = np.flatnonzero(np.isin(data.test_y, sorted(among)))
    if not known or not len(chosen):
        return {}
    p = _pooled(model, Samples(data.testing, chosen), pool)
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
