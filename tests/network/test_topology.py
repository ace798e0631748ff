"""Generated topologies: names, roles, links, routes without search, common random numbers."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from emul.base.errors import NetworkError
from emul.network import HERE, NEVER, LinkRule, OutageSpec, RoleRule, TopologySpec, build

MS = 10**6


def linked(network):
    """All (u, v) that have a link."""
    found = set()
    for u in range(len(network.names)):
        for v in range(len(network.names)):
            try:
                network.parameters(u, v)
            except NetworkError:
                continue
            found.add((u, v))
    return found


def test_a_star_links_every_client_with_the_server_both_ways_and_nothing_else():
    network = build(TopologySpec("star", clients=3), [], 7)
    assert network.names == ["server", "client1", "client2", "client3"]
    assert network.roles == {"server": [0], "client": [1, 2, 3]}
    assert linked(network) == {(0, 1), (1, 0), (0, 2), (2, 0), (0, 3), (3, 0)}
    with pytest.raises(NetworkError, match=r"^there is no link client1 -> client2$"):
        network.link(1, 2)
    with pytest.raises(NetworkError, match=r"^there is no link server -> server$"):
        network.link(0, 0)


def test_several_servers_are_numbered_and_linked_with_each_other():
    network = build(TopologySpec("star", clients=2, servers=2), [], 7)
    assert network.names == ["server1", "server2", "client1", "client2"]
    assert network.roles == {"server": [0, 1], "client": [2, 3]}
    assert linked(network) == {(u, v) for u in range(4) for v in range(4) if u != v} - {(2, 3), (3, 2)}


def test_a_star_mesh_and_a_complete_graph_link_everybody():
    mesh = build(TopologySpec("star_mesh", clients=3), [], 7)
    peers = build(TopologySpec("complete", peers=4), [], 7)
    assert peers.names == ["peer1", "peer2", "peer3", "peer4"]
    assert peers.roles == {"peer": [0, 1, 2, 3]}
    assert linked(mesh) == linked(peers) == {(u, v) for u in range(4) for v in range(4) if u != v}


def test_generated_links_have_no_latency_and_infinite_bandwidth_unless_a_rule_says_so():
    link = build(TopologySpec("star", clients=1), [], 7).link(1, 0)
    assert (link.latency_ns, link.bandwidth_bps, link.overhead_bytes) == (0, None, 0)
    assert link.offer(5, "m", 10**9, 1)
    assert link.advance(5) == [("m", True, HERE, 0)]


def test_a_link_is_one_object_made_on_first_use():
    network = build(TopologySpec("star_mesh", clients=3), [], 7)
    assert network.links() == []
    link = network.link(2, 1)
    assert network.link(2, 1) is link
    assert network.link(1, 2) is not link
    assert [(made.src, made.dst) for made in network.links()] == [(1, 2), (2, 1)]


def test_clients_of_a_star_talk_through_the_server_of_the_least_latency():
    rules = [LinkRule("*", latency_ns=20 * MS), LinkRule("*->server2", latency_ns=5 * MS),
             LinkRule("client3->server2", latency_ns=90 * MS)]
    network = build(TopologySpec("star", clients=3, servers=2), rules, 7)
    assert network.route(2, 3) == (2, 1, 3)
    assert network.latency_ns(2, 3) == 25 * MS
    assert network.route(4, 3) == (4, 0, 3)
    assert network.route(2, 0) == (2, 0)
    assert network.route(2, 2) == (2,)
    assert network.latency_ns(2, 2) == 0
    assert build(TopologySpec("star", clients=2, servers=2), [], 7).route(2, 3) == (2, 0, 3)    # tie: the lowest id


def test_hosts_of_a_mesh_forward_nothing_even_where_a_detour_were_faster():
    rules = [LinkRule("*", latency_ns=1), LinkRule("client1->server", latency_ns=100)]
    network = build(TopologySpec("star_mesh", clients=3), rules, 7)
    assert network.route(1, 0) == (1, 0)
    assert network.latency_ns(1, 0) == 100


def test_the_least_outgoing_latency_is_that_of_a_link_that_exists():
    rules = [LinkRule("*", latency_ns=20), LinkRule("client*->client*", latency_ns=3),
             LinkRule("client1->client1", latency_ns=1), LinkRule("server->client2", latency_ns=7)]
    star, mesh = (build(TopologySpec(g, clients=2), rules, 7) for g in ("star", "star_mesh"))
    assert [star.out_latency_ns(u) for u in range(3)] == [7, 20, 20]
    assert [mesh.out_latency_ns(u) for u in range(3)] == [7, 3, 3]
    assert build(TopologySpec("complete", peers=1), [], 7).out_latency_ns(0) == NEVER


def test_a_mesh_of_2000_clients_costs_no_four_million_links():
    start = time.process_time()
    network = build(TopologySpec("star_mesh", clients=2000), [
        LinkRule("*", latency_ns=20), LinkRule("client1*<->client2*", latency_ns=9, outage=OutageSpec(0.1)),
        LinkRule("nobody->*")], 7)
    assert min(network.out_latency_ns(u) for u in range(2001)) == 9
    assert network.route(5, 1999) == (5, 1999)
    assert [rule.match for rule in network.unmatched_rules()] == ["nobody->*"]
    assert network.links() == []
    assert time.process_time() - start < 1


def test_an_idle_client_changes_no_fate():
    rules = [LinkRule("client*->*", outage=OutageSpec(0.5)), LinkRule("*->client*", outage=OutageSpec(0.5, "round"))]

    def fates(clients):
        network = build(TopologySpec("star_mesh", clients=clients), rules, 7)
        return [network.link(u, v).offer(0, None, 1, t) for u, v in ((1, 0), (0, 2), (1, 2)) for t in range(1, 40)]

    assert fates(3) == fates(2)
    assert len(set(fates(2))) == 2


@pytest.mark.parametrize(("spec", "expected"), [
    (TopologySpec("stars", clients=3), ["topology.generator 'stars' unknown generator; did you mean \"star\"?"]),
    (TopologySpec("zzz"), ["topology.generator 'zzz' unknown generator; there are: star, star_mesh, complete, ring, "
                           "tree, grid, random_geometric, watts_strogatz, barabasi_albert"]),
    (TopologySpec("star", clients=0, servers=True, line=3), [
        "line 3 topology.clients 0 expected a whole number, 1 or more",
        "line 3 topology.servers True expected a whole number, 1 or more"]),
    (TopologySpec("complete", clients=3), ["topology.peers None expected a whole number, 1 or more"]),
    (TopologySpec("star", clients=3, roles={"client": RoleRule("all")}), [
        "topology.roles client is for files: a generator has its own roles"]),
])
def test_a_generator_that_cannot_be_is_refused_with_all_that_is_wrong(spec, expected):
    with pytest.raises(NetworkError) as caught:
        build(spec, [], 7)
    assert [" ".join(line.split()) for line in str(caught.value).splitlines()[1:]] == expected


@pytest.mark.parametrize(("spec", "found"), [
    (TopologySpec(), "none"), (TopologySpec("star", clients=1, file="x.graphml"), "generator and file")])
def test_a_topology_is_one_thing(spec, found):
    with pytest.raises(NetworkError) as caught:
        build(spec, [], 7)
    assert str(caught.value) == (
        f"topology: expected one of generator, file, matrix, graph, constellation; found {found}")


def test_stars_need_no_networkx():
    code = ("import sys; from emul.network import *; build(TopologySpec('star', clients=2), [], 7).route(1, 2); "
            "sys.exit('networkx' in sys.modules)")
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
