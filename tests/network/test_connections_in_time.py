"""Rates that vary, links that stand still and nodes that crash while a train of a connection of TCP is under way.

The reference sends every packet by itself: a packet begins when the one before has left and it has come, and leaves
when the rates since then have carried it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emul.network.links.connections import TcpConnection, TcpStack
from emul.network.links.flows import FlowLink, Flows
from emul.network.links.stalls import of_profile, stalled_ns
from emul.network.models.packetfates import LinkFates
from emul.network.models.profiles import PiecewiseConstant

MS, S = 10**6, 10**9
MSS, HEADERS = 1448, 54
SHARINGS = ("connections", "tcp_fifo")
Steps = Sequence[tuple[int, int]]           # from this ns on, bit/s
by_sharing = pytest.mark.parametrize("sharing", SHARINGS)


def left(steps: Steps, begin: float, size_bytes: int) -> float:
    """When so many bytes have left that begin then."""
    work, place = size_bytes * 8e9, bisect_right([at for at, _ in steps], begin) - 1
    while True:
        bps = steps[place][1]
        until = steps[place + 1][0] if place + 1 < len(steps) else float("inf")
        if bps and begin + work / bps <= until:
            return begin + work / bps
        work -= bps * (until - begin)
        begin, place = until, place + 1


def slow_start_by_packets(size: int, steps: Steps, rtt: float, window: int) -> float:
    """When the last byte is there: each packet acknowledged lets two go. Nothing is lost, no queue is full."""
    packets = -(-size // MSS)
    acks: deque[float] = deque()
    free, now, sent, room = 0.0, 0.0, 0, window
    while sent < packets:
        if not room:
            now, room = acks.popleft(), 2
        while room and sent < packets:
            whole = MSS if sent < packets - 1 else size - (packets - 1) * MSS
            free = left(steps, max(free, now), whole + HEADERS)
            acks.append(free + rtt)
            sent, room = sent + 1, room - 1
    return free


def link_of(flows: Flows, steps: Steps, traced: bool, src: int = 1, fates: Any = None, **tcp: Any) -> FlowLink:
    stack = TcpStack(**{"congestion": "reno", "hystart": False, "delayed_ack": 1, **tcp})
    profile = PiecewiseConstant([at for at, _ in steps], [bps for _, bps in steps]) if traced else None
    number = flows.link(None if profile else steps[0][1], profile)
    return FlowLink(flows, number, src, src + 1, 0, "profile" if profile else steps[0][1], None, HEADERS, MSS, stack,
                    fates)


class Losing:
    """Fates of a link that loses one packet of each message."""

    name = "link a -> b"

    def __init__(self, packet: int):
        self._packet = packet

    def message(self, *message: Any) -> LinkFates:
        return LinkFates(iter([self._packet]), [], None)


def over_links(sharing: Any, size: int, steps: Steps, rtt: int, traced: bool) -> int:
    """When the message is there: the rates as a trace of the link, or as faults that change it."""
    flows = Flows(sharing)
    link = link_of(flows, steps, traced)
    own = FlowLink(flows, flows.link(None), 0, 1, 0, None, None, HEADERS, MSS, link.stack)
    flows.start(0, "message", size, True, [own, link], rtt // 2, (0, 2))
    return drive(flows, link, [] if traced else steps[1:])["message"]


def drive(flows: Flows, link: FlowLink, steps: Steps = ()) -> dict[Any, int]:
    """Change the link at its times until all is through; when each message was."""
    there: dict[Any, int] = {}
    waiting = deque(steps)
    while waiting or flows.next_change() is not None:
        due = flows.next_change()
        if waiting and (due is None or waiting[0][0] <= due):
            at, bps = waiting.popleft()
            if bps:
                link.change(at, down=False, bandwidth_bps=bps)
            else:
                link.change(at, down=True, inflight="pause")
            continue
        assert due is not None
        there |= {item: due for item, _, _, _ in flows.advance(due)}
    return there


def drawn(seed: int, least: float) -> tuple[int, list[tuple[int, int]], int]:
    """(size, steps, RTT): rates of `least` to 4 times a base, at most 6 of them, perhaps with pauses."""
    draw = Random(seed)
    base = int(10 ** draw.uniform(6, 8.3))
    steps = [(0, base)]
    for _ in range(draw.randint(1, 5)):
        factors = [least, 0.3, 0.5, 2.0, 4.0, 0.0 if steps[-1][1] else 1.0]
        steps.append((steps[-1][0] + draw.randint(1, 150) * MS, int(base * draw.choice(factors))))
    if not steps[-1][1]:
        steps.append((steps[-1][0] + 50 * MS, base))
    return draw.choice([10_000, 100_000, 400_000, 2_000_000]), steps, draw.choice([4, 20, 60, 200]) * MS


@by_sharing
@pytest.mark.parametrize("traced", [True, False], ids=["trace", "faults"])
def test_slow_start_under_rates_that_vary_is_that_of_packets(sharing: str, traced: bool) -> None:
    """A train's acknowledgements are spread evenly over it. So it is off only where the rate changes in the middle."""
    errors = []
    for seed in range(80):
        size, steps, rtt = drawn(seed, 0.1)
        expected = slow_start_by_packets(size, steps, rtt, 10)
        errors.append(abs(over_links(sharing, size, steps, rtt, traced) / expected - 1))
    errors.sort()
    assert errors[40] < 1e-5                        # a queue rounds up to ns, a train at a time
    assert errors[72] < 0.03
    assert errors[-1] < 0.15


