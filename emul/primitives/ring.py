"""Real numbers as elements of Z_2^32 or Z_2^64: round(x 2^f) in two's complement, exact to add."""

from __future__ import annotations

import math

import numpy as np

from emul.base.errors import ProtocolFailure

_TYPES = {32: (np.int32, np.uint32), 64: (np.int64, np.uint64)}


class RingOverflow(ProtocolFailure):
    """A sum of such values could pass the ring."""


def encode(values: np.ndarray, fraction: int, bits: int, summands: int) -> np.ndarray:
    """(n,) of the ring. fraction: f. Raises RingOverflow if so many summands as large as these could pass it.

    >>> decode(encode(np.array([-0.5, 0.25]), 8, 32, 2), 8).tolist()
    [-0.5, 0.25]
    """
    scaled = np.rint(np.asarray(values, np.float64) * 2.0**fraction)
    largest = float(np.abs(scaled).max(initial=0.0))
    if not summands * largest < 2.0 ** (bits - 1):
        raise RingOverflow(f"ring_overflow: {summands} values as large as {largest / 2.0**fraction:.3g} with "
                           f"{fraction} bits after the point pass 2^{bits - 1}")
    signed, unsigned = _TYPES[bits]
    return scaled.astype(signed).view(unsigned)


def decode(total: np.ndarray, fraction: int) -> np.ndarray:
    """(n,) float64."""
    signed = np.int64 if total.dtype == np.uint64 else np.int32
    return total.view(signed).astype(np.float64) / 2.0**fraction


def largest_fraction(most: float, bits: int, summands: int) -> int:
    """The largest f with summands * most * 2^f < 2^(bits - 1)."""
    f = bits - 1 - math.ceil(math.log2(summands * most))
    return f if summands * most * 2.0**f < 2.0 ** (bits - 1) else f - 1
