"""Attributes of files: every tool's names in its own units, lengths and places, capacity rules, what nobody uses."""

from __future__ import annotations

import math

import networkx as nx
import pytest

from emul.base.errors import NetworkError
from emul.network import DIALECTS, Capacity, Distance, LinkRule, RoleRule, TopologySpec, build
from emul.network.graph.attributes import EDGE, Attributes
from emul.network.graph.geo import format_length, great_circle_km, length_km, positions
from emul.network.models.latency import JitterSpec
from emul.network.models.outages import OutageSpec

ALL = {"client": RoleRule("all")}
MS = 10**6
MBIT = 10**6


def stated(dialect=None, **data):
    fields, problems = Attributes(dialect).edge(data, "edge")
    assert problems == []
    return fields


def wrong(dialect=None, **data):
    return [(p.place, p.found, p.expected) for p in Attributes(dialect).edge(data, "edge")[1]]


# --- names and units --------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("dialect", "data", "expected"), [
    (None, {"latency": "20 ms", "capacity": "1 Gbit/s"}, {"latency_ns": 20 * MS, "bandwidth_bps": 1000 * MBIT}),
    (None, {"rate": "2 MB/s"}, {"bandwidth_bps": 16 * MBIT}),
    (None, {"latency": "5.1234567891 ms", "rate": "3.14159 B/s"}, {"latency_ns": 5_123_457, "bandwidth_bps": 25}),
    ("shadow", {"latency": "21 ms", "packet_loss": 0.01}, {
        "latency_ns": 21 * MS, "outage": OutageSpec(0.01, "packet")}),
    ("mininet", {"bw": 20, "delay": "20ms", "loss": 1}, {"bandwidth_bps": 20 * MBIT, "latency_ns": 20 * MS,
                                                        "outage": OutageSpec(0.01, "packet")}),
    ("core", {"bandwidth": 54_000_000, "delay": 20_000, "loss": "10"}, {
        "bandwidth_bps": 54 * MBIT, "latency_ns": 20 * MS, "outage": OutageSpec(0.1, "packet")}),
    ("core", {"bandwidth": 0, "delay": 5, "jitter": 2}, {"bandwidth_bps": None,
                                                        "latency_ns": JitterSpec("uniform", 5000, 2000)}),
    ("kollaps", {"latency": "10", "upload": "10Mbps", "download": "10Mbps", "drop": "0.5"}, {
        "latency_ns": 10 * MS, "bandwidth_bps": 10 * MBIT, "outage": OutageSpec(0.5, "packet")}),
    ("omnet", {"datarate": "100Mbps", "delay": 0.05, "per": 0.1}, {
        "bandwidth_bps": 100 * MBIT, "latency_ns": 50 * MS, "outage": OutageSpec(0.1, "packet")}),
    ("omnet", {"datarate": 0, "delay": "10ms"}, {"bandwidth_bps": None, "latency_ns": 10 * MS}),
    ("ns3", {"DataRate": "5Mbps", "Delay": "2ms"}, {"bandwidth_bps": 5 * MBIT, "latency_ns": 2 * MS}),
    ("celestial", {"bandwidth_kbits": 10_000, "delay_us": 1500}, {"bandwidth_bps": 10 * MBIT, "latency_ns": 1_500_000}),
    ("simgrid", {"bandwidth": "20Mbps", "latency": "1ms"}, {"bandwidth_bps": 20 * MBIT, "latency_ns": MS}),
    ("simgrid", {"bandwidth": "20MBps", "latency": 0.001}, {"bandwidth_bps": 160 * MBIT, "latency_ns": MS}),
    ("simgrid", {"bandwidth": 1.25e6}, {"bandwidth_bps": 10 * MBIT}),
    ("toxiproxy", {"latency": 100, "jitter": 10, "rate": 50}, {
        "latency_ns": JitterSpec("uniform", 100 * MS, 10 * MS), "bandwidth_bps": 400_000}),
    ("astrasim", {"bandwidth": 50.0, "latency": 500.0}, {"bandwidth_bps": 400 * 10**9, "latency_ns": 500}),
    (None, {"latency_ms": 4, "jitter": "1 ms"}, {"latency_ns": JitterSpec("uniform", 4 * MS, MS)}),
    (None, {"LinkSpeedRaw": 155e6, "LinkSpeed": "155", "LinkSpeedUnits": "M"}, {"bandwidth_bps": 155 * MBIT}),
    (None, {"LinkSpeedRaw": 155e6, "bandwidth": "1 Gbit/s"}, {"bandwidth_bps": 1000 * MBIT}),
    (None, {"latency": "2 ms", "delay_us": 2000}, {"latency_ns": 2 * MS}),
    (None, {"outage": OutageSpec(0.2, "round")}, {"outage": OutageSpec(0.2, "round")}),
])
def test_names_of_tools_have_their_native_units(dialect, data, expected):
    assert stated(dialect, **data) == expected


