"""One model for each cluster of clients: a client looks which one fits its data, and trains from it.

    client i    j_i = argmin_c loss(D_i; theta_c), ties to the lower c
                g_i = local training from theta_{j_i}, parameters after minus before

Ghosh et al., NeurIPS 2020 (IFCA), Algorithm 1, lines 5 to 8. The scheme defines what a client says of j_i, and how
updates are aggregated. Bytes of the arrays in a Models: 4 m d.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emul.learning import NodeTask
from emul.roles import Matrix, Message, Received, Vector


@dataclass(frozen=True)
class Models(Message):
    """Server to client."""

    parameters: Matrix              # theta_1 .. theta_m, (m, d) float32


MESSAGES = (Models,)


def starts(task: NodeTask, m: int, root_steps: int = 0) -> np.ndarray:
    """(m, d) float32: models that differ before the first choice. The first is the task's own, each other one is drawn
    by a seed of its own; where root_steps > 0, model c has then been trained so long on part c of the root data."""
    models = np.stack([task.initial_parameters(c) for c in range(m)])
    if root_steps:
        models = np.stack([model + task.local_update(model, steps=root_steps, root=(c, m))[0]
                           for c, model in enumerate(models)])
    return models.astype(np.float32)


def best(task: NodeTask, models: Sequence[Vector] | np.ndarray) -> int:
    """j: which of the models has the least loss on the node's training samples, or on as many of them as the scenario
    says (`task.choose_on`), always the same ones; ties go to the lower number. One model needs no look."""
    if len(models) == 1:
        return 0
    return int(np.argmin([task.loss(model, most=task.choose_on) for model in models]))


def honest_update(task: NodeTask, received: Received, j: int) -> tuple[Vector, int]:
    """`Scheme.honest` of a scheme whose clients choose among `Models`: (g_j, the cluster that it chose)."""
    models = received[Models].parameters
    chosen = best(task, models)
    return task.local_update(models[chosen])[0], chosen
