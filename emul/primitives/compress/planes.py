"""Numbers as planes of bits: plane j holds bit j of all numbers that have one, packed eight to a byte.

A variable-length code is a chain: where a symbol begins is known once all before it are read, which no array operation
does. By planes the same bits are in another order, each plane an array of its own, so that both ways take a few array
operations whatever the length. Each plane is filled up to whole bytes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emul.primitives.compress.codec import Octets, Reader, Undecodable, joined

Numbers = np.ndarray              # unsigned

MOST_PLANES = 32


def pack(values: Numbers, bits: int) -> Octets:
    """Numbers below 2^bits, n of them: bits * ceil(n / 8) bytes."""
    if not bits:
        return np.empty(0, np.uint8)
    if bits == 8:                       # as many bytes as eight planes have
        return np.concatenate([values.astype(np.uint8, copy=False), np.zeros(-len(values) % 8, np.uint8)])
    return joined([np.packbits(values & values.dtype.type(1 << j)) for j in range(bits)])


def unpack(reader: Reader, n: int, bits: int) -> NDArray[np.uint32]:
    """The numbers that `pack` was given, (n,) uint32."""
    if bits == 8:
        return reader.octets(8 * -(-n // 8))[:n].astype(np.uint32)
    found = np.zeros(n, np.uint32)
    for j in range(bits):
        found |= bits_of(reader, n).astype(np.uint32) << np.uint32(j)
    return found


def bits_of(reader: Reader, n: int) -> Octets:
    """One plane: n values of 0 or 1."""
    return np.unpackbits(reader.octets(-(-n // 8)), count=n)


def gamma(values: Numbers) -> Octets:
    """Numbers of 1 and above in Elias' gamma code (Elias, IEEE Trans. Inf. Theory 1975), by planes.

    The code of v has N = floor(log2 v) ones and a zero, then the N lower bits of v. Plane j = 1.. of the ones tells of
    those with N >= j - 1 whether N >= j, and is followed by bit j - 1 of those for which it does. One byte in front
    says how many planes there are, so those of the longest code need no zero.
    """
    live = values                       # narrow types are faster
    parts: list[Octets] = []
    planes = int(live.max()).bit_length() - 1 if len(live) else 0
    for j in range(1, planes + 1):
        more = live >= live.dtype.type(1 << j)
        live = live[np.flatnonzero(more)]
        parts += [np.packbits(more), np.packbits(live & live.dtype.type(1 << (j - 1)))]
    return joined([np.array([planes], np.uint8), *parts])


def ungamma(reader: Reader, n: int) -> NDArray[np.uint32]:
    """The numbers that `gamma` was given, (n,) uint32. Raises Undecodable."""
    planes = int(reader.octets(1)[0])
    if planes >= MOST_PLANES:
        raise Undecodable("a number of more than 32 bits")
    low, length = np.zeros(n, np.uint32), np.zeros(n, np.uint32)
    live = np.arange(n)
    for j in range(1, planes + 1):
        live = live[np.flatnonzero(bits_of(reader, len(live)))]
        length[live] = j
        low[live] |= bits_of(reader, len(live)).astype(np.uint32) << np.uint32(j - 1)
    return (np.uint32(1) << length) | low
