"""Connections of TCP over random networks whose links lose, drop, change and stand still, and whose nodes crash.

What was sent is there once and in order, nothing is missing at the end, and no link carries more than its rates allow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emul.network.links.connections import TcpStack
from emul.network.links.flows import FlowLink, Flows
from emul.network.models.outages import OutageSpec, outage
from emul.network.models.packetfates import PacketFates
from emul.network.models.profiles import PiecewiseConstant

MS = 10**6
MSS, HEADERS = 1448, 52
NODES = [f"n{i}" for i in range(8)]
FOREVER = 10**15
SHARINGS = ("connections", "tcp_fifo")


@dataclass
class Line:
    """A link and its rates over time (0: it stands still)."""

    link: FlowLink
    steps: list[tuple[int, int]]            # from this ns on, bit/s
    finite: bool
    fates: PacketFates


@dataclass(frozen=True)
class Message:
    at: int                                 # ns at which it comes to its links
    ends: tuple[int, int]
    size: int


@dataclass
class World:
    flows: Flows
    lines: list[Line]
    routes: dict[tuple[int, int], list[Line]]
    messages: list[Message]
    events: list[tuple[int, str, Any, dict[str, Any]]]      # ns, "change" or "crash", what, arguments
    there: dict[int, tuple[int, bool, int]] = field(default_factory=dict)       # message -> ns, delivered, sent again

    def run(self) -> None:
        """Take all events in the order of their times. The messages of one instant come in their order."""
        coming = [(message.at, "send", i, {}) for i, message in enumerate(self.messages)]
        events = sorted([*coming, *self.events], key=lambda event: event[0])
        for event in events:
            self._advance(event[0])
            self._do(*event)
        self._advance(FOREVER)
        assert set(self.there) == set(range(len(self.messages)))

    def _advance(self, until: int) -> None:
        while (due := self.flows.next_change()) is not None and due <= until:
            for item, delivered, _, again in self.flows.advance(due):
                assert item not in self.there
                self.there[item] = due, delivered, again

    def _do(self, at: int, kind: str, what: Any, arguments: dict[str, Any]) -> None:
        if kind == "change":
            what.change(at, **arguments)
        elif kind == "crash":
            self.flows.forget(what)
        else:
            message = self.messages[what]
            links = [line.link for line in self.routes[message.ends]]
            passes = [link.enter(at, message.size, 1)[0] for link in links]
            latency = sum(link.latency_ns for link in links)
            self.flows.start(at, what, message.size, all(passes), links, latency, message.ends, 1)


stacks = st.builds(TcpStack, congestion=st.sampled_from(["cubic", "reno"]),
                   initial_window=st.sampled_from([1, 2, 10, 40]), idle_restart=st.booleans(),
                   rto_min_ns=st.sampled_from([1 * MS, 200 * MS]), hystart=st.booleans(), tlp=st.booleans(),
                   delayed_ack=st.integers(1, 3), setup=st.booleans())
rates = st.integers(300_000, 200_000_000)
sizes = st.one_of(st.sampled_from([0, 1, 1448, 1449, 14_480]), st.integers(1, 30_000), st.integers(1, 300_000))


@st.composite
def worlds(draw: st.DrawFn, sharing: Any, losses: bool = True, buffers: bool = True, faults: bool = True) -> World:
    flows = Flows(sharing)
    stack = draw(stacks)
    lines: list[Line] = []
    events: list[tuple[int, str, Any, dict[str, Any]]] = []
    for i in range(draw(st.integers(1, 4))):
        line, changes = draw(lines_with_changes(flows, i, stack, losses, buffers, faults))
        lines.append(line)
        events += changes
    ends = [(2 * i, 2 * i + 1) for i in range(draw(st.integers(1, 4)))]
    routes = {pair: draw(st.permutations(lines))[:draw(st.integers(1, 4))] for pair in ends}
    messages = draw(st.lists(st.builds(Message, st.one_of(st.just(0), st.integers(0, 400 * MS)), st.sampled_from(ends),
                                       sizes), min_size=1, max_size=7))
    if faults:
        crashes = draw(st.lists(st.tuples(st.integers(0, 900 * MS), st.integers(0, 7)), max_size=6))
        events += [(at, "crash", vertex, {}) for at, vertex in crashes]
    return World(flows, lines, routes, sorted(messages, key=lambda message: message.at), events)


@st.composite
def lines_with_changes(draw: st.DrawFn, flows: Flows, i: int, stack: TcpStack, losses: bool, buffers: bool,
                       faults: bool) -> tuple[Line, list[Any]]:
    """A link, and what changes of it in time."""
    times = sorted(draw(st.sets(st.integers(1, 600 * MS), max_size=4)))
    steps = [(0, draw(rates)), *((at, draw(st.one_of(st.just(0), rates))) for at in times)]
    if not steps[-1][1]:
        steps.append((steps[-1][0] + 50 * MS, draw(rates)))
    traced = draw(st.booleans())
    finite = draw(st.integers(0, 4)) > 0
    profile = PiecewiseConstant([at for at, _ in steps], [bps for _, bps in steps]) if traced and finite else None
    rate: Any = steps[0][1] if finite else None
    number = flows.link(None if profile else rate, profile)
    p = draw(st.sampled_from([0.0, 0.005, 0.05, 0.3])) if losses else 0.0
    buffer = draw(st.sampled_from([None, 0, 1500, 5000, 45_000])) if buffers else None
    names = f"{i}a", f"{i}b"
    fates = PacketFates(draw(st.integers(0, 9)), *names, NODES)
    lost = outage(OutageSpec(p=p, per="packet"), 3, *names) if p else None
    link = FlowLink(flows, number, 0, 1, draw(st.integers(0, 80 * MS)), "profile" if profile else rate, lost,
                    HEADERS, MSS, replace(stack, buffer_bytes=buffer), fates)
    events: list[Any] = []
    if finite and not traced:                       # the same steps, as faults
        for (_, before), (at, bps) in pairwise(steps):
            if bps and not before:
                events.append((at, "change", link, {"down": False}))
            events.append((at, "change", link, {"bandwidth_bps": bps} if bps else {"down": True, "inflight": "pause"}))
    if faults and draw(st.booleans()):
        events.append((draw(st.integers(0, 500 * MS)), "change", link, {"latency_ns": draw(st.integers(0, 90 * MS))}))
    return Line(link, steps, finite, fates), events


def messages_of(world: World, ends: tuple[int, int]) -> Iterator[tuple[int, Message]]:
    return ((i, message) for i, message in enumerate(world.messages) if message.ends == ends)


@pytest.mark.parametrize("sharing", SHARINGS)
def test_a_link_without_a_buffer_takes_a_packet_whenever_it_is_idle(sharing: Any) -> None:
    """Also one that comes between two whole ns. The connection gave up after 925 s, the link idle all the time."""
    stack = TcpStack(congestion="reno", tlp=False, delayed_ack=1)
    flows, lines = Flows(sharing), []
    for i, (bps, buffer) in enumerate([(None, None), (300_000, 0)]):
        fates = PacketFates(0, f"{i}a", f"{i}b", NODES)
        link = FlowLink(flows, flows.link(bps), 0, 1, 0, bps, None, HEADERS, MSS, replace(stack, buffer_bytes=buffer),
                        fates)
        lines.append(Line(link, [(0, 300_000)], bps is not None, fates))
    slow = lines[1].link
    events = [(1, "change", slow, {"down": True, "inflight": "pause"}), (50_339_999, "change", slow, {"down": False}),
              (50_339_999, "change", slow, {"bandwidth_bps": 200_000_000})]
    world = World(flows, lines, {(0, 1): lines}, [Message(0, (0, 1), size) for size in (1449, 4564, 133_147)], events)
    world.run()
    assert all(delivered for _, delivered, _ in world.there.values())


@pytest.mark.parametrize("sharing", SHARINGS)
@settings(max_examples=40)
@given(data=st.data())
def test_everything_is_there_once_in_order_and_nothing_is_missing(sharing: str, data: st.DataObject) -> None:
    world = data.draw(worlds(sharing))
    world.run()
    assert all(delivered for _, delivered, _ in world.there.values())
    for ends in world.routes:
        times = [world.there[i][0] for i, _ in messages_of(world, ends)]
        assert times == sorted(times)               # a connection is a stream
    assert all(world.there[i][0] >= message.at for i, message in enumerate(world.messages))
    for sender in world.flows.senders._senders.values():
        assert (sender.sent, sender.connection.messages, sender.connection.unsent) == ([], [], False)
        assert not sender.connection._holes
    if isinstance(world.flows.medium, type(world.flows.fluid)):
        assert not world.flows.fluid.in_flight()
    else:
        assert not any(queue.senders for queue in world.flows.medium.queues)


def work(steps: Sequence[tuple[int, int]], begin: int, end: int) -> int:
    """What can leave from `begin` to `end`, in bit ns/s."""
    until = [at for at, _ in steps[1:]] + [FOREVER]
    return sum(bps * max(0, min(end, stop) - max(begin, start))
               for (start, bps), stop in zip(steps, until, strict=True))


@pytest.mark.parametrize("sharing", SHARINGS)
@settings(max_examples=40)
@given(data=st.data())
def test_no_link_carries_more_than_its_rates_allow(sharing: str, data: st.DataObject) -> None:
    """What came after one time and was there by another fits between them: for every pair of such times and link."""
    world = data.draw(worlds(sharing, buffers=False))
    world.run()
    for line in (line for line in world.lines if line.finite):
        users = [(message.at, world.there[i][0], line.link.wire_bytes(message.size) + world.there[i][2])
                 for i, message in enumerate(world.messages)
                 if line in world.routes[message.ends]]
        for begin in {at for at, _, _ in users}:
            for end in {there for _, there, _ in users}:
                carried = sum(size for at, there, size in users if at >= begin and there <= end)
                assert carried * 8e9 <= work(line.steps, begin, end) * (1 + 1e-9) + 8e9 * 2 * len(users)


@pytest.mark.parametrize("sharing", SHARINGS)
@settings(max_examples=30)
@given(data=st.data())
def test_every_packet_lost_is_sent_again_once(sharing: str, data: st.DataObject) -> None:
    """By the links' notes of what they lost. Queues are endless and no node crashes."""
    world = data.draw(worlds(sharing, buffers=False, faults=False))
    world.run()
    for ends in world.routes:
        for k, (i, message) in enumerate(messages_of(world, ends)):
            packets = max(1, -(-message.size // MSS))
            lost = sum(len(line.fates.lost.get((*ends, 1, k), [])) for line in world.lines)
            last = message.size - (packets - 1) * MSS
            again = world.there[i][2]
            assert lost * last <= again <= lost * (MSS + HEADERS) + 1
            assert (again > 0) is (lost > 0 and last > 0)


@pytest.mark.parametrize("sharing", SHARINGS)
@settings(max_examples=25)
@given(data=st.data())
def test_a_change_to_the_bandwidth_that_a_link_has_changes_nothing(sharing: str, data: st.DataObject) -> None:
    seen = []
    seed = data.draw(st.integers(0, 10**6))
    for again in (False, True):
        world = fixed(sharing, seed)
        if again:
            world.events += [(at, "change", line.link, {"bandwidth_bps": line.steps[0][1]})
                             for line in world.lines for at in (7 * MS, 30 * MS, 31 * MS, 250 * MS)]
        world.run()
        seen.append([world.there[i][0] for i in range(len(world.messages))])
    assert all(abs(a - b) <= 3 for a, b in zip(*seen, strict=True)), seen


def fixed(sharing: Any, seed: int) -> World:
    """Two connections over a fast and a slow link, or over either."""
    flows = Flows(sharing)
    lines = []
    for i, bps in enumerate((40_000_000 + seed % 7919, 3_000_000 + seed % 1009)):
        fates = PacketFates(1, f"{i}a", f"{i}b", NODES)
        link = FlowLink(flows, flows.link(bps), 0, 1, (5 + seed % 40) * MS, bps, None, HEADERS, MSS, TcpStack(), fates)
        lines.append(Line(link, [(0, bps)], True, fates))
    routes = {(0, 1): lines if seed % 3 else lines[1:], (2, 3): lines[seed % 2:]}
    messages = [Message(0, (0, 1), 1000 * (seed % 400)), Message(5 * MS, (2, 3), 70_000),
                Message(20 * MS, (0, 1), 90_000)]
    return World(flows, lines, routes, messages, [])
