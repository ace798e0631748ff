"""Nodes that leave and come back, crashes that wipe the state, and endless streams of faults."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from emul import engine
from emul.base import rows as R
from emul.base.errors import Deadlock, NothingToReceive
from emul.kernel import Kernel
from emul.kernel.parts import Fault, NodeCrash, NodeLeave
from emul.network import LinkRule, TopologySpec
from emul.record.journal import MemoryJournal
from emul.roles import Message, Node
from emul.scenario import Stop
from emul.scenario.faults import Crash, Leave
from emul.testing import MS, Shuffled, run_world
from emul.workers.twin import Twin


@dataclass(frozen=True)
class Word(Message):
    number: int


MESSAGES = (Word,)


async def idle(node: Node, p: Any) -> None:
    await node.sleep(0.5)


def test_what_an_absent_node_sends_or_should_get_is_lost_and_its_role_goes_on() -> None:
    async def server(node: Node, p: Any) -> None:
        for i in range(10):
            node.send(node.clients[0], Word(i))
            await node.sleep(0.01)
        await node.sleep(0.1)

    async def client(node: Node, p: Any) -> None:
        for i in range(10):
            node.send(node.server, Word(i))
            await node.sleep(0.01)

    world = run_world({"server": server, "client": client}, clients=1, faults=[Leave(25 * MS, "client1", 40 * MS)])
    lost = {(row[2], row[3]): row for row in world.rows if row[0] == R.LOST}
    # latency 10 ms: the client is away from 25 to 65 ms; it sends at 30, 40, 50, 60; what it gets was sent 10 ms ago
    assert sorted(seq for source, seq in lost if source == 1) == [3, 4, 5, 6]
    assert sorted(seq for source, seq in lost if source == 0) == [2, 3, 4, 5]
    assert lost[1, 3][1] == 40 * MS         # known when it would have come
    sent = {(row[2], row[3]): row for row in world.rows if row[0] == R.SEND}
    assert sent[1, 3][7] == 0               # no link carried it
    assert lost[1, 3][4] == -1
    assert sent[0, 2][7] > 0                # this one crossed a link, in vain
    assert [row[0] for row in world.of("client1", R.AWAY, R.BACK)] == [R.AWAY, R.BACK]
    assert len(world.of("client1", R.START)) == 1
    assert world.invariants.violations == []


def test_a_wait_without_timeout_learns_that_the_message_of_an_absent_node_is_lost() -> None:
    outcome: list[str] = []

    async def server(node: Node, p: Any) -> None:
        try:
            await node.recv(Word, node.clients[0])
        except NothingToReceive:
            outcome.append("nothing")

    async def client(node: Node, p: Any) -> None:
        node.send(node.server, Word(1))
        await node.sleep(1)

    world = run_world({"server": server, "client": client}, clients=1, faults=[Leave(0, "client1")],
                      links=[LinkRule("*", latency_ns=10 * MS)])
    # at 0 the network comes first, so that what it sends then still goes; it arrives
    assert outcome == []
    assert world.kernel.end_ns == 10 * MS


@pytest.mark.parametrize(("wipe", "kept"), [(False, [1, 2]), (True, [1, 1])])
def test_a_crash_keeps_the_state_unless_it_wipes_it(wipe: bool, kept: list[int]) -> None:
    starts: list[int] = []

    async def client(node: Node, p: Any) -> None:
        state = node.state([0])
        state[0] += 1
        starts.append(state[0])
        await node.sleep(0.3)

    run_world({"server": idle, "client": client}, clients=1, faults=[Crash(20 * MS, "client1", 10 * MS, wipe)])
    assert starts == kept


# --- streams --------------------------------------------------------------------------------------------------------

def run_with_streams(roles: Any, streams: Any, pool: Any = None, stop: Stop | None = None) -> tuple[Kernel, list[Any]]:
    """Streams are made by churn; here they are given to the kernel as they are."""
    from emul.registry import schemes
    from emul.scenario import ComputeTime, Scenario
    from emul.testing import scheme_of

    links = [LinkRule("*", latency_ns=10 * MS)]
    scenario = Scenario("test", 7, TopologySpec(generator="star", clients=2), links, [], [],
                        {}, [], ComputeTime("zero"), [("world", {})], stop or Stop(rounds=1))
    pool = pool or Twin()
    with schemes.lend("world", scheme_of(roles)):
        wiring = engine.wire(scenario, "world", {}, pool.workers, costs=engine.CostSource("zero"))
        wiring = replace(wiring, plan=replace(wiring.plan, streams=streams))
        journal = MemoryJournal(engine.header(wiring))
        finished = engine.execute(wiring, pool, journal)
    return finished.kernel, journal.rows


def in_and_out(node: int, period: int, kind: type[NodeCrash] | type[NodeLeave] = NodeLeave) -> Iterator[Fault]:
    time = 0
    while True:
        time += period
        yield kind(time, node, time + period // 2)


async def talking(node: Node, p: Any) -> None:
    for i in range(20):
        node.send(node.server, Word(i))
        await node.sleep(0.007)


@pytest.mark.parametrize("kind", [NodeLeave, NodeCrash])
def test_an_endless_stream_of_faults_ends_with_the_run(kind: Any) -> None:
    def once(pool: Any = None) -> list[Any]:
        return run_with_streams({"server": idle, "client": talking},
                                [in_and_out(1, 30 * MS, kind), in_and_out(2, 50 * MS, kind)], pool)[1]

    rows = once()
    begin = R.AWAY if kind is NodeLeave else R.CRASH
    talk = [row for row in rows if row[0] == begin and row[2] == 1]
    # who leaves has said all after 140 ms; who crashes begins anew, until the server ends
    assert [row[1] // MS for row in talk] == [*range(30, 121, 30)] if kind is NodeLeave else [*range(30, 481, 30)]
    assert all(row[1] <= 500 * MS for row in rows)
    assert once() == rows
    assert once(Shuffled(2, 3)) == rows


def test_a_stream_of_faults_does_not_hide_that_nobody_can_go_on() -> None:
    async def stuck(node: Node, p: Any) -> None:
        await node.recv_any(Word)

    with pytest.raises(Deadlock, match=r"during 100001 faults\n(.|\n)*server.*waiting since 0 s for Word"):
        run_with_streams({"server": stuck, "client": idle}, [in_and_out(1, 10 * MS)])
