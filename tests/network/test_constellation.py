"""Constellations as topologies with contacts: who is joined, which rows a plan has, and what is wrong with files."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from emul.base.errors import ScenarioError
from emul.network import Arq, LinkRule, Network, RoleRule, TopologyError, TopologySpec, build
from emul.network.contactplan import ContactsError
from emul.network.graph import constellation as sky
from emul.network.graph.constellation import ConstellationSpec, constellation, joined, plan
from emul.network.models import orbits
from emul.network.models.contacts import ContactSpec
from emul.network.models.tle import checksum, read_elements
from tests.network.test_orbits import slant_km

S, MS = 10**9, 10**6
ROOT = Path(__file__).resolve().parents[2]
STATIONS = "name,latitude,longitude\nMadrid,40.43,-4.25\nPerth,-31.05,116.19\n"
ROLES = {"server": RoleRule("nodes", nodes=("Madrid",)),
         "client": RoleRule("attribute", attribute="kind", value="satellite")}
FAST = [LinkRule("*", bandwidth_bps=10_000_000)]


@pytest.fixture
def stations(tmp_path: Path) -> Path:
    path = tmp_path / "stations.csv"
    path.write_text(STATIONS)
    return path


def walker(stations: Path, **other: object) -> ConstellationSpec:
    said = {"altitude_km": 550.0, "inclination": 53.0, "planes": 3, "each": 10, "phasing": 1, "span_ns": 21_600 * S,
        **other}
    return ConstellationSpec(stations, 25.0, **said)        # type: ignore[arg-type]


def network(spec: ConstellationSpec, rules: list[LinkRule] = FAST, step_ns: int | None = None) -> Network:
    return build(TopologySpec(constellation=spec, roles=ROLES), rules, 1,
                 contacts=ContactSpec(constellation=spec, step_ns=step_ns))


# --- who is joined --------------------------------------------------------------------------------------------------

def test_a_ring_joins_the_neighbours_in_a_plane_and_a_grid_the_next_planes_too(stations):
    spec = walker(stations)
    assert joined(spec) == []
    ring = joined(replace(spec, isl="ring"))
    assert len(ring) == 30
    assert all(a // 10 == b // 10 and (b - a) in (1, 9) for a, b in ring)
    grid = joined(replace(spec, isl="grid"))
    assert len(grid) == 60
    assert {(a, b) for a, b in grid if (a // 10, b // 10) == (0, 1)} == {(s, 10 + s) for s in range(10)}
    assert {(a, b) for a, b in grid if (a // 10, b // 10) == (0, 2)} == {((s + 1) % 10, 20 + s) for s in range(10)}


@pytest.mark.parametrize(("planes", "each", "edges"), [(1, 1, 0), (1, 2, 1), (1, 3, 3), (2, 1, 1), (2, 2, 4), (3, 1,
    3)])
def test_small_patterns_have_no_edge_twice(stations, planes, each, edges):
    assert len(joined(walker(stations, planes=planes, each=each, phasing=0, isl="grid"))) == edges


def test_like_is_near_like_between_the_last_plane_and_the_first(stations):
    """By distance: the shift by the phasing leads to the satellite that stands as the one in the next plane does."""
    spec = walker(stations, planes=6, each=11, phasing=2, isl="grid")
    motion = orbits.walker(550.0, math.radians(53), 6, 11, 2)
    turned = orbits.Circles(550.0, math.radians(53), motion.nodes - motion.nodes[11], motion.phases)
    places = turned.places(np.arange(66), np.zeros(66))
    angles: dict[tuple[int, int], set[float]] = {}
    for a, b in joined(spec):
        p, q = a // 11, b // 11
        if p != q:
            node = (motion.nodes[b] - motion.nodes[a]) % (2 * np.pi)
            phase = (motion.phases[b] - motion.phases[a]) % (2 * np.pi)
            if (p, q) == (0, 5):
                node, phase = -node % (2 * np.pi), -phase % (2 * np.pi)
            angles.setdefault((p, q), set()).add((round(node, 9), round(phase, 9)))     # type: ignore[arg-type]
    assert len(places) == 66
    assert len(angles) == 6
    assert len(set.union(*angles.values())) == 1


def test_vertices_have_names_kinds_planes_and_places(stations):
    spec = walker(stations, isl="ring", ground="mesh")
    made = network(spec)
    assert made.names[:2] == ["sat1-1", "sat1-2"]
    assert made.names[29:] == ["sat3-10", "Madrid", "Perth"]
    assert [len(made.roles[role]) for role in ("server", "client")] == [1, 30]
    by_plane = build(TopologySpec(constellation=spec, roles={**ROLES, "client": RoleRule(
        "attribute", attribute="plane", value="2")}), FAST, 1, contacts=ContactSpec(constellation=spec))
    assert [by_plane.names[v] for v in by_plane.roles["client"]] == [f"sat2-{s}" for s in range(1, 11)]
    graph, positions = sky.graph_of(spec)
    assert positions.points[0] == pytest.approx((0, 0))
    assert positions.points[30] == (40.43, -4.25)
    assert graph.nodes[31]["kind"] == "station"


def test_stations_of_a_mesh_are_linked_at_all_times_by_the_way_over_the_ground(stations):
    made = network(walker(stations, ground="mesh"))
    u, v = made.names.index("Madrid"), made.names.index("Perth")
    assert made.contacts(u, v) is None
    assert made.parameters(u, v).latency_ns == pytest.approx(5_000 * 14_500, rel=0.03)      # km on the globe
    with pytest.raises(Exception, match="no link"):
        network(walker(stations)).parameters(u, v)


def test_gateways_alone_have_links_to_stations(stations):
    made = network(walker(stations, isl="ring", gateways=("sat*-1",)))
    talking = {made.names[u] for u, v in made.planned.links if made.names[v] in ("Madrid", "Perth")}
    assert talking <= {"sat1-1", "sat2-1", "sat3-1"}
    assert talking
    assert len(made.roles["client"]) == 30 - 3              # gateways are of another kind
    assert made.route(made.names.index("sat1-2"), made.names.index("Madrid"))[1] == made.names.index("sat1-1")
    with pytest.raises(TopologyError) as error:
        network(walker(stations, gateways=("sat1-1", "star*", "moon")))
    assert [problem.found for problem in error.value.problems] == ["star*", "moon"]


# --- rows of the plan ---

def elevation_deg(spec: ConstellationSpec, satellite: int, station: int, t_ns: int) -> float:
    """Written apart: by the angle at the station."""
    made = constellation(spec)
    place, = made.motion.places(np.array([satellite]), np.array([t_ns / S]))
    lat, lon = (math.radians(x) for x in (made.stations[station].latitude, made.stations[station].longitude))
    here = orbits.RADIUS_KM * np.array([math.cos(lat) * math.cos(lon), math.cos(lat) * math.sin(lon), math.sin(lat)])
    away = place - here
    return math.degrees(math.asin(away @ here / np.linalg.norm(away) / orbits.RADIUS_KM))


def test_rows_of_a_station_are_a_step_long_and_begin_and_end_at_the_elevation(stations):
    spec = walker(stations)
    found = plan(spec, 10 * S)
    assert len(found) > 40
    for (source, destination), contacts in found.items():
        if destination not in ("Madrid", "Perth"):
            assert contacts is found[destination, source]           # both ways alike
            continue
        p, s = map(int, source.removeprefix("sat").split("-"))
        satellite, station = 10 * (p - 1) + s - 1, ("Madrid", "Perth").index(destination)
        for i in range(len(contacts)):
            begin, end = contacts.begins[i], contacts.ends[i]
            assert begin % MS == end % MS == 0
            assert 0 < end - begin <= 10 * S
            follows = i + 1 < len(contacts) and contacts.begins[i + 1] == end
            before = i > 0 and contacts.ends[i - 1] == begin
            assert end - begin == 10 * S or not follows
            for edge, inner in ((begin, not before and begin > 0), (end, not follows and end < spec.span_ns)):
                assert not inner or elevation_deg(spec, satellite, station, edge) == pytest.approx(25, abs=1e-3)
            height = elevation_deg(spec, satellite, station, (begin + end) // 2)
            assert height >= 25 - 1e-9
            km = slant_km(550.0, math.radians(height))
            assert contacts.latencies_ns[i] == pytest.approx(km / orbits.LIGHT_KM_S * S, abs=1000)
            assert contacts.latencies_ns[i] % 1000 == 0


def test_rows_between_satellites_go_on_while_the_latency_stays_within_a_tenth_of_a_millisecond(stations):
    spec = walker(stations, planes=24, each=12, phasing=5, isl="grid", span_ns=6_000 * S)
    found = plan(spec, 10 * S)
    made = constellation(spec)
    inner, across = found["sat1-1", "sat1-2"], found["sat1-1", "sat2-1"]
    assert (list(inner.begins), list(inner.ends)) == ([0], [6_000 * S])
        # neighbours in a plane keep their distance
    chord = 2 * (orbits.RADIUS_KM + 550) * math.sin(math.pi / 12)
    assert list(inner.latencies_ns) == [pytest.approx(chord / orbits.LIGHT_KM_S * S, abs=1000)]
    assert 20 < len(across) < 600
    for i in range(len(across)):
        times = np.linspace(across.begins[i], across.ends[i], 9)[1:-1] / S
        places = [made.motion.places(np.full(7, v), times) for v in (0, 12)]
        ns = np.linalg.norm(places[0] - places[1], axis=1) / orbits.LIGHT_KM_S * S
        assert np.abs(ns - across.latencies_ns[i]).max() < 150_000
    assert list(across.begins[1:]) == list(across.ends[:-1])


def test_planes_that_are_far_apart_see_each_other_near_the_poles_alone(stations):
    found = plan(walker(stations, planes=6, each=11, phasing=1, isl="grid", span_ns=5_739 * S), 60 * S)
    contacts = found["sat1-1", "sat2-1"]
    gaps = sum(contacts.begins[i + 1] > contacts.ends[i] for i in range(len(contacts) - 1))
    assert 1 <= gaps <= 2                                   # twice a revolution, in the north and in the south
    assert contacts.up_ns < 0.6 * 5_739 * S


def test_a_coarser_step_keeps_the_spans(stations):
    fine, coarse = plan(walker(stations), 10 * S), plan(walker(stations), 60 * S)
    assert fine.keys() == coarse.keys()
    assert all(fine[ends].up_ns == coarse[ends].up_ns for ends in fine)
    assert sum(map(len, coarse.values())) < sum(map(len, fine.values()))


def test_rates_are_those_of_the_rules(stations):
    made = network(walker(stations, isl="ring"), [LinkRule("*", bandwidth_bps=10_000_000),
                                                  LinkRule("sat*<->sat*", bandwidth_bps=100_000_000),
                                                  LinkRule("Madrid->*", bandwidth_bps=1_000_000)])
    for (u, v), contacts in made.planned.links.items():
        names = made.names[u], made.names[v]
        expected = 1_000_000 if names[0] == "Madrid" else 100_000_000 if names[1].startswith("sat") and names[
            0].startswith("sat") else 10_000_000
        assert set(contacts.rates_bps) == {expected}
        assert made.bandwidth(u, v) == contacts.mean_bps == expected


def test_links_without_a_rate_or_of_a_kind_that_knows_no_contacts_are_refused(stations):
    with pytest.raises(ContactsError) as error:
        network(walker(stations), [])
    assert "expected a constant bandwidth, by topology.capacity or a rule of links" in str(error.value)
    with pytest.raises(ContactsError, match="has a transport"):
        network(walker(stations), [LinkRule("*", bandwidth_bps=10_000_000, transport=Arq())])


# --- files ------------------------------------------------------------------------------------------------------------

def problems(spec: ConstellationSpec) -> list[tuple[str, str, str]]:
    with pytest.raises(TopologyError) as error:
        constellation(spec)
    return [(one.place.removeprefix("topology.constellation."), one.found, one.expected) for one in
        error.value.problems]


def test_every_line_of_stations_that_is_wrong_is_told_at_once(tmp_path):
    path = tmp_path / "stations.csv"
    path.write_text("name,latitude,longitude\nA,91,0\nB,x,200\n,0,0\nC,1,1\nC,2,2\nsat1->2,0,0\n")
    assert problems(walker(path)) == [
        ("stations", 'stations.csv, line 2, latitude, "91"', "expected degrees, -90..90"),
        ("stations", 'stations.csv, line 3, latitude, "x"', "expected a number"),
        ("stations", 'stations.csv, line 3, longitude, "200"', "expected degrees, -180..180"),
        ("stations", 'stations.csv, line 4, name, ""', 'expected a name without "->", which rules use'),
        ("stations", 'stations.csv, line 6, name, "C"', "there already"),
        ("stations", 'stations.csv, line 7, name, "sat1->2"', 'expected a name without "->", which rules use')]
    path.write_text("name,latitude,longitude\nsat1-1,0,0\n")
    assert problems(walker(path)) == [("stations", 'stations.csv, "sat1-1"', "is the name of a satellite")]
    (_, found, _), = problems(walker(tmp_path / "none.csv"))
    assert found == "none.csv, No such file or directory"


def test_a_sky_without_contacts_is_refused(tmp_path, stations):
    polar = tmp_path / "polar.csv"
    polar.write_text("name,latitude,longitude\nPole,90,0\n")
    (key, found, expected), = problems(walker(polar))
    assert (key, found) == ("stations", "polar.csv")
    assert expected == "no satellite ever stands 25 deg above the horizon of a station"
    assert problems(walker(stations, planes=2, each=3, isl="ring")) == [
        ("isl", "ring", "the Earth is between all satellites that it joins")]


def test_files_that_have_changed_are_told(stations):
    spec = replace(walker(stations), sha256=sky.digest(walker(stations)))
    assert constellation(spec) is constellation(walker(stations)) or constellation(spec).stations
    stations.write_text(STATIONS + "Hawaii,19.01,-155.66\n")
    (key, _, expected), = problems(spec)
    assert key == "sha256"
    assert "are not those that this scenario was resolved with" in expected


# --- two-line elements ------------------------------------------------------------------------------------------------

def line(text: str) -> str:
    text = text.ljust(68)
    return text + str(checksum(text))


def elements(number: int, node: float, anomaly: float, epoch: str = "26001.50000000") -> str:
    """Of a circle of 15.05 revolutions a day at 53 deg."""
    first = line(f"1 {number:05d}U 26001A   {epoch}  .00000000  00000-0  00000-0 0  999")
    second = line(f"2 {number:05d}  53.0000 {node:8.4f} 0000001   0.0000 {anomaly:8.4f} 15.05500000    1")
    return f"{first}\n{second}\n"


def test_elements_are_read_with_names_and_without(tmp_path):
    path = tmp_path / "two.tle"
    path.write_text("FIRST ONE\n" + elements(11, 0, 0) + "\n" + elements(12, 90, 10) + "0 THIRD\n" + elements(13, 1, 1))
    assert [(one.name, one.line) for one in read_elements(path)] == [("FIRST ONE", 2), ("sat00012", 5), ("THIRD", 8)]
    whole = read_elements(path)
    bare = ("\n\n".join(one[:68] if one[:2] in ("1 ", "2 ") else one for one in path.read_text().splitlines()))
    path.write_text(bare)                                       # blank lines, and no checksums
    assert [(one.name, one.first, one.second) for one in read_elements(path)] == [
        (one.name, one.first, one.second) for one in whole]
    path.write_text("DEB\n" + elements(11, 0, 0) + "DEB\n" + elements(12, 90, 10))
    assert [one.name for one in read_elements(path)] == ["DEB 00011", "DEB 00012"]


OMM = {"OBJECT_NAME": "DEB", "EPOCH": "2026-03-01T18:00:00.864", "MEAN_MOTION": 15.055, "ECCENTRICITY": 0.0012345,
       "INCLINATION": 53.0, "RA_OF_ASC_NODE": 90.25, "ARG_OF_PERICENTER": 0, "MEAN_ANOMALY": 359.5,
       "NORAD_CAT_ID": 270001, "BSTAR": -1.2345e-5}


@pytest.mark.parametrize("form", ["csv", "json"])
def test_mean_elements_messages_become_two_lines(tmp_path, form):
    path = tmp_path / f"omm.{form}"
    path.write_text(json.dumps([OMM]) if form == "json" else
                    ",".join(OMM) + "\n" + ",".join(map(str, OMM.values())) + "\n")
    one, = read_elements(path)
    assert one.first == line("1 T0001U          26060.75001000  .00000000  00000+0 -12345-4 0    0")
    assert one.second == line("2 T0001  53.0000  90.2500 0012345   0.0000 359.5000 15.05500000    0")
    path.write_text(path.read_text().replace("15.055", "99"))
    with pytest.raises(ScenarioError, match=r"MEAN_MOTION +99 +expected a number from 1e-08 to 20"):
        read_elements(path)


def test_every_line_of_elements_that_is_wrong_is_told_at_once(tmp_path, stations):
    path = tmp_path / "bad.tle"
    good, other = elements(11, 0, 0).splitlines(), elements(12, 0, 0).splitlines()
    path.write_text("\n".join(["A", good[0][:-1] + str((int(good[0][-1]) + 1) % 10), good[1], "B", good[0], other[1],
                               "C", good[0], good[1][:60], "A", *good]) + "\n")
    found = problems(replace(walker(stations), tle=path))
    assert [where.split(", ")[1] for _, where, _ in found] == ["line 2", "line 6", "line 9", "line 11"]
    assert "expected another name than in line 2" in found[-1][2]
    path.write_text("")
    assert problems(replace(walker(stations), tle=path))[0][2] == "expected two lines for each satellite"
    first, second = good
    first, second = line(first[:68].replace("26001.5", "26OO1.5")), line(second[:68].replace(" 53.0", " x3.0"))
    path.write_text(f"{first}\n{second}\n")
    assert [(where.split(", ", 1)[1], said) for _, where, said in problems(replace(walker(stations), tle=path))] == [
        ("line 1, epoch, 26OO1.50000000", "expected a number in columns 19 to 32"),
        ("line 2, inclination,  x3.0000", "expected a number in columns 9 to 16")]


def test_satellites_by_elements_have_contacts(tmp_path, stations):
    pytest.importorskip("sgp4", reason="needs sgp4: pip install 'emul[orbits]'")
    path = tmp_path / "shell.tle"
    path.write_text("".join(f"S{i}\n{elements(100 + i, 60.0 * i, 45.0 * i)}" for i in range(6)))
    spec = ConstellationSpec(stations, 25.0, tle=path, span_ns=86_400 * S)
    made = network(spec)
    assert made.names[:6] == [f"S{i}" for i in range(6)]
    lengths = [contacts.up_ns for contacts in made.planned.links.values()]
    assert len(lengths) > 12
    assert all(contacts.least_ns > 1_700_000 for contacts in made.planned.links.values())
    walk = ConstellationSpec(stations, 25.0, 550.0, 53.0, 6, 1, 0, span_ns=86_400 * S)
    again = [contacts.up_ns for contacts in network(walk).planned.links.values()]
    assert sum(lengths) == pytest.approx(sum(again), rel=0.25)          # an orbit alike sees stations about as long


# --- large ---

@pytest.mark.slow
def test_1584_satellites_over_ten_stations_for_a_day():
    """The stations of the specification are not published: those of the scenario see about as many."""
    spec = ConstellationSpec(ROOT / "scenarios" / "moving" / "stations.csv", 25.0, 550.0, 53.0, 72, 22, 17)
    made = constellation(spec)
    lengths = made.spans.end_s - made.spans.begin_s
    stations = len(made.stations)
    assert stations == 10
    assert len(lengths) / stations == pytest.approx(4_261.8, rel=0.15)
    assert lengths.mean() == pytest.approx(227, rel=0.05)
    assert lengths.sum() / 86_400 / stations == pytest.approx(11.2, rel=0.2)
