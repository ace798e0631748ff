"""Public helpers for the tests of a scheme, and of emul itself.

    role = drive(server, Params(), clients=[1, 2, 3])       one role alone, no network: feed messages, read actions
    world = run_world({"server": server, "client": client}, clients=3, stop=Stop(rounds=2))     roles over a network
    check_scheme("fedavg")                                  what must hold of every scheme

Everything runs in this process, but for the pools that `check_scheme` is given.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import itertools
import re
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import numpy as np

from emul import engine, schemes
from emul.base import rows as R
from emul.base.errors import Deadlock, RoleFailed
from emul.base.rows import Row
from emul.kernel import Kernel, who_waits
from emul.learning import Task
from emul.learning.trial import trial
from emul.network import LinkRule, OutageSpec, TopologySpec
from emul.record import rundir
from emul.record.columns import columns
from emul.record.compare import first_difference
from emul.record.golden import golden_text
from emul.record.invariants import Report, check_columns
from emul.record.journal import Journal as FileJournal
from emul.record.journal import MemoryJournal, decisions, repeats
from emul.record.summary import digest_model, summarise, write_results
from emul.record.tables import derive
from emul.roles import Message, Node
from emul.roles.costs import Costs
from emul.roles.events import (
    NEVER,
    Abstain,
    Action,
    Compute,
    Computed,
    Entered,
    Event,
    Finish,
    NextRound,
    Observation,
    Ready,
    Reject,
    Reply,
    RoleEvent,
    Start,
    Wait,
    WaitEnd,
)
from emul.roles.events import (
    Report as Reported,
)
from emul.roles.node import Memory
from emul.roles.trampoline import Role, RoleFunction
from emul.roles.world import World as Facts
from emul.scenario import Compute as ComputeMode
from emul.scenario import Crash, Evaluation, Fuse, Limits, Scenario, Stop, load, loads
from emul.scenario.params import scenario_keys
from emul.wire import Encoded, decode, encode
from emul.workers.attacking import Note
from emul.workers.core import Core, Setup, Timing
from emul.workers.keeping import Kept
from emul.workers.twin import Twin, one_thread

M = TypeVar("M", bound=Message)

MS = 10**6                          # nanoseconds in a millisecond
UNCHARGED_LIMIT_NS = 10**6          # CPU time of role code outside `compute`, of the largest activation
ACTIVATIONS_LIMIT = 100_000         # of a check, without the end of a round

Roles = Mapping[str, RoleFunction] | ModuleType


# --- a role alone ---------------------------------------------------------------------------------------------------

class Driven:
    """One role without a network: the test is its network. Made by `drive`.

    Computations cost nothing and are answered at once. A node that counts its rounds itself enters the next one at
    once, `rounds` of them; a follower enters the next one at the first message of a leader that it is given. The
    messages that it is given are of the round that it is in.
    """

    def __init__(self, role: Role, types: Mapping[str, type[Message]], rounds: int):
        self.actions: list[Action] = []             # all so far, in order
        self.computed: list[str] = []               # labels of the computations
        self.reports: list[dict[str, Any]] = []
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
        role.node._fetch = self._fetch
        role.node._artefact = lambda _, name, round_, array: self.kept.update({name: array})
        role.node._keep = self._keep
        self._go(Start(role.node.id, 0, 0))

    # --- what the role did ----------------------------------------------------------------------------------------

    @property
    def node(self) -> Node:
        return self._role.node

    @property
    def waiting(self) -> Wait | NextRound | None:
        """What the role waits for; None once it has ended."""
        return self._wait or self._following

    @property
    def deadline(self) -> float | None:
        """When its wait times out, seconds; None: it does not."""
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
        """Give the role one message of each sender. What it does not wait for now, it reads later."""
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
            job = self._role.node._job
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
        """What the inbox makes possible now."""
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
        """What is sent is seen as a receiver would: decoded, its arrays read-only."""
        self._kept.append((to, decode(encoded, self._types)))


def _listed(function: RoleFunction) -> dict[str, type[Message]]:
    """The messages that the module of a role function lists; of a `partial`, that of its function."""
    beside = getattr(getattr(function, "func", function), "__globals__", {})
    return {kind.__name__: kind for kind in beside.get("MESSAGES", ())}


def drive(function: RoleFunction, params: Any = None, *, clients: Sequence[int] = (1, 2, 3), server: int | None = 0,
          role: str | None = None, id: int | None = None, task: Any = None, seed: int = 7, rounds: int = 1) -> Driven:
    """Start one role alone, as node `id` (default: the first of its role) among `clients` and a `server`.

    role: its name, by default that of the function. task: what `node.task` is. rounds: how many a node that counts
    them itself may enter.
    """
    name = role or getattr(function, "__name__", "")
    roles = {} if server is None else {"server": [server]}
    roles["client"] = sorted(clients)
    if name not in roles:
        raise ValueError(f'role "{name}": expected one of {", ".join(roles)}; say which with role=')
    here = roles[name][0] if id is None else id
    count = max(n for nodes in roles.values() for n in nodes) + 1
    names = [f"node{n}" for n in range(count)]
    for kind, nodes in roles.items():
        for place, n in enumerate(nodes, 1):
            names[n] = kind if kind == "server" else f"{kind}{place}"
    facts = Facts("test", seed, names, roles, [1.0] * count, deterministic=False)       # lets it be volatile
    node = Node(here, name, facts, Memory(), Costs("zero", "test"), task)
    return Driven(Role(node, function, params), _listed(function), rounds)


# --- roles over a network -------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class NoParams:
    """The parameters of roles that take none."""


@dataclass(frozen=True)
class World:
    """What a run left behind."""

    rows: list[Row]
    header: dict[str, Any]
    finished: engine.Finished
    digest: str                             # of journal and reported models

    @property
    def kernel(self) -> Kernel:
        return self.finished.kernel

    @property
    def log(self) -> str:
        """The golden log: everything that happened, in the order of virtual time, without a float of a model."""
        return golden_text(self.rows, self.header)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The keys of `summary.json`."""
        table = columns(self.rows)
        facts = engine.facts(self.finished, MemoryJournal.close(_closed(self)))
        return summarise(derive(table, self.header, engine.observed(self.finished)), facts)

    @cached_property
    def invariants(self) -> Report:
        """The invariant report, recomputed from the rows."""
        network = self.finished.wiring.network
        return check_columns(columns(self.rows), self.header, engine.latencies(network), network.unordered())

    def of(self, node: str | int, *kinds: int) -> list[Row]:
        """What a node did and what happened to it, in the order of virtual time; of some kinds of rows, or of all."""
        place = node if isinstance(node, int) else self.header["names"].index(node)
        target = {(row[2], row[3]): row[4] for row in self.rows if row[0] == R.SEND}
        found = [row for row in self.rows if _whose(row, target) == place and (not kinds or row[0] in kinds)]
        return sorted(found, key=lambda row: row[1])


