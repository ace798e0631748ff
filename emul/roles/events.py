"""Plain data that cross between kernel and role: events in, actions out. Plain values only.

To the kernel a role is a sans-IO machine `step(event) -> actions`; journal, replay and tests rest on this one boundary.
Times are integers of nanoseconds of virtual time; nodes are integers; a message is named by (source, sequence number).
"""

from __future__ import annotations

from enum import IntEnum
from typing import TypeAlias

from msgspec import Struct

NO_DEADLINE = -1                          # a deadline that does not come
PARKED = -2                         # the same, of a wait that only the role itself ends: for an activity, or for a lane
SENDING = -3                        # the same, of a wait for the end of a transmission
CANCELLED = "cancelled"             # the reason why an activity ended that did not end by itself


class WaitEnd(IntEnum):
    """The way in which a wait ended."""

    COMPLETE = 0                    # all that was asked for is there
    SETTLED = 1                     # no timeout: the fate of everything asked for is known, not all of it arrived
    TIMEOUT = 2                     # the deadline came first
    ROUND_OVER = 3                  # a quorum of the leaders has reached a later round


class Ref(Struct, array_like=True, gc=False):
    """One delivered copy, by name: the payload lies in the worker, or comes with it."""

    source: int
    first: int                      # sequence number of the first copy of the same broadcast: names the payload
    last: bool                      # no other copy will be asked for in this worker: the payload can go
    frames: list[bytes] | None = None       # the payload itself, where its `Send` had it
    sender: int = -1                # of this copy, where another node's frames stand for its own; -1: the source


# --- events: kernel -> role -----------------------------------------------------------------------------------------

class Start(Struct, array_like=True, tag=0, gc=False):
    """The role begins, or begins anew after a crash, in round `round` (0: outside)."""

    node: int
    now: int
    round: int


class Unread(Struct, array_like=True, gc=False):
    """A message that lies unread in the inbox of a node, and nothing before it."""

    kind: str
    ref: Ref
    last: bool = False              # nothing of its leaders can come at this instant any more: its round goes on

    def answers(self, wait: Wait) -> bool:
        """True if it is all that the wait asks for."""
        return (wait.need == 1 and (not wait.kinds or self.kind in wait.kinds)
                and (wait.sources is None or (
                    self.ref.source if self.ref.sender < 0 else self.ref.sender) in wait.sources))


class Ready(Struct, array_like=True, tag=1, gc=False):
    """The wait is over. `messages` in the order (arrival, source, sequence number).

    unread: the messages that lie behind these, for a role that reads one after the other: while it does nothing but
    wait for the next of them, it gets it at once, and what it does then is `Reply.then`.
    """

    node: int
    now: int
    messages: list[Ref]
    outcome: int
    activity: int = 0               # whose wait: number of an activity; 0: of the role itself
    unread: list[Unread] = []


class Entered(Struct, array_like=True, tag=2, gc=False):
    """The node is in `round` now; 0: there are no more rounds.

    unread: if the role does nothing but wait for this message, it gets it at once: it goes on as at `Ready`, and what
    it does then is `Reply.then`.
    sent: how many copies it has sent, where its worker may not know of all of them (`emul.kernel.precedents`); -1: it
    does.
    """

    node: int
    now: int
    round: int
    unread: Unread | None = None
    sent: int = -1


class Computed(Struct, array_like=True, tag=3, gc=False):
    """The computation's virtual cost has passed."""

    node: int
    now: int
    activity: int = 0               # as of `Ready`


class Close(Struct, array_like=True, tag=4, gc=False):
    """No event of a role: the node crashed, so its coroutine is closed. Nothing is answered.

    wipe: what `node.state` holds is lost, too.
    """

    node: int
    now: int
    wipe: bool = False


class Drop(Struct, array_like=True, tag=5, gc=False):
    """No event of a role: the payload of message (source, first) will not be asked for in this worker."""

    source: int
    first: int


class Fuse(Struct, array_like=True, tag=6, gc=False):
    """No event of a role: the computations that these nodes have begun are done together, the first's soonest."""

    nodes: list[int]


RoleEvent: TypeAlias = Start | Ready | Entered | Computed
Event: TypeAlias = RoleEvent | Close | Drop | Fuse


# --- actions: role -> kernel ----------------------------------------------------------------------------------------

class Send(Struct, array_like=True, tag=0, gc=False):
    """One message, encoded once, to every node of `to`; the copies are numbered first, first + 1, ..."""

    to: list[int]
    kind: str                       # the message's type
    size: int                       # bytes of its frames, and those that it declares
    first: int
    round: int                      # of the sender; 0: outside, or of an unscoped type
    declared: int = 0               # of the size, what is declared and not carried
    reason: str = ""                # the reason why no receiver takes it; "": it fits its type
    frames: list[bytes] | None = None       # of a small message for one node of another worker: they go with the events


