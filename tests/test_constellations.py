"""Constellations in whole runs: scenarios that ship, digests, errors of `check`, `explain`, and what links between
satellites are good for."""

from __future__ import annotations

from dataclasses import replace
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
MOVING = ROOT / "scenarios" / "moving"
TEXT = """
emul: 1
name: sky
seed: 7
topology:
  constellation: {altitude: 550 km, inclination: 53 deg, planes: 2, each: 10, phasing: 1, isl: ring, gateways: "sat*-1",
                  stations: stations.csv, elevation: 25 deg, ground: mesh, for: 12 h}
  roles:
    server: [Weilheim]
    edge: {rule: attribute, attribute: kind, value: gateway}
    client: {rule: attribute, attribute: kind, value: satellite, access: {latency: 1 ms}}
contacts: {routes: earliest}
links:
  - {match: "*", bandwidth: 10 Mbit/s}
  - {match: "sat*<->*", bandwidth: 20 kbit/s}
  - {match: "client*<->*", bandwidth: 1 Gbit/s}
task: {data: {set: digits}, model: logistic, solver: {sgd: {lr: 0.1, steps: 1, batch: 8}}}
training: skip
compute: {mode: zero}
schemes: [{name: fedavg}, {name: hierarchical}]
stop: {rounds: 2}
"""


@pytest.fixture(scope="module")
def twin():
    with Twin() as twin:
        yield twin


def sky(*sets: str, text: str = TEXT) -> Scenario:
    return loads(text, "sky", sets, base=MOVING)


def told(*sets: str, text: str = TEXT) -> list[tuple[str, int | None, str, str]]:
    with pytest.raises(ScenarioError) as error:
        sky(*sets, text=text)
    return [(one.place, one.line, one.found, one.expected) for one in error.value.problems]


def test_one_digest_whatever_the_number_of_workers(twin, pools: list[Workers]):
    expected = digests(sky(), twin)
    assert digests(sky(), pools[1]) == expected
    assert digests(sky("topology.constellation.phasing=0"), twin) != expected


def test_a_run_is_replayed_and_its_resolved_scenario_is_the_same(tmp_path, twin):
    scenario = sky()
    result, *_ = engine.run(scenario, workers=twin, out=tmp_path)
    assert result.violations == ()
    assert engine.replay(result.directory, workers=twin) == result.summary["digest"]
    text = (Path(result.directory) / "scenario.resolved.yaml").read_text()
    assert "inclination: 53 deg" in text
    again = loads(text, "resolved", base=tmp_path)
    assert (again.topology, again.contacts) == (replace(scenario.topology, line=again.topology.line), scenario.contacts)


def test_a_resolved_scenario_holds_the_files_that_it_was_made_with(tmp_path):
    (tmp_path / "stations.csv").write_text((MOVING / "stations.csv").read_text())
    text = loads(TEXT, "sky", base=tmp_path).resolved()
    loads(text, "again")
    (tmp_path / "stations.csv").write_text("name,latitude,longitude\nWeilheim,47,11\n")
    with pytest.raises(ScenarioError, match="are not those that this scenario was resolved with"):
        loads(text, "again")


def test_all_that_is_wrong_is_told_at_once_with_its_line():
    text = TEXT.replace("stations: stations.csv, ", "").replace("isl: ring", "isl: star").replace(
        "elevation: 25 deg", "elevation: 95 deg").replace("inclination: 53 deg", "inclination: 53").replace(
        "planes: 2", "planes: 0")
    line = TEXT.splitlines().index("  constellation: {altitude: 550 km, inclination: 53 deg, planes: 2, each: 10, phasing: 1, "  # noqa: E501
                                   'isl: ring, gateways: "sat*-1",') + 1
    found = {place.removeprefix("topology.constellation."): (at, said, expected) for place, at, said, expected in
        told(text=text)}
    assert set(found) == {"stations", "isl", "elevation", "inclination", "planes"}
    assert all(at in (line, line - 1, line + 1) for at, _, _ in found.values())
    assert found["stations"][1:] == ("missing", "is required")
    assert found["isl"][2].startswith("unknown way to join satellites")
    assert found["elevation"][2] == "expected an angle from 0 deg to 89 deg, such as 25 deg"
    assert found["inclination"][2] == "expected an angle from 0 deg to 180 deg, such as 25 deg: the unit is missing"


@pytest.mark.parametrize(("said", "place", "expected"), [
    ("topology.constellation.phasing=2", "phasing", "expected less than the 2 planes"),
    ("topology.constellation.each=20000", "each", "expected at most 20000 satellites, not 40000"),
    ("topology.constellation.altitude=50 km", "altitude", "expected 100 km to 50000 km"),
    ("topology.constellation.planes=null", "planes", "is needed, or tle, a file of two-line elements"),
    ("topology.constellation.gateways=star*", "gateways", "matches no satellite"),
    ("topology.constellation.stations=none.csv", "stations", "expected a CSV file"),
    ("topology.constellation.tle=sky.tle", "altitude", "is not used with tle, which has the orbits")])
def test_what_cannot_be_is_said_where_it_stands(said, place, expected):
    found = {where.rpartition(".")[2]: why for where, _, _, why in told(said)}
    assert found[place] == expected


