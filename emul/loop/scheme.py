"""A training loop of the user's own: the server does what the loop says, and clients answer by told sizes and costs.

    synchronous     as `fedavg`: the model goes to the clients of a round, updates come until the deadline, or until the
                    fate of each is known; one that comes later is late
    asynchronous    as `fedasync` and `fedbuff`: messages belong to no round, and an update is handed over when it comes
    peers           no server: all peers send to each other, and a step ends when the fate of every message is known

The orders of the loop are results that cannot be repeated (`volatile`): they lie in the run directory, and a replay, or
a run on another network, takes them from there. Nothing is learned here: arrays travel, and nobody looks at them.

Bytes: those of the arrays that the loop gives, encoded, or those that it declares; and a header of about 30.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np

from emul.base.errors import ProtocolFailure, ProtocolViolation, RoleError, TimedOut
from emul.base.names import listed
from emul.base.plain import PlainDict
from emul.loop.caller import NO_MODEL, Caller, Came, LoopAnswer, Mode, Orders, PeerStep, Step, current
from emul.loop.payload import LoopPayload
from emul.roles import Declared, Message, Node, Octets, Scheme, World
from emul.roles.evaluation import constant
from emul.roles.job import Elapsed

_SHOWN = 5


@dataclass(frozen=True)
class Params:
    mode: Mode = "synchronous"          # who waits for whom; as `emul.Clock` has it


@dataclass(frozen=True)
class Model(Message):
    """Server to client."""

    content: Octets                     # what the loop sends, encoded; empty where it declares a size
    declared: Declared
    batch: int                          # of the loop's sendings, from FIRST_BATCH: 5 bytes in all of a run


@dataclass(frozen=True)
class Update(Message):
    """Client to server."""

    content: Octets
    declared: Declared
    batch: int


@dataclass(frozen=True)
class Exchanged(Message):
    """Peer to peer."""

    content: Octets
    declared: Declared


@dataclass(frozen=True)
class Through(Message):
    """Never sent: that no peer sends it in a step says that it is through with the step."""


class RoundAbandoned(ProtocolFailure):
    """The loop has left its round by an exception."""


class ClientWork(NamedTuple):
    """A client's work on one message. takes_s: seconds that the loop states; None: the file's `compute` says it."""

    label: str
    cpu_ns: int
    takes_s: float | None
    down: LoopPayload
    up: LoopPayload


@dataclass
class SharedOrders:
    """The orders of one run, as all its roles know them: they are in one process."""

    caller: Caller | None
    work: dict[tuple[int, int], ClientWork] = field(default_factory=dict)     # (batch, node) -> what it does


_runs: dict[int, SharedOrders] = {}             # by the World of a run, which is one object


def shared(world: World) -> SharedOrders:
    """The orders of this run."""
    found = _runs.get(id(world))
    if found is None:
        found = _runs[id(world)] = SharedOrders(current())
        weakref.finalize(world, _runs.pop, id(world), None)
    return found


def works_of(step: Step, contents: Sequence[tuple[np.ndarray | None, np.ndarray | None]]) -> dict[int, ClientWork]:
    """Client -> its work. contents: down and up of each, as far as the loop gave arrays."""
    rows, labels = step.loads.tolist(), step.labels
    each = contents or [(None, None)] * len(rows)
    return {node: ClientWork(labels[label], cpu, None if takes < 0 else takes,
                             LoopPayload(down, bool(down_declared), below), LoopPayload(up, bool(up_declared), above))
            for (node, cpu, label, down, down_declared, up, up_declared), takes, (below, above)
            in zip(rows, step.takes_s.tolist(), each, strict=True)}


def computed(node: Node, label: str, cpu_ns: int, takes_s: float | None) -> Awaitable[None]:
    """Charge a computation that the loop has done before to this node: with the time that it took, or is said to take.
    """
    return node.compute(label, Elapsed(cpu_ns if takes_s is None else 0), cost_s=takes_s)


# --- the server -----------------------------------------------------------------------------------------------------

async def server(node: Node, p: Params) -> None:
    host = Host(node, p.mode)
    if await host.play():
        return
    async for round_ in node.rounds():
        with round_:
            await host.play()
        if await host.play():
            return


class Host:
    """The server's side of a loop. Orders are taken one after the other; those that need an answer wait for it."""

    def __init__(self, node: Node, mode: Mode):
        self._node, self._shared = node, shared(node.world)
        self._steps: deque[Step] = deque()
        self._cohort: list[int] = []                            # the clients of the last sending
        self._answer = LoopAnswer()
        self._synchronous = mode == "synchronous"
        self._asked: dict[tuple[int, int], int] = {}            # of asynchronous loops: (batch, client) -> its round
        self._came: list[Came] = []                          # what nobody has taken yet, in the order of arrival

    async def play(self) -> bool:
        """Follow the orders until a round begins or ends (False), or the loop has ended (True)."""
        while True:
            if not self._steps:
                await self._ask()
            step = self._steps.popleft()
            if step.kind in ("begin", "finish"):
                return step.kind == "finish"
            if step.kind == "leave":
                if step.text:
                    raise RoundAbandoned(step.text)
                return False
            await self._follow(step)

    async def _ask(self) -> None:
        node = self._node
        self._answer.now_ns = node.now_ns
        orders: Orders = await node.compute("loop", next_orders, self._shared.caller, node.round, self._answer,
                                            volatile=True, cost_s=0.0)
        must_have_heard(node, orders.heard.tolist(), [one.node for one in self._answer.came], orders.after,
                        orders.ordered)
        self._steps.extend(orders.steps)
        self._answer = LoopAnswer()

    async def _follow(self, step: Step) -> None:
        node = self._node
        if step.kind == "compute":
            (work,) = works_of(step, ()).values()
            await computed(node, work.label, work.cpu_ns, work.takes_s)
        elif step.kind == "report":
            report(node, step.values, step.model)
        elif step.kind == "send":
            self._send(step)
        elif step.kind == "gather":
            gather = self._gather if self._synchronous else self._gather_asked
            self._answer.came = await gather(step)
        elif step.kind == "next":
            self._answer.came = await self._next(step)
        elif step.kind == "late":
            while await self._comes(0):
                pass
            self._answer.came, self._came = self._came, []

    def _send(self, step: Step) -> None:
        """One message for each load, in the order of the loop: the same load for many clients is encoded once."""
        node = self._node
        contents = self._shared.caller.loads.pop(step.batch, ()) if self._shared.caller else ()
        works = works_of(step, contents)
        self._cohort = list(works)
        groups: dict[tuple[int, int, bool], list[int]] = {}
        for client, work in works.items():
            self._shared.work[step.batch, client] = work
            if not self._synchronous:
                self._asked[step.batch, client] = node.round
            content = work.down.content
            groups.setdefault((work.down.bytes, 0 if content is None else id(content), work.down.declares), []
                              ).append(client)
        for clients in groups.values():
            content, declared = works[clients[0]].down.fields()
            message = Model(content, declared, step.batch)
            node.broadcast(clients, self._scoped(message))

    def _scoped(self, message: Message) -> Message:
        return message if self._synchronous else unscoped(message)

    async def _gather(self, step: Step) -> list[Came]:
        """The clients whose updates have come, as `fedavg` waits for them."""
        node, came = self._node, list[int]()

        def accept(update: Update) -> None:             # in the order of arrival, which `gather` does not tell
            must_be_asked(update.batch == step.batch)
            came.append(update.sender)
        await node.gather(Update, self._cohort, timeout_s=step.limit, need=step.first or None, accept=accept)
        return [Came(client, node.round, node.now_ns) for client in came]

    async def _gather_asked(self, step: Step) -> list[Came]:
        """The same in an asynchronous loop: others that come meanwhile wait to be taken."""
        node = self._node
        until_ns = node.now_ns + round((step.limit or 0) * 1e9)
        need, came = step.first or len(self._cohort), list[Came]()
        while len(came) < need and (update := await self._comes(until_ns)):
            if update.batch == step.batch:
                came.append(self._came.pop())
        return came

    async def _next(self, step: Step) -> list[Came]:
        """The update that comes next; none, if none comes in time."""
        node = self._node
        until_ns = node.now_ns + round((step.limit or 0) * 1e9)
        if not self._came:
            await self._comes(until_ns)
        return [self._came.pop(0)] if self._came else []

    async def _comes(self, until_ns: int) -> Update | None:
        """Note the update of an asynchronous loop that comes next; None: none comes until then."""
        node = self._node

        def asked(update: Update) -> None:
            must_be_asked((update.batch, update.sender) in self._asked)
        try:
            update = await node.recv_any(Update, timeout_s=max(0, until_ns - node.now_ns) / 1e9, accept=asked)
        except TimedOut:
            return None
        self._came.append(Came(update.sender, self._asked.pop((update.batch, update.sender)), node.now_ns))
        return update


