"""The learning task of a run, one a worker process; what a node sees of it is `emul.learning.node_task`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from emul.learning.node_task import NodeTask
from emul.learning.task_parts import TaskError, Vector
from emul.learning.trainer import Trainer

if TYPE_CHECKING:
    from emul.learning.attack import Attack
    from emul.learning.local import LocalTraining


class Task(Trainer):
    """Its parts and their trainings (`TaskParts`, `Trainer`), and a view of them for each node."""

    def for_node(self, name: str, client: int | None, round_of: Callable[[], int],
                 attack: Attack | None = None) -> NodeTask:
        """The task as the role of node `name` sees it. client: its number among the clients, None if it is none of
        them.

        round_of: gives the node's present round. attack: what the node does with what it learns; None: nothing.
        """
        if client is not None:
            self._require(client)
        return NodeTask(self, name, client, round_of, attack)


class Untrained(Task):
    """`training: skip`: a task whose local trainings leave every model as it is, for studies of times and bytes alone.

    Partition, numbers of samples and the first model are the task's; updates and the gradient of one batch are zeros,
    and nothing is evaluated. All that needs the arithmetic which is left out raises TaskError: losses, gradients of
    one's own scalars, features, prototypes.
    """

    skips = True

    def train(self, local: LocalTraining) -> Vector:
        return local.before.copy()

    def result(self, what: str, inputs: object, compute: Callable[[], list[np.ndarray]], *,
               on_clock: bool = True) -> list[np.ndarray]:
        raise TaskError(f"training: skip: {what} are not computed; this scheme needs training: run")