def test_contacts_of_a_constellation_are_no_file_and_those_of_a_file_have_no_step():
    (place, _, found, expected), = told("contacts={file: passes.csv}")
    assert place.endswith("contacts.file")
    assert (found, expected) == ('"passes.csv"', "is not used with a constellation, which makes the contacts")
    plain = "topology={generator: star, clients: 3}"
    (place, _, _, expected), = told(plain, "schemes=[fedavg]", "links=[]", "contacts={file: passes.csv, step: 10 s}")
    assert place.endswith("contacts.step")
    assert expected == "is of a constellation: a file has its latencies"
    assert [row[3] for row in told(plain, "schemes=[fedavg]", "links=[]", "contacts={gap: hold}")] == ["is required"]


def test_links_without_a_rate_are_told():
    found = told("links=[{match: 'sat*<->sat*', bandwidth: 20 kbit/s}]")
    assert found
    assert all(expected ==
        "expected a constant bandwidth, by topology.capacity or a rule of links: a contact has a rate"
               for _, _, _, expected in found)
    sky("links=[]", "topology.capacity=20 kbit/s")


def test_two_line_elements_without_the_package_are_told_how_to_install_it(tmp_path, monkeypatch):
    import sys

    from tests.network.test_constellation import elements

    monkeypatch.setitem(sys.modules, "sgp4", None)
    monkeypatch.setitem(sys.modules, "sgp4.api", None)
    (tmp_path / "sky.tle").write_text(elements(11, 0, 0))
    topology = (f"topology={{constellation: {{tle: '{tmp_path}/sky.tle', stations: stations.csv, elevation: 25 deg}}, "
                "roles: {server: [Weilheim], client: {rule: attribute, attribute: kind, value: satellite}}}")
    (place, _, _, expected), = told(topology, "schemes=[fedavg]")
    assert place.endswith("topology.constellation.tle")
    assert expected == "constellations from two-line elements need sgp4, which is not installed: pip install 'emul[orbits]'"  # noqa: E501


def test_a_run_that_outlasts_its_contacts_is_warned_of():
    assert sky().warnings == []
    warning, = sky("stop.virtual_time=13 h").warnings
    assert warning == "stop.virtual_time: contacts end after 12 h (topology.constellation.for): then nothing is carried"


def test_explain_tells_the_contacts_of_a_constellation():
    explained = explain(sky(), 100_000, "hierarchical")
    assert explained["vertices"] == 20 + 10 + 18
    assert explained["contacts"]["links"] > 40
    assert notes(explained)[0].startswith("contacts: ")
    row, = explained["schemes"]
    assert row["round"]["messages"] > 0


def test_fedavg_waits_for_passes_and_is_faster_with_links_between_satellites(tmp_path, twin):
    """A round without such links lasts until the last satellite has passed; with them a pass of each gateway is
    enough."""
    lasers = engine.run(sky("schemes=[fedavg]"), workers=twin, out=tmp_path / "lasers")
    clients = "{rule: attribute, attribute: kind, value: satellite, access: {latency: 1 ms}}"
    roles = f"{{server: [Weilheim], client: {clients}}}"
    alone = engine.run(sky("topology.constellation.isl=none", "topology.constellation.gateways=null",
                           f"topology.roles={roles}", "schemes=[fedavg]"), workers=twin, out=tmp_path / "alone")
    assert all(one.violations == () for one in (*lasers, *alone))
    assert max(one.summary["virtual_seconds"] for one in lasers) < alone[0].summary["virtual_seconds"]
    updates = load_run(alone[0].directory).messages.query("type == 'Update'")
    assert set(updates.fate) == {"delivered"}


def test_hierarchical_is_faster_with_links_between_satellites(tmp_path, twin):
    """A satellite of each plane averages its plane on board. Without links between them its models come by way of the
    stations."""
    roles = ("{server: [Weilheim], edge: [sat1-1, sat2-1], "
             "client: {rule: attribute, attribute: kind, value: satellite, access: {latency: 1 ms}}}")
    seconds = {}
    for isl in ("ring", "none"):
        result, = engine.run(sky(f"topology.constellation.isl={isl}", "topology.constellation.gateways=null",
                                 f"topology.roles={roles}", "schemes=[hierarchical]"), workers=twin, out=tmp_path / isl)
        assert result.violations == ()
        assert result.summary["rounds"] == 2
        seconds[isl] = result.summary["virtual_seconds"]
    assert seconds["ring"] < seconds["none"] / 2, seconds


def test_sixty_six_satellites_train_in_every_way(tmp_path, twin):
    results = engine.run(load(MOVING / "walker66.yaml", ["stop.rounds=1", "training=skip"]), workers=twin, out=tmp_path)
    assert [one.violations for one in results] == [()] * 5
    seconds = {one.summary["label"]: one.summary["virtual_seconds"] for one in results}
    assert seconds["deadline"] == pytest.approx(min(1800, seconds["waits"]), abs=1)
    assert all(took > 300 for took in seconds.values())         # a training takes 5 minutes


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_1584_satellites_have_rounds(tmp_path, twin):
    result, = engine.run(load(MOVING / "walker1584.yaml", ["stop.rounds=1"]), scheme="fedavg", workers=twin,
                         out=tmp_path)
    assert result.violations == ()
    assert result.summary["rounds"] >= 1
