"""State that clients of one worker share though they should not: its seed of hashes, and globals of the app's modules.

Neither can be mended here, so it is said once, as a warning.
"""

from __future__ import annotations

import logging
import random
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

_log = logging.getLogger(__name__)
_CALLS = 8                          # of clients that are looked at: who counts does so from the first one on


@cache
def warn_of_hashes() -> None:
    """Warn if this process was started with another seed of hashes than workers are."""
    if sys.flags.hash_randomization:
        _log.warning("this process hashes text by a seed of its own: an app that uses hash() or the order of a set "
                     "gives other results each time. Start it with PYTHONHASHSEED=0, or run the app in workers "
                     "(--workers 1)")


class Globals:
    """The globals of an app's modules, while its clients are called. owns: whether a module is one of the app's."""

    def __init__(self, owns: Callable[[str], bool]):
        self._owns = owns
        self._calls = 0
        self._told: set[str] = set()

    def before(self) -> dict[str, object]:
        """Their values before a call; {}: nobody looks any more."""
        self._calls += 1
        return self._marks() if self._calls <= _CALLS else {}

    def after(self, before: dict[str, object]) -> None:
        """Say which of them a call has changed."""
        now = self._marks() if before else {}
        for name in sorted(name for name, mark in before.items() if now.get(name, mark) != mark):
            if name not in self._told:
                self._told.add(name)
                _log.warning("the ClientApp has changed the global %s: clients that run in one worker share it, so "
                             "results depend on how many workers there are. What a client keeps belongs into "
                             "context.state", name)

    def _marks(self) -> dict[str, object]:
        """The values that are compared: numbers and text, the lengths of lists, and the positions of generators."""
        return {f"{module}.{name}": _mark(value) for module, found in list(sys.modules.items()) if self._owns(module)
                for name, value in list(vars(found).items()) if type(value) in _MARKS}


def _mark(value: object) -> object:
    return _MARKS[type(value)](value)


def _of_numpy(generator: np.random.Generator) -> str:
    return repr(generator.bit_generator.state)


_MARKS: dict[type, Callable[[Any], object]] = {
    bool: bool, int: int, float: repr, str: str, list: len, random.Random: random.Random.getstate,
    np.random.Generator: _of_numpy, np.random.RandomState: lambda generator: repr(generator.get_state())}
