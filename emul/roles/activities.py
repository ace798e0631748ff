"""Activities: coroutines of a role beside its main one, and the lanes on which its computations take turns.

To the kernel a role with activities is the same machine `step(event) -> actions`, with one activation at a time. This
module decides who runs within an activation, in one order:

    first       the one whose wait or computation the event ends
    then        the others, in the order in which they became able to go on: an activity that was begun, the one that
                awaited an activity which has ended, the one that waited for a lane which has become free

One that awaits an activity or a lane is *parked*. The kernel knows of a wait that nothing ends but the role itself, or,
of the main coroutine, the end of its round.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from types import CoroutineType
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from emul.base.errors import Cancelled, RoleError, RoundOver
from emul.base.tracebacks import caller, named
from emul.roles.events import (
    CANCELLED,
    PARKED,
    Action,
    BeginActivity,
    Compute,
    Computed,
    EndActivity,
    Ready,
    RoleEvent,
    Suspension,
    Wait,
)
from emul.roles.job import Job

R = TypeVar("R")


class ActivityDesk(Protocol):
    """The part of `emul.roles.desk.Desk` that activities use."""

    actions: list[Action]
    job: Job | None
    unawaited: list[str]

    def next_activity(self) -> int:
        """The number of an activity that begins now."""
        ...


class Activity(Generic[R]):
    """A coroutine of a role beside its main one: what `node.start` gives. `await` it for its result, or for the
    exception that ended it. Number 0 is the main coroutine itself."""

    __slots__ = ("_among", "awaited", "coroutine", "ended", "error", "label", "number", "parked", "result", "round",
                 "waiters")

    def __init__(self, among: Activities, number: int, coroutine: CoroutineType[object, object, R], round: int):
        self._among = among
        self.number = number
        self.coroutine = coroutine
        self.label = coroutine.__name__
        self.round = round                          # that it ends with; 0: with the role
        self.ended = False
        self.result: R | None = None
        self.error: Exception | None = None
        self.awaited = False                        # somebody has its result, or its error
        self.waiters: list[AnyActivity] = []      # that await it
        self.parked: list[AnyActivity] | None = None      # the list that it stands in while it is parked

    def __await__(self) -> Generator[Suspension, RoleEvent | None, R]:
        if not self.ended:
            place = caller(1)
            self._among.desk.unawaited.append(place)
            yield from self._among.park(self.waiters, place)
        self.awaited = True
        if self.error is not None:
            raise self.error
        return self.result                          # type: ignore[return-value]  # None, if that is what it returned


AnyActivity: TypeAlias = Activity[Any]


class InTurn(Generic[R]):
    """A computation of a role with activities: it begins once no other one is on its lane."""

    __slots__ = ("_among", "_begin", "_lane", "_place")

    def __init__(self, among: Activities, lane: int, place: str, begin: Callable[[], Awaitable[R]]):
        self._among, self._lane, self._place, self._begin = among, lane, place, begin

    def __await__(self) -> Generator[Suspension, RoleEvent | None, R]:
        if self._among.busy(self._lane):
            yield from self._among.park(self._among.queue(self._lane), self._place)
        # Now and not before: cost and number of a computation are those of its beginning, as a record has them.
        return (yield from self._begin().__await__())


class Activities:
    """The activities of one role, its main coroutine among them, and who runs next."""

    def __init__(self, desk: ActivityDesk, main: CoroutineType[object, object, None]):
        self.desk = desk
        self.main: Activity[None] = Activity(self, 0, main, 0)
        self.running: AnyActivity = self.main
        self.live: dict[int, AnyActivity] = {}            # by number, in the order in which they were begun
        self.begun: list[tuple[Compute, Job]] = []          # computations that this activation has begun
        self._ready: deque[tuple[AnyActivity, RoleEvent | None]] = deque()
        self._failed: list[AnyActivity] = []              # by their protocol, and nobody has awaited them
        self._holders: dict[int, AnyActivity] = {}        # lane -> whose computation goes on there
        self._queues: dict[int, list[AnyActivity]] = {}   # lane -> those that wait for it

    # --- who runs -------------------------------------------------------------------------------------------------

    def resume(self, event: RoleEvent) -> None:
        """An activation begins: the event ends a wait or a computation."""
        number = event.activity if isinstance(event, Ready | Computed) else 0
        activity = self.live[number] if number else self.main
        self.begun = []
        self._ready.append((activity, event))
        self._release(activity)

    def turn(self) -> tuple[AnyActivity, RoleEvent | None] | None:
        """The one that runs next, and the event that it goes on with; None: all wait."""
        while self._ready:
            activity, event = self._ready.popleft()
            if not activity.ended:                          # it was cancelled since
                self.running = activity
                return activity, event
        return None

    def suspended(self, awaiting: Suspension) -> None:
        """The one that runs waits for `awaiting`: its action goes to the kernel."""
        action = awaiting.action
        if isinstance(action, Compute):
            assert self.desk.job is not None
            self._holders[action.lane] = self.running
            action.activity, action.alone = self.running.number, True
            self.begun.append((action, self.desk.job))
        elif self.running.number:
            action.activity = self.running.number           # type: ignore[union-attr]  # the rest is refused before
        self.desk.actions.append(action)

    # --- begun and ended ------------------------------------------------------------------------------------------

    def begin(self, coroutine: CoroutineType[object, object, R], round: int) -> Activity[R]:
        """A new one, which runs as soon as the one that runs now waits."""
        activity = Activity(self, self.desk.next_activity(), coroutine, round)
        self.live[activity.number] = activity
        self.desk.actions.append(BeginActivity(activity.number, activity.label))
        self._ready.append((activity, None))
        return activity

    def returned(self, activity: AnyActivity, result: object) -> None:
        """It has come to its end."""
        activity.result = result
        self._end(activity, "")

    def failed(self, activity: AnyActivity, error: Exception) -> None:
        """An exception has ended it, and reaches those that await it, now or later."""
        activity.error = error
        self._failed.append(activity)
        self._end(activity, named(error))

    def cancel(self, activity: AnyActivity) -> None:
        """End it where it waits, with what its `finally` blocks send. Nothing if it has ended. Raises RoleError."""
        if activity.ended:
            return
        if activity.coroutine.cr_running:
            raise RoleError(f"{caller(2)}: {activity.label} cannot cancel itself: return")
        before, self.running = self.running, activity
        activity.ended = True                       # those that it cancels may cancel it
        try:
            activity.coroutine.close()
        except RuntimeError as e:
            if str(e) != "coroutine ignored GeneratorExit":
                raise
            raise RoleError(f"{activity.label} awaits while it is cancelled: it can only send") from None
        finally:
            self.running = before
        activity.error = Cancelled(f"{activity.label} was cancelled")
        self._end(activity, CANCELLED)

    def end_all(self, round: int | None = None) -> str:
        """Cancel those that end with this round, or with the role (None), in the order in which they were begun.

        Returns the first failure among them that nobody has awaited; "": there is none.
        """
        # one after the other: the end of one may cancel others, or begin one
        while ending := [one for one in self.live.values() if not one.ended and (round is None or one.round == round)]:
            self.cancel(ending[0])
        left = [one for one in self._failed if not one.awaited and (round is None or one.round == round)]
        self._failed = [one for one in self._failed if not one.awaited and one not in left]
        return "" if not left else f"{left[0].label}: {type(left[0].error).__name__}: {left[0].error}"

    def close(self) -> None:
        """The node has crashed, or its role has failed: end them all without a word."""
        while self.live:                            # the end of one may cancel others, or begin one
            activity = self.live.pop(next(iter(self.live)))
            activity.ended = True
            with suppress(Exception):               # a node that has crashed runs no `finally` block
                activity.coroutine.close()

    def _end(self, activity: AnyActivity, why: str) -> None:
        activity.ended = True
        del self.live[activity.number]
        self.desk.actions.append(EndActivity(activity.number, why))
        for waiter in activity.waiters:
            self._go_on(waiter)
        activity.waiters = []
        self._release(activity)

    # --- parked ---------------------------------------------------------------------------------------------------

    def park(self, queue: list[AnyActivity], place: str) -> Generator[Suspension, RoleEvent | None, None]:
        """The one that runs waits in `queue`, until it is let go on. Raises RoundOver."""
        self.running.parked = queue
        queue.append(self.running)
        event = yield Suspension(Wait([], [], 1, PARKED, place))
        if event is not None:                       # the kernel ends a wait of this kind for one reason only
            raise RoundOver

    def busy(self, lane: int) -> bool:
        """True if the lane is taken by another than the one that runs."""
        return self._holders.get(lane, self.running) is not self.running

    def queue(self, lane: int) -> list[AnyActivity]:
        """Those that wait for the lane, in the order in which they came."""
        return self._queues.setdefault(lane, [])

    def _go_on(self, activity: AnyActivity) -> None:
        activity.parked = None
        self._ready.append((activity, None))

    def _release(self, activity: AnyActivity) -> None:
        """It stands in no queue any more, and its lane is for the next that waits for it."""
        if activity.parked is not None:
            activity.parked.remove(activity)
            activity.parked = None
        for lane in [lane for lane, holder in self._holders.items() if holder is activity]:
            if self._queues.get(lane):
                self._holders[lane] = self._queues[lane].pop(0)
                self._go_on(self._holders[lane])
            else:
                del self._holders[lane]
