"""An app in a thread of its own, which runs only while its host waits for it.

A ServerApp is plain code that blocks: it asks for replies and goes on when it has them. A role cannot block. So the app
runs in a thread, and whatever takes virtual time in it is a `Request` that goes to the role; the thread stands still
until the role has an answer. Either the role runs or the app does, never both: real time changes nothing.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from time import thread_time_ns
from types import FrameType
from typing import Any

import numpy as np

from emul.base import clock
from emul.base.errors import RoleError, RunError

_CLOSING_S = 5.0                    # for an app that is told to end, before its thread is left behind


class Request:
    """A request of an app to its host."""


@dataclass
class Ended(Request):
    """The app has returned, or has raised `error`."""

    error: BaseException | None = None


class Dismissed(BaseException):
    """Raised where the app waits: nobody will answer any more. No `except Exception` catches it."""


class Guest:
    """One app. stuck_s: real seconds that it may take between two requests before it counts as hanging."""

    # A ServerApp blocks while it waits, and a role cannot, so it has a thread that stands still while the role runs. A
    # greenlet would not do: what an app sets for its thread, such as `torch.no_grad`, would hold for all who compute in
    # the worker. Flower's own runtime polls, hands replies on in the order of the machine, and has no links
    # (`test_requests_and_answers_take_turns`).

    def __init__(self, app: Callable[[], None], stuck_s: float):
        self._app, self._stuck_s = app, stuck_s
        self._answers: SimpleQueue[object] = SimpleQueue()
        self._requests: SimpleQueue[tuple[Request, int]] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True, name="Flower ServerApp")
        self._begin_ns = 0
        self._dismissed = self._hangs = False

    def resume(self, answer: object = None) -> Request:
        """Let the app go on with an answer to what it has asked for, until it asks again or ends.

        Its computations count as if this thread had done them. Raises RunError if it hangs.
        """
        if self._thread.ident is None:
            self._thread.start()
        else:
            self._answers.put(answer)
        try:
            request, cpu_ns = self._requests.get(timeout=self._stuck_s)
        except Empty:
            self._hangs = True
            raise RunError(f"the server app has not come back for {self._stuck_s:g} s; it is at\n{self._where()}"
                           "(stuck: how long it may take)") from None
        clock.credit(cpu_ns)
        return request

    def ask(self, request: Request) -> Any:
        """In the app's thread: hand a request over, and stand still until there is an answer. Raises Dismissed."""
        if threading.get_ident() != self._thread.ident:
            raise RoleError("the Grid was asked from a second thread of the server app: nobody could tell when in "
                            "virtual time that is; ask it from the thread that runs the app")
        if self._dismissed:
            raise Dismissed
        self._requests.put((request, thread_time_ns() - self._begin_ns))
        answer = self._answers.get()
        self._begin_ns = thread_time_ns()
        if self._dismissed:
            raise Dismissed
        return answer

    @property
    def in_its_thread(self) -> bool:
        """True if this is asked by the thread of the app."""
        return threading.get_ident() == self._thread.ident

    def dismiss(self) -> None:
        """End the app where it waits: its `finally` blocks run."""
        if self._dismissed or self._thread.ident is None:
            return
        self._dismissed = True
        self._answers.put(None)
        if not self._hangs:
            self._thread.join(_CLOSING_S)

    def _run(self) -> None:
        error: BaseException | None = None
        self._begin_ns = thread_time_ns()
        try:
            self._app()
        except Dismissed:
            pass
        except BaseException as e:      # SystemExit, too: the role is to know
            error = e
        self._requests.put((Ended(error), thread_time_ns() - self._begin_ns))

    def _where(self) -> str:
        frame: FrameType | None = sys._current_frames().get(self._thread.ident or 0)
        return "" if frame is None else "".join(traceback.format_stack(frame)[-5:])


# --- the requests of a server app to the role that hosts it: everything that takes virtual time ---------------------

@dataclass
class Replies(Request):
    """Wait until these messages are answered, or until a time. Other messages that come meanwhile are handed over, too.

    asked: name of the message -> the node that it was sent to.
    """

    asked: dict[str, int]
    until_ns: int


@dataclass
class AnyReply(Request):
    """Wait for an answer of any node, until a time."""

    until_ns: int


@dataclass
class WhoIsThere(Request):
    """Ask all nodes whether they are there; the answer: those that say so in time."""


@dataclass
class Sleep(Request):
    """Do nothing."""

    seconds: float


@dataclass
class BeginRound(Request):
    """The begin of another round, to which the next messages belong. model, metrics, counts: of the one that ends.

    failure: why it has failed; "": it has not.
    """

    model: np.ndarray | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    counts: dict[str, float] = field(default_factory=dict)
    failure: str = ""
