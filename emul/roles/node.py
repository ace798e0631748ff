"""`Node`: what a role sees of the world, and the only thing that it may await.

`send`, `broadcast`, `abstain`, `report` never suspend; `recv`, `gather`, `collect`, `recv_any`, `sleep`, `sent`,
`compute` and the step to the next round do. A suspended role hands an action to the kernel and goes on with the event
that answers.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection, Coroutine, Generator, Iterable, Iterator, Mapping, Sequence
from time import perf_counter_ns
from types import CoroutineType, TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, TypeVarTuple

import numpy as np

from emul.base.errors import NothingToReceive, ProtocolFailure, ProtocolViolation, RoleError, RoundOver, TimedOut
from emul.base.streams import generator
from emul.base.tracebacks import caller, named
from emul.base.units import LARGEST
from emul.learning.declared import declared
from emul.message.wire import TAG, Message, Vector, kind_of
from emul.roles.activities import Activities, Activity, InTurn
from emul.roles.desk import REASON, Desk
from emul.roles.evaluation import Evaluate
from emul.roles.events import (
    NO_DEADLINE,
    Abstain,
    Action,
    AwaitSent,
    Compute,
    Computed,
    Entered,
    LeaveRound,
    NextRound,
    Ready,
    Reject,
    Report,
    RoleEvent,
    Send,
    SendEach,
    Suspension,
    Wait,
    WaitEnd,
)
from emul.roles.job import Job
from emul.roles.world import Contact, World

if TYPE_CHECKING:
    from emul.learning.node_task import NodeTask

M = TypeVar("M", bound=Message)
R = TypeVar("R")
S = TypeVar("S")
Ts = TypeVarTuple("Ts")
Accept = Callable[[M], None]                            # of what came; raises ProtocolViolation
Received = Mapping[type[Message], Any]                  # for `Scheme.honest`: of each type the newest in a round


class Await(Suspension, Generic[R]):
    """One suspension: the action that goes out, and how the answering event becomes a value, or is refused."""

    # A message that the role refuses is answered with a `Reject` in place of going on: only the kernel knows who else
    # may still send and until when, so it takes the same wait up again
    # (`test_accept_refuses_one_and_the_others_are_there`).

    __slots__ = ("finish",)

    def __init__(self, action: Action, finish: Callable[[RoleEvent], R | Reject]):
        self.action, self.finish = action, finish       # by its base it takes twice as long, and all waits come here

    def __await__(self) -> Generator[Suspension, RoleEvent, R]:
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


class Node:
    """One node of the network as its own role sees it.

    Times are seconds of virtual time where a name ends in `_s`, integers of nanoseconds where it ends in `_ns`.
    """

    __slots__ = ("_desk", "_in_round", "id", "name", "now_ns", "role", "task", "world")

    def __init__(self, id: int, role: str, world: World, desk: Desk, task: Any = None):
        self.id = id
        self.role = role
        self.name = world.names[id]
        self.world = world
        self.task: NodeTask = task                  # learning task, bound to this node; None if the scenario has none
        self.now_ns = 0
        self._desk = desk
        self._in_round = False

    # --- who and when ---------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """Virtual time in seconds."""
        return self.now_ns / 1e9

    @property
    def round(self) -> int:
        """The round this node is in or was in last; 0 before its first."""
        return self._desk.memory.round

    @property
    def seed(self) -> int:
        """That of the scenario; draw from `rng` or `stream`, which are keyed by it."""
        return self.world.seed

    @property
    def speed(self) -> float:
        """Costs of computations are divided by it; 1: the profile's machine."""
        return self.world.speeds[self.id]

    def nodes(self, role: str) -> list[int]:
        """All nodes of a role, ascending; none if there is no such role."""
        return self.world.roles.get(role, [])

    @property
    def clients(self) -> list[int]:
        """All nodes with the role "client", ascending."""
        return self.nodes("client")

    @property
    def servers(self) -> list[int]:
        """All nodes with the role "server", ascending."""
        return self.nodes("server")

    @property
    def server(self) -> int:
        """The first server. Raises RoleError if the topology has none."""
        if not self.servers:
            raise RoleError(f"{self.name}: the topology places no server")
        return self.servers[0]

    @property
    def peers(self) -> list[int]:
        """All other nodes of this node's own role, ascending."""
        return [n for n in self.nodes(self.role) if n != self.id]

    def joined(self, nodes: Sequence[int]) -> list[int]:
        """Those of `nodes` that take part in this round: who has joined by now, as the scenario says, and not left.

        A round's messages to others are not sent, and `gather` waits for none of theirs. `sample` draws from these.
        """
        if not self.world.rounds:
            return list(nodes)
        return [node for node in nodes if self.world.takes_part(node, self.round)]

    @property
    def index(self) -> int:
        """Position among the nodes of this role, from 0."""
        return self.nodes(self.role).index(self.id)

    # --- where: facts of the topology, for schemes with knows_topology ------------------------------------------------

    @property
    def neighbours(self) -> list[int]:
        """The nodes to which a way leads on which no other node lies, ascending."""
        return self.world.neighbours(self.id)

    @property
    def parent(self) -> int:
        """The next node towards the root, which is the first of the nodes whose rounds are the run's.

        Raises RoleError at the root.
        """
        parent = self.world.parent(self.id)
        if parent is None:
            raise RoleError(f"{self.name}: the root has no parent")
        return parent

    @property
    def children(self) -> list[int]:
        """The nodes whose parent this one is, ascending."""
        return self.world.children(self.id)

    def nearest(self, role: str) -> int:
        """The nearest node of a role: least latency, then fewest hops, then lowest number. Raises RoleError: none."""
        return self.world.nearest(self.id, role)

    def latency_s(self, other: int) -> float:
        """The median latency of the way to another node, in seconds."""
        return self.world.latency_s(self.id, other)

    def hops(self, other: int) -> int:
        """The number of links on the way to another node."""
        return self.world.hops(self.id, other)

    def contacts(self, other: int) -> Iterator[Contact]:
        """The contacts on the way to another node that are now or later, by start, then by hop.

        They are those of the plan, whatever faults do. One that goes on now is among them, with its own start.

        Raises RoleError if no link on the way has contacts.
        """
        return self.world.contacts(self.id, other, self.now_ns)

    # --- randomness and state -------------------------------------------------------------------------------------

    @property
    def rng(self) -> np.random.Generator:
        """This node's own stream; it goes on where it was after a crash."""
        return self.stream("role")

    def stream(self, purpose: str) -> np.random.Generator:
        """A stream of this node for one purpose, so that two uses do not shift each other's draws."""
        generators = self._desk.memory.generators
        if purpose not in generators:
            generators[purpose] = generator(self.seed, purpose, self.name)
        return generators[purpose]

    def sample(self, nodes: Sequence[int], fraction: float) -> list[int]:
        """At least one of `nodes`, ascending, drawn without replacement for this round: round(fraction * n) of the n
        that take part in it (`joined`); none if nobody does.

        The stream is ("sample", node, round) of the seed, so every scheme samples the same cohort.
        """
        if not 0 < fraction <= 1:
            raise RoleError(f"fraction = {fraction}: expected a number in (0, 1]")
        nodes = self.joined(nodes)
        if fraction == 1 or not nodes:
            return nodes
        count = max(1, round(fraction * len(nodes)))
        chosen = generator(self.seed, "sample", self.name, self.round).choice(len(nodes), count, replace=False)
        return [nodes[i] for i in sorted(chosen)]

    def state(self, initial: S) -> S:
        """The state that survives a crash: `initial` at the first call, the same object ever after."""
        if self._desk.memory.state is None:
            self._desk.memory.state = initial
        return self._desk.memory.state

    # --- what never suspends --------------------------------------------------------------------------------------

    def send(self, target: int, message: Message) -> None:
        """Send to one node. The bytes are taken now. To oneself: a local delivery without bytes or latency.

        Raises NotSendable, an outcome of the round, if a number in it is not finite and its field does not say that it
        may be; WireError if the message is not what its annotations say. A message of a BEHAVIOUR travels all the same,
        and is rejected where it arrives.
        """
        self._send([target], message)

    def broadcast(self, targets: Iterable[int], message: Message) -> None:
        """Send to many nodes: encoded once, one copy each on its own links. Raises as `send` does."""
        to = list(targets)
        if to:
            self._send(to, message)

    def send_each(self, messages: Mapping[int, Message]) -> None:
        """Send to each of many nodes a message of its own: {target: message}, in this order.

        The same as a `send` to each, at a part of the price where they are many, as shares of secrets are. A message
        that is given for several targets is encoded once. Raises as `send` does; then nothing has been sent.
        """
        if messages:
            self._send_each(messages)

    def _send_each(self, messages: Mapping[int, Message]) -> None:
        self._must_exist(messages)
        if self.world.rounds:
            messages = {target: message for target, message in messages.items()
                        if message.unscoped or self.world.takes_part(target, self.round)}
        desk, memory = self._desk, self._desk.memory
        begin = perf_counter_ns()
        of_type: list[tuple[list[int], list[Message]]] = []     # in a row: one action each
        for target, message in messages.items():
            last = of_type[-1][1][0] if of_type else None
            if last is None or type(message) is not type(last) or (message.tagged and message.tag != last.tag):
                of_type.append(([], []))
            to, each = of_type[-1]
            to.append(target)
            each.append(message)
        ready = []
        for to, each in of_type:                # all of them, before any is kept
            ready.append((to, each[0], desk.encoded_each(each)))
        for to, message, encoded in ready:
            first = memory.sent
            memory.sent = first + len(to)
            frames = [desk.keep(self.id, one, first + k, [target])
                      for k, (target, (one, _)) in enumerate(zip(to, encoded, strict=True))]
            declared, reasons = [one.declared for one, _ in encoded], [reason for _, reason in encoded]
            desk.actions.append(SendEach(
                to, kind_of(message), [one.size for one, _ in encoded], first,
                0 if message.unscoped else memory.round, declared if any(declared) else [],
                reasons if any(reasons) else [], frames if any(frames) else []))
        desk.excused_ns += perf_counter_ns() - begin

    def _must_exist(self, to: Collection[int]) -> None:
        if min(to) < 0 or max(to) >= len(self.world.names):
            raise RoleError(f"{caller(3)}: there is no node {max(to) if min(to) >= 0 else min(to)}: nodes are 0 to "
                            f"{len(self.world.names) - 1}")

    def _send(self, to: list[int], message: Message) -> None:
        desk, memory = self._desk, self._desk.memory
        self._must_exist(to)
        if self.world.rounds and not message.unscoped:
            to = self.joined(to)
            if not to:
                return
        # The bytes are taken here and not when a link is free: a role may change its arrays as soon as `send` returns
        # (`test_what_is_sent_is_what_it_was_at_the_call`).
        begin = perf_counter_ns()
        encoded, reason = desk.encoded(message)
        first = memory.sent
        memory.sent = first + len(to)
        frames = desk.keep(self.id, encoded, first, to)
        desk.excused_ns += perf_counter_ns() - begin
        round_ = 0 if message.unscoped else memory.round
        desk.actions.append(Send(to, kind_of(message), encoded.size, first, round_, encoded.declared, reason, frames))

    def abstain(self, targets: int | Iterable[int], *kinds: type[Message], tag: int | None = None) -> None:
        """Say that no message of `kinds` goes to `targets` in this round, so that nobody waits for it. tag: of those
        that are tagged."""
        to = [targets] if isinstance(targets, int) else list(targets)
        self._desk.actions.append(Abstain(to, _names_of(kinds, tag, 1), self.round if self._in_round else 0))

    def report(self, parameters: Vector | None = None, *, evaluate: Evaluate | None = None,
               **values: float | str | bool | None) -> None:
        """Tell the observer what this round came to. Costs no virtual time and changes nothing.

        `parameters`, (d,) float32, are evaluated off the clock and enter the model digest. `evaluate`: how, in place of
        what the scenario says, {name: number} of a copy of them; then they may be any float32 vector. It is called
        later, so what else it holds must not be changed. Of a node that an attack of the scenario has poisoned nothing
        is evaluated by `evaluate`. Raises RoleError for a value that no column of a table holds.
        """
        begin = perf_counter_ns()
        plain = {name: _value(name, value) for name, value in values.items()}
        digest = "" if parameters is None else self._desk.observe(self.id, self.round, parameters, evaluate)
        self._desk.actions.append(Report(self.round, plain, digest))
        self._desk.excused_ns += perf_counter_ns() - begin

    def judged(self, clients: Collection[int], kept: Collection[int], weights: Mapping[int, float] | None = None,
               ) -> None:
        """Tell the observer whose updates a rule has judged in this round, and of whom it `kept` something.

        Reports `judged` and `kept`, how many; in a run with attackers, which a role cannot know, also how many of them
        were attackers (`attackers_judged`, `attackers_kept`) and, of a rule that gives weights, the share of their
        absolute sum that attackers have (`attackers_weight`). A client counts as often as it is named: a rule that
        judges several things of each, such as its prototypes, names it for each.
        """
        values: dict[str, Any] = {"judged": len(clients), "kept": len(kept)}
        attackers = self._desk.attackers(self.round)
        if attackers is not None:
            values |= {"attackers_judged": sum(k in attackers for k in clients),
                       "attackers_kept": sum(k in attackers for k in kept)}
            total = sum(map(abs, weights.values())) if weights is not None else 0.0
            if weights is not None:
                theirs = sum(abs(weight) for node, weight in weights.items() if node in attackers)
                values["attackers_weight"] = theirs / total if total else 0.0
        self.report(**values)

    def assigned(self, clusters: Mapping[int, int]) -> None:
        """Tell the observer which cluster each client has been put into, or has chosen: {client: cluster}.

        Reports `clusters_used`, how many there are with a member. Where the task has clusters, which a role cannot
        know, also how well they agree with the truth over the clients that are no attackers: `clusters_matched`, the
        share that is right under the best matching of names, and `clusters_rand`, the adjusted Rand index.
        """
        values: dict[str, Any] = {"clusters_used": len(set(clusters.values()))}
        attackers = self._desk.attackers(self.round) or set()
        both = [(c, self._desk.cluster(k)) for k, c in sorted(clusters.items()) if k not in attackers]
        chosen, truth = [c for c, t in both if t is not None], [t for _, t in both if t is not None]
        if truth:
            from emul.primitives.clustering import adjusted_rand, matched

            begin = perf_counter_ns()
            values |= {"clusters_matched": matched(chosen, truth), "clusters_rand": adjusted_rand(chosen, truth)}
            self._desk.excused_ns += perf_counter_ns() - begin
        self.report(**values)

    def offer(self, name: str, value: Any) -> None:
        """Make a value known to attackers, off the clock and the wire: numbers, arrays or lists of them.

        An attacker that knows of others, and receives a message that this node sends later in the round, knows it. A
        server offers its "cohort", so that they know who takes part, and what it judges by, such as its "reference".
        """
        if self._desk.offers:
            self._desk.offered[name] = value.copy() if isinstance(value, np.ndarray) else value

    def keep(self, name: str, array: np.ndarray | Sequence[float] | float) -> None:
        """Leave an array of numbers in the run directory: `artefacts/<node>/<name>.npy`. Costs no virtual time and
        changes nothing. An array that was kept under this name before is replaced: say the round in it to keep one
        each.

        Models need no such call: the last parameters that a node reports are kept always. Raises RoleError.
        """
        begin = perf_counter_ns()
        self._desk.artefact(self.id, name, self.round, array)
        self._desk.excused_ns += perf_counter_ns() - begin

    # --- what suspends --------------------------------------------------------------------------------------------

    def recv(self, kind: type[M], source: int, timeout_s: float | None = None, *,
             accept: Accept[M] | None = None, tag: int | None = None) -> Await[M]:
        """The next message of a type from one node.

        Without a timeout, raises NothingToReceive once it is known that it is lost or will never be sent; with one,
        raises TimedOut. accept: as for `gather`. tag: of a tagged type, which needs one; messages of another tag are
        left for other waits. Raises RoleError for a tagged type without a tag, and a tag of a type that has none.
        """
        received = self._received if accept is None else Guard(self._received, accept)

        def finish(event: RoleEvent) -> M | Reject:
            messages = received(event)
            if isinstance(messages, Reject):
                return messages
            if messages:
                return messages[0]
            text = f"{kind.__name__} from {self.world.names[source]}"
            assert isinstance(event, Ready)
            if event.outcome == WaitEnd.TIMEOUT:
                raise TimedOut(f"no {text} within {timeout_s} s")
            raise NothingToReceive(f"{text} is lost or will not be sent")
        return self._wait((kind,), [source], 1, timeout_s, finish, accept, tag)

    def gather(self, kinds: type[M] | tuple[type[M], ...], sources: Iterable[int], timeout_s: float | None = None,
               need: int | None = None, *, accept: Accept[M] | None = None, tag: int | None = None,
               ) -> Await[dict[int, M]]:
        """One message from each of `sources`: {source: message}, ascending by source.

        Returns when all are there (or `need` of them), when the timeout comes, or, without one, when the fate of
        every message is known: with what has arrived. With a timeout, fates end no wait. A message that comes after
        the round is left, or lies unread then, is late (`emul.kernel.messages: arrive`, `discard_late`).

        accept: judges each message by what the receiver knows (dimensions, thresholds, earlier messages); it raises
        ProtocolViolation for one that the protocol forbids, and nothing else. That message is rejected, counted with
        its sender and the reason, and the wait goes on until the same deadline: `need` counts the others. Without a
        timeout the message counts as lost. tag: as for `recv`, of those of `kinds` that are tagged.
        """
        nodes = sorted(set(sources))
        wanted = len(nodes) if need is None else need
        if wanted > len(nodes):
            raise RoleError(f"{caller(1)}: gather(need={need}) of {len(nodes)} sources cannot be met")
        if self.world.rounds and self._in_round and not any(kind.unscoped for kind in
                                                            (kinds if isinstance(kinds, tuple) else (kinds,))):
            nodes = self.joined(nodes)
            wanted = min(wanted, len(nodes))

        received = self._received if accept is None else Guard(self._received, accept)

        def finish(event: RoleEvent) -> dict[int, M] | Reject:
            messages = received(event)
            if isinstance(messages, Reject):
                return messages
            # not by arrival: a sum of floats depends on the order of its terms, and a model must not depend on who
            # was the fastest (`test_gathered_replies_are_ordered_by_node_not_by_arrival`)
            return {m.sender: m for m in sorted(messages, key=_sender)}
        return self._wait(kinds if isinstance(kinds, tuple) else (kinds,), nodes, wanted, timeout_s, finish, accept,
                          tag)

    def collect(self, count: int, timeout_s: float) -> Await[list[Message]]:
        """The next `count` messages of any type from anybody, in the order of arrival; one node may have sent several.

        Returns when so many are there, or at the timeout with what has come; 0: with what lies here. Never uses fates.
        """
        return self._wait((), None, count, timeout_s, self._received)

    def recv_any(self, *kinds: type[M], timeout_s: float | None = None, accept: Accept[M] | None = None,
                 tag: int | None = None) -> Await[M]:
        """The next message of any of `kinds` (none named: any at all) from anybody; `.sender` says from whom.

        Raises TimedOut. Never uses fates: a real node cannot know them. accept, tag: as for `gather`; after a message
        that `accept` refuses the next one is taken.
        """
        if accept is None and timeout_s is None:        # as a rule
            return self._wait(kinds, None, 1, None, self._one, None, tag)
        received = self._received if accept is None else Guard(self._received, accept)

        def finish(event: RoleEvent) -> M | Reject:
            messages = received(event)
            if isinstance(messages, Reject):
                return messages
            if not messages:
                raise TimedOut(f"no message within {timeout_s} s")
            return messages[0]
        return self._wait(kinds, None, 1, timeout_s, finish, accept, tag)

    def sleep(self, seconds: float) -> Await[None]:
        """Do nothing for a time."""
        return self._wait((), [], 1, seconds, self._slept)

    def sent(self, target: int) -> Await[None]:
        """Wait until the newest message to a node has left this one: its last byte is on its way, or is lost.

        On the first link alone: routers on the way may hold it still. It has left already where nothing is under way on
        that link, and where `target` is this node. A link that shares its bandwidth among flows sends to the end of the
        route at once, so the message has left when it has arrived. Raises RoleError if there is no such node.
        """
        place = caller(1)
        if not 0 <= target < len(self.world.names):
            raise RoleError(f"{place}: there is no node {target}: nodes are 0 to {len(self.world.names) - 1}")
        self._desk.unawaited.append(place)
        return Await(AwaitSent(target, place), self._slept)

    def compute(self, label: str, fn: Callable[[*Ts], R], *args: *Ts, work: float = 0.0,
                cost_s: float | None = None, volatile: bool = False, lane: str | None = None) -> Awaitable[R]:
        """Really run `fn(*args)` and charge its cost to this node's clock; the value of `fn`, or what it raises.

        `label` names the computation in profiles and tables; `work` is its size in a unit of the scheme's choice.
        cost_s: what is charged in place of a cost that is measured or looked up, whatever the scenario says of costs:
        seconds at speed 1, so a node of speed 2 takes half of it, and longer while a fault slows it down. For what
        stands in for a computation too heavy to be done; tables and the summary count it as declared.
        volatile: the result cannot repeat itself, because `fn` draws randomness of its own. It is kept in the run
        directory, and the role gets it as a receiver would: arrays are read-only. Numbers, text, bytes, arrays, lists,
        tuples, dictionaries and dataclasses of the scheme's module can be kept. Only in a scheme that says
        deterministic=False.
        lane: one of the `lanes` that the scheme declares; None: the first. Computations of one lane run one after the
        other, in the order in which they are asked for; those of several lanes go on side by side.
        Raises RoleError if `cost_s` is no time, the scheme has not said so, or there is no such lane.
        """
        desk = self._desk
        place = caller(1)
        number = 0 if lane is None else self._lane(lane, place)
        desk.unawaited.append(place)
        if desk.activities is None:
            return self._computation(label, fn, args, work, cost_s, volatile, number, place)
        return InTurn(desk.activities, number, place,
                      lambda: self._computation(label, fn, args, work, cost_s, volatile, number, place))

    def _lane(self, name: str, place: str) -> int:
        lanes = self._desk.lanes
        if name not in lanes:
            raise RoleError(f'{place}: compute(lane="{name}"): there is no such lane; the scheme has '
                            f"{', '.join(lanes)}")
        return lanes.index(name)

    def _computation(self, label: str, fn: Callable[[*Ts], R], args: tuple[*Ts], work: float, cost_s: float | None,
                     volatile: bool, lane: int, place: str) -> Await[R]:
        """A computation that begins now."""
        # A cost that is not measured comes before the work, so that the kernel goes on at once; the worker does the
        # work when somebody needs its result (`test_compute_answers_with_the_cost_first_and_works_later`).
        desk, memory = self._desk, self._desk.memory
        if cost_s is None:
            cost = desk.costs.cost_ns(self.id, self.role, label, work, memory.computed, self.speed)
        else:
            if not (math.isfinite(cost_s) and cost_s >= 0):
                raise RoleError(f"{place}: compute(cost_s={cost_s}): expected seconds, 0 or above")
            cost = desk.costs.stated_ns(self.id, label, cost_s, self.speed)
        if volatile and self.world.deterministic:
            raise RoleError(f"{place}: compute(volatile=True) in a scheme that does not say deterministic=False")
        job = desk.job = Job(label, fn, args, work, memory.computed, volatile)
        memory.computed += 1

        def finish(event: RoleEvent) -> R:
            desk.job = None
            if isinstance(event, Ready):
                raise RoundOver
            assert isinstance(event, Computed)
            if job.error is not None:
                raise job.error
            result, job.result = job.result, None       # the worker may keep the job for a while
            return result
        # cost -1: not known before it has run; the worker fills it in
        stated = cost_s is not None and desk.costs.states(label)
        return Await(Compute(label, -1 if cost is None else cost, float(work), place, stated, lane), finish)

    def training_s(self, steps: int | None = None) -> float | None:
        """The cost of so many steps of training, for `compute(..., cost_s=...)`: seconds at speed 1, of the task's
        declared model (`emul.learning.declared`), or of the node's device with compute mode "model"; None: the
        scenario says what they cost.

        Each step of a declared model takes 6 N tokens over the rate of the node's GPUs, times a draw of mean 1 from a
        lognormal law where the node's steps vary. steps None: as many as the solver says, which compute mode "model"
        prices without being told. Raises RoleError if the node has no GPUs.
        """
        found = declared(self.world.task)
        if found is None:
            of_device = self.world.islands[self.id] if self.world.islands and steps is not None else ()
            return None if not of_device or steps is None else steps / of_device[0]
        island = self.world.islands[self.id] if self.world.islands else ()
        if not island:
            raise RoleError(f"{self.name}: trains a declared model without GPUs: nodes: [{{match: ..., flops: ...}}]")
        rate, sigma = island
        count: float = self.task.local_steps() if steps is None else steps
        if sigma:
            count = float(self.stream("steps").lognormal(-sigma * sigma / 2, sigma, int(count)).sum())
        return found.step * count / rate

    def start(self, coroutine: Coroutine[object, object, R], carry: bool = False) -> Activity[R]:
        """Begin an activity: a coroutine of this role beside the one that starts it. It runs whenever that one waits.

        Does not suspend. `await` what it returns for the result, or for the exception that has ended the activity. One
        that was begun in a round ends with that round, or with the role if `carry`; one that was begun outside of
        rounds ends with the role. Ended early, it is cancelled. A ProtocolFailure of an activity that nobody has
        awaited by then is one of its round, or of the role; any other exception ends the run at once, unless somebody
        awaits the activity when it is raised.
        Raises RoleError: it is no coroutine.
        """
        if not isinstance(coroutine, CoroutineType):
            raise RoleError(f"{caller(1)}: start({coroutine!r}): expected a call of an `async def` function")
        desk = self._desk
        if desk.activities is None:
            desk.activities = Activities(desk, desk.main)
        return desk.activities.begin(coroutine, desk.memory.round if self._in_round and not carry else 0)

    def cancel(self, activity: Activity[R]) -> None:
        """End an activity where it waits: its `finally` blocks run now, and may send. Nothing if it has ended.

        Does not suspend. Awaiting it raises Cancelled from now on. A computation that it has begun is cut, and its lane
        is free. Raises RoleError: an activity cannot cancel itself.
        """
        if self._desk.activities is not None:
            self._desk.activities.cancel(activity)

    def rounds(self, of: int | Iterable[int] | None = None, quorum: int = 1, sync: Iterable[int] | None = None,
               on_new_round: str = "finish") -> Rounds:
        """The rounds of this node: counted by itself, following leaders (`of`), or in step with `sync`.

        A follower enters the newest round that `quorum` of its leaders have reached; when they reach a later one while
        it waits, its round is over. `on_new_round`: "finish" a running computation, or "abandon" it.
        """
        place = caller(1)
        if of is not None and sync is not None:
            raise RoleError(f"{place}: rounds() takes `of` or `sync`, not both")
        if on_new_round not in ("finish", "abandon"):
            raise RoleError(f'{place}: on_new_round = {on_new_round!r}: expected "finish" or "abandon"')
        leaders = [of] if isinstance(of, int) else None if of is None else sorted(set(of))
        mates = None if sync is None else sorted(set(sync))
        group = leaders if leaders is not None else mates
        if group is not None and not 1 <= quorum <= len(group):
            raise RoleError(f"{place}: a quorum of {quorum} of {len(group)} nodes cannot be met")
        return Rounds(NextRound(leaders, mates, quorum, on_new_round == "abandon", place), self._enter)

    # --- the engine's side ----------------------------------------------------------------------------------------

    def _wait(self, kinds: tuple[type[Message], ...], sources: list[int] | None, need: int, timeout_s: float | None,
              finish: Callable[[Any], R | Reject], accept: Any = None, tag: int | None = None) -> Await[R]:
        deadline = NO_DEADLINE if timeout_s is None else min(self.now_ns + max(0, round(timeout_s * 1e9)), LARGEST)
        names = _names_of(kinds, tag, 2)
        place = caller(2)
        self._desk.unawaited.append(place)
        return Await(Wait(names, sources, need, deadline, place, accept is not None), finish)

    def _received(self, event: RoleEvent) -> list[Any]:
        assert isinstance(event, Ready)
        if event.outcome == WaitEnd.ROUND_OVER:
            raise RoundOver
        return self._desk.fetch(event)

    def _one(self, event: RoleEvent) -> Any:
        """Of a wait for one message that does not end without it."""
        return self._received(event)[0]

    def _slept(self, event: RoleEvent) -> None:
        assert isinstance(event, Ready)
        if event.outcome == WaitEnd.ROUND_OVER:
            raise RoundOver

    def _enter(self, number: int) -> Round:
        self._desk.memory.round = number
        self._in_round = True
        self._desk.offered = {}
        entered = Round(number)
        entered._leave = self._leave
        return entered

    def _leave(self, number: int, why: str) -> None:
        if self._desk.activities is not None:           # those of a round end with it
            failed = self._desk.activities.end_all(number)
            why = why or failed
        self._in_round = False
        self._desk.actions.append(LeaveRound(number, why))


def _sender(message: Message) -> int:
    return message.sender


def _value(name: str, value: Any) -> float | str | bool | None:
    """A reported value as Python's own, of one that may be NumPy's or a tensor. Raises RoleError."""
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        value = value.item()
    if value is None or isinstance(value, bool | float | str) or (
            isinstance(value, int) and -LARGEST <= value <= LARGEST):
        return value
    raise RoleError(f"{caller(3)}: report: {name} = {str(value)[:40]}: expected a number below 2^63, a text, a truth "
                    "value or None")


_names: dict[tuple[type[Message], ...], list[str]] = {}         # types without tags -> their names, for waits


def _names_of(types: tuple[type[Message], ...], tag: int | None, depth: int) -> list[str]:
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
