"""What nodes know of the topology, against the network itself and against slow and obvious searches."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emul import engine
from emul.base import rows
from emul.base.errors import RoleError
from emul.network import LinkRule, Network, RoleRule, TopologySpec, build
from emul.network.models.contacts import ContactSpec
from emul.network.terrain import Terrain, chart
from emul.record.journal import MemoryJournal
from emul.roles import World
from emul.scenario import loads
from emul.workers.pool import Workers
from emul.workers.twin import Twin

MS = 1_000_000


def terrain(network: Network, vertices: list[int]) -> Terrain:
    """As a worker has it."""
    return Terrain(msgspec.msgpack.decode(msgspec.msgpack.encode(chart(network, vertices))))


def random_network(draw: Any) -> tuple[Network, list[int]]:
    """A network and the vertices of nodes; others only route."""
    rules = [LinkRule("*", latency_ns=10 * MS)]
    if draw(st.booleans()):
        size = draw(st.integers(2, 7))
        rules += [LinkRule("client2<->server1", latency_ns=3 * MS), LinkRule("server*->client1", latency_ns=7)]
        network = build(TopologySpec(generator=draw(st.sampled_from(["star", "star_mesh"])), clients=size, servers=2),
                        rules, 0)
    else:
        graph = nx.connected_watts_strogatz_graph(draw(st.integers(5, 10)), 2, 0.5, seed=draw(st.integers(0, 999)))
        for u, v in graph.edges:
            graph.edges[u, v]["latency"] = f"{draw(st.integers(1, 5))} ms"
        nx.set_node_attributes(graph, {i: f"v{i}" for i in graph}, "name")
        rules = draw(st.sampled_from([[], [LinkRule("v1->*", latency_ns=2 * MS)],
                                      [LinkRule("v*<->v2", latency_ns=MS)]]))
        network = build(TopologySpec(graph=graph, roles={"peer": RoleRule("all")}), rules, 0)
    count = len(network.names)
    vertices = sorted(draw(st.sets(st.integers(0, count - 1), min_size=2, max_size=count)))
    return network, vertices


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_ways_are_those_of_the_network(data: Any) -> None:
    network, vertices = random_network(data.draw)
    known, nodes = terrain(network, vertices), range(len(vertices))
    for i in nodes:
        for j in nodes:
            if i == j:
                continue
            route = network.route(vertices[i], vertices[j])
            assert known.hops(i, j) == len(route) - 1
            assert known.latency_ns(i, j) == sum(network.latency_ns(u, v) for u, v in pairwise(route))
            assert vertices[known.towards(i, j)] == next(v for v in route[1:] if v in vertices)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_the_nearest_and_the_neighbours_are_those_of_an_obvious_search(data: Any) -> None:
    network, vertices = random_network(data.draw)
    known, nodes = terrain(network, vertices), range(len(vertices))
    others = sorted(data.draw(st.sets(st.sampled_from(nodes), min_size=1)))
    linked = nx.DiGraph((u, v) for u in range(len(network.names)) for v in network.topology.neighbours(u))
    for i in nodes:
        assert known.nearest(i, others) == min(others, key=lambda j: (known.latency_ns(i, j), known.hops(i, j), j))
        for j in nodes:
            between = set(vertices) - {vertices[i], vertices[j]}
            beside = i != j and nx.has_path(linked.subgraph(set(linked) - between), vertices[i], vertices[j])
            assert (j in known.neighbours(i)) is beside


def test_contacts_are_those_of_the_plan_and_ways_go_by_their_latencies(tmp_path: Path) -> None:
    plan = ["start_s,end_s,source,destination,rate_mbps,latency_ms", "0,10,v0,v1,1,1", "20,30,v0,v1,2,90",
            "30,40,v0,v1,3,3", "5,25,v1,v2,4,2", "25,inf,v1,v2,5,2", "7,8,v0,v2,6,9"]
    (tmp_path / "plan.csv").write_text("\n".join(plan))
    graph = nx.complete_graph(4)
    nx.set_node_attributes(graph, {i: f"v{i}" for i in graph}, "name")
    network = build(TopologySpec(graph=graph, roles={"peer": RoleRule("all")}),
                    [LinkRule("*", latency_ns=20 * MS), LinkRule("v0->v2", latency_ns=MS)], 0,
                    contacts=ContactSpec(tmp_path / "plan.csv"))
    facts = world(network, [0, 1, 2, 3], {"peer": [0, 1, 2, 3]})
    for u in range(4):
        for v in range(4):
            if u != v:
                assert facts.hops(u, v) == len(network.route(u, v)) - 1
    assert network.route(0, 2) == (0, 1, 2)         # 3 + 2 ms; the direct link has 9 ms, whatever `links` says
    assert facts.latency_s(0, 2) == 0.005
    assert list(facts.contacts(0, 2)) == [
        (0, 10, 1_000_000, 1), (5, 25, 4_000_000, 2), (20, 30, 2_000_000, 1), (25, math.inf, 5_000_000, 2),
        (30, 40, 3_000_000, 1)]
    assert [one.start_s for one in facts.contacts(0, 1, 10 * 10**9)] == [20, 30]        # what ends now is over
    assert [one.start_s for one in facts.contacts(0, 1, 30 * 10**9 - 1)] == [20, 30]
    assert list(facts.contacts(0, 1, 40 * 10**9)) == []
    with pytest.raises(RoleError, match=r"^v2: no link on the way to v3 has contacts: it transmits at all times$"):
        facts.contacts(2, 3)


def naive(spans: list[tuple[int, int, int]] | None, at: int | None, bits: int) -> int | None:
    """By counting half milliseconds: when a link has transmitted. spans: (begin, end, bits of one); None: at once."""
    if spans is None or at is None:
        return at
    for tick in range(at, 200):
        if bits <= 0:
            return tick
        bits -= next((rate for begin, end, rate in spans if begin <= tick < end), 0)
    return None


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_arrivals_are_the_soonest_of_all_ways_through_the_contacts(tmp_path_factory: Any, data: Any) -> None:
    size = data.draw(st.integers(3, 5))
    graph = nx.complete_graph(size)
    nx.set_node_attributes(graph, {i: f"v{i}" for i in graph}, "name")
    plan, lines = dict[tuple[int, int], list[tuple[int, int, int]]](), []
    for u, v in graph.edges:
        if data.draw(st.booleans()):
            edges = sorted(data.draw(st.sets(st.integers(0, 50), min_size=2, max_size=6)))
            rate = data.draw(st.sampled_from([4, 8]))           # so that a message takes whole ticks
            plan[u, v] = [(2 * a, 2 * b, rate) for a, b in zip(edges[::2], edges[1::2], strict=False)]
            lines += [f"{a / 2000},{b / 2000},v{u},v{v},{rate / 500},2" for a, b, _ in plan[u, v]]
    path = tmp_path_factory.mktemp("plan") / "plan.csv"
    path.write_text("\n".join(["start_s,end_s,source,destination,rate_mbps,latency_ms", *lines]))
    network = build(TopologySpec(graph=graph, roles={"peer": RoleRule("all")}), [LinkRule("*", latency_ns=30 * MS)], 0,
                    contacts=ContactSpec(path) if lines else None)
    facts = world(network, list(range(size)), {"peer": list(range(size))})
    assert facts.planned == bool(lines)
    begin, length = data.draw(st.integers(0, 40)), data.draw(st.integers(1, 6))
    expected = {0: begin}
    for target in range(1, size):
        for way in nx.all_simple_paths(graph, 0, target):
            at: int | None = begin
            for u, v in pairwise(way):
                at = naive(plan.get((u, v)), at, 8 * length)
                at = None if at is None else at + (4 if (u, v) in plan else 60)
            if at is not None:
                expected[target] = min(at, expected.get(target, at))
        alone = facts.arrivals(0, [target], begin * MS // 2, length)
        assert alone == ({target: expected[target] * MS // 2} if target in expected else {})
    together = facts.arrivals(0, list(range(size)), begin * MS // 2, length)
    assert together == {k: at * MS // 2 for k, at in expected.items()}


def world(network: Network, vertices: list[int], roles: dict[str, list[int]], root: int = 0) -> World:
    return World("s", 0, [network.names[v] for v in vertices], roles, [1.0] * len(vertices), root=root,
                 terrain=terrain(network, vertices))


def test_parents_lead_to_the_root_and_children_are_their_inverse() -> None:
    graph = nx.balanced_tree(2, 3)                  # 0; 1, 2; 3 .. 6; 7 .. 14
    nx.set_node_attributes(graph, {i: f"v{i}" for i in graph}, "name")
    network = build(TopologySpec(graph=graph, roles={"peer": RoleRule("all")}), [LinkRule("*", latency_ns=MS)], 0)
    vertices = [0, 1, 2, *range(7, 15)]             # the places between edges and clients have no nodes
    facts = world(network, vertices, {"server": [0], "edge": [1, 2], "client": list(range(3, 11))})
    assert [facts.parent(node) for node in range(11)] == [None, 0, 0, *[1] * 4, *[2] * 4]
    assert [facts.children(node) for node in (0, 1, 2, 3)] == [[1, 2], [3, 4, 5, 6], [7, 8, 9, 10], []]
    assert [facts.nearest(node, "edge") for node in (3, 10)] == [1, 2]
    assert facts.neighbours(3) == [1, 4]            # a place without a node lets through
    assert (facts.hops(3, 10), facts.latency_s(3, 10)) == (6, pytest.approx(0.006))
    with pytest.raises(RoleError, match=r"^no node has the role cloud$"):
        facts.nearest(3, "cloud")


def test_a_scheme_that_does_not_say_that_it_knows_the_topology_is_told_how() -> None:
    with pytest.raises(RoleError, match=r"^s does not know the topology: it has to say knows_topology=True$"):
        World("s", 0, ["a", "b"], {"peer": [0, 1]}, [1.0, 1.0]).neighbours(0)


def test_the_nearest_edge_of_many_clients_takes_one_search() -> None:
    edges, clients = 100, 20_000
    graph = nx.Graph((0, 1 + i) for i in range(edges))
    graph.add_edges_from((1 + i % edges, 1 + edges + i) for i in range(clients))
    nx.set_node_attributes(graph, {i: f"v{i}" for i in graph}, "name")
    network = build(TopologySpec(graph=graph, roles={"peer": RoleRule("all")}), [LinkRule("*", latency_ns=MS)], 0)
    known = terrain(network, list(range(1 + edges + clients)))
    asked = []
    measure = known._latency_ns
    known._latency_ns = lambda u, v: asked.append(u) or measure(u, v)       # type: ignore[method-assign, func-returns-value]
    some = range(1 + edges, 1 + edges + clients)
    assert [known.nearest(node, range(1, 1 + edges)) for node in some] == [1 + i % edges for i in range(clients)]
    assert len(asked) < 3 * (edges + clients)
    assert known.towards(some[-1], 0) == known.nearest(some[-1], range(1, 1 + edges))


def test_roles_in_worker_processes_know_what_those_of_the_twin_do(pools: list[Workers]) -> None:
    scenario = loads("""emul: 1
name: knowing
seed: 1
topology: {generator: tree, branching: 2, height: 2, roles: {server: [n1], edge: [n2, n3], client: {rule: leaves}}}
links: [{match: "*", latency: 5 ms}, {match: "n3->*", latency: 7 ms}]
task: {data: {set: digits}, model: logistic, solver: {sgd: {lr: 0.1, steps: 1, batch: 8}}}
compute: {mode: zero}
schemes: [knowing_scheme]
stop: {rounds: 1}
""", plugins=["knowing_scheme"])
    told = []
    for pool in (Twin(), pools[1]):
        wiring = engine.wire(scenario, "knowing_scheme", {}, pool.workers, ["knowing_scheme"])
        journal = MemoryJournal(engine.header(wiring))
        engine.execute(wiring, pool, journal)
        told.append(next(row[4] for row in journal.rows if row[0] == rows.REPORT))
    assert told[0] == told[1]
    assert told[0]["n6"] == "n3 n3 n3 2 0.012"                  # neighbours, children, the nearest edge, the parent
    assert told[0]["n3"] == "n1 n6 n7 n6 n7 n3 n1 1 0.007"