def _closed(world: World) -> MemoryJournal:
    journal = MemoryJournal(world.header)
    journal.rows = world.rows
    return journal


def _whose(row: Row, target: Mapping[tuple[int, int], int]) -> int:
    """The node to which a row belongs; -1: to a link."""
    if row[0] in (R.DELIVER, R.LOST, R.LATE, R.UNREAD, R.RESENT, R.DECLARED, R.REJECT):
        return target[row[2], row[3]]
    return -1 if row[0] in (R.HOP, R.LINK) else int(row[2])


def run_world(roles: Roles, *, clients: int = 3, servers: int = 1, topology: TopologySpec | None = None,
              links: Sequence[LinkRule] = (LinkRule("*", latency_ns=10 * MS),), faults: Sequence[Any] = (),
              stop: Stop | None = None, seed: int = 7, params: Mapping[str, Any] | None = None,
              costs: Mapping[str, float] | engine.CostSource | None = None, task: Mapping[str, Any] | None = None,
              decides: str | Sequence[str] | None = None, speeds: Sequence[Any] = (), evaluate_every: int = 1,
              pool: Any = None, lookahead: bool = True, fuse: Fuse | None = None,
              limits: Limits | None = None) -> World:
    """Run roles over a small network, by default a star with a latency of 10 ms and infinite bandwidth.

    roles: {role: coroutine function}, or a module as a scheme is one. Their messages are those
    that the functions' modules list in MESSAGES.
    faults: `emul.scenario` Crash, LinkDown. stop: `emul.scenario.Stop`, by default one round.
    params: as in a scenario file, for a module. costs: {label: seconds} of computations; None: they cost nothing.
    pool: an in-process one (`Twin`, `Shuffled`); only with a module that can be imported, one of processes.
    fuse: `emul.scenario.Fuse`: computations called "train" are done together. limits: of what a peer sends.
    lookahead: False takes one event at a time, the slow and obvious order; the run must be the same.
    Raises RunError.
    """
    module = roles if isinstance(roles, ModuleType) else _module(roles, decides)
    name = module.__name__.rpartition(".")[2]
    spec = topology or TopologySpec(generator="star", clients=clients, servers=servers)
    scenario = Scenario(
        name="test", seed=seed, topology=spec, link_rules=list(links), node_speeds=list(speeds), faults=list(faults),
        task=dict(task or {}), attacks=[], compute=ComputeMode("zero"), schemes=[(name, dict(params or {}))],
        stop=stop or Stop(rounds=1), evaluation=Evaluation(evaluate_every), fuse=fuse,
        limits=limits or Limits())
    if not isinstance(costs, engine.CostSource):
        costs = engine.CostSource("zero") if costs is None else engine.CostSource(
            "profile", {f"{name}/{role}/{label}": [seconds, 0.0] for role in module.ROLES
                        for label, seconds in costs.items()})
    chosen = Twin() if pool is None else pool
    with schemes.lend(name, module):
        wiring = engine.wire(scenario, name, dict(params or {}), chosen.workers, costs=costs)
        if not lookahead:
            wiring.network.out_latency_ns = lambda u: 0     # type: ignore[method-assign]
        return _run(wiring, chosen)


