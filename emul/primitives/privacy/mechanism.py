"""The Gaussian mechanism: an update of bounded norm, and noise. Dwork and Roth 2014, appendix A."""

from __future__ import annotations

import numpy as np

from emul.primitives.clip import clipped


def noisy(update: np.ndarray, clip: float | None, lambda_: float, rng: np.random.Generator) -> np.ndarray:
    """Y = Delta + n, n i.i.d. N(0, lambda^2 I): (d,) float32. Delta is clipped to the norm `clip` first; None: it is
    not. lambda = 0 draws nothing."""
    kept = clipped(update, clip)
    if not lambda_:
        return kept
    return kept + np.float32(lambda_) * rng.standard_normal(update.size, dtype=np.float32)
