"""Media and radio in whole runs: digests, records, background, faults, errors of `check`, `explain`, the scenarios."""

from __future__ import annotations

from pathlib import Path

import pytest

from emul import engine, load_run
from emul.base.errors import ScenarioError
from emul.preview.explain import explain, notes
from emul.scenario import Scenario, load, loads
from emul.workers.pool import Workers
from emul.workers.twin import Twin
from tests.digested import digests

ROOT = Path(__file__).resolve().parents[1]
TEXT = """
emul: 1
name: cells
seed: 7
topology: {file: net.csv, roles: {server: [server], client: [client1, client2, client3]}}
links:
  - {match: "*", latency: 2 ms, bandwidth: 1 Gbit/s, sharing: maxmin}
  - {match: "client*<->ap", medium: cafe}
media: {cafe: {fair: airtime, efficiency: {1: 0.7, 3: 0.6}, per_packet: 100 us}}
task: {data: {set: digits}, model: logistic, solver: {sgd: {lr: 0.1, steps: 1, batch: 8}}}
training: skip
compute: {mode: zero}
schemes: [{name: fedavg}, {name: secagg, threshold: 2}]
stop: {rounds: 4}
"""
STILL = "links[1].bandwidth=24 Mbit/s"
RADIO = """radio={places: places.csv, move: [{match: "client*",
 waypoint: {area: [40 m, 40 m], speed: [2000 m/s, 6000 m/s],
 pause: 1 ms}}], loss: {log_distance: {exponent: 3, reference: 46.68 dB, shadowing: 3 dB}},
 rates: {table: wifi_ax_20, power: 16 dBm}}""".replace("\n", "")
STAR = ("topology={generator: star, clients: 3}", "links=[{match: '*', latency: 2 ms, medium: cafe}]")


@pytest.fixture(scope="module")
def twin():
    with Twin() as twin:
        yield twin


def cells(folder: Path, *sets: str) -> Scenario:
    (folder / "net.csv").write_text("source,target\n" + "".join(
        f"{name},ap\n" for name in ("client1", "client2", "client3", "server")))
    (folder / "places.csv").write_text("name,x_m,y_m\nap,20,20\n")
    (folder / "points.csv").write_text("name,x_m,y_m\nap1,0,20\nap2,40,20\n")
    return loads(TEXT, "cells", sets, base=folder)


def roaming(folder: Path, *sets: str) -> Scenario:
    attach = "radio.attach={match: 'client*->ap*', hysteresis: 2 dB, interruption: 1 ms}"
    return cells(folder, *STAR, RADIO, "radio.places=points.csv", attach, *sets)


CASES = {"airtime": [STILL], "throughput": [STILL, "media.cafe.fair=throughput"], "radio": [RADIO],
         "outage": [STILL, "links[0].outage={model: bernoulli, p: 0.3}"],
         "connections": [STILL, "links[0].sharing=connections"],
         "traffic": [RADIO, "traffic=[{link: 'client1->ap', rate: {on_off: {rate: 4 Mbit/s, on: {exponential: 3 ms}, "
                     "off: 2 ms}}}, {flow: 'client2->server', messages: {every: {exponential: 5 ms}, size: 2 kB}}]"],
         "faults": [RADIO, "faults=[{at: 4 ms, link: client1->ap, down: true, for: 9 ms, inflight: pause}, {at: 3 ms, "
                    "link: ap->client2, set: {bandwidth: 1 Mbit/s, latency: 5 ms}, for: 12 ms}]"]}


@pytest.mark.parametrize("case", CASES)
def test_one_digest_whatever_the_number_of_workers(tmp_path, twin, case, pools: list[Workers]):
    scenario = cells(tmp_path, *CASES[case])
    expected = digests(scenario, twin)
    assert digests(scenario, pools[1]) == expected
    result, = engine.run(scenario, scheme="fedavg", workers=twin, out=tmp_path / "runs")
    assert result.violations == ()
    assert expected != digests(cells(tmp_path, "links[1].medium=null", "links[1].bandwidth=24 Mbit/s"), twin)


def test_roaming_nodes_have_one_digest_whatever_the_number_of_workers(tmp_path, twin, pools: list[Workers]):
    scenario = roaming(tmp_path)
    assert digests(scenario, pools[1]) == digests(scenario, twin)
    result, = engine.run(scenario, scheme="fedavg", workers=twin, out=tmp_path / "runs")
    assert result.violations == ()
    assert digests(scenario, twin) != digests(roaming(tmp_path, "radio.attach.interruption=3 ms"), twin)


