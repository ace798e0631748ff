"""One role alone, without a network: the test feeds messages and reads actions."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from emul.base.errors import RoleFailed
from emul.base.plain import PlainDict
from emul.roles import Message, Node
from emul.roles.costs import Costs
from emul.roles.desk import Desk, Memory
from emul.roles.events import (
    NEVER,
    Abstain,
    Action,
    Compute,
    Computed,
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
from emul.roles.trampoline import Role, RoleFunction
from emul.roles.world import World
from emul.wire import Encoded, decode, encode

M = TypeVar("M", bound=Message)


class Driven:
    """One role without a network: the test is its network. Made by `drive`.

    Computations cost nothing and are answered at once. A node that counts its rounds itself enters the next one at
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
        self._wait: Wait | None = None
        self._following: NextRound | None = None
        self._got: dict[int, Message] = {}
        self._handed: set[int] = set()              # of this wait, accepted by the role
        self._asked: Wait | None = None             # the wait that the last event has ended,
        self._outcome = WaitEnd.COMPLETE            # and how
        self._inbox: deque[tuple[int, Message]] = deque()
        self._fetched: list[Message] = []
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
        return self._wait or self._following

    @property
    def deadline(self) -> float | None:
        """The time when its wait times out, seconds; None: it does not."""
        return None if self._wait is None or self._wait.deadline == NEVER else self._wait.deadline / 1e9

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
        return sorted({t for a in self.actions if type(a) is Abstain and kind.__name__ in a.kinds for t in a.to})

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
        self._look()

    def advance_to(self, seconds: float) -> None:
        """Let virtual time pass: every deadline until then comes, in order."""
        until = round(seconds * 1e9)
        if until < self._now:
            raise ValueError(f"time cannot go back from {self._now / 1e9:g} s to {seconds:g} s")
        while self._wait is not None and NEVER != self._wait.deadline <= until:
            self._now = max(self._now, self._wait.deadline)
            self._resume(WaitEnd.TIMEOUT)
        self._now = until

    def settle(self) -> None:
        """Let the role know that nothing more will come of what it waits for, as the network does without a timeout."""
        if self._wait is None or self._wait.deadline != NEVER or self._wait.sources is None:
            raise ValueError(f"only a wait on named sources without a timeout can settle, not {self.waiting}")
        self._resume(WaitEnd.SETTLED)

    def round_over(self) -> None:
        """A quorum of the leaders has reached a later round, while the role waits."""
        if self._wait is None:
            raise ValueError(f"the role waits for no message, but for {self.waiting}")
        self._resume(WaitEnd.ROUND_OVER)

    # --- the other side of the boundary ---------------------------------------------------------------------------

    def _go(self, event: RoleEvent) -> None:
        pending: RoleEvent | None = event
        while pending is not None:
            pending = self._answer(self._role.step(pending))

    def _answer(self, reply: Reply) -> RoleEvent | None:
        """Take the actions; the event that follows at once, if one does."""
        self.actions += reply.actions
        self.reports += [a.values for a in reply.actions if type(a) is Reported]
        if reply.error:
            raise RoleFailed(reply.error)
        last, node = reply.actions[-1], self.node.id
        self._wait = self._following = None
        if type(last) is Compute:
            job = self._role.desk.job
            assert job is not None
            job.run()
            self.computed.append(last.label)
            return Computed(node, self._now)
        if type(last) is NextRound:
            if last.of is None:
                following = self.node.round + 1
                return Entered(node, self._now, following if following <= self._rounds else 0)
            self._following = last
        elif type(last) is Wait:
            self._wait, self._got, self._handed = last, {}, set()
        elif type(last) is Reject:
            self._wait = self._asked
            self._handed -= set(last.sources)
            if self._outcome != WaitEnd.COMPLETE:
                return self._ready(self._outcome)
        else:
            assert type(last) is Finish
            self._end = last
        return self._next()

    def _look(self) -> None:
        event = self._next()
        if event is not None:
            self._go(event)

    def _next(self) -> RoleEvent | None:
        """The event that the inbox makes possible now."""
        if self._following is not None:
            leaders = self._following.of or ()
            if any(sender in leaders for sender, _ in self._inbox):
                return Entered(self.node.id, self._now, self.node.round + 1)
        elif self._wait is not None:
            self._take()
            if len(self._got) + len(self._handed) >= self._wait.need:
                return self._ready(WaitEnd.COMPLETE)
        return None

    def _take(self) -> None:
        wait = self._wait
        assert wait is not None
        for sender, message in list(self._inbox):
            if (len(self._got) + len(self._handed) < wait.need and sender not in self._got.keys() | self._handed
                    and (wait.sources is None or sender in wait.sources)
                    and (not wait.kinds or type(message).__name__ in wait.kinds)):
                self._got[sender] = message
                self._inbox.remove((sender, message))

    def _resume(self, outcome: WaitEnd) -> None:
        self._go(self._ready(outcome))

    def _ready(self, outcome: WaitEnd) -> Ready:
        self._handed |= self._got.keys()
        self._fetched, self._got = list(self._got.values()), {}
        self._asked, self._outcome = self._wait, outcome
        return Ready(self.node.id, self._now, [], int(outcome))

    def _fetch(self, event: Ready) -> list[Message]:
        return self._fetched

    def _keep(self, source: int, encoded: Encoded, first: int, to: list[int]) -> None:
        """Keep a sent message as a receiver would see it: decoded, its arrays read-only."""
        self._kept.append((to, decode(encoded, self._types)))


def listed(function: RoleFunction) -> dict[str, type[Message]]:
    """The messages that the module of a role function lists; of a `partial`, that of its function."""
    beside = getattr(getattr(function, "func", function), "__globals__", {})
    scheme = beside.get("SCHEME")
    return {kind.__name__: kind for kind in (beside.get("MESSAGES", ()) if scheme is None else scheme.messages)}


def drive(function: RoleFunction, params: object = None, *, clients: Sequence[int] = (1, 2, 3), server: int | None = 0,
          roles: Mapping[str, Sequence[int]] | None = None, role: str | None = None, id: int | None = None,
          task: object = None, seed: int = 7, rounds: int = 1) -> Driven:
    """Start one role alone, as node `id` (default: the first of its role) among `clients` and a `server`.

    roles: {role: its nodes}, in place of `clients` and `server`, for any other roles. role: its name, by default that
    of the function. task: what `node.task` is. rounds: how many a node that counts them itself may enter.
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
    desk = Desk(Memory(), Costs("zero", "test"))
    node = Node(nodes[name][0] if id is None else id, name, facts, desk, task)
    return Driven(Role(node, desk, function, params), listed(function), rounds)
