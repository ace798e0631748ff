"""`training: skip`: a task whose local trainings leave every model as it is, for studies of times and bytes alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from emul.learning.node_task import TaskError, Vector
from emul.learning.task import Task

if TYPE_CHECKING:
    from emul.learning.local import LocalTraining


class Untrained(Task):
    """Partition, numbers of samples and the first model are the task's; updates and the gradient of one batch are
    zeros, and nothing is evaluated.

    All that needs the arithmetic which is left out raises TaskError: losses, gradients of one's own scalars, features,
    prototypes.
    """

    skips = True

    def train(self, local: LocalTraining) -> Vector:
        return local.before.copy()

    def result(self, what: str, inputs: object, compute: Callable[[], list[np.ndarray]], *,
               on_clock: bool = True) -> list[np.ndarray]:
        raise TaskError(f"training: skip: {what} are not computed; this scheme needs training: run")
