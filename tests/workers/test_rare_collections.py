"""The cycle collector during runs, and what becomes of what a large run leaves."""

from __future__ import annotations

import gc
import signal
import sys
import time
import weakref

import pytest

from emul.workers import collections
from emul.workers.collections import rare_collections, seldom


class Node:
    """Garbage that only the collector frees: it refers to itself."""

    def __init__(self) -> None:
        self.itself = self


def test_collections_are_the_rarer_the_more_nodes_there_are_and_as_before_after_it() -> None:
    before = gc.get_threshold()
    with seldom(10):
        few = gc.get_threshold()
        with seldom(1_000_000):
            assert gc.get_threshold()[0] > few[0] > before[0]
        assert gc.get_threshold() == few
    assert gc.get_threshold() == before


def test_collections_that_find_nothing_become_rarer_and_one_that_finds_some_makes_them_as_often_as_before() -> None:
    gc.collect()
    before = gc.get_threshold()
    with seldom():
        often, older, _ = gc.get_threshold()
        with seldom():                          # as an engine's block in another
            seen = []
            for _ in range(10):
                gc.collect(0)
                seen.append(gc.get_threshold()[:2])
            assert [new for new, _ in seen[:3]] == [2 * often, 4 * often, 8 * often]
            assert seen[-1][0] == collections._MOST
            # what has outlived a collection is looked at after as many new containers as ever, or sooner
            assert all(new * again <= often * older or again == 1 for new, again in seen)
            Node()
            gc.collect(0)
            assert gc.get_threshold()[:2] == (often, older)
            gc.collect(0)
        assert gc.get_threshold()[0] == often
    assert gc.get_threshold() == before
    gc.collect(0)
    assert gc.get_threshold() == before


def test_what_a_large_run_leaves_is_put_away_and_freed_when_the_next_one_begins() -> None:
    with rare_collections():                    # what was imported so far is frozen, and stays so
        pass
    with seldom(collections._LARGE):
        left = weakref.ref(Node())
        kept: list[list[int]] = [[] for _ in range(10_000)]      # more than may end meanwhile of what is frozen
        frozen = gc.get_freeze_count()
    assert gc.get_freeze_count() > frozen + len(kept) // 2
    gc.collect()
    assert left() is not None
    with rare_collections():
        assert left() is None


def test_what_a_small_run_leaves_is_the_collectors_as_ever() -> None:
    with rare_collections(collections._LARGE - 1):
        left = weakref.ref(Node())
    gc.collect()
    assert left() is None


class Interrupted(Node):
    """Garbage as whose collection a signal arrives: Python drops what the signal's handler raises in `__del__`."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


def test_an_interrupt_during_a_collection_is_not_lost() -> None:
    before = sys.unraisablehook
    with pytest.raises(KeyboardInterrupt), seldom():    # noqa: PT012 - the interrupt comes in a sleep
        Interrupted()
        gc.collect()
        for _ in range(1000):                           # it does not end the sleep in which it comes
            time.sleep(0.01)
    assert sys.unraisablehook is before


def test_a_collection_while_a_thread_leaves_the_last_block_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collections, "_least", [])
    before = gc.get_threshold()
    collections._collected("stop", {"collected": 0})
    assert gc.get_threshold() == before
