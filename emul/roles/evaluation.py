"""The ways in which a node asks for the evaluation of its report: `node.report(..., evaluate=partial(of_all, ...))`."""

from __future__ import annotations

from collections.abc import Callable

from emul.wire import Vector

Evaluate = Callable[[Vector], dict[str, float]]         # off the clock


def trained_and_received(evaluate: Evaluate, received: Vector, trained: Vector) -> dict[str, float]:
    """{"accuracy", "loss"} of a model, and with the ending `_received` of the one that it was trained from."""
    return {**evaluate(trained), **{f"{name}_received": value for name, value in evaluate(received).items()}}


def of_all(evaluate: Evaluate, model: Vector) -> dict[str, float]:
    """{"accuracy_global", "loss_global"} of a server's model: `accuracy` is that of the clients' models."""
    return {f"{name}_global": value for name, value in evaluate(model).items()}
