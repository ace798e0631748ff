"""Clusters that a server judges by references of its own: what RFCA does, in the clear or under masks.

    g0^c            what local training gives on part c of the root data, from model c
    step of c       eta * scale * norm_c * (the direction of cluster c, `emul.primitives.robust.rfca`)
    norm_c          |g0^c| (`g0`, as printed), a number, or that of a training on part c from the current model (`root`)

Li et al., AAAI-25, section 3 and Algorithm 2. g0 is made once from the first models, so that models that drift cannot
corrupt it (`init`), or every k rounds (`refresh`). Models differ before the first choice: each is drawn by a seed of
its own and has trained for some steps on its part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from emul.learning import NodeTask
from emul.primitives.robust.rfca import LEAST_WEIGHT, Weighting
from emul.protocols.clustered import best, starts
from emul.protocols.rounds import finite
from emul.roles import Node, World, checks

StepNorm = Literal["root", "g0"] | float
Refresh = Literal["init"] | dict[str, int]


@dataclass(frozen=True)
class Trusting:
    """Parameters of a scheme whose server judges clusters by references of its own."""

    clusters: int = 2                   # m
    weighting: Weighting = "joint"      # weights are divided by the sum of all, or of their cluster (not printed)
    rate: float = 1.0                   # eta, of the first round
    rate_decay: float = 0.0             # round r has eta / (1 + rate_decay (r - 1)); 0: the same in all rounds
    step_norm: StepNorm = "root"        # length of a step: of a training on root data, of g0 (the paper), or a number
    step_scale: float | None = None     # its factor; None: m for joint weights, else 1. The paper: 1
    reference: Refresh = "init"         # g0 is made once, or {refresh: k}, every k rounds
    parts: Literal["forced", "chosen"] = "forced"       # part c of the root data is of cluster c, or of its best model
    start_steps: int = 10               # on part c of the root data, before model c is first sent
    reference_steps: int | None = None  # T_s, of g0; none: as many as clients take
    root_steps: int | None = None       # T_l, of `step_norm: root`; none: as many as clients take
    least_weight: float = 1e-6          # W_min: where the sum of the weights is below it, nothing is moved
    fraction: float = 1.0               # of the clients, drawn each round

    @property
    def scale(self) -> float:
        """The factor of a step."""
        return self.step_scale if self.step_scale is not None else self.clusters if self.weighting == "joint" else 1.0

    def rate_of(self, round_: int) -> float:
        """eta of a round, which count from 1."""
        return self.rate / (1 + self.rate_decay * (round_ - 1))


@dataclass
class Clusters:
    """The state that the server keeps of them."""

    models: np.ndarray | None = None            # (m, l) float32; None: not made yet
    references: np.ndarray | None = None        # g0, (m, l) float64
    version: int = 0                            # times that the references have been made
    made: int = 0                               # in which round


async def prepare(node: Node, d: Trusting, s: Clusters, round_: int) -> tuple[np.ndarray, np.ndarray]:
    """(models, references) of this round, made if it is time to."""
    if s.models is None:
        s.models = await node.compute("start", starts, node.task, d.clusters, d.start_steps)
    every = d.reference["refresh"] if isinstance(d.reference, dict) else None
    if s.references is None or (every is not None and round_ >= s.made + every):
        s.references = await node.compute("reference", references, node.task, s.models, d)
        s.version, s.made = s.version + 1, round_
    return s.models, s.references


def references(task: NodeTask, models: np.ndarray, d: Trusting) -> np.ndarray:
    """g0, (m, l) float64: of each cluster the mean over the parts of the root data that are its own; else zeros."""
    m = d.clusters
    g0, parts = np.zeros(models.shape), np.zeros(m, np.int64)
    for c in range(m):
        j = c if d.parts == "forced" else int(np.argmin([task.loss(model, root=(c, m)) for model in models]))
        g0[j] += task.local_update(models[j], steps=d.reference_steps, root=(c, m))[0]
        parts[j] += 1
    return g0 / np.maximum(parts, 1)[:, None]


async def step_norms(node: Node, d: Trusting, s: Clusters) -> np.ndarray:
    """norm_c of each cluster, (m,)."""
    assert s.models is not None
    assert s.references is not None
    if d.step_norm == "root":
        found: np.ndarray = await node.compute("root", root_norms, node.task, s.models, d.root_steps)
        return found
    return np.linalg.norm(s.references, axis=1) if d.step_norm == "g0" else np.full(d.clusters, float(d.step_norm))


def root_norms(task: NodeTask, models: np.ndarray, steps: int | None) -> np.ndarray:
    """The distance that local training on part c moves model c, (m,)."""
    return np.array([np.linalg.norm(task.local_update(model, steps=steps, root=(c, len(models)))[0].astype(np.float64))
                     for c, model in enumerate(models)])


def moved(models: np.ndarray, directions: np.ndarray, norms: np.ndarray, totals: Sequence[float], d: Trusting,
          references: np.ndarray, round_: int) -> np.ndarray:
    """theta_c + eta * scale * norm_c * direction_c, (m, l) float32; where a direction is 0, bit for bit what it was.

    totals: W, of all or of each cluster; one that is too small moves nothing. references: g0, (m, l). round_: the one
    whose eta is taken. A cluster whose reference is zeros does not move either: nobody is trusted there, but what
    comes from behind masks is 1e-8, not 0.
    """
    enough = np.broadcast_to(np.asarray(totals) >= d.least_weight, len(models)) & references.any(axis=1)
    steps = np.where(enough, d.rate_of(round_) * d.scale * norms, 0.0)[:, None] * directions
    return finite((models + steps).astype(np.float32))


def chosen_update(task: NodeTask, models: np.ndarray) -> tuple[np.ndarray, int]:
    """(g, j): the client's choice, and what its training gives from there."""
    j = best(task, models)
    return task.local_update(models[j])[0], j


