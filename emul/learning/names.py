"""Names of data sets, models and partitions: look-up of the built-in ones and of users', and the nearest name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import cache
from importlib.metadata import entry_points
from typing import Any


def unknown(what: str, known: Iterable[str], name: str, show_name: bool = True) -> str:
    """Say that `name` is no `what`, with the nearest of the `known` ones, or with all of them if none is near.

    >>> unknown("model", ["digits_cnn", "logistic"], "digit_cnn")
    'unknown model "digit_cnn"; did you mean "digits_cnn"?'
    """
    known = sorted(known)
    said = f'unknown {what} "{name}"' if show_name else f"unknown {what}"
    near = get_close_matches(name, known, n=1)
    if near:
        return f'{said}; did you mean "{near[0]}"?'
    return f"{said}; known are {', '.join(known)}"


@cache
def plugin_names(group: str) -> tuple[str, ...]:
    """Names that installed packages offer in the entry point group, in order; nothing is imported.

    Looked up once: it takes 10 ms, and every task of every worker asks.
    """
    return tuple(sorted({entry.name for entry in entry_points(group=group)}))


def plugin(group: str, name: str) -> Callable[..., Any] | None:
    """Import what an installed package offers as `name`; None if there is no such entry point."""
    found = sorted(entry_points(group=group, name=name), key=lambda entry: entry.value)
    return found[0].load() if found else None
