"""Pooling of feature vectors: n values, laid out row by row as a map, become fewer.

    soft    out_R = sum_i w_i c_i, w_i = exp(c_i - max_R) / sum_R exp(c - max_R), over a region R (Stergiou et al. 2021)
    avg, max                    over the same regions, kernel x kernel, every `stride`, no padding
    adaptive_avg, adaptive_max  of the same output shape
    none                        C itself

The shift by the largest value keeps exp finite (float32 overflows at 89); the gradient goes through w, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from emul.base.errors import EmulError

if TYPE_CHECKING:
    from torch import Tensor

Kind = Literal["soft", "avg", "max", "adaptive_avg", "adaptive_max", "none"]


class PoolError(EmulError):
    """A pooling does not fit the features."""


@dataclass(frozen=True)
class Pooling:
    """The way in which features are pooled."""

    kind: Kind = "soft"
    height: int = 5
    width: int = 10
    kernel: int = 3
    stride: int = 1

    def output(self, n: int) -> tuple[int, int]:
        """Shape of the pooled map of n features. Raises PoolError for a map of another size, or an empty output."""
        if self.kind == "none":
            return 1, n
        if self.height * self.width != n:
            raise PoolError(f"map {self.height} x {self.width}: expected a product of {n}, the number of features")
        sound = self.kernel >= 1 and self.stride >= 1
        shape = [(side - self.kernel) // self.stride + 1 if sound else 0 for side in (self.height, self.width)]
        if min(shape) < 1:
            raise PoolError(f"kernel {self.kernel}, stride {self.stride}: leave nothing of a map of "
                            f"{self.height} x {self.width}")
        return shape[0], shape[1]

    def length(self, n: int) -> int:
        """n', the number of values that n features become. Raises PoolError.

        >>> Pooling("soft", 5, 10, 3, 1).length(50), Pooling("soft", 2, 256, 2, 1).length(512)
        (24, 255)
        """
        rows, columns = self.output(n)
        return rows * columns

    def __call__(self, c: Tensor) -> Tensor:
        """(B, n) -> (B, n')."""
        import torch
        from torch.nn import functional as F

        if self.kind == "none":
            return c
        shape = self.output(c.shape[1])
        x = c.reshape(-1, 1, self.height, self.width)                   # (B, 1, h, w)
        if self.kind == "avg":
            found = F.avg_pool2d(x, self.kernel, self.stride)
        elif self.kind == "max":
            found = F.max_pool2d(x, self.kernel, self.stride)
        elif self.kind == "adaptive_avg":
            found = F.adaptive_avg_pool2d(x, shape)
        elif self.kind == "adaptive_max":
            found = F.adaptive_max_pool2d(x, shape)
        else:
            regions = F.unfold(x, self.kernel, stride=self.stride)      # (B, kernel^2, n')
            found = (torch.softmax(regions, 1) * regions).sum(1)        # softmax shifts by the maximum itself
        return found.reshape(len(c), -1)
