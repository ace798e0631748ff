"""The view that a server of a run has of the gradients of all clients of a round together: the step of its own model.

Single messages may be hidden by masks of pairs, a ring, encryption or a disguise. The server still ends a round with
the mean, and the noise that is in it:

    fedavg, secagg and what sends their messages    (w_t - w_t+1) / solver.lr, the weighted mean of the local steps
    dp_fedavg, mp_dp                                (w_t - w_t+1) / lr, the mean of clipped gradients
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from emul.attacks.privacy.seen_gradients import KINDS, SeenGradient, Work, descended, gradient_taken, undisguised
from emul.learning.objectives import Batch
from emul.roles.evidence import Evidence, answers

if TYPE_CHECKING:
    from emul.attacks.privacy.inversion import Predict

SUMS = (*KINDS, ("Begin", "Masked"))


def seen_sums(evidence: Evidence, round_: int | None) -> Iterator[SeenGradient]:
    """A vector for each round that was kept, or for this one alone. Raises NotKept."""
    heard: dict[int, tuple[Any, list[str]]] = {}
    for opening, one in answers(evidence, SUMS, round_=round_):
        heard.setdefault(one.round, (opening, []))[1].append(one.source_name)
    server = evidence.names[evidence.roles["server"][0]]
    for number, (opening, names) in heard.items():
        works = [_work(evidence, opening, name, number)
                 for name in sorted(names, key=evidence.shards.__getitem__)]
        after = evidence.model(server, number).vector().astype(np.float64)
        owner = evidence.params if _gradients(evidence, opening) else evidence.task.solver
        mean = (works[0].model - after) / float(owner.lr)
        yield SeenGradient(f"all {len(works)} clients", number, mean, mean,
                           together(works, _weights(evidence, opening, works)))


def _gradients(evidence: Evidence, opening: object) -> bool:
    """True if clients send gradients, which count alike and are stepped along by the server."""
    return hasattr(opening, "diagonals") or "Gradient" in evidence.run.summary["payloads"]


def _work(evidence: Evidence, opening: Any, name: str, round_: int) -> Work:
    if hasattr(opening, "diagonals"):
        return undisguised(evidence, opening, name, round_)
    start = (opening.model if hasattr(opening, "model") else opening.parameters).astype(np.float64)
    return (gradient_taken if _gradients(evidence, opening) else descended)(evidence, start, name, round_)


def _weights(evidence: Evidence, opening: object, works: Sequence[Work]) -> np.ndarray:
    """Of each client in the mean, (K,), of sum 1."""
    p = evidence.params
    alike = getattr(p, "mean_samples", None) is None if _gradients(evidence, opening) else (
        getattr(p, "weights", "samples") == "uniform")
    found = np.array([1 if alike else work.task.samples() for work in works], np.float64)
    return found / found.sum()


def together(works: Sequence[Work], weights: np.ndarray) -> Work:
    """The weighted mean of what they give: samples are those of all, one client's after another's."""
    def predict(x: Tensor, y: Tensor) -> Tensor:
        each = zip(weights, works, x.split(sizes), y.split(sizes), strict=True)
        return torch.stack([weight * work.predict(a, b) for weight, work, a, b in each]).sum(0)

    sizes = [len(work.truth.x) for work in works]
    found: Predict = predict
    truth = Batch(torch.cat([work.truth.x for work in works]), torch.cat([work.truth.y for work in works]))
    return Work(works[0].task, works[0].model, found, truth)
