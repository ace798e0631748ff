"""Handing on heads against a simulation of every packet: short last packets, several hops, messages, losses, rates."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from hypothesis import example, given, settings
from hypothesis import strategies as st

from emul.base.streams import key64
from emul.network import HERE, Arq, FullLink, OutageSpec, Switching, Tail
from emul.network.models.outages import outage

BYTE_A_NS = 8 * 10**9
MS = 10**6


@dataclass(frozen=True)
class Hop:
    pace: int                   # ns a byte, so that all times are whole
    latency: int
    loss: float = 0.0
    whole: bool = False         # it hands on whole messages only


def packets_of(size, mtu):
    return [mtu] * (size // mtu) + [size % mtu] * (size % mtu > 0)


def packet_by_packet(messages, route, mtu, overhead, lost):
    """{message: when its last packet has crossed the last link, or the link that loses it}; each packet goes alone.

    A packet starts when it is there and the packet before it has left. Link h loses message m as a whole if
    lost(h, m): its packets are sent all the same. A link that hands on whole messages lets all of its packets go on
    when the last one has crossed.
    """
    waiting = [(m, now, size) for m, (now, whole) in enumerate(messages) for size in packets_of(whole, mtu)]
    known = {}
    for h, hop in enumerate(route):
        free, across = 0, []
        for m, ready, size in waiting:
            free = max(free, ready) + (size + overhead) * hop.pace
            across.append((m, free + hop.latency, size))
        last = {m: there for m, there, _ in across}
        gone = {m for m in last if h == len(route) - 1 or lost(h, m)}
        known |= {m: last[m] for m in gone}
        waiting = [(m, last[m] if hop.whole else there, size) for m, there, size in across if m not in gone]
    return known


def through(link, offers, last):
    """[(message, due, delivered, tail)] of offers (message, time, size, tail), in the order in which they leave."""
    left = []

    def run_until(now):
        while (due := link.next_change()) is not None and due <= now:
            left.extend((item, due, delivered, tail) for item, delivered, tail, _ in link.advance(due))

    for m, now, size, tail in offers:
        run_until(now)
        link.offer(now, m, size, 1, last, tail)
    run_until(10**18)
    return left


def over(links, messages):
    """What `packet_by_packet` tells, from the links."""
    offers, known = [(m, now, size, HERE) for m, (now, size) in enumerate(messages)], {}
    for h, link in enumerate(links):
        left = through(link, offers, h == len(links) - 1)
        known |= {m: due for m, due, delivered, _ in left if h == len(links) - 1 or not delivered}
        offers = [(m, due, messages[m][1], tail) for m, due, delivered, tail in left if delivered]
    return known


hops = st.builds(Hop, st.integers(1, 50), st.integers(0, 300), st.sampled_from([0.0, 0.0, 0.3]), st.booleans())
traffic = st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 700)), min_size=1, max_size=6).map(
    lambda pairs: [(sum(gap for gap, _ in pairs[:i + 1]), size) for i, (_, size) in enumerate(pairs)])


@settings(max_examples=100)
@given(traffic, st.lists(hops, min_size=1, max_size=5), st.integers(1, 200), st.integers(0, 20))
@example([(0, 2025)], [Hop(8, 0), Hop(4, 0)], 1000, 0)
@example([(0, 250), (0, 30)], [Hop(9, 5), Hop(2, 5), Hop(3, 5)], 100, 0)
def test_messages_take_what_their_packets_take(messages, route, mtu, overhead):
    """To the nanosecond: any last packet, several messages, losses, links that wait for the whole."""
    models = [outage(OutageSpec(hop.loss), 7, f"a{h}", f"b{h}") for h, hop in enumerate(route)]
    links = [FullLink(h, h + 1, hop.latency, Fraction(BYTE_A_NS, hop.pace), model, overhead, mtu,
                      switching=None if hop.whole else Switching("packetized"))
             for h, (hop, model) in enumerate(zip(route, models, strict=True))]
    counts = [{} for _ in route]

    def lost(h, m):         # the k-th message that comes to a link meets the k-th fate
        k = counts[h].setdefault(m, len(counts[h]))
        return models[h] is not None and models[h].lost(0, 0, 1, k, 1)

    assert over(links, messages) == packet_by_packet(messages, route, mtu, overhead, lost)


@settings(max_examples=50)
@given(traffic, st.lists(st.tuples(st.integers(10**6, 10**9), st.integers(0, 10**6)), min_size=2, max_size=4),
       st.integers(1, 200))
def test_at_any_rate_it_is_late_by_a_nanosecond_a_hop_and_message_at_most(messages, route, mtu):
    links = [FullLink(h, h + 1, latency, rate, switching=Switching("packetized", mtu))
             for h, (rate, latency) in enumerate(route)]
    expected = packet_by_packet(messages, [Hop(Fraction(BYTE_A_NS, rate), d) for rate, d in route], mtu, 0,
                                lambda h, m: False)
    found = over(links, messages)
    assert found.keys() == expected.keys()
    assert all(0 <= found[m] - expected[m] <= len(route) * (m + 1) for m in found)      # what is rounded up adds up


def test_a_short_last_packet_does_not_overtake_the_full_one_ahead_of_it():
    """2,025 B in packets of 1,000 over 1 and 2 Mbit/s: the second leaves the slow link at 16 ms, the fast one at 20."""
    slow, fast = (FullLink(0, 1, 0, rate, switching=Switching("packetized", 1000)) for rate in (10**6, 2 * 10**6))
    assert over([slow, fast], [(0, 2025)]) == {0: 20_100_000}


def test_what_a_head_tells_of_the_rest():
    link = FullLink(0, 1, 5, BYTE_A_NS, switching=Switching("packetized", 100))
    link.offer(0, "m", 350, 1, False)
    assert link.advance(105) == [("m", True, Tail(body_ns=305, end_ns=355, packet_bytes=100), 0)]


def test_the_next_link_may_cut_into_other_packets():
    """Finer ones wait for the coarse ones that they come in; coarser ones for their last bytes."""
    tail = Tail(body_ns=2000, end_ns=2200, packet_bytes=1000)          # 2,200 B: 1000 at 1000, at 2000, 200 at 2200
    def end(mtu):
        link = FullLink(0, 1, 0, BYTE_A_NS, switching=Switching("packetized", mtu))
        link.offer(1000, "m", 2200, 1, True, tail)
        return link.next_change()

    assert end(500) == 3200         # 1,200 B from 2000 on
    assert end(1000) == 3200
    assert end(1500) == 3200        # 700 B from 2200 on would be 2900, 2,200 B from 1000 on are 3200


def test_arq_waits_for_the_whole():
    def left(now, tail):
        link = FullLink(0, 1, 50, BYTE_A_NS, outage(OutageSpec(0.4, "packet"), 7, "a", "b"), mtu=100,
                        transport=Arq(rto_ns=300), key=key64(7, "transport"))
        link.offer(now, "m", 950, 1, True, tail)
        return link.advance(10**9)

    assert left(400, Tail(900, 1000, 100)) == left(1000, HERE)
