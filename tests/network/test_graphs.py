"""Topologies from graphs and GraphML files: names, attributes, roles, routes, and what is refused."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emul.base.errors import NetworkError
from emul.network import NEVER, LinkRule, OutageSpec, RoleRule, TopologyError, TopologySpec, build

MS = 10**6
ZOO = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "topologies" / "topology-zoo"
ALL = {"client": RoleRule("all")}
MINE = [LinkRule("*", latency_ns=1)]

KEYS = """<?xml version="1.0"?><graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key id="l" for="node" attr.name="label" attr.type="string"/>
<key id="t" for="edge" attr.name="latency" attr.type="string"/>
<key id="b" for="edge" attr.name="bandwidth" attr.type="string"/>
<key id="d" for="edge" attr.name="latency_ns" attr.type="double"/>
<key id="o" for="edge" attr.name="outage" attr.type="string"/>"""


def write(path, body, directed="undirected"):
    path.write_text(f'{KEYS}<graph edgedefault="{directed}">{body}</graph></graphml>')
    return path


def node(key, label=None):
    return f'<node id="{key}">' + (f'<data key="l">{label}</data>' if label else "") + "</node>"


def edge(source, target, **data):
    values = "".join(f'<data key="{k}">{v}</data>' for k, v in data.items())
    return f'<edge source="{source}" target="{target}">{values}</edge>'


def refusal(spec, rules=()):
    """The lines of the NetworkError, blanks squeezed."""
    with pytest.raises(NetworkError) as caught:
        build(spec, list(rules), 7)
    return [" ".join(line.split()) for line in str(caught.value).splitlines()]


# --- names and attributes -------------------------------------------------------------------------------------------

def test_a_file_gives_names_links_in_both_directions_and_parameters(tmp_path):
    file = write(tmp_path / "net.graphml", node("n0", "Rome") + node("n1", "Oslo") + node("n2", "Rome") + node("n3")
                 + edge("n0", "n1", t="20 ms", b="20 Mbit/s", o="30%") + edge("n1", "n2", t="1 s") + edge("n3", "n3")
                 + edge("n2", "n3", t="0 s"))
    network = build(TopologySpec(file=file, roles=ALL), [LinkRule("Oslo->Rome#2", latency_ns=5)], 7)
    assert network.names == ["Rome", "Oslo", "Rome#2", "n3"]
    for u, v in ((0, 1), (1, 0)):
        p = network.parameters(u, v)
        assert (p.latency_ns, p.bandwidth_bps, p.outage) == (20 * MS, 20 * MS, OutageSpec(0.3))
    assert network.parameters(1, 2).latency_ns == 5
    assert network.parameters(2, 1).latency_ns == 1000 * MS
    assert network.parameters(2, 3).bandwidth_bps is None
    with pytest.raises(NetworkError, match=r"^there is no link n3 -> n3$"):
        network.link(3, 3)


def test_a_directed_file_has_links_in_the_direction_of_its_edges_only(tmp_path):
    file = write(tmp_path / "net.graphml", node("a") + node("b") + edge("a", "b", t="1 ms"), "directed")
    network = build(TopologySpec(file=file, roles=ALL), [], 7)
    assert network.latency_ns(0, 1) == MS
    assert (network.out_latency_ns(0), network.out_latency_ns(1)) == (MS, NEVER)
    for ask in (network.route, network.latency_ns):
        with pytest.raises(NetworkError, match=r"net.graphml: a cannot be reached from b: no links lead there$"):
            ask(1, 0)


def test_names_stay_unique_where_a_label_looks_like_a_numbered_one():
    graph = nx.Graph()
    graph.add_nodes_from([(0, {"label": "x"}), (1, {"name": "x"}), (2, {"label": "x#2"}), (3, {"label": "x"}), "x"])
    names = build(TopologySpec(graph=graph, roles=ALL), [], 7).names
    assert names[0] == "x"
    assert names[2] == "x#2"
    assert len(set(names)) == 5


def test_of_parallel_edges_the_first_that_states_a_thing_wins():
    graph = nx.MultiGraph([("a", "b", {"latency_ns": 5}), ("a", "b", {"latency_ns": 1, "bandwidth_bps": 100})])
    p = build(TopologySpec(graph=graph, roles=ALL), [], 7).parameters(1, 0)
    assert (p.latency_ns, p.bandwidth_bps) == (5, 100)


TWO_ROWS = {        # of one pair, once in each direction
    "csv": "source,target,latency,bandwidth\na,b,20 ms,100 Mbit/s\nb,a,60 ms,10 Mbit/s\n",
    "edgelist": 'a b latency="20 ms" bandwidth=100Mbit/s\nb a latency="60 ms" bandwidth=10Mbit/s\n',
    "json": '{"nodes": [{"id": "a"}, {"id": "b"}], "links": [\n{"source": "a", "target": "b", "latency": "20 ms", '
            '"bandwidth": "100 Mbit/s"},\n{"source": "b", "target": "a", "latency": "60 ms", '
            '"bandwidth": "10 Mbit/s"}]}',
    "gml": 'graph [ node [ id 0 label "a" ] node [ id 1 label "b" ]\nedge [ source 0 target 1 latency "20 ms" '
           'bandwidth "100 Mbit/s" ]\nedge [ source 1 target 0 latency "60 ms" bandwidth "10 Mbit/s" ] ]',
    "graphml": '<graphml><key id="l" for="edge" attr.name="latency"/><key id="w" for="edge" attr.name="bandwidth"/>'
               '<graph edgedefault="undirected"><node id="a"/><node id="b"/>\n<edge source="a" target="b">'
               '<data key="l">20 ms</data><data key="w">100 Mbit/s</data></edge>\n<edge source="b" target="a">'
               '<data key="l">60 ms</data>'
               '<data key="w">10 Mbit/s</data></edge></graph></graphml>'}
ONCE_MORE = {       # ... and both in the same one
    "csv": ("b,a,60", "a,b,60"), "edgelist": ("b a", "a b"), "gml": ("source 1 target 0", "source 0 target 1"),
    "json": ('"source": "b", "target": "a"', '"source": "a", "target": "b"'),
    "graphml": ('source="b" target="a"', 'source="a" target="b"')}


@pytest.mark.parametrize("ending", TWO_ROWS)
def test_two_rows_of_a_pair_are_its_two_directions(tmp_path, ending):
    (file := tmp_path / f"n.{ending}").write_text(TWO_ROWS[ending])
    network = build(TopologySpec(file=file, roles=ALL), [], 7)
    assert [(p.latency_ns, p.bandwidth_bps) for p in (network.parameters(0, 1), network.parameters(1, 0))] == [
        (20_000_000, 100_000_000), (60_000_000, 10_000_000)]


def test_what_the_row_of_one_direction_leaves_out_it_has_from_the_other(tmp_path):
    (file := tmp_path / "n.csv").write_text(TWO_ROWS["csv"].replace(",10 Mbit/s", ","))
    assert build(TopologySpec(file=file, roles=ALL), [], 7).parameters(1, 0).bandwidth_bps == 100_000_000


@pytest.mark.parametrize("ending", TWO_ROWS)
def test_a_pair_that_stands_twice_in_one_direction_is_told_with_both_lines_or_is_measured_twice(tmp_path, ending):
    (file := tmp_path / f"n.{ending}").write_text(TWO_ROWS[ending].replace(*ONCE_MORE[ending]))
    with pytest.raises(TopologyError) as caught:
        build(TopologySpec(file=file, roles=ALL), [], 7)
    both = "links[0] and links[1]" if ending == "json" else f"line {1 + (ending != 'edgelist')} and line " \
        f"{2 + (ending != 'edgelist')}"
    assert [(p.place, p.found) for p in caught.value.problems] == [("edge a->b", both)] * 2
    assert "topology.repeated: mean" in caught.value.problems[0].expected
    for rule, latency in (("mean", 40_000_000), ("median", 40_000_000), ("first", 20_000_000)):
        network = build(TopologySpec(file=file, roles=ALL, repeated=rule), [], 7)
        assert network.parameters(0, 1).latency_ns == network.parameters(1, 0).latency_ns == latency


def test_parallel_cables_of_a_multigraph_are_warned_of(tmp_path):
    text = TWO_ROWS["gml"].replace(*ONCE_MORE["gml"]).replace("[", "[ multigraph 1", 1)
    (file := tmp_path / "n.gml").write_text(text)
    network = build(TopologySpec(file=file, roles=ALL), [], 7)
    assert network.parameters(1, 0).latency_ns == 20_000_000
    assert network.warnings() == [f"{file}: parallel edges have different values, of which the first counts unless "
                                  "topology.repeated says another rule: a->b (line 2 and line 3)"]


def test_a_name_of_0_is_a_name():
    graph = nx.Graph([(1, 2, {"latency_ns": 0}), (1, 3, {"latency_ns": 5})])
    graph.nodes[1].update(label=0, role=0)
    graph.nodes[2].update(name=1, role=0)
    graph.nodes[3].update(label="", name="x\n y", role="client")
    network = build(TopologySpec(graph=graph), [], 0)
    assert network.names == ["0", "1", "x y"]
    assert network.roles == {"0": [0, 1], "client": [2]}
    assert network.parameters(0, 1).latency_ns == 0


def test_a_graph_carries_plain_numbers_and_outages_and_rules_override_them():
    graph = nx.Graph([("a", "b", {"latency_ns": 5, "bandwidth_bps": 1e6, "outage": OutageSpec(0.2, "round")})])
    spec = TopologySpec(graph=graph, roles=ALL)
    p = build(spec, [LinkRule("a->b", outage="none", bandwidth_bps="infinite")], 7).parameters
    assert (p(0, 1).latency_ns, p(0, 1).bandwidth_bps, p(0, 1).outage) == (5, None, None)
    assert (p(1, 0).latency_ns, p(1, 0).bandwidth_bps, p(1, 0).outage) == (5, 1e6, OutageSpec(0.2, "round"))


def test_an_edge_without_latency_is_named_with_the_rule_to_add():
    graph = nx.Graph([("a", "b"), ("b", "c", {"latency_ns": 1})])
    assert refusal(TopologySpec(graph=graph, roles=ALL)) == [
        "graph: 1 error",
        'edge a<->b no latency expected the attribute latency, or a rule such as {match: "a<->b", latency: 20 ms}']
    assert refusal(TopologySpec(graph=graph, roles=ALL), [LinkRule("b->a", latency_ns=1)])[1].startswith(
        "edge a->b no latency")
    assert build(TopologySpec(graph=graph, roles=ALL), [LinkRule("a<->b", latency_ns=1)], 7).latency_ns(0, 2) == 2


def test_of_many_edges_without_latency_ten_are_named():
    lines = refusal(TopologySpec(graph=nx.cycle_graph(40), roles=ALL))
    assert len(lines) == 12
    assert lines[-1] == 'and 30 more a rule {match: "*", ...} serves all links'


def test_all_garbage_of_a_file_is_named_at_once(tmp_path):
    file = write(tmp_path / "net.graphml", node("a") + node("b") + node("c", "x->y")
                 + edge("a", "b", t="20", b="fast") + edge("b", "c", t="-1 ms", o="1.4")
                 + edge("a", "c", t="1 ms", d="3") + edge("a", "a", t="ignored"))
    lines = refusal(TopologySpec(file=file, roles={"client": RoleRule("leafs")}))
    assert lines[0] == f"{file}: 7 errors"
    assert [line.split(" expected")[0] for line in lines[1:]] == [
        "line 6 edge a<->b, latency '20'",
        "line 6 edge a<->b, bandwidth 'fast'",
        "line 6 edge a<->x->y, latency_ns 3.0",
        "line 6 edge b<->x->y, latency '-1 ms'",
        "line 6 edge b<->x->y, outage '1.4'",
        "vertex 'x->y'",
        "topology.roles.client 'leafs' unknown rule for a role; did you mean \"leaves\"?",
    ]
    assert "the unit is missing" in lines[1]


@pytest.mark.parametrize("data", [{"latency_ns": -1}, {"latency_ns": 0.5}, {"latency_ns": float("nan")},
                                  {"latency": 20}, {"latency_ns": 1, "bandwidth_bps": 0},
                                  {"latency_ns": 1, "bandwidth_bps": float("inf")}, {"latency_ns": 1, "outage": 2},
                                  {"latency_ns": True}])
def test_a_number_that_no_link_can_have_names_its_edge(data):
    lines = refusal(TopologySpec(graph=nx.Graph([("a", "b", data)]), roles=ALL))
    assert lines[0] == "graph: 1 error"
    assert lines[1].startswith(f"edge a<->b, {next(reversed(data)).split('_')[0]}")
    assert "expected" in lines[1] or "unknown key" in lines[1]


@pytest.mark.parametrize("text", ["", "not xml", "<graphml/>", "<html><body/></html>", KEYS + "<graph>",
                                  KEYS + "</graphml>",
                                  KEYS + '<graph edgedefault="undirected"><node id="a"><data key="zz">1</data></node>'
                                         "</graph></graphml>", "\x00\xff"])
def test_what_is_no_graphml_is_a_network_error_that_names_the_file(tmp_path, text):
    file = tmp_path / "net.graphml"
    file.write_text(text)
    lines = refusal(TopologySpec(file=file, roles=ALL))
    assert lines[0].startswith(f"{file}: 1 error")
    assert "expected" in lines[1] or "unknown key" in lines[1]


def test_a_missing_file_an_empty_graph_and_what_is_no_graph_are_refused(tmp_path):
    assert refusal(TopologySpec(file=tmp_path / "no.graphml")) == [
        f"{tmp_path}/no.graphml: No such file or directory: expected a GraphML file"]
    assert refusal(TopologySpec(graph=nx.Graph())) == ["graph: no vertices: expected one at least"]
    assert refusal(TopologySpec(graph=[1, 2])) == ["graph: list: expected a networkx graph"]


# --- roles ----------------------------------------------------------------------------------------------------------

def roles(graph, seed=7, **rules):
    return build(TopologySpec(graph=graph, roles=rules), MINE, seed).roles


def test_servers_come_first_then_clients_then_others_whatever_the_order_of_the_file():
    found = roles(nx.path_graph([*"abcde"]), relay=RoleRule("nodes", ("d",)), client=RoleRule("all"),
                  server=RoleRule("nodes", ("e", "b")))
    assert list(found.items()) == [("server", [4, 1]), ("client", [0, 2]), ("relay", [3])]


def test_the_vertex_on_most_shortest_paths_serves_and_ties_go_to_the_lowest_id():
    assert roles(nx.path_graph([*"abcde"]), server=RoleRule("highest_betweenness"))["server"] == [2]
    assert roles(nx.path_graph([*"abcde"]), server=RoleRule("highest_betweenness", count=2))["server"] == [2, 1]
    assert roles(nx.cycle_graph(7), server=RoleRule("highest_betweenness", count=3))["server"] == [0, 1, 2]
    cube = nx.hypercube_graph(3)                        # equal by symmetry, but not in floating point
    assert roles(cube, server=RoleRule("highest_betweenness", count=3))["server"] == [0, 1, 2]


def test_leaves_are_of_degree_one_and_with_a_count_the_least_connected():
    star = nx.star_graph(3)                             # 0 in the middle
    star.add_edge(1, 2)
    assert roles(star, client=RoleRule("leaves"))["client"] == [3]
    assert roles(star, client=RoleRule("leaves", count=2))["client"] == [1, 3]
    assert roles(nx.MultiGraph([("a", "b"), ("a", "b"), ("b", "b")]), client=RoleRule("leaves"))["client"] == [0, 1]


def test_random_vertices_come_from_the_seed_without_repetition():
    def drawn(seed):
        rules = {"server": RoleRule("nodes", ("3",)), "client": RoleRule("random", count=20)}
        return roles(nx.cycle_graph(50), seed, **rules)["client"]

    assert drawn(7) == drawn(7) == sorted(set(drawn(7)) - {3})
    assert len(drawn(7)) == 20
    assert drawn(7) != drawn(8)


def test_an_attribute_of_the_vertices_gives_roles():
    graph = nx.path_graph([*"abcd"])
    nx.set_node_attributes(graph, {"a": "client", "b": "server", "d": "client"}, "role")
    nx.set_node_attributes(graph, {"c": 1, "d": 2}, "tier")
    assert roles(graph) == {"server": [1], "client": [0, 3]}
    assert roles(graph, client=RoleRule("attribute", attribute="role")) == {"client": [0, 3]}
    assert roles(graph, relay=RoleRule("attribute", attribute="tier", value=1)) == {"relay": [2]}


@pytest.mark.parametrize(("rules", "expected"), [
    ({}, ["topology.roles none expected roles for vertices, such as {server: {nodes: [...]}, client: {rule: leaves}}, "
          'or an attribute "role" of the vertices']),
    ({"server": RoleRule("nodes", ("Parris", "Rome"))}, [
        "topology.roles.server 'Parris' unknown vertex; did you mean \"Paris\"?"]),
    ({"server": RoleRule("nodes", ("Rome", "Rome"))}, [
        "topology.roles.server 'Rome' is named twice: a vertex hosts one node, here \"server\""]),
    ({"client": RoleRule("nodes", ("Rome",)), "server": RoleRule("nodes", ("Rome",))}, [
        "topology.roles.client 'Rome' is named twice: a vertex hosts one node, here \"server\""]),
    ({"client": RoleRule("all", count=9)}, [
        'topology.roles.client 3 vertices by all expected 9, or "access", by which a vertex can have many hosts']),
    ({"client": RoleRule("all"), "server": RoleRule("all")}, [
        "topology.roles.client 0 vertices by all expected one or more"]),
    ({"client": RoleRule("random")}, ["topology.roles.client no count expected how many vertices to draw"]),
    ({"client": RoleRule("random", count=0)}, [
        "topology.roles.client count 0 expected a whole number, 1 or more"]),
    ({"client": RoleRule("attribute", attribute="typ")}, [
        "topology.roles.client 'typ' unknown attribute of vertices; did you mean \"type\"?"]),
])
def test_roles_that_cannot_be_given_are_refused(rules, expected):
    graph = nx.path_graph(["Paris", "Rome", "Oslo"])
    nx.set_node_attributes(graph, "city", "type")
    assert refusal(TopologySpec(graph=graph, roles=rules)) == ["graph: 1 error", *expected]


# --- routes ---------------------------------------------------------------------------------------------------------

def test_the_direct_link_is_used_only_where_it_is_the_shortest():
    graph = nx.Graph([("a", "b", {"latency_ns": 10}), ("a", "c", {"latency_ns": 4}), ("c", "b", {"latency_ns": 4})])
    spec = TopologySpec(graph=graph, roles=ALL)
    assert build(spec, [], 7).route(0, 1) == (0, 2, 1)
    assert build(spec, [LinkRule("a->b", latency_ns=8)], 7).route(0, 1) == (0, 1)       # tie: fewer hops
    assert build(spec, [LinkRule("a->b", latency_ns=8)], 7).route(1, 0) == (1, 2, 0)    # its own way back


def test_between_equal_routes_the_lower_ids_win_whatever_the_order_of_the_edges():
    edges = [("s", "x"), ("s", "y"), ("x", "t"), ("y", "t")]
    for order in (edges, edges[::-1]):
        graph = nx.Graph()
        graph.add_nodes_from("styx")
        graph.add_edges_from(order)
        assert build(TopologySpec(graph=graph, roles=ALL), MINE, 7).route(0, 1) == (0, 2, 1)


def test_the_lower_id_wins_even_where_it_is_reached_later():
    latencies = {(0, 1): 3, (1, 3): 1, (0, 2): 1, (2, 3): 3}
    assert build(TopologySpec(graph=directed(latencies, range(4)), roles=ALL), [], 7).route(0, 3) == (0, 1, 3)


weighted = st.dictionaries(st.tuples(st.integers(0, 7), st.integers(0, 7)), st.integers(0, 4), max_size=24)


def directed(weights, order=range(8)):
    graph = nx.DiGraph()
    graph.add_nodes_from(order)
    graph.add_edges_from((u, v, {"latency_ns": w}) for (u, v), w in weights.items() if u != v)
    return graph


@settings(max_examples=60)
@given(weighted)
def test_routes_are_the_shortest_paths_of_networkx_and_their_latency_the_sum_of_their_links(weights):
    graph = directed(weights)
    network = build(TopologySpec(graph=graph, roles=ALL), [], 7)
    # one number for both: the latency first, then the hops
    oracle = dict(nx.all_pairs_dijkstra_path_length(graph, weight=lambda u, v, data: 1000 * data["latency_ns"] + 1))
    for u in range(8):
        for v in range(8):
            if v not in oracle[u]:
                with pytest.raises(NetworkError, match=rf"^{v} cannot be reached from {u}: no links lead there$"):
                    network.route(u, v)
                continue
            route = network.route(u, v)
            assert (route[0], route[-1]) == (u, v)
            assert (network.latency_ns(u, v), len(route) - 1) == divmod(oracle[u][v], 1000)
            assert network.latency_ns(u, v) == sum(network.link(*hop).latency_ns for hop in pairwise(route))


@given(weighted, st.permutations(range(8)))
def test_permuting_the_vertices_changes_no_latency_and_no_reachability(weights, order):
    def latencies(graph):
        network = build(TopologySpec(graph=graph, roles=ALL), [], 7)
        found = {}
        for u, a in enumerate(network.names):
            for v, b in enumerate(network.names):
                try:
                    found[a, b] = network.latency_ns(u, v), len(network.route(u, v)), network.out_latency_ns(u)
                except NetworkError:
                    found[a, b] = None
        return found

    assert latencies(directed(weights, order)) == latencies(directed(weights))


def test_fates_belong_to_names_not_to_ids():
    rules = [*MINE, LinkRule("*", outage=OutageSpec(0.5, "round"))]

    def fates(*keys):
        network = build(TopologySpec(graph=nx.path_graph([*keys]), roles=ALL), rules, 7)
        link = network.link(network.names.index("a"), network.names.index("b"))
        return [link.offer(0, None, 1, t) for t in range(1, 50)]

    assert fates("a", "b", "c") == fates("c", "b", "a")


# --- real networks --------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("name", "vertices", "clients"), [("Geant2012", 40, 10), ("Kdl", 754, 100)])
def test_a_network_of_the_topology_zoo_loads_and_routes(name, vertices, clients):
    file = ZOO / f"{name}.graphml"
    if not file.exists():
        pytest.skip(f"{file} is absent: the Topology Zoo is no part of the checkout")
    chosen = {"server": RoleRule("highest_betweenness"), "client": RoleRule("leaves", count=clients)}
    spec = TopologySpec(file=file, roles=chosen)
    lines = refusal(spec)
    assert lines[0] == f"{file}: 11 errors"             # no file of the zoo has latencies
    network = build(spec, [LinkRule("*", latency_ns=10 * MS)], 7)
    (server,), hosts = network.roles["server"], network.roles["client"]
    assert len(network.names) == len(set(network.names)) == vertices
    assert len(hosts) == len({*hosts, server}) - 1 == clients
    for client in hosts:
        up, down = network.route(client, server), network.route(server, client)
        assert network.latency_ns(client, server) == (len(up) - 1) * 10 * MS
        assert len(up) == len(down)
        assert all(network.link(*hop) for hop in pairwise(up))
