"""Python's cycle collector, kept out of the way while events are processed."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

_OFTEN = (50_000, 20, 50)           # new containers before a collection; Python's own 700 cost lockstep runs a third
_frozen = False


@contextlib.contextmanager
def rare_collections() -> Iterator[None]:
    """Inside the block collections are rare. What exists at the first one of a process is never looked at again.

    That is the interpreter, torch and whatever else was imported: a full collection over it takes 0.1 to 0.3 s,
    and every run begins with one, so that it does not carry the garbage of the run before.
    """
    global _frozen
    before = gc.get_threshold()
    gc.collect()
    if not _frozen:
        gc.freeze()
        _frozen = True
    gc.set_threshold(*_OFTEN)
    try:
        yield
    finally:
        gc.set_threshold(*before)