def _run(wiring: engine.Wiring, pool: Any, progress: Callable[[Kernel], None] | None = None,
         directory: Path | None = None, recalled: Path | None = None) -> World:
    journal = MemoryJournal(engine.header(wiring))
    finished = engine.execute(wiring, pool, journal, progress, directory, recalled)
    model = digest_model(columns(journal.rows)) if repeats(journal.header) else "repeats in decisions alone"
    return World(journal.rows, journal.header, finished, f"{journal.close()} {model}")


def _module(roles: Mapping[str, RoleFunction], decides: str | Sequence[str] | None) -> ModuleType:
    """A scheme of these role functions, with the messages that their modules list."""
    module = ModuleType("world")
    listed = {name: kind for function in roles.values() for name, kind in _listed(function).items()}
    vars(module).update(ROLES=dict(roles), PLACES={role: role for role in roles}, Params=NoParams,
                        MESSAGES=tuple(listed.values()))
    if decides is not None:
        vars(module)["DECIDES"] = decides
    return module


class Shuffled:
    """An in-process pool of several workers that answers in an order drawn from `seed`, as real machines would.

    Each worker has frames of its own, and the kernel has to have them shipped. Nothing of a run may depend on it.
    """

    def __init__(self, workers: int, seed: int = 0):
        self.workers = workers
        self._draw = np.random.Generator(np.random.Philox(key=seed))
        self._cores: list[Core] = []
        self._outboxes: list[dict[tuple[int, int], Encoded]] = []
        self._arrived: list[dict[tuple[int, int], Encoded]] = []
        self._posted: list[deque[Event]] = []
        self._replies: dict[int, Reply] = {}
        self._observations: dict[tuple[int, int], Observation] = {}
        self._threads = contextlib.ExitStack()
        self.kept: list[Kept] = []

    def open(self, setups: Sequence[Setup]) -> None:
        self._threads.enter_context(one_thread())
        self._outboxes = [{} for _ in setups]
        self._arrived = [{} for _ in setups]
        self._posted = [deque() for _ in setups]
        self._replies, self._observations = {}, {}
        self._cores = [Core(setup, outbox, _taking(arrived))
                       for setup, outbox, arrived in zip(setups, self._outboxes, self._arrived, strict=True)]

    def post(self, worker: int, event: Event) -> None:
        self._posted[worker].append(event)
        if self._draw.random() < 0.2:
            self._step()

    def reply(self, node: int, worker: int) -> Reply:
        while node not in self._replies:
            self._step()
        return self._replies.pop(node)

    def ship(self, source: int, first: int, home: int, target: int) -> None:
        while (source, first) not in self._outboxes[home]:
            self._step()                    # the kernel ships what has been sent, so this ends
        self._arrived[target][source, first] = self._outboxes[home][source, first]

    def forget(self, source: int, first: int, home: int) -> None:
        del self._outboxes[home][source, first]

    def observation(self, node: int, round: int) -> Observation:
        while (node, round) not in self._observations:
            self._step()
        return self._observations[node, round]

    def finish(self) -> tuple[list[Observation], list[Timing]]:
        for core in self._cores:
            core.finish()
            self._collect(core)
        timings = [timing for core in self._cores for timing in core.timings]
        self.kept = sorted((one for core in self._cores for one in core.kept), key=lambda k: (k.node, k.name))
        self.abort()
        return sorted(self._observations.values(), key=lambda o: (o.round, o.node)), timings

    @property
    def notes(self) -> list[Note]:
        return [note for core in self._cores for note in core.notes]

    def abort(self) -> None:
        self._threads.close()

    @property
    def accuracy(self) -> float | None:
        return None

    def _step(self) -> None:
        """One worker takes an event, or works."""
        able = [w for w, core in enumerate(self._cores) if self._posted[w] or not core.idle]
        worker = able[int(self._draw.integers(len(able)))]
        core, posted = self._cores[worker], self._posted[worker]
        if posted and (core.idle or self._draw.random() < 0.5):
            core.put(posted.popleft())
        else:
            core.work()
        self._collect(core)

    def _collect(self, core: Core) -> None:
        for reply in core.replies:
            self._replies[reply.node] = reply
        for seen in core.observations:
            self._observations[seen.node, seen.round] = seen
        core.replies, core.observations = [], []


