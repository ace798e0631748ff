"""Hosts attached to places by access links: names, spread over the places, parameters, routes."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import networkx as nx
import pytest

from emul.base.errors import NetworkError
from emul.network import Access, Capacity, Distance, LinkRule, RoleRule, TopologySpec, build
from emul.network.terrain import Terrain, chart

MS = 10**6
LINK = Access(5 * MS, 20 * MS)
HUB = RoleRule("highest_betweenness")


def network(rules=(), seed=7, graph=None, spec=None, **roles):
    graph = nx.path_graph([*"abc"]) if graph is None else graph
    nx.set_edge_attributes(graph, 1 * MS, "latency_ns")
    return build(TopologySpec(graph=graph, roles=roles, **(spec or {})), list(rules), seed)


def places(net, role="client"):
    """The place of every host of a role."""
    return [net.names[place] for host in net.roles[role] for place in net.topology.neighbours(host)]


def test_hosts_are_spread_over_their_places_in_turn_and_leave_them_free():
    net = network(server=HUB, client=RoleRule("all", count=7, access=LINK))
    assert net.names == ["a", "b", "c", *(f"client{i}" for i in range(1, 8))]
    assert net.roles == {"server": [1], "client": [3, 4, 5, 6, 7, 8, 9]}
    assert places(net) == [*"abcabca"]
    assert net.route(3, 1) == (3, 0, 1)
    assert net.route(4, 7) == (4, 1, 7)
    assert net.latency_ns(3, 5) == 12 * MS
    assert net.parameters(3, 0).bandwidth_bps == net.parameters(0, 3).bandwidth_bps == 20 * MS


def test_without_a_count_there_is_a_host_a_place():
    assert places(network(client=RoleRule("leaves", access=LINK))) == ["a", "c"]
    assert places(network(client=RoleRule("nodes", ("c", "c", "a"), access=LINK))) == ["c", "c", "a"]


def test_all_hosts_of_one_place_and_a_server_that_is_a_host():
    net = network(server=RoleRule("nodes", ("a",), access=LINK),
                  client=RoleRule("highest_betweenness", count=3, access=LINK))
    assert net.names[3:] == ["server", "client1", "client2", "client3"]
    assert places(net) == ["b", "b", "b"]
    two = network(server=RoleRule("leaves", access=LINK), client=RoleRule("all"))
    assert (two.names[3:], two.roles) == (["server1", "server2"], {"server": [3, 4], "client": [0, 1, 2]})


def test_random_hosts_draw_a_place_each_from_the_seed():
    def drawn(seed):
        rule = RoleRule("random", count=400, access=LINK)
        return places(network(seed=seed, graph=nx.path_graph([*"abcde"]), client=rule))

    assert drawn(7) == drawn(7) != drawn(8)
    assert all(abs(n - 80) < 4 * (400 * 0.2 * 0.8) ** 0.5 for n in Counter(drawn(7)).values())


def test_rules_name_access_links_and_override_them():
    net = network([LinkRule("client*->*", bandwidth_bps=3), LinkRule("*->client2", latency_ns=9)],
                  client=RoleRule("all", count=3, access=LINK))
    assert net.parameters(4, 1).bandwidth_bps == 3
    assert (net.parameters(1, 4).bandwidth_bps, net.parameters(1, 4).latency_ns) == (20 * MS, 9)
    assert net.unmatched_rules() == []


def test_what_access_does_not_say_the_topology_says():
    graph = nx.path_graph([*"ab"])
    nx.set_node_attributes(graph, {"a": {"lat": 0, "lon": 0}, "b": {"lat": 0, "lon": 1}})
    spec = {"latency": Distance(), "capacity": Capacity(10**9)}
    net = network(graph=graph, spec=spec, client=RoleRule("all", access=Access()))
    assert (net.parameters(2, 0).latency_ns, net.parameters(2, 0).bandwidth_bps) == (10_000, 10**9)
    assert net.topology.positions.points == ((0, 0), (0, 1), (0, 0), (0, 1))
    with pytest.raises(NetworkError, match=r"edge a<->client1 +no latency"):
        network(client=RoleRule("all", access=Access()))
    free = network(client=RoleRule("all", access=Access(1, "infinite")), spec={"capacity": Capacity(10**9)})
    assert free.parameters(3, 0).bandwidth_bps is None


def test_a_vertex_that_is_called_like_a_host_keeps_its_name():
    net = network(graph=nx.path_graph(["client1", "x"]), client=RoleRule("all", access=LINK))
    assert net.names == ["client1", "x", "client1#2", "client2"]


def test_hosts_forward_nothing_since_they_have_one_link():
    net = network(graph=nx.cycle_graph(5), client=RoleRule("all", count=50, access=Access(0, None)))
    for u in net.roles["client"][:10]:
        for v in net.roles["client"][-10:]:
            assert all(w < 5 for w in net.route(u, v)[1:-1])
            assert all(net.link(*hop) for hop in pairwise(net.route(u, v)))


def test_a_role_without_access_that_asks_for_too_many_is_told_of_it():
    with pytest.raises(NetworkError, match=r'3 vertices by all +expected 9, or "access", by which a vertex can'):
        network(client=RoleRule("all", count=9))


SHADOW = """graph [
  node [ id 0 host_bandwidth_up "100 Mbit" host_bandwidth_down "1 Gbit" ]
  node [ id 1 host_bandwidth_up "10 Mbit" host_bandwidth_down "50 Mbit" ]
  edge [ source 0 target 0 latency "1 ms" ]
  edge [ source 0 target 1 latency "25 ms" packet_loss 0.002 ]
  edge [ source 1 target 1 latency "5 ms" packet_loss 0.01 ]
]
"""


def shadow(tmp_path, dialect="shadow", **roles):
    (file := tmp_path / "n.gml").write_text(SHADOW)
    return build(TopologySpec(file=file, dialect=dialect, roles=roles), [], 7)


def test_of_shadow_each_host_has_the_rates_of_its_vertex_and_two_of_one_talk_over_its_own_link(tmp_path):
    net = shadow(tmp_path, server=RoleRule("nodes", nodes=("0",), access=Access()),
                 client=RoleRule("nodes", nodes=("1",), count=3, access=Access(bandwidth_bps="infinite")))
    server, (a, b, _) = net.roles["server"][0], net.roles["client"]
    assert net.route(a, b) == (a, 1, 1, b)
    assert net.latency_ns(a, b) == 5_000_000
    assert net.parameters(1, 1).outage.p == 0.01
    assert net.route(a, server) == (a, 1, 0, server)
    assert net.latency_ns(a, server) == 25_000_000
    links = (a, 1), (1, a), (b, 1), (0, server), (server, 0), (1, 0)
    assert [net.parameters(*ends).bandwidth_bps for ends in links] == [10**7, 5 * 10**7, 10**7, 10**9, 10**8, None]
    assert Terrain(chart(net, [server, a, b])).latency_ns(1, 2) == 5_000_000


def test_a_node_on_the_vertex_itself_uses_its_own_link_and_rates_too(tmp_path):
    net = shadow(tmp_path, server=RoleRule("nodes", nodes=("1",)),
                 client=RoleRule("nodes", nodes=("1",), count=2, access=Access()))
    server, (a, _) = net.roles["server"][0], net.roles["client"]
    assert net.route(server, a) == (1, 1, a)
    assert net.route(a, server) == (a, 1, 1)
    assert net.parameters(1, 0).bandwidth_bps == 10**7
    assert net.parameters(0, 1).bandwidth_bps == 5 * 10**7


def test_in_other_files_a_link_to_itself_is_left_out(tmp_path):
    net = shadow(tmp_path, None, client=RoleRule("nodes", nodes=("1",), count=2, access=Access(0)))
    assert net.route(*net.roles["client"]) == (2, 1, 3)
