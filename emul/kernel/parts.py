"""The parts of the kernel's state: nodes, copies of messages, payloads, pipes; and the plan that it is given."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeAlias

from emul.base.plain import PlainMapping
from emul.base.rows import Row
from emul.roles.events import (
    NO_DEADLINE,
    Entered,
    Event,
    NextRound,
    Observation,
    Reply,
    RoleEvent,
    Wait,
)


@dataclass(frozen=True)
class NodeCrash:
    """Node `node` loses its role at `at_ns`; with `until_ns` it returns then, with its state unless `wipe`."""

    at_ns: int
    node: int
    until_ns: int | None = None
    wipe: bool = False


@dataclass(frozen=True)
class NodeLeave:
    """Node `node` goes away at `at_ns`, until `until_ns`: its role goes on, but what it sends and gets is lost."""

    at_ns: int
    node: int
    until_ns: int | None = None


@dataclass(frozen=True)
class LinkChange:
    """The link from vertex `src` to vertex `dst` changes at `at_ns`; `changes` as in `Link.change`.

    told: the changes as the journal has them, in plain values; None: they are plain.
    """

    at_ns: int
    src: int
    dst: int
    changes: Mapping[str, Any]
    told: PlainMapping | None = None


@dataclass(frozen=True)
class NodeDropOut:
    """A node drops out of each of the rounds `first` .. `last` (None: for good) just before it would send its first
    message of type `kind` in it: what it sends from then on in that round, and what arrives for it, is lost.

    p: the probability with which it does so, by draw number `round` of `stream`."""

    kind: str
    first: int = 1
    last: int | None = None
    p: float = 1.0
    stream: int = 0


@dataclass(frozen=True)
class Battery:
    """The energy of a node at the start, and the power that it draws: idle or computing, on top while its links carry
    something."""

    joules: float
    idle_w: float
    compute_w: float
    send_w: float
    receive_w: float


@dataclass(slots=True)
class Charge:
    """The energy that is left in a battery."""

    battery: Battery
    left_j: float
    since_ns: int = 0                                   # the time of that charge
    watts: float = 0.0                                  # drawn since
    version: int = 0                                    # of the reckoning of when it will be empty


MAX_MESSAGE = 1 << 30
MAX_UNREAD = 1000

Fault: TypeAlias = NodeCrash | NodeLeave | LinkChange


@dataclass(frozen=True)
class StopRule:
    """The limits that end a run: the one reached first. At least one is given."""

    rounds: int | None = None
    accuracy: float | None = None
    virtual_ns: int | None = None
    loss: float | None = None

    @property
    def observes(self) -> bool:
        """True if what is observed of a model may end the run."""
        return self.accuracy is not None or self.loss is not None

    def reached(self, seen: Mapping[str, float]) -> bool:
        """True if an observation has the accuracy, or the loss, that ends the run: what it lacks ends none."""
        return (self.accuracy is not None and "accuracy" in seen and seen["accuracy"] >= self.accuracy) or (
            self.loss is not None and "loss" in seen and seen["loss"] <= self.loss)


@dataclass(frozen=True)
class Fusing:
    """Computations of one of these labels are done together, by nodes of one role and lane, at most `most` at a time.

    A lane lies whole in one worker, so who is with whom does not depend on their number.
    """

    labels: Sequence[str]
    most: int
    lanes: Sequence[int]                                # node -> lane


@dataclass(frozen=True)
class Plan:
    """Everything of a run that the kernel needs, besides network, workers and journal."""

    names: Sequence[str]                                # node -> name
    roles: Sequence[str]                                # node -> role
    vertices: Sequence[int]                             # node -> vertex of the network
    worker_of: Sequence[int]                            # node -> worker
    deciders: Sequence[int]                             # nodes whose rounds are the run's
    stop: StopRule
    faults: Sequence[Fault] = field(default_factory=tuple)
    streams: Sequence[Iterator[Fault]] = field(default_factory=tuple)    # each in the order of time, maybe endless
    dropouts: Mapping[int, Sequence[NodeDropOut]] = field(default_factory=dict)     # node -> at what it drops out
    # node -> (first, last) of the rounds that it takes part in, ascending and apart; one that is not here: in all
    rounds: Mapping[int, Sequence[tuple[int, int]]] = field(default_factory=dict)
    evaluate_every: int = 1                             # rounds between two evaluations, for a stop on accuracy
    fuse: Fusing | None = None
    batteries: Mapping[int, Battery] = field(default_factory=dict)      # node -> its battery
    alike: Collection[str] = ()                         # roles whose nodes begin alike, if its first does nothing else
    # node -> its class: nodes of one class do the same in a round that the same message begins; -1: nobody does what it
    # does; (): no node has a class
    classes: Sequence[int] = ()
    max_message: int = MAX_MESSAGE                      # bytes of a message; what is larger is rejected
    max_unread: int = MAX_UNREAD                        # of one sender in one inbox; what is beyond is rejected


class Port(Protocol):
    """The kernel's way to the workers. Posted events reach a worker in their order."""

    def post(self, worker: int, event: Event) -> None:
        """Send an event to a worker, behind all that were posted to it; does not wait."""
        ...

    def reply(self, node: int, worker: int) -> Reply:
        """The actions of the node's activation; blocks until they are there."""
        ...

    def ship(self, source: int, first: int, home: int, target: int, last: bool = False) -> None:
        """Have the worker `home` send the frames of message (source, first) to the worker `target`, and, if it is the
        last that needs them, drop them."""
        ...

    def forget(self, source: int, first: int, home: int) -> None:
        """Have the worker `home` drop the frames of message (source, first): nobody needs them any more."""
        ...

    def observation(self, node: int, round: int) -> Observation:
        """The observations of a node in a round; blocks until they are there."""
        ...


