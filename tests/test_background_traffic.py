"""Background traffic in whole runs: digests, records, tables, errors, `explain`."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from emul import engine, load_run
from emul.base.errors import ScenarioError
from emul.preview.explain import explain, notes
from emul.record.journal import Reading, read
from emul.record.rundir import JOURNAL
from emul.report import write
from emul.scenario import Scenario, loads
from emul.workers.pool import Workers
from emul.workers.twin import Twin
from tests.digested import digests

TEXT = """
emul: 1
name: loaded
seed: 7
topology: {generator: star_mesh, clients: 3}
links:
  - {match: "*", latency: 20 ms, bandwidth: 4 Mbit/s}
task: {data: {set: digits}, model: logistic, solver: {sgd: {lr: 0.1, steps: 1, batch: 8}}}
training: skip
compute: {mode: zero}
schemes: [{name: fedavg}, {name: secagg, threshold: 2}]
stop: {rounds: 4}
"""
LAWS = {
    "constant": "1 Mbit/s", "trace": "{trace: load.csv, loop: true}",
    "sine": "{sine: {mean: 2 Mbit/s, amplitude: 1 Mbit/s, period: 700 ms}}",
    "ramp": "{ramp: {from: 0, to: 3 Mbit/s, over: 500 ms}}",
    "on_off": "{on_off: {rate: 3 Mbit/s, on: {exponential: 30 ms}, off: {pareto: {shape: 1.5, mean: 50 ms}}}}",
    "stationary": "{on_off: {rate: 3 Mbit/s, on: {weibull: {shape: 0.7, scale: 40 ms}}, off: 30 ms, "
                  "start: stationary}}",
    "walk": "{walk: {every: 25 ms, law: {normal: {mean: 2 Mbit/s, sigma: 1 Mbit/s}}, most: 3500 kbit/s}}"}
LINKS = {
    "fifo": [], "maxmin": ["links[0].sharing=maxmin"],
    "connections": ["links[0].sharing=connections", "links[0].transport={tcp: {}}"],
    "tcp_fifo": ["links[0].sharing=tcp_fifo", "links[0].transport={tcp: {buffer: 15 kB}}"],
    "pauses": ["links[0].outage={model: on_off, up: 90 ms, down: 30 ms, span: pause}"],
    "reliable": ["links[0].transport=reliable", "links[0].outage={model: gemodel, p: 0.1, r: 0.5, per: packet}"],
    "faults": ["faults=[{at: 50 ms, link: client1->server, down: true, for: 100 ms, inflight: pause}, "
               "{at: 60 ms, link: client2->server, set: {bandwidth: 3 Mbit/s}, for: 300 ms}]"],
    "shared faults": ["links[0].sharing=maxmin", "faults=[{at: 50 ms, link: client1->server, down: true, for: 100 ms, "
                      "inflight: pause}, {at: 60 ms, link: client2->server, set: {bandwidth: 3 Mbit/s}, for: 300 ms}]"]}
KINDS = ("offered", "carried", "dropped")
CASES = list(zip([*LAWS] * 2, LINKS, strict=False))        # every law, all kinds of links, two at a time


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("loaded")
    (base / "load.csv").write_text("t,bandwidth\n0 s,2 Mbit/s\n40 ms,3 Mbit/s\n100 ms,3 Mbit/s\n")
    return base


@pytest.fixture(scope="module")
def twin():
    with Twin() as twin:
        yield twin


def scenario(folder: Path, *sets: str) -> Scenario:
    return loads(TEXT, "loaded", sets, base=folder)


def entry(rate: str, where: str = "link: '*->server'") -> str:
    return f"traffic=[{{{where}, rate: {rate}}}]"


def go(folder: Path, twin: Twin, scheme: str, *sets: str):
    result, = engine.run(scenario(folder, *sets), scheme=scheme, workers=twin, out=folder / "runs")
    assert result.error is None, result.error
    assert result.violations == ()
    return result


def background(result) -> pd.DataFrame:
    network = load_run(result.directory).network
    return network[network.what == "background_bps"].drop(columns=["round", "k", "sender", "receiver"])


@pytest.mark.parametrize(("law", "links"), CASES)
def test_a_run_repeats_itself_on_its_record_without_the_traffic_of_its_scenario(folder, twin, law, links):
    first = go(folder, twin, "fedavg", *LINKS[links], entry(LAWS[law]))
    again = go(folder, twin, "fedavg", *LINKS[links], f"network={{replay: '{first.directory}', beyond: error}}")
    assert again.summary["digest"] == first.summary["digest"]
    assert set(again.summary["network_beyond"].values()) == {0}
    assert first.summary["digest"] != go(folder, twin, "fedavg", *LINKS[links]).summary["digest"]
    table = load_run(first.directory).traffic
    assert (table.offered_bytes == table.carried_bytes + table.dropped_bytes).all()
    assert table.offered_bytes.sum() > 0
    beside, recorded = (one.summary["bytes_background"] for one in (first, again))
    assert [beside[f"{kind}_bytes"] for kind in KINDS] == [table[f"{kind}_bytes"].sum() for kind in KINDS]
    assert beside == recorded
    told, repeated = background(first), background(again)
    assert len(told) == len(repeated) > 0
    assert (told.value.values == repeated.value.values).all()


@pytest.mark.parametrize("law", ["on_off", "walk"])
def test_two_schemes_meet_the_same_background(folder, twin, law):
    a, b = (background(go(folder, twin, scheme, entry(LAWS[law], "link: '*'"))) for scheme in ("fedavg", "secagg"))
    both = a.merge(b, on=["source", "destination", "start_ns"], suffixes=("", "_b"))
    assert len(both) > 10
    assert both.value.equals(both.value_b)
    assert both.end_ns.equals(both.end_ns_b)


@pytest.mark.parametrize("links", LINKS)
def test_a_rate_of_0_is_no_entry(folder, twin, links):
    plain = digests(scenario(folder, *LINKS[links]), twin)
    assert digests(scenario(folder, *LINKS[links], entry("0")), twin) == plain
    assert digests(scenario(folder, *LINKS[links], entry("0", "flow: 'client1->server'")), twin) == plain
    assert digests(scenario(folder, *LINKS[links], entry("1 Mbit/s")), twin) != plain


@pytest.mark.parametrize("links", ["fifo", "maxmin", "tcp_fifo"])
def test_one_digest_whatever_the_number_of_workers(folder, twin, links, pools: list[Workers]):
    loaded = scenario(folder, *LINKS[links], entry(LAWS["walk"], "link: '*'"))
    alone = digests(loaded, twin)
    assert digests(loaded, pools[1]) == alone


def test_a_flow_loads_every_link_of_its_route_with_the_same_draws(folder, twin):
    result = go(folder, twin, "fedavg", "topology={generator: star, clients: 3}",
                "traffic=[{flow: 'client1->client2', name: f, rate: " + LAWS["walk"] + "}]")
    table = pd.read_parquet(result.directory / "traffic.parquet")
    assert set(table.source + "->" + table.destination) == {"client1->server", "server->client2"}
    assert len(set(table.offered_bytes)) == 1
    assert set(table.entry) == {"f"}


def test_a_run_without_traffic_tells_nothing_of_it(folder, twin):
    result = go(folder, twin, "fedavg")
    assert not (result.directory / "traffic.parquet").exists()
    assert background(result).empty
    assert "bytes_background" not in result.summary
    assert not closed(result.directory).background
    assert 'data-key="background"' not in report(result.directory)


def report(directory: Path) -> str:
    return write(directory).read_text(encoding="utf-8")


def closed(directory: Path) -> Reading:
    """The journal of a run, read to its end."""
    found = read(directory / JOURNAL)
    for _ in found.chunks():
        pass
    return found


def test_totals_by_link_stand_in_journal_summary_and_report_and_add_up_over_entries(folder, twin):
    result = go(folder, twin, "fedavg", "traffic=[{link: 'client1->server', rate: 3 Mbit/s, for: 30 ms}, "
                "{link: '*->server', name: b, rate: 2 Mbit/s}]")
    assert engine.replay(result.directory, workers=twin) == result.summary["digest"]
    table = load_run(result.directory).traffic.groupby(["source", "destination"]).sum(numeric_only=True)
    told = closed(result.directory).background
    assert told == [(*ends, *row) for ends, row in zip(table.index, table.to_numpy().tolist(), strict=True)]
    beside = result.summary["bytes_background"]
    assert beside["by_link"][0] == {"link": "client1->server", **dict(zip(
        (f"{kind}_bytes" for kind in KINDS), told[0][2:], strict=True))}
    assert told[0][4] > 0                                   # 5 Mbit/s on 4, for a while
    assert [beside[f"{kind}_bytes"] for kind in KINDS] == table.sum().tolist()
    assert result.summary["bytes_total"] == load_run(result.directory).messages.wire_bytes.sum()
    page = report(result.directory)
    assert 'data-key="background"' in page
    assert "Stacked bars of background traffic by link" in page
    assert 'data-key="shared-links"' in page


def test_all_that_is_wrong_is_told_at_once_with_its_line(folder):
    wrong = """traffic:
  - {link: "client1->servr", rate: 1 Mbit/s}
  - {link: "server->x*", rate: 1 Mbit/s}
  - {flow: "client1->client1", rate: 1 Mbit/s}
  - {link: "@far->server", rate: 1 Mbit/s}
