"""The trampoline: drives one role's coroutine, so that to the kernel it is `step(event) -> actions`.

Rule: only `node.*` may be awaited. Anything else that a role yields is refused with the role's own file and line.
"""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import perf_counter_ns
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from emul.base.errors import NotRecorded, ProtocolFailure, RoleError, RoundOver
from emul.base.tracebacks import named, traceback_of
from emul.roles.desk import Desk, keep_nothing
from emul.roles.events import Action, Finish, NextRound, Reply, RoleEvent, Suspension
from emul.roles.job import meter
from emul.roles.node import Node

if TYPE_CHECKING:
    from emul.roles.activities import Activities, AnyActivity

RoleFunction = Callable[[Node, Any], Awaitable[None]]


class Role:
    """One running role of one node."""

    __slots__ = ("_awaiting", "_coroutine", "desk", "ended", "function", "node")

    def __init__(self, node: Node, desk: Desk, function: RoleFunction, params: object):
        self.node = node
        self.desk = desk
        self.function = function
        self.ended = False
        self._awaiting: Suspension | None = None
        coroutine = function(node, params)
        if not isinstance(coroutine, CoroutineType):
            raise RoleError(f"role {node.role!r} is no coroutine function: write `async def {node.role}(node, p)`")
        self._coroutine = desk.main = coroutine

    def step(self, event: RoleEvent) -> Reply:
        """Go on with `event` until the role waits again or ends; its actions since, in order.

        An exception that is no outcome of the protocol comes back as `Reply.error`, with its traceback.
        """
        node, desk = self.node, self.desk
        node.now_ns = event.now
        desk.begin()
        actions = desk.actions
        begin = perf_counter_ns()
        error = None
        if desk.activities is None:
            error = self._advance(event if self._awaiting is not None else None)
        else:
            desk.activities.resume(event)
        if desk.activities is not None and error is None:
            error = self._go_on(desk.activities)
        if error is not None:
            return self._fail(actions, error)
        return Reply(node.id, actions, meter.cpu_ns(perf_counter_ns() - begin) - desk.excused_ns)

    def _advance(self, event: RoleEvent | None) -> Exception | None:
        """Let the main coroutine run until it waits or ends. Returns what ends the run; None: nothing does."""
        desk = self.desk
        try:
            awaiting = self._coroutine.send(event)
        except StopIteration:
            return _forgotten(desk.unawaited[0]) if desk.unawaited else self._end("")
        except ProtocolFailure as e:
            return self._end(named(e))
        except RoundOver:
            return self._end("its round was over, outside of `with round_:`")
        except Exception as e:
            return e
        if not isinstance(awaiting, Suspension):
            return _not_awaitable(self._coroutine, awaiting)
        # A wait that nobody awaits would never reach the kernel: the role would go on as if all had come. Each wait
        # leaves its place when it is asked for, so more places than suspensions tell of one that was forgotten
        # (`test_a_forgotten_await_is_refused_with_its_line`).
        asked = 0 if isinstance(awaiting.action, NextRound) else 1
        if len(desk.unawaited) > asked:
            return _forgotten(desk.unawaited[0])
        self._awaiting = awaiting
        if desk.activities is None:
            desk.actions.append(awaiting.action)
        else:
            desk.activities.suspended(awaiting)
        return None

    def _go_on(self, activities: Activities) -> Exception | None:
        """Let all run that can, until all of them wait. Returns what ends the run; None: nothing does."""
        error = None
        while error is None and not self.ended and (turn := activities.turn()) is not None:
            activity, event = turn
            self.desk.unawaited.clear()
            error = self._advance_activity(activities, activity, event) if activity.number else self._advance(event)
        return error

    def _advance_activity(self, activities: Activities, activity: AnyActivity, event: RoleEvent | None,
                        ) -> Exception | None:
        """As `_advance`, of an activity."""
        unawaited = self.desk.unawaited
        try:
            awaiting = activity.coroutine.send(event)
        except StopIteration as end:
            if unawaited:
                return _forgotten(unawaited[0])
            activities.returned(activity, end.value)
            return None
        except Exception as e:
            if not (isinstance(e, ProtocolFailure) or activity.waiters):
                return e
            activities.failed(activity, e)
            return None
        if not isinstance(awaiting, Suspension):
            return _not_awaitable(activity.coroutine, awaiting)
        if isinstance(awaiting.action, NextRound):
            return RoleError(f"{awaiting.action.where}: {activity.label} asks for rounds: only the role itself can, no "
                             "activity of it")
        if len(unawaited) > 1:
            return _forgotten(unawaited[0])
        activities.suspended(awaiting)
        return None

    @property
    def asked(self) -> NextRound | None:
        """The action with which the role asks for its next round, if it waits for one."""
        action = None if self._awaiting is None else self._awaiting.action
        return action if isinstance(action, NextRound) else None

    def close(self) -> None:
        """End the role without a word: its node has crashed. Messages that its `finally` blocks send go nowhere."""
        # Python runs the `finally` blocks of a coroutine that is closed, and a node that has crashed sends nothing
        # (`test_a_crash_closes_the_coroutine_which_can_no_longer_send`).
        self.ended = True
        self.desk.begin()
        self.desk.keep = keep_nothing
        if self.desk.activities is not None:
            self.desk.activities.close()
        with suppress(Exception):
            self._coroutine.close()

    def _end(self, why: str) -> Exception | None:
        """The main coroutine has ended, and its activities with it. Returns what ends the run; None: nothing does."""
        self.ended = True
        if self.desk.activities is not None:
            try:
                why = self.desk.activities.end_all() or why
            except Exception as e:              # of a `finally` block
                return e
        self.desk.actions.append(Finish(why))
        return None

    def _fail(self, actions: list[Action], error: Exception) -> Reply:
        self.ended = True
        if isinstance(error, RuntimeError) and str(error) == "no running event loop":
            error = RoleError(f"{_last_place(error)}: only node.* may be awaited, nothing of asyncio").with_traceback(
                error.__traceback__)
        text = traceback_of(error)
        if isinstance(error, NotRecorded):      # nothing is wrong with the role
            text = named(error)
        if self.desk.activities is not None:
            self.desk.activities.close()
        with suppress(Exception):               # the first error is the one that counts
            self._coroutine.close()
        return Reply(self.node.id, actions, 0, text)


def _not_awaitable(coroutine: object, awaiting: object) -> RoleError:
    return RoleError(f"{_place(coroutine)}: only node.* may be awaited, not {type(awaiting).__name__}")


def _place(coroutine: object) -> str:
    """file:line of the innermost frame of a coroutine that is suspended."""
    place: str = "?"
    inner: object = coroutine
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
