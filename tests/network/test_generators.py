"""Generated graphs: their shapes against closed forms, names and roles, places, streams, and what is refused."""

from __future__ import annotations

import math
import time
from itertools import combinations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emul.base.errors import NetworkError
from emul.network import SHAPES, Capacity, Distance, LinkRule, RoleRule, TopologySpec, build
from emul.network.graph.generators import near_pairs, shape

ALL = {"client": RoleRule("all")}


def drawn(generator, seed=7, **keys):
    counts = {key: keys.pop(key) for key in ("clients", "servers", "peers") if key in keys}
    return shape(TopologySpec(generator, roles={} if counts else ALL, sizes=keys, **counts), seed)


# --- shapes -----------------------------------------------------------------------------------------------------------

def test_a_ring_has_two_neighbours_each():
    graph, _ = drawn("ring", peers=9)
    assert nx.is_isomorphic(graph, nx.cycle_graph(9))
    assert [set(graph[v]) for v in (0, 8)] == [{1, 8}, {0, 7}]


@pytest.mark.parametrize(("sizes", "vertices"), [
    ({"branching": 3, "height": 2}, 13), ({"branching": 1, "height": 4}, 5), ({"branching": 2, "nodes": 6}, 6)])
def test_a_tree_is_filled_level_by_level_from_its_root(sizes, vertices):
    graph, places = drawn("tree", **sizes)
    assert nx.is_tree(graph)
    assert len(graph) == len(places.points) == vertices
    depth = nx.single_source_shortest_path_length(graph, 0)
    assert [depth[v] for v in graph] == sorted(depth.values())
    assert places.points[0] == (500, 500)
    distances = [math.dist(places.points[v], (500, 500)) for v in graph]     # a circle for each level
    assert distances == pytest.approx([500 * depth[v] / max(depth.values()) for v in graph])


def test_a_grid_has_four_neighbours_inside():
    graph, places = drawn("grid", rows=3, columns=5)
    assert sorted(graph[7]) == [2, 6, 8, 12]
    assert nx.is_isomorphic(graph, nx.grid_2d_graph(3, 5))
    assert places.points[7] == (500, 250)
    assert places.km(0, 1) == places.km(0, 5) == 250


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**63), st.integers(2, 40))
def test_a_random_geometric_graph_links_exactly_what_is_near(seed, n):
    radius = 0.6
    graph, places = drawn("random_geometric", seed, peers=n, radius=radius)
    near = {(u, v) for u in range(n) for v in range(u + 1, n) if places.km(u, v) <= radius * 1000}
    assert {tuple(sorted(edge)) for edge in graph.edges} == near
    middle = [math.dist(point, (500, 500)) for point in places.points]
    assert middle == sorted(middle)


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=30),
       st.integers(1, 12).map(lambda eighths: eighths / 8) | st.floats(1e-300, 1.5))
def test_near_pairs_are_those_that_a_look_at_all_pairs_finds_in_its_order(cells, radius):
    points = np.array(cells) / 8                # many lie exactly one radius apart
    near = [[u, v] for u, v in combinations(range(len(points)), 2)
            if ((points[u] - points[v]) ** 2).sum() <= radius ** 2]
    assert near_pairs(points, radius).tolist() == near


def test_watts_strogatz_begins_as_a_ring_lattice_and_keeps_its_number_of_edges():
    lattice, _ = drawn("watts_strogatz", peers=20, neighbours=4, rewire=0)
    assert all(set(lattice[v]) == {(v + d) % 20 for d in (-2, -1, 1, 2)} for v in lattice)
    graph, _ = drawn("watts_strogatz", peers=20, neighbours=4, rewire=0.5)
    assert graph.number_of_edges() == 40
    assert nx.is_connected(graph)
    assert nx.average_clustering(graph) < nx.average_clustering(lattice)


def test_barabasi_albert_attaches_every_new_vertex_and_has_hubs():
    graph, _ = drawn("barabasi_albert", peers=300, attach=2)
    assert graph.number_of_edges() == 2 * (300 - 2)
    degrees = sorted((d for _, d in graph.degree), reverse=True)
    assert degrees[0] > 5 * degrees[150]


@pytest.mark.parametrize(("generator", "sizes"), [
    ("random_geometric", {"radius": 0.4}), ("watts_strogatz", {"neighbours": 4, "rewire": 0.3}),
    ("barabasi_albert", {"attach": 2})])
def test_what_is_random_comes_from_the_seed(generator, sizes):
    def edges(seed):
        graph, places = drawn(generator, seed, peers=30, **sizes)
        return sorted(map(sorted, graph.edges)), places

    assert edges(7) == edges(7)
    assert edges(7)[0] != edges(8)[0]


# --- as networks ------------------------------------------------------------------------------------------------------

def test_counts_give_names_and_roles_and_the_first_vertices_serve():
    network = build(TopologySpec("tree", clients=4, servers=2, sizes={"branching": 2}), [], 7)
    assert network.names == ["server1", "server2", "client1", "client2", "client3", "client4"]
    assert network.roles == {"server": [0, 1], "client": [2, 3, 4, 5]}
    assert build(TopologySpec("ring", peers=3), [], 7).roles == {"peer": [0, 1, 2]}
    assert build(TopologySpec("ring", clients=3), [], 7).names[0] == "server"


