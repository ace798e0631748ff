"""The exceptions of emul, a small tree by meaning: a caller catches what it can act upon.

EmulError
    InputError           a thing that the user names is not there or cannot be used; others stand in their modules
        ScenarioError        the user's files are wrong; carries every problem found, with its place
    NetworkError         a topology, a route or a link cannot be built
    WireError            a frame is not what a peer of ours would have sent
    SchemeError          a scheme cannot go on
        ProtocolFailure      an outcome of the round (too few clients, not decodable), not a bug
            TooFewClients, NotDecodable, NothingToReceive, TimedOut, NotSendable, Cancelled
        ProtocolViolation    a peer sent what the protocol forbids
        RoleError            a role broke the rules of the trampoline
    RunError             the run ends
        Deadlock, ZeroTimeLoop, EndOfTime, DuplicateKey, WorkerDied, ConnectionLost, RoleHangs, RoleFailed, NotRecorded
    ReplayMismatch       a recomputed run differs from its record
"""

from __future__ import annotations

from dataclasses import dataclass


class EmulError(Exception):
    """Base of all errors that emul raises on purpose."""


class InputError(EmulError):
    """A thing that the user names does not exist or cannot be used: the command line exits with code 2."""

    def _render_traceback_(self) -> list[str]:
        """IPython asks for this: a notebook shows the message, as the command line does, and no lines of emul."""
        return [f"{type(self).__name__}: {self}"]


@dataclass(frozen=True)
class Problem:
    """One mistake in a file: where it is, what was found, what was expected."""

    place: str          # path inside the file, e.g. "links[0].outage.p"
    found: str          # the value as written
    expected: str       # the values accepted there, with the nearest valid one if there is any
    line: int | None = None
    file: str = ""      # the file that the line is of, where it is another than that of the error


class ScenarioError(InputError):
    """All problems of one file at once, in the order of its lines."""

    def __init__(self, file: str, problems: list[Problem]):
        self.file = file
        self.problems = sorted(problems, key=lambda p: (p.line is None, p.file, p.line or 0))
        super().__init__(self._text())

    def _text(self) -> str:
        n = len(self.problems)
        rows = [(_where(p), p.place, p.found, p.expected) for p in self.problems]
        widths = [max((len(row[i]) for row in rows), default=0) for i in range(3)]
        lines = [f"{self.file}: {n} error{'s' if n != 1 else ''}"]
        lines += ["  " + "  ".join([row[i].ljust(widths[i]) for i in range(3)] + [row[3]]) for row in rows]
        return "\n".join(lines)


def _where(problem: Problem) -> str:
    """
    >>> _where(Problem("seed", "", "", 3)), _where(Problem("seed", "", "", 3, "base.yaml"))
    ('line 3', 'base.yaml line 3')
    """
    return "" if problem.line is None else f"{problem.file} line {problem.line}".strip()


class NetworkError(EmulError):
    """A topology, a route or a link cannot be built."""


class WireError(EmulError):
    """A frame is truncated, oversized, of an unknown type, or its fields do not fit the message."""


class SchemeError(EmulError):
    """A scheme cannot go on."""


class ProtocolFailure(SchemeError):
    """The round fails by its protocol: an outcome that is counted, not a bug. `with round_:` swallows it."""


class TooFewClients(ProtocolFailure):
    """A stage ended below the scheme's threshold."""


class NotDecodable(ProtocolFailure):
    """The messages that arrived do not determine the aggregate."""


class NothingToReceive(ProtocolFailure):
    """A `recv` without timeout whose message is lost or will never be sent."""


class TimedOut(ProtocolFailure):
    """A `recv` with a timeout that saw no message in time."""


class NotSendable(ProtocolFailure):
    """A value of one's own that no message may hold: training has diverged, or a quantiser overflows."""


class Cancelled(ProtocolFailure):
    """The activity that is awaited was cancelled."""


class ProtocolViolation(SchemeError):
    """A peer sent what the protocol forbids. Raised by `accept`, it costs that peer its message; see `Node.gather`."""


class RoundOver(BaseException):
    """A quorum of the leaders has reached a later round. `with round_:` swallows it; no `except Exception` does."""


class RoleError(SchemeError):
    """A role broke a rule of the trampoline; the text names its file and line."""


class RunError(EmulError):
    """The run cannot go on."""


class Deadlock(RunError):
    """No event is left and a deciding role still waits; the text says who waits for what."""


class ZeroTimeLoop(RunError):
    """Too many steps at one virtual instant in which no decider entered a round."""


class EndOfTime(RunError):
    """The next event would come after the last instant that a run can hold; the text names node, time and limit."""


class DuplicateKey(RunError):
    """Two events with one key: a bug of emul, since their order would be undefined."""


class WorkerDied(RunError):
    """A worker process ended, or sent no heartbeat within `workers.timeout`."""


class ConnectionLost(WorkerDied):
    """The connection between two processes of a pool broke while both lived: what was under way on it may be gone."""


class RoleHangs(WorkerDied):
    """A role's code took more than `workers.patience` of real time without a wait. Its worker process was ended, or it
    was interrupted where there is none. The text holds node, role, round and line."""


class RoleFailed(RunError):
    """An exception in a role that is no outcome of its protocol; the text holds node, time, round, traceback."""


def other_beginning(name: str, role: str) -> str:
    """Of a node whose role has not begun as that of another one did, though its scheme says that it keeps nothing."""
    return (f"{RoleError.__name__}: {name}: its role began otherwise than that of another node: the scheme must not "
            f"have {role!r} in `stateless`, unless all its nodes ask for rounds of the same leaders and do nothing "
            "before")


class NotRecorded(RunError):
    """The files of the run cannot be written: the disk is full, read-only or gone. The text names the file and why."""


class ReplayMismatch(EmulError):
    """A recomputed run differs from its record; the text names the first difference."""
