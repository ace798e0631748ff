"""The view that a server of a run has of the gradients of single clients, and of all of them together.

    fedavg and what sends its messages      a difference of models, over minus the step: the sum of its steps' gradients
    dp_fedavg                               a clipped and noisy gradient
    mp_dp                                   blocks of a disguised model, which the server turns into a gradient of its
                                            own: it has the secrets. Words of a ring are read as what they are not:
                                            uniform noise. `clear`: Phi, the one block that has neither noise nor labels
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from emul.learning.objectives import Batch, CrossEntropy, Objective, Outputs, SquaredError
from emul.learning.solver import Sgd
from emul.primitives import ring
from emul.protocols.mp_dp.algebra import number_of_blocks, recovered
from emul.protocols.mp_dp.opening import drawn_secrets
from emul.protocols.rounds import Update
from emul.roles.evidence import Evidence, NotKept, Observed, answers

if TYPE_CHECKING:
    from emul.attacks.privacy.inversion import Predict
    from emul.learning import NodeTask
    from emul.learning.disguise import Disguise
    from emul.protocols.mp_dp.settings import Settings

Array = np.ndarray

KINDS = (("Model", "Update"), ("Model", "Gradient"), ("Disguised", "Blocks"), ("Disguised", "Masked"))


@dataclass(frozen=True)
class Work:
    """The training of a client in a round. model: where it began, (d,) float64, in the server's terms. predict: what
    samples would have given; of `truth`, the real ones, its gradient."""

    task: NodeTask
    model: Array
    predict: Predict
    truth: Batch


@dataclass(frozen=True)
class SeenGradient:
    """One vector that stands for the gradient of one client, or of several together, `node` in words.

    vector: (d,) float64, to be met by `work.predict`. gradient: (d,) of the server's own model, for its labels.
    """

    node: str
    round: int
    vector: Array
    gradient: Array
    work: Work


def seen_gradients(evidence: Evidence, clear: bool, node: str | None, round_: int | None) -> Iterator[SeenGradient]:
    """Every such vector that came to the server in rounds that were kept, in the order of sending. clear: Phi of mp_dp.
    node, round_: of these alone. Raises NotKept."""
    for opening, one in answers(evidence, KINDS, node, round_):
        of = disguised if hasattr(opening, "diagonals") else plain
        yield of(evidence, opening, one, clear)


# --- gradients and differences of models -----------------------------------------------------------------------------

def plain(evidence: Evidence, opening: Any, one: Observed, clear: bool) -> SeenGradient:
    """Of a difference of models or a gradient of the model that the server has sent. Raises NotKept."""
    if clear:
        raise NotKept(f"{evidence.run.path}: clear: only runs of mp_dp have blocks beside a gradient")
    message: Any = one.message
    start = opening.parameters.astype(np.float64)
    if isinstance(message, Update):
        work = descended(evidence, start, one.source_name, one.round)
        seen = -message.delta.astype(np.float64) / evidence.task.solver.lr
    else:
        work = gradient_taken(evidence, start, one.source_name, one.round)
        seen = message.gradient.astype(np.float64)
    return SeenGradient(one.source_name, one.round, seen, seen, work)


def descended(evidence: Evidence, start: Array, name: str, round_: int) -> Work:
    """Local steps of a client from the model that it got, (d,) float64. Raises NotKept with another solver than sgd."""
    solver = evidence.task.solver
    if not isinstance(solver, Sgd):
        raise NotKept(f"{evidence.run.path}: a difference of models is a gradient with the solver sgd alone")
    if solver.clip is not None or solver.schedule is not None or solver.keep:
        raise NotKept(f"{evidence.run.path}: expected sgd without clip, schedule and keep")
    node = evidence.node(name, round_)
    truth, plan = node.planned()
    return Work(node, start, of_steps(node, start, plan, solver, evidence.task.objective), in_float64(truth))


def gradient_taken(evidence: Evidence, start: Array, name: str, round_: int) -> Work:
    """One gradient of a client at the model that it got, (d,) float64."""
    node = evidence.node(name, round_)
    return Work(node, start, of_gradient(node, start, evidence.task.objective), in_float64(node.batch()))


def of_gradient(node: NodeTask, model: Array, objective: Objective) -> Predict:
    """The gradient of an objective at `model`, with the statistics of the batch, without dropout."""
    def predict(x: Tensor, y: Tensor) -> Tensor:
        return gradient_at(node, torch.from_numpy(model).requires_grad_(), Batch(x, y), objective)
    return predict


def of_steps(node: NodeTask, model: Array, plan: Sequence[Array], solver: Sgd, objective: Objective) -> Predict:
    """(w_before - w_after) / lr of local SGD, through all of its steps; plan: which samples each step takes."""
    def predict(x: Tensor, y: Tensor) -> Tensor:
        start = w = torch.from_numpy(model).requires_grad_()
        v = torch.zeros_like(start)
        for step in plan:
            g = gradient_at(node, w, Batch(x[step], y[step]), objective) + solver.weight_decay * w
            v = solver.momentum * v + g
            w = w - solver.lr * v
        return (start - w) / solver.lr
    return predict


def gradient_at(node: NodeTask, w: Tensor, batch: Batch, objective: Objective) -> Tensor:
    """(d,), differentiable by the batch."""
    outputs = node.forward(w, batch.x, training=not node.drops)
    loss = shared(objective, batch.y).of_all(outputs, batch)
    found, = torch.autograd.grad(loss, w, create_graph=True)
    return found


@dataclass(frozen=True, eq=False)
class SharedCrossEntropy(Objective):
    """Cross entropy to shares of classes, (B, C): labels that are still searched for."""

    def __call__(self, outputs: Outputs, batch: Batch, weights: Tensor) -> Tensor:
        return -(batch.y * torch.log_softmax(outputs.logits, 1)).sum(1)


def shared(objective: Objective, y: Tensor) -> Objective:
    """The objective as one of shares, where targets are such; a squared error is one already."""
    return SharedCrossEntropy() if y.ndim == 2 and isinstance(objective, CrossEntropy) else objective


def in_float64(batch: Batch) -> Batch:
    return Batch(batch.x.to(torch.float64), batch.y)


# --- blocks of a disguised model --------------------------------------------------------------------------------------

def disguised(evidence: Evidence, opening: object, one: Observed, clear: bool) -> SeenGradient:
    """Of what a client of mp_dp has sent. Raises NotKept with `clear` where no block is clear."""
    s: Settings = evidence.params.settled()
    work = undisguised(evidence, opening, one.source_name, one.round)
    disguise = work.task.disguise()
    blocks = blocks_of(one.message, s, disguise, len(evidence.roles["client"]))
    gradient = recovered(disguise, drawn_secrets(disguise, s, evidence.seed, one.round), blocks)
    gradient[disguise.trained:] = 0.0       # running statistics, which are no gradient of the loss
    seen = SeenGradient(one.source_name, one.round, gradient, gradient, work)
    if not clear:
        return seen
    if s.additive == "off" or s.masks == "ring":
        raise NotKept(f"{evidence.run.path}: clear: the blocks of preset {s.preset} are "
                      f"{'masked' if s.masks == 'ring' else 'not sent'}")
    return replace(seen, vector=blocks[-1], work=replace(work, predict=of_phi(work.task, opening, disguise)))


def undisguised(evidence: Evidence, opening: Any, name: str, round_: int) -> Work:
    """One gradient of a client of mp_dp, in the terms of the server, which has the secrets of the round."""
    s: Settings = evidence.params.settled()
    node = evidence.node(name, round_)
    disguise = node.disguise()
    model = disguise.undisguised(opening.parameters, drawn_secrets(disguise, s, evidence.seed, round_).secrets)
    objective = SquaredError(0.5, "sum") if s.loss == "squared" else evidence.task.objective
    return Work(node, model, of_gradient(node, model, objective), in_float64(node.batch()))


def blocks_of(message: Any, s: Settings, disguise: Disguise, clients: int) -> Array:
    """(S, d) float64 of a `Blocks` or `Masked`: numbers, or what words of the ring would be without their masks."""
    values = message.values if hasattr(message, "values") else message.y.view(s.word)
    if values.dtype.kind == "u":
        values = ring.decode(values, s.f(s.cohort(clients)))
    return values.astype(np.float64).reshape(number_of_blocks(s.additive, s.directions, disguise.outputs), -1)


def of_phi(node: NodeTask, opening: Any, disguise: Disguise) -> Predict:
    """Phi, the gradient of the mean of alpha^2 / 2 at the disguised model: of samples alone, without labels."""
    through = disguise.forward(opening.diagonals)
    hidden = opening.parameters.astype(np.float64)

    def predict(x: Tensor, y: Tensor) -> Tensor:
        w = torch.from_numpy(hidden).requires_grad_()
        given = node.forward(w, x, through=through)
        assert given.features is not None
        phi, = torch.autograd.grad(given.features.sum(1).square().mean() / 2, w, create_graph=True)
        return phi
    return predict


# --- all clients of a round together: the step of the server's own model ---------------------------------------------

# Single messages may be hidden by masks of pairs, a ring, encryption or a disguise. The server still ends a round with
# the mean, and the noise that is in it:
#
#     fedavg, secagg and what sends their messages    (w_t - w_t+1) / solver.lr, the weighted mean of the local steps
#     dp_fedavg, mp_dp                                (w_t - w_t+1) / lr, the mean of clipped gradients
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
        p, steps = evidence.params, not _gradients(evidence, opening)
        mean = (works[0].model - after) / float(evidence.task.solver.lr if steps else p.lr)
        alike = getattr(p, "weights", "samples") == "uniform" if steps else getattr(p, "mean_samples", None) is None
        weights = np.array([1 if alike else work.task.samples() for work in works], np.float64)
        yield SeenGradient(f"all {len(works)} clients", number, mean, mean, together(works, weights / weights.sum()))


def _gradients(evidence: Evidence, opening: object) -> bool:
    """True if clients send gradients, which count alike and are stepped along by the server."""
    return hasattr(opening, "diagonals") or "Gradient" in evidence.run.summary["payloads"]


def _work(evidence: Evidence, opening: Any, name: str, round_: int) -> Work:
    if hasattr(opening, "diagonals"):
        return undisguised(evidence, opening, name, round_)
    start = (opening.model if hasattr(opening, "model") else opening.parameters).astype(np.float64)
    return (gradient_taken if _gradients(evidence, opening) else descended)(evidence, start, name, round_)


def together(works: Sequence[Work], weights: np.ndarray) -> Work:
    """The weighted mean of what they give: samples are those of all, one client's after another's."""
    def predict(x: Tensor, y: Tensor) -> Tensor:
        each = zip(weights, works, x.split(sizes), y.split(sizes), strict=True)
        return torch.stack([weight * work.predict(a, b) for weight, work, a, b in each]).sum(0)

    sizes = [len(work.truth.x) for work in works]
    found: Predict = predict
    truth = Batch(torch.cat([work.truth.x for work in works]), torch.cat([work.truth.y for work in works]))
    return Work(works[0].task, works[0].model, found, truth)