class Recorder(Protocol):
    """A receiver of the rows of a run, in their order."""

    def extend(self, found: Sequence[Row]) -> None:
        """Take the next rows, in their order."""
        ...

    def round_ended(self) -> None:
        """A round of the run has ended: a good time to write what waits."""
        ...

    def observed(self, seen: Sequence[Observation]) -> None:
        """Take what was observed, off the clock, in the order in which it comes: that may differ from run to run."""
        ...


class Payload:
    """The frames of one message that several read, or another worker: where they lie and who still needs them."""

    # A dictionary worker -> [copies left, frames there] would be simpler. Most messages have one other worker, and then
    # that costs 1.0 us and 376 bytes a message from its sending to its freeing, these fields 0.5 us and 112 bytes.
    __slots__ = ("first", "here", "home", "more", "other", "other_has", "other_left", "source", "undecided")

    def __init__(self, source: int, first: int, home: int):
        self.source = source
        self.first = first
        self.home = home                        # the worker of the sender
        self.undecided = 0                      # copies for other workers whose delivery is not decided
        self.here = 0                           # copies that may still be read in that worker
        self.other = -1                         # the first other worker that is sent to: most messages have only one
        self.other_left = 0                     # copies that may still be read there
        self.other_has = False                  # true if the frames are there, or on their way
        self.more: dict[int, list[int]] | None = None       # further workers: [copies left, frames there]

    def expect(self, worker: int) -> None:
        """One more copy is for a node of `worker`."""
        if worker == self.home:
            self.here += 1
            return
        self.undecided += 1
        if self.other in (-1, worker):
            self.other = worker
            self.other_left += 1
        else:
            if self.more is None:
                self.more = {}
            self.more.setdefault(worker, [0, 0])[0] += 1

    def settle(self, worker: int) -> bool:
        """A copy has been read in `worker`, or never will be. True: it was the last one there."""
        if worker == self.home:
            self.here -= 1
            return not self.here
        if worker == self.other:
            self.other_left -= 1
            return not self.other_left
        assert self.more is not None
        entry = self.more[worker]
        entry[0] -= 1
        return not entry[0]

    def ship(self, worker: int) -> bool:
        """The frames are needed in another worker. True: they are not there yet."""
        if self.has(worker):
            return False
        if worker == self.other:
            self.other_has = True
        else:
            assert self.more is not None
            self.more[worker][1] = 1
        return True

    def has(self, worker: int) -> bool:
        """True if the frames lie in `worker`, or are on their way to it."""
        if worker == self.home:
            return True
        if worker == self.other:
            return self.other_has
        return self.more is not None and bool(self.more[worker][1])


