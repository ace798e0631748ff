"""The trampoline: drives one role's coroutine, so that to the kernel it is `step(event) -> actions`.

Rule: only `node.*` may be awaited. Anything else that a role yields is refused with the role's own file and line.
"""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable
from time import perf_counter_ns
from types import CoroutineType
from typing import Any

from emul.base.errors import NotRecorded, ProtocolFailure, RoleError
from emul.base.tracebacks import told
from emul.roles.desk import Desk, keep_nothing, meter
from emul.roles.events import Action, Finish, NextRound, Reply, RoleEvent
from emul.roles.node import Await, Node, RoundOver

RoleFunction = Callable[[Node, Any], Awaitable[None]]


class Role:
    """One running role of one node."""

    __slots__ = ("_awaiting", "_coroutine", "desk", "ended", "function", "node")

    def __init__(self, node: Node, desk: Desk, function: RoleFunction, params: object):
        self.node = node
        self.desk = desk
        self.function = function
        self.ended = False
        self._awaiting: Await[object] | None = None
        coroutine = function(node, params)
        if not isinstance(coroutine, CoroutineType):
            raise RoleError(f"role {node.role!r} is no coroutine function: write `async def {node.role}(node, p)`")
        self._coroutine = coroutine

    def step(self, event: RoleEvent) -> Reply:
        """Go on with `event` until the role waits again or ends; its actions since, in order.

        An exception that is no outcome of the protocol comes back as `Reply.error`, with its traceback.
        """
        node, desk = self.node, self.desk
        node.now_ns = event.now
        desk.begin()
        actions = desk.actions
        begin = perf_counter_ns()
        try:
            awaiting = self._coroutine.send(event if self._awaiting is not None else None)
        except StopIteration:
            if desk.unawaited:
                return self._fail(actions, _forgotten(desk.unawaited[0]))
            self._end(actions, "")
        except ProtocolFailure as e:
            self._end(actions, f"{type(e).__name__}: {e}")
        except RoundOver:
            self._end(actions, "its round was over, outside of `with round_:`")
        except Exception as e:
            return self._fail(actions, e)
        else:
            if not isinstance(awaiting, Await):
                return self._fail(actions, RoleError(
                    f"{self._place()}: only node.* may be awaited, not {type(awaiting).__name__}"))
            asked = 0 if isinstance(awaiting.action, NextRound) else 1
            if len(desk.unawaited) > asked:
                return self._fail(actions, _forgotten(desk.unawaited[0]))
            self._awaiting = awaiting
            actions.append(awaiting.action)
        return Reply(node.id, actions, meter.cpu_ns(perf_counter_ns() - begin) - desk.excused_ns)

    @property
    def asked(self) -> NextRound | None:
        """The action with which the role asks for its next round, if it waits for one."""
        action = None if self._awaiting is None else self._awaiting.action
        return action if isinstance(action, NextRound) else None

    def close(self) -> None:
        """End the role without a word: its node has crashed. Messages that its `finally` blocks send go nowhere."""
        self.ended = True
        self.desk.begin()
        self.desk.keep = keep_nothing
        try:
            self._coroutine.close()
        except (RuntimeError, RoleError):       # it awaited while being closed: it cannot
            return

    def _end(self, actions: list[Action], why: str) -> None:
        self.ended = True
        actions.append(Finish(why))

    def _fail(self, actions: list[Action], error: Exception) -> Reply:
        self.ended = True
        if isinstance(error, RuntimeError) and str(error) == "no running event loop":
            error = RoleError(f"{_last_place(error)}: only node.* may be awaited, nothing of asyncio").with_traceback(
                error.__traceback__)
        text = told(error)
        if isinstance(error, NotRecorded):      # nothing is wrong with the role
            text = f"{type(error).__name__}: {error}"
        self._coroutine.close()
        return Reply(self.node.id, actions, 0, text)

    def _place(self) -> str:
        """file:line of the innermost frame of the role that is suspended."""
        place: str = "?"
        inner: Any = self._coroutine
        while isinstance(inner, CoroutineType) and inner.cr_frame is not None:
            if "asyncio" not in inner.cr_code.co_filename:      # not a line of the user's
                place = f"{inner.cr_code.co_filename.rpartition('/')[2]}:{inner.cr_frame.f_lineno}"
            inner = inner.cr_await
        return place


def _forgotten(place: str) -> RoleError:
    return RoleError(f"{place}: a wait or computation that is not awaited where it is written: await it")


def _last_place(error: BaseException) -> str:
    """The role's own line in a traceback: the last one outside of the standard library's asyncio."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "asyncio" not in f.filename]
    return f"{frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno}" if frames else "?"