task:"""
    with pytest.raises(ScenarioError) as error:
        loads(TEXT.replace("task:", wrong), "loaded", base=folder)
    said = str(error.value)
    assert 'line 9   traffic[0].link  "client1->servr"    unknown node "servr"; did you mean "server"?' in said
    assert "traffic[1].link" in said
    assert "matches no link" in said
    assert "matches no two vertices" in said
    assert "traffic[3].link" in said


@pytest.mark.parametrize(("written", "said"), [
    ("{link: '*', flow: 'a->b', rate: 1 Mbit/s}", "expected one of link, flow"),
    ("{link: '*'}", "expected one of rate, messages, greedy"),
    ("{link: '*', rate: 1 Mbit/s, greedy: 1}", "expected one of rate, messages, greedy"),
    ("{link: '*', rate: 5}", "the unit is missing, or one of trace, sine, ramp, on_off, walk"),
    ("{link: '*', rate: {sine: {mean: 1 Mbit/s, amplitude: 2 Mbit/s, period: 1 s}}}", "expected at most the mean"),
    ("{link: '*', rate: {sine: {mean: 1 Mbit/s, amplitude: 0, period: 1 s, step: 2 s}}}", "expected at most period"),
    ("{link: '*', rate: {on_off: {rate: 1 Mbit/s, on: {gamma: 2 s}, off: 1 s}}}", "traffic[0].rate.on_off.on"),
    ("{link: '*', rate: {walk: {every: 1 s, law: {uniform: [2 Mbit/s, 1 Mbit/s]}}}}", "the first is not the larger"),
    ("{link: '*', rate: {trace: missing.csv}}", "traffic[0].rate.trace"),
    ("{link: '*', greedy: 0}", "traffic[0].greedy"),
    ("{link: '*', greedy: 3}", "a flow without an end would stop it"),
    ("{link: '*', messages: {every: 1 s}}", "traffic[0].messages.size"),
    ("{link: '*', messages: {every: 0 s, size: 1 kB}}", "traffic[0].messages.every"),
    ("{link: '*', messages: {every: 1 s, size: {pareto: {shape: 1, mean: 1 kB}}}}", "expected a number in [1.01, 100]"),
    ("{link: '*', messages: {every: 1 s, size: {uniform: [2 kB, 1 kB]}}}", "the first is not the larger one"),
    ("{link: '*', rate: 1 Mbit/s, name: n}, {link: '*', rate: 2 Mbit/s, name: n}", "is the name of another entry"),
])
def test_what_is_wrong_with_an_entry(folder, written, said):
    with pytest.raises(ScenarioError, match=r"traffic") as error:
        scenario(folder, f"traffic=[{written}]")
    assert said in str(error.value)


@pytest.mark.parametrize("rate", [
    *LAWS.values(), "{walk: {every: {exponential: 1 s}, law: {poisson: {mean: 2 Mbit/s}}}}",
    "{walk: {every: {lognormal: {median: 1 s, sigma: 1}}, law: {uniform: [0, 1 Mbit/s]}}}",
    "{walk: {every: 1 s, law: {exponential: 1 Mbit/s}}}"])
def test_an_entry_written_back_is_the_same(folder, rate):
    given = scenario(folder, "traffic=[{link: '*', rate: " + rate + ", at: 1 s, for: 2 s}, {flow: 'client1->server', "
                     "name: n, rate: " + rate + "}, {link: '*', rate: " + rate + ", at: 1 s, for: 2 s}]")
    again = loads(given.resolved(), "again", base=folder / "elsewhere")
    assert again == given
    assert again.traffic[0].key + " #2" == again.traffic[2].key


def test_rates_above_a_link_warn(folder):
    assert not scenario(folder, entry("3 Mbit/s")).warnings
    warning, = scenario(folder, entry("4 Mbit/s")).warnings
    assert "nothing is left for messages on client1->server (4 Mbit/s on 4 Mbit/s)" in warning


@pytest.mark.parametrize("sharing", ["fifo", "maxmin"])
def test_explain_tells_the_load_and_the_time_at_the_mean_rate_that_is_left(folder, sharing):
    """Case A1: 10 Mbit/s, 4 of them taken, 1 MB."""
    loaded = scenario(folder, "links[0].bandwidth=10 Mbit/s", "links[0].latency=0 s", f"links[0].sharing={sharing}",
                      entry("4 Mbit/s"), "schemes=[fedavg]")
    explained = explain(loaded, 10**6)
    up = next(row for row in explained["routes"] if (row["from"], row["to"]) == ("client", "server"))
    assert up["load"] == {"min": 0.4, "median": 0.4, "max": 0.4}
    assert up["seconds"]["max"] == 0.8
    assert up["seconds_loaded"]["max"] == 1.333333334
    assert "0.4 of the fullest link in the mean; 800 ms alone, 1.333 s at the mean rate" in "\n".join(notes(explained))
    first = notes(explained)[0]
    assert "on 3 links; in the mean most on client1->server (4 Mbit/s, load 0.4), " in first
    full = explain(scenario(folder, entry("5 Mbit/s"), "schemes=[fedavg]"), 10**6)
    assert any("nothing is left" in warning for warning in full["warnings"])
    assert any(row.get("seconds_loaded", {}).get("max", 0) is None for row in full["routes"])
    assert "load" not in explain(scenario(folder, "schemes=[fedavg]"), 10**6)["routes"][0]
