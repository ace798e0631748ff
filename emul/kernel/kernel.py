"""The kernel: one clock for many processes.

It takes steps off the calendar as long as they are *safe*, hands activations to the workers, and applies their answers
in the order of the activations. Two rules make a run the same for any number of workers:

    safe        an event of vertex j at t is taken only if no open activation can yet cause an earlier one there:
                time(i) + least latency out of i > t for every open activation i, and j itself has none open
    in order    answers are applied in the order in which their activations were opened, never in that in which they
                arrive; so what the kernel does next depends on virtual time alone

Nothing here knows a scheme, a process or a file. `waits.py` decides when a wait is over.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable
from heapq import nsmallest
from sys import intern
from typing import Any

from emul.base import rows
from emul.base.errors import Deadlock, RoleFailed, RunError, ZeroTimeLoop
from emul.kernel import waits
from emul.kernel.calendar import FAULT, NETWORK, TIMER, Calendar, Entry
from emul.kernel.parts import (
    FLOW,
    OWN,
    SHARED,
    Copy,
    Crash,
    Fault,
    Journal,
    KNode,
    Leave,
    LinkChange,
    Patience,
    Payload,
    Pipe,
    Plan,
    Port,
)
from emul.network import FlowLink, Network
from emul.roles.events import (
    Abstain,
    Close,
    Compute,
    Computed,
    Drop,
    Entered,
    Finish,
    Fuse,
    LeaveRound,
    NextRound,
    Outcome,
    Ready,
    Ref,
    Report,
    RoleEvent,
    Send,
    Start,
    Wait,
)
from emul.wire import ENVELOPE_BYTES

# tags of calendar entries: what an entry of the kinds NETWORK, TIMER, FAULT is
(_ADVANCE, _LOCAL, _LAND, _COMPUTED, _LOOK, _FATE, _OFFER, _FLOW_ON, _FLOW_IN, _DEADLINE, _FAULT, _RETURN, _BACK,
 _STOP) = range(14)
_LANDINGS = (_LOCAL, _LAND)

_ACTIVATIONS_AT_ONE_INSTANT = 10_000         # of one node
_HELD = 4096                                # rows, before the journal gets what is settled of them
_ABSTENTIONS = 1000                         # kept of a node, before those of old rounds are forgotten
_FAR = 1 << 62
_NOBODY: frozenset[int] = frozenset()
_STREAM = 1 << 40                           # sequence numbers of the faults of a stream begin at multiples of this
_FAULTS_WITHOUT_PROGRESS = 100_000          # of streams, before a run in which no round begins is a deadlock


class Kernel:
    """One run of one scheme. `run()` ends it; then the counters are final."""

    def __init__(self, plan: Plan, network: Network, port: Port, journal: Journal,
                 progress: Callable[[Kernel], None] | None = None):
        self.plan = plan
        self.network = network
        self.now = 0                                # time of the last step taken
        self.end_ns = 0                             # time at which the last decider returned
        self.entered = 0                            # newest round that any decider has entered
        self.activations = 0
        self.oracle_waits: Counter[tuple[str, str]] = Counter()     # (role, where) -> waits settled by fates
        self.rounds_missed: Counter[str] = Counter()                # role -> followers' rounds that were over
        self.accuracy: dict[int, float] = {}                        # round -> observed, where a stop waits for it
        self._port = port
        self._journal = journal
        self._rows: list[rows.Row] = []             # not yet in the journal: something earlier may still come
        self._log = self._rows.append
        self._full = _HELD                          # rows held, before it is looked again which may go
        self._round_ended = False                   # a decider has left one: the journal may want to be flushed
        self._limit = _FAR                          # the end of the run, once it is known
        self._progress = progress
        self._calendar = Calendar()
        self._nodes = [KNode(i, name, role, vertex, worker, network.out_latency_ns(vertex))
                       for i, (name, role, vertex, worker)
                       in enumerate(zip(plan.names, plan.roles, plan.vertices, plan.workers, strict=True))]
        self._lower_lookahead()
        self._at = {n.vertex: n for n in self._nodes}
        self._deciders = set(plan.deciders)
        self._deciding = set(plan.deciders)         # those that have not returned
        self._stop_round = plan.stop.rounds if plan.stop.rounds is not None else _FAR
        self._stopped = False
        self._pipes: dict[tuple[int, int], Pipe] = {}
        self._open: deque[tuple[KNode, int]] = deque()              # activations in order: node, time
        self._horizon: deque[tuple[int, int]] = deque()             # (index, bound), bounds ascending: the least first
        # if only crashes can happen, what a link says of a message is final: its frames can travel while it does
        self._early = not plan.streams and all(isinstance(f, Crash) for f in plan.faults)
        self._flows: Pipe | None = None             # of the network's Fluid, once it is used
        self._pulled = 0                            # faults taken from streams since a round was entered
        self._followers: dict[int, set[int]] = {}   # leader -> nodes that follow it, or once did
        self._watched: set[int] = set()             # nodes with watchers: few, where there are many followers
        self._asked: dict[tuple[Any, ...], tuple[NextRound, tuple[int, ...]]] = {}  # of followers: one for all alike
        self._opened = 0
        self._reports: dict[int, list[int]] = {}    # decider -> rounds with reported parameters, for a stop on accuracy
        self._groups: dict[tuple[int, str], dict[int, int]] = {}    # (lane, role) -> node -> computation due
        self._act: dict[type, Callable[[KNode, Any], None]] = {
            Send: self._send, Wait: self._wait, NextRound: self._next_round, LeaveRound: self._leave_round,
            Abstain: self._abstain, Compute: self._compute, Report: self._report, Finish: self._finish}

    # --- the loop -------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run to the end. Raises RunError: a role failed, a deadlock, a worker died, a bug of emul."""
        for place, fault in enumerate(self.plan.faults):
            self._add_fault(fault, 2 * place, -1)
        for number in range(len(self.plan.streams)):
            self._pull(number, _STREAM * (number + 1))
        if self.plan.stop.virtual_ns is not None:
            self._calendar.add(self.plan.stop.virtual_ns, (TIMER, -1, 0, _STOP, None, None))
        for node in self._nodes:
            self._open_activation(node, Start(node.id, 0, 0))
            self._log((rows.START, 0, node.id, 0))
        try:
            self._loop()
        except RunError:
            self._limit, self._deciding = _FAR - 1, set()
            self._open.clear()
            self._release()                         # all that is known of a run that failed
            raise
        self._release()

    def _loop(self) -> None:
        while True:
            self._take_safe_steps()
            if self._round_ended or len(self._rows) >= self._full:
                self._release()
            if self._open:
                self._apply_next()
            elif not self._deciding:
                break
            elif self._calendar.next_time is None:
                raise Deadlock(waits.deadlock_report(self._nodes, self.now))

    def _release(self) -> None:
        """Write the rows before which nothing can come any more, by time; at the end all rows up to it."""
        held = self._rows
        bound = min([time for _, time in self._open], default=_FAR)
        following = self._calendar.next_time
        if following is not None:
            bound = min(bound, following)
        if bound > self._limit or not (self._deciding or self._open):
            bound = self._limit + 1                 # nothing after the end belongs to the run
        held.sort(key=_time)                        # stable: rows of one time stay in the order of their steps
        count = bisect_left(held, bound, key=_time)
        append = self._journal.append
        for row in held[:count]:
            append(row)
        del held[:count]
        self._full = len(held) + _HELD
        if self._round_ended:
            self._round_ended = False
            self._journal.round_ended()

    def _take_safe_steps(self) -> None:
        """Take every step that no open activation can still come before; entries of open nodes wait for these."""
        calendar, horizon, limit = self._calendar, self._horizon, self._limit
        while True:
            time = calendar.next_time
            if time is None or time > limit or (horizon and time >= horizon[0][1]):
                return
            step = calendar.take_step(time)
            for entry in step:
                owner = entry[5]
                if owner is None:
                    if entry[3] == _STOP and self._open:        # what is open may enter a round before it
                        for waiting in step:
                            calendar.add(time, waiting)
                        return
                elif owner.open_index:
                    step = self._park(time, step)
                    break
            if step:
                self.now = time
                self._take(time, step)
                limit = self._limit

    def _park(self, time: int, step: list[Entry]) -> list[Entry]:
        """Set aside the entries of nodes that are open, until they answer: what they do now comes before. The rest."""
        free = []
        for entry in step:
            owner = entry[5]
            if owner is not None and owner.open_index:
                if owner.parked is None:
                    owner.parked = []
                owner.parked.append((time, entry))
            else:
                free.append(entry)
        return free

    def _take(self, time: int, step: list[Entry]) -> None:
        """One step: deliveries by (source, seq), then what is computed, then every wait is looked at once."""
        if len(step) == 1:                          # most steps of an irregular run
            entry = step[0]
            if entry[3] == _ADVANCE:
                left = self._leave_link(time, entry[4])
                if len(left) == 1:
                    node = self._arrive(time, *left[0], entry[4])
                    if node is not None:
                        self._look(time, node)
                    return
            else:
                node = self._arrive(time, *entry[4]) if entry[3] in _LANDINGS else self._happen(time, entry)
                if node is not None:
                    self._look(time, node)
                return
            arrivals = [(*one, entry[4]) for one in left]
            rest: list[Entry] = []
        else:
            arrivals, rest = [], []
            for entry in step:
                tag = entry[3]
                if tag == _ADVANCE:
                    pipe = entry[4]
                    arrivals += [(*one, pipe) for one in self._leave_link(time, pipe)]
                elif tag in _LANDINGS:
                    arrivals.append(entry[4])
                else:
                    rest.append(entry)
        arrivals.sort(key=_copy_key)
        touched: dict[int, KNode] = {}
        for arrival in arrivals:
            node = self._arrive(time, *arrival)
            if node is not None:
                touched[node.id] = node
        for entry in rest:
            node = self._happen(time, entry)
            if node is not None:
                touched[node.id] = node
        for _, node in sorted(touched.items()):
            self._look(time, node)

    def _leave_link(self, time: int, pipe: Pipe) -> list[tuple[Copy, bool, int, int]]:
        """What leaves the link now; and the calendar is told when to look at it next."""
        if pipe.due != time:                        # the link has changed since, and was scheduled anew
            if pipe.stale:
                pipe.stale.discard(time)
            return []
        left = pipe.link.advance(time)
        self._look_at(pipe)
        if pipe.kind == OWN:
            return left
        # it has many ends: what arrives does so in an entry of the node where it does, which may have to wait for it
        for copy, delivered, tail, resent in left:
            end = self._pipe(copy.path[copy.hop], copy.path[copy.hop + 1])
            self._calendar.add(time, (NETWORK, copy.source, copy.seq + _FAR, _LAND,
                                      (copy, delivered, tail, resent, end), end.owner))
        return []

    def _happen(self, time: int, entry: Entry) -> KNode | None:
        """An entry that is no delivery. Returns the node whose wait it may have ended."""
        tag, what = entry[3], entry[4]
        if tag == _LOOK:
            return what
        if tag == _COMPUTED:
            node, epoch = what
            if node.epoch == epoch and node.alive:
                node.computing = False
                self._log((rows.COMPUTED, time, node.id))
                self._open_activation(node, Computed(node.id, time))
            return None
        if tag == _DEADLINE:
            node, epoch = what
            if node.epoch == epoch and node.alive and node.patience is not None:
                self._resume(time, node, Outcome.TIMEOUT)
            return None
        if tag == _FATE:
            node, source = what
            if waits.settle(self._nodes, self.network, node, source, time):
                return node
            if node.patience is not None and source in node.patience.open:
                # it came back before the word of its crash did, but may have left by other means, known later
                known = waits.departure_known_at(self._nodes, self.network, node, source)
                if known is not None and known > time:
                    self._later(node, known, _FATE, (node, source))
            return None
        if tag == _OFFER:
            self._offer_to(time, *what)
        elif tag == _FLOW_ON:
            self._enter_next(time, *what)
        elif tag == _FLOW_IN:
            self._start_flow(time, *what)
        elif tag == _FAULT:
            self._fail(time, *what)
        elif tag == _RETURN:
            self._return(time, what[0], what[1])
        elif tag == _BACK:
            self._come_back(time, what[0], what[1])
        elif tag == _STOP and not self._stopped:
            self._stop_now(time)
        return None

    def _apply_next(self) -> None:
        """Wait for the answer of the oldest open activation and apply its actions."""
        node, time = self._open.popleft()
        if node.group is not None:
            self._fuse_open(node)
        reply = self._port.reply(node.id, node.worker)
        if time > self._limit:                      # the run ended before this
            node.open_index = 0
            return
        if self._horizon and self._horizon[0][0] == node.open_index:
            self._horizon.popleft()
        node.open_index = 0
        if node.parked:
            for due, entry in node.parked:
                self._calendar.add(due, entry)
            node.parked = None
        spent = reply.uncharged
        node.uncharged += spent
        if spent > node.uncharged_most:
            node.uncharged_most = spent
        act = self._act
        for action in reply.actions:
            act[type(action)](node, action)
        if reply.error:
            raise RoleFailed(f"{node.name} ({node.role}) failed at {time / 1e9:.9g} s in round {node.round}:\n"
                             f"{reply.error}")

    def _open_activation(self, node: KNode, event: RoleEvent) -> None:
        if node.group is not None and type(event) is not Computed:
            self._fuse(node)                        # it goes on otherwise: what it computed is needed now
        self._opened += 1
        self.activations += 1
        node.open_index = self._opened
        if node.time != event.now or node.entered_here != self.entered:
            node.time, node.entered_here, node.activations_here = event.now, self.entered, 0
        node.activations_here += 1
        if node.activations_here > _ACTIVATIONS_AT_ONE_INSTANT:
            raise ZeroTimeLoop(f"{_ACTIVATIONS_AT_ONE_INSTANT} steps at {event.now} ns in which no decider entered a "
                               f"round: {node.name} loops without anything that takes virtual time")
        self._open.append((node, event.now))
        bound = event.now + node.out_latency
        horizon = self._horizon
        while horizon and horizon[-1][1] >= bound:
            horizon.pop()
        horizon.append((self._opened, bound))
        self._port.post(node.worker, event)

    def _later(self, node: KNode, time: int, tag: int, what: Any, kind: int = NETWORK) -> None:
        """An entry of the node's own, with its next sequence number."""
        node.local_seq += 1
        self._calendar.add(time, (kind, node.id, node.local_seq, tag, what, node))

    @property
    def uncharged(self) -> dict[str, list[int]]:
        """role -> CPU ns of its code outside `compute`: in total, and the most in one activation."""
        found: dict[str, list[int]] = {}
        for node in self._nodes:
            counts = found.setdefault(node.role, [0, 0])
            counts[0] += node.uncharged
            counts[1] = max(counts[1], node.uncharged_most)
        return found

    # --- messages -------------------------------------------------------------------------------------------------

    def _send(self, node: KNode, action: Send) -> None:
        time, source, seq, kind, round_ = node.time, node.id, action.first, intern(action.kind), action.round
        size = action.size + ENVELOPE_BYTES
        nodes, log, away = self._nodes, self._log, node.away
        payload = Payload(source, seq, node.worker)
        for target in action.to:
            payload.expect(nodes[target].worker)
        for target in action.to:
            way = node.ways.get(target)
            if way is None:
                if not node.ways:
                    node.ways = {}
                way = node.ways[target] = self._way(node, nodes[target])
            path, pipe = way
            copy = Copy(source, seq, target, kind, size, round_, payload, path)
            coming = nodes[target].coming
            if source in coming:
                coming[source].append(copy)
            elif coming:
                coming[source] = [copy]
            else:
                nodes[target].coming = {source: [copy]}
            if pipe is None:                        # to itself
                log((rows.SEND, time, source, seq, target, kind, action.size, 0, round_, -1, -1))
                self._later(node, time, _LOCAL, (copy, True, 0, 0, None))
            elif away:                              # nobody hears it; known when it would have come at the earliest
                log((rows.SEND, time, source, seq, target, kind, action.size, 0, round_, -1, -1))
                self._calendar.add(time + self._latency(node, nodes[target]), (
                    NETWORK, source, seq + _FAR, _LAND, (copy, False, 0, 0, None), nodes[target]))
            else:
                wire = size if pipe.plain else pipe.link.wire_bytes(size)
                log((rows.SEND, time, source, seq, target, kind, action.size, wire, round_, pipe.src, pipe.dst))
                self._offer(time, pipe, copy)
            seq += 1

    def _way(self, node: KNode, target: KNode) -> tuple[tuple[int, ...], Pipe | None]:
        """The vertices from node to target, and the first link of that route."""
        if target is node:
            return (node.vertex,), None
        path = self.network.route(node.vertex, target.vertex)
        return path, self._pipe(path[0], path[1])

    def _offer(self, time: int, pipe: Pipe, copy: Copy, tail: int = 0) -> None:
        """The copy's next link. `tail`: when the last byte of it will be here; it is, if that has passed."""
        if pipe.kind or pipe.cut or tail > time:
            if pipe.kind == FLOW:
                self._enter(max(time, tail), pipe, copy, [])
            elif pipe.kind == SHARED:               # other nodes may offer to it before: in the order of time
                self._calendar.add(time, (NETWORK, copy.source, copy.seq + _FAR, _OFFER, (pipe, copy, tail), None))
            else:
                self._offer_to(time, pipe, copy, tail)
            return
        delivered = pipe.link.offer(time, copy, copy.size, copy.round)
        if pipe.due is None:
            self._look_at(pipe)
        if copy.payload.undecided and self._early and not (delivered and copy.hop < len(copy.path) - 2):
            self._decide(copy, delivered)

    def _offer_to(self, time: int, pipe: Pipe, copy: Copy, tail: int) -> None:
        pipe.link.offer(time, copy, copy.size, copy.round, copy.hop >= len(copy.path) - 2, tail)
        self._look_again(pipe.main)

    def _enter(self, time: int, pipe: Pipe, copy: Copy, ends: list[tuple[Pipe, int]]) -> None:
        """The copy comes to a link that shares its bandwidth; `ends`: those before it in a row, and when it came there.

        One flow takes them all, up to the last in a row or one that loses it. It pays their latencies first, one after
        the other, and occupies them all at once after that, as flows of SimGrid do.
        """
        delivered, delay = pipe.link.enter(time, copy.size, copy.round)
        ends.append((pipe, time))
        number, seq, last = copy.source, copy.seq + _FAR, copy.hop == len(copy.path) - 2
        if pipe.link.down and not delivered:        # nothing passes it: lost without having occupied anything
            self._calendar.add(time + delay, (NETWORK, number, seq, _LAND, (copy, False, 0, 0, pipe), pipe.owner))
        elif last or not delivered or self._pipe(pipe.dst, copy.path[copy.hop + 2]).kind != FLOW:
            self._calendar.add(time + delay, (NETWORK, number, seq, _FLOW_IN, (copy, delivered, ends), None))
        else:
            self._calendar.add(time + delay, (NETWORK, number, seq, _FLOW_ON, (copy, ends), pipe.owner))

    def _enter_next(self, time: int, copy: Copy, ends: list[tuple[Pipe, int]]) -> None:
        copy.hop += 1
        pipe = self._pipe(copy.path[copy.hop], copy.path[copy.hop + 1])
        self._log((rows.HOP, time, copy.source, copy.seq, pipe.link.wire_bytes(copy.size), pipe.src, pipe.dst))
        self._enter(time, pipe, copy, ends)

    def _start_flow(self, time: int, copy: Copy, delivered: bool, ends: list[tuple[Pipe, int]]) -> None:
        if any(pipe.link.dropped_ns >= since for pipe, since in ends):      # a fault has dropped it on its way
            last = ends[-1][0]
            self._calendar.add(time, (NETWORK, copy.source, copy.seq + _FAR, _LAND, (copy, False, 0, 0, last),
                                      last.owner))
            return
        flows = self._flows
        if flows is None:
            flows = self._flows = Pipe(self.network.flows, None, -1, 0, FLOW)
        again = self.network.flows.start(time, copy, copy.size, delivered, [pipe.link for pipe, _ in ends],
                                         self._latency(self._nodes[copy.source], self._nodes[copy.target]))
        if again:
            for pipe, _ in ends:
                self._log((rows.RESENT, time, copy.source, copy.seq, again, pipe.src, pipe.dst))
        self._look_again(flows)

    def _decide(self, copy: Copy, delivered: bool) -> None:
        """The frames go to the receiver's worker once it is decided that they arrive, once per worker."""
        payload, worker = copy.payload, self._nodes[copy.target].worker
        if worker == payload.home or copy.decided:
            return
        copy.decided = True
        payload.undecided -= 1
        if delivered and payload.ship(worker):
            self._port.ship(payload.source, payload.first, payload.home, worker)
        if not payload.undecided:
            self._port.forget(payload.source, payload.first, payload.home)

    def _pipe(self, src: int, dst: int) -> Pipe:
        pipe = self._pipes.get((src, dst))
        if pipe is None:
            link = self.network.link(src, dst)
            kind = FLOW if isinstance(link, FlowLink) else SHARED if link.half_duplex else OWN
            pipe = self._pipes[src, dst] = Pipe(link, self._at.get(dst), src, dst, kind)
            if kind == SHARED and (dst, src) in self._pipes:
                pipe.main = self._pipes[dst, src]
        return pipe

    def _look_at(self, pipe: Pipe) -> None:
        """Have the calendar look at the link when the next thing leaves it."""
        due = pipe.due = pipe.link.next_change()
        if due is None:
            return
        if pipe.stale and due in pipe.stale:        # it was to be looked at then, before the link changed
            pipe.stale.discard(due)
            return
        owner = pipe.owner if pipe.kind == OWN else None
        self._calendar.add(due, (NETWORK, pipe.src, pipe.dst - _FAR, _ADVANCE, pipe, owner))

    def _look_again(self, pipe: Pipe) -> None:
        """As `_look_at`, where the next thing may leave earlier or later than was thought."""
        if pipe.due is not None:
            pipe.stale = (pipe.stale or set()) | {pipe.due}
        self._look_at(pipe)

    def _arrive(self, time: int, copy: Copy, delivered: bool, tail: int, resent: int, pipe: Pipe | None,
                ) -> KNode | None:
        """A copy has left a link. Returns its receiver if this may end a wait of it."""
        receiver = self._nodes[copy.target]
        if resent:
            assert pipe is not None
            self._log((rows.RESENT, time, copy.source, copy.seq, resent, pipe.src, pipe.dst))
        if delivered and pipe is not None and copy.hop < len(copy.path) - 2:
            copy.hop += 1
            onward = self._pipe(copy.path[copy.hop], copy.path[copy.hop + 1])
            self._log((rows.HOP, time, copy.source, copy.seq, onward.link.wire_bytes(copy.size),
                       onward.src, onward.dst))
            self._offer(time, onward, copy, tail)
            return None
        under_way = receiver.coming[copy.source]
        under_way.remove(copy)
        if not under_way:
            del receiver.coming[copy.source]
        if copy.payload.undecided:
            self._decide(copy, delivered and not receiver.away)
        if not delivered or (receiver.away and pipe is not None):
            link = (-1, -1) if pipe is None else (pipe.src, pipe.dst)
            self._log((rows.LOST, time, copy.source, copy.seq, *link))
            self._unread(copy)
            return self._know_loss(time, receiver, copy)
        if not receiver.alive or receiver.finished:
            self._log((rows.DELIVER, time, copy.source, copy.seq, rows.TO_ENDED))
            self._unread(copy)
            self._miss_round(time, receiver, copy)
            return None
        if copy.round and copy.round <= receiver.left:
            self._log((rows.DELIVER, time, copy.source, copy.seq, rows.DELIVERED_LATE))
            self._unread(copy)
            return None
        self._log((rows.DELIVER, time, copy.source, copy.seq, rows.INBOX))
        if copy.round and copy.round > receiver.reached.get(copy.source, 0):
            if not receiver.reached:
                receiver.reached = {}
            receiver.reached[copy.source] = copy.round
        patience = receiver.patience
        if (patience is not None and len(patience.got) < patience.need and copy.source not in patience.got
                and waits.matches(receiver, patience, copy)):
            patience.got[copy.source] = copy
            patience.open.discard(copy.source)
        elif receiver.inbox:
            receiver.inbox.append(copy)
        else:
            receiver.inbox = [copy]
        return receiver

    def _know_loss(self, time: int, receiver: KNode, copy: Copy) -> KNode | None:
        self._miss_round(time, receiver, copy)
        if not receiver.alive or receiver.finished or (copy.round and copy.round <= receiver.left):
            return None
        receiver.losses = [*receiver.losses, copy]
        return receiver if waits.settle(self._nodes, self.network, receiver, copy.source, time) else None

    def _miss_round(self, time: int, follower: KNode, copy: Copy) -> None:
        """A leader's message was lost, or came while the follower was down: rounds it can no longer enter are left."""
        if not follower.finished and waits.skip_lost_rounds(follower, copy, time):
            self._tell_watchers(time, follower)

    def _unread(self, copy: Copy) -> None:
        """This copy will not be read: its worker may drop the frames after the last such copy."""
        payload, worker = copy.payload, self._nodes[copy.target].worker
        if payload.settle(worker) and payload.has(worker):
            self._port.post(worker, Drop(payload.source, payload.first))

    def _discard_late(self, node: KNode) -> None:
        """Forget what belongs to rounds that the node has left."""
        left = node.left
        if node.inbox:
            keep = []
            for copy in node.inbox:
                if copy.round and copy.round <= left:
                    self._log((rows.LATE, node.time, copy.source, copy.seq))
                    self._unread(copy)
                else:
                    keep.append(copy)
            node.inbox = keep
        if node.losses:
            node.losses = [c for c in node.losses if not c.round or c.round > left]
        if len(node.abstained) > _ABSTENTIONS:      # old ones: the word of all of them has arrived
            node.abstained = {key: since for key, since in node.abstained.items() if not key[2] or key[2] >= left}

    # --- waits and rounds -----------------------------------------------------------------------------------------

    def _wait(self, node: KNode, action: Wait) -> None:
        action.where = intern(action.where)         # decoded anew for each wait, and kept by every node that waits
        patience = node.patience = Patience(action, node.time)
        node.epoch += 1
        if node.in_round and waits.round_is_over(node):
            self._later(node, node.time, _LOOK, node)
            return
        if action.deadline >= 0:
            self._later(node, action.deadline, _DEADLINE, (node, node.epoch), TIMER)
        satisfied = waits.take_from_inbox(node, patience) if node.inbox else not patience.need
        if patience.fates:
            for source in sorted(patience.open):
                self._watched.add(source)
                self._nodes[source].watch(node.id)
                if not satisfied:
                    self._await_departure(node, source)
                    waits.settle(self._nodes, self.network, node, source, node.time)
            satisfied = satisfied or not patience.open
        if satisfied:
            self._later(node, node.time, _LOOK, node)

    def _await_departure(self, node: KNode, source: int) -> None:
        """If `source` has already gone from this wait, but the word of it is still under way: look again then."""
        known = waits.departure_known_at(self._nodes, self.network, node, source)
        if known is not None and known > node.time:
            self._later(node, known, _FATE, (node, source))

    def _tell_watchers(self, time: int, source: KNode) -> None:
        """`source` has left a round, abstained or ended: whoever waits for it learns so after the least latency."""
        gone = []
        for watcher in sorted(source.watchers):
            node = self._nodes[watcher]
            if node.patience is None or source.id not in node.patience.open:
                gone.append(watcher)
                continue
            if waits.is_coming(node, node.patience, source.id):
                continue
            known = waits.departure_known_at(self._nodes, self.network, node, source.id)
            if known is not None:
                self._later(node, max(known, time), _FATE, (node, source.id))
        if gone:
            source.unwatch(gone)
            if not source.watchers:
                self._watched.discard(source.id)

    def _depart(self, time: int, node: KNode) -> None:
        """`node` has left a round, or ended: tell those who wait for it, and for followers that it never called."""
        if node.watchers:
            self._tell_watchers(time, node)
        followers, ended = self._followers.get(node.id, _NOBODY), node.finished or not node.alive
        for number in sorted(followers & self._watched):
            follower = self._nodes[number]          # all its leaders may have left a round that it never entered
            if ended or follower.round < node.left:
                self._tell_watchers(time, follower)
        if ended and time + node.out_latency <= self._limit:    # followers that wait for a round may wait for nothing
            for number in sorted(followers):
                follower = self._nodes[number]
                if follower.next is not None:
                    self._later(follower, time + self._latency(node, follower), _LOOK, follower)

    def _latency(self, source: KNode, target: KNode) -> int:
        return self.network.latency_ns(source.vertex, target.vertex)

    def _look(self, time: int, node: KNode) -> None:
        """Once a step: is the node's wait over?"""
        if node.open_index or not node.alive or node.finished:
            return
        if node.next is not None:
            self._try_next_round(time, node)
        elif node.computing:
            if node.following is not None and node.following.abandon and waits.round_is_over(node):
                node.computing = False
                node.epoch += 1                     # its end no longer counts
                self._close_round_of(time, node)
        elif node.patience is not None:
            patience = node.patience
            if len(patience.got) >= patience.need:
                self._resume(time, node, Outcome.COMPLETE)
            elif node.in_round and waits.round_is_over(node):
                self._resume(time, node, Outcome.ROUND_OVER)
            elif patience.fates and not patience.open:
                self.oracle_waits[node.role, patience.wait.where] += 1
                self._resume(time, node, Outcome.SETTLED)

    def _close_round_of(self, time: int, node: KNode) -> None:
        self._log((rows.RESUME, time, node.id, int(Outcome.ROUND_OVER), 0))
        self._open_activation(node, Ready(node.id, time, [], Outcome.ROUND_OVER))

    def _resume(self, time: int, node: KNode, outcome: Outcome) -> None:
        patience = node.patience
        assert patience is not None
        node.patience = None
        node.epoch += 1
        got = list(patience.got.values())
        if outcome == Outcome.ROUND_OVER:
            node.inbox = got + node.inbox           # unread: late once the round is left
            self._close_round_of(time, node)
            return
        refs = []
        for copy in got:
            payload = copy.payload
            refs.append(Ref(payload.source, payload.first, payload.settle(node.worker)))
        self._log((rows.RESUME, time, node.id, int(outcome), len(refs)))
        self._open_activation(node, Ready(node.id, time, refs, outcome))

    def _next_round(self, node: KNode, action: NextRound) -> None:
        leaders: tuple[int, ...] = ()
        if action.of is not None:
            leaders = tuple(action.of)
            action, leaders = self._asked.setdefault((leaders, action.quorum, action.abandon, action.where),
                                                     (action, leaders))
        node.next = node.following = action
        if action.of is not None:
            if node.leaders != leaders:
                node.leaders, node.followed_at = leaders, node.time
                if node.watchers:                   # its leaders may have left what somebody waits for
                    self._tell_watchers(node.time, node)
            node.quorum = action.quorum
            for leader in leaders:
                self._followers.setdefault(leader, set()).add(node.id)
            for copy in node.losses:                # lost before it was known whom the node follows
                if waits.skip_lost_rounds(node, copy, node.time):
                    self._tell_watchers(node.time, node)
            if (waits.newest_reached(node, leaders, action.quorum) <= node.round
                    and waits.all_ended_known_at(self._nodes, self.network, node, leaders) is None):
                return                              # it waits for something that will have it looked at
        self._later(node, node.time, _LOOK, node)

    def _try_next_round(self, time: int, node: KNode) -> None:
        action = node.next
        assert action is not None
        if action.of is not None:
            number = waits.newest_reached(node, action.of, action.quorum)
            if number <= node.round:
                ended = waits.all_ended_known_at(self._nodes, self.network, node, action.of)
                if ended is None or ended > time:
                    if ended is not None:
                        self._later(node, ended, _LOOK, node)
                    return
                number = 0
        else:
            number = node.round + 1
            if action.sync is not None:
                number = max(number, waits.newest_reached(node, action.sync, action.quorum))
        if time >= self._limit or (node.id in self._deciders and number and self._must_stop(node, number)):
            number = 0                              # the run has ended, if at this very instant
        node.next = None
        if number:
            node.round = number
            node.in_round = True
            if number - 1 > node.left:
                node.left = number - 1
                node.depart(node.left, time)
            node.implied = [(a, b, since) for a, b, since in node.implied if b > number]
            node.time = time
            self._discard_late(node)
            if node.id in self._deciders and number > self.entered:
                self.entered = number
                self._pulled = 0
        self._log((rows.ENTER, time, node.id, number))
        self._open_activation(node, Entered(node.id, time, number))
        if number > 1 and node.watchers:
            self._tell_watchers(time, node)

    def _must_stop(self, node: KNode, number: int) -> bool:
        target = self.plan.stop.accuracy
        if target is not None and not self._stopped:
            for round_ in self._reports.pop(node.id, ()):
                seen = self._port.observation(node.id, round_).values.get("accuracy", 0.0)
                self.accuracy[round_] = seen
                if seen >= target:
                    self._stopped = True
                    self._stop_round = min(self._stop_round, self.entered)
        return number > self._stop_round

    def _stop_now(self, time: int) -> None:
        """The virtual time is up: the round that is running is the last; without rounds, this is the end."""
        self._stopped = True
        self._stop_round = min(self._stop_round, self.entered)
        if self.entered == 0:
            self.end_ns = self._limit = time
            self._deciding.clear()

    def _leave_round(self, node: KNode, action: LeaveRound) -> None:
        node.in_round = False
        self._log((rows.LEAVE, node.time, node.id, action.round, action.why))
        if action.round > node.left:
            node.left = action.round
            node.depart(action.round, node.time)
            if len(node.departures) > 64:
                del node.departures[:32]
        if action.why and node.id not in self._deciders:
            self.rounds_missed[node.role] += 1
        self._discard_late(node)
        self._depart(node.time, node)
        if node.id in self._deciders:
            self._round_ended = True
            if self._progress is not None:
                self._progress(self)

    def _abstain(self, node: KNode, action: Abstain) -> None:
        self._log((rows.ABSTAIN, node.time, node.id, action.round, action.to, action.kinds))
        if not node.abstained:
            node.abstained = {}
        for target in action.to:
            for kind in action.kinds:
                node.abstained.setdefault((target, kind, action.round), node.time)
        self._tell_watchers(node.time, node)

    def _compute(self, node: KNode, action: Compute) -> None:
        node.epoch += 1
        self._log((rows.COMPUTE, node.time, node.id, action.label, action.cost, action.work, node.round))
        fusing = self.plan.fuse
        if fusing is not None and action.label == fusing.label:
            node.group = self._groups.setdefault((fusing.lanes[node.id], node.role), {})
            node.group[node.id] = node.time + action.cost
        if node.in_round and waits.round_is_over(node):
            self._later(node, node.time, _LOOK, node)   # the next await after the round is over raises: cut at once
            node.patience = Patience(Wait([], [], 1, -2, action.where), node.time)
            node.patience.fates = False
            return
        node.computing = True
        self._later(node, node.time + action.cost, _COMPUTED, (node, node.epoch))

    def _fuse_open(self, node: KNode) -> None:
        """The answer of `node` needs its computation done. So will those of all that are open: now it is said for all
        of them who is done with whom, and every worker has work."""
        self._fuse(node)
        for other, _ in self._open:
            if other.group is not None:
                self._fuse(other)

    def _fuse(self, node: KNode) -> None:
        """Have the computation of `node` done, with those that are due soonest of the others that have begun."""
        group, fusing = node.group, self.plan.fuse
        assert group is not None
        assert fusing is not None
        del group[node.id]
        chosen = [node.id, *nsmallest(fusing.most - 1, group, key=lambda other: (group[other], other))]
        for number in chosen:
            group.pop(number, None)
            self._nodes[number].group = None
        self._port.post(node.worker, Fuse(chosen))

    def _report(self, node: KNode, action: Report) -> None:
        self._log((rows.REPORT, node.time, node.id, action.round, action.values, action.digest))
        if (self.plan.stop.accuracy is not None and action.digest and node.id in self._deciders
                and action.round % self.plan.evaluate_every == 0):
            self._reports.setdefault(node.id, []).append(action.round)

    def _finish(self, node: KNode, action: Finish) -> None:
        node.finished = True
        node.finished_at = node.time
        self._log((rows.FINISH, node.time, node.id, action.why))
        self._empty(node)
        self._decider_ended(node)
        self._depart(node.time, node)

    def _decider_ended(self, node: KNode) -> None:
        if node.id in self._deciding:
            self._deciding.discard(node.id)
            self.end_ns = max(self.end_ns, node.time)
            if not self._deciding:
                self._limit = self.end_ns

    # --- faults ---------------------------------------------------------------------------------------------------

    def _lower_lookahead(self) -> None:
        """A fault may lower the latency of a link: its sender cannot look ahead farther than that, at any time.

        Flows have paid their latency before: a change of their rate can bring the end of one to the next instant.
        """
        at = {node.vertex: node for node in self._nodes}
        for fault in self.plan.faults:
            if isinstance(fault, LinkChange) and fault.src in at:
                latency = fault.changes.get("latency_ns")           # or a distribution of them
                if isinstance(self.network.link(fault.src, fault.dst), FlowLink):
                    latency = 0
                if latency is not None:
                    node = at[fault.src]
                    node.out_latency = min(node.out_latency, getattr(latency, "least_ns", latency))

    def _add_fault(self, fault: Fault, seq: int, stream: int) -> None:
        """Sequence numbers come in pairs: one for the fault, one for its end."""
        if isinstance(fault, LinkChange):
            number, owner = len(self._nodes) + fault.src, self._at.get(fault.src)
        else:
            number, owner = fault.node, self._nodes[fault.node]
        self._calendar.add(fault.at_ns, (FAULT, number, seq, _FAULT, (fault, seq, stream), owner))

    def _pull(self, stream: int, seq: int) -> None:
        """The next fault of a stream goes on the calendar; only one of each is there, since they may be endless."""
        fault = next(self.plan.streams[stream], None)
        if fault is not None:
            self._add_fault(fault, seq, stream)

    def _fail(self, time: int, fault: Fault, seq: int, stream: int) -> None:
        if stream >= 0:
            self._pulled += 1
            if self._pulled > max(_FAULTS_WITHOUT_PROGRESS, 1000 * len(self._nodes)):
                raise Deadlock(f"no decider has entered a round during {self._pulled} faults\n"
                               + waits.deadlock_report(self._nodes, self.now))
            self._pull(stream, seq + 2)
        if isinstance(fault, LinkChange):
            self._change_link(time, self._pipe(fault.src, fault.dst), fault)
        elif isinstance(fault, Leave):
            self._go_away(time, self._nodes[fault.node], fault, seq + 1)
        else:
            self._crash(time, self._nodes[fault.node], fault, seq + 1)

    def _go_away(self, time: int, node: KNode, fault: Leave, seq: int) -> None:
        """Its role goes on and keeps its memory; what it sends or gets from now on is lost."""
        if node.away or node.finished:
            return
        node.away = True
        self._log((rows.AWAY, time, node.id))
        if fault.until_ns is not None:
            self._calendar.add(fault.until_ns, (FAULT, node.id, seq, _BACK, (node, fault), node))

    def _come_back(self, time: int, node: KNode, fault: Leave) -> None:
        node.away = False
        self._log((rows.BACK, time, node.id))

    def _crash(self, time: int, node: KNode, fault: Crash, seq: int) -> None:
        if not node.alive or node.finished:
            return
        if fault.until_ns is not None:
            self._calendar.add(fault.until_ns, (FAULT, node.id, seq, _RETURN, (node, fault), node))
        node.time = time
        node.alive = False
        node.downs = [*node.downs, (time, fault.until_ns)]
        node.epoch += 1
        node.computing = False
        if node.patience is not None:
            node.inbox = list(node.patience.got.values()) + node.inbox
        node.patience = node.next = None
        node.in_round = False
        if node.round > node.left:                  # its round is over for it, whether it returns or not
            node.left = node.round
            node.depart(node.round, time)
        self._log((rows.CRASH, time, node.id))
        self._empty(node)
        if node.group is not None:
            self._fuse(node)
        self._port.post(node.worker, Close(node.id, time, fault.wipe))
        self._depart(time, node)
        if fault.until_ns is None:
            self._decider_ended(node)

    def _empty(self, node: KNode) -> None:
        for copy in node.inbox:
            self._log((rows.UNREAD, node.time, copy.source, copy.seq))
            self._unread(copy)
        node.inbox = []
        node.losses = []

    def _return(self, time: int, node: KNode, fault: Crash) -> None:
        node.alive = True
        node.reached = {}
        self._log((rows.RETURN, time, node.id))
        self._log((rows.START, time, node.id, node.round))
        self._open_activation(node, Start(node.id, time, node.round))

    def _change_link(self, time: int, pipe: Pipe, fault: LinkChange) -> None:
        self._log((rows.LINK, time, fault.src, fault.dst, dict(fault.changes if fault.told is None else fault.told)))
        if pipe.kind != FLOW:
            pipe.link.change(time, **fault.changes)
            self._look_again(pipe.main)
            return
        for copy in pipe.link.change(time, **fault.changes):        # dropped: known now
            end = self._pipe(copy.path[copy.hop], copy.path[copy.hop + 1])      # of the whole flow
            self._calendar.add(time, (NETWORK, copy.source, copy.seq + _FAR, _LAND, (copy, False, 0, 0, end),
                                      end.owner))
        if self._flows is not None:
            self._look_again(self._flows)


def _time(row: rows.Row) -> int:
    return row[1]


def _copy_key(left: tuple[Copy, bool, int, int, Pipe | None]) -> tuple[int, int]:
    return left[0].source, left[0].seq
