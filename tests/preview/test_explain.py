"""`emul explain`: routes by roles, the traffic of a round as a run has it, what has no effect; as text and as JSON."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from emul import cli, engine
from emul.base.errors import ScenarioError
from emul.preview.explain import EXACT, dry, explain, notes, tables
from emul.record.load import load_run
from emul.scenario import loads

ROOT = Path(__file__).resolve().parents[2]
TEXT = """emul: 1
name: small
seed: 7
topology: {generator: star_mesh, clients: 5}
links:
  - {match: "*", latency: 20 ms, bandwidth: 20 Mbit/s, overhead: {bytes: 28, mtu: 1472 B}}
  - {match: "client*->server", outage: {model: bernoulli, p: 0.3, per: round}}
  - {match: "client3->*", bandwidth: 1 Mbit/s}
  - {match: "cleint1->server", latency: 1 ms}
faults:
  - {at: 10 ms, node: client2, crash: true}
task: {data: {set: digits}, partition: iid, model: logistic, solver: {sgd: {lr: 0.1, epochs: 3, batch: 16}}}
compute: {mode: measured}
schemes: [fedavg, {name: secagg, threshold: 3}, {name: fair_seccogc, s: 4, lambda: 0.1}]
stop: {rounds: 50}
"""


@pytest.fixture(scope="module")
def explained():
    return explain(loads(TEXT), 10**6)


def route(explained, source, target):
    return next(row for row in explained["routes"] if (row["from"], row["to"]) == (source, target))


def test_routes_are_told_by_pairs_of_roles(explained):
    assert [(row["from"], row["to"], row["pairs"], row["looked_at"]) for row in explained["routes"]] == [
        ("server", "client", 5, 5), ("client", "server", 5, 5), ("client", "client", 20, 20)]
    up = route(explained, "client", "server")
    assert up["rtt_ms"] == {"min": 40, "median": 40, "max": 40}
    assert up["bottleneck_bps"] == {"min": 1e6, "median": 20e6, "max": 20e6}
    assert up["loss"] == {"min": 0.3, "median": 0.3, "max": 0.3}
    wire = 10**6 + -(-10**6 // 1472) * 28
    assert up["seconds"]["median"] == pytest.approx(0.02 + wire * 8 / 20e6, abs=2e-9)
    assert up["seconds"]["max"] == pytest.approx(0.02 + wire * 8 / 1e6, abs=2e-9)
    assert up["slowest"] == ["client3", "server"]
    assert route(explained, "server", "client")["loss"]["max"] == 0


def test_the_traffic_of_a_round_is_that_of_a_lossless_run(explained, tmp_path):
    scenario = loads(TEXT, sets=["faults=[]", "stop.rounds=1", "compute={mode: zero}", "links[1].outage=none"])
    for said, result in zip(explained["schemes"], engine.run(scenario, workers=0, out=tmp_path), strict=True):
        messages = load_run(result.directory).messages
        begun = messages[messages["round"] == 1].sent_ns.min()
        outside = messages[messages["round"] == 0]
        before = outside.sent_ns < begun
        for part, there in (("set_up", outside[before]), ("outside", outside[~before]),
                            ("round", messages[messages["round"] == 1])):
            assert said[part]["messages"] == len(there), (said["scheme"], part)
            assert said[part]["payload_bytes"] == pytest.approx(there.payload_bytes.sum(), rel=0.01)      # integers
            assert said[part]["wire_bytes"] == pytest.approx(there.wire_bytes.sum(), rel=0.01)
            counts = there.groupby(there.type.astype(str)).size().to_dict()
            assert {row["type"]: row["messages"] for row in said[part]["by_type"]} == counts


def test_who_has_not_joined_sends_nothing_in_the_first_round():
    late = "{availability: {match: 'client[45]', rounds: [3..4, 6..]}}"
    found = explain(loads(TEXT, sets=[f"faults=[{late}]", "schemes=[fedavg]", "stop.rounds=8"]))
    row, = found["schemes"]
    assert {one["type"]: one["messages"] for one in row["round"]["by_type"]} == {"Model": 3, "Update": 3}
    assert row["taking_part"] == [{"from": begin, "to": end, "server": 1, "client": clients}
                                  for begin, end, clients in ((1, 2, 3), (3, 4, 5), (5, 5, 3), (6, 8, 5))]
    assert dict(tables(found))["fedavg, who takes part"] == [
        ["rounds", "server", "client"], ["1..2", "1", "3"], ["3..4", "1", "5"], ["5..5", "1", "3"], ["6..8", "1", "5"]]


def first_round(tmp_path, scenario):
    """{type: messages, bytes} of the first round of a run of this scenario."""
    result, = engine.run(scenario, workers=0, out=tmp_path)
    messages = load_run(result.directory).messages
    return {kind: (len(rows), rows.payload_bytes.sum()) for kind, rows in
            messages[(messages["round"] == 1) & (messages["hops"] > 0)].groupby(messages.type.astype(str))}


@pytest.mark.parametrize(("servers", "scheme"), [
    (4, "{name: fedrfq, upload_deadline: 1 s, result_timeout: 2 s, view_timeout: 2 s, round_timeout: 10 s}"),
    (1, "{name: diloco, survive: true, timeout: 1 s}"),         # its clients enter a second round before the first ends
    (3, "{name: shieldfl, bits: 1024, deadline: 20 s}"),        # fails on updates of zeros
    (3, "{name: pefl, bits: 1024, real_up_to: 64, deadline: 20 s}"),
])
def test_messages_of_the_first_round_are_those_of_a_run(servers, scheme, tmp_path):
    text = TEXT.replace("star_mesh, clients: 5", f"star_mesh, clients: 5, servers: {servers}")
    scenario = loads(text.replace("model: logistic", "model: digits_classic") if "fedrfq" in scheme else text, sets=[
        f"schemes=[{scheme}]", "faults=[]", "stop.rounds=1", "compute={mode: zero}", "links[1].outage=none",
        "links[2].bandwidth=20 Mbit/s", "task.solver={sgd: {lr: 0.1, steps: 1, batch: 16}}"])
    (row,) = explain(scenario)["schemes"]
    said = {}
    for one in row["round"]["by_type"]:
        count, size = said.get(one["type"], (0, 0))
        said[one["type"]] = count + one["messages"], size + one["payload_bytes"]
    ran = first_round(tmp_path, scenario)
    assert {kind: count for kind, (count, _) in said.items()} == {kind: count for kind, (count, _) in ran.items()}
    for kind, (_, size) in ran.items():
        assert said[kind][1] == pytest.approx(size, rel=0.01), kind
    assert row["failed"] == []


def test_a_first_round_that_fails_and_one_that_depends_on_values_are_told():
    scenario = loads(TEXT, sets=["faults=[]", "schemes=[{name: fedavg, compress: qsgd}, {name: krum, f: 1}, "
                                 "{name: secagg, threshold: 3, stage_deadline: 1 ms}]"])
    explained = explain(scenario)
    said = "\n".join(notes(explained))
    assert "fedavg: compress.up: qsgd: makes codes whose length depends on the values; so the first round may" in said
    assert "krum: decides by updates, losses or gradients" in said
    assert "secagg: the first round failed, and is shown as far as it got: server: " in said
    assert explained["schemes"][2]["failed"]


def test_a_dry_round_has_no_losses_no_faults_and_no_training():
    scenario = dry(loads(TEXT))
    assert (scenario.faults, scenario.stop.rounds, scenario.compute.mode) == ([], 1, "zero")
    assert scenario.task["solver"] == {"sgd": {"lr": 0.1, "batch": 16, "steps": 0}}
    wiring = engine.wire(scenario, *scenario.schemes[0])
    assert all(wiring.network.parameters(v, 0).outage is None for v in range(1, 6))


def test_what_has_no_effect_is_told(explained):
    assert explained["unmatched_rules"] == ["cleint1->server"]
    geant = explain(loads(TEXT.replace("{generator: star_mesh, clients: 5}", f"""
  file: {ROOT / 'topologies' / 'Geant2012.graphml'}
  latency: distance
  roles: {{server: [DE], client: {{rule: all, count: 5, access: {{latency: 1 ms}}}}}}""").replace(
        "faults:\n  - {at: 10 ms, node: client2, crash: true}\n", "")), scheme="fedavg")
    assert {"of": "vertices", "attribute": "Country", "count": 37} in geant["unused_attributes"]
    assert not any(row["attribute"] in ("Latitude", "LinkSpeedRaw", "label") for row in geant["unused_attributes"])
    assert [row["scheme"] for row in geant["schemes"]] == ["fedavg"]
    assert any(note.startswith("attributes of vertices without an effect: Country (37)") for note in notes(geant))


def test_a_scheme_that_fails_is_told_and_does_not_hide_the_others(tmp_path, monkeypatch):
    (tmp_path / "explain_bug.py").write_text(
        "from dataclasses import dataclass\n\n@dataclass(frozen=True)\nclass Params:\n    pass\n\n"
        "async def server(node, p):\n    raise LookupError('a bug')\n\nasync def client(node, p):\n    pass\n\n"
        "from emul.roles import Scheme\nSCHEME = Scheme(params=Params, roles={'server': server, 'client': client})\n")
    monkeypatch.syspath_prepend(tmp_path)
    scenario = loads(TEXT, sets=["schemes=[explain_bug, fedavg]"], plugins=["explain_bug"])
    first, second = explain(scenario, plugins=["explain_bug"])["schemes"]
    assert first == {"scheme": "explain_bug", "error": "server (server) failed at 0 s in round 0: LookupError: a bug"}
    assert second["round"]["messages"] == 10


def test_an_unknown_scheme_is_refused():
    with pytest.raises(ScenarioError, match="expected one of its schemes: fedavg, secagg, fair_seccogc"):
        explain(loads(TEXT), scheme="krum")


def test_many_nodes_are_looked_at_by_a_sample_that_misses_no_rule():
    text = TEXT.replace("star_mesh, clients: 5", "star_mesh, clients: 3000").replace("client3->*", "client2718->*")
    text = text.replace("partition: iid", "partition: {bootstrap: 4}").replace(
        "schemes: [fedavg, {name: secagg, threshold: 3}, {name: fair_seccogc, s: 4, lambda: 0.1}]", "schemes: [fedavg]")
    start = time.process_time()
    from emul.network import build
    from emul.preview.explain import routes

    scenario = loads(text)
    network = build(scenario.topology, scenario.link_rules, scenario.seed)
    found = routes(network, scenario.link_rules, 10**6, scenario.seed)
    assert [(row["pairs"], row["looked_at"]) for row in found] == [(3000, 32), (3000, 32), (3000 * 2999, 32 * 31)]
    assert found[1]["bottleneck_bps"]["min"] == 1e6             # of one client among 3,000
    assert found[0]["pairs"] > EXACT
    assert time.process_time() - start < 10


def test_the_tables_say_what_was_found(explained):
    (routes_title, rows), (_, schemes), *types = tables(explained)
    assert routes_title == "Routes, and a message of 1 MB (least / median / largest)"
    assert rows[2][:6] == ["client", "server", "5", "1", "40 ms", "1 Mbit/s / 20 Mbit/s / 20 Mbit/s"]
    assert [row[0] for row in schemes[1:]] == ["fedavg", "secagg", "fair_seccogc"]
    assert types[0][0] == "fedavg, in the first round"
    assert types[0][1][1][:4] == ["Model", "server", "client", "5"]


@pytest.mark.parametrize("sharing", ["connections", "tcp_fifo"])
def test_connections_of_tcp_are_told_new_and_used_and_what_is_not_verified(sharing):
    """Over a round trip of 40 ms at 20 Mbit/s, 1 MB: from the second message on slow start is over."""
    sets = [f"links[0].sharing={sharing}", "links[0].transport={tcp: {}}", "schemes=[fedavg]",
            "links[1].outage={model: bernoulli, p: 0.05, per: packet}"]
    explained = explain(loads(TEXT, sets=sets), 10**6)
    down, up = route(explained, "server", "client"), route(explained, "client", "server")
    for row in (down, up):
        assert row["seconds"]["median"] > row["seconds_used"]["median"] > 0.42
    assert up["loss"]["max"] == 0                               # packets are sent again, messages are not lost
    assert any("above 2% of packets lost are not verified" in warning for warning in explained["warnings"])
    said = "\n".join(notes(explained))
    assert "on a new connection" in said
    assert explained["schemes"][0]["seconds"] > 0


def command(monkeypatch, capsys, *args):
    monkeypatch.setattr(sys, "argv", ["emul", "explain", *args])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    said = capsys.readouterr()
    return stop.value.code, said.out, said.err


def test_the_command_prints_tables_or_json(tmp_path, monkeypatch, capsys):
    path = tmp_path / "small.yaml"
    path.write_text(TEXT)
    code, out, err = command(monkeypatch, capsys, str(path), "--size", "64 KiB", "--scheme", "fedavg")
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "Routes, and a message of 65.54 kB (least / median / largest)"
    assert 'the rule "cleint1->server" matches no link' in out
    code, out, _ = command(monkeypatch, capsys, str(path), "--json", "--set", "topology.clients=4",
                           "--set", "schemes=[fedavg]")
    found = json.loads(out)
    assert (code, found["roles"], found["size_bytes"]) == (0, {"server": 1, "client": 4}, 10**6)


@pytest.mark.parametrize("size", ["5", "5 miles"])
def test_a_size_without_its_unit_is_bad_input(tmp_path, monkeypatch, capsys, size):
    (tmp_path / "small.yaml").write_text(TEXT)
    code, out, err = command(monkeypatch, capsys, str(tmp_path / "small.yaml"), "--size", size)
    assert (code, out) == (2, "")
    assert "expected a size such as 1 MB or 64 KiB" in err
