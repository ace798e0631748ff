"""The demands of a receiver on a message beside its annotations: for `accept`, by raising ProtocolViolation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from emul.base.errors import ProtocolFailure, ProtocolViolation
from emul.primitives.crypto.keys import KEY_BYTES, is_low_order
from emul.primitives.field import below

Demand = Callable[[Any], None]

MOST_SAMPLES = 10**9                # of one client: a weight that is no number of samples


class Refused(ProtocolFailure):
    """A client does not answer what the protocol forbids. Its round is over, the run is not."""


def demand(holds: bool, reason: str) -> None:
    """Raise ProtocolViolation, with this reason, unless it holds."""
    if not holds:
        raise ProtocolViolation(reason)


def both(*demands: Demand) -> Demand:
    """All of them, in this order."""
    def accept(message: Any) -> None:
        for one in demands:
            one(message)
    return accept


def shaped(**shapes: tuple[int, ...]) -> Demand:
    """Each of these fields is an array of this shape."""
    def accept(message: Any) -> None:
        for name, shape in shapes.items():
            found = getattr(message, name).shape
            if found != shape:                  # the text is made where it is wanted: it takes longer than the rest
                raise ProtocolViolation(f"{name}: shape {found}, expected {shape}")
    return accept


def elements(name: str, size: int, p: int) -> Demand:
    """A field holds (size,) numbers below p."""
    def accept(message: Any) -> None:
        values = getattr(message, name)
        demand(values.shape == (size,), f"{name}: shape {values.shape}, expected {(size,)}")
        demand(below(values, p), f"{name}: a value of p or above")
    return accept


def weighed(message: Any) -> None:
    """`samples` is a number that a client may have."""
    demand(0 <= message.samples <= MOST_SAMPLES, "samples: no number of samples")


def ascending(name: str, ids: np.ndarray | list[int], among: Sequence[int] | range) -> None:
    """Numbers in ascending order, each once, all `among` those."""
    found = ids if isinstance(ids, list) else ids.tolist()
    demand(all(a < b for a, b in pairwise(found)), f"{name}: not ascending, or one twice")
    known = among if isinstance(among, range) else set(among)
    demand(all(i in known for i in found), f"{name}: out of range")


def sound_key(name: str, key: bytes) -> None:
    """An X25519 key that a secret can be agreed on with."""
    demand(len(key) == KEY_BYTES, f"{name}: no key of {KEY_BYTES} bytes")
    demand(not is_low_order(key), f"{name}: a point of low order")


def key_table(name: str, keys: np.ndarray, rows: int, own: tuple[int, bytes] | None = None) -> None:
    """(rows, k 32) uint8: sound keys, no two of them equal. own: (row, what must stand there)."""
    demand(keys.ndim == 2 and len(keys) == rows and keys.shape[1] % KEY_BYTES == 0 and keys.shape[1] > 0,
           f"{name}: shape {keys.shape}, expected a row of keys for each of {rows}")
    octets = keys.tobytes()
    each = [octets[at:at + KEY_BYTES] for at in range(0, len(octets), KEY_BYTES)]
    demand(not is_low_order(*each), f"{name}: a point of low order")
    demand(len(set(each)) == len(each), f"{name}: one key twice")
    if own is not None:
        demand(keys[own[0]].tobytes() == own[1], f"{name}: my own key was changed")
