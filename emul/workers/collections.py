"""Python's cycle collector, kept out of the way while events are processed."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

_OFTEN = (50_000, 20, 50)           # new containers before a collection; Python's own 700 cost lockstep runs a third


@contextlib.contextmanager
def rare_collections() -> Iterator[None]:
    """Inside the block what exists already is never looked at again, and collections are rare."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_OFTEN)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
