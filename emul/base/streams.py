"""Keyed, counter-based streams of randomness: every random choice has a name.

A stream is keyed by (seed, purpose, names...); a draw by its index in the stream. No draw depends on how many
others were made before it, so two schemes on one seed see the same links (common random numbers), and no result
depends on the order in which processes answer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.random import Generator

_MASK = (1 << 64) - 1
_TO_UNIT = 2.0**-53

Name = str | int


def _encoded(part: Name) -> bytes:
    """With its kind and its length, so that ("ab", "c") differs from ("a", "bc")."""
    text = f"{'i' if isinstance(part, int) else 's'}{part}".encode()
    return len(text).to_bytes(4, "little") + text


@lru_cache(256, typed=True)         # few purposes have many streams
def _begun(seed: int, purpose: str) -> bytes:
    return _encoded(seed) + _encoded(purpose)


def _digest(seed: int, purpose: str, names: tuple[Name, ...], size: int) -> bytes:
    return blake2b(_begun(seed, purpose) + b"".join(map(_encoded, names)), digest_size=size).digest()


def key64(seed: int, purpose: str, *names: Name) -> int:
    """The 64-bit key of a stream, for `uniform_at`."""
    return int.from_bytes(_digest(seed, purpose, names, 8), "little")


def uniform_at(key: int, index: int) -> float:
    """Draw number `index` (>= 0, below 2**128) of the stream `key`, uniform in [0, 1).

    SplitMix64 (Steele, Lea, Flood 2014): state = key + (index + 1) * golden gamma, finalised. Indices of 64 bits
    and more are folded in by a second pass. About 0.6 us, where a NumPy generator per key takes 20 us.

    >>> uniform_at(key64(7, "outage", "a", "b"), 3) == uniform_at(key64(7, "outage", "a", "b"), 3)
    True
    """
    z = (key + (index + 1) * 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    z ^= z >> 31
    if index > _MASK:
        return uniform_at(z, index >> 64)
    return (z >> 11) * _TO_UNIT


def uniforms_at(key: int, first: int, count: int) -> np.ndarray:
    """(count,) draws number first, first + 1, ... of the stream `key`: those of `uniform_at`. Indices below 2**63.

    About 20 ns a draw.
    """
    z = np.arange(first + 1, first + count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(key)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)      # modulo 2**64, as arrays of uint64 are
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return (z >> np.uint64(11)).astype(np.float64) * _TO_UNIT


class _Key(np.random.bit_generator.ISeedSequence):
    """A Philox key as it is. Given as `key=`, NumPy asks the system for entropy that it does not use."""

    def __init__(self, digest: bytes):
        self._words = np.frombuffer(digest, "<u8")

    def generate_state(self, n_words: int, dtype: object = np.uint32) -> np.ndarray:
        """The key, which is all that Philox asks for: two words of 64 bits."""
        return self._words


def generator(seed: int, purpose: str, *names: Name) -> Generator:
    """A NumPy generator (Philox, 128-bit key) of its own for (seed, purpose, names). About 10 us to make."""
    key = _Key(_digest(seed, purpose, names, 16))
    return np.random.Generator(np.random.Philox(key))           # type: ignore[arg-type]    # the stubs know no interface


def seed_bytes(seed: int, purpose: str, *names: Name) -> bytes:
    """32 bytes for keys of cryptography, from (seed, purpose, names)."""
    return _digest(seed, purpose, names, 32)


@contextlib.contextmanager
def torch_stream(seed: int, purpose: str, *names: Name) -> Iterator[None]:
    """Seed torch's global generator inside the block only: for dropout and initialisation, which offer no other."""
    import torch

    state = torch.get_rng_state()
    torch.default_generator.manual_seed(key64(seed, purpose, *names) >> 1)
    try:
        yield
    finally:
        torch.set_rng_state(state)
