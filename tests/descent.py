"""Plain descent on the mean gradient, FedSGD, in float64: what schemes that sum gradients have to come to."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from emul.learning.disguise import BlockScalars
from emul.learning.node_task import NodeTask
from emul.learning.task import Task
from emul.scenario import loads


def fedsgd(text: str, rounds: int, *, gone: Mapping[int, Collection[int]] | None = None, lr: float = 0.1,
           mean_samples: float | None = None) -> list[np.ndarray]:
    """The models after each round, (d,) float64, on the batches that a scheme has in this scenario.

    The topology is a generator that says how many clients there are. The loss is half the squared distance to the
    one-hot target. gone: round -> clients, from 1, that are not heard. mean_samples: client k counts n_k over it; None:
    all count alike. Raises ScenarioError.
    """
    scenario = loads(text, "scenario")
    clients = scenario.topology.clients or 0
    task, now = Task(scenario.task, clients, scenario.seed), [0]
    nodes = {k: NodeTask(task, f"client{k}", k - 1, lambda: now[0]) for k in range(1, clients + 1)}
    model = task.initial_parameters(0).astype(np.float64)
    scalars, found = BlockScalars(None, nodes[1].disguise().outputs, False), []
    for now[0] in range(1, rounds + 1):
        heard = [node for k, node in nodes.items() if k not in (gone or {}).get(now[0], ())]
        own = [node.gradients(model, scalars) for node in heard]
        model = model - lr * np.mean([g[0] * (samples / mean_samples if mean_samples else 1) for g, samples in own], 0)
        found.append(model)
    return found
