"""Memory of a process: Python's cycle collector is kept out of the way, and what is freed stays for the next array."""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import functools
import gc
import sys
import threading
from collections.abc import Callable, Iterator, Mapping

ROLES = 50_000                      # new containers before a collection; Python's own 700 cost lockstep runs a third
KERNEL = 1_000_000                  # without roles: the kernel leaves no cycles, and all that lives is looked at
_MOST = 1_000_000                   # before one that follows others which have found nothing
_OLDER = 20, 50                     # collections of the new, and of those that outlived one, before one goes further
_OF_A_NODE = 64                     # or as many a node, which live as long as the run: to look at them again and again
#                                     took a quarter of a round of 131,072 clients
_AGAIN = 0.01                       # seconds until an interrupt that Python has dropped is sent again
_LARGE = 10_000                     # nodes of a run whose remains are put away, not looked through as it ends
_modules = 0                        # that were imported when what existed was frozen last
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3           # of mallopt(3)
_put_away = False                   # true if the leftovers of a large run were frozen since
_least: list[int] = []              # new containers before a collection after one that has found some: of each block


@contextlib.contextmanager
def rare_collections(nodes: int = 0, new: int = ROLES) -> Iterator[None]:
    """Inside the block collections are rare: one after `new` containers, or more if a run has many nodes. Objects that
    exist at one that follows imports are never looked at again.

    That is the interpreter, torch and whatever else was imported: a full collection over it takes 0.1 to 0.3 s,
    and every run begins with one, so that it does not carry the garbage of the run before.
    """
    global _modules, _put_away
    if _put_away:
        gc.unfreeze()
    gc.collect()
    if _put_away or len(sys.modules) > _modules:
        gc.freeze()
        _modules, _put_away = len(sys.modules), False
    with seldom(nodes, new):
        yield


@contextlib.contextmanager
def seldom(nodes: int = 0, new: int = ROLES) -> Iterator[None]:
    """Inside the block collections are rare, too, and it begins with none: for what comes before and after events,
    while all that they have left is still there to be looked at. As long as they find nothing, they become the rarer.

    Objects that a large run leaves are put away until the next one begins: looking through it took a tenth of the run,
    and most processes end after it.
    """
    # The objects of a large run live as long as it does, and to look at them again and again took a quarter of a round
    # of 131,072 clients; four rounds of `bench_bulk` make 7 collections in place of 94. None at all would not do: roles
    # may leave cycles that hold tensors. To take the kernel apart at the end takes as long as to look
    # (`test_collections_that_find_nothing_become_rarer_and_one_that_finds_some_makes_them_as_often_as_before`).
    global _put_away
    before, unraisable = gc.get_threshold(), sys.unraisablehook
    if not _least:
        gc.callbacks.append(_collected)
        sys.unraisablehook = functools.partial(_interrupt_again, unraisable)
    _least.append(max(new, _OF_A_NODE * nodes))
    gc.set_threshold(_least[-1], *_OLDER)
    try:
        yield
    finally:
        _least.pop()
        if not _least:
            gc.callbacks.remove(_collected)
            sys.unraisablehook = unraisable
        if nodes >= _LARGE:
            gc.freeze()
            _put_away = True
        gc.set_threshold(*before)


def _collected(phase: str, info: Mapping[str, object]) -> None:
    """After a collection that has found nothing the next one comes after twice as many new containers, up to `_MOST`:
    a round of n^2 messages holds a million that live. Objects that outlive one are looked at as often as ever."""
    # Without this a run in which 300 nodes send to each other for four rounds takes 18 to 20 % more CPU (9.9 s in place
    # of 8.2, in process, two interleaved pairs): its collections look again and again at messages that all live. With
    # 200 nodes and one round it makes no difference.
    if phase == "stop" and _least:      # not so in a thread, while another one leaves the last block
        least = _least[-1]
        new = least if info["collected"] else max(least, min(2 * gc.get_threshold()[0], _MOST))
        gc.set_threshold(new, max(1, _OLDER[0] * least // new), _OLDER[1])


def _interrupt_again(show: Callable[[sys.UnraisableHookArgs], object], dropped: sys.UnraisableHookArgs) -> None:
    """Sends an interrupt once more that Python has dropped; `show` shows any other error, as without this hook.

    Python runs a signal's handler in the next Python function. If the signal comes during a collection, that is
    `_collected` or an object's `__del__`, and Python drops what is raised there: Ctrl-C would do nothing.
    """
    if isinstance(dropped.exc_value, KeyboardInterrupt):
        # The interrupt may not come before this function has returned: here Python would drop it, too.
        threading.Timer(_AGAIN, _thread.interrupt_main).start()
    else:
        show(dropped)


def keep_memory() -> None:
    """Tell glibc not to give blocks of up to 1 GiB back to the kernel when they are freed.

    Else every activation of some MB is mapped anew, page by page, and unmapped after use: a quarter of a training step
    of `mnist_printed` with batch 128. Does nothing where there is no glibc.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, 1 << 30)
        mallopt(_TRIM_THRESHOLD, (1 << 31) - 1)