def test_jitter_of_a_file_lowers_what_the_kernel_may_count_on():
    graph = nx.Graph([("a", "b", {"latency": "20 ms", "jitter": "5 ms", "bw": 1}),
                      ("b", "c", {"latency": "1 ms", "bw": 1})])
    network = build(TopologySpec(graph=graph, roles=ALL), [], 7)
    assert (network.latency_ns(0, 2), network.out_latency_ns(0)) == (16 * MS, 15 * MS)
    link, late = network.link(0, 1), []
    for now in range(0, 200 * 10**9, 10**9):
        link.offer(now, None, 0, 1)
        late.append(link.next_change() - now)
        link.advance(link.next_change())
    assert 15 * MS <= min(late) < 16 * MS < 24 * MS < max(late) <= 25 * MS


def test_every_dialect_is_tried_above():
    tried = {mark.args[1][i][0] for mark in test_names_of_tools_have_their_native_units.pytestmark
             for i in range(len(mark.args[1]))}
    assert tried == {None, *DIALECTS}


@pytest.mark.parametrize("name", ["latency", "delay", "Delay", "bandwidth", "capacity", "rate", "jitter"])
def test_a_bare_number_is_refused_where_no_tool_says_the_unit(name):
    (place, found, expected), *_ = wrong(**{name: 20})
    assert (place, found) == (f"edge, {name}", "20")
    assert "the unit is missing" in expected


@pytest.mark.parametrize(("data", "place", "said"), [
    ({"bw": -1}, "edge, bw", "not negative"),
    ({"bw": math.nan}, "edge, bw", "expected a bandwidth"),
    ({"bandwidth": 0}, "edge, bandwidth", "above 0"),
    ({"delay_us": "soon"}, "edge, delay_us", "expected a duration"),
    ({"delay_us": 1e25}, "edge, delay_us", "below 2^63"),
    ({"loss": 30}, "edge, loss", "expected a probability in [0, 1]"),
    ({"loss": [1]}, "edge, loss", "expected a probability in [0, 1]"),
    ({"latency": "2 ms", "delay_us": 3}, "edge, delay_us", "expected one of latency and delay_us"),
    ({"jitter": "1 ms"}, "edge, jitter", "expected a latency, too"),
    ({"LinkSpeedRaw": "fast"}, "edge, LinkSpeedRaw", "expected a bandwidth"),
])
def test_a_value_that_cannot_be_names_its_attribute(data, place, said):
    found = wrong(**data)
    assert [p for p, _, _ in found] == [place]
    assert said in found[0][2]


def test_an_unknown_dialect_is_named():
    with pytest.raises(NetworkError, match=r'topology\.dialect +\'cored\' +unknown dialect; did you mean "core"\?'):
        build(TopologySpec(graph=nx.path_graph(2), roles=ALL, dialect="cored"), [], 7)


# --- places, distances ------------------------------------------------------------------------------------------------