def test_with_again_roaming_nodes_begin_anew_at_handovers(tmp_path, twin, pools: list[Workers]):
    anew = roaming(tmp_path, "radio.attach.gap=again")
    assert loads(anew.resolved(), "resolved") == anew
    expected = digests(anew, twin)
    assert digests(anew, pools[1]) == expected != digests(roaming(tmp_path), twin)
    result, = engine.run(anew, scheme="fedavg", workers=twin, out=tmp_path / "runs")
    assert result.violations == ()


def rates_of(result) -> dict[tuple[str, str], list[tuple[int, float]]]:
    table = load_run(result.directory).network
    rows = table[table.what == "rate_bps"]
    return {ends: list(zip(of.start_ns, of.value, strict=True)) for ends, of in rows.groupby(["source", "destination"])}


def test_two_schemes_meet_the_same_walks_and_rates(tmp_path, twin):
    for scenario in (cells(tmp_path, RADIO), roaming(tmp_path)):
        first, second = (rates_of(one) for one in engine.run(scenario, workers=twin, out=tmp_path / "runs"))
        assert set(first) == set(second)
        assert len(first) == 6
        changes = 0
        for ends, rates in first.items():
            both = min(len(rates), len(second[ends]))
            changes += both - 1
            assert rates[:both] == second[ends][:both]
        assert changes > 10


def test_a_run_on_the_record_repeats_it_without_radio(tmp_path, twin):
    wide = "links[0].bandwidth=1 Gbit/s"
    moving = cells(tmp_path, RADIO, wide)
    first, = engine.run(moving, scheme="fedavg", workers=twin, out=tmp_path / "runs")
    replay = f"network={{replay: '{first.directory}'}}"
    assert digests(cells(tmp_path, STILL, wide, replay), twin)[0] == digests(moving, twin)[0]
    assert digests(cells(tmp_path, STILL, wide), twin)[0] != digests(moving, twin)[0]


def test_background_traffic_takes_the_time_of_the_whole_medium(tmp_path, twin):
    # 6 of 24 Mbit/s is a quarter of the time, so that three quarters are left to each station
    slow = ("traffic=[{link: 'client1->ap', rate: 6 Mbit/s}]", "media.cafe={fair: airtime, efficiency: 1}")
    alone, loaded = (cells(tmp_path, STILL, "links[0].bandwidth=1 Gbit/s", slow[1], *more) for more in ((), slow[:1]))
    spans = []
    for scenario in (alone, loaded):
        result, = engine.run(scenario, scheme="fedavg", workers=twin, out=tmp_path / "runs")
        messages = load_run(result.directory).messages
        sent = messages[messages.type == "Model"]
        spans.append((sent.arrived_ns - sent.sent_ns - 4_000_000).max())
    assert spans[1] / spans[0] == pytest.approx(4 / 3, rel=.01)


def test_energy_is_of_the_bytes_at_the_links_own_rate(tmp_path, twin):
    devices = "devices={nodes: [{match: 'client*', device: phone_low}]}"
    seconds = []
    for rate in ("6 Mbit/s", "24 Mbit/s"):
        result, = engine.run(cells(tmp_path, f"links[1].bandwidth={rate}", devices), scheme="fedavg", workers=twin,
                             out=tmp_path / "runs")
        energy = load_run(result.directory).energy
        seconds.append(energy[energy.name == "client1"].send_s.iloc[0])
    assert seconds[0] == pytest.approx(4 * seconds[1])


def test_a_resolved_scenario_says_the_same(tmp_path):
    for scenario in (cells(tmp_path, STILL), cells(tmp_path, RADIO), roaming(tmp_path)):
        text = scenario.resolved()
        assert loads(text, "resolved") == scenario
    (tmp_path / "points.csv").write_text("name,x_m,y_m\nap1,1,1\n")
    with pytest.raises(ScenarioError, match=r"radio.places.*is not the one that this scenario was resolved with"):
        loads(text, "resolved")


