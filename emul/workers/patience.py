"""The limit of real time on the code of roles: `workers.patience`.

A role is ordinary Python, which may loop without ever coming to a wait. Heartbeats do not tell: they come from another
thread. That thread looks at the stack of the thread that computes, twice a second. Code that is looked at pays nothing.

A worker process is ended by the coordinator then. In a run without worker processes (`Twin`) the exception `Overdue` is
raised in the role's code.
"""

from __future__ import annotations

import ctypes
import logging
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

from emul.base.tracebacks import standing
from emul.roles.trampoline import Role
from emul.workers.jobs import Jobs

LOOK_S = 0.5
_LONGEST_LOOK_S = 1.0               # between two looks; more: this process was stopped, or no other thread could run
_log = logging.getLogger(__name__)

Whose = Callable[[int], tuple[str, str, int]]       # node -> its name, role and round


class RoleWatch:
    """Watches one thread of this process during a run. whose: tells of a node."""

    def __init__(self, thread: int, limit_s: float, whose: Whose):
        self._thread = thread
        self._limit_s = limit_s
        self._whose = whose
        # The frame itself and not its number, which the next call may get. It keeps what a call held until the next
        # look, half a second later.
        self._seen: FrameType | None = None
        self._looked, self._computed_s = time.monotonic(), time.process_time()      # at the last look
        self._spent_s = 0.0                 # in the call that was seen

    def look(self, now: float) -> str:
        """The text on a step or computation that has taken longer than the limit; "": there is none. now: in seconds
        of `time.monotonic`."""
        since_s, computed_s = now - self._looked, time.process_time() - self._computed_s
        self._looked, self._computed_s = now, self._computed_s + computed_s
        # A process that was stopped has not computed meanwhile. One that has computed, while this thread could not
        # run, was in a single call of C code that keeps the interpreter's lock. The lock changes hands at the first
        # line of Python after it: the role is still there, or a little further
        # (`test_a_call_that_lets_no_other_thread_run_is_noticed_once_it_ends`).
        held_s = min(since_s, computed_s) if since_s > _LONGEST_LOOK_S else 0.0
        inner = sys._current_frames().get(self._thread)
        outer, inside = _activation(inner)
        if outer is None or outer is not self._seen:
            self._seen, self._spent_s = outer, 0.0
        else:
            self._spent_s += min(since_s, _LONGEST_LOOK_S)
        if held_s > self._limit_s:
            return (f"a call let no other thread run for {held_s:.1f} s, more than {self._limit_s:g} s of real time "
                    f"(workers.patience); it has come to {standing(inside)}")
        return self._text(outer, inside) if outer is not None and self._spent_s > self._limit_s else ""

    def _text(self, outer: FrameType, inside: list[FrameType]) -> str:
        known = outer.f_locals
        if outer.f_code is Role.step.__code__:
            node, what = known["self"].node.id, "did not come to a wait"
        else:
            node, what = known["node"], "did not end a computation"
        name, role, round_ = self._whose(node)
        return (f"{name} ({role}) {what} within {self._limit_s:g} s of real time (workers.patience) in round {round_}: "
                f"{standing(inside)}")


class Overdue(BaseException):
    """Raised in the code of a role that has taken too long. No `except Exception` of that code takes it."""


class Watchdog:
    """A thread that watches the thread which makes this object, and raises `Overdue` there."""

    def __init__(self, limit_s: float, whose: Whose):
        self.text = ""                      # of the role that has taken too long
        self._target = threading.get_ident()
        self._watch = RoleWatch(self._target, limit_s, whose)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look_on, name="workers.patience", daemon=True)
        self._thread.start()

    def _look_on(self) -> None:
        times = 0
        while not self._over.wait(LOOK_S):
            text = self._watch.look(time.monotonic())
            if not text:
                continue
            self.text, times = self.text or text, times + 1
            self._raise(ctypes.py_object(Overdue))      # before the log: while that is written, the role may go on
            if times == 2:                  # the exception is pending: Python raises it at the role's next line
                _log.warning("%s; the run ends as soon as this call does", text)

    def _raise(self, pending: ctypes.py_object[type[Overdue]] | None) -> None:
        """Have an exception raised at the next line of the thread that is watched; None: none any more."""
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._target), pending)

    def close(self) -> None:
        """Raise nothing from now on. The thread that is watched calls it."""
        while True:
            try:
                self._over.set()
                self._thread.join()
                self._raise(None)
                return
            except Overdue:                 # a second one, sent while the first was on its way here
                continue


def _activation(frame: FrameType | None) -> tuple[FrameType | None, list[FrameType]]:
    """(the call of a role's step or computation that a stack is in, the calls inside of it from the outermost on).
    None: it is in neither."""
    inside: list[FrameType] = []
    while frame is not None and frame.f_code not in (Role.step.__code__, Jobs.run.__code__):
        inside.append(frame)
        frame = frame.f_back
    return frame, inside[::-1]
