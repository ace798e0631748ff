"""Link rules: which links a pattern means, who wins, which rules do nothing, what is refused."""

from __future__ import annotations

from fnmatch import fnmatchcase

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emul.base.errors import NetworkError
from emul.network import LinkParameters, LinkRule, OutageSpec, RoleRule, TopologySpec, build, parse_match

MS = 10**6
STAR = TopologySpec("star", clients=3)
MESH = TopologySpec("star_mesh", clients=3)


def pairs(network, wanted):
    """The links whose parameters satisfy `wanted`, as (source, destination) names."""
    found = set()
    for u, source in enumerate(network.names):
        for v, destination in enumerate(network.names):
            try:
                p = network.parameters(u, v)
            except NetworkError:
                continue
            if wanted(p):
                found.add((source, destination))
    return found


@pytest.mark.parametrize(("match", "expected"), [
    ("*", [("*", "*")]),
    (" * ", [("*", "*")]),
    ("a->b", [("a", "b")]),
    ("client* -> server", [("client*", "server")]),
    ("a<->b", [("a", "b"), ("b", "a")]),
    ("*<->*", [("*", "*")]),
])
def test_a_match_is_read_as_patterns_of_both_ends(match, expected):
    assert parse_match(match) == expected


@pytest.mark.parametrize("match", ["", "client*", "a->", "->b", "a->b->c", "a<->b->c", "a<->b<->c", "a-b", "**"])
def test_a_match_that_is_no_pattern_of_a_link_is_refused(match):
    with pytest.raises(ValueError, match=r'^expected "src->dst", "a<->b" or "\*", each side a name or a pattern'):
        parse_match(match)


@pytest.mark.parametrize(("match", "expected"), [
    ("client1->server", {("client1", "server")}),
    ("client[12]<->server", {("client1", "server"), ("server", "client1"),
                             ("client2", "server"), ("server", "client2")}),
    ("client*->client3", {("client1", "client3"), ("client2", "client3")}),
    ("Client*->*", set()),
])
def test_a_rule_reaches_exactly_the_links_that_it_matches(match, expected):
    network = build(MESH, [LinkRule(match, latency_ns=5)], 7)
    assert pairs(network, lambda p: p.latency_ns == 5) == expected


def test_later_rules_win_field_by_field():
    network = build(MESH, [
        LinkRule("*", latency_ns=20 * MS, bandwidth_bps=10**7, outage=OutageSpec(0.5), overhead_bytes=66, mtu=1448),
        LinkRule("client*->*", outage=OutageSpec(0.1, "round"), transport="datagram"),
        LinkRule("*->server", bandwidth_bps="infinite", overhead_bytes=0),
        LinkRule("server->*", outage="none"),
    ], 7)
    assert network.parameters(1, 0) == LinkParameters(20 * MS, None, OutageSpec(0.1, "round"), "datagram", 0, 1448)
    assert network.parameters(1, 2) == LinkParameters(20 * MS, 10**7, OutageSpec(0.1, "round"), "datagram", 66, 1448)
    assert network.parameters(0, 1) == LinkParameters(20 * MS, 10**7, None, "datagram", 66, 1448)
    link = network.link(1, 2)
    assert (link.src, link.dst, link.latency_ns, link.bandwidth_bps, link.overhead_bytes, link.mtu, link.down) == (
        1, 2, 20 * MS, 10**7, 66, 1448, False)


patterns = st.sampled_from(["*", "client*", "client1", "client2", "server", "*1", "c*[23]", "nobody", "*e*"])
rules = st.lists(st.builds(
    LinkRule, st.one_of(st.just("*"), st.builds(lambda a, arrow, b: a + arrow + b, patterns,
                                                st.sampled_from(["->", "<->"]), patterns)),
    latency_ns=st.one_of(st.none(), st.integers(0, 5)),
    bandwidth_bps=st.one_of(st.none(), st.just("infinite"), st.integers(1, 5))), max_size=6)


