"""Pseudorandom masks: an AES-256-CTR key stream read as little-endian u32, added modulo 2**32.

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
_BLOCK_SLACK = 15                  # `update_into` may ask for room for one block less a byte


def prg_add(out: NDArray[np.uint32], seed: bytes, sign: int = 1) -> None:
    """out <- out + sign * PRG(seed) mod 2**32, in place.

    out: (d,) uint32, writable. seed: 32 bytes. sign: +1 or -1.
    Raises ValueError for another dtype, shape, sign or length of seed.
    """
    if out.dtype != np.uint32 or out.ndim != 1:
        raise ValueError(f"out is {out.dtype} of shape {out.shape}, expected uint32 of shape (d,)")
    if len(seed) != SEED_BYTES:
        raise ValueError(f"seed has {len(seed)} bytes, expected {SEED_BYTES}")
    if sign not in (1, -1):
        raise ValueError(f"sign is {sign}, expected 1 or -1")
    combine = np.add if sign == 1 else np.subtract
    encryptor = Cipher(AES(seed), CTR(_IV)).encryptor()
    stream = bytearray(min(_CHUNK_BYTES, 4 * out.size) + _BLOCK_SLACK)
    words = np.frombuffer(stream, dtype="<u4", count=(len(stream) - _BLOCK_SLACK) // 4)
    for start in range(0, out.size, _CHUNK_BYTES // 4):
        part = out[start:start + _CHUNK_BYTES // 4]
        encryptor.update_into(_ZEROS[:4 * part.size], stream)
        combine(part, words[:part.size], out=part)


def prg(seed: bytes, d: int) -> NDArray[np.uint32]:
    """PRG(seed): (d,) uint32. A prefix of the mask for every larger d."""
    out = np.zeros(d, dtype=np.uint32)
    prg_add(out, seed)
    return out
