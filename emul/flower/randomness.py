"""The global generators of `random`, NumPy and torch, which apps draw from: an app's own while it runs, else emul's.

Keys of cryptography and `os.urandom` draw from the system and cannot be seeded: ciphertexts differ from run to run,
their lengths do not.
"""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from emul.base.streams import key64

State = tuple[Any, Any, Any]


class Randomness:
    """The generators of one app, from a named stream on."""

    def __init__(self, seed: int, *names: str | int):
        self._key = key64(seed, "flower", *names)
        self._state: State | None = None            # where they were left; None: they have not been used yet

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """Inside the block the global generators are these; after it what they were before."""
        before = _state()
        if self._state is None:
            _seed(self._key)
        else:
            _restore(self._state)
        try:
            yield
        finally:
            self._state = _state()
            _restore(before)


def _state() -> State:
    torch = sys.modules.get("torch")            # never imported for an app that has not
    return random.getstate(), np.random.get_state(), None if torch is None else torch.get_rng_state()


def _restore(state: State) -> None:
    random.setstate(state[0])
    np.random.set_state(state[1])
    if state[2] is not None:
        sys.modules["torch"].set_rng_state(state[2])


def _seed(key: int) -> None:
    random.seed(key)
    np.random.seed(key & 0xFFFFFFFF)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.default_generator.manual_seed(key >> 1)
