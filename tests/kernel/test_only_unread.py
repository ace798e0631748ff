"""A node that enters its round and waits for nothing but the message that has brought it there goes on at once: one
event and one answer in place of two, and the run is the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec import structs

from emul.base import rows as R
from emul.base.errors import ProtocolViolation, TimedOut
from emul.kernel import rounds, waits
from emul.network import LinkRule
from emul.roles import Message, Node
from emul.roles.events import Computed, Drop, Entered, Event, Ready, Ref, Unread, Wait
from emul.scenario import Crash, Stop
from emul.testing import MS, Ran, Shuffled, run_world
from emul.workers.setup import Setup


@dataclass(frozen=True)
class Task(Message):
    body: bytes


@dataclass(frozen=True)
class Done(Message):
    number: int


@dataclass(frozen=True)
class Hint(Message):
    number: int


MESSAGES = (Task, Done, Hint)
ROUNDS, CLIENTS = 3, 4


async def server(node: Node, p: Any) -> None:
    async for round_ in node.rounds():
        with round_:
            node.broadcast(node.clients, Task(bytes(2000)))
            await node.gather(Done, node.clients)


async def client(node: Node, p: Any) -> None:
    async for round_ in node.rounds(of=node.server):
        with round_:
            body = (await node.recv(Task, node.server)).body
            node.send(node.server, Done(await node.compute("count", len, body)))


class Posted(Shuffled):
    """Keeps what the kernel posts."""

    def __init__(self, workers: int) -> None:
        super().__init__(workers, 1)
        self.posted: list[Event] = []

    def post(self, worker: int, event: Event) -> None:
        self.posted.append(event)
        super().post(worker, event)

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.posted if type(event) is kind]


class Untrained(Posted):
    """Its workers are those of a run under `training: skip`."""

    def open(self, setups: Sequence[Setup]) -> None:
        super().open([structs.replace(setup, trains=False) for setup in setups])


def ran(workers: int, client: Any = client, server: Any = server, faults: Sequence[Any] = (),
        of: type[Posted] = Posted, latency_ns: int = 10 * MS, **costs: float) -> tuple[Ran, Posted]:
    pool = of(workers)
    world = run_world({"server": server, "client": client}, clients=CLIENTS, pool=pool, stop=Stop(rounds=ROUNDS),
                      faults=faults, links=[LinkRule("*", latency_ns=latency_ns)], costs=costs or None)
    assert world.invariants.violations == []
    return world, pool


def readies_of_clients(pool: Posted) -> int:
    return sum(event.node != 0 for event in pool.of(Ready))


def told_one_by_one(monkeypatch: pytest.MonkeyPatch, **how: Any) -> tuple[Ran, Posted]:
    """The same run, where nobody is told what lies in its inbox."""
    with monkeypatch.context() as patch:
        patch.setattr(rounds, "only_unread", lambda kernel, node: None)
        return ran(2, **how)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_one_event_tells_of_the_round_and_of_its_message_and_nothing_else_changes(
        workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    before, slow = told_one_by_one(monkeypatch)
    world, pool = ran(workers)
    assert world.digest == before.digest
    assert world.kernel.activations == before.kernel.activations
    assert readies_of_clients(slow) == ROUNDS * CLIENTS
    assert readies_of_clients(pool) == 0


def test_frames_that_nobody_knew_to_be_read_for_the_last_time_are_dropped() -> None:
    _, pool = ran(2)
    assert len(pool.of(Drop)) == ROUNDS * 2             # one payload a round, in two workers
    assert not any(len(core._payloads) for core in pool._cores)
    assert not any(pool._outboxes)


def test_what_is_refused_is_waited_for_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(task: Task) -> None:
        raise ProtocolViolation("no")

    async def refusing(node: Node, p: Any) -> None:
        async for round_ in node.rounds(of=node.server):
            with round_:
                await node.recv(Task, node.server, accept=refuse)

    before, _ = told_one_by_one(monkeypatch, client=refusing)
    world, _ = ran(2, client=refusing)
    assert world.digest == before.digest
    assert len([row for row in world.rows if row[0] == R.REJECT]) == ROUNDS * CLIENTS


async def waiting_for_another(node: Node, p: Any) -> None:
    async for round_ in node.rounds(of=node.server):
        with round_:
            await node.gather(Done, [1], timeout_s=0.001)       # nobody sends it
            node.send(node.server, Done(1))


async def sending_first(node: Node, p: Any) -> None:
    async for round_ in node.rounds(of=node.server):
        with round_:
            node.send(node.server, Hint(int(round_)))
            await node.recv(Task, node.server)
            node.send(node.server, Done(1))


async def waiting_twice(node: Node, p: Any) -> None:
    async for round_ in node.rounds(of=node.server):
        with round_:
            await node.recv(Task, node.server)
            node.send(node.server, Done(int(round_)))
            await node.sleep(0.001)


@pytest.mark.parametrize("client", [waiting_for_another, sending_first, waiting_twice])
def test_whatever_a_role_does_first_the_run_is_the_same(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before, _ = told_one_by_one(monkeypatch, client=client)
    world, pool = ran(2, client=client)
    assert world.digest == before.digest
    assert any(event.unread for event in pool.of(Entered))


def test_nobody_goes_on_at_once_where_a_fault_could_come_between() -> None:
    _, pool = ran(2, faults=[Crash(at_ns=10 * MS, node="client2", for_ns=25 * MS)])
    assert not any(event.unread for event in pool.of(Entered))
    assert readies_of_clients(pool) > 0


# ---- one that reads message after message ----

HINTS = 5                               # of each client, at one instant


async def hinting(node: Node, p: Any) -> None:
    async for round_ in node.rounds(of=node.server):
        with round_:
            await node.recv(Task, node.server)
            node.send(node.server, Done(node.id))
            for number in range(HINTS):
                node.send(node.server, Hint(number))


def reader(kinds: tuple[type[Any], ...] = (Hint,), *, refuses: int = -1, computes: int = 0, count: int = 0) -> Any:
    """A server that reads `count` messages of these types, computes after so many, and refuses hints of a number."""
    async def read(node: Node, p: Any) -> None:
        def accept(message: Any) -> None:
            if isinstance(message, Hint) and message.number == refuses:
                raise ProtocolViolation("no")

        async for round_ in node.rounds():
            with round_:
                node.broadcast(node.clients, Task(bytes(2000)))
                seen = []
                try:
                    for number in range(count or CLIENTS * HINTS):
                        message = await node.recv_any(*kinds, timeout_s=0.1, accept=accept)
                        seen.append((message.sender, getattr(message, "number", -1)))
                        if computes and not (number + 1) % computes:
                            await node.compute("count", len, seen)
                except TimedOut:
                    seen.append((0, 0))
                node.report(seen=str(seen))
    return read


def asked_each_time(monkeypatch: pytest.MonkeyPatch, **how: Any) -> tuple[Ran, Posted]:
    """The same run, where nobody is told what lies behind the message that it gets."""
    with monkeypatch.context() as patch:
        patch.setattr(waits, "_unread_behind", lambda kernel, node: [])
        return ran(2, client=hinting, **how)


@pytest.mark.parametrize("server", [
    reader(), reader((Hint, Done)), reader(refuses=2), reader(computes=3), reader((Hint, Done), refuses=1, computes=4),
    reader((Done,), count=CLIENTS), reader(count=7), reader((), count=9)])
def test_one_that_reads_message_after_message_is_asked_less_often_and_nothing_else_changes(
        server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before, slow = asked_each_time(monkeypatch, server=server)
    for workers in (1, 3):
        world, pool = ran(workers, client=hinting, server=server)
        assert world.digest == before.digest
        assert world.kernel.activations == before.kernel.activations
        assert len(pool.of(Ready)) < len(slow.of(Ready))
        assert not any(len(core._payloads) for core in pool._cores)
        assert not any(pool._outboxes)


def test_one_that_reads_is_asked_each_time_where_a_fault_could_come_between() -> None:
    _, pool = ran(2, client=hinting, server=reader(), faults=[Crash(at_ns=10 * MS, node="client2", for_ns=25 * MS)])
    assert not any(event.unread for event in pool.of(Ready))


async def computing_twice(node: Node, p: Any) -> None:
    async for round_ in node.rounds(of=node.server):
        with round_:
            body = (await node.recv(Task, node.server)).body
            count = await node.compute("count", len, body)
            node.send(node.server, Done(await node.compute("double", int.__add__, count, count)))


def computed(pool: Posted) -> int:
    return sum(event.node != 0 for event in pool.of(Computed))


@pytest.mark.parametrize(("role", "computes"), [
    (client, True), (computing_twice, True), (waiting_twice, False), (waiting_for_another, False)])
def test_without_training_a_role_goes_on_after_what_takes_no_time_and_nothing_else_changes(
        role: Any, computes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    before, slow = told_one_by_one(monkeypatch, client=role)
    world, pool = ran(2, client=role, of=Untrained)
    assert world.digest == before.digest
    assert world.kernel.activations == before.kernel.activations
    assert (computed(slow) > 0) is computes
    assert computed(pool) == 0


@pytest.mark.parametrize("how", [{"latency_ns": 0}, {"count": 0.001}])
def test_it_does_not_where_its_round_could_be_over_before(how: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before, _ = told_one_by_one(monkeypatch, **how)
    world, pool = ran(2, of=Untrained, **how)
    assert world.digest == before.digest
    assert computed(pool) == ROUNDS * CLIENTS


@pytest.mark.parametrize(("wait", "found"), [
    (Wait(["Task"], [3], 1, -1, ""), True),
    (Wait([], [3], 1, -1, ""), True),
    (Wait(["Hint", "Task"], None, 1, 5, ""), True),
    (Wait(["Hint"], [3], 1, -1, ""), False),
    (Wait(["Task"], [2], 1, -1, ""), False),
    (Wait(["Task"], [2, 3], 2, -1, ""), False),
    (Wait([], [], 0, 5, ""), False),                    # a sleep takes nothing
])
def test_a_wait_is_answered_by_the_only_message_if_that_is_all_it_asks_for(wait: Wait, found: bool) -> None:
    assert Unread("Task", Ref(3, 0, False)).answers(wait) is found
