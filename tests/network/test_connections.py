"""Connections of TCP: the printed cases of the specification, alone and over `Fluid`; packet-by-packet references."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emul.network.links.connections import Next, TcpConnection, TcpStack, pass_queue
from emul.network.links.flows import FlowLink, Flows
from emul.network.models.packetfates import LinkFates, RowFates

WIRE = 54               # bytes of headers a packet: 1502 B on the wire
MSS = 1448


def ns3(congestion: Any) -> TcpStack:
    """The host of ns-3.37: an acknowledgement a packet, no probe, no RACK, a cubic without the friendly region."""
    return TcpStack(congestion, idle_restart=False, tlp=False, delayed_ack=1, rack=False, friendly=False,
                    hystart_train=1.0, hystart_delay=1.0, hystart_most_ns=10**9)


def fates(lost: Sequence[int]) -> RowFates:
    return RowFates([LinkFates(iter(lost), [], None)])


def alone(connection: TcpConnection, s: float, buffer: float, writes: Sequence[tuple[float, int, Any]]) -> list[float]:
    """Messages of (ns after the one before was there, bytes, fates) through one queue: how long each took, ns."""
    free, now, took = 0.0, 0.0, []
    for pause, size, lost in writes:
        now += pause
        packets = -(-size // MSS)
        connection.write(len(took), packets, lost)
        following: Next | None = connection.wake(now)
        there = now
        while following is not None:
            train = connection.begin(*following)
            passage = pass_queue(following.at_ns, train.parts, s, free, buffer)
            free = passage.free_ns
            done = connection.lose(passage.dropped)
            if done:
                there = passage.start_ns + (free - passage.start_ns) * done[0].packets / train.survivors
            following = connection.served(passage.start_ns, free, s)
        took.append(there - now)
        now = there
    return took


# the specification, section 6: congestion, bit/s, RTT in s, buffer in packets, bytes, transmissions lost, s
PRINTED: list[tuple[str, float, float, int, int, list[int], float]] = [
    ("cubic", 1e7, 0.05, 42, 10_000, [], 0.033302),
    ("cubic", 1e7, 0.05, 416, 400_000, [], 0.426459),
    ("cubic", 1e8, 0.05, 4161, 2_000_000, [], 0.415990),
    ("cubic", 1e9, 0.2, 166445, 10_000_000, [], 1.921690),
    ("cubic", 1e6, 0.05, 42, 400_000, [], 3.344664),
    ("reno", 1e8, 0.02, 166, 10_000_000, [], 0.903243),
    ("cubic", 1e7, 0.02, 17, 2_000_000, [], 1.678888),
    ("cubic", 1e8, 0.005, 42, 2_000_000, [], 0.175420),
    ("cubic", 1e8, 0.2, 166, 10_000_000, [], 3.107583),
    ("cubic", 1e9, 0.005, 42, 10_000_000, [], 0.218294),
    ("cubic", 1e7, 0.05, 5000, 101_360, [0], 0.488269),
    ("cubic", 1e7, 0.05, 5000, 101_360, [69], 0.479072),
    ("reno", 1e7, 0.05, 5000, 401_096, [100], 0.428538),
    ("cubic", 1e8, 0.2, 5000, 401_096, [75, 76], 1.301419),
    ("reno", 1e8, 0.05, 5000, 401_096, [275], 0.541101),
]
# the kernel of the specification: RTT in s, and the five messages
KERNEL = [(0.060, [0.466, 0.362, 0.433, 0.466, 1.688]), (0.110, [0.657, 0.387, 0.522, 0.657, 1.713])]
printed = pytest.mark.parametrize(("congestion", "bps", "rtt", "buffer", "size", "lost", "expected"), PRINTED)


@printed
def test_a_printed_case_alone(congestion: str, bps: float, rtt: float, buffer: int, size: int, lost: list[int],
                              expected: float) -> None:
    connection = TcpConnection(ns3(congestion), rtt * 1e9)
    took, = alone(connection, (MSS + WIRE) * 8e9 / bps, buffer, [(0.0, size, fates(lost))])
    missing = -size % MSS * 8 / bps             # the last packet is smaller
    assert rtt / 2 + took / 1e9 - missing == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("rtt", "expected"), KERNEL)
def test_the_printed_messages_of_a_kernel(rtt: float, expected: list[float]) -> None:
    connection = TcpConnection(TcpStack(), rtt * 1e9, local=True)
    pauses = [0.0, 0.02, 1.0, 3.0, 0.02]
    sizes = [400_000] * 4 + [2_000_000]
    took = alone(connection, 1500 * 8e9 / 1e7, 1e9, [(pause * 1e9 + rtt / 2 * 1e9 * bool(pause), size, None)
                                                     for pause, size in zip(pauses, sizes, strict=True)])
    assert [t / 1e9 + rtt / 2 for t in took] == pytest.approx(expected, abs=2e-3)


class OneFate:
    """In the place of a link's draws: the lost transmissions of every message."""

    name = "link a -> b"

    def __init__(self, lost: Sequence[int]):
        self._lost = lost

    def message(self, *message: Any) -> LinkFates:
        return LinkFates(iter(self._lost), [], None)


