"""Links that share their bandwidth, in a run: when flows end, what is lost, what faults do, and no order of answers."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pytest
from dumbbell import dumbbell
from hypothesis import given
from hypothesis import strategies as st

from emul.base import rows as R
from emul.message.wire import ENVELOPE_BYTES
from emul.network import LinkRule, OutageSpec, TopologySpec, build
from emul.network.links.flows import FlowLink, Flows
from emul.preview.outlook import Outlook
from emul.roles import Message, Node
from emul.scenario import LinkDown
from emul.testing import MS, Ran, Shuffled, run_world

RATE = 8_000_000                    # bit/s: 1 byte takes 1 us


@dataclass(frozen=True)
class Block(Message):
    body: bytes


MESSAGES = (Block,)


async def server(node: Node, p: Any) -> None:
    await node.gather(Block, node.clients)


async def client(node: Node, p: Any) -> None:
    node.send(node.server, Block(bytes(1000 * node.clients.index(node.id) + 1000)))


def run(*rules: LinkRule, **more: Any) -> Ran:
    links = [LinkRule("*", latency_ns=1 * MS, bandwidth_bps=100 * RATE, sharing="maxmin"),
             LinkRule("left->right", bandwidth_bps=RATE), *rules]
    world = run_world({"server": server, "client": client}, topology=dumbbell(), links=links, **more)
    assert world.invariants.violations == []
    return world


def arrivals(world: Ran) -> dict[int, int]:
    """source -> when its message was delivered, ns."""
    return {row[2]: row[1] for row in world.rows if row[0] == R.DELIVER}


def sizes(world: Ran) -> list[int]:
    return [row[6] + ENVELOPE_BYTES for row in world.rows if row[0] == R.SEND]


def test_flows_share_the_link_that_they_have_in_common() -> None:
    world = run()
    a, b, c = sizes(world)
    us = 1000
    # three latencies first; then three, two and one flow on the link in the middle (F10)
    assert arrivals(world) == {1: 3 * MS + 3 * a * us, 2: 3 * MS + (3 * a + 2 * (b - a)) * us,
                               3: 3 * MS + (a + b + c) * us}


def test_a_hop_of_first_in_first_out_before_shared_ones() -> None:
    world = run(LinkRule("client*->left", sharing="fifo", bandwidth_bps=RATE))
    a, b, c = sizes(world)
    us = 1000
    # each takes its own link whole first, so they come to the middle one after the other, 1000 B apart at least
    ends = arrivals(world)
    # the second comes to the middle 1 ms after the first, whose rest takes double the time
    assert ends[1] == 3 * MS + a * us + a * us + (a - 1000) * us
    assert ends[3] == 3 * MS + a * us + (a + b + c) * us    # the middle is never idle from the first on


def test_a_shared_hop_before_one_of_first_in_first_out() -> None:
    world = run(LinkRule("right->server", sharing="fifo", bandwidth_bps=RATE))
    a = sizes(world)[0]
    assert arrivals(world)[1] == 3 * MS + (3 * a + a) * 1000
    hops = {(row[2], row[5], row[6]) for row in world.rows if row[0] == R.HOP}
    assert len(hops) == 6                                   # two further links each, and all in the journal


def test_what_a_shared_link_loses_occupies_the_links_before_it_and_is_known_when_it_would_be_through() -> None:
    world = run(LinkRule("left->right", outage=OutageSpec(p=1.0)))
    a, b, c = sizes(world)
    lost = {row[2]: (row[1], row[4], row[5]) for row in world.rows if row[0] == R.LOST}
    names = world.header["network"]
    assert [(names[u], names[v]) for _, u, v in lost.values()] == [("left", "right")] * 3
    assert lost[1][0] == 2 * MS + 3 * a * 1000
    assert lost[3][0] == 2 * MS + (a + b + c) * 1000
    assert not any(row[0] == R.HOP and names[row[5]] == "right" for row in world.rows)


@pytest.mark.parametrize(("at", "links"), [(1 * MS // 2, 2), (5 * MS // 2, 3), (4 * MS, 3)])
def test_a_link_that_goes_down_loses_its_flows_and_what_comes(at: int, links: int) -> None:
    """Known when they would have been through: the links up to the one that is down, or all of the flow's."""
    world = run(faults=[LinkDown(at, "left", "right", 1000 * MS)])
    a, b, c = sizes(world)
    assert {row[2]: row[1] for row in world.rows if row[0] == R.LOST} == {
        1: links * MS + 3 * a * 1000, 2: links * MS + (3 * a + 2 * (b - a)) * 1000, 3: links * MS + (a + b + c) * 1000}


