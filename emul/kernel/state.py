"""The state of a run in the kernel, and the two things that every part of it does: open an activation, plan an entry.

`loop.py` runs it. The other modules of this package change it, but for `calendar.py`, `parts.py`, `fates.py` and
`deadlock.py`.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from heapq import nsmallest

from emul.base import rows
from emul.base.errors import ZeroTimeLoop
from emul.kernel.calendar import FAR, NETWORK, Calendar
from emul.kernel.parts import (
    Copy,
    Imitator,
    KNode,
    NodeCrash,
    Payload,
    Pipe,
    Plan,
    Port,
    Precedent,
    Recorder,
    Strand,
)
from emul.network import Network
from emul.roles.events import Computed, Fuse, NextRound, Reply, RoleEvent

# Rows, before the journal gets what is settled of them. More of them leave the caches of the processor: with 4,096 the
# kernel alone takes 13.0 us an activation, with 512 it takes 12.0 (PHOLD, 1,000 nodes).
UNWRITTEN = 512
_ACTIVATIONS_AT_ONE_INSTANT = 10_000        # of one node


class Kernel:
    """One run of one scheme, to be given to `run_to_end`; when that returns, the counters are final."""

    # Functions over one state and no class with mixins, where `self` hides which part calls which: here the imports
    # show it (state, waits, messages, rounds, faults, loop), and `tests/test_contracts.py` holds their order. Objects
    # that hold each other would cost each activation the way between them.

    def __init__(self, plan: Plan, network: Network, port: Port, journal: Recorder,
                 progress: Callable[[Kernel], None] | None = None):
        self.plan = plan
        self.network = network
        self.now = 0                                # time of the last step taken
        self.end_ns = 0                             # time at which the last decider returned
        self.entered = 0                            # newest round that any decider has entered
        self.ended_ns = 0                           # time at which a decider last left a round
        self.activations = 0
        self.ended_after = 0                        # activations by the time that a decider last left a round
        self.oracle_waits: Counter[tuple[str, str]] = Counter()     # (role, where) -> waits settled by fates
        self.rounds_missed: Counter[str] = Counter()                # role -> followers' rounds that were over
        self.port = port
        self.journal = journal
        self.unwritten: list[rows.Row] = []         # not yet in the journal: something earlier may still come
        # Takes a row for the journal, which gets it when nothing earlier can come any more. The list's own method:
        # a client has ten rows a round.
        self.log: Callable[[rows.Row], None] = self.unwritten.append
        self.full = UNWRITTEN                       # at so many unwritten rows `_release` looks which may go
        self.settled = -1                           # all rows before this time are in the journal
        self.due = 0                                # so many of them for it to look at the end of a round
        self.round_ended = False                    # a decider has left one: the journal may want to be flushed
        self.limit = FAR                            # the end of the run, once it is known
        self.progress = progress                    # called when a decider has left a round, and now and then besides
        self.calendar = Calendar()
        self.nodes = [KNode(i, name, role, vertex, worker, network.out_latency_ns(vertex))
                       for i, (name, role, vertex, worker)
                       in enumerate(zip(plan.names, plan.roles, plan.vertices, plan.worker_of, strict=True))]
        self.at = {n.vertex: n for n in self.nodes}
        for number, spans in plan.rounds.items():
            self.nodes[number].spans = spans
        self.deciders = set(plan.deciders)
        self.deciding = set(plan.deciders)          # those that have not returned
        self.stop_round = plan.stop.rounds if plan.stop.rounds is not None else FAR
        self.stopped = False
        self.pipes: dict[tuple[int, int], Pipe] = {}
        self.open: deque[tuple[KNode, int]] = deque()               # activations in order: node, time
        self.horizon: deque[tuple[int, int]] = deque()              # (index, bound), bounds ascending: the least first
        # if only crashes can happen, what a link says of a message is final: its frames can travel while it does
        self.early = not (plan.streams or plan.dropouts) and all(isinstance(f, NodeCrash) for f in plan.faults)
        # No fault and no battery can end a role: its answer to a message that lies there can be known before its wait
        # has ended.
        self.steady = not (plan.streams or plan.faults or plan.batteries)
        self.ahead: dict[int, Reply] = {}           # node -> answer to the end of its wait, known already
        # Of `precedents`: class -> the newest, node -> what it imitates, example -> what is learned of it; classes
        # that have none any more; message of an example -> its frames, where imitators may send it, too.
        self.precedents: dict[int, Precedent] = {}
        self.imitators: dict[int, Imitator] = {}
        self.learning: dict[int, Precedent] = {}
        self.unlike: set[int] = set()
        self.shared: dict[tuple[int, int], Payload] = {}
        self.taking: tuple[KNode, int, object] | None = None        # what comes next: node, tag, what, as of an entry
        self.flows: Pipe | None = None              # of the network's Fluid, once it is used
        self.pulled = 0                             # faults taken from streams since a round was entered
        self.begun: list[tuple[int, int, int]] = []     # if nodes join: (round, when, by which decider entered first)
        self.joining: set[int] = set()              # nodes that wait for a round in which they take part
        self.followers: dict[int, set[int]] = {}    # leader -> nodes that follow it, or once did
        self.watched: set[int] = set()              # nodes with watchers: few, where there are many followers
        self.asked: dict[tuple[object, ...], tuple[NextRound, tuple[int, ...]]] = {}   # of followers: one for all alike
        # role whose nodes may all begin alike -> how they ask for a round; None: the first has done something else
        self.alike: dict[str, NextRound | None] = {}
        self.reports: dict[int, list[int]] = {}     # decider -> rounds with reported parameters, for a stop on accuracy
        # (lane, role, label) -> node -> computation due
        self.groups: dict[tuple[int, str, str], dict[int, int]] = {}
        # message -> nodes and their waits for the time when it has left its first link (`sending.Transmission`)
        self.sending: dict[Copy, list[tuple[KNode, tuple[Strand, int, Pipe | None, Copy | None]]]] = {}

    @property
    def uncharged(self) -> dict[str, list[int]]:
        """role -> CPU ns of its code outside `compute`: in total, and the most in one activation."""
        found: dict[str, list[int]] = {}
        for node in self.nodes:
            counts = found.setdefault(node.role, [0, 0])
            counts[0] += node.uncharged
            counts[1] = max(counts[1], node.uncharged_most)
        return found

    def open_activation(self, node: KNode, now: int, event: RoleEvent | None = None) -> None:
        """Open an activation of the node at `now` (virtual ns): nothing that its answer may change is taken before that
        is applied. event: for the node's worker; None: the answer is known."""
        if node.group is not None and event is not None and type(event) is not Computed:
            self.fuse(node)                         # it goes on otherwise: what it computed is needed now
        number = node.open_index = self.activations = self.activations + 1
        if node.time != now or node.entered_here != self.entered:
            node.time, node.entered_here, node.activations_here = now, self.entered, 0
        node.activations_here += 1
        if node.activations_here > _ACTIVATIONS_AT_ONE_INSTANT:
            raise ZeroTimeLoop(f"{_ACTIVATIONS_AT_ONE_INSTANT} steps at {now} ns in which no decider entered a "
                               f"round: {node.name} loops without anything that takes virtual time")
        self.open.append((node, now))
        # The first of `horizon` is the least bound of all that is open, without a look at all of them at each step.
        # Activations close in the order in which they were opened, so this one hides earlier ones of a larger bound.
        bound = now + node.out_latency
        horizon = self.horizon
        while horizon and horizon[-1][1] >= bound:
            horizon.pop()
        horizon.append((number, bound))
        if event is not None and node.id not in self.ahead and node.id not in self.imitators:
            self.port.post(node.worker, event)

    def fuse(self, node: KNode) -> None:
        """Have the computation of `node` done, with those that are due soonest of the others that have begun."""
        group, fusing = node.group, self.plan.fuse
        assert group is not None
        assert fusing is not None
        del group[node.id]
        chosen = [node.id, *nsmallest(fusing.most - 1, group, key=lambda other: (group[other], other))]
        for number in chosen:
            group.pop(number, None)
            self.nodes[number].group = None
        self.port.post(node.worker, Fuse(chosen))

    def later(self, node: KNode, time: int, tag: int, what: object, kind: int = NETWORK) -> None:
        """An entry of the node's own, with its next sequence number."""
        node.local_seq += 1
        self.calendar.add(time, (kind, node.id, node.local_seq, tag, what, node))

    def take_now(self, node: KNode, tag: int, what: object) -> None:
        """An entry of the node's own at this instant, the last that its answer makes. It is no entry of the calendar if
        it would be taken off again at once, because nothing else is to happen by then (`loop._take_now`)."""
        # With it and the short ways of `_begin` and `still_there` a round of 12,288 clients takes 0.905 of the CPU, and
        # FedAsync with jitter 0.948 (five pairs in process).
        following, horizon = self.calendar.next_time, self.horizon
        if (node.activities or self.taking is not None or (following is not None and following <= node.time)
                or (horizon and horizon[0][1] <= node.time)):
            self.later(node, node.time, tag, what)
        else:
            self.taking = node, tag, what

    def latency(self, source: KNode, target: KNode) -> int:
        """The least latency between two nodes, ns."""
        return self.network.latency_ns(source.vertex, target.vertex)
