"""The steps of `gradient_inversion` for each gradient that it has: a search, its labels, and how near it came."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

import numpy as np
import torch

from emul.attacks.privacy.inversion import Candidate, Search, cosine_distance, invert, labels_of
from emul.attacks.privacy.pixels import is_image, limits, matched, of_images, pixels, psnr
from emul.attacks.privacy.seen_gradients import SeenGradient
from emul.base.plain import PlainDict
from emul.learning.dataset import DataSet
from emul.roles.evidence import Evidence, Findings, NotKept, Picture

Array = np.ndarray
How = Callable[[DataSet], Search]       # the data says how large a sample's numbers may be
Labels = Literal["inferred", "known", "joint"]


def search(data: DataSet, by: Literal["inverting", "dlg"], optimiser: Literal["adam", "lbfgs"], iterations: int,
           restarts: int, step: float, tv: float) -> Search:
    """The settings of a search among samples that are as large as the data's can be."""
    low, high = (torch.from_numpy(level) for level in limits(data))
    return Search(by, optimiser, iterations, restarts, step, tv, low, high)


def reconstructed(seen: Iterable[SeenGradient], evidence: Evidence, how: How, labels: Labels) -> Findings:
    """A row each message, a picture each sample that is an image. Raises NotKept."""
    found = [_of(one, evidence, how, labels) for one in seen]
    return Findings([row for row, _ in found], [picture for _, pictures in found for picture in pictures])


def _of(seen: SeenGradient, evidence: Evidence, how: How, labels: Labels) -> tuple[PlainDict, list[Picture]]:
    data, truth = evidence.task.data, seen.work.truth
    y = _labels(seen, evidence, labels)
    found = invert(torch.from_numpy(seen.vector), seen.work.predict, tuple(truth.x.shape), y, data.classes, how(data),
                   evidence.rng("inversion", seen.node, seen.round))
    x = found.x.numpy()[matched(found.x.numpy(), truth.x.numpy())]
    row = {"node": seen.node, "round": seen.round, "samples": len(x), **judged(seen, found, x)}
    if not is_image(data):
        return row, []
    a, b = pixels(x, data), pixels(truth.x.numpy(), data)
    pictures = [Picture(f"{seen.node}, round {seen.round}: {psnr(a[i:i + 1], b[i:i + 1]):.1f} dB", b[i], a[i])
                for i in range(len(x))]
    return row | of_images(x, truth.x.numpy(), data), pictures


def _labels(seen: SeenGradient, evidence: Evidence, labels: Labels) -> torch.Tensor | None:
    if labels == "known":
        return seen.work.truth.y
    if not evidence.task.data.labelled:
        raise NotKept(f"{evidence.run.path}: labels: expected known, the task's targets are no labels of classes")
    if labels == "joint":
        return None
    return torch.from_numpy(labels_of(last_rows(evidence.task.named(seen.gradient)), len(seen.work.truth.y)))


def last_rows(named: dict[str, Array]) -> Array:
    """(C,): the last bias of a gradient, or, where weights come last, the sums of their rows; {name: part}."""
    last = list(named.values())[-1]
    return last if last.ndim == 1 else last.reshape(len(last), -1).sum(1)


def judged(seen: SeenGradient, found: Candidate, x: Array) -> dict[str, float]:
    """labels_right, test_mse, feat_mse, distance, seen_cosine. x: what was found, in the order of the truth."""
    work = seen.work
    true, y = work.truth.x, work.truth.y
    right = sum(min(int((found.y == c).sum()), int((y == c).sum())) for c in torch.unique(y)) / len(y)
    features = [work.task.penultimate(work.model, one).detach() for one in (torch.from_numpy(x), true)]
    cosine = 1 - cosine_distance(work.predict(true, y), torch.from_numpy(seen.vector)).item()
    return {"labels_right": right, "test_mse": float(np.square(x - true.numpy()).mean()),
            "feat_mse": float((features[0] - features[1]).square().mean()), "distance": found.distance,
            "seen_cosine": cosine}
