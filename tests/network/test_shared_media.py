"""Media: cells whose links share time. Cases by hand, the equilibrium of random networks, and a hub as a mesh."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emul.base.errors import NetworkError
from emul.network.links import levels
from emul.network.links.fluid import Fluid
from emul.network.links.media import MediumHub
from emul.network.links.mesh import Mesh
from emul.network.models.media import MediumSpec

S = 10**9
MBIT = 10**6
MB = 10**6


def medium(fair="throughput", *efficiency, per_packet_ns=0):
    return MediumSpec("cell", fair, tuple(efficiency) or ((1, 1.0),), per_packet_ns)


def cell(fair, *rates, efficiency=((1, 1.0),), fluid=None):
    """(fluid, its medium, a member link for each rate in Mbit/s, each a station of its own)."""
    fluid = fluid or Fluid()
    number = fluid.add_medium(medium(fair, *efficiency))
    return fluid, number, [fluid.add_member(number, i, rate * MBIT) for i, rate in enumerate(rates)]


def rates_of(fluid):
    return [fluid.rate_bps(item) / MBIT for item in fluid.in_flight()]


def times_of(fluid):
    """item -> s at which it ended."""
    found = {}
    while (due := fluid.next_change()) is not None:
        for one in fluid.completions(due):
            assert one.due_ns == pytest.approx(one.exact_ns, abs=1)
            found[one.item] = one.exact_ns / 1e9
    return found


def group_of(fluid, item):
    fluid.rate_bps(item)
    return fluid._flows[item].group


# --- by hand: the cases of the specification ------------------------------------------------------------------------

def test_b1_b2_equal_throughput_or_equal_time():
    for fair, expected in (("throughput", [4.4081633] * 3), ("airtime", [18, 8, 2])):
        fluid, _, links = cell(fair, 54, 24, 6)
        for link in links:
            fluid.start(0, link, MB, [link])
        assert rates_of(fluid) == pytest.approx(expected, rel=3e-7)
        assert isinstance(group_of(fluid, links[0]), MediumHub)


def test_b5_the_slow_station_makes_all_slow_or_itself_alone():
    for fair, expected in (("throughput", [1.8148148] * 3), ("airtime", [.4444444, .8148148, 1.8148148])):
        fluid, _, links = cell(fair, 54, 24, 6)
        for link in links:
            fluid.start(0, link, MB, [link])
        assert list(times_of(fluid).values()) == pytest.approx(expected, rel=3e-7)


def test_b6_a_wire_behind_the_cell():
    for fair, expected in (("throughput", [1.9285714] * 2), ("airtime", [1.6923077, 8.3076923])):
        fluid, _, links = cell(fair, 2, 54)
        wire = fluid.add_link(10 * MBIT)
        for link in links:
            fluid.start(0, link, MB, [link, wire])
        assert rates_of(fluid) == pytest.approx(expected, rel=3e-7)
        assert isinstance(group_of(fluid, links[0]), Mesh)


def test_b7_the_flows_of_a_station_share_its_time():
    fluid, _, (fast, slow) = cell("airtime", 54, 6)
    for item, link in (("a", fast), ("b", fast), ("c", slow)):
        fluid.start(0, item, MB, [link])
    assert rates_of(fluid) == pytest.approx([13.5, 13.5, 3])
    fluid.remove(S // 100, ["a"])
    assert rates_of(fluid) == pytest.approx([27, 3])
    fluid.start(S // 100, "d", MB, [slow])
    assert rates_of(fluid) == pytest.approx([27, 1.5, 1.5])


def test_b7_both_directions_of_a_link_are_one_station():
    fluid = Fluid()
    number = fluid.add_medium(medium("airtime"))
    up, down = (fluid.add_member(number, "near", 54 * MBIT) for _ in range(2))
    far = fluid.add_member(number, "far", 6 * MBIT)
    for link in (up, down, far):
        fluid.start(0, link, MB, [link])
    assert rates_of(fluid) == pytest.approx([13.5, 13.5, 3])


def test_b8_efficiency_falls_with_the_stations():
    fluid, _, links = cell("airtime", 54, 24, efficiency=((1, .7), (2, .6)))
    for link in links:
        fluid.start(0, link, MB, [link])
    assert list(times_of(fluid).values()) == pytest.approx([.4938272, .7583774], rel=3e-7)


def test_b18_one_slow_station_among_nine_fast_ones():
    for fair, fast in (("throughput", 2.6666667), ("airtime", 1.4814815)):
        fluid, _, links = cell(fair, *[54] * 9, 6)
        for link in links:
            fluid.start(0, link, MB, [link])
        assert list(times_of(fluid).values()) == pytest.approx([fast] * 9 + [2.6666667], rel=3e-7)


@pytest.mark.slow
def test_b15_messages_of_many_stations_are_a_queue_of_shared_time():
    # M/G/1 processor sharing: a message of S/r seconds takes S/r / (1 - rho) in the mean, whatever the sizes
    draw, fluid = random.Random(15), Fluid()
    number = fluid.add_medium(medium("airtime"))
    fast, rho = 54 * MBIT, .37037
    every = 8 * MB / fast / rho
    links = [fluid.add_member(number, i, fast) for i in range(200)]
    probe = fluid.add_member(number, "probe", 24 * MBIT)
    arrivals, t = [], 0.0
    while t < 4000 * every * 5:
        t += draw.expovariate(1 / every)
        arrivals.append((round(t * 1e9), "other"))
    arrivals += [(round(k * 5 * every * 1e9) + 7, "probe") for k in range(1, 4000)]
    begun, took = {}, []

    def take(now):
        while (due := fluid.next_change()) is not None and due <= now:
            took.extend((due - begun[item]) / 1e9 for item in fluid.advance(due) if item[0] == "probe")

    for k, (at, kind) in enumerate(sorted(arrivals)):
        take(at)
        begun[kind, k] = at
        if kind == "other" or not any(item[0] == "probe" for item in fluid.in_flight()):
            fluid.start(at, (kind, k), MB, [probe if kind == "probe" else links[k % 200]])
    assert sum(took) / len(took) == pytest.approx(.529412, rel=.03)


# --- what changes while flows go on ---------------------------------------------------------------------------------

def test_a_link_without_a_rate_stands_still_and_takes_no_time():
    for wire in (False, True):
        fluid, number, (a, b) = cell("airtime", 10, 20, efficiency=((1, .9), (2, .5)))
        behind = [fluid.add_link(1000 * MBIT)] if wire else []
        for link in (a, b):
            fluid.start(0, link, MB, [link, *behind])
        assert rates_of(fluid) == pytest.approx([2.5, 5])
        fluid.change(0, a, 0)
        assert rates_of(fluid) == pytest.approx([0, 18])
        assert fluid.used(0, number) == pytest.approx(.9)
        fluid.change(0, b, 0)
        assert (rates_of(fluid), fluid.next_change(), fluid.used(0, number)) == ([0, 0], None, 0)
        fluid.change(S, a, 10 * MBIT)
        assert rates_of(fluid) == pytest.approx([9, 0])
        fluid.change(S, b, 40 * MBIT)
        assert rates_of(fluid) == pytest.approx([2.5, 10])


class Steps:
    """A rate of so many Mbit/s from each time (ns) on."""

    def __init__(self, *steps):
        self.steps = steps

    def rate_at(self, t_ns):
        return [rate for at, rate in self.steps if at <= t_ns][-1] * MBIT

    def next_change(self, t_ns):
        return next((at for at, _ in self.steps if at > t_ns), None)


def test_a_rate_that_changes_by_a_profile():
    fluid = Fluid()
    number = fluid.add_medium(medium("throughput"))
    near = fluid.add_member(number, "near", 8 * MBIT)
    far = fluid.add_member(number, "far", profile=Steps((0, 8), (S, 2), (2 * S, 0), (3 * S, 8)))
    fluid.start(0, "near", 2 * MB, [near])
    fluid.start(0, "far", 2 * MB, [far])
    # 4 each for 1 s, then 1 / (1/8 + 1/2) = 1.6 each for 1 s, then near alone at 8, then 4 each again
    assert times_of(fluid) == pytest.approx({"near": 3 + (16 - 4 - 1.6 - 8) / 4, "far": 3 + .6 + (10.4 - 2.4) / 8})


def test_packets_cost_time_beside_their_bits():
    spec = medium("throughput", (1, 1.0), per_packet_ns=100_000)
    fluid = Fluid()
    number = fluid.add_medium(spec)
    link = fluid.add_member(number, 0, 54 * MBIT, packet_s=spec.seconds_a_bit(None))
    fluid.start(0, "m", MB, [link])
    bits = 12_000
    assert fluid.rate_bps("m") == pytest.approx(bits / (bits / 54e6 + 100e-6))


def test_efficiency_between_and_beyond_its_numbers():
    spec = medium("airtime", (1, .72), (8, .62))
    assert [spec.share(n) for n in (1, 8, 100)] == [.72, .62, .62]
    assert spec.share(0) == .72
    assert spec.share(2) == pytest.approx(.72 - .1 / 7)
    assert medium("airtime", (3, .5)).share(1) == .5


def test_a_flow_over_two_links_of_one_cell_takes_the_time_of_both():
    for fair in ("throughput", "airtime"):
        fluid, number, (a, b) = cell(fair, 10, 40, efficiency=((1, 1.0), (2, .5)))
        fluid.start(0, "m", MB, [a, b])
        assert fluid.rate_bps("m") == pytest.approx(.5 * 8 * MBIT)
        fluid.start(0, "n", MB, [b])
        assert fluid.used(0, number) == pytest.approx(.5)


def test_equal_rates_and_no_overhead_are_one_shared_wire_to_the_ns():
    for fair in ("throughput", "airtime"):
        draw = random.Random(3)
        fluid, _, links = cell(fair, *[7] * 300)
        wire = Fluid()
        number = wire.add_link(7 * MBIT)
        t, found = 0, ([], [])
        for k in range(300):
            t += draw.randrange(60_000_000)
            size = draw.randrange(1, 100_000)
            for done, one, link in zip(found, (fluid, wire), (links[k], number), strict=True):
                while (due := one.next_change()) is not None and due <= t:
                    done += [(c.item, c.due_ns) for c in one.completions(due)]
                one.start(t, k, size, [link])
        for done, one in zip(found, (fluid, wire), strict=True):
            while (due := one.next_change()) is not None:
                done += [(c.item, c.due_ns) for c in one.completions(due)]
        assert len(found[0]) == 300
        assert found[0] == found[1]


def test_what_no_medium_can_have():
    fluid, number, (link,) = cell("airtime", 5)
    wire = fluid.add_link(MBIT)
    for wrong in (lambda: fluid.change(0, link, "infinite"), lambda: fluid.change(0, number, 5),
                  lambda: fluid.add_member(wire, 0, 5), lambda: fluid.add_member(number, 0, None),
                  lambda: fluid.add_member(number, 0, -1)):
        with pytest.raises(NetworkError):
            wrong()


# --- the equilibrium of any network ---------------------------------------------------------------------------------

def random_net(draw, hubs=False):
    """(a function that makes the fluid and starts its flows in an order, links by flow, what each link is)."""
    cells = draw.randint(1, 4)
    fair = [draw.choice(["throughput", "airtime"]) for _ in range(cells)]
    eta = [((1, draw.uniform(.5, 1)), (6, draw.uniform(.3, .5))) for _ in range(cells)]
    wires = [draw.choice([1, 5, 10, 30, 100]) * draw.uniform(.5, 2) for _ in range(draw.randint(0, 5))]
    members = [(draw.randrange(cells), draw.randrange(5), draw.choice([1, 2, 6, 12, 24, 54]) * draw.uniform(.9, 1.1))
               for _ in range(draw.randint(2, 14))]
    flows = []
    for _ in range(draw.randint(2, 18)):
        own = draw.sample(range(len(members)), draw.choice([1, 1, 1, 2]))
        behind = draw.sample(range(len(wires)), draw.randint(0, min(2, len(wires))))
        flows.append((own, behind))
    return fair, eta, wires, members, flows


def started(net, order):
    fair, eta, wires, members, flows = net
    fluid = Fluid()
    media = [fluid.add_medium(medium(f, *e)) for f, e in zip(fair, eta, strict=True)]
    on = [fluid.add_member(media[c], (c, station), rate * MBIT) for c, station, rate in members]
    behind = [fluid.add_link(rate * MBIT) for rate in wires]
    for j in order:
        own, more = flows[j]
        fluid.start(0, j, 10**9, [*(on[m] for m in own), *(behind[w] for w in more)])
    return [fluid.rate_bps(j) / MBIT for j in range(len(flows))]


def assert_equilibrium(net, x, tolerance=1e-7):
    """Written apart from the solver: feasible, and each flow is limited by a link that is full and on which nobody has
    more than it, measured by what each is worth there."""
    fair, eta, wires, members, flows = net
    links = []                  # (capacity, {flow: (worth, cost)}) of each medium and wire
    for c, (kind, table) in enumerate(zip(fair, eta, strict=True)):
        use = {}
        for j, (own, _) in enumerate(flows):
            mine = [members[m] for m in own if members[m][0] == c]
            if mine:
                use[j] = {station: sum(1 / r for _, s, r in mine if s == station) for _, station, _ in mine}, mine
        at = {}
        for j, (by_station, _) in use.items():
            for station in by_station:
                at.setdefault(station, []).append(j)
        n = len(at)
        (n0, e0), (n1, e1) = table
        share = e0 if n <= n0 else e1 if n >= n1 else e0 + (e1 - e0) * (n - n0) / (n1 - n0)
        terms = {}
        for j, (_, mine) in use.items():
            worth = 1.0 if kind == "throughput" else min(r / len(at[s]) for _, s, r in mine)
            terms[j] = worth, sum(1 / r for _, _, r in mine)
        links.append((share, terms))
    for w, rate in enumerate(wires):
        links.append((rate, {j: (1.0, 1.0) for j, (_, behind) in enumerate(flows) if w in behind}))
    limited = set()
    for capacity, terms in links:
        used = sum(cost * x[j] for j, (_, cost) in terms.items())
        assert used <= capacity * (1 + tolerance)
        if used >= capacity * (1 - tolerance):
            top = max(x[j] / worth for j, (worth, _) in terms.items())
            limited |= {j for j, (worth, _) in terms.items() if x[j] / worth >= top * (1 - tolerance)}
    assert limited == set(range(len(flows)))


@pytest.mark.parametrize("seed", range(4))
def test_b16_random_networks_have_one_equilibrium(seed):
    draw = random.Random(seed)
    for _ in range(150):
        net = random_net(draw)
        order = list(range(len(net[4])))
        x = started(net, order)
        assert_equilibrium(net, x)
        draw.shuffle(order)
        assert started(net, order) == pytest.approx(x, rel=3e-7)


@pytest.mark.slow
def test_b16_ten_thousand_random_networks():
    draw = random.Random(16)
    for _ in range(10_000):
        net = random_net(draw)
        assert_equilibrium(net, started(net, range(len(net[4]))))


def test_a_network_without_a_solution_is_told(monkeypatch):
    for way in ("linear", "as_filled"):
        monkeypatch.setattr(levels._Problem, way, lambda *args: None)
    fluid, _, links = cell("airtime", 2, 54)
    wire = fluid.add_link(10 * MBIT)
    for link in links:
        fluid.start(0, link, MB, [link, wire])
    with pytest.raises(NetworkError, match="no solution after 50 rounds"):
        fluid.rate_bps(links[0])


# --- a hub is a mesh ------------------------------------------------------------------------------------------------

class Meshes(Fluid):
    """Every group a mesh."""

    def _regroup(self, ns, rest, flows):
        for flow in flows:
            for link in flow.active:
                link.stamp = -1
        seen = set()
        for flow in flows:
            if flow in seen:
                continue
            members = [flow]
            seen.add(flow)
            for member in members:
                for link in member.active:
                    fresh = [other for other in link.flows if other not in seen]
                    seen.update(fresh)
                    members += fresh
            self._touch(Mesh(ns, rest, members))


@pytest.mark.parametrize("fair", ["throughput", "airtime"])
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_a_hub_is_a_mesh(fair, seed):
    draw = random.Random(seed)
    both = Fluid(), Meshes()
    built = []
    members = [(draw.randrange(6), draw.choice([6, 24, 54])) for _ in range(9)]
    private = [draw.choice([1, 3, 20]) for _ in range(9)]
    eta = ((1, .8), (4, .6), (9, .5))
    for fluid in both:
        number = fluid.add_medium(medium(fair, *eta))
        built.append((number, [fluid.add_member(number, station, rate * MBIT) for station, rate in members],
                      [fluid.add_link(rate * MBIT) for rate in private]))
    t, ends = 0, ([], [])
    for k in range(40):
        t += draw.randrange(1, 80_000_000)
        i, what, size = draw.randrange(9), draw.random(), draw.randrange(1, 200_000)
        rate = draw.choice([0, 6, 24, 54])
        capped = draw.random() < .5
        for n, fluid in enumerate(both):
            number, on, own = built[n]
            while (due := fluid.next_change()) is not None and due <= t:
                ends[n].extend((c.item, c.exact_ns) for c in fluid.completions(due))
            if what < .7:
                fluid.start(t, k, size, [on[i], own[i]] if capped and not fluid.flows_on(own[i]) else [on[i]])
            elif what < .9:
                fluid.change(t, on[i], rate * MBIT)
            else:
                fluid.remove(t, fluid.in_flight()[:1])
            share = MediumSpec("", fair, eta).share(0)
            assert fluid.used(t, number) <= share * (1 + 1e-9)
        assert [both[0].rate_bps(item) for item in both[0].in_flight()] == pytest.approx(
            [both[1].rate_bps(item) for item in both[1].in_flight()], rel=1e-9)
    for n, fluid in enumerate(both):
        for link in built[n][1]:
            fluid.change(t, link, 6 * MBIT)
        while (due := fluid.next_change()) is not None:
            ends[n].extend((c.item, c.exact_ns) for c in fluid.completions(due))
    assert sorted(item for item, _ in ends[0]) == sorted(item for item, _ in ends[1])
    one, other = dict(ends[0]), dict(ends[1])
    assert [one[item] for item in sorted(one)] == pytest.approx([other[item] for item in sorted(one)], rel=1e-9)


def test_a_station_roams_under_a_rate_that_a_fault_has_set():
    class Steady:
        def rate_at(self, t_ns):
            return 24e6

        def next_change(self, t_ns):
            return 10 * S if t_ns < 10 * S else None

    fluid, spec = Fluid(), MediumSpec("cell", "throughput", ((1, 1.0),))
    here, there = fluid.add_medium(spec), fluid.add_medium(spec)
    walker = fluid.add_member(here, "walker", profile=Steady(), roams=lambda t: here if t < 10 * S else there)
    other = fluid.add_member(there, "other", 24e6)
    fluid.change(0, walker, 24e6)
    fluid.start(0, "w", 1e9, [walker])
    fluid.start(0, "o", 1e9, [other])
    fluid.settle(11 * S)
    assert (fluid.rate_bps("w"), fluid.rate_bps("o")) == (12e6, 12e6)
    fluid.start(11 * S, "later", 1e9, [walker])
    assert fluid.used(11 * S, there) == pytest.approx(1.0)


@pytest.mark.parametrize("seed", range(20))
def test_flows_over_two_cells_that_are_alike_have_the_rate_that_one_of_them_gives(seed: int) -> None:
    """No system of equations tells the levels of the two apart."""
    draw = random.Random(seed)
    fluid, spec = Fluid(), MediumSpec("cell", "throughput", ((1, draw.choice([1.0, 0.9, 0.7])),))
    here, there = fluid.add_medium(spec), fluid.add_medium(spec)
    rates: list[float] = []
    for i in range(draw.randint(2, 20)):
        rates.append(draw.choice([24e6, 12e6, 7e6, 3.3e6]))
        fluid.start(0, i, 1e6, [fluid.add_member(cell, (cell, i), rates[-1]) for cell in (here, there)])
        equal = spec.share(len(rates)) / sum(1 / rate for rate in rates)
        assert [fluid.rate_bps(k) for k in range(len(rates))] == pytest.approx([equal] * len(rates))
