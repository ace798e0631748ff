"""Connections of TCP in a run: losses are repaired, faults, no order of answers, the same draws for everybody."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from dumbbell import dumbbell

from emul.base import rows as R
from emul.base.errors import NetworkError
from emul.network import LinkRule, OutageSpec, TcpStack
from emul.network.models.outages import GilbertSpec
from emul.network.models.traces import TraceSpec
from emul.roles import Message, Node
from emul.scenario import Crash, LinkDown, LinkSet
from emul.testing import MS, Ran, Shuffled, run_world

RATE = 8_000_000                    # bit/s: 1 byte takes 1 us
HEADERS: dict[str, Any] = {"overhead_bytes": 52, "mtu": 1448}
SHARINGS = ("connections", "tcp_fifo")
by_sharing = pytest.mark.parametrize("sharing", SHARINGS)


@dataclass(frozen=True)
class Block(Message):
    body: bytes


MESSAGES = (Block,)


async def chatty(node: Node, p: Any) -> None:
    for i in range(4):
        node.broadcast(node.clients, Block(bytes(3000 * (1 + node.id))))
        node.send(node.server, Block(bytes(40_000 * (i + 1))))
        await node.sleep(0.07 * (1 + node.id))


async def end(node: Node, p: Any) -> None:
    await node.sleep(60)


ROLES = {"server": end, "client": chatty}


def links(sharing: Any, tcp: TcpStack | None = TcpStack(), *more: LinkRule, outage: Any = None,      # noqa: B008 - frozen
          latency_ns: int = 5 * MS, rate: Any = RATE) -> list[LinkRule]:
    middle = LinkRule("left<->right", bandwidth_bps=rate, outage=outage)
    every: Any = {"transport": tcp} if tcp is not None else {}
    return [LinkRule("*", latency_ns=latency_ns, bandwidth_bps=2 * RATE, sharing=sharing, **HEADERS, **every), middle,
            *more]


def run(*rules: LinkRule, roles: Any = ROLES, **more: Any) -> Ran:
    world = run_world(roles, topology=dumbbell(), links=list(rules), **more)
    assert world.invariants.violations == []
    return world


def count(world: Ran, kind: int) -> int:
    return sum(row[0] == kind for row in world.rows)


@by_sharing
@pytest.mark.parametrize("outage", [
    None, OutageSpec(p=0.02, per="packet"), OutageSpec(p=0.2, per="packet"), GilbertSpec(p=0.02, r=0.4, per="packet"),
    OutageSpec(p=0.3, per="slot", slot_ns=40 * MS)], ids=["none", "2 %", "20 %", "bursts", "slots"])
def test_all_that_is_sent_is_delivered(sharing: str, outage: Any) -> None:
    world = run(*links(sharing, outage=outage))
    assert count(world, R.DELIVER) == count(world, R.SEND)
    assert (count(world, R.RESENT) > 0) is (outage is not None)


@by_sharing
def test_a_small_buffer_costs_time_and_bytes_and_no_message(sharing: str) -> None:
    deep = run(*links(sharing, TcpStack(congestion="reno")))
    tight = run(*links(sharing, TcpStack(congestion="reno", buffer_bytes=15_000)))
    assert count(tight, R.DELIVER) == count(tight, R.SEND)
    assert count(deep, R.RESENT) == 0
    assert count(tight, R.RESENT) > 0


@by_sharing
def test_a_whole_message_is_lost_as_without_tcp(sharing: str) -> None:
    outage = OutageSpec(p=0.4)
    lost = {name: {row[2:4] for row in run(*rules).rows if row[0] == R.LOST} for name, rules in (
        ("tcp", links(sharing, outage=outage)), ("none", links("connections", None, outage=outage)))}
    assert lost["tcp"] == lost["none"] != set()


@by_sharing
def test_a_link_that_loses_everything_loses_its_messages_at_last(sharing: str) -> None:
    async def one(node: Node, p: Any) -> None:
        node.send(node.server, Block(bytes(5000)))

    async def wait(node: Node, p: Any) -> None:
        await node.sleep(2000)

    world = run(*links(sharing, outage=OutageSpec(p=1.0, per="packet")), roles={"server": wait, "client": one})
    lost = [row[1] for row in world.rows if row[0] == R.LOST]
    assert len(lost) == 3
    assert all(924.6e9 < time < 926e9 for time in lost)


def ends(world: Ran) -> list[tuple[int, int, int]]:
    return sorted((row[2], row[3], row[1]) for row in world.rows if row[0] == R.DELIVER)


def test_without_a_round_trip_all_is_as_without_tcp() -> None:
    with_tcp, without = (run(*links("connections", tcp, latency_ns=0)) for tcp in (TcpStack(), None))
    assert ends(with_tcp) == ends(without)


def test_messages_of_one_packet_are_as_without_tcp() -> None:
    async def small(node: Node, p: Any) -> None:
        for i in range(5):
            node.send(node.server, Block(bytes(100 * (i + node.id))))
            await node.sleep(0.4 * (i % 2))

    roles = {"server": end, "client": small}
    with_tcp, without = (run(*links("connections", tcp), roles=roles) for tcp in (TcpStack(), None))
    assert ends(with_tcp) == ends(without)


FAULTS: dict[str, list[Any]] = {
    "none": [], "drop": [LinkDown(30 * MS, "left", "right", 50 * MS)],
    "pause": [LinkDown(30 * MS, "left", "right", 500 * MS, inflight="pause")],
    "slower": [LinkSet(40 * MS, "left", "right", for_ns=500 * MS, bandwidth_bps=RATE // 10)],
    "farther": [LinkSet(40 * MS, "left", "right", for_ns=500 * MS, latency_ns=50 * MS)],
    "crash": [Crash(45 * MS, "client1", 100 * MS)]}


@pytest.fixture(scope="module")
def rates(tmp_path_factory: pytest.TempPathFactory) -> TraceSpec:
    """8, 0, 2 and 16 Mbit/s in turn, in 70 ms each."""
    path = tmp_path_factory.mktemp("traces") / "rates.csv"
    path.write_text("t,bandwidth\n0 ms,8 Mbit/s\n70 ms,0 Mbit/s\n140 ms,2 Mbit/s\n210 ms,16 Mbit/s\n280 ms,8 Mbit/s\n")
    return TraceSpec(path, loop=True)


@by_sharing
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("seed", [1, 2])
def test_neither_lookahead_nor_the_order_of_answers_shows(sharing: str, fault: str, seed: int) -> None:
    rules = links(sharing, TcpStack(buffer_bytes=30_000), outage=OutageSpec(p=0.02, per="packet"))
    reference = run(*rules, faults=FAULTS[fault], lookahead=False)
    ahead = run(*rules, faults=FAULTS[fault])
    assert [ahead.of(n) for n in range(4)] == [reference.of(n) for n in range(4)]
    assert run(*rules, faults=FAULTS[fault], pool=Shuffled(2, seed)).digest == ahead.digest


@by_sharing
def test_a_fault_that_drops_loses_what_is_on_the_link_and_nothing_else(sharing: str) -> None:
    world = run(*links(sharing), faults=FAULTS["drop"])
    assert 0 < count(world, R.LOST) < count(world, R.SEND)
    assert count(world, R.LOST) + count(world, R.DELIVER) == count(world, R.SEND)


@by_sharing
def test_what_a_paused_link_holds_goes_on_after_it(sharing: str) -> None:
    world = run(*links(sharing), faults=FAULTS["pause"])
    assert count(world, R.DELIVER) == count(world, R.SEND)
    to_server = {row[2:4] for row in world.rows if row[0] == R.SEND and row[4] == 0}
    times = [time for source, seq, time in ends(world) if (source, seq) in to_server]
    assert min(times) > 530 * MS                    # 40 kB and more each: none was through
    # 1.76 s is the least. Over queues in a row the last message is up to 38 % late (the prototype against ns-3),
    # because a connection goes on once all pieces of a train are there; 2.24 s since they take turns on an own link.
    assert max(times) < (2000 if sharing == "connections" else 2430) * MS


@by_sharing
def test_a_link_that_becomes_slower_serves_what_waits_at_its_new_rate(sharing: str) -> None:
    """One message: 100 kB cross at 8 Mbit/s until 60 ms, then at 0.8 Mbit/s."""
    async def one(node: Node, p: Any) -> None:
        if node.id == 1:
            node.send(node.server, Block(bytes(100_000)))

    slow = [LinkSet(60 * MS, "client1", "left", bandwidth_bps=RATE // 10)]
    rules = [*links(sharing, latency_ns=0), LinkRule("client1->left", bandwidth_bps=RATE)]
    world = run(*rules, roles={"server": end, "client": one}, faults=slow)
    (_, _, time), = ends(world)
    wire = next(row[7] for row in world.rows if row[0] == R.SEND)
    through = RATE / 8 * 0.060
    assert time / 1e9 == pytest.approx(0.060 + (wire - through) / (RATE / 80), rel=0.02)


@pytest.mark.parametrize("down", ["infinite", 4 * RATE])
def test_connections_of_one_node_take_turns_on_its_own_link(down: Any) -> None:
    """TCP small queues: a broadcast over one queue of the sender's own ends as fair queues would end it, all messages
    together, and not one after the other; whether that queue is the only one on the way or the first of several."""
    async def server(node: Node, p: Any) -> None:
        node.broadcast(node.clients, Block(bytes(150_000)))
        await node.sleep(60)

    def ended(sharing: Any, *faults: Any) -> list[float]:
        rules = [LinkRule("*", latency_ns=0, bandwidth_bps=down, sharing=sharing, transport=TcpStack(), **HEADERS),
                 LinkRule("server->right", bandwidth_bps=RATE)]
        world = run(*rules, roles={"server": server, "client": end}, faults=list(faults))
        return [time / 1e9 for _, _, time in ends(world)]

    together = ended("connections")
    assert ended("tcp_fifo") == pytest.approx(together, abs=0.036)         # three pieces of eight packets
    slower = LinkSet(100 * MS, "server", "right", bandwidth_bps=RATE // 4)
    paused = LinkDown(100 * MS, "server", "right", 200 * MS, inflight="pause")
    for fault in (slower, paused):
        assert ended("tcp_fifo", fault) == pytest.approx(ended("connections", fault), abs=4 * 0.036)
        assert min(ended("tcp_fifo", fault)) > 0.15 + min(together)


def test_links_of_a_route_agree_on_all_but_the_buffer() -> None:
    run(*links("connections"), LinkRule("left<->right", transport=TcpStack(buffer_bytes=90_000)))
    with pytest.raises(NetworkError, match=r"different transport tcp  expected the same of all links of a route"):
        run(*links("connections"), LinkRule("left<->right", transport=TcpStack("reno")))


@by_sharing
@pytest.mark.parametrize("seed", [1, 2])
def test_under_a_trace_neither_lookahead_nor_the_order_of_answers_shows(sharing: str, rates: TraceSpec,
                                                                       seed: int) -> None:
    rules = links(sharing, TcpStack(buffer_bytes=30_000), outage=OutageSpec(p=0.02, per="packet"), rate=rates)
    reference = run(*rules, lookahead=False)
    assert count(reference, R.DELIVER) == count(reference, R.SEND)
    ahead = run(*rules)
    assert [ahead.of(n) for n in range(4)] == [reference.of(n) for n in range(4)]
    assert run(*rules, pool=Shuffled(2, seed)).digest == ahead.digest
