"""Radio: tables and reaches, walks and their stationary start, crossings by roots, attachment with hysteresis."""

from __future__ import annotations

import math
import random
from itertools import islice, pairwise
from statistics import fmean, pstdev

import pytest

from emul.base.errors import ScenarioError
from emul.network.links.flows import FlowLink, Flows, Handovers
from emul.network.links.fluid import Fluid
from emul.network.links.media import MediumHub
from emul.network.models.laws import Exponential, Fixed
from emul.network.models.media import MediumSpec
from emul.network.models.profiles import NEVER, CurveProfile
from emul.network.models.radio import (
    RATES,
    Attach,
    LinkCurve,
    LogDistance,
    Move,
    PlaceRates,
    Radio,
    RadioModel,
    RadioPlace,
    RoamingRate,
    reach_m,
    roots,
    shadowing,
)
from emul.network.models.radiofiles import read_places, read_rates, read_walks
from emul.network.models.walks import Walk, Waypoints, along, mean_distance, standing, waypoints

S = 10**9
NS3 = LogDistance(3.0, 46.6777)
WIFI = RATES["wifi_ax_20"]


def model(places=(), moves=(), loss=NS3, rates=WIFI, power=16.0206, attach=None):
    return RadioModel(tuple(places), tuple(moves), loss, rates, power, attach)


# --- rates and losses -----------------------------------------------------------------------------------------------

def received_dbm(model: RadioModel, distance_m: float) -> float:
    """The power that comes over a distance; not more than at the reference distance."""
    loss = model.loss
    return model.power_dbm - loss.reference_db - 10 * loss.exponent * math.log10(
        max(distance_m, loss.at_m) / loss.at_m)


def test_b10_rates_and_reaches_of_80211ax():
    assert [rate / 1e6 for _, rate in WIFI][::11] == [8.6, 143.4]
    found = [reach_m(model(), dbm) for dbm in (-82, -70, -52)]
    assert found == pytest.approx([51.46, 20.48, 5.15], abs=.005)
    for (dbm, rate), (_, below) in zip(WIFI[1:], WIFI, strict=False):
        reach = reach_m(model(), dbm)
        assert received_dbm(model(), reach * 1.0001) < dbm <= received_dbm(model(), reach * .9999)
        assert rate_at(reach * .9999) == rate
        assert rate_at(reach * 1.0001) == below


def rate_at(distance, **keys):
    rates = PlaceRates(Walk(standing(0, distance)), RadioPlace("p", 0, 0), model(**keys), 0.0)
    return rates.values[rates.place(0)]


def test_no_rate_beyond_the_last_reach_and_the_best_one_near():
    assert [rate_at(d) for d in (0, 1, 51, 52)] == [143_400_000, 143_400_000, 8_600_000, 0]
    assert rate_at(0, power=-100) == 0


def test_rates_of_lte_ascend_with_the_power():
    table = RATES["lte_10"]
    assert len(table) == 15
    assert list(table) == sorted(table)
    assert [round(rate / 1e6, 2) for _, rate in table][::14] == [1.37, 49.99]
    # Shannon with the gap of BER 5e-5, noise of 9 MHz and a noise figure of 9 dB
    dbm, rate = table[6]
    snr = 10 ** ((dbm - (-174 + 10 * math.log10(9e6) + 9)) / 10)
    assert 9e6 * math.log2(1 + snr * 1.5 / -math.log(5 * 5e-5)) == pytest.approx(rate)


def test_shadowing_is_normal_and_of_the_pair():
    loss = LogDistance(3, 46.68, shadowing_db=4)
    found = [shadowing(loss, 1, f"node{i}", "ap") for i in range(4000)]
    assert (fmean(found), pstdev(found)) == pytest.approx((0, 4), abs=.2)
    assert shadowing(loss, 1, "node1", "ap") == found[1]
    assert len({shadowing(loss, seed, node, place) for seed in (1, 2) for node in "ab" for place in "ab"}) == 8
    near = PlaceRates(Walk(standing(0, 30)), RadioPlace("p", 0, 0), model(), 20.0)
    assert near.values[near.place(0)] == 0