def test_every_vertex_forwards_whatever_role_it_plays():
    rules = [LinkRule("*", latency_ns=10), LinkRule("peer2->*", latency_ns=1)]
    network = build(TopologySpec("ring", peers=6), rules, 7)
    assert network.route(0, 2) == (0, 1, 2)
    assert network.latency_ns(0, 2) == 11
    assert network.route(0, 5) == (0, 5)


def test_rules_of_roles_work_on_numbered_vertices():
    spec = TopologySpec("grid", sizes={"rows": 3, "columns": 3},
                        roles={"server": RoleRule("highest_betweenness"), "client": RoleRule("nodes", ("n1", "n9"))})
    network = build(spec, [], 7)
    assert network.roles == {"server": [4], "client": [0, 8]}
    assert network.names[8] == "n9"


def test_links_have_no_latency_and_no_limit_until_something_says_so():
    spec = TopologySpec("ring", peers=4)
    network = build(spec, [], 7)
    p = network.parameters(0, 1)
    assert (p.latency_ns, p.bandwidth_bps, network.warnings()) == (0, None, [])
    spec = TopologySpec("grid", roles=ALL, sizes={"rows": 2, "columns": 3}, extent_km=400, latency=Distance(),
                        capacity=Capacity(10**9))
    p = build(spec, [], 7).parameters(0, 1)
    assert (p.latency_ns, p.bandwidth_bps) == (200 * 5000, 10**9)


def test_a_ring_of_100000_and_a_star_of_100000_are_made_in_seconds():
    start = time.process_time()
    ring = build(TopologySpec("ring", peers=100_000), [LinkRule("*", latency_ns=5)], 7)
    assert ring.route(7, 10) == (7, 8, 9, 10)
    assert time.process_time() - start < 30
    start = time.process_time()
    star = build(TopologySpec("star", clients=100_000), [LinkRule("client1*->*", latency_ns=5)], 7)
    assert star.route(1, 100_000) == (1, 0, 100_000)
    assert star.unmatched_rules() == star.warnings() == []
    assert time.process_time() - start < 3


# --- what is refused --------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("spec", "expected"), [
    (TopologySpec("ring"), [
        "topology.generator no number of vertices expected one of nodes, clients, peers",
        "topology.roles none expected who is what, such as {server: [n1], client: {rule: all}}"]),
    (TopologySpec("ring", peers=3, clients=4, line=5), [
        "line 5 topology.generator clients and peers expected one of nodes, clients, peers"]),
    (TopologySpec("tree", clients=3, sizes={"height": 2}), [
        "topology.generator height and clients expected one of nodes, clients, peers, or height",
        'topology.branching missing is needed by the generator "tree"']),
    (TopologySpec("grid", peers=4, sizes={"rows": 2, "columns": 2}), [
        "topology.generator rows and columns and peers expected one of nodes, clients, peers; a grid has rows and "
        "columns, and roles"]),
    (TopologySpec("ring", peers=3, roles=ALL), [
        "topology.roles client is not used with clients or peers, which say the roles"]),
    (TopologySpec("ring", peers=3, sizes={"rows": 2}), ['topology.rows 2 is not used by the generator "ring"']),
    (TopologySpec("ring", clients=3, servers=0), ["topology.servers 0 expected a whole number, 1 or more"]),
    (TopologySpec("ring", peers=True), ["topology.peers True expected a whole number, 1 or more"]),
    (TopologySpec("watts_strogatz", peers=6, sizes={"neighbours": 3, "rewire": 2}), [
        "topology.rewire 2 expected a probability in [0, 1]"]),
    (TopologySpec("watts_strogatz", peers=6, sizes={"neighbours": 3, "rewire": 0.1}), [
        "topology.neighbours 3 expected an even number below the 6 vertices"]),
    (TopologySpec("barabasi_albert", peers=3, sizes={"attach": 3}), [
        "topology.attach 3 expected less than the 3 vertices"]),
    (TopologySpec("random_geometric", peers=9, sizes={"radius": math.nan}), [
        "topology.radius nan expected a share of the side of the square, above 0, at most 1.5"]),
    (TopologySpec("random_geometric", peers=50, sizes={"radius": 0.01}), [
        "topology.radius 0.01 gave no connected graph in 100 draws: expected a larger radius"]),
    (TopologySpec("tree", roles=ALL, sizes={"branching": 100, "height": 9}), [
        f"topology.generator {(100**10 - 1) // 99} vertices expected at most 1000000"]),
])
def test_a_shape_that_cannot_be_is_refused_with_all_that_is_wrong(spec, expected):
    with pytest.raises(NetworkError) as caught:
        build(spec, [], 7)
    assert [" ".join(line.split()) for line in str(caught.value).splitlines()[1:]] == expected


SIZES = st.dictionaries(st.sampled_from([*(k for names in SHAPES.values() for k in names), "nodes", "x"]),
                        st.integers(-1, 12) | st.floats() | st.booleans() | st.none() | st.text(max_size=2), max_size=4)


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(sorted(SHAPES)), SIZES, st.none() | st.integers(-1, 20), st.none() | st.integers(-1, 20),
       st.booleans())
def test_no_sizes_raise_anything_but_network_errors(generator, sizes, clients, peers, with_roles):
    spec = TopologySpec(generator, clients=clients, peers=peers, sizes=sizes, roles=ALL if with_roles else {})
    try:
        network = build(spec, [], 7)
    except NetworkError:
        return
    n = len(network.names)
    assert sum(map(len, network.roles.values())) == n
    assert network.route(0, n - 1)[-1] == n - 1             # connected
