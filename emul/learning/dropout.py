"""Dropout that costs a tenth of torch's on a CPU.

torch draws Bernoulli values one by one: of a step of `mnist_printed` with batch 128 that is a quarter. Here 16 random
bits decide about a value, and the bits come from NumPy (SFC64), seeded by one draw of torch's generator: the stream
that is put in its place for a training (`emul.base.streams.torch_stream`) decides about everything, as before.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

_ONE = 1 << 16


class Dropout(nn.Module):
    """Zeroes each value with probability `p` and scales the others by 1 / (1 - p), while training.

    `p` is rounded to 1/65536, and the scale is of what it is rounded to: the mean of a value stays itself. Srivastava
    et al. 2014. Raises ValueError unless 0 <= p < 1.
    """

    def __init__(self, p: float):
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"dropout {p!r}: expected a probability in [0, 1)")
        self.p = p
        self.kept = max(1, round((1 - p) * _ONE))           # of 65536

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x of any shape, masked and scaled; x itself in evaluation, and where p rounds to 0."""
        if not self.training or not self.draws:
            return x
        mask = torch.from_numpy(self.chosen(x.numel())).reshape(x.shape).to(x.device, x.dtype)
        return x * mask.mul_(self.scale)

    @property
    def draws(self) -> bool:
        """True if it takes a random number at all: not where p rounds to 0."""
        return self.kept < _ONE

    @property
    def scale(self) -> float:
        """Of what is kept."""
        return _ONE / self.kept

    def chosen(self, count: int, generator: torch.Generator | None = None) -> np.ndarray:
        """A mask of the values that are kept, (count,) bool: one draw of the generator, torch's own by default."""
        seed = int(torch.randint(1 << 62, (), generator=generator))
        return np.random.SFC64(seed).random_raw(-(-count // 4)).view(np.uint16)[:count] < self.kept

    def extra_repr(self) -> str:
        return f"p={self.p}"