def test_roots_of_quadratics():
    draw = random.Random(1)
    for _ in range(1000):
        first, second, c = draw.uniform(-9, 9), draw.uniform(-9, 9), draw.choice([-2.0, .01, 3.0])
        assert roots(c * first * second, -c * (first + second), c) == pytest.approx(sorted([first, second]), abs=1e-6)
    assert (roots(1, 0, 1), roots(3, 0, 0), roots(4, -2, 0), roots(0, 0, 2)) == ([], [], [2], [0])


# --- walks ----------------------------------------------------------------------------------------------------------

CAFE = Waypoints((200.0, 100.0), (.5, 2.0), Exponential(30 * S))


def test_a_walk_is_whole_within_its_area_and_a_function_of_seed_and_name():
    walk = list(islice(waypoints(CAFE, 1, "a"), 400))
    assert walk == list(islice(waypoints(CAFE, 1, "a"), 400))
    assert walk != list(islice(waypoints(CAFE, 1, "b"), 400))
    assert walk != list(islice(waypoints(CAFE, 2, "a"), 400))
    assert walk[0].begin_ns == 0
    for one, following in pairwise(walk):
        assert one.end_ns == following.begin_ns > one.begin_ns
        assert one.at(one.end_ns) == pytest.approx((following.x, following.y), abs=1e-6)
        assert 0 <= one.x <= 200
        assert 0 <= one.y <= 100
        speed = math.hypot(one.vx, one.vy)
        assert speed == 0 or .5 * (1 - 1e-6) <= speed <= 2 * (1 + 1e-6)
    again = Walk(waypoints(CAFE, 1, "a"))
    t = walk[50].begin_ns + 7
    assert again.position(t) == pytest.approx(walk[50].at(t))
    assert again.position(3) == pytest.approx(walk[0].at(3))


def test_the_state_at_the_start_is_that_in_the_long_run():
    # of 1,500 nodes: share that moves, mean speed, mean distance to the centre; at 0 and an hour later
    off = []
    for t in (0, 3600 * S):
        walks = [Walk(waypoints(CAFE, 3, f"n{i}")) for i in range(1500)]
        places = [walk.position(t) for walk in walks]
        speeds = []
        for walk in walks:
            number = 0
            while walk.stretch(number).end_ns <= t:
                number += 1
            speeds.append(math.hypot(walk.stretch(number).vx, walk.stretch(number).vy))
        moving = [speed for speed in speeds if speed]
        assert len(moving) / 1500 == pytest.approx(CAFE.moving, abs=.04)
        assert fmean(moving) == pytest.approx(1 / CAFE.mean_speed_time, rel=.04)        # of density 1/v: harmonic
        assert fmean(x for x, _ in places) == pytest.approx(100, abs=5)
        assert fmean(y for _, y in places) == pytest.approx(50, abs=2.5)
        off.append(fmean(abs(x - 100) for x, _ in places))
    assert off[0] == pytest.approx(off[1], rel=.06)
    assert max(off) < 45                # not uniform, which would be 50: who moves is more often in the middle


def test_the_mean_distance_in_a_rectangle():
    draw = random.Random(5)
    for a, b in ((1, 1), (200, 100), (3, 50)):
        found = fmean(math.dist((draw.uniform(0, a), draw.uniform(0, b)), (draw.uniform(0, a), draw.uniform(0, b)))
                      for _ in range(20_000))
        assert mean_distance(a, b) == pytest.approx(found, rel=.02)


def test_walks_without_a_pause_at_one_speed_and_along_points():
    walk = list(islice(waypoints(Waypoints((10.0, 10.0), (1.0, 1.0)), 1, "a"), 50))
    assert all(math.hypot(one.vx, one.vy) == pytest.approx(1, rel=1e-6) for one in walk)
    walk = Walk(along([(2 * S, 0.0, 0.0), (4 * S, 10.0, 0.0)]))
    assert [walk.position(t * S) for t in (0, 2, 3, 4, 900)] == [(0, 0), (0, 0), (5, 0), (10, 0), (10, 0)]
    assert walk.stretch(2).end_ns == NEVER
    assert walk.stretch(3) is None
    assert Waypoints((10.0, 10.0), (1.0, 1.0), Fixed(5 * S)).moving == pytest.approx(5.21405 / 10.21405)


# --- rates over time ------------------------------------------------------------------------------------------------

