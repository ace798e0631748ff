"""One bit a coordinate: its sign.

    scale: mean     sign(x) |x|_1 / d, under error feedback     Karimireddy et al., ICML 2019 (EF-signSGD), Algorithm 1
    scale: none     sign(x), for those who count votes          Bernstein et al., ICML 2018 (signSGD)

0 counts as positive. Bytes: ceil(d / 8), and 4 for the scale.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from emul.primitives.compress import planes
from emul.primitives.compress.codec import Codec, Floats, Octets, Reader, joined, sendable


@dataclass(frozen=True)
class Sign(Codec):
    """Signs, of one size."""

    scale: Literal["mean", "none"] = "mean"
    feedback: bool = True

    def __post_init__(self) -> None:
        if self.feedback and self.scale == "none":
            raise ValueError("feedback: true needs scale: mean: without a size there is no error to keep")

    @property
    def unbiased(self) -> bool:
        return False

    def encode(self, x: Floats, rng: np.random.Generator, warm: object = None) -> tuple[Octets, object]:
        """The scale, then the signs: 1 is negative."""
        size = np.array([np.abs(x).mean(dtype=np.float64)], np.float32) if self.scale == "mean" else np.empty(0, "<f4")
        return joined([sendable(size), np.packbits(x < 0)]), None

    def decode(self, code: Octets, d: int) -> Floats:
        reader = Reader(code)
        size = reader.numbers("<f4", 1)[0] if self.scale == "mean" else np.float32(1)
        negative = planes.bits_of(reader, d)
        reader.end()
        return np.where(negative, -size, size)

    def nbytes(self, d: int) -> int:
        return (4 if self.scale == "mean" else 0) + -(-d // 8)
