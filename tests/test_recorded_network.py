"""Runs on a recorded network: two schemes meet the same links; a scheme on its own record does the same again."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from emul import engine, load_run
from emul.base.errors import ScenarioError
from emul.cli import main
from emul.registry import schemes
from emul.scenario import loads
from emul.workers.twin import Twin

TEXT = """
emul: 1
name: rec
seed: 7
topology: {generator: star_mesh, clients: 4}
links:
  - {match: "*", latency: 20 ms, bandwidth: 4 Mbit/s}
task: {data: {set: digits}, model: logistic, solver: {sgd: {lr: 0.1, steps: 1, batch: 8}}}
compute: {mode: profile, file: costs.json}
schemes: [{name: fedavg, deadline: 2 s}, {name: secagg, threshold: 3}, {name: fair_seccogc, s: 1}]
stop: {rounds: 4}
"""
LOSSES = {
    "message": "{model: bernoulli, p: 0.1}", "packet": "{model: bernoulli, p: 0.05, per: packet}",
    "round": "{model: bernoulli, p: 0.1, per: round}", "slot": "{model: bernoulli, p: 0.1, per: slot, slot: 15 ms}",
    "any_slot": "{model: bernoulli, p: 0.05, per: slot, slot: 15 ms, span: any_slot}",
    "pause": "{model: bernoulli, p: 0.3, per: slot, slot: 15 ms, span: pause}",
    "gilbert": "{model: gilbert, p: 0.1, r: 0.5}", "gilbert packet": "{model: gemodel, p: 0.1, r: 0.7, per: packet}",
    "gilbert round": "{model: gemodel, p: 0.1, r: 0.5, 1-k: 0.02, per: round}",
    "gilbert slot": "{model: gemodel, p: 0.1, r: 0.5, 1-h: 0.9, per: slot, slot: 10 ms}",
    "on_off": "{model: on_off, up: 200 ms, down: 20 ms}",
    "on_off pause": "{model: on_off, up: 50 ms, down: 9 ms, span: pause}",
    "fading": "{model: fading, coherence: 30 ms, snr: 15 dB, rate: 20 Mbit/s, bandwidth: 10 MHz}",
    "probabilities": "{model: trace, file: loss.csv, loop: true}"}
LATENCIES = {
    "uniform": "{distribution: uniform, mean: 20 ms, jitter: 9 ms}",
    "normal": "{distribution: normal, mean: 20 ms, jitter: 4 ms}",
    "pareto": "{distribution: pareto, mean: 20 ms, jitter: 9 ms}",
    "paretonormal": "{distribution: paretonormal, mean: 20 ms, jitter: 9 ms, reorder: true}",
    "lognormal": "{distribution: lognormal, median: 20 ms, sigma: 0.5}",
    "empirical": "{distribution: empirical, file: rtt.csv}"}
CASES = list(zip(LOSSES, [*LATENCIES] * 3, strict=False))      # every loss, every latency, two at a time
INDEX = ["source", "destination", "what", "round", "k", "start_ns"]
DRAWN = ["lost", "first_lost_packet", "draw", "up", "latency_ns"]
PROFILE = {"emul_profile": 1, "costs": {f"{scheme}/{role}/{label}": [cost, 0] for scheme, role, label, cost in [
    ("fedavg", "client", "train", 0.003), ("fedavg", "server", "aggregate", 0.001)]}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    base = tmp_path_factory.mktemp("recorded")
    (base / "loss.csv").write_text("t_ms,loss\n0,0.02\n40,0.2\n90,0\n")
    (base / "rtt.csv").write_text("latency_ms\n12\n17\n31.5\n20\n")
    (base / "rate.csv").write_text("t,bandwidth\n0 s,2 Mbit/s\n40 ms,4 Mbit/s\n100 ms,4 Mbit/s\n")
    (base / "costs.json").write_text(json.dumps(PROFILE))
    return base


@pytest.fixture(scope="module")
def twin():
    with Twin() as twin:
        yield twin


def scenario(folder, *sets, mode="zero"):
    compute = [f"compute={{mode: {mode}}}"] if mode == "zero" else []
    return loads(TEXT, "rec", [*compute, *sets], base=folder)


def go(folder, twin, scheme, *sets, mode="zero"):
    result, = engine.run(scenario(folder, *sets, mode=mode), scheme=scheme, workers=twin, out=folder / "runs")
    assert result.error is None, result.error
    assert result.violations == ()
    return result


def drawn(result) -> pd.DataFrame:
    network = load_run(result.directory).network
    return network[network.what.isin(DRAWN)]


def common(a: pd.DataFrame, b: pd.DataFrame) -> pd.DataFrame:
    """The rows of two runs with one index."""
    return a.merge(b, on=INDEX, suffixes=("", "_b"))


@pytest.mark.parametrize(("loss", "latency"), CASES)
def test_two_schemes_on_one_seed_draw_the_same_and_each_repeats_itself_on_its_record(folder, twin, loss, latency):
    """F30: the states of links are identical at equal (link, index); and a record makes the run again."""
    sets = [f"links[0].outage={LOSSES[loss]}", f"links[0].latency={LATENCIES[latency]}", "stop.rounds=3"]
    first, second = go(folder, twin, "fedavg", *sets), go(folder, twin, "secagg", *sets)
    a, b = drawn(first), drawn(second)
    assert not a.duplicated(INDEX).any()
    both = common(a, b)
    assert len(both) >= 40
    assert len(set(both.what)) == 2
    assert both.value.equals(both.value_b)
    assert both.end_ns.equals(both.end_ns_b)
    again = go(folder, twin, "fedavg", *sets, f"network={{replay: '{first.directory}', beyond: error}}")
    assert again.summary["digest"] == first.summary["digest"]
    assert set(again.summary["network_beyond"].values()) == {0}
    assert first.summary["network_beyond"] is None


@pytest.mark.parametrize("sets", [
    ["links[0].bandwidth={trace: rate.csv, loop: true}", "links[0].outage={model: bernoulli, p: 0.1, per: round}"],
    ["links[0].transport=reliable", "links[0].outage={model: gemodel, p: 0.1, r: 0.5, per: packet}"],
    ["links[0].transport={arq: stop_and_wait, retries: 1}", "links[0].outage={model: bernoulli, p: 0.4, per: round}"],
    ["links[0].transport=reliable", "links[0].outage={model: on_off, up: 90 ms, down: 30 ms}"],
    ["links[0].sharing=maxmin", "links[0].outage={model: gilbert, p: 0.2}",
     "links[0].latency={distribution: lognormal, median: 20 ms, sigma: 0.5}"],
    ["links[0].outage={model: on_off, up: 90 ms, down: 30 ms, span: pause}",
     "faults=[{at: 50 ms, link: client1->server, down: true, for: 100 ms}, {at: 60 ms, node: client2, crash: true}]"],
    ["links[0].bandwidth={trace: rate.csv, loop: true}", "links[0].outage={model: bernoulli, p: 0.05, per: packet}",
     "links[0].sharing=tcp_fifo", "links[0].transport={tcp: {buffer: 15 kB}}"],
    ["links[0].sharing=connections", "links[0].outage={model: on_off, up: 90 ms, down: 30 ms}",
     "links[0].transport={tcp: {}}"],
    ["links[0].sharing=connections", "links[0].outage={model: gemodel, p: 0.05, r: 0.5, per: packet}",
     "links[0].transport={tcp: {}}", "faults=[{at: 50 ms, link: client1->server, down: true, for: 100 ms, "
     "inflight: pause}, {at: 60 ms, node: client2, crash: true}]"],
], ids=["trace", "reliable", "stop and wait", "reliable on_off", "sharing", "faults", "tcp trace",
        "tcp on_off", "tcp faults"])
def test_a_run_with_other_features_repeats_itself_on_its_record(folder, twin, sets):
    first = go(folder, twin, "fedavg", *sets)
    again = go(folder, twin, "fedavg", *sets, f"network={{replay: '{first.directory}', beyond: error}}")
    assert again.summary["digest"] == first.summary["digest"]
    assert set(again.summary["network_beyond"].values()) == {0}
    network = load_run(first.directory).network
    pd.testing.assert_frame_equal(load_run(again.directory).network, network)
    if "trace" in sets[0]:
        rates = network[network.what == "rate_bps"]
        assert set(rates.value) == {2e6, 4e6}
    if "faults" in sets[1]:
        faults = network[network.what.str.startswith("fault")]
        assert list(zip(faults.source, faults.start_ns, faults.value, strict=True)) == [
            ("client1", 50 * 10**6, 1), ("client1", 150 * 10**6, 0)]


SHAPES = ("heavy_hitters", "histogram", "split", "splitfed", "u_split", "vertical", "vertical_logistic_he")


@pytest.mark.parametrize("scheme", SHAPES)
def test_a_scheme_of_another_shape_repeats_itself_on_its_record(scheme, twin, tmp_path):
    text = schemes.find(scheme).example
    first, = engine.run(loads(text, scheme), workers=twin, out=tmp_path)
    sets = [f"network={{replay: '{first.directory}', beyond: error}}"]
    again, = engine.run(loads(text, scheme, sets), workers=twin, out=tmp_path)
    assert first.summary["rounds"] > 0
    assert again.summary["digest"] == first.summary["digest"]
    assert set(again.summary["network_beyond"].values()) == {0}


OTHER_SHAPES = ["task.model=digits_mlp", "schemes=[{name: fedavg, deadline: 2 s}, {name: histogram, threshold: 3}, "
                "{name: splitfed, cut: 2, deadline: 2 s}]"]


@pytest.mark.parametrize(("scheme", "entries"), [
    ("secagg", []), ("fair_seccogc", []), ("splitfed", OTHER_SHAPES), ("histogram", OTHER_SHAPES)])
def test_another_scheme_meets_the_recorded_fates(folder, twin, scheme, entries):
    """On another seed, so that nothing but the record can make them equal."""
    sets = ["links[0].outage={model: bernoulli, p: 0.15, per: round}",
            "links[0].latency={distribution: lognormal, median: 20 ms, sigma: 0.4, min: 4 ms}", *entries]
    record = go(folder, twin, "fedavg", *sets)
    other = go(folder, twin, scheme, *sets, "seed=8", f"network={{replay: '{record.directory}'}}")
    both = common(drawn(record), drawn(other))
    assert {"lost", "latency_ns"} == set(both.what)
    assert both.value.equals(both.value_b)
    assert both.value[both.what == "lost"].sum() > 0
    free = drawn(go(folder, twin, scheme, *sets, "seed=8"))
    assert not common(drawn(record), free).pipe(lambda d: d.value.equals(d.value_b))
    counts = other.summary["network_beyond"]
    assert counts["latency_ns"] > 0
    keys = set(drawn(record)[INDEX[:5]].fillna(-1).itertuples(index=False, name=None))
    beyond = [row for row in drawn(other)[INDEX[:5]].fillna(-1).itertuples(index=False, name=None) if row not in keys]
    assert counts["lost"] + counts["latency_ns"] == len(beyond)


def test_costs_of_a_record_come_before_the_profile(folder, twin):
    record = go(folder, twin, "fedavg", mode="profile")
    table = load_run(record.directory)
    costs = table.network[table.network.what == "compute_ns"]
    assert costs.groupby("destination").value.unique().apply(list).to_dict() == {
        "aggregate": [1e6], "train": [3e6]}
    assert list(costs[costs.source == "client2"].k) == [0, 1, 2, 3]
    free = go(folder, twin, "fedavg")                       # on a record, the mode "zero" is not asked
    again = go(folder, twin, "fedavg", f"network={{replay: '{record.directory}'}}")
    assert again.summary["digest"] == record.summary["digest"] != free.summary["digest"]


@pytest.mark.parametrize(("beyond", "costs"), [("stream", [3, 0, 0]), ("repeat", [3, 3, 3])])
def test_computations_after_the_record_cost_what_beyond_says(folder, twin, beyond, costs):
    record = go(folder, twin, "fedavg", "stop.rounds=1", mode="profile")
    run = go(folder, twin, "fedavg", "stop.rounds=3", f"network={{replay: '{record.directory}', beyond: {beyond}}}")
    table = load_run(run.directory).computations
    assert [c // 10**6 for c in table[(table.name == "client1")].cost_ns] == costs
    assert run.summary["network_beyond"]["compute_ns"] == 2 * 5


def test_beyond_error_ends_a_run_and_says_why(folder, twin):
    sets = ["links[0].outage={model: bernoulli, p: 0.1}"]
    record = go(folder, twin, "fedavg", *sets, "stop.rounds=2")
    result, = engine.run(scenario(folder, *sets, f"network={{replay: '{record.directory}', beyond: error}}"),
                         scheme="fedavg", workers=twin, out=folder / "runs")
    assert result.error == ("BeyondRecord: link server -> client1: the fate of message 0 of round 3 is not in the "
                            "record (beyond: error)")


def test_a_record_by_hand_decides_who_is_heard(folder, twin):
    path = folder / "hand.csv"
    path.write_text("source,destination,what,round,k,value\n" + "".join(
        f"client{c},server,lost,{t},,{int(c == t)}\n" for c in (1, 2, 3, 4) for t in (1, 2, 3, 4)))
    run = go(folder, twin, "fedavg", f"network={{replay: '{path}', beyond: error}}")
    messages = load_run(run.directory).messages
    lost = messages[messages.fate == "lost"]
    assert list(zip(lost.source_name, lost["round"], strict=True)) == [(f"client{t}", t) for t in (1, 2, 3, 4)]


def test_a_run_can_do_without_a_record_and_a_record_can_name_other_links(folder, twin):
    run = go(folder, twin, "fedavg", "links[0].outage={model: bernoulli, p: 0.1}", "network={record: false}")
    assert drawn(run).empty
    path = folder / "strange.csv"
    path.write_text("source,destination,what,round,k,value\nrome,paris,lost,1,0,1\n")
    run = go(folder, twin, "fedavg", f"network={{replay: '{path}'}}")
    assert run.warnings == ("network.replay: 1 links of the record are not in this network, such as rome -> paris",)


def test_a_replayed_network_can_be_replayed(folder, twin):
    sets = ["links[0].outage={model: gemodel, p: 0.2}"]
    record = go(folder, twin, "fedavg", *sets)
    run = go(folder, twin, "secagg", *sets, f"network={{replay: '{record.directory}', beyond: repeat}}")
    assert engine.replay(run.directory, twin) == run.summary["digest"]


@pytest.mark.slow
def test_a_record_is_the_same_for_every_number_of_workers(folder, twin):
    sets = ["links[0].latency={distribution: lognormal, median: 20 ms, sigma: 0.5}",
            "links[0].outage={model: on_off, up: 200 ms, down: 20 ms, span: pause}"]
    alone = go(folder, twin, "secagg", *sets)
    result, = engine.run(scenario(folder, *sets), scheme="secagg", workers=2, out=folder / "runs")
    assert result.summary["digest"] == alone.summary["digest"]
    pd.testing.assert_frame_equal(load_run(result.directory).network, load_run(alone.directory).network)


# --- the command ----------------------------------------------------------------------------------------------------

def command(monkeypatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["emul", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    return int(caught.value.code or 0)


def test_the_command_runs_on_a_record(folder, twin, monkeypatch, capsys):
    file = folder / "s.yaml"
    file.write_text(TEXT)
    sets = ["links[0].outage={model: bernoulli, p: 0.2}"]
    record = go(folder, twin, "fedavg", *sets)
    arguments = ["run", str(file), "--scheme", "fedavg", "--workers", "0", "--quiet", "--out", str(folder / "runs"),
                 "--set", sets[0], "--set", "compute={mode: zero}", "--json"]
    assert command(monkeypatch, *arguments, "--network", str(record.directory), "--beyond", "error") == 0
    summary = json.loads(capsys.readouterr().out)["runs"][0]["summary"]
    assert (summary["digest"], set(summary["network_beyond"].values())) == (record.summary["digest"], {0})
    assert command(monkeypatch, *arguments, "--beyond", "error") == 2
    assert "used only with --network" in capsys.readouterr().err
    assert command(monkeypatch, *arguments, "--network", str(folder / "gone"), "--beyond", "some") == 2
    assert 'network.beyond  "some"  unknown mode' in " ".join(capsys.readouterr().err.split(" ")).replace("   ", "  ")


@pytest.mark.parametrize(("text", "place", "expected"), [
    ("{replay: gone}", "network.replay", "expected a CSV file"),
    ("{beyond: repeat}", "network.beyond", "is used only with replay"),
    ("{replay: loss.csv}", "network.replay", "expected a header with the columns source, destination, what, value"),
    ("{reply: a}", "network.reply", 'unknown key; did you mean "replay"?'),
    ("{record: 1}", "network.record", "expected true or false")])
def test_a_network_that_cannot_be_replayed_is_told(folder, text, place, expected):
    with pytest.raises(ScenarioError) as caught:
        scenario(folder, f"network={text}")
    problem, = caught.value.problems
    assert problem.place == f"--set {place}"
    assert problem.expected.startswith(expected)


def test_the_use_of_a_record_comes_back_from_yaml(folder):
    (folder / "some.csv").write_text("source,destination,what,round,k,value\na,b,lost,1,0,1\n")
    for text in ("{replay: some.csv, beyond: repeat}", "{record: false}", "{replay: some.csv, record: false}"):
        found = scenario(folder, f"network={text}")
        assert loads(found.resolved()) == found
    assert found.network.replay == Path(folder / "some.csv")


@pytest.mark.parametrize("loss", ["packet", "gilbert packet"])
@pytest.mark.parametrize("sharing", ["connections", "tcp_fifo"])
def test_connections_lose_the_same_packets_for_two_schemes_and_on_the_record(folder, twin, loss, sharing):
    sets = [f"links[0].outage={LOSSES[loss]}", f"links[0].sharing={sharing}", "links[0].transport={tcp: {}}",
            "stop.rounds=3"]
    first, second = go(folder, twin, "fedavg", *sets), go(folder, twin, "secagg", *sets)
    lost = []
    for result in (first, second):
        rows = load_run(result.directory).network.query("what == 'lost_packet'")
        keys = ["source", "destination", "sender", "receiver", "round", "k"]
        lost.append({key: some.value.dropna().tolist() for key, some in rows.groupby(keys)})
    common = lost[0].keys() & lost[1].keys()
    assert sum(bool(lost[0][key]) and bool(lost[1][key]) for key in common) >= 3
    for key in common:                      # of fewer transmissions fewer are lost
        shorter, longer = sorted((lost[0][key], lost[1][key]), key=len)
        assert longer[:len(shorter)] == shorter
    again = go(folder, twin, "fedavg", *sets, f"network={{replay: '{first.directory}', beyond: error}}")
    assert again.summary["digest"] == first.summary["digest"]
    assert set(again.summary["network_beyond"].values()) == {0}
    other = go(folder, twin, "fedavg", *sets, "seed=8", f"network={{replay: '{first.directory}', beyond: stream}}")
    rows = load_run(other.directory).network.query("what == 'lost_packet'")
    assert {key: some.value.dropna().tolist() for key, some in rows.groupby(keys)} == lost[0]
