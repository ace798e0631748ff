"""A codec: a frozen dataclass of parameters that makes bytes of a vector, and a vector of such bytes.

    code, warm = codec.encode(x, rng, warm)         decoded = codec.decode(code, len(x))

Both ends know the codec, its parameters and d. `nbytes(d)` is the length of every code, where it does not depend on
the values. A code from elsewhere may be anything: `decode` raises Undecodable or gives d finite numbers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from emul.base.errors import NotSendable

Octets = NDArray[np.uint8]
Floats = NDArray[np.float32]
Shapes = tuple[tuple[int, ...], ...]        # of the tensors that a vector is made of, in their order


class Undecodable(ValueError):
    """Bytes that this codec cannot have made."""


@dataclass(frozen=True)
class Codec(ABC):
    """feedback: what a code leaves out is added to the next vector of the same sender (error feedback)."""

    @property
    @abstractmethod
    def unbiased(self) -> bool:
        """True if the mean of the decoded vector, over what is drawn, is the vector itself."""

    @property
    def keeps_errors(self) -> bool:
        """True if the sender adds to a vector what the codes before have left out."""
        return bool(getattr(self, "feedback", False))

    @abstractmethod
    def encode(self, x: Floats, rng: np.random.Generator, warm: object = None) -> tuple[Octets, object]:
        """(code (n,) uint8, what the next call with a vector of this sender takes as `warm`) of x, (d,) finite."""

    @abstractmethod
    def decode(self, code: Octets, d: int) -> Floats:
        """(d,) float32, finite and fresh. Raises Undecodable."""

    @abstractmethod
    def nbytes(self, d: int) -> int | None:
        """Length of a code of d numbers; None: it depends on them."""

    def grows(self, d: int) -> str | None:
        """The reason why the error of codes of d numbers grows from round to round where it is added to the next
        vector; None: it does not, since a code leaves out less than it is given, E|x - decoded|^2 < |x|^2."""
        return None

    def shaped(self, shapes: Shapes) -> Codec:
        """The same for vectors that are made of tensors of these shapes."""
        return self


class Reader:
    """Takes the parts of a code one after the other. Raises Undecodable where there is too little."""

    def __init__(self, code: Octets):
        self._code, self._at = np.ascontiguousarray(code), 0

    def octets(self, n: int) -> Octets:
        """The next n bytes."""
        if n < 0 or self._at + n > len(self._code):
            raise Undecodable("too short")
        self._at += n
        return self._code[self._at - n:self._at]

    def numbers(self, dtype: str, n: int) -> np.ndarray:
        """The next n numbers of a little-endian dtype, a fresh array. Raises Undecodable for one that is not finite."""
        found = np.frombuffer(self.octets(n * np.dtype(dtype).itemsize).tobytes(), dtype)
        if found.dtype.kind == "f" and not np.isfinite(found).all():
            raise Undecodable("a number that is not finite")
        return found

    def end(self) -> None:
        """Raise Undecodable if something is left."""
        if self._at != len(self._code):
            raise Undecodable("too long")


def joined(parts: Sequence[np.ndarray]) -> Octets:
    """Arrays of numbers, one behind the other, as bytes."""
    return np.concatenate([np.ascontiguousarray(part).reshape(-1).view(np.uint8) for part in parts])


def rows_of(x: Floats, bucket: int | None, fill: float) -> Floats:
    """x in rows of `bucket` numbers that have a scale each, (n, bucket); None: one row. The last one is filled up."""
    if bucket is None or bucket >= len(x):
        return x[None, :]
    rest = -len(x) % bucket
    whole = np.concatenate([x, np.full(rest, fill, np.float32)]) if rest else x
    return whole.reshape(-1, bucket)


def scales(d: int, bucket: int | None) -> int:
    """The number of rows that `rows_of` makes of d numbers."""
    return 1 if bucket is None or bucket >= d else -(-d // bucket)


def finite(x: np.ndarray) -> np.ndarray:
    """x itself. Raises Undecodable if there is a number that is not finite."""
    if not np.isfinite(x).all():
        raise Undecodable("a number that is not finite")
    return x


def sendable(x: np.ndarray) -> np.ndarray:
    """x itself. Raises NotSendable if there is a number that is not finite: training has diverged."""
    if not np.isfinite(x).all():
        raise NotSendable("not to be compressed: a number that is not finite")
    return x
