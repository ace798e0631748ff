"""What a worker does, without processes or sockets: hosts roles, runs their computations, keeps payloads.

The pool's worker process and the in-process twin both drive this one class, so both see the same frames.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

import msgspec
import numpy as np
from msgspec import Struct

from emul import schemes
from emul.attacks import Planned
from emul.base.errors import RoleError, RunError
from emul.base.kept import digest_of
from emul.base.streams import key64
from emul.roles.costs import Costs
from emul.roles.desk import Desk, Evaluate, Job, Memory
from emul.roles.events import (
    Action,
    Close,
    Compute,
    Drop,
    Entered,
    Event,
    Fuse,
    NextRound,
    Observation,
    Ready,
    Reply,
    RoleEvent,
    Send,
    SendEach,
    Start,
    Wait,
    WaitEnd,
)
from emul.roles.node import Node, Offered
from emul.roles.trampoline import Role, RoleFunction
from emul.roles.world import Terrain, World
from emul.wire import Encoded, Message, Vector, decode, from_frames, message_types
from emul.workers import volatile
from emul.workers.attacking import Attacking, Note
from emul.workers.evaluations import by_scenario, how
from emul.workers.keeping import Keeper, Kept
from emul.workers.recording import Recording
from emul.workers.volatile import Volatile

if TYPE_CHECKING:
    from emul.learning import Task
    from emul.store import Store


NO_LAST = 2**62                     # a round that does not come
WITH_EVENT_BYTES = 1024             # a message for one node travels with its event up to this: to ship it costs more


class Setup(Struct):
    """One run, as a worker is told of it: plain values only."""

    worker: int
    scheme: str
    plugins: list[str]
    params: dict[str, Any]                      # fields of the scheme's Params
    seed: int
    names: list[str]                            # node -> name
    roles: dict[str, list[int]]
    speeds: list[float]
    workers: list[int]                          # node -> worker
    behaviours: dict[int, list[list[Any]]]      # node -> (faulty variant of its role, from round, to; 0: for good)
    task: dict[str, Any] | None                 # learning task; None: the scheme has none
    cost_mode: str
    profile: dict[str, list[float]]
    recorded: dict[int, list[int]]
    trains: bool = True                         # no: `training: skip`
    evaluate_every: int = 1                     # rounds between two evaluations; 0: never
    evaluate_scope: str = "global"              # or "per_client"
    compress: dict[str, Any] = {}               # {"up" or "down": codec as the scenario has it}
    chart: dict[str, Any] | None = None         # the topology, for a scheme that knows it (`emul.network.terrain`)
    shards: list[list[int]] = []                # runs of nodes that hold data: [first node, its shard, how many]
    holders: int = 0                            # shards that there are
    attacks: dict[int, list[Planned]] = {}      # node -> what it does to its data, prototypes and updates
    slowdowns: dict[int, list[list[int]]] = {}  # node -> (from ns on, numerator, denominator) of how slow it is
    held: dict[int, dict[str, list[int]]] = {}  # node -> label -> costs of its computations, in a network's record
    held_beyond: str = "stream"                 # what comes after the last of them
    traces: list[dict[str, list[int]]] = []     # label -> what it cost on real devices
    trace_of: list[int] = []                    # node -> which of them; -1: none
    trace_drawn: bool = True                    # by the seed; or in their order
    fuse: str = ""                              # label of the computations that are done together; "": none are
    fuse_clients: int = 1                       # at most so many
    device: str = "cpu"                         # where models are trained and evaluated
    directory: str = ""                         # of the run, absolute; "": nothing is written
    recalled: str = ""                          # directory of the run whose volatile results are taken; "": none are
    store: str = ""                             # folder of a store that trainings are written to; "": none are
    stored: list[str] = []                      # folders of stores that are only read
    store_limit: int | None = None              # bytes of `store`
    models_every: int = 0                       # rounds between two models of a node that are kept; 0: the last alone
    payloads: list[str] = []                    # types of messages that are kept
    payload_rounds: tuple[int, int] = (1, NO_LAST)      # in these rounds
    payload_room: int = 0                       # bytes of them that one node may leave
    delays: list[float] = []                    # tests: seconds slept before an activation, in turn


class StoreUse(Struct, array_like=True, gc=False):
    """What the store of trainings did for one worker, or, added up, for a run."""

    found: int = 0                              # results
    missed: int = 0
    stored: int = 0
    saved_ns: int = 0                           # CPU time that the results found had taken
    failure: str = ""                           # why nothing more was stored

    def __add__(self, other: StoreUse) -> StoreUse:
        return StoreUse(self.found + other.found, self.missed + other.missed, self.stored + other.stored,
                        self.saved_ns + other.saved_ns, self.failure or other.failure)


class Timing(Struct, array_like=True, gc=False):
    """A computation's real CPU time."""

    node: int
    label: str
    work: float
    cpu_ns: int


