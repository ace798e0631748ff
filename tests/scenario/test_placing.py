"""Roles of a scheme on the nodes of a topology: who is where, who is idle, and that the idle change nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
from digested import digests
from hypothesis import given, settings
from hypothesis import strategies as st

from emul import cli, engine
from emul.base.errors import ScenarioError
from emul.network import LinkRule, RoleRule, TopologySpec, build
from emul.registry import schemes
from emul.roles import Scheme
from emul.roles.places import terms, wrong_place
from emul.scenario import Scenario, loads
from emul.scenario.placing import holders, placed_or_wrong
from emul.workers.pool import Workers
from emul.workers.twin import Twin

TEXT = """emul: 1
name: placed
seed: 7
topology: {generator: star, clients: 4, servers: 2}
links:
  - {match: "*", latency: 20 ms, bandwidth: 1 Mbit/s, outage: {model: bernoulli, p: 0.2, per: round}}
task: {data: {set: digits}, model: logistic, solver: {sgd: {lr: 0.1, steps: 1, batch: 8}}}
compute: {mode: zero}
schemes: [fedavg]
stop: {rounds: 2}
"""


def on(scenario: Scenario, graph: nx.Graph, **roles: tuple[str, ...]) -> Scenario:
    """The scenario on a graph; roles: kind -> names."""
    return replace(scenario, topology=TopologySpec(
        graph=graph, roles={kind: RoleRule("nodes", nodes=names) for kind, names in roles.items()}))


def tree(count: int) -> nx.Graph:
    """A path of places, a leaf on each."""
    graph = nx.path_graph(count)
    nx.set_node_attributes(graph, {i: f"v{i}" for i in graph}, "name")
    return graph


# --- how places are written -------------------------------------------------------------------------------------------

def test_a_place_is_a_kind_a_number_of_it_or_a_choice() -> None:
    assert terms("server") == [("server", None)]
    assert terms(" dealer | server[1]") == [("dealer", None), ("server", 1)]
    assert [wrong_place(text) != "" for text in ("", "server[", "server[-1]", "a||b", "[1]", 3, None)] == [True] * 7


@given(st.lists(st.sampled_from(["server", "client", "edge", "server[0]", "server[1]", "client[2]", "edge[5]", "v1"]),
                min_size=1, max_size=3))
def test_the_first_choice_that_the_topology_has_is_taken(choices: list[str]) -> None:
    network = build(TopologySpec(generator="star", clients=3, servers=2), [LinkRule("*", latency_ns=1)], 0)
    names = {"server": ["server1", "server2"], "client": ["client1", "client2", "client3"], "server[0]": ["server1"],
             "server[1]": ["server2"], "client[2]": ["client3"]}
    expected = next((names[c] for c in choices if c in names), None)
    scheme: Scheme[Any] = Scheme(params=object, roles={"only": None})   # type: ignore[dict-item]
    placed, wrong = placed_or_wrong(scheme, None, {"places": {"only": " | ".join(choices)}}, network)
    assert (None if placed is None else placed.names) == expected
    assert bool(wrong) is (expected is None)


# --- what is wrong ----------------------------------------------------------------------------------------------------

AT = r"^scenario: 1 error\n  line 9  schemes\[0\]"
HAS = r"the topology has no such node, it has 2 server, 4 client; say where, as in places: "


@pytest.mark.parametrize(("entry", "line"), [
    ("{name: fedavg, places: {server: 'server[2]'}}",
     rf'{AT}\.places\.server +server at "server\[2\]" +{HAS}\{{server: server1\}}$'),
    ("{name: fedavg, places: {sever: server}}",
     rf'{AT}\.places\.sever +"server" +unknown role; did you mean "server"\?$'),
    ("{name: fedavg, places: {client: [client1, server1]}}",
     rf'{AT}\.places\.client +client at \["client1", "server1"\] +server1 is the place of server; a node has '),
    ("{name: fedavg, places: {server: 'server['}}",
     rf'{AT}\.places\.server +"server\[" +expected a place such as "server", "server\[0\]" or "dealer'),
    ("{name: fedavg, places: server}",
     rf'{AT}\.places +"server" +expected a mapping such as \{{server: server2\}}$'),
    ("{name: fedavg, places: {client: peer}}",
     rf'{AT}\.places\.client +client at "peer" +{HAS}\{{client: server1\}}$'),
    ("{name: seccogc, s: 1, places: {server: server2}}",
     rf'{AT} +dealer at "dealer \| server\[1\]" +server2 is the place of server; a node has one role: say another in '),
])
def test_a_wrong_place_is_told_with_its_line_and_the_key_that_mends_it(entry: str, line: str) -> None:
    with pytest.raises(ScenarioError, match=line):
        loads(TEXT.replace("[fedavg]", f"[{entry}]"))


def test_a_scheme_with_a_dealer_is_refused_on_a_topology_without_one() -> None:
    with pytest.raises(ScenarioError, match=(
            r'line 9  schemes\[0\]  dealer at "dealer \| server\[1\]"  the topology has no such node, it has 1 server, '
            r"4 client; say where, as in places: \{dealer: server\}$")):
        loads(TEXT.replace("servers: 2", "servers: 1").replace("[fedavg]", "[{name: seccogc, s: 2}]"))


# --- idle nodes change nothing ----------------------------------------------------------------------------------------

def test_fedavg_beside_two_servers_is_fedavg_beside_one_to_the_bit(pools: list[Workers]) -> None:
    graph = tree(6)
    base = loads(TEXT)
    alone = on(base, graph, server=("v0",), client=("v1", "v3", "v5"))
    beside = on(base, graph, server=("v0", "v2"), edge=("v4",), client=("v1", "v3", "v5"))
    expected = digests(alone, Twin())
    assert [digests(beside, pool) for pool in (Twin(), pools[1])] == [expected] * 2
    assert engine.wire(beside, "fedavg", {}).idle == ["v2", "v4"]


@given(st.data())
@settings(max_examples=8, deadline=None)
def test_idle_nodes_of_any_topology_change_nothing(data: Any) -> None:
    graph = nx.random_labeled_tree(9, seed=data.draw(st.integers(0, 10**6)))
    nx.set_node_attributes(graph, {i: f"v{i}" for i in graph}, "name")
    order = data.draw(st.permutations([f"v{i}" for i in range(9)]))
    server, clients, idle = order[0], tuple(order[1:4]), order[4:]
    cut = data.draw(st.integers(0, len(idle)))
    scheme = data.draw(st.sampled_from(["fedavg", "{name: secagg, threshold: 2}", "fedprox"]))
    base = loads(TEXT.replace("[fedavg]", f"[{scheme}]").replace("logistic", "digits_classic"))
    alone = on(base, graph, server=(server,), client=clients)
    beside = on(base, graph, server=(server, *idle[:cut]), client=clients,
                **({"edge": tuple(idle[cut:])} if idle[cut:] else {}))
    assert digests(beside, Twin()) == digests(alone, Twin())


@pytest.mark.parametrize("scheme", ["fedprox", "fedproto", "fesem", "fl_lossy", "fair_seccogc", "dnc_private"])
def test_a_scheme_of_one_server_leaves_the_others_idle(scheme: str) -> None:
    entry = f"{{name: {scheme}, s: 1}}" if scheme == "fair_seccogc" else scheme
    scenario = loads(TEXT.replace("[fedavg]", f"[{entry}]").replace("logistic", "digits_classic"))
    wiring = engine.wire(scenario, *scenario.schemes[0])
    assert wiring.idle == ["server2"]
    assert list(wiring.plan.names) == ["server1", "client1", "client2", "client3", "client4"]
    assert wiring.plan.deciders == [0]


def test_faults_and_attacks_on_idle_nodes_are_noted_and_ignored() -> None:
    faults = ("faults:\n  - {at: 1 s, node: server2, crash: true}\n  - {at: 1 s, node: 'server*', slow: 2}\n"
              "  - churn: {match: server2, up: 1 s, down: 1 s}\n  - {node: server2, behave: equivocating}\n"
              "attacks: [{nodes: [server2], data: label_flip}]\n")
    both = "[fedavg, {name: fedrfq, faults: 0, places: {server: [server1, server2]}}]"
    scenario = loads(TEXT.replace("[fedavg]", both).replace("logistic", "digits_classic").replace("zero", "measured")
                     + faults)
    wiring = engine.wire(scenario, "fedavg", {})
    assert wiring.plan.faults == []
    assert list(wiring.plan.streams) == []
    assert wiring.setups[0].slowdowns == {0: [[10**9, 2, 1]]}
    assert wiring.setups[0].behaviours == wiring.setups[0].attacks == {}
    assert wiring.warnings == [
        "attacks: server2 is idle in fedavg, it attacks nobody",
        "faults[0].node: server2 is idle in fedavg, nothing happens to it",
        "faults[2].churn.match: server2 is idle in fedavg, nothing happens to it",
        "faults[3].node: server2 is idle in fedavg, nothing happens to it"]
    assert len(engine.wire(scenario, *scenario.schemes[1]).plan.faults) == 1


def test_a_behaviour_of_another_scheme_of_the_scenario_is_noted_and_ignored(tmp_path: Path) -> None:
    both = "[fedavg, {name: fedrfq, faults: 0, places: {server: [server1, server2]}}]"
    text = TEXT.replace("[fedavg]", both).replace("logistic", "digits_classic")
    scenario = loads(text + "faults: [{node: server1, behave: equivocating}]\n")
    fedavg, fedrfq = (engine.wire(scenario, name, raw) for name, raw in scenario.schemes)
    assert fedavg.setups[0].behaviours == {}
    assert fedavg.warnings == ["faults[0].behave: fedavg has no equivocating for server1, which follows the protocol"]
    assert fedrfq.setups[0].behaviours == {0: [["equivocating", 1, 0]]}
    assert digests(scenario, Twin()) == digests(loads(text), Twin())
    result, = engine.run(scenario, scheme="fedavg", workers=0, out=tmp_path)
    assert result.directory is not None
    assert result.summary is not None
    assert engine.replay(result.directory, workers=0) == result.summary["digest"]


def test_a_behaviour_of_another_role_is_noted_and_ignored() -> None:
    schemes = "[{name: fedrfq, faults: 0, places: {server: [server1, server2]}}]"
    scenario = loads(TEXT.replace("[fedavg]", schemes).replace("logistic", "digits_classic")
                     + "faults: [{node: client1, behave: equivocating}, {node: server1, behave: two_faced}]\n")
    wiring = engine.wire(scenario, *scenario.schemes[0])
    assert wiring.setups[0].behaviours == {}
    assert wiring.warnings == ["faults[0].behave: fedrfq has no equivocating for client1, which follows the protocol",
                               "faults[1].behave: fedrfq has no two_faced for server1, which follows the protocol"]


def test_what_is_idle_is_told_by_check_and_in_the_summary(
        tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(TEXT)
    monkeypatch.setattr("sys.argv", ["emul", "check", str(path)])
    with pytest.raises(SystemExit, match=r"^0$"):
        cli.main()
    assert "note: fedavg: idle, no part of the run: server2\n" in capsys.readouterr().out
    result, = engine.run(loads(TEXT), workers=0, out=tmp_path)
    assert result.summary is not None
    assert result.summary["idle"] == ["server2"]


# --- who holds data ---------------------------------------------------------------------------------------------------

def test_shards_and_attackers_follow_the_kinds_whatever_the_roles_are() -> None:
    """Peers on the clients, in another order and without some, have the shards that FedAvg's clients have."""
    scheme: Scheme[Any] = Scheme(params=schemes.find("local").params, roles={"peer": None},    # type: ignore[dict-item]
                                 decides="peer", name="gossip")
    text = TEXT.replace("clients: 4", "clients: 10") + "attacks: [{nodes: {fraction: 0.4}, data: label_flip}]\n"
    with schemes.lend("gossip", scheme):
        scenario = loads(text.replace("[fedavg]", "[fedavg, {name: gossip, places: {peer: [server2, client]}},"
                                                  " {name: gossip, places: {peer: [client9, client2, client4]}}]"))
        every = [engine.wire(scenario, name, raw) for name, raw in scenario.schemes]
    told = [{wiring.plan.names[node + i]: shard + i for node, shard, count in wiring.setups[0].shards
             for i in range(count)} for wiring in every]
    assert told[0] == {f"client{k}": k - 1 for k in range(1, 11)}
    assert told[1] == told[0]
    assert told[2] == {"client2": 1, "client4": 3, "client9": 8}
    assert [wiring.setups[0].holders for wiring in every] == [10, 10, 10]
    attackers = [{wiring.plan.names[node] for node in wiring.setups[0].attacks} for wiring in every]
    assert len(attackers[0]) == 4
    assert attackers == [attackers[0], attackers[0], attackers[0] & {"client2", "client4", "client9"}]


