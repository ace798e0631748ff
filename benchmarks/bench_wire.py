"""A model as frames and back: us and MB/s of `encode` and `decode` of `emul/message/wire.py`, and bytes beside the
parameters.

The message is FedAvg's `Model`, one array of float32: 3,658 parameters as in the other benchmarks, and 1,000,000. Every
call copies the array, so the copy alone stands beside it. Medians of batches of calls.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from statistics import median
from typing import Any

import numpy as np

from benchmarks.common import Figure, Options, main
from emul.base.streams import generator
from emul.message.wire import ENVELOPE_BYTES, decode, encode, from_frames
from emul.protocols.updates import Model
from emul.schemes.fedavg import SCHEME

SIZES = {3_658: 1_000, 1_000_000: 20}       # parameters -> calls of a batch
_BATCHES = 7


def seconds(call: Callable[[], Any], calls: int, repeats: int) -> float:
    """Median seconds a call, over batches of `calls`."""
    def batch() -> float:
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        return (time.perf_counter() - begin) / calls

    batch()
    return median(batch() for _ in range(_BATCHES * repeats))


def wire(options: Options) -> Iterable[Figure]:
    types = SCHEME.types
    for parameters, calls in SIZES.items():
        vector = generator(1, "bench/wire").standard_normal(parameters, dtype=np.float32)
        message = Model(vector)
        encoded = encode(message)
        frames = [bytes(frame) for frame in encoded.frames()]
        again = decode(from_frames(frames), types)
        if not (isinstance(again, Model) and np.array_equal(again.parameters, vector)):
            raise RuntimeError("what was decoded is not what was encoded")
        for name, call in {
                "encode": lambda: encode(message),              # noqa: B023, called before the next one
                "take frames and decode": lambda: decode(from_frames(frames), types),       # noqa: B023
                "copy of the array": vector.copy}.items():
            took = seconds(call, calls, options.repeats)
            yield Figure(f"{name}, {parameters:,} parameters", 1e6 * took, "us",
                         note=f"{vector.nbytes / took / 1e6:,.0f} MB/s")
        yield Figure(f"bytes beside the array, {parameters:,} parameters", encoded.size - vector.nbytes, "bytes",
                     note=f"of {encoded.size:,}; {ENVELOPE_BYTES} more for the envelope of each copy")


if __name__ == "__main__":
    main(wire, text=__doc__)
