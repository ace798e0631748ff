"""Rules that find suspicious groups of clients by the means of their updates alone: (G, d) -> (G,) bool.

A group with one attacker is wholly suspicious: with many attackers few groups are clean. These rules take the median
group as the measure, so they need more clean groups than others; with 20 attackers among 100 clients in groups of 10,
one group in ten is clean, and no such rule finds it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Detector = Callable[[np.ndarray, float], np.ndarray]

_LEAST_SPREAD = 1e-12               # of groups that are all alike, none is an outlier


def nobody(means: np.ndarray, limit: float) -> np.ndarray:
    """No group."""
    return np.zeros(len(means), bool)


def distance(means: np.ndarray, limit: float) -> np.ndarray:
    """Those farther from the coordinate-wise median of the groups than the median distance and `limit` MADs."""
    return _beyond(np.linalg.norm(means - np.median(means, axis=0), axis=1), limit)


def norm(means: np.ndarray, limit: float) -> np.ndarray:
    """Those whose mean is longer than the median length and `limit` MADs."""
    return _beyond(np.linalg.norm(means, axis=1), limit)


def cosine(means: np.ndarray, limit: float) -> np.ndarray:
    """Those whose angle to the coordinate-wise median, as 1 - cosine, is larger than the median's and `limit` MADs."""
    centre = np.median(means, axis=0)
    lengths = np.linalg.norm(means, axis=1) * max(float(np.linalg.norm(centre)), _LEAST_SPREAD)
    return _beyond(1 - means @ centre / np.maximum(lengths, _LEAST_SPREAD), limit)


def _beyond(scores: np.ndarray, limit: float) -> np.ndarray:
    """Scores above the median by more than `limit` times the median absolute deviation."""
    centre = np.median(scores)
    spread = max(float(np.median(np.abs(scores - centre))), _LEAST_SPREAD)
    return np.asarray(scores - centre > limit * spread)


DETECTORS: dict[str, Detector] = {"none": nobody, "distance": distance, "norm": norm, "cosine": cosine}
