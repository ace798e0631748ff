"""Clients of PPFPL that send what they should not: each changes its rows before or after they are encrypted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from emul.primitives.he import ckks
from emul.primitives.he.ckks import PROTOTYPES, Ckks
from emul.roles import Declared
from emul.schemes.ppfpl.messages import LocalPrototypes, SealedRows
from emul.schemes.ppfpl.slots import Layout

Table = dict[int, np.ndarray]           # row -> (slots,) float64


class Honest:
    """Changes nothing."""

    def rows(self, layout: Layout, table: Table, held: list[int]) -> Table:
        """The rows that are encrypted."""
        return table

    def sealed(self, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The rows after encryption, as they are sent."""
        return rows

    def message(self, upload: LocalPrototypes) -> LocalPrototypes:
        """The message that is sent."""
        return upload


class Garbage(Honest):
    """Ones in the block of a class that it does not hold, or after all blocks."""

    def rows(self, layout: Layout, table: Table, held: list[int]) -> Table:
        found = {row: values.copy() for row, values in table.items()}
        next(iter(found.values()))[-layout.block:] = 1.0
        return found


class WrongKey(Honest):
    """Encrypts under a key of its own."""

    def __init__(self, chain: tuple[int, ...] = PROTOTYPES.chain, scale: int = PROTOTYPES.scale):
        self.parameters = replace(PROTOTYPES, chain=chain, scale=scale)

    def sealed(self, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        if rows.dtype != np.uint8:
            return rng.standard_normal(rows.shape) * 1e17       # the values it would decrypt to
        own = Ckks(self.parameters, ckks.Keys(self.parameters).part())
        return own.seal([own.encrypt(np.zeros(own.slots)) for _ in rows], 0)


class WrongParameters(WrongKey):
    """Encrypts under a key of its own of other parameters."""

    def __init__(self) -> None:
        super().__init__((60, 40, 40, 60), 40)


class Junk(Honest):
    """Random bytes of the right length."""

    def sealed(self, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        if rows.dtype != np.uint8:
            return rng.standard_normal(rows.shape)
        return np.stack([ckks.padded(rng.bytes(300_000), rows.shape[1]) for _ in rows])


class Truncated(Honest):
    """The first 1,000 bytes of each ciphertext."""

    def sealed(self, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        if rows.dtype != np.uint8:
            return rows * (np.arange(rows.shape[1]) < 10)
        return np.stack([ckks.padded(ckks.unpadded(row)[:1000], rows.shape[1]) for row in rows])


class Empty(Honest):
    """Nothing but padding."""

    def sealed(self, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.zeros_like(rows)


class Fewer(Honest):
    """No ciphertext."""

    def message(self, upload: LocalPrototypes) -> LocalPrototypes:
        rows = upload.sealed.rows[:0]
        return LocalPrototypes(upload.classes, SealedRows(rows, Declared(0)))


class Repeated(Honest):
    """Says that it holds a class twice."""

    def message(self, upload: LocalPrototypes) -> LocalPrototypes:
        return LocalPrototypes(upload.classes[[0, *range(len(upload.classes))]], upload.sealed)


class OutOfRange(Honest):
    """Says that it holds a class that there is not."""

    def message(self, upload: LocalPrototypes) -> LocalPrototypes:
        return LocalPrototypes(upload.classes + np.uint32(1000), upload.sealed)


FAULTS: dict[str, type[Honest]] = {
    "wrong_key": WrongKey, "wrong_parameters": WrongParameters, "garbage": Garbage, "junk": Junk,
    "truncated": Truncated, "empty": Empty, "fewer": Fewer, "repeated": Repeated, "out_of_range": OutOfRange}
