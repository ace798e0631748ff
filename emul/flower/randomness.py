"""The global generators of `random`, NumPy and torch, which apps draw from: streams of the node while its app runs.

What emul computes draws from none of them, so a client's are simply seeded; what they were before a run is put back at
its end.
Keys of cryptography and `os.urandom` draw from the system and cannot be seeded: ciphertexts differ from run to run,
their lengths do not.
"""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from emul.base.streams import key64

State = tuple[Any, Any, Any]


def begin(seed: int, *names: str | int) -> None:
    """From now on the global generators are those of a named stream."""
    _seed(key64(seed, "flower", *names))


class Randomness:
    """The generators of one app that goes on again and again, from a named stream on."""

    _newest: ClassVar[Randomness | None] = None         # the collector may close that of a run that ended long ago

    def __init__(self, seed: int, *names: str | int):
        self._key = key64(seed, "flower", *names)
        self._state: State | None = None            # where they were left; None: they have not been used yet
        self._before = _state()
        Randomness._newest = self

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """Inside the block the global generators are these."""
        if self._state is None:
            _seed(self._key)
        else:
            _restore(self._state)
        try:
            yield
        finally:
            self._state = _state()

    def close(self) -> None:
        """The global generators are what they were when this was made, if no other app has come since."""
        if Randomness._newest is self:
            Randomness._newest = None
            _restore(self._before)


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
