"""The topologies that ship: what their README says of them is true, and FedAvg runs on them."""

from __future__ import annotations

import re
import runpy
from collections import Counter
from itertools import pairwise
from pathlib import Path

import networkx as nx
import pytest

from emul import engine
from emul.network import Distance, RoleRule, TopologySpec, build
from emul.network.graph.readers import read_graph
from emul.network.graph.topology import Access, Capacity
from emul.record.journal import MemoryJournal
from emul.scenario import load, loads
from emul.workers.twin import Twin

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "topologies"
SHARED = ROOT.parent / "shared" / "data" / "topologies"
FILES = sorted(path for path in FOLDER.iterdir() if path.suffix in (".graphml", ".json"))
HOSTS = {"server": RoleRule("highest_betweenness"),
         "client": RoleRule("all", count=100, access=Access(5 * 10**6, 20 * 10**6))}


def test_the_readme_counts_every_file_as_it_is():
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w.-]+)` \|[^|]*\| (\d+) \| (\d+) \| (\d+) \|", text, re.MULTILINE)
    said = {name: tuple(map(int, numbers)) for name, *numbers in rows}
    found = {}
    for path in FILES:
        graph = read_graph(path)
        parallel = sum(n - 1 for n in Counter(frozenset((u, v)) for u, v in graph.edges()).values())
        found[path.name] = (len(graph), graph.number_of_edges(), parallel)
    assert said == found
    assert len(said) >= 12


def test_the_generated_files_are_what_the_script_writes():
    script = runpy.run_path(str(FOLDER / "generate.py"))
    assert sorted(script["SPECS"]) == [path.stem for path in FILES if path.suffix == ".json"]
    for name in script["SPECS"]:
        assert (FOLDER / f"{name}.json").read_text() == script["text"](name)


@pytest.mark.parametrize("path", [path for path in FILES if path.suffix == ".json"], ids=lambda path: path.stem)
def test_a_generated_file_needs_no_more_than_its_name(path):
    network = build(TopologySpec(file=path), [], 7)
    assert network.warnings() == []
    assert len(network.roles["client"]) == len(network.names) - 1
    assert network.route(*network.roles["server"], network.roles["client"][-1])


@pytest.mark.parametrize("path", [path for path in FILES if path.suffix == ".graphml"], ids=lambda path: path.stem)
def test_a_measured_file_is_the_one_that_was_published(path):
    original = SHARED / "topology-zoo" / path.name
    if not original.exists():
        pytest.skip(f"{original} is absent: the Topology Zoo is no part of the checkout")
    assert path.read_bytes() == original.read_bytes()


def spec(path, **more):
    return TopologySpec(file=path, roles=HOSTS, latency=Distance(), capacity=Capacity(10**9), **more)


@pytest.mark.parametrize(("name", "vertices"), [("Geant2012", 40), ("Colt", 153), ("Kdl", 754)])
def test_a_hundred_clients_are_spread_and_routed_over_a_measured_network(name, vertices):
    network = build(spec(FOLDER / f"{name}.graphml"), [], 7)
    (server,), clients = network.roles["server"], network.roles["client"]
    assert (len(network.names), len(clients)) == (vertices + 100, 100)
    assert network.warnings() == []
    for client in clients:
        way, back = network.route(client, server), network.route(server, client)
        assert len(way) == len(back)
        assert network.latency_ns(client, server) == sum(network.parameters(*hop).latency_ns for hop in pairwise(way))
        assert 5 * 10**6 < network.latency_ns(client, server) < 80 * 10**6 or way[1] == server      # Europe, Kentucky


@pytest.mark.parametrize("path", sorted(SHARED.glob("*/*.graphml")), ids=lambda path: path.stem)
def test_the_networks_beside_the_checkout_load_and_route(path):
    """Rocketfuel has latencies in ms, SNDlib places and capacities in its own units, the Zoo places and some speeds."""
    capacity = Capacity(10**9, by="max_capacity", unit_bps=10**6) if path.parent.name == "sndlib" else Capacity(10**9)
    rocketfuel = path.parent.name == "rocketfuel"
    latency = None if rocketfuel else Distance()
    network = build(TopologySpec(file=path, roles=HOSTS, latency=latency, capacity=capacity), [], 7)
    graph = nx.read_graphml(path)
    assert len(network.names) == len(graph) + 100
    ids = {key: i for i, key in enumerate(graph)}
    for u, v, data in graph.edges(data=True):
        if rocketfuel:
            assert network.parameters(ids[u], ids[v]).latency_ns == data["latency_ms"] * 10**6
        if path.parent.name == "sndlib":
            assert network.parameters(ids[u], ids[v]).bandwidth_bps == data["max_capacity"] * 10**6
    assert network.route(network.roles["client"][-1], *network.roles["server"])


# --- FedAvg -----------------------------------------------------------------------------------------------------------

def fedavg(name, rounds):
    text = (ROOT / "scenarios" / "geant.yaml").read_text().replace("../topologies/Geant2012", f"../topologies/{name}")
    sets = [f"stop.rounds={rounds}", f"evaluation={{every: {rounds}}}", "task.solver.sgd.epochs=1"]
    scenario = loads(text, sets=sets, base=ROOT / "scenarios")
    wiring = engine.wire(scenario, *scenario.schemes[0])
    with Twin() as twin:
        finished = engine.execute(wiring, twin, MemoryJournal(engine.header(wiring)))
    return wiring, finished


def test_fedavg_with_a_hundred_clients_runs_on_geant():
    wiring, finished = fedavg("Geant2012", 1)
    assert wiring.warnings == []
    assert finished.kernel.entered == 1
    assert 0.05 < finished.kernel.end_ns / 1e9 < 0.2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Geant2012", "Colt", "Kdl"])
def test_fedavg_with_a_hundred_clients_learns_on_a_measured_network(name):
    _, finished = fedavg(name, 12)
    assert finished.observations[-1].values["accuracy"] > 0.8


@pytest.mark.parametrize("name", ["geant", "tree"])
def test_the_scenarios_on_topologies_are_sound(name):
    assert load(ROOT / "scenarios" / f"{name}.yaml").warnings == []
