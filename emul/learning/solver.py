"""Local solvers as a scenario writes them: {sgd: {lr: 0.1, steps: 5, batch: 32}} or {adam: {lr: 0.001, epochs: 1}}.

Plain data and their checks, without torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any

from emul.base.errors import EmulError
from emul.learning.names import unknown


class SolverError(EmulError):
    """A solver is unknown or an option is not what it should be."""


@dataclass(frozen=True, kw_only=True)
class Solver:
    """What all solvers share. Exactly one of `steps` and `epochs` is given."""

    lr: float                       # step size
    steps: int | None = None        # batches per local update
    epochs: int | None = None       # passes over the client's samples per local update
    batch: int | None = None        # samples a step; None: all that the client holds
    weight_decay: float = 0.0       # adds weight_decay * w to the gradient (L2, not decoupled)

    def with_steps(self, steps: int | None) -> Solver:
        """The same solver with another number of steps; None changes nothing."""
        return self if steps is None else replace(self, steps=steps, epochs=None)


@dataclass(frozen=True, kw_only=True)
class Sgd(Solver):
    """v <- momentum * v + g, w <- w - lr * v; v starts anew (at g) in every local update."""

    momentum: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Adam(Solver):
    """Kingma and Ba 2015, Algorithm 1; both moments start anew in every local update."""

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8


def steps_of(solver: Solver, samples: int) -> int:
    """How many steps a local update of a client with so many samples takes."""
    if solver.steps is not None:
        return solver.steps if samples else 0
    return (solver.epochs or 0) * -(-samples // min(solver.batch or samples, samples)) if samples else 0


SOLVERS: dict[str, type[Solver]] = {"sgd": Sgd, "adam": Adam}
_COUNTS = {"steps": 0, "epochs": 0, "batch": 1}             # the least that is accepted
_BELOW_ONE = ("momentum", "beta1", "beta2")


def make(spec: dict[str, Any]) -> Solver:
    """The solver of `spec`. Raises SolverError with every mistake in it."""
    found = [f"{place}: {expected}" for place, _, expected in mistakes(spec)]
    if found:
        raise SolverError("; ".join(found))
    (name, options), = spec.items()
    return SOLVERS[name](**options)


def mistakes(spec: Any) -> Iterator[tuple[str, Any, str]]:
    """Every mistake of a solver as written: (place, found, expected)."""
    if not isinstance(spec, dict) or len(spec) != 1:
        yield "solver", spec, "expected one solver such as {sgd: {lr: 0.1, steps: 5, batch: 32}}"
        return
    (name, options), = spec.items()
    if name not in SOLVERS:
        yield "solver", name, unknown("solver", SOLVERS, str(name), show_name=False)
        return
    place = f"solver.{name}"
    if not isinstance(options, dict):
        yield place, options, "expected its options, such as {lr: 0.1, steps: 5}"
        return
    known = {field.name: field for field in fields(SOLVERS[name])}
    for key, value in options.items():
        wrong = _wrong(key, value) if key in known else unknown("option", known, str(key), show_name=False)
        if wrong:
            yield f"{place}.{key}", value, wrong
    for key, field in known.items():
        if field.default is MISSING and key not in options:
            yield place, options, f"expected {key}"
    if (options.get("steps") is None) == (options.get("epochs") is None):
        yield place, options, "expected either steps or epochs"


def _wrong(key: str, value: Any) -> str | None:
    """What was expected of an option, or None if the value is good."""
    if key in _COUNTS:
        good = value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= _COUNTS[key])
        return None if good else f"expected an integer >= {_COUNTS[key]}"
    if not isinstance(value, int | float) or isinstance(value, bool):
        return "expected a number"
    if key in _BELOW_ONE:
        return None if 0 <= value < 1 else "expected a number in [0, 1)"
    if key in ("lr", "eps"):
        return None if 0 < value < float("inf") else "expected a number > 0"
    return None if 0 <= value < float("inf") else "expected a number >= 0"
