"""Local solvers as a scenario writes them: {sgd: {lr: 0.1, steps: 5, batch: 32}} or {adam: {lr: 0.001, epochs: 1}}.

    {adamw: {lr: 0.001, steps: 10, batch: 4, weight_decay: 0.1, clip: 1, keep: true,
             schedule: {warm_up: 30, steps: 200, to: 0.1}}}

Plain data and their checks, without torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, Literal

from emul.base.errors import EmulError
from emul.base.plain import PlainDict
from emul.learning.names import unknown


class SolverError(EmulError):
    """A solver is unknown or an option is not what it should be."""


@dataclass(frozen=True, kw_only=True)
class RateSchedule:
    """The step size as a share of `lr`: up in a straight line over `warm_up` steps, then down by half a cosine to `to`,
    which it has from step `steps` on. Loshchilov and Hutter, ICLR 2017, eq. 5, without restarts."""

    steps: int                      # the step that has the share `to`
    warm_up: int = 0                # the step that has the share 1
    to: float = 0.0

    def share(self, step: int) -> float:
        """Of the step-th step, from 1."""
        if step < self.warm_up:
            return step / self.warm_up
        if step >= self.steps:
            return self.to
        done = (step - self.warm_up) / (self.steps - self.warm_up)
        return self.to + (1 - self.to) * (1 + math.cos(math.pi * done)) / 2


@dataclass(frozen=True, kw_only=True)
class Solver:
    """The parts that all solvers share. Exactly one of `steps` and `epochs` is given."""

    # The step size.
    lr: float
    # Batches for each local update. `steps` or `epochs` is needed.
    steps: int | None = None
    # Passes over the client's samples for each local update.
    epochs: int | None = None
    # Samples a step; without it, all of the client.
    batch: int | None = None
    # Added to the gradient, times the weights. `adamw`: taken from the weights beside the step, times `lr` (Loshchilov
    # and Hutter, ICLR 2019, as `torch.optim.AdamW`, whose default is 0.01).
    weight_decay: float = 0.0
    # The most that the norm of the whole gradient may be. A longer one is shortened before `weight_decay` is added.
    clip: float | None = None
    # `{warm_up: 30, steps: 200, to: 0.1}`: the step size rises in a line to `lr` over `warm_up` steps (0), then falls
    # by half a cosine to `to` (0) times `lr`, which it has from step `steps` on. Steps are counted from the start of a
    # local update; with `keep` from that of the run.
    schedule: RateSchedule | None = None
    # The number of parts in which a batch is computed, one after the other. Their gradients add up, so that the step is
    # the same but for rounding, and less memory is needed. Batch normalisation sees each part alone.
    accumulate: int = 1
    # Moments, momentum and the number of steps stay at a node from one local update to the next, also over a crash.
    # Each part of a model that a scheme trains alone has its own.
    keep: bool = False

    @property
    def stacks(self) -> bool:
        """True if many trainings with this solver can be computed as one."""
        return self.clip is None and self.schedule is None and self.accumulate == 1 and not self.keep

    def rate(self, step: int) -> float:
        """The step size of the step-th step, from 1."""
        return self.lr if self.schedule is None else self.lr * self.schedule.share(step)

    def with_steps(self, steps: int | None) -> Solver:
        """The same solver with another number of steps; None changes nothing."""
        return self if steps is None else replace(self, steps=steps, epochs=None)


@dataclass(frozen=True, kw_only=True)
class Sgd(Solver):
    """v <- momentum * v + g, w <- w - lr * v; v starts anew (at g) in every local update, unless `keep`."""

    # `sgd` only; starts anew in every local update, unless `keep`.
    momentum: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Adam(Solver):
    """Kingma and Ba 2015, Algorithm 1; both moments start anew in every local update, unless `keep`."""

    # `adam` and `adamw` only, as `beta2` and `eps`.
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8


@dataclass(frozen=True, kw_only=True)
class AdamW(Adam):
    """Adam with w <- w - lr * weight_decay * w beside its step, in place of the term of the gradient. Loshchilov and
    Hutter, ICLR 2019, Algorithm 2, as torch.optim.AdamW: the step size of the moment is in the factor."""

    # `adamw` only: `matrices` leaves out parameters of one dimension, which are biases and scales of norms.
    decays: Literal["all", "matrices"] = "all"

    @property
    def stacks(self) -> bool:
        return False


def steps_of(solver: Solver, samples: int) -> int:
    """The number of steps in a local update of a client with so many samples."""
    if solver.steps is not None:
        return solver.steps if samples else 0
    return (solver.epochs or 0) * -(-samples // min(solver.batch or samples, samples)) if samples else 0


SOLVERS: dict[str, type[Solver]] = {"sgd": Sgd, "adam": Adam, "adamw": AdamW}
MOST = 10_000_000                       # steps of a local update, whose batches are planned at once
_COUNTS = {"steps": 0, "epochs": 0, "batch": 1, "accumulate": 1}        # the least that is accepted
_NEEDED = ("accumulate",)                                   # of these: those that none is no value of
_BELOW_ONE = ("momentum", "beta1", "beta2")


def make(spec: PlainDict) -> Solver:
    """The solver of `spec`. Raises SolverError with every mistake in it."""
    found = [f"{place}: {expected}" for place, _, expected in mistakes(spec)]
    if found:
        raise SolverError("; ".join(found))
    (name, options), = spec.items()
    schedule = options.get("schedule")
    return SOLVERS[name](**{**options, "schedule": None if schedule is None else RateSchedule(**schedule)})


def mistakes(spec: object) -> Iterator[tuple[str, Any, str]]:
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
        if key == "schedule" and value is not None:
            yield from _of_schedule(f"{place}.schedule", value)
            continue
        wrong = _wrong(key, value) if key in known else unknown("option", known, str(key), show_name=False)
        if wrong:
            yield f"{place}.{key}", value, wrong
    for key, field in known.items():
        if field.default is MISSING and key not in options:
            yield place, options, f"expected {key}"
    if (options.get("steps") is None) == (options.get("epochs") is None):
        yield place, options, "expected either steps or epochs"


def _of_schedule(place: str, written: object) -> Iterator[tuple[str, object, str]]:
    if not isinstance(written, dict):
        yield place, written, "expected such as {warm_up: 30, steps: 200, to: 0.1}"
        return
    known, wrong = {field.name for field in fields(RateSchedule)}, False
    for key, value in written.items():
        count = isinstance(value, int) and not isinstance(value, bool)
        expected = None
        if key not in known:
            expected = unknown("option", sorted(known), str(key), show_name=False)
        elif key == "to":
            number = isinstance(value, int | float) and not isinstance(value, bool)
            expected = None if number and 0 <= value <= 1 else "expected a number in [0, 1]"
        elif not count or value < (key == "steps"):
            expected = f"expected an integer >= {int(key == 'steps')}"
        if expected:
            wrong = True
            yield f"{place}.{key}", value, expected
    if "steps" not in written:
        yield place, written, "expected steps"
    elif not wrong and written.get("warm_up", 0) >= written["steps"]:
        yield f"{place}.warm_up", written["warm_up"], f"expected less than the {written['steps']} steps"


def _wrong(key: str, value: object) -> str | None:
    """The values expected of an option, or None if the value is good."""
    if key in _COUNTS:
        if isinstance(value, int) and value > MOST:
            return f"expected at most {MOST:,}"
        count = isinstance(value, int) and not isinstance(value, bool) and value >= _COUNTS[key]
        good = count or (value is None and key not in _NEEDED)
        return None if good else f"expected an integer >= {_COUNTS[key]}"
    if key == "decays":
        return None if value in ("all", "matrices") else "expected all or matrices"
    if key == "keep":
        return None if isinstance(value, bool) else "expected true or false"
    if key in ("clip", "schedule") and value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool):
        return "expected a number"
    if key in _BELOW_ONE:
        return None if 0 <= value < 1 else "expected a number in [0, 1)"
    if key in ("lr", "eps", "clip"):
        return None if 0 < value < float("inf") else "expected a number > 0"
    return None if 0 <= value < float("inf") else "expected a number >= 0"