def _taking(arrived: dict[tuple[int, int], Encoded]) -> Callable[[tuple[int, int]], Encoded]:
    return lambda key: arrived.pop(key)


# --- what must hold of every scheme ---------------------------------------------------------------------------------

SMALL = """
emul: 1
name: conformance
seed: 7
topology: {generator: star_mesh, clients: 5}
links:
  - {match: "*", latency: 20 ms, bandwidth: 20 Mbit/s}
  - {match: "client*->server", outage: {model: bernoulli, p: 0.05, per: round}}
task:
  data: {set: digits}
  partition: {dirichlet: 0.5}
  model: logistic
  solver: {sgd: {lr: 0.1, steps: 1, batch: 16}}
compute: {mode: zero}
schemes: [SCHEME]
stop: {rounds: 3}
"""

_TIMEOUT = re.compile(r"(deadline|timeout|share|uplink|setup|window|patience)\w*_s$|_deadline_s$|_timeout_s$")


def check_scheme(name: str, scenario: Scenario | Path | str | None = None, plugins: Sequence[str] = (), *,
                 params: Mapping[str, Any] | None = None, pools: Iterable[Any] | None = None) -> dict[str, World]:
    """What must hold of every scheme, on a small scenario and on what is derived from it: {case: its run}.

    The same log twice, in process, with roles that end between rounds (STATELESS) and kept, in several in-process
    workers that answer in a shuffled order, and in `pools` of 1, 2 and 4 worker processes that sleep at random; the
    invariants; every byte counted once a hop; no role computes more than 1 ms outside `compute`; a round ends within
    100,000 activations, or the stop in virtual time ends the run; of a scheme that says DETERMINISTIC = False the same
    decisions, and the same values with the volatile results of a run before. The cases: as it is;
    everything lost; late; nobody answers; a client crashes, for good and with return; clients are trained as one.

    scenario: a Scenario, a file, or text; default: five clients of digits with a linear model, three rounds.
    params: of the scheme, as a scenario writes them. pools: open ones; default: made and closed here.
    Raises AssertionError saying what differed.
    """
    base = _scenario(name, scenario, plugins, params)
    raw = next(parameters for scheme, parameters in base.schemes if scheme == name)
    module = schemes.find(name, plugins)
    profile: dict[str, list[float]] = {}
    found: dict[str, World] = {}
    with contextlib.ExitStack() as stack:
        if pools is None:
            pools = [stack.enter_context(engine.pool_of(n)) for n in (1, 2, 4)]
        pools = list(pools)
        for case, changed, parameters in _cases(base, module, raw, found):
            check = _Check(name, case, changed, parameters, tuple(plugins), profile)
            meters = [_Metered(), _Metered()]
            world = found[case] = check.run(meters[0])
            again = check.run(meters[1])
            check.same(world, again, "in a second run")
            check.same(world, check.run(_Kept()), "with every role kept between its rounds")
            check.sound(world)
            if not repeats(world.header):
                check.recallable()
            for n, seed in ((2, 1), (4, 2)):
                check.same(world, check.run(Shuffled(n, seed)), f"for {n} workers in process, shuffled by {seed}")
            for pool in pools:
                check.same(world, check.run(pool, _delays(pool.workers)), f"for {pool.workers} worker processes")
            check.charged(meters)
    return found