class Copy:
    """One copy of a message under way to one node."""

    __slots__ = ("decided", "frames", "hop", "kind", "path", "payload", "reason", "round", "seq", "size", "source",
                 "target", "through")

    def __init__(self, source: int, seq: int, target: int, kind: str, size: int, round: int, payload: Payload | None,
                 path: Sequence[int], reason: str = "", frames: list[bytes] | None = None):
        self.source = source
        self.seq = seq
        self.target = target
        self.kind = kind
        self.size = size                        # bytes of the frames and the envelope, as far as they are to come
        self.round = round                      # 0: of no round
        self.payload = payload                  # None: nobody else reads it, and it needs not be shipped
        self.reason = reason                    # the reason why it will be rejected; "": it will not
        self.frames = frames                    # those that travel with its event: then none lie anywhere
        self.path = path                        # vertices, both ends included; where routes depend on the time: those
        #                                         behind it, the next one, and the target
        self.hop = 0                            # index of the link of `path` that it is on
        self.decided = False                    # true if it is settled that the receiver's worker gets the frames
        self.through = False                    # it has left its first link, one that nodes share, or never came to it


class Precedent:
    """The deeds of the first node of a class in a round that a message begins (`emul.kernel.precedents`)."""

    __slots__ = (
        "asked",
        "example",
        "failed",
        "heads",
        "imitators",
        "number",
        "payload",
        "replies",
        "retired",
        "round",
        "sent",
        "waiting",
    )

    def __init__(self, number: int, example: int, payload: Payload | None, round: int):
        self.number = number                    # of the class
        self.example = example                  # the node
        self.payload = payload                  # of the message
        self.round = round
        self.replies: list[Reply] = []          # as far as they are known, one for each activation
        self.heads: set[int] = set()            # places of those that came alone, or brought those behind them
        self.asked = True                       # the worker of the example has an event that it has not answered
        self.waiting: list[tuple[KNode, RoleEvent]] = []    # imitators that wait for that reply, and their events
        self.sent: list[tuple[Payload, list[int]]] = []     # frames kept for imitators, and their targets
        self.imitators = 0                      # that are in that round
        self.failed = False                     # nobody imitates it from now on
        self.retired = False                    # another message has begun a round


class Imitator:
    """A node that does as its precedent did."""

    __slots__ = ("applied", "copy", "events", "precedent")

    def __init__(self, precedent: Precedent, entered: Entered, copy: Copy):
        self.precedent = precedent
        self.events: list[RoleEvent] = [entered]        # that its worker was spared
        self.copy = copy                        # of the message that has brought it there
        self.applied = -1                       # the place of the reply that was applied last


OWN, FLOW, RETURNING = range(3)     # kinds of pipes


class Pipe:
    """One direction of a link of the network, and when the calendar looks at it next.

    kind OWN: a link of its own. FLOW: bandwidth is shared with whatever else is on the route; the calendar looks at all
    flows of the network through one more pipe. RETURNING: a link of its own that gives back, to the vertex at its near
    end, what a contact cuts.
    """

    __slots__ = ("cut", "direct", "dst", "due", "kind", "link", "owner", "plain", "src", "stale")

    def __init__(self, link: Any, owner: KNode | None, src: int, dst: int, kind: int = OWN):
        self.link = link                        # Link, FlowLink, or the Flows of the network
        self.src = src
        self.dst = dst
        self.kind = kind
        self.owner = owner                      # the node at its far end; None: a router
        self.due: int | None = None
        self.stale: set[int] | None = None      # times at which it is looked at for nothing, since it changed
        self.plain = kind == OWN and not link.overhead_bytes
        self.direct = False                     # nothing ever changes it: at the offer all is known of a message
        self.cut = link.cut                     # a message may leave it before its tail is through, or overtake


# Containers that are empty at most nodes, shared by all of them and never written to. A node with its own empty ones
# takes 1,064 bytes in place of 424, and 3.9 us to make in place of 0.9: of a million registered clients 0.6 GiB of the
# 2.1 GiB that such a run takes, and 3 of the 23 s until its first round has ended. The price: code that adds to one
# makes it first, where it is empty (`if not node.ways: node.ways = {}`).
_NONE: set[int] = set()
_NOTHING: dict[Any, Any] = {}
_EMPTY: list[Any] = []