@by_sharing
def test_a_trace_is_the_same_as_faults_that_set_its_rates(sharing: str) -> None:
    off = []
    for seed in range(40):
        size, steps, rtt = drawn(seed, 0.1)
        trace, faults = (over_links(sharing, size, steps, rtt, traced) for traced in (True, False))
        off.append(abs(trace - faults) / trace)
    assert sorted(off)[20] < 1e-6
    assert max(off) < (1e-8 if sharing == "connections" else 0.15)      # a queue knows a trace's rates beforehand


@by_sharing
def test_a_trace_that_begins_with_nothing_only_delays(sharing: str) -> None:
    """A queue once took the rate of the instant for that of a train: 3 hours a packet where that was 0."""
    late = over_links(sharing, 100_000, [(0, 0), (700 * MS, 8_000_000)], 20 * MS, True)
    assert late - 700 * MS == pytest.approx(over_links(sharing, 100_000, [(0, 8_000_000)], 20 * MS, True), rel=0.02)


@by_sharing
def test_a_packet_lost_before_a_pause_is_repaired_after_it(sharing: str) -> None:
    """The link stands still while the rest of its train is on it, 10 ms: nothing tells of the loss before."""
    flows = Flows(sharing)
    link = link_of(flows, [(0, 8_000_000)], False, fates=Losing(1))
    own = FlowLink(flows, flows.link(None), 0, 1, 0, None, None, HEADERS, MSS, link.stack)
    flows.start(0, "message", 10 * MSS, True, [own, link], 10 * MS, (0, 2))
    there = drive(flows, link, [(5 * MS, 0), (400 * MS, 8_000_000)])["message"]
    assert 410 * MS < there < 450 * MS


@by_sharing
@pytest.mark.parametrize("traced", [True, False], ids=["trace", "faults"])
@pytest.mark.parametrize("stall_s", [1, 100])
def test_after_a_long_standstill_a_message_goes_on_as_fast_as_before(sharing: str, traced: bool, stall_s: int) -> None:
    steps = [(0, 1_000_000), (100 * MS, 0), ((100 + stall_s * 1000) * MS, 1_000_000)]
    for size in (87_000, 400_000):
        expected = slow_start_by_packets(size, steps, 40 * MS, 10)
        assert over_links(sharing, size, steps, 40 * MS, traced) == pytest.approx(expected, rel=1e-3)


@by_sharing
@pytest.mark.parametrize("traced", [True, False], ids=["trace", "faults"])
def test_on_the_own_link_a_long_standstill_only_delays(sharing: str, traced: bool) -> None:
    """There packets wait in the sender, and go to the link a few at a time."""
    def end(*stall: tuple[int, int]) -> int:
        flows = Flows(sharing)
        steps = [(0, 1_000_000), *stall]
        link = link_of(flows, steps, traced)
        flows.start(0, "message", 87_000, True, [link], 20 * MS, (1, 2))
        return drive(flows, link, [] if traced else steps[1:])["message"]
    late = end((100 * MS, 0), (100_100 * MS, 1_000_000))
    assert late - 100_000 * MS == pytest.approx(end(), abs=50 * MS)


def test_times_at_which_one_of_several_links_stands_still_count_once() -> None:
    assert stalled_ns([[(0, 10), (40, 50)], [(5, 20), (45, 60)]], 2, 55) == 18 + 15
    assert stalled_ns([[], []], 0, 9) == 0
    gaps = of_profile(PiecewiseConstant([0, 5 * S, 6 * S, 8 * S], [1, 0, 1, 0]), 0, 9 * S)
    assert gaps == [(5 * S, 6 * S), (8 * S, 9 * S)]
    assert of_profile(PiecewiseConstant([0, MS, 2 * MS], [1, 0, 1]), 0, S) == []        # part of the pace


@given(st.lists(st.tuples(st.integers(1, 400), st.sampled_from([0, 0, 3])), min_size=1, max_size=12),
       st.integers(0, 900), st.integers(1, 3000))
