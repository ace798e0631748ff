"""Sets of clients that a relay may hear: all with their probabilities, or a sample where there are too many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from emul.base.streams import generator

ENUMERATED = 12                 # uncertain links; above that, patterns are sampled
SAMPLED = 4096

Matrix = NDArray[np.float64]


def link_patterns(row: Matrix, connected: Sequence[float], forced: int | None = None) -> Iterator[tuple[float, Matrix]]:
    """(probability, heard (K,) of 0.0 and 1.0) over the clients with row_m != 0; the others stay 0.

    connected: (K,) probability that each is heard. forced: a client that must be heard; the probabilities then add to
    its own, not to 1. Sampled patterns are equally likely and the same in every call.
    """
    c = np.asarray(connected, float)
    uses = np.flatnonzero(row)
    if forced is not None and forced not in uses:
        return
    scale = 1.0 if forced is None else float(c[forced])
    heard = np.zeros(len(row))
    heard[uses] = c[uses] == 1.0
    if forced is not None:
        heard[forced] = 1.0
    open_ = [int(m) for m in uses if 0.0 < c[m] < 1.0 and m != forced]
    if len(open_) <= ENUMERATED:
        for bits in range(1 << len(open_)):
            pattern, p = heard.copy(), scale
            for i, m in enumerate(open_):
                pattern[m] = float(bits >> i & 1)
                p *= c[m] if pattern[m] else 1.0 - c[m]
            yield p, pattern
        return
    rng = generator(0, "link patterns", len(open_))     # seed 0: a number of a report must not change from run to run
    for drawn in rng.random((SAMPLED, len(open_))):
        pattern = heard.copy()
        pattern[open_] = drawn < c[open_]
        yield scale / SAMPLED, pattern