def over_links(sharing: Any, tcp: TcpStack, bps: float, rtt: float, messages: Sequence[tuple[int, int]],
               lost: Sequence[int] = (), fast: bool = True, events: list[int] | None = None) -> list[int]:
    """Messages of (ns, bytes) from one node to another: when each is there, ns; and the events that it took.

    fast: the sender's own link is infinitely fast, and the bottleneck lies behind it. events: counted there.
    """
    flows = Flows(sharing)
    latency = round(rtt / 2 * 1e9)
    rates = [None, bps] if fast else [bps]
    links = [FlowLink(flows, flows.link(rate), i, i + 1, 0 if i else latency, rate, None, WIRE, MSS, tcp,
                      OneFate(lost) if i == len(rates) - 1 else None)       # type: ignore[arg-type]
             for i, rate in enumerate(rates)]
    there: dict[int, int] = {}
    waiting = [(at + latency, i, size) for i, (at, size) in enumerate(messages)]
    while waiting or flows.next_change() is not None:
        due = flows.next_change()
        if waiting and (due is None or waiting[0][0] <= due):
            at, item, size = waiting.pop(0)
            flows.start(at, item, size, True, links, latency, (0, len(rates)))
            continue
        assert due is not None
        if events is not None:
            events[0] += 1
        for item, delivered, _, _ in flows.advance(due):
            assert delivered
            there[item] = due
    return [there[i] for i in range(len(messages))]


@pytest.mark.parametrize("sharing", ["connections", "tcp_fifo"])
@printed
def test_a_printed_case_over_links(congestion: str, bps: float, rtt: float, buffer: int, size: int, lost: list[int],
                                   expected: float, sharing: str) -> None:
    tcp = replace(ns3(congestion), buffer_bytes=buffer * (MSS + WIRE))
    took, = over_links(sharing, tcp, bps, rtt, [(0, size)], lost)
    # the table takes the short last packet for the last one served; where that was dropped, another one is
    missing = -size % MSS * 8 / bps if buffer < 1000 else 0.0
    assert min(abs(took / 1e9 - expected), abs(took / 1e9 - missing - expected)) < 1e-6


# --- packet by packet ---

