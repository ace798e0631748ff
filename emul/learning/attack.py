"""The points at which a node's learning can be attacked: its samples, its update, its prototypes.

`Attack` attacks nothing; who attacks overrides. Nothing here knows what attacks there are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from emul.learning.training import Stream

Vector = np.ndarray                                     # (d,) float32
# (inputs (n, ...) float32, labels (n,) int64, rng) -> the same, changed
Transform = Callable[[np.ndarray, np.ndarray, np.random.Generator], tuple[np.ndarray, np.ndarray]]
Tamper = Callable[[dict[int, np.ndarray], np.random.Generator], dict[int, np.ndarray]]


class Attack:
    """The way in which one malicious node learns."""

    def poison(self, round_: int) -> tuple[int, Transform] | None:
        """(number, how) of what it does to its samples in a round; equal numbers: the same samples. None: nothing."""
        return None

    def tamper(self, round_: int) -> Tamper | None:
        """The change that it makes to its prototypes in a round. None: nothing."""
        return None

    def update(self, own: Vector, stream: Stream) -> Vector:
        """The result that it claims for a training, whose streams are `stream`, in place of `own`, which is only read:
        the difference of parameters, or a gradient. `own` itself: the truth."""
        return own
