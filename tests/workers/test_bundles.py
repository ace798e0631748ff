"""Payloads on their way from worker to worker: what is small shares a frame, and everything arrives as it was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from emul.message.wire import Encoded, Message, decode, encode
from emul.workers.process import SMALL_BYTES, Bundle, unbundled


@dataclass(frozen=True)
class Pair(Message):
    a: np.ndarray
    b: np.ndarray


@dataclass(frozen=True)
class Note(Message):
    text: str


TYPES: dict[str, type[Message]] = {"Pair": Pair, "Note": Note}


def bytes_of(n: int) -> np.ndarray:
    return np.arange(n, dtype=np.uint32).astype(np.uint8)


def carried(bundle: Bundle) -> dict[tuple[int, int], Encoded]:
    small, *large = (bytes(frame) for frame in bundle.frames())
    return unbundled(bundle.described, small, large)


def test_small_and_large_arrays_come_out_as_they_went_in() -> None:
    sizes = [(3, SMALL_BYTES), (SMALL_BYTES + 1, 5), (0, 0), (SMALL_BYTES + 7, SMALL_BYTES + 1)]
    bundle = Bundle()
    for first, (a, b) in enumerate(sizes):
        bundle.add(4, first, encode(Pair(bytes_of(a), bytes_of(b))))
    bundle.add(5, 0, encode(Note("nothing but a header")))
    assert len(bundle.large) == 3
    assert bundle.size == sum(a + b for a, b in sizes)
    found = carried(bundle)
    assert list(found) == [(4, 0), (4, 1), (4, 2), (4, 3), (5, 0)]
    for first, (a, b) in enumerate(sizes):
        pair: Any = decode(found[4, first], TYPES)
        assert np.array_equal(pair.a, bytes_of(a))
        assert np.array_equal(pair.b, bytes_of(b))
        assert pair.a.ctypes.data % 64 == pair.b.ctypes.data % 64 == 0
        assert not any(part.flags.writeable for part in (pair.a, pair.b))
    assert decode(found[5, 0], TYPES) == Note("nothing but a header")


def test_what_goes_with_a_payload_stays_with_it() -> None:
    bundle = Bundle()
    bundle.add(1, 7, encode(Note("it")))
    bundle.add(1, ~7, encode(Note("what goes with it")))
    found = carried(bundle)
    assert list(found) == [(1, 7)]
    aside = found[1, 7].aside
    assert aside is not None
    assert decode(aside, TYPES) == Note("what goes with it")
