"""What is foretold of a route is what happens: times by running, losses and repetitions by closed forms."""

from __future__ import annotations

import math
from itertools import pairwise

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emul.base.errors import NetworkError
from emul.network import HERE, LinkRule, OutageSpec, RoleRule, TcpStack, TopologySpec, build
from emul.network.links.features import Switching
from emul.network.links.transport import Arq
from emul.network.models.latency import LognormalSpec
from emul.preview.outlook import Outlook, unverified

MS = 10**6
MBIT = 10**6


def foretold(rules, size=10**6, n=4, u=0, v=None, seed=7):
    graph = nx.path_graph(n)
    spec = TopologySpec(graph=graph, roles={"client": RoleRule("all")})
    network = build(spec, rules, seed)
    return network, Outlook(network, rules, seed, size).route(u, n - 1 if v is None else v)


def sent(network, way, size):
    """When a message really arrives over the links of a way, one after the other."""
    now, tail = 0, HERE
    for i, hop in enumerate(hops := list(pairwise(way))):
        link = network.link(*hop)
        link.offer(now, "m", size, 0, i == len(hops) - 1, tail)
        now = link.next_change()
        (_, _, tail, _), = link.advance(now)
    return now


# --- time -------------------------------------------------------------------------------------------------------------

def test_store_and_forward_pays_every_hop():
    rules = [LinkRule("*", latency_ns=5 * MS, bandwidth_bps=8 * MBIT), LinkRule("1->2", bandwidth_bps=MBIT)]
    network, route = foretold(rules)
    assert route.time_ns == 3 * 5 * MS + 1000 * MS * 2 + 8000 * MS == sent(network, (0, 1, 2, 3), 10**6)
    assert route.rtt_ns == 30 * MS
    assert (route.bottleneck.source, route.bottleneck.destination, route.bottleneck.bandwidth_bps) == (1, 2, MBIT)
    assert (route.loss, route.retransmissions) == (0, 0)


def test_equal_packets_over_three_hops_take_the_time_of_ns_3():
    """F2 of the fidelity tests: 10 packets of 1502 B over 10/5/20 Mbit/s and 2/4/6 ms: 37.8344 ms."""
    rules = [LinkRule("*", switching=Switching("packetized", 1502))]
    rules += [LinkRule(f"{i}->{i + 1}", latency_ns=d * MS, bandwidth_bps=c * MBIT)
              for i, (d, c) in enumerate([(2, 10), (4, 5), (6, 20)])]
    _, route = foretold([LinkRule("*", latency_ns=0), *rules], size=15020)
    assert route.time_ns == 37_834_400


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10**8), st.sampled_from([None, 10**5, 3 * 10**6, 10**9])), min_size=3,
                max_size=3), st.integers(0, 10**6),
       st.sampled_from(["store_and_forward", Switching("cut_through"), Switching("packetized", 1000)]),
       st.sampled_from([(0, None), (28, 1000), (40, None)]))
def test_the_time_foretold_is_the_time_taken(hops, size, switching, framing):
    rules = [LinkRule("*", latency_ns=0, switching=switching, overhead_bytes=framing[0], mtu=framing[1])]
    rules += [LinkRule(f"{i}->{i + 1}", latency_ns=d, bandwidth_bps=c) for i, (d, c) in enumerate(hops)]
    network, route = foretold(rules, size)
    assert route.time_ns == sent(network, (0, 1, 2, 3), size)


def test_shared_links_are_used_at_once():
    rules = [LinkRule("*", latency_ns=5 * MS, bandwidth_bps=8 * MBIT, sharing="maxmin"),
             LinkRule("1->2", bandwidth_bps=MBIT)]
    assert foretold(rules)[1].time_ns == 15 * MS + 8000 * MS


def test_latencies_that_vary_count_with_their_median():
    _, route = foretold([LinkRule("*", latency_ns=LognormalSpec(20 * MS, 0.5))], n=2)
    assert (route.rtt_ns, route.time_ns) == (40 * MS, 20 * MS)


def test_a_way_must_lead_there_and_back():
    graph = nx.DiGraph([("a", "b", {"latency_ns": 1})])
    network = build(TopologySpec(graph=graph, roles={"client": RoleRule("all")}), [], 7)
    with pytest.raises(NetworkError, match=r"^a cannot be reached from b: no links lead there$"):
        Outlook(network, [], 7, 1).route(0, 1)


# --- loss and repetition ----------------------------------------------------------------------------------------------

