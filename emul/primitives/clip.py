"""Clipping of updates by their norm."""

from __future__ import annotations

import numpy as np


def clipped(update: np.ndarray, norm: float | None) -> np.ndarray:
    """`update`, (d,) float32, scaled down to the l2 norm `norm` if its own is larger; None: as it is.

    >>> clipped(np.float32([3, 4]), 1.0)
    array([0.6, 0.8], dtype=float32)
    """
    if norm is None:
        return update
    own = float(np.linalg.norm(update))
    return update * np.float32(norm / own) if own > norm else update