class Patience:
    """A wait of a node: what it has got, and whose fate is still open."""

    __slots__ = ("fates", "got", "handed", "kinds", "need", "open", "since", "sources", "wait")

    def __init__(self, wait: Wait, since: int):
        self.wait = wait
        self.since = since
        self.kinds = wait.kinds
        sources = wait.sources
        self.sources: Container[int] | None = sources
        if sources is not None and len(sources) > 4:
            self.sources = frozenset(sources)
        self.need = wait.need
        self.fates = wait.deadline == NO_DEADLINE and sources is not None     # a wait with a timeout cannot know fates
        self.got: dict[int, Copy] = {}
        self.handed: Container[int] = ()        # sources whose copies the role has, from before it refused others
        self.open: set[int] = set(sources) if self.fates and sources else _NONE

    def take(self, copy: Copy) -> None:
        """It has come, and is what the wait asks for. Of anybody there may be several of one source."""
        source = copy.source
        self.got[source if source not in self.got else ~len(self.got)] = copy
        self.open.discard(source)

    def unread(self) -> list[Copy]:
        """The messages that it has got and the role has not."""
        return [copy for source, copy in self.got.items() if source not in self.handed]


class KActivity:
    """An activity of a role as the kernel sees it: what it waits for, or that it computes."""

    __slots__ = ("computing", "epoch", "label", "number", "patience", "refusable")

    def __init__(self, number: int, label: str):
        self.number, self.label = number, label
        self.epoch = 0                          # these four are as those of a node
        self.computing = False
        self.patience: Patience | None = None
        self.refusable: Patience | None = None


@dataclass(slots=True)
class SkippedRounds:
    """Rounds that a follower will never enter: those from `low` to `highs[i]` since `sinces[i]`, both ascending."""

    low: int
    highs: list[int]
    sinces: list[int]


