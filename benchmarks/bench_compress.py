"""Codecs of updates: 1,000,000 float32 there and back in MB/s, and what they save on a link against what they cost.

Normal numbers, 4 MB; PowerSGD takes them as a matrix of 1000 x 1000. One thread, CPU seconds, medians of batches of
calls. Saved: seconds of a link of 20 Mbit/s that the code does not take and the vector would. A codec pays while that
is more than the CPU seconds of both ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from statistics import median
from typing import Any

from threadpoolctl import threadpool_limits

from benchmarks.common import Figure, Options, main
from emul.base.streams import generator
from emul.primitives.compress import choose

NUMBERS, LINK_BPS = 1_000_000, 20e6
CODECS: list[Any] = [{"top_k": {"fraction": 0.01}}, {"top_k": {"fraction": 0.1}}, {"random_k": {"fraction": 0.01}},
                     {"uniform": {"bits": 8}}, {"uniform": {"bits": 4}}, {"qsgd": {"levels": 16}},
                     {"qsgd": {"levels": 16, "bucket": 512}}, {"fedpaq": {"levels": 1}}, "sign",
                     {"powersgd": {"rank": 2}}]
_BATCHES, _CALLS = 5, 5


def seconds(call: Callable[[], Any], repeats: int) -> float:
    """Median CPU seconds a call, over batches."""
    def batch() -> float:
        begin = time.process_time()
        for _ in range(_CALLS):
            call()
        return (time.process_time() - begin) / _CALLS

    batch()
    return median(batch() for _ in range(_BATCHES * repeats))


def named(written: Any) -> str:
    """`top_k, fraction 0.01`."""
    if isinstance(written, str):
        return written
    (name, parameters), = written.items()
    return ", ".join([name, *(f"{key} {value}" for key, value in parameters.items())])


def compress(options: Options) -> Iterable[Figure]:
    rng = generator(1, "bench/compress")
    x = rng.standard_normal(NUMBERS, "f4")
    with threadpool_limits(1):
        for written in CODECS:
            codec, name = choose(written).shaped(((1000, 1000),)), named(written)
            code, warm = codec.encode(x, rng)
            there = seconds(lambda: codec.encode(x, rng, warm), options.repeats)        # noqa: B023, called here
            back = seconds(lambda: codec.decode(code, NUMBERS), options.repeats)        # noqa: B023
            saved = 8 * (x.nbytes - len(code)) / LINK_BPS
            yield Figure(f"{name}: encoded", 1e-6 * x.nbytes / there, "MB/s", at_least=200.0,
                         note=f"{len(code):,} bytes of {x.nbytes:,}")
            yield Figure(f"{name}: decoded", 1e-6 * x.nbytes / back, "MB/s")
            yield Figure(f"{name}: saved at 20 Mbit/s, over CPU of both ends", saved / (there + back), "x", minor=True,
                         at_least=1.0, note=f"{saved:.2f} s saved, {1e3 * (there + back):.1f} ms spent")


if __name__ == "__main__":
    main(compress, text=__doc__)
