"""Tests of loops leave no thread behind."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _no_run_goes_on() -> Iterator[None]:
    """A clock that nobody finishes ends its run once it is collected. Until then collections are rarer in this process,
    which tests elsewhere look at."""
    yield
    going_on = [thread for thread in threading.enumerate() if thread.name == "emul.Clock"]
    if going_on:
        gc.unfreeze()                   # a run freezes what exists as it begins: its clock, too, which a cycle may hold
        gc.collect()
        gc.freeze()                     # the next collection does not look at all that tests keep
    for thread in going_on:
        thread.join(10)
        assert not thread.is_alive()