def wrong(folder: Path, *sets: str) -> list[tuple[str, str, str]]:
    with pytest.raises(ScenarioError) as error:
        cells(folder, *sets)
    return [(one.place.removeprefix("--set "), one.found, one.expected) for one in error.value.problems]


def test_check_tells_all_mistakes_at_once_with_their_lines(tmp_path):
    cells(tmp_path, STILL)
    text = TEXT.replace("medium: cafe", "medium: caffe").replace(
        "media: {cafe: {fair: airtime, efficiency: {1: 0.7, 3: 0.6}, per_packet: 100 us}}", "media:\n"
        "  cafe: {efficiency: 1}\nradio:\n  places: p.csv\n"
        "  move: [{match: nobody, at: [0, 0]}, {match: client1, at: [0, 0]}]\n"
        "  loss: {log_distance: {exponent: 3, reference: 40 dB}}\n  rates: {file: r.csv, power: 16 dBm}\n"
        "  attach: {match: client2->xx, hysteresis: 3 dB}")
    (tmp_path / "p.csv").write_text("name,x_m,y_m\nap,1,x\nap,0,0\n")
    (tmp_path / "r.csv").write_text("least_dbm,rate_mbps\n-80,2\n-90,3\n")
    with pytest.raises(ScenarioError) as error:
        loads(text, "cells", base=tmp_path)
    assert [(one.line, one.place, one.found) for one in error.value.problems] == [
        (8, "links[1].medium", '"caffe"'), (12, "radio.places", 'p.csv, line 2, y_m, "x"'),
        (12, "radio.places", 'p.csv, line 3, name, "ap"'),
        (15, "radio.rates.file", "r.csv, line 3, -90 dBm, 3 Mbit/s")]
    assert "did you mean" in error.value.problems[0].expected
    (tmp_path / "p.csv").write_text("name,x_m,y_m\nap,1,0\nlost,0,0\n")
    (tmp_path / "r.csv").write_text("least_dbm,rate_mbps\n-80,2\n")
    with pytest.raises(ScenarioError) as error:
        loads(text.replace("caffe", "cafe"), "cells", base=tmp_path)
    assert sorted((one.line, one.place, one.found) for one in error.value.problems) == [
        (12, "radio.places", '"lost"'),
        (13, "radio.move[0].match", '"nobody"'), (16, "radio.attach.match", '"client2"'),
        (16, "radio.attach.match", '"xx"')]


def test_a_trace_of_none_of_the_nodes_is_an_error(tmp_path):
    (tmp_path / "walk.csv").write_text("t_s,name,x_m,y_m\n0,cleint1,1,1\n100,cleint1,50,30\n")
    found = wrong(tmp_path, STILL, RADIO, "radio.move=[{match: client1, trace: walk.csv}]")
    assert [(one[0], one[1]) for one in found] == [("radio.move[0].match", '"client1"')]
    assert "rows of none of these vertices" in found[0][2]


@pytest.mark.parametrize(("sets", "place", "said"), [
    (["media={cafe: {fair: airtime}}"], "media.cafe.efficiency", "is required"),
    (["media={cafe: {efficiency: {0: 1}}}"], "media.cafe.efficiency", "expected a share of time in (0, 1]"),
    (["media={cafe: {efficiency: 1.5}}"], "media.cafe.efficiency", "expected a share of time in (0, 1]"),
    (["media={cafe: {efficiency: 1, fair: no}}"], "media.cafe.fair", "throughput, airtime"),
    (["links[1].sharing=fifo"], "links", "expected sharing maxmin or connections"),
    (["links[1].transport=reliable"], "links", "expected transport: datagram"),
    (["links[1].bandwidth=infinite"], "links", "the rate at which the link sends in its time"),
    ([RADIO, "radio.rates={power: 1 dBm}"], "radio.rates", "expected one of table, file"),
    ([RADIO, "radio.move[0].at=[1 m, 2 m]"], "radio.move[0]", "expected one of waypoint, trace, at"),
    ([RADIO, "radio.move[0].waypoint.speed=[0 m/s, 2 m/s]"], "radio.move[0].waypoint.speed[0]", "expected a speed"),
    ([RADIO, "radio.move[0].waypoint.area=[3 s, 2 m]"], "radio.move[0].waypoint.area[0]", "expected a distance"),
    ([RADIO, "radio.attach={match: 'a<->b', hysteresis: 1 dB}"], "radio.attach.match", 'expected "nodes->places"'),
    ([RADIO, "radio.attach={match: 'a->b', hysteresis: 0 dB}"], "radio.attach.hysteresis", "0.01 or more"),
    ([RADIO, "radio.attach={match: 'client*->ap', hysteresis: 1 dB, gap: drop}"], "radio.attach.gap", "unknown gap"),
    ([RADIO, "radio.attach={match: 'client*->ap', hysteresis: 1 dB, gap: again}"], "radio.attach.gap",
     "ap is a vertex, and routes do not follow the place: expected hold"),
    ([*STAR, "links[0].medium=null", "links[0].bandwidth=1 Mbit/s", RADIO, "radio.places=points.csv",
      "radio.attach={match: 'client*->ap*', hysteresis: 1 dB, gap: again}"], "radio.attach.gap",
     "client1 -> server has sharing fifo: expected hold, or links that share"),
    ([RADIO, "radio.rates.power=16 dB"], "radio.rates.power", "expected a power such as 16 dBm")])