def slow_start_by_packets(size: int, s: float, rtt: float, window: int, delayed_ack: int) -> float:
    """When the last byte is there, ns: each packet sent, queued and acknowledged alone; nothing is lost."""
    packets = -(-size // MSS)
    free, sent, acked, last = 0.0, 0, 0, 0.0
    acks: list[tuple[float, int]] = []              # when, of how many
    now, room = 0.0, window
    since = 0                                       # packets received and not acknowledged
    train = 0                                       # of the round: acknowledgements never span two trains
    while sent < packets or acks:
        while sent < packets and room:
            free = max(free, now) + s
            last, sent, room, since, train = free, sent + 1, room - 1, since + 1, train + 1
            if since == delayed_ack:
                acks.append((free + rtt, since))
                since = 0
        if since and not room:
            acks.append((last + rtt, since))
            since = 0
        if not acks or sent == packets:
            break
        now, count = acks.pop(0)
        acked += count
        room += 2 * count                           # slow start: each packet acknowledged lets two go
    return last


@pytest.mark.parametrize("size", [1, 14_480, 14_481, 100_000, 400_000, 2_000_000])
@pytest.mark.parametrize(("bps", "rtt"), [(1e9, 0.1), (1e8, 0.05), (1e7, 0.02), (1e7, 0.0), (1e6, 0.1)])
def test_slow_start_is_that_of_packets(size: int, bps: float, rtt: float) -> None:
    tcp = TcpStack("reno", hystart=False, delayed_ack=1)
    s = (MSS + WIRE) * 8e9 / bps
    took, = alone(TcpConnection(tcp, rtt * 1e9), s, 1e9, [(0.0, size, None)])
    assert took == pytest.approx(slow_start_by_packets(size, s, rtt * 1e9, 10, 1), abs=1.0)


def queue_by_packets(sizes: Sequence[int], starts: Sequence[float], s: float, rtts: Sequence[float], window: int,
                     ) -> list[float]:
    """Connections in slow start through one endless queue: when each is through. An event for every packet."""
    arrivals = [(start, i, number) for i, start in enumerate(starts) for number in range(min(window, sizes[i]))]
    sent = [min(window, size) for size in sizes]
    through, free, order = [0.0] * len(sizes), 0.0, 0
    heapify(heap := [(at, i, number, order) for order, (at, i, number) in enumerate(arrivals)])
    while heap:
        at, i, _, _ = heappop(heap)
        free = through[i] = max(free, at) + s
        for _ in range(min(2, sizes[i] - sent[i])):
            order += 1
            heappush(heap, (free + rtts[i], i, sent[i], order + 10**6))
            sent[i] += 1
    return through


def queue_by_trains(sizes: Sequence[int], starts: Sequence[float], rtts: Sequence[float]) -> list[int]:
    """The same through a queue of trains at 10 Mbit/s."""
    flows = Flows("tcp_fifo")
    number, first = flows.link(1e7), flows.link(None)
    tcp = TcpStack("reno", hystart=False, delayed_ack=1)
    there: dict[int, int] = {}
    pending = sorted((round(at), i) for i, at in enumerate(starts))
    while pending or flows.next_change() is not None:
        due = flows.next_change()
        if pending and (due is None or pending[0][0] <= due):
            at, i = pending.pop(0)
            links = [FlowLink(flows, first, i, 90, 0, None, None, WIRE, MSS, tcp),
                     FlowLink(flows, number, 90, 91, 0, 1e7, None, WIRE, MSS, tcp)]
            flows.start(at, i, sizes[i] * MSS, True, links, round(rtts[i] / 2), (i, 91))
            continue
        assert due is not None
        there |= {item: due for item, _, _, _ in flows.advance(due)}
    return [there[i] for i in range(len(sizes))]


def test_a_queue_of_several_connections_is_that_of_packets() -> None:
    """Trains stand for packets that come between each other's, so a case may be off; what is typical is right."""
    s = (MSS + WIRE) * 8e9 / 1e7
    draw = Random(5)
    errors = []
    for _ in range(60):
        n = draw.randint(2, 4)
        sizes = [draw.randint(1, 400) for _ in range(n)]
        starts = [draw.uniform(0, 50) * 1e6 for _ in range(n)]
        rtts = [draw.choice([10e6, 30e6, 80e6]) for _ in range(n)]
        expected, found = queue_by_packets(sizes, starts, s, rtts, 10), queue_by_trains(sizes, starts, rtts)
        assert max(found) >= sum(sizes) * s + min(starts) - 1       # no packet is left out
        errors.append(abs(max(found) / max(expected) - 1))
    errors.sort()
    assert errors[30] < 1e-6
    assert errors[54] < 0.05


@pytest.mark.parametrize("sharing", ["connections", "tcp_fifo"])
@pytest.mark.parametrize("bps", [1e7, 3e7, 1e8, 1e9])
@pytest.mark.parametrize("rtt", [0.02, 0.05, 0.1, 0.2])
@pytest.mark.parametrize("fast", [False, True])
def test_a_message_of_400_kb_takes_few_events(bps: float, rtt: float, fast: bool, sharing: str) -> None:
    """One a train, of which the last one's is the delivery. fast: the slow link is not the sender's own.

    Into one queue of its own a sender lets go a piece of 8 packets after the other: 277 packets are 35 to 40 pieces.
    """
    events = [0]
    over_links(sharing, TcpStack(), bps, rtt, [(0, 400_000)], fast=fast, events=events)
    assert events[0] <= (45 if sharing == "tcp_fifo" and not fast else 6)


@pytest.mark.parametrize("sharing", ["connections", "tcp_fifo"])
def test_a_slow_link_behind_the_sender_s_own_takes_an_event_a_window(sharing: str) -> None:
    """At 1 Mbit/s HyStart ends slow start at some 36 packets, and every window is a train. An own uplink takes few."""
    found = []
    for fast in (True, False):
        events = [0]
        over_links(sharing, TcpStack(), 1e6, 0.05, [(0, 400_000)], fast=fast, events=events)
        found.append(events[0])
    assert found[0] <= 10
    assert found[1] <= (45 if sharing == "tcp_fifo" else 4)


@pytest.mark.parametrize("sharing", ["connections", "tcp_fifo"])
def test_a_message_goes_out_on_the_connection_with_the_fewest(sharing: str) -> None:
    """Windows alone limit these: the third message follows the first one, as on a connection of their own."""
    def there(connections: int, count: int) -> list[int]:
        return over_links(sharing, TcpStack(connections=connections), 1e13, 0.1, [(0, 400_000)] * count)

    alone, behind = there(1, 2)
    assert behind > alone + 1e8
    assert there(2, 3) == pytest.approx([alone, alone, behind], abs=1e4)


# --- against the prototype of the specification ---

@pytest.fixture(scope="module")
def prototype() -> Any:
    path = Path(os.environ.get("EMUL_SHARED", Path(__file__).parents[3] / "shared")) / "specs/references/tcp.py"
    if not path.is_file():
        pytest.skip("no prototype: ../shared/specs/references/tcp.py is not there")
    spec = importlib.util.spec_from_file_location("tcp_prototype", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class ByNumber:
    """Losses of the prototype's connection, by transmission."""

    def __init__(self, lost: Sequence[int]):
        self.lost = lost

    def clear(self, first: int) -> int:
        return next((number - first for number in self.lost if number >= first), 1 << 62)

    def among(self, first: int, count: int) -> list[int]:
        return [number - first for number in self.lost if first <= number < first + count]


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_random_transfers_are_those_of_the_prototype(prototype: Any, data: st.DataObject) -> None:
    congestion = data.draw(st.sampled_from(["cubic", "reno"]))
    linux = data.draw(st.booleans())
    rtt = data.draw(st.sampled_from([0.001, 0.013, 0.057, 0.21]))
    s = 12_000 / data.draw(st.sampled_from([1.1e6, 1.3e7, 0.9e8, 1.2e9]))
    local = data.draw(st.booleans())
    buffer = 1e9 if local else data.draw(st.sampled_from([5, 21, 103, 1e9]))
    lost = sorted(data.draw(st.sets(st.integers(0, 900), max_size=25)))
    writes = data.draw(st.lists(st.tuples(st.sampled_from([0.9, 1.7, 3.1]),
                                          st.sampled_from([1448, 5000, 60_000, 400_000])), min_size=1, max_size=3))
    stack = (prototype.LINUX if linux else prototype.NS3)(congestion)
    reference, link = prototype.Conn(stack, rtt, ByNumber(lost)), prototype.Fifo(s, buffer)
    reference.local = local
    now, expected = 0.0, []
    for pause, size in writes:
        now += pause
        message = prototype.run_fifo(link, [reference], [(now, reference, size)])[0][0]
        expected.append(message.done - now)
        now = message.done
    shared = fates(lost)            # the prototype counts the transmissions of the connection, not of each message
    connection = TcpConnection(TcpStack(congestion) if linux else ns3(congestion), rtt * 1e9, local=local)
    took = alone(connection, s * 1e9, buffer, [(pause * 1e9, size, shared) for pause, size in writes])
    assert [t / 1e9 for t in took] == pytest.approx(expected, rel=1e-6)
