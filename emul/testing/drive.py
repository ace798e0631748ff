"""One role alone, without a network: the test feeds messages and reads actions."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from emul.base.errors import RoleFailed
from emul.base.plain import PlainDict
from emul.message.wire import Encoded, decode, encode, kind_of, type_of
from emul.roles import Message, Node
from emul.roles.costs import Costs
from emul.roles.desk import LANE, Desk, Memory
from emul.roles.events import (
    NO_DEADLINE,
    PARKED,
    Abstain,
    Action,
    AwaitSent,
    BeginActivity,
    Compute,
    Computed,
    EndActivity,
    Entered,
    Finish,
    NextRound,
    Ready,
    Reject,
    Reply,
    RoleEvent,
    Start,
    Wait,
    WaitEnd,
)
from emul.roles.events import Report as Reported
from emul.roles.job import Job
from emul.roles.trampoline import Role, RoleFunction
from emul.roles.world import World

M = TypeVar("M", bound=Message)


class Driven:
    """One role without a network: the test is its network. Made by `drive`.

    Computations cost nothing and are answered at once, those of activities too, and what is sent has left at once
    (`node.sent`). A message is for the wait of the role
    itself, or else for that of the activity that was begun first. `waiting`, `deadline`, `settle` and `round_over` are
    of the role itself. A node that counts its rounds itself enters the next one at
    once, `rounds` of them; a follower enters the next one at the first message of a leader that it is given. The
    messages that it is given are of the round that it is in.
    """

    def __init__(self, role: Role, types: Mapping[str, type[Message]], rounds: int):
        self.actions: list[Action] = []             # all so far, in order
        self.computed: list[str] = []               # labels of the computations
        self.reports: list[PlainDict] = []
        self.kept: dict[str, Any] = {}              # arrays, by name
        self._role = role
        self._types = types
        self._rounds = rounds
        self._now = 0
        self._waits: dict[int, _DrivenWait] = {}       # by number of the activity; 0: of the role itself
        self._ended: dict[int, _DrivenWait] = {}       # those that events have ended, which the role may refuse
        self._following: NextRound | None = None
        self._events: deque[RoleEvent] = deque()    # that follow at once
        self._inbox: deque[tuple[int, Message]] = deque()
        self._fetched: dict[int, list[Message]] = {}
        self._activities: set[int] = set()          # that have begun and not ended
        self._kept: list[tuple[list[int], Message]] = []
        self._error = ""
        self._end: Finish | None = None
        role.desk.fetch, role.desk.keep = self._fetch, self._keep
        role.desk.artefact = lambda _, name, round_, array: self.kept.update({name: array})
        self._go(Start(role.node.id, 0, 0))

    # --- what the role did ----------------------------------------------------------------------------------------

    @property
    def node(self) -> Node:
        """The node that the role was given."""
        return self._role.node

    @property
    def waiting(self) -> Wait | NextRound | None:
        """The wait of the role; None once it has ended."""
        own = self._waits.get(0)
        return self._following if own is None else own.wait

    @property
    def deadline(self) -> float | None:
        """The time when its wait times out, seconds; None: it does not."""
        own = self._waits.get(0)
        return None if own is None or own.wait.deadline < 0 else own.wait.deadline / 1e9

    @property
    def ended(self) -> str | None:
        """None while the role lives; "" once it has returned; else the failure of its protocol that ended it."""
        return None if self._end is None else self._end.why

    def sent(self, kind: type[M]) -> dict[int, M]:
        """{target: the newest message of this type that it was sent}, ascending by target."""
        found = {target: message for to, message in self._kept if type(message) is kind for target in to}
        return dict(sorted(found.items()))

    def abstained(self, kind: type[Message]) -> list[int]:
        """To whom the role has said that no such message comes, ascending."""
        return sorted({t for a in self.actions if type(a) is Abstain and kind.__name__ in map(type_of, a.kinds)
                       for t in a.to})

    @property
    def rejected(self) -> dict[int, str]:
        """{sender: the newest reason for which the role's `accept` has refused a message of it}."""
        return {source: reason for action in self.actions if type(action) is Reject
                for source, reason in zip(action.sources, action.reasons, strict=True)}

    # --- what happens to it ---------------------------------------------------------------------------------------

    def deliver(self, messages: Mapping[int, Message]) -> None:
        """Give the role one message of each sender. It reads later the messages that it does not wait for now."""
        for sender, message in messages.items():
            decoded = decode(encode(message), {type(message).__name__: type(message)})
            object.__setattr__(decoded, "sender", sender)
            self._inbox.append((sender, decoded))
        if self._find_next():
            self._go(self._events.popleft())

    def advance_to(self, seconds: float) -> None:
        """Let virtual time pass: every deadline until then comes, in order."""
        until = round(seconds * 1e9)
        if until < self._now:
            raise ValueError(f"time cannot go back from {self._now / 1e9:g} s to {seconds:g} s")
        while due := [(one.wait.deadline, n) for n, one in self._waits.items() if 0 <= one.wait.deadline <= until]:
            deadline, number = min(due)
            self._now = max(self._now, deadline)
            self._resume(number, WaitEnd.TIMEOUT)
        self._now = until

    def settle(self) -> None:
        """Let the role know that nothing more will come of what it waits for, as the network does without a timeout."""
        own = self._waits.get(0)
        if own is None or own.wait.deadline != NO_DEADLINE or own.wait.sources is None:
            raise ValueError(f"only a wait on named sources without a timeout can settle, not {self.waiting}")
        self._resume(0, WaitEnd.SETTLED)

    def round_over(self) -> None:
        """A quorum of the leaders has reached a later round, while the role waits."""
        if 0 not in self._waits:
            raise ValueError(f"the role waits for no message, but for {self.waiting}")
        self._resume(0, WaitEnd.ROUND_OVER)

    # --- the other side of the boundary ---------------------------------------------------------------------------

    def _go(self, event: RoleEvent) -> None:
        self._events.append(event)
        while self._end is None and (self._events or self._find_next()):
            event = self._events.popleft()
            if isinstance(event, Computed | Ready) and event.activity and event.activity not in self._activities:
                continue                            # cancelled since
            self._answer(self._role.step(event))

    def _answer(self, reply: Reply) -> None:
        """Take the actions; events that follow at once are noted."""
        self.actions += reply.actions
        self.reports += [a.values for a in reply.actions if type(a) is Reported]
        if reply.error:
            raise RoleFailed(reply.error)
        begun = self._begun(reply)
        for action in reply.actions:
            if type(action) is Compute:
                self._waits.pop(action.activity, None)
                next(begun).run()
                self.computed.append(action.label)
                self._events.append(Computed(self.node.id, self._now, action.activity))
            elif type(action) is NextRound:
                self._waits.pop(0, None)
                self._following = action
                if action.of is None:
                    following = self.node.round + 1
                    self._events.append(self._enter(following if following <= self._rounds else 0))
            elif type(action) is Wait:
                self._waits[action.activity] = _DrivenWait(action)
            elif type(action) is Reject:
                again = self._waits[action.activity] = self._ended[action.activity]
                again.handed -= set(action.sources)
                if again.outcome != WaitEnd.COMPLETE:
                    self._events.append(self._ready(action.activity, again.outcome))
            elif type(action) is AwaitSent:         # without a network it has left at once
                self._waits.pop(action.activity, None)
                self._events.append(Ready(self.node.id, self._now, [], int(WaitEnd.TIMEOUT), action.activity))
            elif type(action) is BeginActivity:
                self._activities.add(action.activity)
            elif type(action) is EndActivity:
                self._activities.discard(action.activity)
                self._waits.pop(action.activity, None)
            elif type(action) is Finish:
                self._waits.clear()
                self._end = action

    def _begun(self, reply: Reply) -> Iterator[Job]:
        """The computations that the role has begun, in order."""
        desk = self._role.desk
        return iter([desk.job] if desk.activities is None and desk.job is not None else
                    [job for _, job in desk.activities.begun] if desk.activities is not None else [])

    def _enter(self, number: int) -> Entered:
        self._following = None
        return Entered(self.node.id, self._now, number)

    def _find_next(self) -> bool:
        """Note the event that the inbox makes possible now. False: there is none."""
        if self._end is not None:
            return False
        if self._following is not None:
            leaders = self._following.of or ()
            if any(sender in leaders for sender, _ in self._inbox):
                self._events.append(self._enter(self.node.round + 1))
                return True
        for number, one in sorted(self._waits.items()):
            one.take(self._inbox)
            if one.wait.deadline != PARKED and one.complete:
                self._events.append(self._ready(number, WaitEnd.COMPLETE))
                return True
        return False

    def _resume(self, number: int, outcome: WaitEnd) -> None:
        self._go(self._ready(number, outcome))

    def _ready(self, number: int, outcome: WaitEnd) -> Ready:
        one = self._ended[number] = self._waits.pop(number)
        one.outcome = outcome
        one.handed |= one.got.keys()
        self._fetched[number], one.got = list(one.got.values()), {}
        return Ready(self.node.id, self._now, [], int(outcome), number)

    def _fetch(self, event: Ready) -> list[Message]:
        return self._fetched[event.activity]

    def _keep(self, source: int, encoded: Encoded, first: int, to: list[int]) -> None:
        """Keep a sent message as a receiver would see it: decoded, its arrays read-only."""
        self._kept.append((to, decode(encoded, self._types)))


@dataclass
class _DrivenWait:
    """One wait of the role or of an activity, and what it has got."""

    wait: Wait
    got: dict[int, Message] = field(default_factory=dict)
    handed: set[int] = field(default_factory=set)       # accepted by the role
    outcome: WaitEnd = WaitEnd.COMPLETE                 # of the last event that ended it

    @property
    def complete(self) -> bool:
        return len(self.got) + len(self.handed) >= self.wait.need

    def take(self, inbox: deque[tuple[int, Message]]) -> None:
        """Take what it asks for, in order of arrival."""
        wait = self.wait
        for sender, message in list(inbox):
            if (not self.complete and sender not in self.got.keys() | self.handed
                    and (wait.sources is None or sender in wait.sources)
                    and (not wait.kinds or kind_of(message) in wait.kinds)):
                self.got[sender] = message
                inbox.remove((sender, message))


def listed(function: RoleFunction) -> dict[str, type[Message]]:
    """The messages that the module of a role function lists; of a `partial`, that of its function."""
    beside = getattr(getattr(function, "func", function), "__globals__", {})
    scheme = beside.get("SCHEME")
    return {kind.__name__: kind for kind in (beside.get("MESSAGES", ()) if scheme is None else scheme.messages)}


def drive(function: RoleFunction, params: object = None, *, clients: Sequence[int] = (1, 2, 3), server: int | None = 0,
          roles: Mapping[str, Sequence[int]] | None = None, role: str | None = None, id: int | None = None,
          task: object = None, seed: int = 7, rounds: int = 1, lanes: Sequence[str] = (LANE,)) -> Driven:
    """Start one role alone, as node `id` (default: the first of its role) among `clients` and a `server`.

    roles: {role: its nodes}, in place of `clients` and `server`, for any other roles. role: its name, by default that
    of the function. task: what `node.task` is. rounds: how many a node that counts them itself may enter.
    lanes: those that the scheme declares.
    Raises ValueError if nobody has the role, or two roles have one node.
    """
    if roles is None:
        roles = {**({} if server is None else {"server": [server]}), "client": clients}
    nodes = {kind: sorted(members) for kind, members in roles.items()}
    name: str = role or str(getattr(function, "__name__", ""))
    if not nodes.get(name):
        raise ValueError(f'role "{name}": expected one of {", ".join(nodes)}; say which with role=, or who has it with '
                         "roles=")
    taken = [n for members in nodes.values() for n in members]
    if len(set(taken)) < len(taken):
        raise ValueError(f"roles = {nodes}: expected one role for every node")
    names = [f"node{n}" for n in range(max(taken) + 1)]
    for kind, members in nodes.items():
        for place, n in enumerate(members, 1):
            names[n] = kind if len(members) == 1 and kind != "client" else f"{kind}{place}"
    facts = World("test", seed, names, nodes, [1.0] * len(names), deterministic=False)      # lets it be volatile
    desk = Desk(Memory(), Costs("zero", "test"), lanes=lanes)
    node = Node(nodes[name][0] if id is None else id, name, facts, desk, task)
    return Driven(Role(node, desk, function, params), listed(function), rounds)
