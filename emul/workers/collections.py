"""Python's cycle collector, kept out of the way while events are processed."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator

_OFTEN = (50_000, 20, 50)           # new containers before a collection; Python's own 700 cost lockstep runs a third
_modules = 0                        # that were imported when what existed was frozen last


@contextlib.contextmanager
def rare_collections() -> Iterator[None]:
    """Inside the block collections are rare. What exists at one that follows imports is never looked at again.

    That is the interpreter, torch and whatever else was imported: a full collection over it takes 0.1 to 0.3 s,
    and every run begins with one, so that it does not carry the garbage of the run before.
    """
    global _modules
    gc.collect()
    if len(sys.modules) > _modules:
        gc.freeze()
        _modules = len(sys.modules)
    with seldom():
        yield


@contextlib.contextmanager
def seldom() -> Iterator[None]:
    """Inside the block collections are rare, too, and it begins with none: for what comes after events, while all that
    they have left is still there to be looked at."""
    before = gc.get_threshold()
    gc.set_threshold(*_OFTEN)
    try:
        yield
    finally:
        gc.set_threshold(*before)
