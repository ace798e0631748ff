"""Reported models are evaluated off the clock: as the scenario says, or as the node that reported asked for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from emul.base.errors import RoleError
from emul.message.wire import Vector
from emul.roles.evaluation import ASKED, Evaluate, of_all, trained_and_received
from emul.roles.events import Observation
from emul.workers.attacking import Attacking

if TYPE_CHECKING:
    from emul.learning import Task

BY_SCENARIO = "scenario"


class Evaluations:
    """The models that one worker's nodes have reported, until they are evaluated.

    every: rounds between two evaluations; 0: none is. scope: "global" or "per_client". of: what the scheme says that
    its accuracy is of. shard: a node's number among those that hold data, or None.
    """

    def __init__(self, task: Task | None, attacking: Attacking | None, every: int, scope: str, of: str,
                 shard: Callable[[int], int | None]):
        self._task, self._attacking, self._every, self._scope, self._shard = task, attacking, every, scope, shard
        self._of = of
        self._waiting: deque[tuple[int, int, Vector, Evaluate | None]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def reported(self, node: int, round: int, parameters: Vector, evaluate: Evaluate | None) -> Vector:
        """A copy of the parameters, which is evaluated later if its round is. Raises RoleError."""
        vector = np.array(parameters, dtype=np.float32, order="C")
        if evaluate is None and self._task is not None and vector.shape != (self._task.dimension,):
            raise RoleError(f"report(parameters=...) of shape {vector.shape}: the model's is ({self._task.dimension},)")
        function, _, method = how(evaluate).rpartition(" ")
        found = ASKED.get(method) if function != of_all.__name__ else None
        if found not in (None, self._of):
            raise RoleError(f"report(evaluate=node.task.{method}): this accuracy is {found} and the scheme says "
                            f'{self._of}: expected Scheme(..., accuracy="{found}")')
        every = self._every
        if (self._task is not None or evaluate is not None) and every and round % every == 0:
            self._waiting.append((node, round, vector, evaluate))
        return vector

    def next(self) -> Observation:
        """Evaluate what was reported first."""
        # Only the scheme knows how a personal model is evaluated: on the client's samples, by its own network, or by
        # prototypes. So `Node.report` brings the function, and no scope in the scenario says it, which schemes of both
        # kinds share (`test_the_accuracy_of_a_run_is_the_mean_of_the_clients_own_models_without_poisoned_ones`).
        node, round, vector, evaluate = self._waiting.popleft()
        task, attacking, values = self._task, self._attacking, {}
        success = {} if attacking is None else attacking.success(vector)
        if evaluate is not None:
            if attacking is None or node not in attacking:
                values = {name: float(value) for name, value in evaluate(vector).items()} | success
            return Observation(node, round, values)
        assert task is not None
        values = by_scenario(task, self._scope, self._shard(node), vector)
        return Observation(node, round, values | success)


def by_scenario(task: Task, scope: str, shard: int | None, vector: Vector) -> dict[str, float]:
    """As `evaluation: {scope: ...}` has it. shard: of a node that holds data; None: of one that does not."""
    if scope == "global":
        return task.evaluate(vector)
    if shard is not None:                       # a personal model, on this client's share of the test set
        return task.evaluate_client(shard, vector)
    return spread(task.evaluate_each(vector))


def spread(results: list[dict[str, float]]) -> dict[str, float]:
    """Mean under the value's own name; standard deviation, least and largest beside it."""
    found: dict[str, float] = {}
    for name in results[0] if results else ():
        column = np.array([r[name] for r in results])
        column = column[~np.isnan(column)]
        if len(column):
            found |= {name: float(column.mean()), f"{name}_std": float(column.std()),
                      f"{name}_min": float(column.min()), f"{name}_max": float(column.max())}
    return found


def how(evaluate: Any) -> str:
    """The evaluation that is asked for, as text for a file: "scenario"; a method of `node.task`; the name of a function
    and the method that it is given first; "": something else."""
    if evaluate is None:
        return BY_SCENARIO
    if isinstance(evaluate, partial):
        method = _method(evaluate.args[0]) if evaluate.args else ""
        return f"{evaluate.func.__name__} {method}" if method else ""
    return _method(evaluate)


def _method(function: Any) -> str:
    from emul.learning import NodeTask

    return function.__name__ if isinstance(getattr(function, "__self__", None), NodeTask) else ""


def again(by: str, task: Task, name: str, shard: int | None, scope: str, vector: Vector) -> Mapping[str, float] | None:
    """The values of a model that was evaluated as `how` says; None: with more than the model, which nothing has kept.

    Of a client that has what it received evaluated beside what it made of it, the latter alone.
    """
    from emul.learning import NodeTask

    function, _, method = by.rpartition(" ")
    if method == BY_SCENARIO:
        return by_scenario(task, scope, shard, vector)
    if method not in ("evaluate", "evaluate_own", "evaluate_best"):
        return None
    evaluate = partial(getattr(NodeTask, method), task.for_node(name, shard, lambda: 0))
    if function == of_all.__name__:
        return of_all(evaluate, vector)
    return evaluate(vector) if function in ("", trained_and_received.__name__) else None