def test_datagrams_are_lost_on_any_hop_and_by_any_packet():
    rules = [LinkRule("*", latency_ns=1), LinkRule("0->1", outage=OutageSpec(0.1)),
             LinkRule("2->3", outage=OutageSpec(0.01, "packet"), mtu=1000, overhead_bytes=20)]
    _, route = foretold(rules, size=3500)
    assert route.loss == pytest.approx(1 - 0.9 * 0.99**4, rel=1e-12)
    assert route.retransmissions == 0


@pytest.mark.parametrize(("arq", "outage", "size", "loss", "again"), [
    (Arq("stop_and_wait", retries=None), OutageSpec(0.2), 5000, 0, 0.25),
    (Arq("stop_and_wait", retries=2), OutageSpec(0.2), 5000, 0.2**3, 0.2 + 0.04),
    (Arq("stop_and_wait", retries=None, ack_loss=0.5), OutageSpec(0.2), 5000, 0, 1 / 0.4 - 1),
    (Arq("stop_and_wait", retries=3), OutageSpec(1.0), 5000, 1, 3),
    (Arq("selective_repeat", retries=None, mtu=1000), OutageSpec(0.1, "packet"), 5000, 0, 5 * 0.1 / 0.9),
    (Arq("selective_repeat", retries=1, mtu=1000), OutageSpec(0.1, "packet"), 5000, 1 - 0.99**5, 0.5),
    (Arq("selective_repeat", retries=4, mtu=1000), OutageSpec(0.1, "round"), 5000, 0.1, 5 * 0.1 * 4),
])
def test_retransmissions_follow_the_closed_forms(arq, outage, size, loss, again):
    rules = [LinkRule("*", latency_ns=MS, bandwidth_bps=MBIT), LinkRule("0->1", transport=arq, outage=outage)]
    _, route = foretold(rules, size, n=2)
    assert route.loss == pytest.approx(loss, rel=1e-9, abs=1e-12)
    assert route.retransmissions == pytest.approx(again, rel=1e-9)


def test_retransmissions_are_those_of_a_link():
    """|z| < 4 against the mean of messages sent: resent packets have variance N p / (1 - p)^2 in selective repeat."""
    p, parts, messages = 0.2, 10, 400
    rules = [LinkRule("*", latency_ns=MS, bandwidth_bps=MBIT), LinkRule("0->1", outage=OutageSpec(p, "packet"),
                                                                        transport=Arq(retries=None, mtu=1000))]
    network, route = foretold(rules, 1000 * parts, n=2)
    link, resent = network.link(0, 1), 0
    for k in range(messages):
        now = link.next_change() or k
        link.offer(now, k, 1000 * parts, 1)
        (_, delivered, _, again), = link.advance(link.next_change())
        assert delivered
        resent += again / 1000
    deviation = math.sqrt(parts * p / (1 - p) ** 2 / messages)
    assert abs(resent / messages - route.retransmissions) < 4 * deviation


def test_what_a_later_hop_repeats_is_only_what_comes_so_far():
    rules = [LinkRule("*", latency_ns=MS), LinkRule("0->1", outage=OutageSpec(0.5)),
             LinkRule("1->2", outage=OutageSpec(0.2), transport=Arq("stop_and_wait", retries=None))]
    _, route = foretold(rules, n=3)
    assert route.retransmissions == pytest.approx(0.5 * 0.25)
    assert route.loss == pytest.approx(0.5)


@pytest.mark.parametrize("sharing", ["connections", "tcp_fifo"])
def test_a_connection_is_foretold_new_and_used(sharing):
    """RTT 60 ms at 10 Mbit/s, the sender's own uplink: the kernel of the specification's section 6."""
    rules = [LinkRule("*", latency_ns=30 * MS, bandwidth_bps=10 * MBIT, sharing=sharing, overhead_bytes=52, mtu=1448,
                      transport=TcpStack())]
    _, route = foretold(rules, size=400_000, n=2)
    assert route.time_ns / 1e9 == pytest.approx(0.466, abs=2e-3)
    assert route.used_ns / 1e9 == pytest.approx(0.362, abs=2e-3)


def test_what_is_not_verified_of_tcp_is_said():
    rules = [LinkRule("*", latency_ns=MS, sharing="connections", bandwidth_bps=MBIT,
                      transport=TcpStack(buffer_bytes=9000), outage=OutageSpec(p=0.03, per="packet"))]
    network, _ = foretold(rules, n=2)
    loss, buffer = unverified(network, 7)
    assert loss.startswith("connections of TCP above 2% of packets lost are not verified: ")
    assert "buffer below 10 packets" in buffer
    network, _ = foretold([LinkRule("*", latency_ns=MS, sharing="connections", transport=TcpStack(buffer_bytes=15_000),
                                    outage=OutageSpec(p=0.02, per="packet"))], n=2)
    assert unverified(network, 7) == []