def test_the_stalls_of_a_trace_are_its_long_stretches_without_a_rate(pieces, start, length) -> None:
    times = [0]
    for last, _ in pieces[:-1]:
        times.append(times[-1] + last * MS)
    profile = PiecewiseConstant(times, [rate for _, rate in pieces])
    still = [profile.rate_at(t * MS) == 0 for t in range(start, start + length)]         # a millisecond each
    expected, since = [], None
    for at, zero in [*enumerate(still, start), (start + length, False)]:
        if zero and since is None:
            since = at
        elif not zero and since is not None:
            if at - since >= 200:
                expected.append((since * MS, at * MS))
            since = None
    assert of_profile(profile, start * MS, (start + length) * MS) == expected


@by_sharing
def test_a_message_that_is_lost_on_its_first_link_is_no_way_for_those_before_it(sharing: str) -> None:
    def end(lost: bool) -> int:
        flows = Flows(sharing)
        fast, slow = (link_of(flows, [(0, bps)], False, src) for bps, src in ((10**8, 0), (10**6, 1)))
        flows.start(0, "whole", 100_000, True, [fast, slow], 20 * MS, (0, 2))
        there: dict[Any, int] = {}
        while (due := flows.next_change()) is not None:
            if lost and due > 300 * MS:
                lost = False
                flows.start(300 * MS, "lost", 1000, False, [fast], 20 * MS, (0, 2))
                continue
            there |= {item: due for item, delivered, _, _ in flows.advance(due) if delivered}
        assert set(there) == {"whole"}
        return there["whole"]
    assert end(True) == pytest.approx(end(False), rel=1e-6)


@by_sharing
def test_a_sender_does_not_give_up_while_it_delivers(sharing: str) -> None:
    """Twenty minutes of one message at 1 Mbit/s, of which the very last packet is lost."""
    flows = Flows(sharing)
    link = link_of(flows, [(0, 1_000_000)], False, fates=Losing(99_999))
    flows.start(0, "message", 100_000 * MSS, True, [link], 20 * MS, (1, 2))
    delivered = [found[1] for due in iter(flows.next_change, None) for found in flows.advance(due)]
    assert delivered == [True]


@pytest.mark.parametrize("setup", [False, True])
@pytest.mark.parametrize("first", [4, 10])
def test_what_comes_after_a_crash_begins_as_on_a_new_connection(first: int, setup: bool) -> None:
    def second(connection: TcpConnection) -> tuple[float, int]:
        connection.write("second", 30)
        following = connection.wake(12.0 * MS)
        return following.at_ns, connection.begin(*following).packets
    old = TcpConnection(TcpStack(setup=setup), 200.0 * MS)
    old.write("first", first)
    begun = old.wake(0.0)
    old.begin(*begun)
    old.lose()
    assert old.served(begun.at_ns, begun.at_ns + first * MS, 1.0 * MS) is None
    old.forget()
    assert second(old) == second(TcpConnection(TcpStack(setup=setup), 200.0 * MS))


def probing() -> TcpConnection:
    """A connection whose last packet was lost, with the probe for it under way."""
    class Lost:
        def __init__(self) -> None:
            self.tried = 0

        def lost(self, now_ns: float, count: int) -> list[int]:
            first, self.tried = self.tried, self.tried + count
            return [2 - first] if first <= 2 < self.tried else []

        def clear(self) -> int:
            return 0

    connection = TcpConnection(TcpStack(), 20.0 * MS)
    connection.write("message", 3, Lost())
    train = connection.begin(*connection.wake(0.0))
    assert connection.lose() == []
    assert train.lost == [2]
    probe = connection.served(0.0, 3e6, 1e6)
    assert probe is not None
    assert connection.begin(*probe).again == [2]
    return connection


def test_a_crash_while_a_probe_is_under_way_sends_nothing_twice() -> None:
    connection = probing()
    done, = connection.lose()
    connection.forget()
    assert done.item == "message"
    assert connection.served(300e6, 301e6, 1e6) is None
    assert not connection.unsent