def report(node: Node, values: PlainDict, model: np.ndarray = NO_MODEL) -> None:
    """Report the values; accuracy and loss count as an evaluation. model: (d,) float32 to be kept; (0,): none."""
    found: PlainDict = {name: values[name] for name in ("accuracy", "loss") if name in values}
    others = {name: value for name, value in values.items() if name not in found}
    if found or model.size:
        node.report(model if model.size else np.array(list(found.values()), np.float32),
                    evaluate=partial(constant, found), **others)
    else:
        node.report(**others)


def must_be_asked(holds: bool) -> None:
    """For `accept`. Raises ProtocolViolation: the loop has not asked for it, or it has come already."""
    if not holds:
        raise ProtocolViolation("batch: nothing that the loop has asked for")


def unscoped(message: Message) -> Message:
    """It belongs to no round: it is never late."""
    object.__setattr__(message, "unscoped", True)
    return message


def next_orders(caller: Caller | None, round_: int, answer: LoopAnswer) -> Orders:
    """The next orders of the loop, which is told the answer to its last. Raises RoleError: there is no loop."""
    return loop_of(caller, round_).orders(answer)


def loop_of(caller: Caller | None, round_: int) -> Caller:
    """The loop that says what happens next. Raises RoleError: there is none, or its record has ended."""
    if caller is None:
        raise RoleError("a loop says what happens next, and there is none here: emul.Clock in a program runs one "
                        "(docs/own-loop.md); --what-if RUN takes the record of one" if not round_ else
                        f"the record of the loop ends in round {round_}: its program was interrupted there, or has "
                        "failed; run the program again")
    return caller