def test_great_circles_are_as_long_as_known_ones():
    oslo, rome, wellington, madrid = (59.9139, 10.7522), (41.9028, 12.4964), (-41.2865, 174.7762), (40.4168, -3.7038)
    assert great_circle_km(oslo, rome) == pytest.approx(2008, abs=2)
    assert great_circle_km(wellington, madrid) == pytest.approx(19_855, abs=20)
    assert great_circle_km(rome, rome) == 0
    assert great_circle_km((90, 0), (-90, 77)) == pytest.approx(math.pi * 6371.0088)


def test_a_vertex_without_coordinates_takes_the_mean_of_its_neighbours():
    graph = nx.path_graph(5)
    nx.set_node_attributes(graph, {0: {"lat": 10.0, "lon": 0.0}, 2: {"Latitude": 20, "Longitude": 40},
                                   4: {"pos": [7.0, 1.0]}})
    places, problems = positions(graph, list("abcde"))
    assert problems == []
    assert places.points == ((10, 0), (15, 20), (20, 40), (10.5, 23.5), (1, 7))
    island = nx.empty_graph(1)
    assert positions(island, ["a"])[0].points == (None,)


@pytest.mark.parametrize("data", [{"lat": 91, "lon": 0}, {"lat": 0, "lon": -181}, {"lat": math.nan, "lon": 0},
                                  {"lat": "x", "lon": 0}, {"lat": True, "lon": 0}])
def test_degrees_that_cannot_be_name_their_vertex(data):
    graph = nx.Graph()
    graph.add_node(0, **data)
    _, (problem,) = positions(graph, ["Rome"])
    assert problem.place == "vertex Rome"


def geo(**edge):
    graph = nx.Graph()
    graph.add_node("a", Latitude=0.0, Longitude=0.0)
    graph.add_node("b", Latitude=0.0, Longitude=180.0)
    graph.add_node("c", Latitude=0.0, Longitude=0.0)
    graph.add_edge("a", "b", **edge)
    graph.add_edge("a", "c")
    return graph


def test_latency_follows_the_distance_where_none_is_stated():
    def latencies(latency, **edge):
        spec = TopologySpec(graph=geo(**edge), roles=ALL, latency=latency, capacity=Capacity("infinite"))
        network = build(spec, [LinkRule("c->a", latency_ns=3)], 7)
        return [network.parameters(*ends).latency_ns for ends in ((0, 1), (1, 0), (0, 2), (2, 0))]

    half = math.pi * 6371.0088
    assert latencies(Distance()) == [round(half * 5000), round(half * 5000), 10_000, 3]
    assert latencies(Distance(4000, 1.5, 0))[::2] == [round(half * 6000), 0]
    assert latencies(Distance(), dist=100)[0] == 500_000
    assert latencies(Distance(), dist=100, latency_ms=7)[0] == 7 * MS


def test_a_map_without_capacities_needs_a_rule_for_them():
    def lines(capacity=None, rules=()):
        with pytest.raises(NetworkError) as caught:
            build(TopologySpec(graph=geo(), roles=ALL, latency=Distance(), capacity=capacity), list(rules), 7)
        return [" ".join(line.split()) for line in str(caught.value).splitlines()]

    assert lines() == ["graph: 2 errors"] + [
        f'edge a<->{v} no bandwidth expected a capacity rule, such as topology.capacity: 1 Gbit/s, or '
        f'{{match: "a<->{v}", bandwidth: ...}}; infinite says that it is meant' for v in "bc"]
    assert lines(rules=[LinkRule("a<->b", bandwidth_bps=5), LinkRule("c->a", bandwidth_bps="infinite")]) == [
        "graph: 1 error",
        'edge a->c no bandwidth expected a capacity rule, such as topology.capacity: 1 Gbit/s, or {match: "a->c", '
        'bandwidth: ...}; infinite says that it is meant']
    spec = TopologySpec(graph=geo(), roles=ALL, latency=Distance())
    build(spec, [LinkRule("*", bandwidth_bps="infinite")], 7)


