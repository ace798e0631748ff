"""How a reported model is evaluated, off the clock: as the scenario says, or as its node asked for it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from emul.learning import Task
    from emul.wire import Vector

BY_SCENARIO = "scenario"


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
    """What is asked for, in words that a file can hold: "scenario", a method of `node.task`, that after the name of a
    function which is given it first; "": something else."""
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
    from emul.protocols.rounds import of_all, trained_and_received

    function, _, method = by.rpartition(" ")
    if method == BY_SCENARIO:
        return by_scenario(task, scope, shard, vector)
    if method not in ("evaluate", "evaluate_own", "evaluate_best"):
        return None
    evaluate = partial(getattr(NodeTask, method), task.for_node(name, shard, lambda: 0))
    if function == of_all.__name__:
        return of_all(evaluate, vector)
    return evaluate(vector) if function in ("", trained_and_received.__name__) else None