class KNode:
    """A node as the kernel sees it: everything of it but its role's own state."""

    number: ClassVar[int] = 0                   # the role itself, among the activities of the node

    __slots__ = ("abstained", "activations_here", "activities", "alive", "away", "charge", "coming", "computing",
                 "departures", "downs", "dropped", "entered_here", "epoch", "finished", "finished_at", "followed_at",
                 "following", "group", "id", "in_round", "inbox", "leaders", "left", "local_seq", "losses",
                 "name", "next", "oldest", "open_index", "out_latency", "parked", "patience", "quorum", "reached",
                 "reads", "refusable", "role", "round", "sent", "skipped", "spans", "time", "uncharged",
                 "uncharged_most", "unread", "vertex", "watchers", "ways", "worker")

    def __init__(self, id: int, name: str, role: str, vertex: int, worker: int, out_latency: int):
        self.id, self.name, self.role, self.vertex, self.worker = id, name, role, vertex, worker
        self.out_latency = out_latency
        self.alive = True
        self.away = False
        self.dropped = 0                        # the newest round that it has dropped out of; 0: none
        self.finished = False
        self.finished_at: int | None = None
        self.downs: list[tuple[int, int | None]] = _EMPTY   # (crashed at, will return at, None: never)
        self.open_index = 0                     # number of its open activation; 0: none
        self.time = 0
        self.sent = 0                           # copies so far, of a node of a class
        self.uncharged = self.uncharged_most = 0    # CPU ns of role code outside `compute`: total, in one activation
        self.epoch = 0                          # invalidates timers and computations that no longer count
        self.local_seq = 0                      # of its own calendar entries
        self.computing: bool = False
        self.charge: Charge | None = None       # of its battery; None: it has none
        self.group: dict[int, int] | None = None    # with whom its computation may be done: node -> due, itself too
        self.patience: Patience | None = None
        self.next: NextRound | None = None
        self.following: NextRound | None = None     # its last request for a round
        self.round = 0
        self.in_round = False
        self.left = 0                           # every round up to this one is left
        self.leaders: tuple[int, ...] = ()      # the nodes it follows,
        self.followed_at = 0                    # since when
        self.activations_here = 0               # of its own at this instant,
        self.entered_here = 0                   # with so many rounds entered by deciders
        self.quorum = 1
        self.reached: dict[int, int] = _NOTHING     # leader or mate -> newest round a message of theirs has shown
        self.refusable: Patience | None = None  # its last wait, if what that brought may be refused
        self.reads = 0                          # messages that it has read one after the other, and done nothing else
        self.inbox: list[Copy] = _EMPTY         # delivered, unread
        self.oldest = 0                         # a lower bound of the rounds of what lies there and belongs to one
        self.unread: dict[int, int] | None = None   # source -> how many in the inbox; None: to be counted
        self.coming: dict[int, list[Copy]] = _NOTHING       # source -> copies under way to this node
        self.losses: list[Copy] = _EMPTY        # known to be lost, not yet used by a wait
        self.departures: list[tuple[int, int]] = _EMPTY     # (every round up to this one is left, since when)
        self.spans: Sequence[tuple[int, int]] = ()          # rounds in which alone it takes part, which all know
        self.skipped: list[SkippedRounds] = _EMPTY          # will never be entered, since their messages were lost
        self.abstained: dict[tuple[int, str, int], int] = _NOTHING      # (target, type, round) -> since when
        self.watchers: set[int] = _NONE         # nodes whose wait depends on what this one does
        self.ways: dict[int, tuple[Sequence[int], Pipe | None]] = _NOTHING    # target -> route, and its first link
        self.parked: list[tuple[int, Any]] | None = None    # a heap of calendar entries that wait for answers
        self.activities: dict[int, KActivity] = _NOTHING    # of its role, by number, in the order they were begun

    def put_back(self, copies: list[Copy]) -> None:
        """Copies that a wait had got, and nobody has read, lie first in the inbox again."""
        self.inbox, self.unread, self.oldest = copies + self.inbox, None, 0

    def waits(self) -> Iterator[Patience]:
        """The waits of the role and its activities, in the order in which messages are offered to them."""
        if self.patience is not None:
            yield self.patience
        for activity in self.activities.values():
            if activity.patience is not None:
                yield activity.patience

    def waits_for(self, source: int) -> Sequence[Patience]:
        """Those to which the fate of `source` is open."""
        patience = self.patience
        if not self.activities:                 # nearly always
            return (patience,) if patience is not None and source in patience.open else ()
        return [patience for patience in self.waits() if source in patience.open]

    def watch(self, node: int) -> None:
        """`node` waits for what this one does."""
        if not self.watchers:
            self.watchers = set()
        self.watchers.add(node)

    def unwatch(self, nodes: Iterable[int]) -> None:
        """`nodes` no longer wait for what this one does."""
        self.watchers.difference_update(nodes)
        self.watchers = self.watchers or _NONE

    def go_down(self, time: int, until: int | None) -> None:
        """It crashes, and will return at `until`, or never."""
        if not self.downs:
            self.downs = []
        self.downs.append((time, until))

    def skip(self, low: int, high: int, since: int) -> None:
        """It will never enter the rounds from `low` to `high`, since then."""
        # A node that is away for 100,000 rounds loses the message of each, with one `low`. A search finds a round among
        # the `highs`; a list of all (low, high) would have to be gone through for each wait.
        for one in self.skipped:
            if one.low == low and one.sinces[-1] <= since:
                if high > one.highs[-1]:
                    one.highs.append(high)
                    one.sinces.append(since)
                return
        self.skipped = [*self.skipped, SkippedRounds(low, [high], [since])]

    def enter_behind(self, round_: int) -> None:
        """It enters this round: it has not skipped those up to it."""
        for one in self.skipped:
            old = bisect_right(one.highs, round_)
            del one.highs[:old], one.sinces[:old]
        self.skipped = [one for one in self.skipped if one.highs]

    def depart(self, upto: int, since: int) -> None:
        """Every round up to `upto` is left since then."""
        if not self.departures:
            self.departures = []
        self.departures.append((upto, since))


Strand: TypeAlias = KNode | KActivity           # what waits or computes: a role itself, or an activity of it