def test_rates_change_where_a_walk_crosses_a_reach():
    draw = random.Random(2)
    for number in range(30):
        walk = Walk(waypoints(CAFE, number, "a"))
        spot = RadioPlace("p", draw.uniform(0, 200), draw.uniform(0, 100))
        curve = CurveProfile(LinkCurve(PlaceRates(walk, spot, model(), 0.0)))
        t = 0
        for _ in range(40):
            following = curve.next_change(t)
            if following is None:
                break
            for at, rate in ((following - 100, curve.rate_at(t)), (following + 100, curve.rate_at(following))):
                distance = math.dist(walk.position(at), (spot.x, spot.y))
                power = received_dbm(model(), distance)
                expected = max((bps for dbm, bps in WIFI if power >= dbm), default=0)
                assert rate == expected
            t = following
        # at random times, too
        for _ in range(20):
            at = draw.randrange(2000 * S)
            power = received_dbm(model(), math.dist(walk.position(at), (spot.x, spot.y)))
            if all(abs(power - dbm) > 1e-6 for dbm, _ in WIFI):
                assert curve.rate_at(at) == max((bps for dbm, bps in WIFI if power >= dbm), default=0)


def test_answers_do_not_depend_on_what_was_asked_before():
    times = [random.Random(4).randrange(5000 * S) for _ in range(60)]
    fresh = [LinkCurve(PlaceRates(Walk(waypoints(CAFE, 1, "a")), RadioPlace("p", 50, 50), model(), 0.0)) for _ in times]
    one = LinkCurve(PlaceRates(Walk(waypoints(CAFE, 1, "a")), RadioPlace("p", 50, 50), model(), 0.0))
    one.rate_at(9000 * S)
    assert [one.rate_at(t) for t in times] == [curve.rate_at(t) for curve, t in zip(fresh, times, strict=True)]
    assert [one.next_change(t) for t in times] == [c.next_change(t) for c, t in zip(fresh, times, strict=True)]


# --- attachment -----------------------------------------------------------------------------------------------------

def two_points(interruption_ns=0, vertices=("n", "p0", "p1"), points=((0, 0.0, 0.0), (10 * S, 100.0, 0.0))):
    return Radio(model([RadioPlace("p0", 0, 0), RadioPlace("p1", 100, 0)], [Move("n", points={"": points})],
                       power=30, attach=Attach("n", "p*", 3.0, interruption_ns)), 1, vertices)


def test_b13_a_handover_between_two_points():
    radio = two_points()
    first, second = radio.curve("n", "p0").up, radio.curve("n", "p1").up
    at = radio.attached("n").next_change(0)
    assert at / 1e8 == pytest.approx(55.731163, abs=1e-6)          # 10 m/s: 1e8 ns a metre
    assert (first.up_at(at - 1), second.up_at(at - 1), first.up_at(at), second.up_at(at)) == (True, False, False, True)
    assert radio.attached("n").next_change(at) is None


def test_hysteresis_on_the_way_back_and_the_interruption():
    radio = two_points(50_000_000, points=((0, 0.0, 0.0), (10 * S, 100.0, 0.0), (20 * S, 0.0, 0.0)))
    attached = radio.attached("n")
    there = attached.next_change(0)
    back = attached.next_change(there)
    assert (there / 1e8, 200 - back / 1e8) == pytest.approx((55.731163, 44.268837), abs=1e-6)
    curve = radio.curve("n", "p1")
    assert [curve.up.up_at(there + t) for t in (0, 49_999_999, 50_000_000)] == [False, False, True]
    assert curve.up.next_change(there) == there + 50_000_000
    assert curve.up.next_change(there + 50_000_000) == back
    assert radio.curve("n", "p0").rate_at(there + 1) == 0


