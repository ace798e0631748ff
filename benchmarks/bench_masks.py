"""Masks, codes and shares of secure aggregation: expanding masks in GB/s, products modulo a prime in G mac/s.

Masks of 1,000,000 elements, 4 MB, from one seed, and what they are measured against: the AES-256-CTR key stream alone.
Products are those of LightSecAgg's encoding: (100, 70) x (70, 16,667) and (300, 210) x (210, 2,000). Shares are those
of 1,000 secrets, which one call combines from 667 shares each. One thread, CPU seconds, medians of batches of calls.
Without AES instructions the key stream is some thirty times as slow.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from statistics import median
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.common import Figure, Options, main
from emul.base.streams import generator
from emul.primitives.crypto.prg import CHUNK_WORDS, KeyStream, prg_add
from emul.primitives.crypto.shamir import combine_all
from emul.primitives.field import P31, matmul, uniform

ELEMENTS, SEED = 1_000_000, bytes(range(32))
SIZES = ((100, 70, 16_667), (300, 210, 2_000))
_BATCHES, _CALLS = 7, 10


def seconds(call: Callable[[], Any], repeats: int, calls: int = _CALLS) -> float:
    """Median CPU seconds a call, over batches of `calls`."""
    def batch() -> float:
        begin = time.process_time()
        for _ in range(calls):
            call()
        return (time.process_time() - begin) / calls

    batch()
    return median(batch() for _ in range(_BATCHES * repeats))


def key_stream() -> None:
    """As many words as a mask has."""
    stream = KeyStream(SEED)
    for start in range(0, ELEMENTS, CHUNK_WORDS):
        stream.words(min(CHUNK_WORDS, ELEMENTS - start))


def masks(options: Options) -> Iterable[Figure]:
    out = np.zeros(ELEMENTS, np.uint32)
    with threadpool_limits(1):
        for name, call, target in (("key stream", key_stream, None),
                                   ("mask of the ring, expanded and added", lambda: prg_add(out, SEED), 2.0),
                                   ("mask of the field, expanded", lambda: uniform(SEED, ELEMENTS, P31), 2.0)):
            took = seconds(call, options.repeats)
            yield Figure(name, 4e-9 * ELEMENTS / took, "GB/s", at_least=target,
                         note=f"{1e-6 * ELEMENTS / took:,.0f} M elements/s")
        rng = generator(1, "bench/masks")
        for r, n, w in SIZES:
            a, b = rng.integers(0, P31, (r, n)), rng.integers(0, P31, (n, w)).astype(np.uint32)
            took = seconds(lambda: matmul(a, b, P31), options.repeats, 1)       # noqa: B023, called before the next
            yield Figure(f"product, ({r}, {n}) x ({n}, {w:,})", 1e-9 * r * n * w / took, "G mac/s",
                         note=f"{1e3 * took:,.0f} ms")
        words = rng.integers(0, 256, (1000, 667, 32), np.uint8)         # any 667 values lie on a polynomial
        shares = {owner: {holder: word.tobytes() for holder, word in enumerate(of)} for owner, of in enumerate(words)}
        yield Figure("1,000 secrets of 667 shares each", seconds(lambda: combine_all(shares, 667), options.repeats, 1),
                     "s", at_most=0.5)


if __name__ == "__main__":
    main(masks, text=__doc__)