@by_sharing
def test_a_crash_in_slow_start_begins_with_the_initial_window_again(sharing: str) -> None:
    """At 100 ms a round trip 10, 20, 40, 80 and 150 packets; after a crash the third train is followed by 50."""
    found = []
    for crash in (None, 250 * MS):
        flows = Flows(sharing)
        link = link_of(flows, [(0, 10**10)], False)
        own = FlowLink(flows, flows.link(None), 0, 1, 0, None, None, HEADERS, MSS, link.stack)
        flows.start(0, "message", 300 * MSS, True, [own, link], 50 * MS, (0, 2))
        while crash is not None and (due := flows.next_change()) is not None and due <= crash:
            flows.advance(due)
        if crash is not None:
            flows.forget(0)                 # the third train, 40 packets, is acknowledged at 300 ms
        found.append(drive(flows, link)["message"] // (100 * MS))
    assert found == [4, 5]


# --- the rates while a train is under way -----------------------------------------------------------------------------

Hop = tuple[int, float | None, int | None]          # latency ns, bit/s, buffer
Sent = Sequence[tuple[int, int, slice]]             # at ns, bytes, over these links


def there(sharing: Any, hops: Sequence[Hop], sent: Sent, tcp: TcpStack, how: str, far: Sequence[int]) -> list[int]:
    """When each message is there, over links of these rates: as numbers; as traces that change after 1,000 s to `far`;
    or as faults that set them at 0, in place of `far`."""
    flows = Flows(sharing)
    links = []
    for place, (latency, bps, buffer) in enumerate(hops):
        stack, traced = replace(tcp, buffer_bytes=buffer), how == "trace" and bps is not None
        profile = PiecewiseConstant([0, 1000 * S], [int(bps or 0), far[place]]) if traced else None
        rate = far[place] if how == "set" and bps is not None else bps
        links.append(FlowLink(flows, flows.link(None if traced else rate, profile), place, place + 1, latency,
                              "profile" if traced else rate, None, HEADERS, MSS, stack))
        if rate is not bps:
            links[-1].change(0, bandwidth_bps=bps)
    through: dict[int, int] = {}
    rows = [links[over] for _, _, over in sent]
    waiting = sorted((at + sum(link.latency_ns for link in row), number, size)
                     for number, ((at, size, _), row) in enumerate(zip(sent, rows, strict=True)))
    while waiting or flows.next_change() is not None:
        due = flows.next_change()
        if waiting and (due is None or waiting[0][0] <= due):
            at, number, size = waiting.pop(0)
            row = rows[number]
            flows.start(at, number, size, True, row, sum(link.latency_ns for link in row), (row[0].src, row[-1].dst))
            continue
        assert due is not None
        through |= {item: due for item, _, _, _ in flows.advance(due)}
    return [through[number] for number in range(len(sent))]


@by_sharing
@pytest.mark.parametrize("how", ["trace", "set"])
def test_a_rate_that_stays_while_messages_are_under_way_is_that_rate_whatever_it_is_later(sharing: str,
                                                                                         how: str) -> None:
    for seed in range(40):
        draw = Random(seed)
        hops = [(draw.choice([5, 20, 60]) * MS, None if draw.random() < 0.2 else int(10 ** draw.uniform(5.7, 8)),
                 draw.choice([None, None, 20_000, 60_000, 150_000])) for _ in range(draw.randint(1, 3))]
        tcp = TcpStack(congestion=draw.choice(["cubic", "reno"]), hystart=draw.random() < 0.5,
                       initial_window=draw.choice([10, 40]))
        sent = [(draw.randint(0, 500) * MS, draw.choice([2000, 30_000, 200_000, 1_500_000]),
                 slice(draw.randrange(len(hops)), None)) for _ in range(draw.randint(1, 5))]
        far = [int(10 ** draw.uniform(5, 9)) for _ in hops]
        assert there(sharing, hops, sent, tcp, how, far) == pytest.approx(
            there(sharing, hops, sent, tcp, "number", far), rel=1e-4)


@by_sharing
@pytest.mark.parametrize("first_bps", [None, 10**8, 0])
@pytest.mark.parametrize("traced", [True, False], ids=["trace", "faults"])
def test_messages_in_one_train_end_when_their_own_bytes_are_through(sharing: str, first_bps: int | None,
                                                                    traced: bool) -> None:
    """Bytes in a queue, one after the other, at the rates that the link has; the window is never in the way.

    first_bps: of the link before it; 0: there is none.
    """
    for seed in range(10):
        draw = Random(seed)
        steps = [(0, 10**6), (draw.randint(200, 900) * MS, draw.choice([3 * 10**5, 10**7])),
                 (draw.randint(901, 3000) * MS, 4 * 10**6)]
        sizes = [draw.choice([700, 20_000, 60_000, 150_000]) for _ in range(8)]
        flows = Flows(sharing)
        link = link_of(flows, steps, traced, initial_window=10_000)
        own = FlowLink(flows, flows.link(first_bps), 0, 1, 0, first_bps, None, HEADERS, MSS, link.stack)
        row = [link] if first_bps == 0 else [own, link]
        for number, size in enumerate(sizes):
            flows.start(0, number, size, True, row, 10 * MS, (row[0].src, 2))
        found = drive(flows, link, [] if traced else steps[1:])
        expected = 0.0
        for number, size in enumerate(sizes):
            expected = left(steps, expected, size + -(-size // MSS) * HEADERS)
            packet_ns = 8e9 * (MSS + HEADERS) / min(bps for _, bps in steps)
            assert abs(found[number] - expected) < 2 * packet_ns, (seed, number)
