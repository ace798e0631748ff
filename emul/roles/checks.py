"""Findings of a scheme's `check` on a parameter's value, for kinds of values that many schemes have.

    errors = checks.times(deadline=p.deadline_s) + checks.not_negative(lambda_=p.lambda_)

Each takes values by their keys in a scenario and gives a list of errors, "key = value: expected ...".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from emul.base.plain import PlainMapping


def times(**seconds: float | None) -> list[str]:
    """Times that are above 0; None: there is none."""
    return [f"{key} = {value} s: expected a time above 0, or none" for key, value in seconds.items()
            if value is not None and not value > 0]


def positive(**values: float | None) -> list[str]:
    """Numbers above 0; None: there is none."""
    return _wrong(lambda value: value > 0, "a number above 0, or none", values)


def epsilons(**values: float | None) -> list[str]:
    """Guarantees of privacy that a noise can give; None: there is none."""
    return _wrong(lambda value: 1e-6 <= value <= 1e6, "a number in [1e-6, 1e6], or none", values)


def not_negative(**values: float | None) -> list[str]:
    """Finite numbers, 0 or above; None: there is none."""
    return _wrong(lambda value: value >= 0 and math.isfinite(value), "a number, 0 or above", values)


def fractions(**values: float | None) -> list[str]:
    """Numbers above 0 up to 1."""
    return _wrong(lambda value: 0 < value <= 1, "a number in (0, 1]", values)


def shares(**values: float | None) -> list[str]:
    """Numbers between 0 and 1, both included."""
    return _wrong(lambda value: 0 <= value <= 1, "a number in [0, 1]", values)


def below_one(**values: float | None) -> list[str]:
    """Numbers from 0 on and below 1, such as the momentum of a step: with 1 nothing would ever be forgotten."""
    return _wrong(lambda value: 0 <= value < 1, "a number in [0, 1)", values)


def probabilities(**values: float | None) -> list[str]:
    """Numbers between 0 and 1, neither of them."""
    return _wrong(lambda value: 0 < value < 1, "a number between 0 and 1", values)


def at_least(least: float, what: str, **values: float | None) -> list[str]:
    """Numbers that are `least` or more; None: there is none. what: how the expected value is called."""
    return _wrong(lambda value: value >= least, what, values)


def steps(**values: float | None) -> list[str]:
    """Numbers of steps of a local training, which plans all of its batches at once; None: there is none."""
    return _wrong(lambda value: value >= 1, "an integer >= 1", values) + _wrong(
        lambda value: value <= 10**7, "an integer up to 10,000,000", values)


def root_samples(task: PlainMapping) -> int:
    """The number of training samples that a task, as in `World.task`, keeps for nodes that are no clients: root
    data."""
    return int((task.get("root") or {}).get("samples") or (task.get("data") or {}).get("held_out") or 0)


def plain_descent(scheme: str, task: PlainMapping, momentum: bool = False) -> list[str]:
    """A scheme's equations hold for local steps of descent; momentum: also with momentum."""
    (name, options), = (task.get("solver") or {"sgd": {}}).items()
    if name != "sgd":
        return [f"task.solver = {name}: {scheme} needs sgd, whose steps add gradients up"]
    if options.get("momentum") and not momentum:
        return [f"task.solver.sgd.momentum = {options['momentum']}: {scheme} needs steps without momentum"]
    return [f"task.solver.sgd.{key} = {options[key]}: {scheme} needs steps of one size along gradients as they are"
            for key in ("clip", "schedule", "keep") if options.get(key)]


def _wrong(right: Callable[[float], bool], expected: str, values: Mapping[str, float | None]) -> list[str]:
    return [f"{key.rstrip('_')} = {value}: expected {expected}" for key, value in values.items()
            if value is not None and not right(value)]
