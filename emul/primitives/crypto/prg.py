"""Pseudorandom masks: an AES-256-CTR key stream read as little-endian u32 or u64, added modulo 2**32 or 2**64.

Masks modulo a prime: `emul.primitives.field.uniform`.

A seed is used for one mask only: the initial counter is always zero.
"""

from __future__ import annotations

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from numpy.typing import NDArray

SEED_BYTES = 32

_IV = bytes(16)
_CHUNK_BYTES = 256 * 1024          # key stream and its zeros stay in the second-level cache
_ZEROS = memoryview(bytes(_CHUNK_BYTES))
CHUNK_WORDS = _CHUNK_BYTES // 4
_BLOCK_SLACK = 15                  # `update_into` may ask for room for one block less a byte


class KeyStream:
    """The words of one seed, one after the other. Raises ValueError unless the seed has 32 bytes."""

    def __init__(self, seed: bytes):
        if len(seed) != SEED_BYTES:
            raise ValueError(f"seed has {len(seed)} bytes, expected {SEED_BYTES}")
        self._encryptor = Cipher(AES(seed), CTR(_IV)).encryptor()
        self._stream = bytearray()
        self._words = np.empty(0, np.uint32)

    def words(self, count: int) -> NDArray[np.uint32]:
        """The next (count,) uint32, at most CHUNK_WORDS; the array is overwritten by the next call."""
        if count > len(self._words):
            self._stream = bytearray(4 * count + _BLOCK_SLACK)
            self._words = np.frombuffer(self._stream, dtype="<u4", count=count)
        self._encryptor.update_into(_ZEROS[:4 * count], self._stream)
        return self._words[:count]


def prg_add(out: NDArray[np.unsignedinteger], seed: bytes, sign: int = 1) -> None:
    """out <- out + sign * PRG(seed) modulo 2**32 or 2**64, in place.

    out: (d,) uint32 or uint64, writable. seed: 32 bytes. sign: +1 or -1.
    Raises ValueError for another dtype, shape, sign or length of seed.
    """
    if out.dtype not in (np.uint32, np.uint64) or out.ndim != 1:
        raise ValueError(f"out is {out.dtype} of shape {out.shape}, expected uint32 or uint64 of shape (d,)")
    if sign not in (1, -1):
        raise ValueError(f"sign is {sign}, expected 1 or -1")
    combine = np.add if sign == 1 else np.subtract
    stream = KeyStream(seed)
    words = out.itemsize // 4
    step = CHUNK_WORDS // words
    for start in range(0, out.size, step):
        part = out[start:start + step]
        combine(part, stream.words(words * part.size).view(out.dtype), out=part)


def prg(seed: bytes, d: int) -> NDArray[np.uint32]:
    """PRG(seed): (d,) uint32. A prefix of the mask for every larger d."""
    out = np.zeros(d, dtype=np.uint32)
    prg_add(out, seed)
    return out