@pytest.mark.parametrize("at", [0, MS // 2, MS, 3 * MS // 2, 2 * MS, 5 * MS // 2, 4 * MS])
def test_a_loss_is_known_when_it_is_on_a_fifo_link(at: int) -> None:
    """One message of 1 ms and a latency of 1 ms, a fault before, in, between and after its parts: M5."""
    def lost(sharing: str) -> list[tuple[Any, ...]]:
        world = run_world({"server": server, "client": client}, topology=TopologySpec("star", clients=1),
                          links=[LinkRule("*", latency_ns=1 * MS, bandwidth_bps=RATE, sharing=sharing)],
                          faults=[LinkDown(at, "client1", "server", 1000 * MS)])
        assert world.invariants.violations == []
        return [row for row in world.rows if row[0] in (R.LOST, R.DELIVER)]

    assert lost("maxmin") == lost("fifo")
    assert {row[0] for row in lost("fifo")} == {R.LOST if at < 2.5 * MS else R.DELIVER}


def test_a_link_that_comes_back_serves_what_comes_after() -> None:
    async def patient(node: Node, p: Any) -> None:
        await node.sleep(0.1)
        node.send(node.server, Block(b"x" * 1000))

    world = run_world({"server": server, "client": patient}, topology=dumbbell(1), faults=[
        LinkDown(10 * MS, "left", "right", 20 * MS)], links=[
            LinkRule("*", latency_ns=1 * MS, bandwidth_bps=RATE, sharing="maxmin")])
    (size,) = sizes(world)
    assert arrivals(world) == {1: 103 * MS + size * 1000}


@pytest.mark.parametrize("seed", range(4))
def test_neither_lookahead_nor_the_order_of_answers_shows(seed: int) -> None:
    async def chatty(node: Node, p: Any) -> None:
        for _ in range(5):
            node.broadcast(node.clients, Block(bytes(300 * (1 + node.id))))
            node.send(node.server, Block(bytes(500)))
            await node.sleep(0.0007 * (1 + node.id))

    async def end(node: Node, p: Any) -> None:
        await node.sleep(0.2)

    roles = {"server": end, "client": chatty}
    rules = [LinkRule("*", latency_ns=1 * MS, bandwidth_bps=RATE, sharing="maxmin",
                      outage=OutageSpec(p=0.2, per="slot", slot_ns=3 * MS)),
             LinkRule("client2->left", sharing="fifo", latency_ns=0)]
    faults = [LinkDown(2 * MS, "left", "right", 3 * MS)]
    reference = run_world(roles, topology=dumbbell(), links=rules, faults=faults, lookahead=False)
    assert reference.invariants.violations == []
    ahead = run_world(roles, topology=dumbbell(), links=rules, faults=faults)
    assert [ahead.of(n) for n in range(4)] == [reference.of(n) for n in range(4)]
    assert run_world(roles, topology=dumbbell(), links=rules, faults=faults,
                     pool=Shuffled(2, seed)).digest == ahead.digest


def test_a_fault_drops_what_is_still_paying_its_latency_on_the_link() -> None:
    """As on a link of first in, first out."""
    faults = [LinkDown(5 * MS, "client1", "server", MS)]
    worlds = [run_world({"server": server, "client": client}, clients=2, faults=faults,
                        links=[LinkRule("*", latency_ns=10 * MS, sharing=sharing)]) for sharing in ("fifo", "maxmin")]
    for world in worlds:
        assert [(row[1], row[2]) for row in world.rows if row[0] == R.LOST] == [(10 * MS, 1)]
        assert arrivals(world) == {2: 10 * MS}
        assert world.invariants.violations == []


def test_what_is_foretold_of_a_flow_is_what_the_run_takes() -> None:
    rules = [LinkRule("*", sharing="maxmin", latency_ns=1 * MS, bandwidth_bps=10**6),
             LinkRule("client1->left", sharing="fifo"), LinkRule("right->server", bandwidth_bps=10**5)]
    spec = dumbbell(1)
    world = run_world({"server": server, "client": client}, topology=spec, links=rules)
    network = build(spec, rules, 0)
    (size,) = sizes(world)
    route = Outlook(network, rules, 0, size).route(network.names.index("client1"), network.names.index("server"))
    assert arrivals(world)[1] == pytest.approx(route.time_ns, abs=2)


# --- connections: what a node sends to another, one after the other ---------------------------------------------------

async def taking_two(node: Node, p: Any) -> None:
    for _ in range(2):
        await node.gather(Block, node.clients)


async def sending_two(node: Node, p: Any) -> None:
    for _ in range(2):
        node.send(node.server, Block(bytes(1000)))


def ends(sharing: str, clients: int, **more: Any) -> dict[tuple[int, int], int]:
    """(source, number of its message) -> when it was through or known to be lost, in transmissions of one message."""
    world = run_world({"server": taking_two, "client": sending_two}, topology=dumbbell(clients), links=[
        LinkRule("*", latency_ns=1 * MS, bandwidth_bps=100 * RATE, sharing=sharing),     # type: ignore[arg-type]
        LinkRule("left->right", bandwidth_bps=RATE)], **more)
    assert world.invariants.violations == []
    return {(row[2], row[3]): (row[1] - 3 * MS) // (1000 * sizes(world)[0])
            for row in world.rows if row[0] in (R.DELIVER, R.LOST)}


def test_on_a_connection_a_message_waits_for_the_one_before_it() -> None:
    assert ends("maxmin", 1) == {(1, 0): 2, (1, 1): 2}
    assert ends("connections", 1) == {(1, 0): 1, (1, 1): 2}


def test_connections_share_fairly_among_each_other() -> None:
    assert ends("maxmin", 2) == dict.fromkeys([(1, 0), (1, 1), (2, 0), (2, 1)], 4)
    assert ends("connections", 2) == {(1, 0): 2, (1, 1): 4, (2, 0): 2, (2, 1): 4}


def test_what_waits_for_its_connection_when_a_link_of_it_goes_down_is_lost_too() -> None:
    down = [LinkDown(3 * MS + MS // 2, "left", "right", 1000 * MS)]
    world = run_world({"server": taking_two, "client": sending_two}, topology=dumbbell(1), faults=down, links=[
        LinkRule("*", latency_ns=1 * MS, bandwidth_bps=100 * RATE, sharing="connections"),
        LinkRule("left->right", bandwidth_bps=RATE)])
    assert [row[3] for row in world.rows if row[0] == R.LOST] == [0, 1]


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 2), st.integers(1, 30)), min_size=1, max_size=12))
def test_a_connection_is_one_flow_at_a_time(messages: list[tuple[int, int, int]]) -> None:
    """Against a simulation in rational numbers: the link's bytes go in equal shares to the heads of the queues."""
    flows = Flows("connections")
    link = FlowLink(flows, flows.link(8e9), 0, 1, bandwidth_bps=8e9)        # a byte a ns
    messages = sorted(messages)
    found: dict[int, int] = {}

    def until(now: int | None) -> None:
        while (due := flows.next_change()) is not None and (now is None or due <= now):
            found.update((item, due) for item, *_ in flows.advance(due))

    for i, (at, pair, size) in enumerate(messages):
        until(at)
        flows.start(at, i, 1000 * size, True, [link], 0, pair)
    until(None)
    expected = _by_hand([(Fraction(at), pair, Fraction(1000 * size)) for at, pair, size in messages])
    assert all(abs(found[i] - end) <= 1 + i for i, end in expected.items())     # each end is a whole ns
    assert flows.waiting(link.number) == []


def _by_hand(messages: list[tuple[Fraction, int, Fraction]]) -> dict[int, Fraction]:
    now, ended, left = Fraction(0), dict[int, Fraction](), [size for *_, size in messages]
    while len(ended) < len(messages):
        heads: dict[int, int] = {}
        for i, (at, pair, _) in enumerate(messages):
            if at <= now and i not in ended:
                heads.setdefault(pair, i)
        coming = [at - now for at, *_ in messages if at > now]
        steps = coming + [left[i] * len(heads) for i in heads.values()]
        step = min(steps)
        for i in heads.values():
            left[i] -= step / len(heads)
        now += step
        ended.update((i, now) for i in heads.values() if left[i] == 0)
    return ended
