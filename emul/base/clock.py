"""CPU time of this thread, without what is done off the clock: evaluation, and what attackers know of others."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from time import thread_time_ns

_off_ns = 0             # of the one thread that computes


def cpu_ns() -> int:
    """CPU time of this thread that counts, from some beginning."""
    return thread_time_ns() - _off_ns


@contextlib.contextmanager
def off_the_clock() -> Iterator[None]:
    """Computations inside do not count; may be nested."""
    global _off_ns
    counted = cpu_ns()
    try:
        yield
    finally:
        _off_ns += cpu_ns() - counted


def credit(ns: int) -> None:
    """Count `ns` as if they had been computed now: a result was found that had taken so long."""
    global _off_ns
    _off_ns -= ns
