"""The work of a worker, without processes or sockets: it takes events, lets roles go on, and answers.

`put` takes an event and `work` does the next piece of real work: first the computation that an event waits for, then of
those that roles have begun the one that is due first in virtual time (`jobs`), and an evaluation when there is none.
Payloads and attackers have modules of their own, too: `payloads`, `attacking`.

The pool's worker process and the in-process twin both drive this one class, so both see the same frames.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from copy import copy
from operator import itemgetter
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from emul.base.errors import RoleError, other_beginning
from emul.base.kept import digest_of
from emul.message.wire import Encoded, Message, Vector, decode, flat
from emul.registry import schemes
from emul.roles.desk import Desk, Memory
from emul.roles.evaluation import Evaluate
from emul.roles.events import (
    CANCELLED,
    Close,
    Compute,
    Computed,
    Drop,
    EndActivity,
    Entered,
    Event,
    Fuse,
    NextRound,
    Observation,
    Ready,
    Reply,
    RoleEvent,
    Start,
    Wait,
    WaitEnd,
)
from emul.roles.node import Node
from emul.roles.trampoline import Role, RoleFunction
from emul.roles.world import Surroundings, World
from emul.workers import volatile
from emul.workers.attacking import Attacking, Note
from emul.workers.evaluations import Evaluations, how
from emul.workers.jobs import Jobs, Timing
from emul.workers.keeping import Keeper, KeptValue
from emul.workers.payloads import Key, Payloads
from emul.workers.recording import Recording
from emul.workers.setup import Setup, as_declared, costs_of
from emul.workers.volatile import Volatile

if TYPE_CHECKING:
    from emul.learning import Task
    from emul.store import Store

_NO_NEWEST: tuple[Encoded | None, Message] = (None, Message())
_FRESH = Memory()                   # the memory of a node that has not done anything


class StoreUse(Struct, array_like=True, gc=False):
    """The use of the store of trainings by one worker, or, added up, by a run."""

    found: int = 0                              # results
    missed: int = 0
    stored: int = 0
    saved_ns: int = 0                           # CPU time that the results found had taken
    failure: str = ""                           # the reason why nothing more was stored

    def __add__(self, other: StoreUse) -> StoreUse:
        return StoreUse(self.found + other.found, self.missed + other.missed, self.stored + other.stored,
                        self.saved_ns + other.saved_ns, self.failure or other.failure)


class FittedGroups(Struct, array_like=True, gc=False):
    """The limits that memory set on clients trained as one, by one worker, or, together, in a run."""

    most: int = 0                               # at once; 0: no limit was known or met
    halved: int = 0                             # groups that met no memory

    def __add__(self, other: FittedGroups) -> FittedGroups:
        return FittedGroups(min(self.most or other.most, other.most or self.most), self.halved + other.halved)


def _terrain(chart: dict[str, object] | None) -> Surroundings | None:
    if chart is None:
        return None
    # here, since few schemes need it and a worker has nothing of the network otherwise
    from emul.network import terrain

    return terrain.Terrain(chart)


class Core:
    """The nodes of one worker in one run."""

    def __init__(self, setup: Setup, outbox: dict[Key, Encoded] | None = None,
                 missing: Callable[[Key], Encoded | None] | None = None):
        """outbox, missing: as `Payloads` has them."""
        self.replies: list[Reply] = []
        self.observations: list[Observation] = []
        self.kept: list[KeptValue] = []              # known once the run has ended
        self.keeps_roles = False                # tests: no role is ended while it waits for a round
        self._setup = setup
        self._scheme = scheme = schemes.find(setup.scheme, setup.plugins)
        self._params = as_declared(scheme.params, setup.params)
        self._types = scheme.types
        self._deterministic = scheme.repeats(self._params)
        self._world = World(setup.scheme, setup.seed, setup.names, setup.roles, setup.speeds, self._deterministic,
                            setup.task or {}, setup.compress, scheme.root(setup.roles),
                            _terrain(setup.chart), setup.islands, setup.rounds)
        self._costs = costs = costs_of(setup)
        self._role_of = [""] * len(setup.names)
        for role, nodes in setup.roles.items():
            for node in nodes:
                self._role_of[node] = role
        self._task: Task | None = None
        if setup.visible is not None:           # workers may have been started before it was set
            os.environ["CUDA_VISIBLE_DEVICES"] = setup.visible
        if setup.task is not None:
            from emul.learning import Task, Untrained
            self._task = (Task if setup.trains else Untrained)(
                setup.task, setup.holders, setup.seed, setup.device, _store(setup), setup.plugins,
                setup.memory, setup.sharing)
            # now and not on first use: the node that trains first would be charged with an import and a file
            self._task.prepare()
        self._growth = 0.0 if self._task is None else self._task.growth
        self._attacking: Attacking | None = None
        if setup.attacks and self._task is not None:
            self._attacking = Attacking(setup.attacks, setup.plugins, scheme.honest, self._task, setup.names,
                                        setup.shards, setup.fuse_clients)
        self._payloads = Payloads(setup.worker_of, setup.worker, outbox, missing)
        self._newest = _NO_NEWEST               # the last message that was read and that others here will read, too
        self._memories: dict[int, Memory] = {}
        self._tasks: dict[int, Any] = {}
        self._running: dict[int, Role] = {}
        self._resting: list[NextRound | None] = [None] * len(setup.names)   # node -> how its role asked, and was ended
        self._asked: dict[tuple[object, ...], NextRound] = {}      # one of all that are alike
        self._stateless = frozenset(scheme.stateless)
        self._first: dict[str, NextRound] = {}      # role that keeps nothing -> how its first node has asked
        self._ungrouped: dict[int, RoleEvent] = {}  # node -> event that needs a job which waits to hear with whom
        self._deferred: deque[RoleEvent] = deque()                  # events that need a job which has not run yet
        self._settled: list[RoleEvent] = []                         # events that need a job which has run
        self._taken: dict[int, list[Encoded]] = {}                  # node -> the messages of such an event
        self._delays = deque(setup.delays)
        self._keeper = Keeper(setup.directory, setup.names, None if self._task is None else self._task.named,
                              setup.models_every)
        self._recording: Recording | None = None                # of messages that are to be kept
        if setup.payloads and setup.directory:
            self._recording = Recording(setup.directory, setup.names, setup.payloads, setup.payload_rounds,
                                        setup.payload_room, self._payloads)
        self._volatile: Volatile | None = None                  # of a scheme that has results which cannot repeat
        if not self._deterministic:
            known = volatile.read(Path(setup.recalled)) if setup.recalled else {}
            self._volatile = Volatile(scheme, volatile.file_of(setup.directory, setup.worker), known)
        self._jobs = Jobs(costs, setup.fuse, setup.trains, setup.named, self._task, self._attacking,
                          self._volatile)
        # computations are done where they are awaited, and what others do later does not show in them
        self._at_once = not (setup.trains or setup.fuse or self._attacking or self._volatile)
        self._evaluations = Evaluations(self._task, self._attacking, setup.evaluate_every, setup.evaluate_scope,
                                        setup.accuracy_of, self._shard)

    # --- what it holds --------------------------------------------------------------------------------------------

    @property
    def task(self) -> Task | None:
        """The learning task of the run; None if it has none."""
        return self._task

    def memories(self) -> Iterator[tuple[int, str, Memory]]:
        """(node, its role, what survives a crash) of every node that has begun and was not forgotten."""
        for node, memory in self._memories.items():
            yield node, self._role_of[node], memory

    def whose(self, node: int) -> tuple[str, str, int]:
        """The node's name, its role, and the round that it is in."""
        memory = self._memories.get(node)
        return self._setup.names[node], self._role_of[node], 0 if memory is None else memory.round

    @property
    def timings(self) -> list[Timing]:
        """Of the computations done so far."""
        return self._jobs.timings

    @property
    def encoded(self) -> int:
        """Bytes of the frames of all messages so far, a broadcast once."""
        return self._payloads.encoded

    @property
    def running(self) -> int:
        """Roles that hold a coroutine."""
        return sum(not role.ended for role in self._running.values())

    # --- events ---------------------------------------------------------------------------------------------------

    def put(self, event: Event) -> None:
        """Take an event. Events that can be answered at once are: the replies grow."""
        if isinstance(event, Drop):
            self._payloads.drop((event.source, event.first))
            self._newest = _NO_NEWEST
        elif isinstance(event, Close):
            self._close(event.node)
            if event.wipe and event.node in self._memories:
                self._memories[event.node].state = None
        elif isinstance(event, Start):
            self._begin(event)
        elif isinstance(event, Fuse):
            self._jobs.fuse(event.nodes)
            for node in event.nodes:
                if node in self._ungrouped:
                    self._deferred.append(self._ungrouped.pop(node))
        elif not self._jobs.needed(event.node):
            self._step(event)
        elif self._jobs.ungrouped(event.node):
            self._ungrouped[event.node] = event
        elif self._setup.trains:
            # A training takes long, and until it has run no other role of this worker could answer: the kernel would
            # wait for all of them. So this event waits, and those that need no such work are answered first.
            if type(event) is Ready and event.messages:     # for an activity: others may read the last copies meanwhile
                self._taken[event.node] = [self._payloads.take(ref) for ref in event.messages]
            self._deferred.append(event)
        else:                                       # nothing that takes long, for which others had better not wait
            self._jobs.run(event.node)
            self._step(event)

    def work(self, settle: bool = True) -> bool:
        """Do the most urgent piece of real work. False: there is none.

        settle: False leaves the roles whose computations have been done where they are until `settle` is called, and
        the events that needed these are answered then: many go on faster one after the other than each after a
        training, which has emptied the caches.
        """
        # In the order of who waits: the kernel for what is deferred, perhaps soon for the other computations, and for
        # an evaluation nobody before the end of the run.
        if self._deferred:
            event = self._deferred.popleft()
            self._jobs.run(event.node)
            self._settled.append(event)
            if settle:
                self.settle()
            return True
        if self._jobs.run_most_urgent():
            return True
        if self._evaluations:
            self.observations.append(self._evaluations.next())
            return True
        return False

    def settle(self) -> None:
        """Let the roles go on whose computations were done by `work(settle=False)`, in their order."""
        settled, self._settled = self._settled, []
        for event in settled:
            self._step(event)

    @property
    def idle(self) -> bool:
        return not (self._deferred or self._settled or self._jobs.waiting or self._evaluations)

    def kept_bytes(self, node: int) -> int:
        """Of the node's last model, which is held until the run ends."""
        return self._keeper.sizes.get(node, 0)

    def has_trained(self, node: int) -> bool:
        """True if the node's task has drawn or kept anything."""
        return node in self._tasks and not self._tasks[node].untouched

    @property
    def awaited(self) -> bool:
        """True if some of the real work is to be done for an answer that the coordinator has asked for."""
        return bool(self._deferred)

    def finish(self) -> None:
        """The run has ended: what is still to be evaluated is, and models are kept; computations that nobody awaits
        are not run."""
        while self._evaluations:
            self.observations.append(self._evaluations.next())
        self.kept = self._keeper.finish()
        if self._volatile is not None:
            self._volatile.close()

    @property
    def fitted(self) -> FittedGroups:
        """The groups that memory has limited so far."""
        found = None if self._task is None else self._task.fitting
        return FittedGroups() if found is None else FittedGroups(found.most, found.halved)

    @property
    def notes(self) -> list[Note]:
        """The results of nodes' trainings, and those that attackers computed again, for a comparison."""
        return [] if self._attacking is None else self._attacking.notes

    def close(self) -> StoreUse:
        """The run is over, however it ended: what waits to be stored is written."""
        if self._task is None:
            return StoreUse()
        results = self._task.results
        results.close()
        return StoreUse(*results.counts, results.saved_ns, results.failure)

    # --- roles ----------------------------------------------------------------------------------------------------

    def _begin(self, event: Start) -> None:
        """Start a role and answer. The kernel starts a `stateless` role at few of its nodes (`emul.kernel.loop`): at
        the others it begins where it enters a round."""
        node, role = event.node, self._role_of[event.node]
        known = node in self._memories
        self._start(node)
        self._step(event)
        if event.now or known or role not in self._stateless or node in self._setup.behaviours:
            return
        asked, reply = self._resting[node], self.replies[-1]
        # The first node answers for all nodes of the role, so each of the few others that begin all the same is held
        # against it: a role that depends on its node must not be taken for one that keeps nothing
        # (`test_a_stateless_role_whose_nodes_ask_for_rounds_in_several_ways_fails_the_run_at_once`).
        first = self._first.get(role)
        if first is None and asked is not None:
            self._first[role] = first = asked
        reply.alike = asked is not None and asked is first
        if first is not None and not reply.alike and not reply.error:
            reply.error = other_beginning(self._setup.names[node], role)

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
        desk = Desk(memory, self._costs, keep=self._payloads.keep, observe=self._observe, fetch=self._fetch,
                    types=self._types, deviates=node in self._setup.behaviours, artefact=self._keeper.array,
                    lanes=self._scheme.lanes_under(self._params))
        if attacking is not None:
            desk.offers, desk.attackers = attacking.knowing, attacking.attackers
        desk.cluster = self._cluster
        desk.growth = self._growth
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
        # A coroutine with its memory takes 4 kB, and a second start 11 us: of a million registered clients 100 are
        # asked (`test_a_client_that_is_never_asked_has_no_coroutine_and_no_memory`).
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
        node, role = event.node, self._role_of[event.node]
        asked = self._resting[node] or self._first.get(role)
        if asked is None:                       # the kernel took it for one that begins as others do
            return other_beginning(self._setup.names[node], role)
        self._resting[node] = None
        memory = self._memories.get(node)       # without one it has not been in any round, and began at 0
        self._start(node)
        again = Start(node, 0, 0) if memory is None else Start(node, event.now, memory.round)
        reply = self._running[node].step(again)
        if reply.actions == [asked] and not reply.error:
            return ""
        return (f"{reply.error or RoleError.__name__}: {self._setup.names[node]}: its role was ended while it waited "
                "for a round, begun anew, and did otherwise than before: it depends on more than its node and "
                f"parameters, or the scheme must not have {role!r} in `stateless`")

    def _function(self, node: int, round: int) -> RoleFunction:
        """The role of `node` in a round, or the faulty variant that it runs then. 0: before its first."""
        for name, first, last in self._setup.behaviours.get(node, ()):
            if not last or first <= max(round, 1) <= last:
                found: RoleFunction = self._scheme.behaviours[self._role_of[node]][name]
                return found
        honest: RoleFunction = self._scheme.roles[self._role_of[node]]
        return honest

    def _change_role(self, event: Entered) -> Reply:
        """The node enters a round in which it behaves otherwise than in the last one: its role begins anew, as after a
        crash, but for its inbox. Returns its actions until it asks for a round, or an error."""
        # A flag that a coroutine looks at would make each author write the honest and the faulty behaviour in one, and
        # an author who forgets has a fault that never ends. So the coroutine is replaced, at the entry into a round,
        # where a role waits for nothing else (`test_a_fault_of_some_rounds_holds_in_these_alone`).
        old, node = self._running[event.node], event.node
        asked = old.asked
        cut = [] if old.desk.activities is None else list(old.desk.activities.live)
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
        reply.actions[:0] = [EndActivity(activity, CANCELLED) for activity in cut]
        return reply

    def _step(self, event: RoleEvent) -> None:
        reply = self._answer(event)
        if type(event) is Entered and event.unread is not None and not reply.error:
            wait, *more = reply.actions
            if not more and type(wait) is Wait and event.unread.answers(wait):
                reply.then = self._answer(Ready(event.node, event.now, [event.unread.ref], WaitEnd.COMPLETE))
                if event.unread.last and self._at_once:
                    self._go_on(event, reply.then)
        elif type(event) is Ready and event.unread:
            self._read_on(event, reply)
        self.replies.append(reply)

    def _read_on(self, event: Ready, reply: Reply) -> None:
        """Give the role the messages that lie behind the one that it has got, as long as it waits for nothing else."""
        unread = list(event.unread)
        while not reply.error and reply.actions and type(reply.actions[-1]) is Wait:
            wait = reply.actions[-1]
            place = next((place for place, one in enumerate(unread) if one.answers(wait)), None)
            if place is None or self._running[event.node].desk.activities is not None:
                return
            reply.then = self._answer(Ready(event.node, event.now, [unread.pop(place).ref], WaitEnd.COMPLETE))
            reply = reply.then

    def _go_on(self, event: Entered, reply: Reply) -> None:
        """Let the role go on after computations that take no virtual time: nothing can end its round before. The kernel
        has these answers ahead."""
        # An event and an answer less for each client: with this and what `loop._begin` saves, a round of 16,384 clients
        # without training took 0, 8 and 10 % less CPU of all processes (three pairs beside other load).
        node = event.node
        while (not reply.error and reply.actions and type(reply.actions[-1]) is Compute and not reply.actions[-1].cost
               and self._running[node].desk.activities is None):
            self._jobs.run(node)
            reply.then = self._answer(Computed(node, event.now))
            reply = reply.then

    def _answer(self, event: RoleEvent) -> Reply:
        """The reply of a node's role to an event; the computations that it asks of this worker are begun."""
        if self._delays:                            # of a test: the answers come in another order
            time.sleep(self._delays[0])
            self._delays.rotate(-1)
        before = None
        if event.node not in self._running:
            error = self._wake(event)
            if error:
                return Reply(event.node, [], 0, error)
        role = self._running[event.node]
        if type(event) is Entered and event.sent >= 0:
            role.desk.memory.sent = event.sent
        if type(event) is Entered and event.round and event.node in self._setup.behaviours \
                and self._function(event.node, event.round) is not role.function:
            before = self._change_role(event)
            if before.error:
                return before
            role = self._running[event.node]
        reply = role.step(event)
        if before is not None:
            reply.actions[:0] = before.actions
        self._jobs.over(event.node)
        if self._recording is not None:
            self._recording.look(event, reply.actions)
        if role.desk.activities is not None:
            if not reply.error:
                for action, job in role.desk.activities.begun:
                    self._jobs.begin(event.node, action, job, role.node.speed, event.now)
        elif reply.actions and not reply.error:
            last = reply.actions[-1]
            if type(last) is Compute:
                assert role.desk.job is not None
                self._jobs.begin(event.node, last, role.desk.job, role.node.speed, event.now)
            elif type(last) is NextRound:
                self._rest(event, last, len(reply.actions) == 1)
                memory = self._memories.get(event.node)
                reply.traceless = (event.node not in self._running and memory is not None and memory.state is None
                                   and not memory.generators and not memory.activities)
        return reply

    def _close(self, node: int) -> None:
        """The node has crashed."""
        self._jobs.crashed(node)
        self._resting[node] = None
        role = self._running.pop(node, None)
        if role is not None:
            role.close()

    # --- what a desk calls ----------------------------------------------------------------------------------------

    def _fetch(self, event: Ready) -> list[Message]:
        begin = perf_counter_ns()
        messages = []
        taken = self._taken.pop(event.node, None) if self._taken else None
        for place, ref in enumerate(event.messages):
            encoded = self._payloads.take(ref) if taken is None else taken[place]
            # decoded once for all who read it here: with this and `Jobs._counts` the workers took 11, 23, 12 and 13 %
            # less CPU in a round of 16,384 clients without training (four pairs)
            sender = ref.source if ref.sender < 0 else ref.sender
            if encoded is self._newest[0]:
                message = self._newest[1]
                if message.sender != sender:
                    message = _copied(message)
                    object.__setattr__(message, "sender", sender)
            else:
                message = decode(encoded, self._types)
                object.__setattr__(message, "sender", sender)
            self._newest = _NO_NEWEST if ref.last or not flat(message) else (encoded, message)
            messages.append(message)
            if self._attacking is not None and self._attacking.knows_others(event.node):
                round_ = self._memories[event.node].round
                self._attacking.received(event.node, round_, (ref.source, ref.first), message, encoded.aside)
        self._running[event.node].desk.excused_ns += perf_counter_ns() - begin
        return messages

    def _observe(self, node: int, round: int, parameters: Vector, evaluate: Evaluate | None) -> str:
        vector = self._evaluations.reported(node, round, parameters, evaluate)
        digest = digest_of(vector)
        self._keeper.model(node, round, vector, digest, self._running[node].node.now_ns, how(evaluate))
        return digest


def _copied(message: Message) -> Message:
    """Another message with the same content."""
    if hasattr(type(message), "__slots__"):
        return copy(message)
    found: Message = object.__new__(type(message))
    found.__dict__.update(message.__dict__)     # 0.5 us, and `copy` takes 1.6
    return found


def _store(setup: Setup) -> Store | None:
    """The store in which results of trainings are kept and looked for. Raises StoreError."""
    if not setup.store and not setup.stored:
        return None
    from emul.store import Store

    return Store(Path(setup.store) if setup.store else None, [Path(p) for p in setup.stored], setup.store_limit)
