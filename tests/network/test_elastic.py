"""Elastic background traffic against the numbers of its specification, and what it does to links."""

from __future__ import annotations

import math
from heapq import heappop, heappush
from itertools import pairwise, takewhile
from statistics import fmean, stdev

import pytest

from emul.network import LinkRule, TopologySpec, build
from emul.network.models.background import Traffic
from emul.network.models.elastic import MessageLaws, arrivals
from emul.network.models.laws import Exponential, Fixed, LogNormal, Pareto, UniformLaw

M, S, MS = 10**6, 10**9, 10**6
MB = 10**6
SIZES = {"det": Fixed(40_000), "exp": Exponential(40_000), "pareto": Pareto(1.5, 40_000),
         "pareto 5": Pareto(5, 40_000), "uniform": UniformLaw(10_000, 70_000),
         "lognormal": LogNormal(30_000, 0.5)}


def elastic(messages=None, greedy=None, key="t", at=0, lasts=None, **where):
    return Traffic(key, 0, **(where or {"link": "client1->server"}), at_ns=at, for_ns=lasts, messages=messages,
                   greedy=greedy)


def net(*traffic, seed=1, topology="star", clients=2, realisation=None, **link):
    rule = LinkRule("*", **{"latency_ns": 0, "bandwidth_bps": 10 * M, "sharing": "maxmin"} | link)
    return build(TopologySpec(generator=topology, clients=clients), [rule], seed, traffic=traffic,
                 realisation=realisation)


def link_of(network, source="client1", destination="server"):
    return network.link(network.names.index(source), network.names.index(destination))


def sent(network, size, now=0, source="client1", destination="server"):
    """When a message that comes at `now` is through."""
    link = link_of(network, source, destination)
    if not hasattr(link, "fates"):
        link.offer(now, "m", size, 0)
        at = link.next_change()
        link.advance(at)
        return at
    flows = network.flows
    flows.start(now, "m", size, True, [link], link.latency_ns)
    while True:
        at = flows.next_change()
        if flows.advance(at):
            return at


def poisson(rho, size, bandwidth=10 * M):
    """Messages that take this share of a link."""
    return MessageLaws(Exponential(round(8 * size.mean / bandwidth / rho * 1e9)), size)


def within(values, expected, errors=4):
    return abs(fmean(values) - expected) < errors * stdev(values) / math.sqrt(len(values))


def test_a5_three_greedy_flows():
    network = net(elastic(greedy=3), bandwidth_bps=40 * M)
    assert sent(network, MB) == 800 * MS
    (*_, offered, carried, dropped), = network.traffic(S)       # three of four parts until .8 s, then all of it
    assert carried == pytest.approx(3 * MB + 40 * M / 8 / 5, abs=2)
    assert (offered, dropped) == (carried, 0)


@pytest.mark.parametrize("law", ["det", "exp", "pareto"])
def test_a6_processor_sharing_makes_a_message_slower_by_the_load(law):
    """S / C / (1 - rho) whatever the law of sizes: 1 MB, 10 Mbit/s, rho .4: 1.3333 s."""
    network = net(elastic(poisson(0.4, SIZES[law])))
    times = []
    for number in range(150):
        begin = 20 * S + number * 3 * S
        times.append((sent(network, MB, begin) - begin) / 1e9)
    assert within(times, 4 / 3)
    assert stdev(times) / math.sqrt(len(times)) < 0.05


@pytest.mark.parametrize(("law", "wait_ms"), [("det", 10.667), ("exp", 21.333), ("pareto 5", 11.378)])
def test_a7_a_message_waits_in_a_queue_as_pollaczek_and_khinchine_say(law, wait_ms):
    network = net(elastic(poisson(0.4, SIZES[law])), sharing="fifo")
    waits = [(sent(network, 0, S + number * 200 * MS) - S - number * 200 * MS) / 1e6 for number in range(8_000)]
    assert within(waits, wait_ms)
    assert stdev(waits) / math.sqrt(len(waits)) < 0.05 * wait_ms


def test_a8_greedy_flows_share_what_rates_leave():
    """3 Mbit/s for a second, then a half of 8: 3 + 4 * 1.25 = 8 Mbit by 2.25 s, and the greedy flow has 5 Mbit."""
    network = net(Traffic("b", 5 * M, link="client1->server", for_ns=S), elastic(greedy=1, at=S), bandwidth_bps=8 * M)
    assert sent(network, MB) == 2_250_000_000
    table = {entry: told for *_, entry, offered, carried, dropped in network.traffic(2_250_000_000)
             for told in [(offered, carried, dropped)]}
    assert table["t"][1] == pytest.approx(625_000, abs=2)
    assert table["b"] == (625_000, 625_000, 0)


# ---- queues of several links, against a simulation of all events in order ----



def reference(flows, offers, latency, rate):
    """When messages are through queues: heap of (time, kind, ...) over (link, size, rest of the way)."""
    events, order = [], 0
    for path, found in flows:
        for at, size in found:
            order += 1
            heappush(events, (at, 0, order, path, size, None))
    for number, (at, path, size) in enumerate(offers):
        heappush(events, (at, 1, number, path, size, number))
    free, due = {}, {}
    while events:
        at, kind, order, path, size, number = heappop(events)
        end = max(at, free.get(path[:2], 0)) - (-8 * 10**9 * size // rate)
        free[path[:2]] = end
        if len(path) == 2:
            due[number] = end + latency
        else:
            heappush(events, (end + latency, kind, order, path[1:], size, number))
    return due


@pytest.mark.parametrize("latency", [0, MS, 40 * MS])
@pytest.mark.parametrize("topology", ["star", "ring"])
def test_messages_over_several_queues_are_where_a_simulation_of_all_events_has_them(latency, topology):
    """Rings have routes that wait for each other in a circle; offers come in the order of time, on any link."""
    laws = MessageLaws(Exponential(20 * MS), SIZES["exp"])
    names = [f"client{i}" for i in range(1, 6)]
    pairs = [(a, b) for a in names for b in names if a != b]
    entries = [elastic(laws, key=f"{a} {b}", flow=f"{a}->{b}") for a, b in pairs]
    network = net(*entries, topology=topology, clients=5, sharing="fifo", latency_ns=latency, bandwidth_bps=40 * M)
    number = {name: i for i, name in enumerate(network.names)}
    flows = [(network.route(number[a], number[b]), list(takewhile(
        lambda one: one[0] < 800 * MS, arrivals(laws, f"{a} {b}", 1, a, b)))) for a, b in pairs]
    used = sorted({ends for path, _ in flows for ends in pairwise(path)})
    offers = [(7 * MS * i + 1, used[5 * i % len(used)], 30_000) for i in range(100)]
    expected = reference(flows, offers, latency, 40 * M)
    for i, (at, ends, size) in enumerate(offers):
        link = network.link(*ends)
        link.offer(at, i, size, 0)
    found = {}
    for ends in used:
        while (at := network.link(*ends).next_change()) is not None:
            found |= {item: at for item, *_ in network.link(*ends).advance(at)}
    assert found == {i: due for i, due in expected.items() if i is not None}
    assert len(found) == len(offers)
    rows = list(network.traffic(2 * S))
    assert all(offered == carried > 0 and not dropped for *_, offered, carried, dropped in rows)
