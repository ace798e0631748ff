"""`node.sent`: when the last byte of a message has left its sender, over every kind of link."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emul.base import rows as R
from emul.base.errors import Deadlock, RoleFailed
from emul.message.wire import ENVELOPE_BYTES, encode
from emul.network import LinkRule, OutageSpec, TopologySpec
from emul.network.links.features import Queue, Switching
from emul.network.models.contacts import ContactSpec
from emul.roles import Declared, Message, Node
from emul.scenario import Crash, LinkDown, LinkSet, Stop
from emul.scenario.faults import Leave
from emul.testing import MS, Ran, Shuffled, drive, run_world

LATENCY = 100                       # ms
RATE = 8_000_000                    # bit/s: a byte a microsecond


@dataclass(frozen=True)
class Load(Message):
    body: Declared


MESSAGES = (Load,)
HALF = 500_000 - encode(Load(Declared(500_000))).size + 500_000 - ENVELOPE_BYTES       # with it a load takes 0.5 s
LINK = LinkRule("*", latency_ns=LATENCY * MS, bandwidth_bps=RATE)


def load() -> Load:
    return Load(Declared(HALF))


def world(client: Callable[..., Any], *rules: LinkRule, **how: Any) -> Ran:
    """Two clients, each linked to the other."""
    async def server(node: Node, p: Any) -> None:
        await node.sleep(60.0)
    ran = run_world({"server": server, "client": client}, **{
        "topology": TopologySpec(generator="star_mesh", clients=2), "links": (LINK, *rules), **how})
    assert not ran.invariants.violations
    return ran


def left(*rules: LinkRule, loads: int = 1, **how: Any) -> tuple[list[float], list[float]]:
    """Seconds at which loads have left the first client, one asked for after the other; and at which they came."""
    gone, came = [], []

    async def client(node: Node, p: Any) -> None:
        other = node.peers[0]
        if node.index:
            while True:
                await node.recv_any(Load)
                came.append(round(node.now, 6))
        for _ in range(loads):
            node.send(other, load())
            await node.sent(other)
            gone.append(round(node.now, 6))
        await node.sleep(30.0)
    world(client, *rules, **how)
    return gone, came


FAR_FAULT = LinkSet(50_000 * MS, "server", "client1", bandwidth_bps=1)      # then links are no longer `direct`


@pytest.mark.parametrize("faults", [(), (FAR_FAULT,)], ids=["known at the offer", "asked again"])
def test_a_message_has_left_when_its_last_byte_has_been_transmitted(faults: Any) -> None:
    assert left(loads=3, faults=faults) == ([0.5, 1.0, 1.5], [0.6, 1.1, 1.6])


def test_a_lost_message_leaves_as_any_other() -> None:
    assert left(LinkRule("client1->client2", outage=OutageSpec(1.0, "message")), loads=2) == ([0.5, 1.0], [])


def test_a_flow_has_left_when_it_has_arrived() -> None:
    assert left(LinkRule("*", sharing="maxmin"), loads=2) == ([0.6, 1.2], [0.6, 1.2])


def test_of_a_link_in_packets_the_last_one_counts() -> None:
    assert left(LinkRule("*", switching=Switching("packetized", 1000)), loads=2)[0] == [0.5, 1.0]


def test_what_the_queue_drops_has_left_at_once() -> None:
    async def client(node: Node, p: Any) -> None:
        if not node.index:
            for _ in range(3):
                node.send(node.peers[0], load())
            await node.sent(node.peers[0])
            gone.append(node.now)
        await node.sleep(5.0)
    gone: list[float] = []
    world(client, LinkRule("*", queue=Queue(600_000)))
    assert gone == [0.0]


def test_a_slower_link_a_faster_one_and_one_that_stands_still() -> None:
    """At 0.25 s half of the first load has left."""
    def changed(**what: Any) -> LinkSet:
        return LinkSet(250 * MS, "client1", "client2", **what)
    assert left(faults=(changed(bandwidth_bps=RATE // 2),))[0] == [0.75]
    assert left(faults=(changed(bandwidth_bps=RATE * 2),))[0] == [0.375]
    down = LinkDown(250 * MS, "client1", "client2", 1000 * MS, inflight="pause")
    assert left(faults=(down,), loads=2)[0] == [1.5, 2.0]
    dropped = LinkDown(250 * MS, "client1", "client2", 1000 * MS)
    assert left(faults=(dropped,), loads=2) == ([0.5, 1.0], [])


def test_the_first_link_of_the_way_counts() -> None:
    """Over the server, with a second link of a tenth of the rate."""
    slow = LinkRule("server->client2", bandwidth_bps=RATE // 10)
    gone, came = left(slow, loads=2, topology=TopologySpec(generator="star", clients=2))
    assert gone == [0.5, 1.0]
    assert came == [5.7, 10.7]


PLAN = """start_s,end_s,source,destination,rate_mbps,latency_ms
0,0.2,client1,client2,8,10
2,9,client1,client2,8,10
0,60,client1,server,4,10
0,60,server,client2,8,10
"""


@pytest.mark.parametrize(("gap", "gone", "came"), [
    ("hold", [1.0, 2.5, 3.0], [1.52, 2.51, 3.01]),
    ("again", [1.01, 2.51, 3.02], [1.52, 2.51, 3.02])])         # a contact may give it back until it has arrived
def test_where_routes_depend_on_the_time(tmp_path: Path, gap: Any, gone: list[float], came: list[float]) -> None:
    """Over the server with half of the rate, then directly as soon as that is earlier."""
    (tmp_path / "plan.csv").write_text(PLAN)
    assert left(loads=3, contacts=ContactSpec(tmp_path / "plan.csv", gap=gap, routes="earliest")) == (gone, came)


def test_nothing_under_way_has_left_at_once() -> None:
    noted: list[tuple[str, float]] = []

    async def client(node: Node, p: Any) -> None:
        other = node.peers[0]
        if node.index:
            await node.sleep(30.0)
            return
        await node.sent(other)
        noted.append(("never sent", node.now))
        node.send(node.id, load())
        await node.sent(node.id)
        noted.append(("to itself", node.now))
        node.send(other, load())
        await node.sleep(2.0)
        await node.sent(other)
        noted.append(("arrived", node.now))
        await node.sleep(8.0)
        for _ in range(2):
            node.send(other, load())
            await node.sent(other)
        noted.append(("away", node.now))
    for rules in ((), (LinkRule("*", sharing="maxmin"),)):
        noted.clear()
        world(client, *rules, faults=(Leave(9_000 * MS, "client1"),))
        assert noted == [("never sent", 0.0), ("to itself", 0.0), ("arrived", 2.0), ("away", 10.0)]


def test_activities_wait_while_the_role_goes_on() -> None:
    noted: list[tuple[str, float]] = []

    async def client(node: Node, p: Any) -> None:
        async def first() -> None:
            node.send(node.peers[0], load())
            await node.sent(node.peers[0])
            noted.append(("first", node.now))

        async def second() -> None:
            node.send(node.peers[0], load())
            await node.sent(node.peers[0])
            noted.append(("second", node.now))
        if not node.index:
            started = [node.start(first()), node.start(second())]
            await node.compute("train", sum, (1, 2), cost_s=0.7)
            noted.append(("train", node.now))
            node.cancel(started[1])
        await node.sleep(3.0)
    world(client)
    assert noted == [("first", 0.5), ("train", 0.7)]


def test_a_round_that_is_over_ends_the_wait() -> None:
    async def server(node: Node, p: Any) -> None:
        async for round_ in node.rounds():
            with round_:
                node.broadcast(node.clients, Load(Declared(0)))
                await node.sleep(0.2)

    async def client(node: Node, p: Any) -> None:
        async for round_ in node.rounds(of=node.server):
            with round_:
                node.send(node.server, load())
                await node.sent(node.server)
    ran = run_world({"server": server, "client": client}, clients=1, links=(LINK,), stop=Stop(rounds=2))
    assert [row[4] for row in ran.of("client1", R.LEAVE)][:1] == ["a later round has begun"]


def test_a_deadlock_tells_of_it() -> None:
    async def client(node: Node, p: Any) -> None:
        if not node.index:
            node.send(node.peers[0], load())
            await node.sent(node.peers[0])
        else:
            await node.recv_any(Load)
    down = LinkDown(0, "client1", "client2", inflight="pause")
    with pytest.raises(Deadlock, match=r"client1 \(client\): waiting since 0 s until what it sends has left "
                                       r"\(test_sent.py:\d+\)"):
        world(client, faults=(down,), topology=TopologySpec(generator="star_mesh", clients=2), decides="client")


def test_a_node_that_is_not_there_is_told() -> None:
    async def client(node: Node, p: Any) -> None:
        await node.sent(7)
    with pytest.raises(RoleFailed, match=r"test_sent.py:\d+: there is no node 7: nodes are 0 to 2"):
        world(client)


def test_without_a_network_it_has_left_at_once() -> None:
    async def peer(node: Node, p: Any) -> None:
        async def beside() -> None:
            node.send(2, Load(Declared(9)))
            await node.sent(2)
        activity = node.start(beside())
        node.send(1, Load(Declared(9)))
        await node.sent(1)
        await activity
    assert drive(peer, roles={"peer": [0, 1, 2]}).ended == ""


# --- determinism ----------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Do:
    what: str
    who: int = 0
    time: int = 0
    beside: bool = False


async def perform(node: Node, do: Do) -> None:
    other = node.peers[do.who % len(node.peers)]
    if do.what == "send":
        node.send(other, Load(Declared(do.time * 1000)))
    elif do.what == "sleep":
        await node.sleep(do.time / 1e3)
    else:
        await node.sent(other)


async def member(node: Node, p: Any, programs: list[tuple[Do, ...]]) -> None:
    for do in programs[node.index % len(programs)]:
        if do.beside:
            node.start(perform(node, do))
        else:
            await perform(node, do)
    await node.sleep(0.05)


dos = st.builds(Do, st.sampled_from(["send", "send", "sleep", "sent", "sent"]), st.integers(0, 2),
                st.sampled_from([0, 1, 5, 20]), st.booleans())
programs = st.lists(st.lists(dos, max_size=6).map(tuple), min_size=1, max_size=3)
kinds = st.sampled_from([(), (LinkRule("*", sharing="maxmin"),),
                         (LinkRule("*", switching=Switching("packetized", 1000)),),
                         (LinkRule("*", queue=Queue(9000)),)])
faults = st.lists(st.one_of(
    st.builds(Crash, st.integers(0, 40).map(lambda ms: ms * MS), st.just("client1"), st.just(5 * MS)),
    st.builds(LinkDown, st.integers(0, 40).map(lambda ms: ms * MS), st.just("client2"), st.just("client1"),
              st.just(7 * MS))), max_size=2, unique_by=type).map(tuple)
quick = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def drawn(programs: list[tuple[Do, ...]], rules: Any, faults: Any, latency: int, **how: Any) -> Ran:
    async def server(node: Node, p: Any) -> None:
        await node.sleep(2.0)
    link = LinkRule("*", latency_ns=latency * MS, bandwidth_bps=RATE)
    return run_world({"server": server, "client": partial(member, programs=programs)}, links=(link, *rules),
                     faults=faults, topology=TopologySpec(generator="star_mesh", clients=3), **how)


@given(programs, kinds, faults, st.sampled_from([0, 1, 3]), st.integers(1, 4), st.integers(0, 2**32))
@quick
def test_a_run_is_the_same_for_workers_that_answer_in_any_order(
        programs: Any, kind: Any, faults: Any, latency: int, workers: int, seed: int) -> None:
    ran = drawn(programs, kind, faults, latency)
    assert not ran.invariants.violations
    assert drawn(programs, kind, faults, latency, pool=Shuffled(workers, seed)).digest == ran.digest


@given(programs, kinds, faults)
@quick
def test_every_node_lives_the_same_life_with_lookahead_as_one_event_at_a_time(
        programs: Any, kind: Any, faults: Any) -> None:
    fast, slow = (lives(drawn(programs, kind, faults, 1, lookahead=ahead)) for ahead in (True, False))
    assert fast == slow


def lives(ran: Ran) -> list[list[Any]]:
    """The rows of each node. What a message declares is told when it is sent, in the order of its senders."""
    return [[row for row in ran.of(name) if row[0] != R.DECLARED] for name in ran.header["names"]]