def test_the_capacity_rule_fills_what_a_file_leaves_open():
    graph = nx.Graph([("a", "b", {"max": 40, "LinkSpeedRaw": 1e9}), ("b", "c", {"LinkSpeedRaw": 1e9}), ("c", "d", {}),
                      ("d", "e", {"max": 40, "bw": 3})])
    spec = TopologySpec(graph=graph, roles=ALL, capacity=Capacity(7 * MBIT, by="max", unit_bps=MBIT))
    network = build(spec, [LinkRule("*", latency_ns=1)], 7)
    assert [network.parameters(v, v + 1).bandwidth_bps for v in range(4)] == [40 * MBIT, 10**9, 7 * MBIT, 3 * MBIT]
    with pytest.raises(NetworkError, match=r"topology\.capacity\.by +'min' +unknown attribute of edges; there are: m"):
        build(TopologySpec(graph=graph, roles=ALL, capacity=Capacity(by="min")), [LinkRule("*", latency_ns=1)], 7)
    with pytest.raises(NetworkError, match=r"edge a<->b, max +40 +expected a bandwidth .*: the unit is missing"):
        build(TopologySpec(graph=graph, roles=ALL, capacity=Capacity(by="max")), [LinkRule("*", latency_ns=1)], 7)


def test_rates_of_vertices_limit_each_of_their_links():
    graph = nx.path_graph(["a", "b"])
    nx.set_node_attributes(graph, {"a": {"bandwidth_up": "10 Mbit/s"}, "b": {"host_bandwidth_up": "1 Gbit",
                                                                            "host_bandwidth_down": "20 Mbit"}})
    for edge, expected in (({}, (10, 1000)), ({"bw": 15}, (10, 15))):
        graph.edges["a", "b"].update(edge)
        network = build(TopologySpec(graph=graph, roles=ALL), [LinkRule("*", latency_ns=1)], 7)
        assert tuple(network.parameters(*ends).bandwidth_bps // MBIT for ends in ((0, 1), (1, 0))) == expected


# --- what nobody uses -------------------------------------------------------------------------------------------------

def test_unused_attributes_are_counted_and_unknown_ones_are_warned_of():
    plain = {"latency": "1 ms", "bw": 5, "delya": 3}
    graph = nx.Graph([("a", "b", {**plain, "LinkType": "x"}), ("b", "c", plain)])
    nx.set_node_attributes(graph, {"a": {"Country": "I", "cpu": 4, "tier": 1}})
    spec = TopologySpec(graph=graph, roles={"client": RoleRule("attribute", attribute="tier", value=1)})
    network = build(spec, [], 7)
    assert network.unused_attributes() == {("edges", "delya"): 2, ("edges", "LinkType"): 1, ("vertices", "Country"): 1,
                                           ("vertices", "cpu"): 1}
    assert network.warnings() == ['graph: nothing uses the attribute "delya" of 2 edges',
                                  'graph: nothing uses the attribute "cpu" of 1 vertices']


def test_links_without_bandwidth_are_warned_of_until_somebody_says_infinite():
    graph = nx.Graph([("a", "b", {"latency": "1 ms"}), ("b", "c", {"latency": "1 ms", "datarate": 0})])
    spec = TopologySpec(graph=graph, roles=ALL)
    assert build(spec, [], 7).warnings() == [
        "graph: 1 edges, such as a<->b, have no bandwidth and count as infinitely fast: give topology.capacity, or a "
        "rule with a bandwidth (infinite says that it is meant)"]
    assert build(spec, [LinkRule("*", bandwidth_bps="infinite")], 7).warnings() == []


def test_every_name_has_one_meaning():
    assert {meaning.field for meaning in EDGE.values()} == {"latency_ns", "bandwidth_bps", "outage", "jitter_ns"}


@pytest.mark.parametrize(("text", "km"), [("1000 km", 1000), ("0.5km", 0.5), (" 250 m", 0.25)])
def test_lengths_are_read_and_written(text, km):
    assert length_km(text) == km
    assert length_km(format_length(km)) == km


@pytest.mark.parametrize("value", [5, "5", "0 km", "-1 km", "5 miles", None, "1e3 km"])
def test_what_is_no_length_is_refused(value):
    with pytest.raises(ValueError, match=r"^expected a length above 0, such as 1000 km$"):
        length_km(value)
