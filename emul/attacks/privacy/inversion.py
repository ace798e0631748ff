"""Samples from a gradient: candidates whose gradient comes near the one that was seen.

    inverting   1 - cos(grad(x), g) + tv TV(x), signed gradients, Adam; Geiping et al., NeurIPS 2020, equation (4)
    dlg         |grad(x, y) - g|^2 / |g|^2, L-BFGS or Adam, labels found on the way; Zhu et al., NeurIPS 2019
    labels      of one sample: the one negative entry, Zhao et al. (iDLG), arXiv 2001.02610; of several: the most
                negative ones in turn, each taking its part off, Wainakh et al. (LLG), PoPETs 2022

Any model: a gradient is a function of samples and labels, `Predict`, that autograd can go through.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

Predict = Callable[[Tensor, Tensor], Tensor]        # (x (B, ...), y (B,) labels or (B, C) shares) -> (d,)
_DECAYS, _DECAY = (3 / 8, 5 / 8, 7 / 8), 0.1        # of the step, as in the code of Geiping et al.
_SMALL = 1e-30                                      # keeps a division by a vector of zeros finite


@dataclass(frozen=True)
class Search:
    """The settings of the search for candidates. tv: weight of the total variation of images, `inverting` alone. step:
    of Adam. low, high: what a sample's numbers may be, that broadcast over a batch."""

    by: Literal["inverting", "dlg"]
    optimiser: Literal["adam", "lbfgs"]
    iterations: int
    restarts: int
    step: float
    tv: float
    low: Tensor
    high: Tensor


@dataclass(frozen=True)
class Candidate:
    """The result of a search. y: labels (B,). distance: of its gradient to the one that was seen, without total
    variation."""

    x: Tensor
    y: Tensor
    distance: float


def invert(seen: Tensor, predict: Predict, shape: tuple[int, ...], labels: Tensor | None, classes: int, how: Search,
           rng: np.random.Generator) -> Candidate:
    """The nearest candidate of all restarts. seen: (d,) float64. shape: (B, ...) of the samples. labels: (B,); None:
    searched for, too, as shares of `classes`."""
    found = [_once(seen, predict, shape, labels, classes, how, rng) for _ in range(how.restarts)]
    return min(found, key=lambda one: one.distance)


def _once(seen: Tensor, predict: Predict, shape: tuple[int, ...], labels: Tensor | None, classes: int, how: Search,
          rng: np.random.Generator) -> Candidate:
    x = torch.from_numpy(rng.normal(size=shape)).clamp(how.low, how.high).requires_grad_()
    y = torch.from_numpy(rng.normal(size=(shape[0], classes))).requires_grad_() if labels is None else labels
    wanted = [x, y] if labels is None else [x]
    distance_of = cosine_distance if how.by == "inverting" else squared_distance
    best = Candidate(x.detach(), _labels(y), float("inf"))

    def judge() -> Tensor:
        nonlocal best
        given = torch.softmax(y, 1) if labels is None else labels
        distance = distance_of(predict(x, given), seen)
        if distance.item() < best.distance:
            best = Candidate(x.detach().clamp(how.low, how.high), _labels(y), distance.item())
        variation = how.tv * total_variation(x) if how.by == "inverting" and x.ndim == 4 else 0.0
        return distance + variation

    (_by_lbfgs if how.optimiser == "lbfgs" else _by_adam)(judge, wanted, how)
    return best


def _by_adam(judge: Callable[[], Tensor], wanted: list[Tensor], how: Search) -> None:
    optimiser = torch.optim.Adam(wanted, lr=how.step)
    plan = torch.optim.lr_scheduler.MultiStepLR(optimiser, [int(how.iterations * part) for part in _DECAYS], _DECAY)
    for _ in range(how.iterations):
        found = torch.autograd.grad(judge(), wanted, allow_unused=True)
        for one, gradient in zip(wanted, found, strict=True):
            one.grad = torch.zeros_like(one) if gradient is None else (
                gradient.sign() if how.by == "inverting" else gradient)
        optimiser.step()
        plan.step()
        with torch.no_grad():
            wanted[0].clamp_(how.low, how.high)


def _by_lbfgs(judge: Callable[[], Tensor], wanted: list[Tensor], how: Search) -> None:
    optimiser = torch.optim.LBFGS(wanted, max_iter=how.iterations, tolerance_grad=1e-14, tolerance_change=1e-18,
                                  line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        distance = judge()
        for one, gradient in zip(wanted, torch.autograd.grad(distance, wanted, allow_unused=True), strict=True):
            one.grad = torch.zeros_like(one) if gradient is None else gradient
        return distance

    optimiser.step(closure)


def _labels(y: Tensor) -> Tensor:
    return y if y.ndim == 1 else y.detach().argmax(1)


def cosine_distance(found: Tensor, seen: Tensor) -> Tensor:
    """1 - cos, whatever the two lengths are."""
    return 1 - (found @ seen) / (found.norm() * seen.norm()).clamp(min=_SMALL)


def squared_distance(found: Tensor, seen: Tensor) -> Tensor:
    """|found - seen|^2 / |seen|^2."""
    return (found - seen).square().sum() / seen.square().sum().clamp(min=_SMALL)


def total_variation(x: Tensor) -> Tensor:
    """Mean absolute difference of neighbouring pixels, of images (B, C, H, W).

    >>> total_variation(torch.tensor([[[[0.0, 1.0], [0.0, 1.0]]]])).item()
    1.0
    """
    return (x[..., 1:] - x[..., :-1]).abs().mean() + (x[..., 1:, :] - x[..., :-1, :]).abs().mean()


def labels_of(gradient: np.ndarray, count: int) -> np.ndarray:
    """(count,) labels, ascending, from the gradient (C,) of the last layer's bias, or sums over its weights' rows.

    Under cross entropy an entry is the mean of p_c - [c is the label]; of one sample that of its label alone is
    negative. Of several each label is taken for `impact` = (1 + 1 / C) / count times the sum of the negative ones.

    >>> labels_of(np.array([0.1, -0.8, 0.7]), 1), labels_of(np.array([-0.1, -0.9, 0.2]), 2)
    (array([1]), array([1, 1]))
    """
    left = np.array(gradient, np.float64)
    impact = (1 + 1 / len(left)) / count * np.minimum(left, 0).sum()
    found = []
    for _ in range(count):
        found.append(int(left.argmin()))
        left[found[-1]] -= impact
    return np.sort(np.array(found, np.int64))
