"""The limit of real time on the code of roles: `workers.patience`.

A role is ordinary Python, which may loop without ever coming to a wait. Heartbeats do not tell: they come from another
thread. That thread looks at the stack of the thread that computes, twice a second. Code that is looked at pays nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

from emul.base.tracebacks import standing
from emul.roles.trampoline import Role
from emul.workers.jobs import Jobs

_LONGEST_LOOK_S = 1.0               # between two looks; more: this process was stopped, and the role with it

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
        self._looked = 0.0
        self._spent_s = 0.0                 # in the call that was seen

    def look(self, now: float) -> str:
        """The text on a step or computation that has taken longer than the limit; "": there is none. now: in seconds
        of a clock that does not go back."""
        inner = sys._current_frames().get(self._thread)
        outer, inside = _activation(inner)
        if outer is None or outer is not self._seen:
            self._seen, self._spent_s, self._looked = outer, 0.0, now
            return ""
        self._spent_s += min(now - self._looked, _LONGEST_LOOK_S)
        self._looked = now
        return self._text(outer, inside) if self._spent_s > self._limit_s else ""

    def _text(self, outer: FrameType, inside: list[FrameType]) -> str:
        known = outer.f_locals
        if outer.f_code is Role.step.__code__:
            node, what = known["self"].node.id, "did not come to a wait"
        else:
            node, what = known["node"], "did not end a computation"
        name, role, round_ = self._whose(node)
        return (f"{name} ({role}) {what} within {self._limit_s:g} s of real time (workers.patience) in round {round_}: "
                f"{standing(inside)}")


def _activation(frame: FrameType | None) -> tuple[FrameType | None, list[FrameType]]:
    """(the call of a role's step or computation that a stack is in, the calls inside of it from the outermost on).
    None: it is in neither."""
    inside: list[FrameType] = []
    while frame is not None and frame.f_code not in (Role.step.__code__, Jobs.run.__code__):
        inside.append(frame)
        frame = frame.f_back
    return frame, inside[::-1]