class Wait(Struct, array_like=True, tag=1, gc=False):
    """Wait for messages of `kinds` (empty: any) from `sources` (None: anybody)."""

    kinds: list[str]
    sources: list[int] | None
    need: int                       # messages, at most one of each source that is named
    deadline: int                   # or NO_DEADLINE: then the fates decide, where sources are named
    where: str                      # file:line of the role
    accepts: bool = False           # messages are judged: the answer may be Reject
    activity: int = 0               # that waits; 0: the role itself


class NextRound(Struct, array_like=True, tag=2, gc=False):
    """Ask for the next round: by itself, following `of`, or in step with `sync`."""

    of: list[int] | None
    sync: list[int] | None
    quorum: int
    abandon: bool                   # a computation is cut when the round is over
    where: str

    def same(self, other: NextRound) -> bool:
        """True if both ask for the same rounds, wherever in the code."""
        return (self.of, self.sync, self.quorum, self.abandon) == (other.of, other.sync, other.quorum, other.abandon)


class LeaveRound(Struct, array_like=True, tag=3, gc=False):
    """This node is no longer in `round`."""

    round: int
    why: str                        # "": completed; else why not


class Abstain(Struct, array_like=True, tag=4, gc=False):
    """This node will send `kinds` to none of `to` in `round`."""

    to: list[int]
    kinds: list[str]
    round: int


class Compute(Struct, array_like=True, tag=5, gc=False):
    """This node computes; its role goes on `cost` later."""

    label: str
    cost: int                       # ns of virtual time on this node
    work: float                     # the size of the task in the scheme's own unit; 0: not said
    where: str
    declared: bool = False          # the scheme has stated the cost (`cost_s`)
    lane: int = 0                   # its place among the scheme's lanes
    activity: int = 0               # that computes; 0: the role itself
    alone: bool = False             # never done together with others: its role has activities


class Report(Struct, array_like=True, tag=6, gc=False):
    """The report of a role on a round, for the journal and the tables. Nothing of it is sent."""

    round: int
    values: dict[str, int | float | str | bool | None]
    digest: str                     # of the reported parameters; "": none were


class Finish(Struct, array_like=True, tag=7, gc=False):
    """The role has ended: this node does nothing more."""

    why: str = ""                   # "": returned; else the failure of its protocol that ended it


class Reject(Struct, array_like=True, tag=8, gc=False):
    """The messages of these sources are refused: the wait that has just ended goes on as if it had been lost."""

    sources: list[int]
    reasons: list[str]              # of each
    activity: int = 0               # whose wait; 0: of the role itself


class SendEach(Struct, array_like=True, tag=9, gc=False):
    """A message of its own, all of one type, to each of `to`: what as many `Send` say, numbered from `first` on."""

    to: list[int]
    kind: str
    sizes: list[int]                # of each
    first: int
    round: int
    declared: list[int] = []        # of each; empty: nothing of any
    reasons: list[str] = []         # of each; empty: all are what their type says
    frames: list[list[bytes] | None] = []       # of each; empty: none go with the events

    def singly(self, place: int) -> Send:
        """The message at one place, sent alone."""
        return Send([self.to[place]], self.kind, self.sizes[place], self.first + place, self.round,
                    self.declared[place] if self.declared else 0, self.reasons[place] if self.reasons else "",
                    self.frames[place] if self.frames else None)


class BeginActivity(Struct, array_like=True, tag=10, gc=False):
    """The role has begun an activity. Its actions from now on have its number."""

    activity: int                   # numbers of a node ascend from 1, over crashes too
    label: str


class EndActivity(Struct, array_like=True, tag=11, gc=False):
    """The activity has ended; what it waited for or computed does not count any more."""

    activity: int
    why: str                        # "": returned; else the failure that ended it, or CANCELLED


class AwaitSent(Struct, array_like=True, tag=12, gc=False):
    """Wait until the newest message to a node has left this one. `Ready` of outcome TIMEOUT answers it."""

    to: int
    where: str
    activity: int = 0               # that waits; 0: the role itself


Action: TypeAlias = (Send | SendEach | Wait | NextRound | LeaveRound | Abstain | Compute | Report | Finish | Reject
                     | BeginActivity | EndActivity | AwaitSent)


class Suspension:
    """The one thing that a role may yield: it waits for the answer to an action."""

    __slots__ = ("action",)

    def __init__(self, action: Action):
        self.action = action


class Reply(Struct, array_like=True, gc=False):
    """All actions of one activation, in order."""

    node: int
    actions: list[Action]
    uncharged: int = 0              # CPU ns of role code outside `compute`
    error: str = ""                 # traceback of an exception that is no outcome of the protocol
    then: Reply | None = None       # to the event that comes next, for a wait that `unread` has ended
    alike: bool = False             # to `Start`: all nodes of the role would do this, and this role has been ended
    traceless: bool = False         # the role has been ended where it asked for a round, and has left nothing behind


class Observation(Struct, array_like=True, gc=False):
    """Off-clock: what an evaluation of reported parameters found."""

    node: int
    round: int
    values: dict[str, float]
