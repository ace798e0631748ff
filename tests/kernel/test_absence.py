"""Nodes that leave and come back, crashes that wipe the state, and endless streams of faults."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emul import engine
from emul.base import rows as R
from emul.base.errors import Deadlock, NothingToReceive
from emul.kernel import Kernel
from emul.kernel.calendar import FAR
from emul.kernel.fates import departure_known_at
from emul.kernel.parts import Fault, KNode, NodeCrash, NodeLeave, Patience
from emul.network import LinkRule, TopologySpec
from emul.record.journal import MemoryJournal
from emul.roles import Message, Node
from emul.roles.events import Wait
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


# --- searches among what has been -------------------------------------------------------------------------------------

SPANS = st.lists(st.integers(1, 40), max_size=8, unique=True).map(sorted).map(
    lambda times: list(zip(times[::2], times[1::2], strict=False)))
LATENCY = SimpleNamespace(latency_ns=lambda u, v: 5)


def departure(source: KNode, round_: int = 0, since: int = 0) -> int | None:
    """When a server in this round knows that it waits in vain for the source."""
    server = KNode(0, "server", "server", 0, 0, 5)
    server.round, server.in_round = round_, bool(round_)
    return departure_known_at([server, source], LATENCY, server, Patience(Wait([], [1], 1, -1, ""), since), 1)


@given(SPANS, st.booleans(), st.integers(0, 50))
def test_the_absence_that_a_wait_sees_is_the_first_that_has_not_ended_by_its_beginning(
        spans: list[tuple[int, int]], for_good: bool, since: int) -> None:
    source = KNode(1, "client1", "client", 1, 0, 5)
    downs = [(begin, None if for_good and end == spans[-1][1] else end) for begin, end in spans]
    for down in downs:
        source.go_down(*down)
    seen = [max(begin + 5, since) for begin, end in downs if end is None or end + 5 > since]
    assert departure(source, since=since) == min(seen, default=None)


@given(SPANS, st.lists(st.tuples(st.integers(1, 40), st.integers(0, 10), st.integers(0, 9)), max_size=12),
       st.lists(st.integers(1, 40), max_size=3).map(sorted), st.integers(1, 45))
def test_a_round_is_left_since_the_first_reason_of_all(
        spans: list[tuple[int, int]], skipped: list[tuple[int, int, int]], entered: list[int], round_: int) -> None:
    source = KNode(1, "client1", "client", 1, 0, 5)
    source.spans = spans
    ends = [0, *(end for span in spans for end in span), FAR]
    implied = [(left + 1, joined - 1, 0) for left, joined in zip(ends[::2], ends[1::2], strict=True)] if spans else []
    departures = []
    for low, length, since in skipped:
        source.skip(low, low + length, since)
        implied.append((low, low + length, since))
    for number in entered:
        source.enter_behind(number)
        source.round = source.left = number
        source.depart(number, 50 + number)
        departures.append((number, 50 + number))
        implied = [(low, high, since) for low, high, since in implied if high > number]
    left = [since for low, high, since in implied if low <= round_ <= high]
    left += [since for upto, since in departures if upto >= round_][:1]
    assert departure(source, round_) == (min(left) + 5 if left else None)


def test_the_work_of_a_wait_does_not_grow_with_the_absences_before_it() -> None:
    looks = 0

    class Long(list[Any]):
        def __getitem__(self, place: Any) -> Any:
            nonlocal looks
            looks += 1
            return super().__getitem__(place)

        def __iter__(self) -> Iterator[Any]:
            raise AssertionError("each of 100,000 is looked at")

    source = KNode(1, "client1", "client", 1, 0, 5)
    source.downs = Long((2 * time, 2 * time + 1) for time in range(100_000))
    source.spans = Long((2 * round_, 2 * round_) for round_ in range(1, 100_000))
    source.departures = Long((round_, 2 * round_) for round_ in range(1, 100_000))
    source.left = 100_000
    for round_ in range(1, 100_001):
        source.skip(1, round_, round_)
    assert len(source.skipped) == 1
    source.skipped[0].highs, source.skipped[0].sinces = Long(source.skipped[0].highs), Long(source.skipped[0].sinces)
    assert departure(source, 77_776, 150_000) == 77_781
    assert looks < 120
