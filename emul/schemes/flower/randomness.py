"""The randomness of apps: streams of the node while its app runs.

They draw from the global generators of `random`, NumPy and torch. Emul's computations draw from none of them, so a
client's are simply seeded; what they were before a run is put back at its end. And they make generators of NumPy and
`random` without a seed, which the system would give one: there they get one of the node's (`Entropy`).
Keys of cryptography and `os.urandom` draw from the system and cannot be seeded: ciphertexts differ from run to run,
their lengths do not.
"""

from __future__ import annotations

import contextlib
import random
import secrets
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any, ClassVar

import numpy as np
import numpy.random.bit_generator as numpy_seeds

from emul.base.streams import key64
from emul.schemes.flower.current import Entropy, running

State = tuple[Any, Any, Any]


@cache
def install() -> None:
    """Have the libraries ask for the app that runs where they would ask the system for a seed, once a process."""
    numpy_seeds.randbits = _numpy_bits          # type: ignore[attr-defined]    # SeedSequence() draws from it
    random.Random.seed = _seed_random           # type: ignore[method-assign]
    random.seed = random._inst.seed


def _entropy() -> Entropy | None:
    app = running()
    return None if app is None else app.entropy


def _numpy_bits(count: int) -> int:
    entropy = _entropy()
    return secrets.randbits(count) if entropy is None else entropy.bits(count, "numpy")


_REAL_SEED = random.Random.seed


def _seed_random(self: random.Random, a: Any = None, version: int = 2) -> None:
    entropy = _entropy() if a is None else None
    if entropy is not None and sys._getframe(2).f_globals.get("__name__") != "tempfile":       # it has one a process
        a = entropy.bits(128, "random")
    _REAL_SEED(self, a, version)


def begin(seed: int, *names: str | int) -> None:
    """From now on the global generators are those of a named stream."""
    _seed(key64(seed, "flower", *names))


@contextlib.contextmanager
def aside(seed: int, *names: str | int) -> Iterator[None]:
    """Inside the block the global generators are those of a named stream; afterwards they are where they were."""
    before = _state()
    begin(seed, *names)
    try:
        yield
    finally:
        _restore(before)


class Randomness:
    """The generators of one app that goes on again and again, from a named stream on."""

    _newest: ClassVar[Randomness | None] = None         # the collector may close that of a run that ended long ago

    def __init__(self, seed: int, *names: str | int):
        self._key = key64(seed, "flower", *names)
        self._state: State | None = None            # their state; None: they have not been used yet
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