def test_without_clients_every_node_holds_data() -> None:
    network = build(TopologySpec(generator="complete", peers=3), [LinkRule("*", latency_ns=1)], 0)
    assert holders(network) == [0, 1, 2]


# --- how fast nodes are -----------------------------------------------------------------------------------------------

def test_a_fraction_of_the_nodes_is_drawn_by_the_seed_whatever_their_roles_are() -> None:
    text = TEXT.replace("clients: 4", "clients: 20").replace("mode: zero", "mode: measured") + "nodes:\n" + (
        "  - {fraction: 0.25, speed: 0.1}\n  - {match: 'client1*', fraction: 0.5, speed: 3}\n"
        "  - {match: server2, speed: 7}\n")
    both = "[fedavg, {name: local, places: {client: [client1, client2, client3, client4]}}]"
    scenario = loads(text.replace("[fedavg]", both))
    assert loads(scenario.resolved()) == scenario
    assert scenario.warnings == []
    fedavg, local = (engine.wire(scenario, name, raw) for name, raw in scenario.schemes)
    speeds = dict(zip(fedavg.plan.names, fedavg.setups[0].speeds, strict=True))
    fast = {name for name, speed in speeds.items() if speed == 3}
    assert len(fast) == 6                                       # round(0.5 * 11): client1, client10 .. client19
    assert all(name.startswith("client1") for name in fast)
    assert 5 - len(fast) <= sum(speed == 0.1 for speed in speeds.values()) <= 5
    assert speeds["server1"] == 1
    assert dict(zip(local.plan.names, local.setups[0].speeds, strict=True)) == {
        name: speeds[name] for name in local.plan.names}
    other = engine.wire(loads(text, seed=8), "fedavg", {}).setups[0].speeds
    assert other != fedavg.setups[0].speeds


def test_a_rule_for_nodes_says_which() -> None:
    with pytest.raises(ScenarioError, match=r"nodes\[0\] +missing +expected match, fraction or both$"):
        loads(TEXT + "nodes: [{speed: 2}]\n")


def test_a_speed_without_an_effect_is_a_warning() -> None:
    more = "nodes: [{fraction: 0.5, speed: 2}]\nfaults: [{at: 1 s, node: client1, slow: 2}]\n"
    assert loads(TEXT + more).warnings == ["nodes: speed has no effect with compute mode: zero",
                                           "faults: slow has no effect with compute mode: zero"]
    assert loads(TEXT.replace("mode: zero", "mode: measured") + more).warnings == []
