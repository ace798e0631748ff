"""The layout of the vectors of several classes in the slots of ciphertexts, and the additive masks that hide them.

    packed      block b of P slots holds class b, P the length n rounded up to a power of two; slots / P classes a row
    per class   each class has a row of its own, from slot 0 on

A *row* is what one ciphertext holds: always all its slots, zero outside the blocks. A library that repeats a short
vector over all slots would leave its other copies bare when a mask of the vector's own length is added; and the slots
after the last full copy of 50 numbers hold sums that fix them all but for one. So vectors and masks are full rows.

Mask entries are multiples of 2^-32, uniform in [-2^20, 2^20): as fine as float64 is there, because the remainder of a
masked value by the unit of its mask is that of the bare value. A *zero-sum* mask adds up to zero over the vector of
each block, so that who decrypts learns the sums of the vectors and nothing of their parts; what is hidden differs by
5e-7 from uniform. The slots of a block after its vector count in no sum: a client could put most of its length there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from emul.primitives.crypto.prg import prg

BOUND = 2.0**20                         # of a mask's entries
_UNIT = 2.0**-32


@dataclass(frozen=True)
class Layout:
    """The place of each class in a table of rows."""

    classes: int                        # J
    length: int                         # n
    slots: int = 4096                   # of a row
    packed: bool = True

    @property
    def block(self) -> int:
        """P, slots of a block: n rounded up to a power of two.

        >>> Layout(10, 50).block, Layout(10, 512).block
        (64, 512)
        """
        return 1 << max(0, self.length - 1).bit_length()

    @property
    def rows(self) -> int:
        """Rows of a table of all classes: G = ceil(J P / slots), or one each.

        >>> Layout(10, 50).rows, Layout(10, 512).rows, Layout(10, 50, packed=False).rows
        (1, 2, 10)
        """
        return -(-self.classes // self._per_row)

    @property
    def _per_row(self) -> int:
        return self.slots // self.block if self.packed else 1

    def place(self, label: int) -> tuple[int, slice]:
        """(row, slots) of a class."""
        row, block = divmod(label, self._per_row)
        return row, slice(block * self.block, (block + 1) * self.block)

    def rows_of(self, held: Sequence[int]) -> list[int]:
        """The rows that a party sends which holds these classes, ascending: packed all, else those of its classes."""
        return list(range(self.rows)) if self.packed else sorted(held)

    def table(self, vectors: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
        """{class: (n,)} -> {row: (slots,) float64}, the rows that are sent."""
        found = {row: np.zeros(self.slots) for row in self.rows_of(list(vectors))}
        for label, vector in vectors.items():
            row, place = self.place(label)
            found[row][place.start:place.start + self.length] = vector
        return found

    def vector(self, label: int, row: np.ndarray) -> np.ndarray:
        """The vector of a class, (n,), from its row."""
        start = self.place(label)[1].start
        return row[start:start + self.length]

    def spread(self, values: Mapping[int, float], row: int) -> np.ndarray:
        """(slots,): each class's value in all slots of its block, of the classes of this row."""
        found = np.zeros(self.slots)
        for label, value in values.items():
            of, place = self.place(label)
            if of == row:
                found[place] = value
        return found

    def sums(self, row: np.ndarray) -> np.ndarray:
        """(blocks of a row,): the sum of each block's vector. The slots after it count for nothing."""
        found: np.ndarray = row.reshape(-1, self.block)[:, :self.length].sum(1)
        return found


def uniform(seed: bytes, rows: int, slots: int) -> np.ndarray:
    """(rows, slots) mask, each entry on its own. seed: 32 bytes, for one mask only."""
    words = prg(seed, 2 * rows * slots).view(np.uint64)
    return ((words >> np.uint64(11)) * _UNIT - BOUND).reshape(rows, slots)


def zero_sum(seed: bytes, rows: int, layout: Layout) -> np.ndarray:
    """(rows, slots) mask whose blocks add up to zero over their vectors, but for the rounding of float64 (some 1e-8
    for vectors of 512), and which is uniform in the slots after these. seed: 32 bytes, for one mask only."""
    found = uniform(seed, rows, layout.slots).reshape(rows, -1, layout.block)
    last = layout.length - 1
    found[:, :, last] = -found[:, :, :last].sum(2)
    return found.reshape(rows, layout.slots)
