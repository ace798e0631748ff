"""Python's cycle collector, kept out of the way while events are processed."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator

ROLES = 50_000                      # new containers before a collection; Python's own 700 cost lockstep runs a third
KERNEL = 1_000_000                  # where no roles are: the kernel leaves no cycles, and all that lives is looked at
_OLDER = 20, 50                     # collections of the new, and of those that outlived one, before one goes further
_modules = 0                        # that were imported when what existed was frozen last


@contextlib.contextmanager
def rare_collections(new: int = ROLES) -> Iterator[None]:
    """Inside the block collections are rare: one after `new` containers. What exists at one that follows imports is
    never looked at again.

    That is the interpreter, torch and whatever else was imported: a full collection over it takes 0.1 to 0.3 s,
    and every run begins with one, so that it does not carry the garbage of the run before.
    """
    global _modules
    gc.collect()
    if len(sys.modules) > _modules:
        gc.freeze()
        _modules = len(sys.modules)
    with seldom(new):
        yield


@contextlib.contextmanager
def seldom(new: int = ROLES) -> Iterator[None]:
    """Inside the block collections are rare, too, and it begins with none: for what comes after events, while all that
    they have left is still there to be looked at."""
    before = gc.get_threshold()
    gc.set_threshold(new, *_OLDER)
    try:
        yield
    finally:
        gc.set_threshold(*before)
