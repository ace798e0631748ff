"""Suspensions of a role: the waits that it awaits, the judgement of what comes, and the blocks of its rounds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from types import CodeType, TracebackType
from typing import Generic, TypeVar

from emul.base.errors import ProtocolFailure, ProtocolViolation, RoleError
from emul.base.tracebacks import named
from emul.message.wire import TAG, Message
from emul.roles.events import Action, Entered, NextRound, Reject, RoleEvent

M = TypeVar("M", bound=Message)
R = TypeVar("R")
Accept = Callable[[M], None]                            # of what came; raises ProtocolViolation

REASON = 200                        # characters of a reason that are kept

_places: dict[tuple[CodeType, int], str] = {}


def caller(depth: int) -> str:
    """file:line, `depth` frames up: where a role waits."""
    # A role waits at few lines of its file, and very often, so each place is written once.
    frame = sys._getframe(depth + 1)
    key = (frame.f_code, frame.f_lineno)
    place = _places.get(key)
    if place is None:
        place = _places[key] = f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"
    return place


class RoundOver(BaseException):
    """A quorum of the leaders has reached a later round. `with round_:` swallows it; no `except Exception` does."""

    # An author's `except Exception` around a wait is meant for what came, and would keep a node in a round that is over
    # (`test_round_over_raises_in_the_wait_and_no_except_exception_catches_it`).


class Await(Generic[R]):
    """One suspension: the action that goes out, and how the answering event becomes a value, or is refused."""

    # A message that the role refuses is answered with a `Reject` in place of going on: only the kernel knows who else
    # may still send and until when, so it takes the same wait up again
    # (`test_accept_refuses_one_and_the_others_are_there`).

    __slots__ = ("action", "finish")

    def __init__(self, action: Action, finish: Callable[[RoleEvent], R | Reject]):
        self.action = action
        self.finish = finish

    def __await__(self) -> Generator[Await[R], RoleEvent, R]:
        while True:
            found = self.finish((yield self))
            if found.__class__ is not Reject:
                return found                    # type: ignore[return-value]
            self.action = found


class Guard(Generic[M]):
    """Collects the messages that `accept` lets through over all parts of one wait, and answers with a `Reject` for the
    others."""

    def __init__(self, received: Callable[[RoleEvent], list[M]], accept: Accept[M]):
        self._received, self._accept = received, accept
        self._accepted: list[M] = []

    def __call__(self, event: RoleEvent) -> list[M] | Reject:
        refused = Reject([], [])
        for message in self._received(event):
            try:
                self._accept(message)
            except ProtocolViolation as e:
                refused.sources.append(message.sender)
                refused.reasons.append(str(e)[:REASON])
            else:
                self._accepted.append(message)
        return refused if refused.sources else self._accepted


class Round(int):
    """The number of a round, and the block `with round_:` in which the node is in it."""

    _leave: Callable[[int, str], None]      # the node's: this round is over, and why, if early
    _closed = False

    def __enter__(self) -> Round:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> bool:
        self._closed = True
        why = ""
        if isinstance(error, RoundOver):
            why = "a later round has begun"
        elif isinstance(error, ProtocolFailure):
            why = named(error)
        elif error is not None:
            return False
        self._leave(int(self), why)
        return error is not None


class Rounds:
    """`async for round_ in node.rounds(): with round_: ...`"""

    def __init__(self, action: NextRound, enter: Callable[[int], Round]):
        self._action, self._enter = action, enter
        self._last: Round | None = None

    def __aiter__(self) -> Rounds:
        return self

    async def __anext__(self) -> Round:
        if self._last is not None and not self._last._closed:
            # an exception in the body of `async for` never reaches the iterator, so the body has to tell us
            raise RoleError(f"{self._action.where}: the body of `async for round_ in node.rounds()` "
                            "must be inside `with round_:`")
        number = await Await(self._action, _entered)
        if number == 0:
            raise StopAsyncIteration
        self._last = self._enter(number)
        return self._last


def _entered(event: RoleEvent) -> int:
    assert isinstance(event, Entered)
    return event.round


# --- the kinds of messages that a wait names -------------------------------------------------------------------------

_names: dict[tuple[type[Message], ...], list[str]] = {}         # types without tags -> their names


def names_of(types: tuple[type[Message], ...], tag: int | None, depth: int) -> list[str]:
    """The kinds of messages of these types; the role is `depth` frames above the caller. Raises RoleError."""
    found = _names.get(types) if tag is None else None
    if found is not None:                       # as a rule: of types that have been asked for before
        return found
    tagged = [kind.__name__ for kind in types if kind.tagged]
    if tag is None:
        if tagged:
            raise RoleError(f"{caller(depth + 1)}: {tagged[0]} is tagged: say which with tag=")
        return _names.setdefault(types, [kind.__name__ for kind in types])
    if not tagged:
        raise RoleError(f"{caller(depth + 1)}: tag={tag} of a type without tags: a tagged one is declared as "
                        "class ...(Message, tagged=True)")
    return [f"{kind.__name__}{TAG}{tag}" if kind.tagged else kind.__name__ for kind in types]
