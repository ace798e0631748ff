"""The values that parameters of attacks may have. For `__post_init__`: a scenario shows the ValueError where the value
stands."""

from __future__ import annotations


def above_zero(**values: float) -> None:
    for name, value in values.items():
        if not value > 0:
            raise ValueError(f"{name} = {value}: expected a number above 0")


def at_least(least: float, **values: float) -> None:
    for name, value in values.items():
        if not value >= least:
            raise ValueError(f"{name} = {value}: expected a number, {least} or above")
