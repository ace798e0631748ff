"""The ways in which a node asks for the evaluation of its report: `node.report(..., evaluate=partial(of_all, ...))`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from emul.message.wire import Vector

Evaluate = Callable[[Vector], Mapping[str, float]]      # of reported parameters, off the clock

AccuracyOf = Literal["global", "peer", "personal", "cluster", "app", "loop"]
"""The kinds of a scheme's `accuracy`. Under `evaluation: {scope: per_client}` two of them are others, see `kind_of`."""

KINDS: dict[str, str] = {
    "global": "one model for all, on the whole test set",
    "global_per_client": "one model for all, on test samples that follow each client's labels: the mean over clients",
    "peer": "each peer's own model, on the whole test set: the mean over peers",
    "personal": "each client's own model, on its own test samples: the mean over clients",
    "cluster": "of several models the one of least loss, on each cluster's or client's test samples: the mean",
    "app": "as a Flower app measures it",
    "loop": "as the user's own loop measures it",
}
_PER_CLIENT: dict[str, str] = {"global": "global_per_client", "peer": "personal"}
ASKED = {"evaluate_own": "personal", "evaluate_best": "cluster"}     # of `node.task`


def kind_of(of: str, scope: str) -> str:
    """The kind, of `KINDS`, under the scope of a scenario's evaluation. Accuracies of two kinds are two measures: they
    have other test samples or other models, so that no comparison ranks one against the other.

    >>> kind_of("global", "global"), kind_of("global", "per_client"), kind_of("cluster", "per_client")
    ('global', 'global_per_client', 'cluster')
    """
    return _PER_CLIENT.get(of, of) if scope == "per_client" else of


def trained_and_received(evaluate: Evaluate, received: Vector, trained: Vector) -> dict[str, float]:
    """{"accuracy", "loss"} of a model, and with the ending `_received` of the one that it was trained from."""
    return {**evaluate(trained), **{f"{name}_received": value for name, value in evaluate(received).items()}}


def constant(metrics: Mapping[str, float], model: Vector) -> dict[str, float]:
    """An evaluation of a model that is known already."""
    return dict(metrics)


def of_all(evaluate: Evaluate, model: Vector) -> dict[str, float]:
    """{"accuracy_global", "loss_global"} of a server's model: `accuracy` is that of the clients' models."""
    return {f"{name}_global": value for name, value in evaluate(model).items()}