def must_have_heard(node: Node, before: Sequence[int], heard: Sequence[int], after: str, ordered: bool = False) -> None:
    """Orders are those of a loop that has heard the same nodes. Raises RoleError: it would have decided otherwise."""
    if sorted(heard) == sorted(before) and (not ordered or list(heard) == list(before)):
        return
    then, now = (listed([node.world.names[k] for k in nodes], _SHOWN) or "nobody" for nodes in (before, heard))
    raise RoleError(f"{after} of round {node.round}: the loop has heard {then}, and on this network it hears {now}: "
                    "its next decision is not known; run the loop itself on this network")


# --- a client -------------------------------------------------------------------------------------------------------

async def client(node: Node, p: Params) -> None:
    known = shared(node.world)

    def asked(model: Model) -> None:
        must_be_asked((model.batch, node.id) in known.work)
    if p.mode == "synchronous":
        async for round_ in node.rounds(of=node.server):
            with round_:
                message = await node.recv(Model, node.server, accept=asked)
                work = known.work.pop((message.batch, node.id))
                await computed(node, work.label, work.cpu_ns, work.takes_s)
                node.send(node.server, Update(*work.up.fields(), message.batch))
    else:
        async for round_ in node.rounds():
            with round_:
                message = await node.recv_any(Model, accept=asked)
                work = known.work.pop((message.batch, node.id))
                await computed(node, work.label, work.cpu_ns, work.takes_s)
                node.send(node.server, unscoped(Update(*work.up.fields(), message.batch)))


# --- a peer ---------------------------------------------------------------------------------------------------------

async def peer(node: Node, p: Params) -> None:
    known, came, others = shared(node.world), list[int](), node.peers
    step = await next_step(node, known, came)
    if step.ends:
        return
    async for round_ in node.rounds():
        with round_:
            await computed(node, step.label, step.cpu_ns, None if step.takes_s < 0 else step.takes_s)
            send_to_peers(node, step, known.caller.sends.pop(node.id, {}) if known.caller else {})
            came = await heard_of(node, step)
            if known.caller is not None:
                known.caller.heard[node.id] = came
            # Nobody sends `Through`, and each peer says so when it is through: when it knows that of all, the step has
            # ended. So a barrier costs no bytes, and takes the least latency (`test_a_step_of_peers_ends_at_a_barrier`)
            node.abstain(others, Through)
            await node.gather(Through, others)
            step = await next_step(node, known, came)
            if step.values:
                report(node, step.values)
        if step.ends:
            return


async def next_step(node: Node, known: SharedOrders, came: Sequence[int]) -> PeerStep:
    step: PeerStep = await node.compute("loop", exchange_of, known.caller, node.id, node.round, node.now_ns,
                                        volatile=True, cost_s=0.0)
    must_have_heard(node, step.heard.tolist(), came, f"exchange {node.round}")
    return step


def exchange_of(caller: Caller | None, node: int, done: int, now_ns: int) -> PeerStep:
    """The step of this peer after `done` exchanges. Raises RoleError: there is no loop."""
    return loop_of(caller, done).peer_step(node, done + 1, now_ns)


def send_to_peers(node: Node, step: PeerStep, contents: Mapping[int, np.ndarray]) -> None:
    """One message for each load: the same load for several peers is encoded once."""
    groups: dict[tuple[int, int, int], list[int]] = {}
    for target, size, declares in step.sends.tolist():
        content = contents.get(target)
        groups.setdefault((size, declares, 0 if content is None else id(content)), []).append(target)
    for (size, declares, _), targets in groups.items():
        node.broadcast(targets, Exchanged(*LoopPayload(size, bool(declares), contents.get(targets[0])).fields()))


async def heard_of(node: Node, step: PeerStep) -> list[int]:
    """The peers whose messages have come, in the order of arrival."""
    came = list[int]()

    def accept(message: Exchanged) -> None:
        came.append(message.sender)
    await node.gather(Exchanged, step.sources.tolist(), timeout_s=step.limit, accept=accept)
    return came


def without(params: Params) -> Sequence[str]:
    """The roles that a loop of this mode has not."""
    return ("server", "client") if params.mode == "peers" else ("peer",)


SCHEME = Scheme(
    params=Params, roles={"server": server, "client": client, "peer": peer}, places={"peer": "peer | client"},
    without=without, messages=(Model, Update, Exchanged, Through), deterministic=False,
    results=(Step, Orders, PeerStep), guided=True, accuracy="loop")