def _scenario(name: str, scenario: Scenario | Path | str | None, plugins: Sequence[str],
              params: Mapping[str, Any] | None) -> Scenario:
    if isinstance(scenario, Path):
        scenario = load(scenario, plugins=plugins)
    if not isinstance(scenario, Scenario):
        text = scenario or SMALL.replace("SCHEME", f"{{name: {name}}}")
        loaded = loads(text, f"conformance of {name}", check=False)
        scenario = loaded
    if params is not None:
        scenario = dataclasses.replace(scenario, schemes=[(name, dict(params))])
    if all(scheme != name for scheme, _ in scenario.schemes):
        raise ValueError(f'the scenario runs {", ".join(s for s, _ in scenario.schemes)}, not "{name}"')
    return scenario


def _cases(base: Scenario, module: ModuleType, raw: dict[str, Any], found: Mapping[str, World],
           ) -> Iterator[tuple[str, Scenario, dict[str, Any]]]:
    """(what is done to the scheme, the scenario, the scheme's parameters)."""
    yield "as it is", base, raw
    world = found["as it is"]
    half = world.kernel.end_ns // 2
    client = next((name for name, role in zip(world.header["names"], world.header["roles"], strict=True)
                   if role != "server"), world.header["names"][-1])
    lost = OutageSpec(1.0, "message")

    def with_rule(*rules: LinkRule) -> Scenario:
        return dataclasses.replace(base, link_rules=[*base.link_rules, *rules])

    yield "everything is lost", with_rule(LinkRule("*", outage=lost)), raw
    server = world.header["names"][0]
    yield "nobody answers", with_rule(LinkRule(f"*->{server}", outage=lost)), raw
    keys = [key for key, f in scenario_keys(module.Params).items() if _TIMEOUT.search(f.name)]
    if keys:                                    # shorter than the way there and back: every answer is late
        short = f"{max(1, _least_latency(world) * 3 // 2)} ns"
        yield "everything is late", base, {**raw, **dict.fromkeys(keys, short)}
        yield "with a deadline", base, {**raw, **dict.fromkeys(keys, "2 s")}
    yield "a client crashes", dataclasses.replace(base, faults=[*base.faults, Crash(half, client)]), raw
    back = Crash(half, client, max(1, half // 2))
    returning = dataclasses.replace(base, faults=[*base.faults, back])
    yield "a client crashes and returns", returning, raw
    yield "clients are trained as one, one crashes and returns", dataclasses.replace(returning, fuse=Fuse(2, 3)), raw


def _least_latency(world: World) -> int:
    return min((latency for latency in engine.latencies(world.finished.wiring.network).values() if latency), default=MS)


def _delays(workers: int) -> list[float]:
    """Real seconds to sleep before activations, in turn: most none, some long enough to turn the order around."""
    draw = np.random.Generator(np.random.Philox(key=workers))
    return [float(d) for d in np.where(draw.random(37) < 0.8, 0.0, draw.random(37) * 0.002)]


@dataclass
class _Check:
    """One case of one scheme."""

    scheme: str
    case: str
    scenario: Scenario
    params: dict[str, Any]
    plugins: tuple[str, ...]
    profile: dict[str, list[float]] = field(repr=False)

    def run(self, pool: Any, delays: Sequence[float] = (), directory: Path | None = None,
            recalled: Path | None = None) -> World:
        """Run it. A computation that is new to the profile gets a cost made from its name, and it runs again.

        directory, recalled: as `emul.engine.execute` takes them.
        """
        while True:
            wiring = engine.wire(self.scenario, self.scheme, self.params, pool.workers, self.plugins,
                                 engine.CostSource("profile", dict(self.profile)), delays)
            try:
                with _no_collection():
                    return _run(wiring, pool, self._ends, directory, recalled)
            except RoleFailed as e:
                missing = re.search(r"the profile has no entry '([^']+)'", str(e))
                if missing is None:
                    raise AssertionError(f"{self._who}: a role failed:\n{e}") from e
                # from 1 to 37 ms: about the latencies, so that computing and sending overlap in every way
                self.profile[missing[1]] = [1e-3 * (1 + sum(missing[1].encode()) % 37), 0.0]
            except Deadlock as e:
                raise AssertionError(f"{self._who}: {e}") from e

    @property
    def _who(self) -> str:
        return f"{self.scheme}, {self.case}"

    def _ends(self, kernel: Kernel) -> None:
        """Roles that try again and again while nothing arrives would go on for ever."""
        if kernel.activations - kernel.ended_after > ACTIVATIONS_LIMIT:
            raise AssertionError(f"{self._who}: no round has ended since {kernel.ended_ns / 1e9:.9g} s, in more than "
                                 f"{ACTIVATIONS_LIMIT:,} activations; now t = {kernel.now / 1e9:.9g} s. Roles that "
                                 "try again for ever need a deadline of the round, or the scenario a "
                                 f"`stop: {{virtual_time: ...}}`\n{who_waits(kernel.nodes)}")

    def same(self, one: World, other: World, when: str) -> None:
        """The same journal and models, or AssertionError with the first difference."""
        if one.digest == other.digest:
            return
        was, now = (one.rows, other.rows) if repeats(one.header) else (decisions(one.rows), decisions(other.rows))
        difference = first_difference(was, now, one.header, ("first", "other"))
        raise AssertionError(f"{self._who}: {when} the run is another one: "
                             + (difference or "the journals are equal, the models differ"))

    def recallable(self) -> None:
        """What a scheme that cannot repeat itself keeps of its results is all that a run depends on besides."""
        with tempfile.TemporaryDirectory(prefix="emul-") as folder:
            first = self.run(Twin(), directory=Path(folder))
            again = self.run(Twin(), recalled=Path(folder))
            difference = first_difference(first.rows, again.rows, first.header, ("first", "recalled"))
            if difference:
                raise AssertionError(f"{self._who}: with the results of its volatile computations from the file the "
                                     f"run is another one: {difference}")

    def sound(self, world: World) -> None:
        """The invariants hold, and three counts of the bytes agree."""
        refused = world.summary["violations"]
        if refused:
            raise AssertionError(f"{self._who}: honest roles sent what was rejected: " + "; ".join(
                "{count} {type} from {sender}: {reason}".format(**one) for one in refused[:5]))
        broken = world.invariants.violations
        if broken:
            raise AssertionError(f"{self._who}: invariant violated: "
                                 + "; ".join(f"{v.name}: {v.detail}" for v in broken))
        links: Counter[tuple[int, int]] = Counter()
        for row in world.rows:
            if row[0] == R.SEND and row[9] >= 0:
                links[row[9], row[10]] += row[7]
            elif row[0] == R.HOP:
                links[row[5], row[6]] += row[4]
        counts = {"links": sum(links.values()), "hops of messages": _hop_bytes(world),
                  "messages.parquet": _table_bytes(world)}
        if len(set(counts.values())) > 1:
            raise AssertionError(f"{self._who}: bytes are counted differently: "
                                 + ", ".join(f"{name} {count}" for name, count in counts.items()))

    def charged(self, meters: list[_Metered]) -> None:
        """No role computes outside of `compute`. An activation's quietest run counts, for the machine has others."""
        for attempt in range(4):
            least = np.min([meter.uncharged for meter in meters], axis=0)
            if least.max(initial=0) <= UNCHARGED_LIMIT_NS:
                return
            if attempt < 3:
                meters.append(_Metered())
                self.run(meters[-1])
        worst = int(least.argmax())
        raise AssertionError(f"{self._who}: role code of {meters[0].names[meters[0].nodes[worst]]} outside "
                             f"`node.compute` takes {least[worst] / 1e6:.2f} ms of CPU in one activation, which "
                             f"{meters[0].answers[worst]}; at most {UNCHARGED_LIMIT_NS / 1e6:g} ms are accepted")


class _Kept(Twin):
    """A twin that ends no role before its time."""

    def open(self, setups: Sequence[Setup]) -> None:
        super().open(setups)
        assert self._core is not None
        self._core.keeps_roles = True


class _Metered(Twin):
    """A twin that notes what every activation took."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.nodes: list[int] = []
        self.uncharged: list[int] = []          # CPU ns
        self.answers: list[str] = []

    def open(self, setups: Sequence[Setup]) -> None:
        super().open(setups)
        self.names = setups[0].names
        for seen in (self.nodes, self.uncharged, self.answers):
            seen.clear()                        # of a run that lacked a cost

    def reply(self, node: int, worker: int) -> Reply:
        reply = super().reply(node, worker)
        last = reply.actions[-1] if reply.actions else None
        self.nodes.append(node)
        self.uncharged.append(reply.uncharged)
        self.answers.append(f"goes on to {getattr(last, 'where', '')}" if hasattr(last, "where") else "ends")
        return reply


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Python's collector would count as a role's own time, and what it takes depends on the tests before."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


def _hop_bytes(world: World) -> int:
    """What every copy must have cost on the links of its route that it reached, from its size alone."""
    network = world.finished.wiring.network
    vertices = world.header["vertices"]
    hops: Counter[tuple[int, int]] = Counter((row[2], row[3]) for row in world.rows if row[0] == R.HOP)
    total = 0
    for row in world.rows:
        if row[0] == R.SEND and row[2] != row[4]:
            path = network.route(vertices[row[2]], vertices[row[4]])
            for u, v in itertools.islice(itertools.pairwise(path), 1 + hops[row[2], row[3]]):
                total += network.link(u, v).wire_bytes(row[6] + 16)
    return total


def _table_bytes(world: World) -> int:
    """The bytes in the table that a user reads."""
    import pyarrow.parquet as pq

    with tempfile.TemporaryDirectory(prefix="emul-") as folder:
        directory = rundir.create(Path(folder), "conformance", world.header["scheme"])
        journal = FileJournal(directory.journal, world.header)
        for row in world.rows:
            journal.append(row)
        write_results(directory, engine.facts(world.finished, journal.close()), engine.observed(world.finished))
        return int(sum(pq.read_table(directory.path / "messages.parquet")["wire_bytes"].to_pylist()))


# --- what must hold of every learning task --------------------------------------------------------------------------

def check_task(spec: Mapping[str, Any], clients: int = 2, plugins: Sequence[str] = (), seed: int = 1) -> None:
    """What must hold of a learning task, for so many clients: its parts fit each other, they are the same when they are
    made again, and clients that are trained as one learn what each learns alone, but for rounding.

    spec: `task` of a scenario. Raises AssertionError saying what differed.
    """
    task, again = (Task(dict(spec), clients, seed, plugins=plugins) for _ in range(2))
    wrong = trial(task)
    if wrong is not None:
        raise AssertionError(f"task.{'.'.join(wrong[0])}: {wrong[1]}")
    assert task.data.content_key == again.data.content_key, "task.data.set: made again, its arrays differ"
    start, few = task.initial_parameters(), range(min(clients, 3))
    for client in few:
        assert np.array_equal(task.indices(client), again.indices(client)), "task.partition: made again, it differs"
    nodes = [task.for_node(f"client{client + 1}", client, lambda: 1) for client in few]
    alone = [node.local_update(start, steps=2)[0] for node in nodes]
    fused: dict[int, np.ndarray] = {}

    def piece(client: int) -> Callable[[], None]:
        node = again.for_node(f"client{client + 1}", client, lambda: 1)
        return lambda: fused.update({client: node.local_update(start, steps=2)[0]})

    again.together.run([piece(client) for client in few])
    for client in few:
        off = float(np.abs(fused[client] - alone[client]).max(initial=0.0))
        assert off <= 1e-3 * max(1.0, float(np.abs(alone[client]).max(initial=0.0))), \
            f"client {client}: trained as one with others, its update differs by {off}: what the model or the " \
            "objective makes of a sample depends on the others of its batch"