@given(rules, st.sampled_from(["star", "star_mesh"]), st.integers(1, 3))
def test_resolving_by_masks_equals_matching_every_rule_on_every_link(rules, generator, servers):
    """Oracle: enumerate all links and all rules."""
    network = build(TopologySpec(generator, clients=3, servers=servers), rules, 7)
    names, used, least = network.names, set(), {}
    for u in range(len(names)):
        for v in range(len(names)):
            if u == v or (generator == "star" and u >= servers and v >= servers):
                continue
            latency, bandwidth = 0, None
            for i, rule in enumerate(rules):
                ways = parse_match(rule.match)
                if any(fnmatchcase(names[u], a) and fnmatchcase(names[v], b) for a, b in ways):
                    used.add(i)
                    latency = latency if rule.latency_ns is None else rule.latency_ns
                    bandwidth = bandwidth if rule.bandwidth_bps is None else rule.bandwidth_bps
            bandwidth = None if bandwidth == "infinite" else bandwidth
            p = network.parameters(u, v)
            assert (p.latency_ns, p.bandwidth_bps) == (latency, bandwidth)
            assert network.link(u, v).latency_ns == network.latency_ns(u, v) == latency
            least[u] = min(latency, least.get(u, latency))
    assert [network.out_latency_ns(u) for u in range(len(names))] == [least[u] for u in range(len(names))]
    expected = [rule for i, rule in enumerate(rules) if i not in used]
    assert network.unmatched_rules() == expected


def test_a_rule_between_clients_matches_nothing_in_a_star_but_something_in_a_mesh():
    rules = [LinkRule("client*->client*", line=4), LinkRule("client1->client1", line=5), LinkRule("*", line=6)]
    assert [rule.line for rule in build(STAR, rules, 7).unmatched_rules()] == [4, 5]
    assert [rule.line for rule in build(MESH, rules, 7).unmatched_rules()] == [5]


def test_everything_wrong_with_the_rules_is_said_at_once():
    with pytest.raises(NetworkError) as caught:
        build(STAR, [LinkRule("clients", latency_ns=-1, line=4),
                     LinkRule("*", bandwidth_bps=float("nan"), outage=OutageSpec(1.4), line=9),
                     LinkRule("*", outage="off", transport="reliable", overhead_bytes=-1, mtu=0)], 7)
    assert [" ".join(line.split()) for line in str(caught.value).splitlines()] == [
        "links: 8 errors",
        'line 4 links[0].match \'clients\' expected "src->dst", "a<->b" or "*", each side a name or a pattern like '
        '"client*"',
        "line 4 links[0].latency -1 expected a whole number of ns, 0 or more",
        'line 9 links[1].bandwidth nan expected a positive number of bit/s or "infinite"',
        "line 9 links[1].outage.p 1.4 expected a probability in [0, 1]",
        'links[2].outage \'off\' expected an outage model or "none"',
        "links[2].transport 'reliable' expected \"datagram\", or an Arq or a TcpStack",
        "links[2].overhead_bytes -1 expected a whole number of bytes, 0 or more",
        "links[2].mtu 0 expected a whole number of bytes, 1 or more",
    ]


def test_a_name_with_characters_of_patterns_can_be_written_as_it_stands():
    graph = nx.Graph([("Rome [1]", "Oslo"), ("Rome 1", "Oslo")])
    spec = TopologySpec(graph=graph, roles={"client": RoleRule("all")})
    network = build(spec, [LinkRule("*", latency_ns=1), LinkRule("Rome [1]->Oslo", latency_ns=5)], 7)
    assert pairs(network, lambda p: p.latency_ns == 5) == {("Rome [1]", "Oslo")}
    network = build(spec, [LinkRule("*", latency_ns=1), LinkRule("Rome [[]1]->Oslo", latency_ns=5)], 7)
    assert pairs(network, lambda p: p.latency_ns == 5) == {("Rome [1]", "Oslo")}


@pytest.mark.parametrize(("pattern", "expected"), [
    ("Rome [1]", ["Rome [1]"]), ("Rome [[]1]", ["Rome [1]"]), ("Rome *", ["Rome [1]", "Rome 1"]), ("R", []),
    ("*", ["Rome [1]", "Rome 1"]), ("Oslo", []), ("@far", [])])
def test_the_vertices_of_a_name_or_a_pattern_are_found_among_some(pattern, expected):
    graph = nx.Graph([("Rome [1]", "Oslo"), ("Rome 1", "Oslo")])
    network = build(TopologySpec(graph=graph, roles={"client": RoleRule("all")}), [LinkRule("*", latency_ns=1)], 7)
    among = [network.vertex_of[name] for name in ("Rome [1]", "Rome 1")]
    assert [network.names[v] for v in network.fitting(pattern, among)] == expected