P = TypeVar("P")

_FRESH = Memory()                   # what a node keeps that has not done anything


def _terrain(chart: dict[str, Any] | None) -> Terrain | None:
    if chart is None:
        return None
    # here, since few schemes need it and a worker has nothing of the network otherwise
    from emul.network import terrain

    return terrain.Terrain(chart)


def _cost_stream(seed: int, names: Sequence[str], node: int, label: str) -> int:
    """The stream that draws what a node's computations cost."""
    return key64(seed, "compute", names[node], label)


def as_declared(params: type[P], given: dict[str, Any]) -> P:
    """Parameters as their annotations say, in a worker process and in the twin: on the way to a process a tuple becomes
    a list."""
    values = msgspec.msgpack.decode(msgspec.msgpack.encode(given))
    hints = get_type_hints(params)
    for name, value in values.items():
        if isinstance(value, (list, dict)):
            values[name] = msgspec.convert(value, hints[name])
    return params(**values)


class Core:
    """The nodes of one worker in one run."""

    def __init__(self, setup: Setup, outbox: dict[tuple[int, int], Encoded] | None = None,
                 missing: Callable[[tuple[int, int]], Encoded | None] | None = None):
        self.replies: list[Reply] = []
        self.observations: list[Observation] = []
        self.timings: list[Timing] = []
        self.kept: list[Kept] = []              # known once the run has ended
        self.encoded = 0                        # bytes of the frames of all messages so far, a broadcast once
        self.keeps_roles = False                # tests: no role is ended while it waits for a round
        self._setup = setup
        self._module = module = schemes.find(setup.scheme, setup.plugins)
        self._params = as_declared(module.Params, setup.params)
        self._types = message_types(module)
        self._deterministic = schemes.deterministic(module, self._params)
        self._world = World(setup.scheme, setup.seed, setup.names, setup.roles, setup.speeds, self._deterministic,
                            setup.task or {}, setup.compress, schemes.root(module, setup.roles),
                            _terrain(setup.chart))
        self._costs = Costs(setup.cost_mode, setup.scheme, setup.profile, setup.recorded,   # type: ignore[arg-type]
                            setup.slowdowns, setup.held, setup.held_beyond, setup.traces, setup.trace_of,
                            partial(_cost_stream, setup.seed, setup.names) if setup.trace_drawn else None)
        self._role_of = [""] * len(setup.names)
        for role, nodes in setup.roles.items():
            for node in nodes:
                self._role_of[node] = role
        self._task: Task | None = None
        if setup.task is not None:
            from emul.learning import Task, Untrained
            self._task = (Task if setup.trains else Untrained)(
                setup.task, setup.holders, setup.seed, setup.device, _store(setup), setup.plugins)
            self._task.prepare()                    # before the clock starts
        self._attacking: Attacking | None = None
        if setup.attacks and self._task is not None:
            self._attacking = Attacking(setup.attacks, setup.plugins, module, self._task, setup.names, setup.shards,
                                        setup.fuse_clients)
        self._memories: dict[int, Memory] = {}
        self._tasks: dict[int, Any] = {}
        self._running: dict[int, Role] = {}
        self._resting: list[NextRound | None] = [None] * len(setup.names)   # node -> how its role asked, and was ended
        self._asked: dict[tuple[Any, ...], NextRound] = {}      # one of all that are alike
        self._stateless = frozenset(getattr(module, "STATELESS", ()))
        self._jobs: list[tuple[int, int, int, Job]] = []        # (due, number, node, job): the most urgent first
        self._begun = 0
        self._job_of: dict[int, Job] = {}
        self._group_of: dict[int, list[int]] = {}   # node -> with whom its computation is to be done
        self._held: dict[int, RoleEvent] = {}       # node -> event that needs a job which waits to hear with whom
        self._deferred: deque[RoleEvent] = deque()                  # events that need a job which has not run yet
        self._settled: list[RoleEvent] = []                         # events that need a job which has run
        self._evaluations: deque[tuple[int, int, Vector, Evaluate | None]] = deque()
        self._store: dict[tuple[int, int], Encoded] = {}        # payloads for nodes of this worker
        self._outbox = outbox                                   # payloads for nodes of others
        self._missing = missing
        self._delays = deque(setup.delays)
        self._keeper = Keeper(setup.directory, setup.names, None if self._task is None else self._task.named,
                              setup.models_every)
        self._recording: Recording | None = None                # of messages that are to be kept
        if setup.payloads and setup.directory:
            self._recording = Recording(setup.directory, setup.names, setup.payloads, setup.payload_rounds,
                                        setup.payload_room)
        self._volatile: Volatile | None = None                  # of a scheme that has results which cannot repeat
        if not self._deterministic:
            known = volatile.read(Path(setup.recalled)) if setup.recalled else {}
            self._volatile = Volatile(module, volatile.file_of(setup.directory, setup.worker), known)

    # --- what it holds --------------------------------------------------------------------------------------------

    @property
    def task(self) -> Task | None:
        """The learning task of the run; None if it has none."""
        return self._task

    def memories(self) -> Iterator[tuple[int, str, Memory]]:
        """(node, its role, what survives a crash) of every node that has begun and was not forgotten."""
        for node, memory in self._memories.items():
            yield node, self._role_of[node], memory

    @property
    def running(self) -> int:
        """Roles that hold a coroutine."""
        return sum(not role.ended for role in self._running.values())

    # --- events ---------------------------------------------------------------------------------------------------

    def put(self, event: Event) -> None:
        """Take an event. What can be answered at once is: the replies grow."""
        if isinstance(event, Drop):
            self._drop((event.source, event.first))
        elif isinstance(event, Close):
            self._close(event.node)
            if event.wipe and event.node in self._memories:
                self._memories[event.node].state = None
        elif isinstance(event, Start):
            self._start(event.node)
            self._step(event)
        elif isinstance(event, Fuse):
            for node in event.nodes:
                self._group_of[node] = event.nodes
                if node in self._held:
                    self._deferred.append(self._held.pop(node))
        elif event.node not in self._job_of or self._job_of[event.node].done:
            self._step(event)
        elif self._job_of[event.node].label == self._setup.fuse and event.node not in self._group_of:
            self._held[event.node] = event
        elif self._setup.trains:
            self._deferred.append(event)
        else:                                       # nothing that takes long, for which others had better not wait
            self._run(event.node)
            self._step(event)

    def work(self, held: bool = False) -> bool:
        """Do the most urgent piece of real work. False: there is none.

        held: a role whose computation has been done goes on at `settle` only, and the event that needed it is answered
        then: many go on faster one after the other than each after a training, which has emptied the caches.
        """
        if self._deferred:
            event = self._deferred.popleft()
            self._run(event.node)
            self._settled.append(event)
            if not held:
                self.settle()
            return True
        while self._jobs:
            _, _, node, job = heapq.heappop(self._jobs)
            if not job.done:
                self._run(node)
                return True
        if self._evaluations:
            self._evaluate(*self._evaluations.popleft())
            return True
        return False

    def settle(self) -> None:
        """Let the roles go on whose computations were done and held, in their order."""
        settled, self._settled = self._settled, []
        for event in settled:
            self._step(event)

    @property
    def idle(self) -> bool:
        return not (self._deferred or self._settled or self._jobs or self._evaluations)

    def kept_bytes(self, node: int) -> int:
        """Of the node's last model, which is held until the run ends."""
        return self._keeper.sizes.get(node, 0)

    @property
    def awaited(self) -> bool:
        """Whether some of the real work is to be done for an answer that the coordinator has asked for."""
        return bool(self._deferred)

    def finish(self) -> None:
        """The run has ended: what is still to be evaluated is, and models are kept; computations that nobody awaits
        are not run."""
        while self._evaluations:
            self._evaluate(*self._evaluations.popleft())
        self.kept = self._keeper.finish()
        if self._volatile is not None:
            self._volatile.close()

    @property
    def notes(self) -> list[Note]:
        """What nodes' trainings gave and what attackers computed again of them, for who compares them."""
        return [] if self._attacking is None else self._attacking.notes

    def close(self) -> StoreUse:
        """The run is over, however it ended: what waits to be stored is written."""
        if self._task is None:
            return StoreUse()
        results = self._task.results
        results.close()
        return StoreUse(*results.counts, results.saved_ns, results.failure)

    # --- roles ----------------------------------------------------------------------------------------------------

    def _start(self, node: int, round: int | None = None) -> None:
        """Start the role of a node, or the variant of it that is for `round`: by default, for the one it was in."""
        memory = self._memories.setdefault(node, Memory())
        name = self._role_of[node]
        task, attacking = None, self._attacking
        if self._task is not None:
            index = self._shard(node)
            task = self._tasks.get(node)            # one for the node's whole life: it counts its calls
            if task is None:
                task = self._tasks[node] = self._task.for_node(self._setup.names[node], index, lambda: memory.round,
                                                               None if attacking is None else attacking.of(node))
        # a faulty one may send what it likes: to those who receive it, it is what has come from a peer
        desk = Desk(memory, self._costs, keep=self._keep, observe=self._observe, fetch=self._fetch, types=self._types,
                    deviates=node in self._setup.behaviours, artefact=self._keeper.array)
        if attacking is not None:
            desk.offers, desk.attackers = attacking.knowing, attacking.attackers
        desk.cluster = self._cluster
        function = self._function(node, memory.round if round is None else round)
        self._running[node] = Role(Node(node, name, self._world, desk, task), desk, function, self._params)

    def _cluster(self, node: int) -> int | None:
        """The cluster of the task that a node's data are of; None: it has no data, or there are no clusters."""
        shard = self._shard(node)
        return None if self._task is None or shard is None else self._task.cluster(shard)

    def _shard(self, node: int) -> int | None:
        """The node's number among those that hold data; None: it is none of them."""
        at = bisect_right(self._setup.shards, node, key=itemgetter(0)) - 1      # the runs are ascending
        if at < 0:
            return None
        first, shard, count = self._setup.shards[at]
        return shard + node - first if node - first < count else None

    def _rest(self, event: RoleEvent, asked: NextRound, alone: bool) -> None:
        """End the role of a node that waits for a round of its leaders, if it would come to the same place again: most
        nodes of a large run never go on, or seldom. `alone`: that it asked for a round is all that it has just done.

        It would if that is all that it ever did and left no trace, or if its scheme says that it keeps nothing.
        """
        node = event.node
        if asked.of is None or node in self._setup.behaviours or self.keeps_roles:
            return
        if type(event) is Start:
            task = self._tasks.get(node)
            if event.now or not alone or self._memories[node] != _FRESH or not (task is None or task.untouched):
                return
            del self._memories[node]
            self._tasks.pop(node, None)
        elif self._role_of[node] not in self._stateless:
            return
        key = (tuple(asked.of), asked.quorum, asked.abandon, asked.where)
        self._resting[node] = self._asked.setdefault(key, asked)
        self._running.pop(node).close()

    def _wake(self, event: RoleEvent) -> str:
        """Begin the role of a resting node anew. Returns what is wrong with that: it must do what it did before."""
        node, asked = event.node, self._resting[event.node]
        self._resting[node] = None
        memory = self._memories.get(node)       # without one it has not been in any round, and began at 0
        self._start(node)
        again = Start(node, 0, 0) if memory is None else Start(node, event.now, memory.round)
        reply = self._running[node].step(again)
        if reply.actions == [asked] and not reply.error:
            return ""
        return (f"{reply.error or RoleError.__name__}: {self._setup.names[node]}: its role was ended while it waited "
                "for a round, begun anew, and did otherwise than before: it depends on more than its node and "
                f"parameters, or the scheme must not have {self._role_of[node]!r} in STATELESS")

    def _function(self, node: int, round: int) -> RoleFunction:
        """The role of `node` in a round, or the faulty variant that it runs then. 0: before its first."""
        for name, first, last in self._setup.behaviours.get(node, ()):
            if not last or first <= max(round, 1) <= last:
                found: RoleFunction = self._module.BEHAVIOURS[name]
                return found
        honest: RoleFunction = self._module.ROLES[self._role_of[node]]
        return honest

    def _change_role(self, event: Entered) -> Reply:
        """The node enters a round in which it behaves otherwise than in the last one: its role begins anew, as after a
        crash, but for its inbox. What it does until it asks for a round, or an error."""
        old, node = self._running[event.node], event.node
        asked = old.asked
        old.close()
        self._start(node, event.round)
        role = self._running[node]
        reply = role.step(Start(node, event.now, old.node.round))
        last = reply.actions[-1] if reply.actions else None
        if reply.error or not isinstance(last, NextRound) or asked is None or not last.same(asked):
            why = (f"{self._setup.names[node]}: a behaviour that holds for some rounds changes in round {event.round}; "
                   "a role must then ask for rounds before it waits for anything, and as its other variant does")
            return Reply(node, [], 0, f"{reply.error or RoleError.__name__}: {why}")
        del reply.actions[-1]
        return reply

    def _step(self, event: RoleEvent) -> None:
        reply = self._answer(event)
        if type(event) is Entered and event.unread is not None and not reply.error:
            wait, *more = reply.actions
            if not more and type(wait) is Wait and event.unread.answers(wait):
                reply.then = self._answer(Ready(event.node, event.now, [event.unread.ref], WaitEnd.COMPLETE))
        self.replies.append(reply)

    def _answer(self, event: RoleEvent) -> Reply:
        """What the role of a node does at an event, with what that asks of this worker begun."""
        if self._delays:
            self._pause()
        before = None
        if self._resting[event.node] is not None:
            error = self._wake(event)
            if error:
                return Reply(event.node, [], 0, error)
        role = self._running[event.node]
        if type(event) is Entered and event.round and event.node in self._setup.behaviours \
                and self._function(event.node, event.round) is not role.function:
            before = self._change_role(event)
            if before.error:
                return before
            role = self._running[event.node]
        reply = role.step(event)
        if before is not None:
            reply.actions[:0] = before.actions
        self._job_of.pop(event.node, None)
        if self._recording is not None:
            self._record(self._recording, event, reply)
        if reply.actions and not reply.error:
            last = reply.actions[-1]
            if type(last) is Compute:
                self._begin(role, last, event.now)
            elif type(last) is NextRound:
                self._rest(event, last, len(reply.actions) == 1)
        return reply

    def _begin(self, role: Role, action: Compute, now: int) -> None:
        node, job = role.node, role.desk.job
        assert job is not None
        self._job_of[node.id], job.due = job, now
        if job.volatile and self._volatile is not None and self._volatile.recalls((node.id, job.number)):
            job.result, job.error = self._volatile.recall((node.id, job.number))
            job.end()
        if action.cost < 0:                     # measured: the answer has to wait for the work
            self._run(node.id)
            action.cost = self._costs.stretched(node.id, now, round(job.cpu_ns / node.speed))
        else:
            action.cost = self._costs.stretched(node.id, now, action.cost, action.declared)
            job.due = now + action.cost
            if action.label == self._setup.fuse or not self._setup.trains:  # the kernel will say with whom; or when
                return
            self._begun += 1
            if len(self._jobs) > 2 * len(self._job_of) + 100:       # most were done before their turn came
                self._jobs = [waiting for waiting in self._jobs if not waiting[3].done]
                heapq.heapify(self._jobs)
            heapq.heappush(self._jobs, (job.due, self._begun, node.id, job))

    def _run(self, node: int) -> None:
        if self._job_of[node].done:
            return
        nodes = self._group_of.get(node, [node])
        jobs = [self._job_of[n] for n in nodes]
        if len(jobs) > 1 and self._task is not None:
            for job, spent in zip(jobs, self._task.together.run([job.run for job in jobs]), strict=True):
                job.cpu_ns = spent              # what it measured itself has the others in it
        else:
            for job in jobs:
                busy = self._busy_ns
                job.run()
                job.cpu_ns = max(job.cpu_ns, self._busy_ns - busy)      # the CPU launches while the GPU computes
        for member, job in zip(nodes, jobs, strict=True):
            self._group_of.pop(member, None)
            if job.volatile and self._volatile is not None:
                job.result, job.error = self._volatile.settle((member, job.number), job.label, job.result, job.error)
            if self._attacking is not None:
                self._attacking.settle(member, job.due)
            self.timings.append(Timing(member, job.label, job.work, job.cpu_ns))

    @property
    def _busy_ns(self) -> int:
        """What a GPU has computed so far."""
        return 0 if self._task is None else self._task.device.busy_ns

    def _close(self, node: int) -> None:
        """The node has crashed. A computation that had begun is run all the same: whether the real machine had got
        to it must not show in the node's streams and state."""
        job = self._job_of.get(node)
        if job is not None:
            self._run(node)
            self._job_of.pop(node, None)
        self._resting[node] = None
        role = self._running.pop(node, None)
        if role is not None:
            role.close()

    def _pause(self) -> None:
        import time
        delay = self._delays.popleft()
        self._delays.append(delay)
        time.sleep(delay)

    # --- payloads -------------------------------------------------------------------------------------------------

    def _record(self, recording: Recording, event: RoleEvent, reply: Reply) -> None:
        """Keep what the node has just sent, if it is to be kept."""
        for action in reply.actions:
            for send in _singly(action):
                key = (event.node, send.first)
                encoded = (self._store.get(key) or (self._outbox or {}).get(key) if send.frames is None
                           else from_frames(send.frames))
                if encoded is not None:
                    recording.sent(event.node, event.now, send, encoded)

    def _keep(self, source: int, encoded: Encoded, first: int, to: list[int]) -> list[bytes] | None:
        """Keep the frames for whoever will read them; those of a small message for one node elsewhere are returned, to
        travel with the action."""
        carried = encoded.size - encoded.declared
        self.encoded += carried
        workers, mine = self._setup.workers, self._setup.worker
        if len(to) == 1:
            if workers[to[0]] == mine:
                self._store[source, first] = encoded
                return None
            if carried <= WITH_EVENT_BYTES and encoded.aside is None and encoded.header:
                return [encoded.header, *(buffer.tobytes() for buffer in encoded.buffers)]
        here = away = False
        for target in to:
            if workers[target] == mine:
                here = True
            else:
                away = True
        if here:
            self._store[source, first] = encoded
        if away:
            assert self._outbox is not None
            self._outbox[source, first] = encoded
        return None

    def _fetch(self, event: Ready) -> list[Message]:
        begin = perf_counter_ns()
        messages = []
        for ref in event.messages:
            key = (ref.source, ref.first)
            encoded = self._store.get(key) if ref.frames is None else from_frames(ref.frames)
            if encoded is None:
                if self._missing is None:
                    raise RunError(f"no payload for message {ref.first} of node {ref.source}")
                encoded = self._missing(key)
                if encoded is None:
                    raise RunError("the run was aborted")
                if not ref.last:
                    self._store[key] = encoded
            elif ref.last and ref.frames is None:
                del self._store[key]
            message = decode(encoded, self._types)
            object.__setattr__(message, "sender", ref.source)
            messages.append(message)
            if self._attacking is not None and self._attacking.knows_others(event.node):
                self._overhear(event.node, key, message, encoded)
        self._running[event.node].desk.excused_ns += perf_counter_ns() - begin
        return messages

    def _overhear(self, node: int, key: tuple[int, int], message: Message, encoded: Encoded) -> None:
        """An attacker keeps what it has received, and what goes with it."""
        assert self._attacking is not None
        offered: dict[str, Any] = {}
        if encoded.aside is not None:
            with_it = decode(encoded.aside, {Offered.__name__: Offered})
            assert isinstance(with_it, Offered)
            offered = with_it.values
        self._attacking.received(node, self._memories[node].round, key, message, offered)

    def _drop(self, key: tuple[int, int]) -> None:
        if self._store.pop(key, None) is None and self._missing is not None:
            self._missing(key)                  # it is on its way or has come: take it, so that it does not stay

    # --- observation ----------------------------------------------------------------------------------------------

    def _observe(self, node: int, round: int, parameters: Vector, evaluate: Evaluate | None) -> str:
        vector = np.array(parameters, dtype=np.float32, order="C")      # a copy: evaluated later
        if evaluate is None and self._task is not None and vector.shape != (self._task.dimension,):
            raise RoleError(f"report(parameters=...) of shape {vector.shape}: the model's is ({self._task.dimension},)")
        every = self._setup.evaluate_every
        if (self._task is not None or evaluate is not None) and every and round % every == 0:
            self._evaluations.append((node, round, vector, evaluate))
        digest = digest_of(vector)
        self._keeper.model(node, round, vector, digest, self._running[node].node.now_ns, how(evaluate))
        return digest

    def _evaluate(self, node: int, round: int, vector: Vector, evaluate: Evaluate | None) -> None:
        task, attacking, values = self._task, self._attacking, {}
        success = {} if attacking is None else attacking.success(vector)
        if evaluate is not None:
            if attacking is None or node not in attacking:
                values = {name: float(value) for name, value in evaluate(vector).items()} | success
            self.observations.append(Observation(node, round, values))
            return
        assert task is not None
        values = by_scenario(task, self._setup.evaluate_scope, self._shard(node), vector)
        self.observations.append(Observation(node, round, values | success))


def _singly(action: Action) -> Iterable[Send]:
    """The messages that the action sends."""
    if type(action) is SendEach:
        return map(action.singly, range(len(action.to)))
    return [action] if type(action) is Send else []


def _store(setup: Setup) -> Store | None:
    """Where results of trainings are kept and looked for. Raises StoreError."""
    if not setup.store and not setup.stored:
        return None
    from emul.store import Store

    return Store(Path(setup.store) if setup.store else None, [Path(p) for p in setup.stored], setup.store_limit)