def test_what_cannot_be_is_said(tmp_path, sets, place, said):
    found = wrong(tmp_path, *sets) if any("bandwidth" in one for one in sets) else wrong(tmp_path, STILL, *sets)
    assert any(at.startswith(place) and said in expected for at, _, expected in found), found


def test_a_fault_cannot_make_the_rate_of_a_medium_infinite(tmp_path, twin):
    fault = "faults=[{at: 1 ms, link: client1->ap, set: {bandwidth: infinite}}]"
    with pytest.raises(ScenarioError, match="the link shares the time of a medium"):
        digests(cells(tmp_path, STILL, fault), twin)


def test_a_rate_of_traffic_on_a_node_that_roams_is_refused(tmp_path):
    with pytest.raises(ScenarioError, match="leads over one place after the other"):
        roaming(tmp_path, "traffic=[{link: 'client1->server', rate: 1 Mbit/s}]")


def test_a_medium_without_links_is_a_warning(tmp_path):
    assert any("media: pub is the medium of no link" in one
               for one in cells(tmp_path, STILL, "media.pub={efficiency: 1}").warnings)


def test_explain_tells_the_time_alone_and_with_all(tmp_path):
    scenario = cells(tmp_path, STILL, "media.cafe.per_packet=0", "links[0].bandwidth=1 Gbit/s")
    explained = explain(scenario, 10**6, "fedavg")
    row, = explained["media"]
    assert (row["stations"], row["links"], row["efficiency"]) == (3, 6, .6)
    assert row["seconds_alone"]["max"] == pytest.approx(8 / (24 * .7))
    assert row["seconds_all"]["max"] == pytest.approx(8 / (24 * .6 / 3))
    up, = (row for row in explained["routes"] if (row["from"], row["to"]) == ("client", "server"))
    assert up["seconds"]["max"] == pytest.approx(.004 + 8 / (24 * .7), abs=1e-6)
    assert up["bottleneck_bps"]["max"] == pytest.approx(24e6 * .7)
    assert any(note.startswith("medium cafe: 3 stations share its time, fair in airtime") for note in notes(explained))
    assert explain(cells(tmp_path, RADIO), 10**6, "fedavg")["media"][0]["stations"] == 3
    assert explain(roaming(tmp_path), 10**6, "fedavg")["media"][0]["stations"] == 3


def test_the_office_runs(twin, tmp_path):
    result, = engine.run(load(ROOT / "scenarios" / "moving" / "office.yaml", ["training=skip"]), workers=twin,
                         out=tmp_path)
    assert result.violations == ()
    assert set(load_run(result.directory).messages.fate) == {"delivered"}
    assert len(rates_of(result)) == 22


@pytest.mark.slow
def test_phones_on_a_bus_change_from_station_to_station(twin, tmp_path):
    scenario = load(ROOT / "scenarios" / "moving" / "bus.yaml", ["training=skip", "stop={virtual_time: 70 s}"])
    result, = engine.run(scenario, scheme="waits", workers=twin, out=tmp_path)
    assert result.violations == ()
    assert "lost" not in set(load_run(result.directory).messages.fate)
    rates = rates_of(result)
    assert len(rates) == 16
    assert min(map(len, rates.values())) > 3
    assert any(rate == 0 for found in rates.values() for _, rate in found)         # a handover takes 50 ms