def test_a_node_is_attached_to_the_strongest_within_the_hysteresis():
    places = [RadioPlace(f"p{i}", 40.0 * i, 30.0 * (i % 2)) for i in range(5)]
    loss = LogDistance(3, 46.68, shadowing_db=6)
    radio = Radio(model(places, [Move("n*", Waypoints((200.0, 60.0), (1.0, 10.0)))], loss,
                        attach=Attach("n*", "p*", 4.0)), 9, ["n1", "n2"])
    for name in ("n1", "n2"):
        walk, attached = radio.walk(name), radio.attached(name)
        shadows = [shadowing(loss, 9, name, place.name) for place in places]

        def powers(t, walk=walk, shadows=shadows):
            x, y = walk.position(t)
            return [-30 * math.log10(math.dist((x, y), (p.x, p.y))) - s for p, s in zip(places, shadows, strict=True)]

        now, changes = attached.values[attached.place(0)], 0
        assert powers(0)[now] == max(powers(0))
        for t in range(0, 1000 * S, S // 2):            # the rule, step by step in time
            found = attached.values[attached.place(t)]
            best = max(powers(t))
            assert powers(t)[found] > best - 4 - 1e-6
            changes += found != now
            now = found
        assert changes > 5


def test_a_node_that_roams_is_in_the_medium_of_its_place():
    radio = two_points(vertices=["n", "still", "server"])
    assert radio.ends("n", "server") == radio.ends("server", "n") == ("n", "")
    assert radio.ends("still", "server") is None
    curve = radio.roaming("n", "server")
    fluid = Fluid()
    spec = MediumSpec("cell", "airtime", ((1, 1.0),))
    media = [fluid.add_medium(spec), fluid.add_medium(spec)]
    link = fluid.add_member(media[0], "n", profile=RoamingRate(CurveProfile(curve), curve),
                            roams=lambda t: media[curve.place_at(t)])
    others = [fluid.add_member(medium, i, 10_000_000) for i, medium in enumerate(media)]
    for one in (link, *others):
        fluid.start(0, one, 10**9, [one])
    assert [fluid.rate_bps(other) for other in others] == [5_000_000, 10_000_000]
    assert fluid.rate_bps(link) == 143_400_000 / 2
    handover = radio.attached("n").next_change(0)
    left = {}
    for t in (handover - 10, handover + 10):
        while (due := fluid.next_change()) is not None and due <= t:
            fluid.advance(due)
        left[t] = fluid.remaining_bytes(t, link)
        rates = [fluid.rate_bps(other) for other in others]
        assert rates == ([5_000_000, 10_000_000] if t < handover else [10_000_000, 5_000_000])
        assert isinstance(fluid._flows[link].group, MediumHub)
    assert 0 <= left[handover - 10] - left[handover + 10] < 1           # it goes on where it was


def test_b13_with_again_the_rest_of_a_flow_begins_anew_at_a_handover():
    """It pays 20 ms, of which the interruption of 50 ms leaves 30: so long it stands still."""
    radio = two_points(50_000_000, vertices=["n", "server"])
    curve = radio.roaming("n", "server")
    handover = radio.attached("n").next_change(0)

    def end_ns(latency_ns, size, gap):
        flows = Flows("maxmin")
        spec = MediumSpec("cell", "airtime", ((1, 1.0),))
        media = [flows.fluid.add_medium(spec), flows.fluid.add_medium(spec)]
        number = flows.fluid.add_member(media[0], "n", profile=RoamingRate(CurveProfile(curve), curve),
                                        roams=lambda t: media[curve.place_at(t)])
        link = FlowLink(flows, number, 0, 1, latency_ns, "profile",
                        handovers=Handovers(curve.next_place) if gap == "again" else None)
        flows.start(handover - S, "m", size, True, [link], 0)
        left = []
        while not left:
            due = flows.next_change()
            left = flows.advance(due)
        assert left[0][:2] == ("m", True)
        return due

    profile = CurveProfile(curve)
    size = 2 * int(profile.sent_bytes(handover - S, handover))
    for latency_ns, gap in ((0, "hold"), (20_000_000, "hold"), (0, "again"), (20_000_000, "again"),
                            (200_000_000, "again")):
        late = 0 if gap == "hold" else latency_ns           # the rest of it: what is not through at the handover
        expected = profile.finish(handover + late, size - profile.sent_bytes(handover - S, handover))
        assert end_ns(latency_ns, size, gap) == pytest.approx(expected, abs=2)
    assert profile.finish(handover + 20_000_000, 10**6) == profile.finish(handover, 10**6)


# --- files ----------------------------------------------------------------------------------------------------------

def test_files_of_places_walks_and_rates(tmp_path):
    def file(text):
        path = tmp_path / "f.csv"
        path.write_text(text)
        return path

    assert read_places(file("name,x_m,y_m\nap1,1,2.5\n")) == (RadioPlace("ap1", 1.0, 2.5),)
    assert read_walks(file("t_s,name,x_m,y_m\n0,a,0,0\n1.5,a,3,0\n0,b,1,1\n")) == {
        "a": [(0, 0, 0), (1_500_000_000, 3, 0)], "b": [(0, 1, 1)]}
    assert read_walks(file("t_ms,x_m,y_m\n5,0,0\n")) == {"": [(5_000_000, 0, 0)]}
    assert read_walks(file("timestep_time;vehicle_angle;vehicle_id;vehicle_x;vehicle_y\n0.00;90;v0;5,5;1\n")) == {
        "v0": [(0, 5.5, 1)]}
    assert read_rates(file("least_dbm,rate_mbps\n-80,1\n-70,2.5\n")) == ((-80, 10**6), (-70, 2_500_000))
    for read, text, lines in (
            (read_places, "name,x_m,y_m\nap1,1,x\nap1,1,2\n,1,1e12\n", [2, 3, 4, 4]),
            (read_places, "name,x\n", [1]),
            (read_walks, "t_s,x_m,y_m\n5,0,0\n5,1,1\n4,2,\n", [3, 4]),
            (read_rates, "least_dbm,rate_mbps\n-80,2\n-70,1\n-75,3\n-60,0\n", [3, 4, 5])):
        with pytest.raises(ScenarioError) as error:
            read(file(text))
        assert [problem.line for problem in error.value.problems] == lines


NS2 = """# made by BonnMotion
$node_(0) set X_ 0.0
$node_(0) set Y_ 10.0
$node_(0) set Z_ 0.0
$node_(7) set X_ 5.0
$node_(7) set Y_ 6.0
$ns_ at 2.0 "$node_(0) setdest 30.0 10.0 5.0"
$ns_ at 4.0 "$node_(0) setdest 10.0 20.0 10.0"
$ns_ at 9.0 "$node_(0) setdest 10.0 20.0 3.0"
$god_ set-dist 0 7 1
"""


def test_a_scenario_of_ns2_is_a_trace_and_walks_may_be_assigned_in_turn(tmp_path):
    (tmp_path / "mob.ns2").write_text(NS2)
    points = read_walks(tmp_path / "mob.ns2")
    assert points["7"] == [(0, 5, 6)]
    walk = Walk(along(points["0"]))
    at = {0: (0, 10), 2: (0, 10), 3: (5, 10), 4: (10, 10), 4.5: (10, 15), 5: (10, 20), 8: (10, 20), 20: (10, 20)}
    for t, place in at.items():                         # it turns at 4 s, after 10 of 30 m
        assert walk.position(round(t * 10**9)) == pytest.approx(place)
    moves = [Move("c*", points=points, in_turn=True), Move("c2", at=(1.0, 1.0))]
    radio = Radio(model([RadioPlace("p", 0, 0)], moves), 7, ["p", "server", "c1", "c2", "c3", "c4"])
    assert [radio.walk(name) and radio.walk(name).position(0) for name in ("c4", "c3", "c2", "c1", "server", "p")] == [
        (0, 10), (5, 6), (1, 1), (0, 10), None, None]
    (tmp_path / "bad.ns2").write_text(NS2.replace("at 4.0", "at x") + '$ns_ at 1.0 "$node_(0) setdest 1 2 3"\n')
    with pytest.raises(ScenarioError) as caught:
        read_walks(tmp_path / "bad.ns2")
    assert [one.line for one in caught.value.problems] == [8, 11]


def test_vertices_that_a_trace_has_no_rows_of_are_named():
    moves = [Move("c*", points={"c1": [(0, 0, 0)], "5": [(0, 1, 1)]})]
    radio = Radio(model([RadioPlace("p", 0, 0)], moves), 7, ["p", "c1", "c2", "c3"])
    assert radio.unmoved() == ('; or rows in the trace of radio.move[0], which has none of c2, c3: it moves "c1", "5"')


def test_patterns_of_radio_are_those_of_links_a_name_alone_where_it_is_one_and_groups():
    moves = [Move("c[1]", at=(1.0, 1.0)), Move("n[1]", at=(2.0, 2.0)), Move("@slow", at=(3.0, 3.0))]
    radio = Radio(model([RadioPlace("p", 0, 0)], moves), 7, ["p", "c1", "c[1]", "n1", "n2", "n3"],
                  {"n2": ["slow"], "n3": ["fast", None]})
    assert [radio.walk(name) and radio.walk(name).position(0) for name in ("c1", "c[1]", "n1", "n2", "n3")] == [
        None, (1, 1), (2, 2), (3, 3), None]