def tell(node: Node, s: Clusters, clients: list[int], weights: Mapping[int, float] | None, total: float,
         **values: float) -> None:
    """Report the models, W and, where they are known, the weights; and how many clusters have no reference, if any."""
    assert s.models is not None
    if s.references is not None and (without := int((~s.references.any(axis=1)).sum())):
        values["unreferenced"] = without
    if weights is not None:
        # under masks a weight of 0 comes out as 1e-7 or less
        node.judged(clients, [k for k in clients if weights[k] > LEAST_WEIGHT], weights)
        values["mean_weight"] = float(np.mean(list(weights.values()))) if weights else 0.0
    node.report(s.models.reshape(-1), evaluate=node.task.evaluate_best, W=total, **values)


def wrong_trust(d: Trusting, world: World) -> list[str]:
    """Mistakes in it, for a scheme's `check`."""
    errors = checks.at_least(1, "1 or more", clusters=d.clusters, reference_steps=d.reference_steps,
                             root_steps=d.root_steps)
    errors += checks.positive(rate=d.rate, step_scale=d.step_scale,
                              step_norm=None if isinstance(d.step_norm, str) else d.step_norm)
    errors += checks.not_negative(start_steps=d.start_steps, rate_decay=d.rate_decay)
    errors += checks.fractions(fraction=d.fraction)
    errors += checks.at_least(LEAST_WEIGHT, "1e-6 or more: less is rounding", least_weight=d.least_weight)
    if isinstance(d.reference, dict) and (set(d.reference) != {"refresh"} or d.reference["refresh"] < 1):
        errors.append(f"reference = {d.reference}: expected init or {{refresh: k}}, k of 1 or more rounds")
    samples = checks.root_samples(world.task)
    if samples < d.clusters:
        errors.append(f"clusters = {d.clusters}: needs root data at the server, a part for each: root of the task has "
                      f"{samples} samples")
    (_, value), = (world.task.get("clusters") or {"none": d.clusters}).items()
    there = len(value) if isinstance(value, list) else int(value)
    if there != d.clusters:                             # root data of a task with clusters are cut into those
        errors.append(f"clusters = {d.clusters}: the task's data have {there}")
    return errors


def doubtful_trust(d: Trusting) -> list[str]:
    """Settings that are allowed and may leave a cluster behind, for a scheme's `warn`."""
    return [] if d.parts == "forced" else [
        "parts = chosen: a cluster whose model no part of the root data prefers has no reference and stays as it is "
        "(rounds say `unreferenced`); forced gives it one"]
