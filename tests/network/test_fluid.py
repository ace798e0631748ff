"""Fluid sharing against an exact, slow calendar of fractions, and the laws of max-min fairness."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emul.base.errors import NetworkError
from emul.network.links.fluid import Completion, Fluid
from emul.network.links.hub import Hub
from emul.network.links.mesh import Mesh

MS = 10**6
S = 10**9
FOREVER = 10**18


class Exact:
    """The same model in rational numbers: every event advances every flow and fills anew, naively."""

    def __init__(self, bandwidths):
        self.links = [None if b is None else Fraction(b) for b in bandwidths]
        self.now = Fraction(0)
        self.flows = {}                         # item -> [work left, links, cap]
        self.done = []                          # (time, item)

    def rates(self):
        rates, level = {}, Fraction(0)
        limits = {i: (b, [f for f in self.flows if i in self.flows[f][1]])
                  for i, b in enumerate(self.links) if b is not None}
        limits |= {("cap", f): (cap, [f]) for f, (_, _, cap) in self.flows.items() if cap is not None}
        while True:
            levels = {}
            for i, (b, users) in limits.items():
                open_ = [f for f in users if f not in rates]
                if open_:
                    left = b - sum((rates[f] for f in users if f in rates), Fraction(0))
                    levels[i] = left / len(open_)
            if not levels:
                return rates | {f: inf for f in self.flows if f not in rates}
            level = min(levels.values())
            for i in levels:
                if levels[i] == level:
                    rates |= {f: level for f in limits[i][1] if f not in rates}

    def advance(self, now):
        while True:
            rates = self.rates()
            ends = {f: self.now + (0 if r == inf or not self.flows[f][0] else self.flows[f][0] / r)
                    for f, r in rates.items() if r or not self.flows[f][0]}
            end = min(ends.values(), default=None)
            if end is None or end > now:
                break
            self._pass(rates, end)
            for f in [f for f in ends if ends[f] == end]:
                del self.flows[f]
                self.done.append((end, f))
        self._pass(rates, Fraction(now))

    def _pass(self, rates, until):
        for f, r in rates.items():
            if r != inf:
                self.flows[f][0] -= r * (until - self.now)
        self.now = until

    def start(self, now, item, size, links, cap=None):
        self.advance(now)
        limit = None if cap is None else Fraction(cap)
        self.flows[item] = [Fraction(size) * 8 * S, set(links), limit]
        self.advance(now)


def run_out(fluid, now=FOREVER):
    """All completions up to `now`, taken one `next_change` at a time as a kernel does."""
    found = []
    while (due := fluid.next_change()) is not None and due <= now:
        for completion in fluid.completions(due):
            assert completion.due_ns <= due
            found.append(completion)
    return found


def fluid_of(*bandwidths):
    fluid = Fluid()
    assert [fluid.add_link(b) for b in bandwidths] == list(range(len(bandwidths)))
    return fluid


def assert_completed(found, exact, rtol=1e-9):
    assert sorted(c.item for c in found) == sorted(item for _, item in exact.done)
    times = dict((item, time) for time, item in exact.done)
    for c in found:
        assert abs(c.exact_ns - times[c.item]) <= rtol * times[c.item] + Fraction(1, 10**4)
        assert c.due_ns in (ceil(times[c.item]), ceil(times[c.item] - Fraction(1, 10**3)))


# --- by hand --------------------------------------------------------------------------------------------------------

def test_one_flow_takes_size_over_bandwidth_rounded_up():
    fluid = fluid_of(20_000_000)
    fluid.start(5, "m", 1_000_000, [0])
    assert fluid.next_change() == 5 + 400 * MS
    assert fluid.advance(4 + 400 * MS) == []
    assert fluid.advance(5 + 400 * MS) == ["m"]
    assert (fluid.next_change(), fluid.in_flight()) == (None, [])
    fluid.start(S, "m", 1, [0], cap_bps=3)
    assert fluid.completions(4 * S) == [Completion("m", S + 2_666_666_667, S + 8e9 / 3)]


def test_two_flows_share_and_the_second_gets_all_afterwards():
    fluid = fluid_of(8 * S)                                 # one byte a ns
    fluid.start(0, "a", 1000, [0])
    fluid.start(400, "b", 1000, [0])
    assert (fluid.rate_bps("a"), fluid.rate_bps("b")) == (4 * S, 4 * S)
    assert (fluid.remaining_bytes(1000, "a"), fluid.remaining_bytes(1000, "b")) == (300, 700)
    assert [(c.item, c.due_ns) for c in run_out(fluid)] == [("a", 1600), ("b", 2000)]


def test_what_ends_at_one_time_comes_in_the_order_of_its_start():
    fluid = fluid_of(8 * S, 8 * S)
    for item in "dbca":
        fluid.start(0, item, 100, [0])
    fluid.start(0, "other link", 400, [1])
    fluid.start(0, "nothing", 0, [0])
    assert fluid.advance(0) == ["nothing"]
    assert fluid.advance(400) == ["d", "b", "c", "a", "other link"]


def test_a_flow_of_nothing_or_over_nothing_finite_ends_at_once():
    fluid = fluid_of(None, 0)
    fluid.start(3, "over infinite links", 10**9, [0])
    fluid.start(3, "without links", 10**9, [])
    fluid.start(3, "no bytes over no bandwidth", 0, [1])
    assert fluid.next_change() == 3
    assert fluid.advance(3) == ["over infinite links", "without links", "no bytes over no bandwidth"]
    fluid.start(4, "capped", 10, [0], cap_bps=8 * S)
    assert fluid.next_change() == 14


def test_a_link_named_twice_counts_once():
    fluid = fluid_of(8 * S)
    fluid.start(0, "m", 10, [0, 0])
    assert fluid.next_change() == 10


def test_flows_stand_still_on_a_link_without_bandwidth_and_go_on_after():
    fluid = fluid_of(8 * S, 8 * S)
    fluid.start(0, "a", 100, [0])
    fluid.start(0, "b", 100, [0, 1])
    fluid.change(50, 1, 0)
    assert fluid.next_change() == 50 + 75                   # a has 75 bytes left and the link for itself
    assert fluid.advance(200) == ["a"]
    assert fluid.next_change() is None
    assert fluid.remaining_bytes(10**6, "b") == 75
    fluid.change(10**6, 1, 8 * S)
    assert fluid.next_change() == 10**6 + 75


def test_a_change_of_bandwidth_holds_from_its_time():
    fluid = fluid_of(8 * S)
    fluid.start(0, "m", 100, [0])
    fluid.change(40, 0, 4 * S)
    assert fluid.next_change() == 40 + 120
    fluid.change(60, 0, "infinite")
    assert fluid.next_change() == 60
    assert fluid.advance(60) == ["m"]


def test_links_that_become_finite_tie_flows_together_and_infinite_ones_untie_them():
    fluid = fluid_of(8 * S, 8 * S, None)
    fluid.start(0, "a", 100, [0, 2])
    fluid.start(0, "b", 100, [1, 2])
    assert fluid.next_change() == 100
    fluid.change(50, 2, 8 * S)
    assert [fluid.rate_bps(item) for item in "ab"] == [4 * S, 4 * S]
    fluid.change(70, 2, "infinite")
    assert [(c.item, c.due_ns) for c in run_out(fluid)] == [("a", 110), ("b", 110)]


def test_removed_flows_leave_their_share_to_the_others():
    fluid = fluid_of(8 * S, 8 * S)
    for item in "abc":
        fluid.start(0, item, 100, [0] if item != "c" else [0, 1])
    assert fluid.flows_on(0) == ["a", "b", "c"]
    assert fluid.remove(30, ["b"]) == ["b"]                 # 10 bytes of each have crossed
    assert [fluid.rate_bps(item) for item in "ac"] == [4 * S, 4 * S]
    assert fluid.remove(50, link=1) == ["c"]
    assert fluid.next_change() == 50 + 80
    assert fluid.remove(130, link=0) == []                  # it has ended by then
    assert fluid.advance(130) == ["a"]


def test_calls_beyond_the_next_change_keep_what_ended_for_advance():
    fluid = fluid_of(8 * S)
    fluid.start(0, "a", 100, [0])
    fluid.start(1000, "b", 100, [0])
    assert fluid.next_change() == 100
    assert fluid.in_flight() == ["b"]
    assert fluid.completions(1000) == [Completion("a", 100, 100.0)]
    assert fluid.advance(1100) == ["b"]


def test_what_the_capped_cannot_use_goes_to_the_others():
    fluid = fluid_of(90)
    for item, cap in (("one", None), ("two", None), ("capped", 10)):
        fluid.start(0, item, 100, [0], cap_bps=cap)
    assert [fluid.rate_bps(item) for item in ("one", "two", "capped")] == pytest.approx([40, 40, 10], rel=1e-12)


@pytest.mark.parametrize(("call", "text"), [
    (lambda f: f.add_link(-1), 'link 1: bandwidth -1: expected a number of bit/s, 0 or more, or "infinite"'),
    (lambda f: f.change(0, 0, inf), 'link 0: bandwidth inf: expected a number of bit/s, 0 or more, or "infinite"'),
    (lambda f: f.change(0, 3, 1), "there is no link 3: 1 were added"),
    (lambda f: f.change(0, 0, "profile"), "link 0 has no profile"),
    (lambda f: f.start(0, "b", 1, [-1]), "there is no link -1: 1 were added"),
    (lambda f: f.start(0, "a", 1, [0]), "'a' is in flight already"),
    (lambda f: f.start(0, "b", -1, [0]), "size -1: expected a number of bytes, 0 or more"),
    (lambda f: f.start(0, "b", 1, [0], cap_bps=inf), "cap inf: expected a number of bit/s, 0 or more"),
    (lambda f: f.remove(0, ["b"]), "'b' is not in flight"),
    (lambda f: f.remaining_bytes(0, "b"), "'b' is not in flight"),
])
def test_what_cannot_be_is_refused_and_changes_nothing(call, text):
    fluid = fluid_of(8 * S)
    fluid.start(0, "a", 100, [0])
    with pytest.raises(NetworkError) as caught:
        call(fluid)
    assert str(caught.value) == text
    assert (fluid.in_flight(), fluid.next_change()) == (["a"], 100)


# --- profiles -------------------------------------------------------------------------------------------------------

class Steps:
    """Rates from given times on, periodic where `period` is given."""

    def __init__(self, steps, period=None):
        self.steps, self.period = steps, period

    def rate_at(self, t):
        t = t % self.period if self.period else t
        return [rate for since, rate in self.steps if since <= t][-1]

    def next_change(self, t):
        base = t - t % self.period if self.period else 0
        later = [base + since for since, _ in self.steps if base + since > t]
        return later[0] if later else base + self.period if self.period else None


def test_a_profile_sets_the_rate_while_the_link_is_in_use():
    fluid = Fluid()
    link = fluid.add_link(profile=Steps([(0, 8 * S), (50, 0), (90, 4 * S)]))
    assert fluid.next_change() is None
    fluid.start(10, "m", 60, [link])
    assert fluid.next_change() == 50
    assert fluid.advance(50) == []
    assert fluid.next_change() == 90
    assert fluid.advance(90) == []
    assert fluid.next_change() == 130
    assert fluid.advance(130) == ["m"]
    fluid.start(200, "later", 10, [link])
    assert fluid.next_change() == 220


def test_a_link_that_was_idle_over_breakpoints_takes_the_rate_of_now():
    fluid = Fluid()
    link = fluid.add_link(profile=Steps([(0, 8 * S), (70, S)], period=100))
    fluid.start(0, "a", 20, [link])
    assert fluid.advance(20) == ["a"]
    fluid.start(1075, "b", 2, [link])                       # 16 ns at 1/8 byte a ns, were it not for the new period
    assert fluid.next_change() == 1091
    fluid.start(1085, "c", 1000, [link])
    assert [(c.item, c.due_ns) for c in run_out(fluid, 1105)] == [("b", 1097)]


def test_a_bandwidth_takes_the_place_of_the_profile_until_it_gives_the_word_back():
    fluid = Fluid()
    link = fluid.add_link(profile=Steps([(0, 8 * S), (50, 4 * S), (150, 8 * S)]))
    fluid.start(0, "m", 150, [link])
    fluid.change(20, link, 0)
    assert fluid.next_change() is None
    fluid.change(100, link, "profile")                      # 130 bytes left, 25 of them until 150
    assert fluid.next_change() == 150
    assert [(c.item, c.due_ns) for c in run_out(fluid)] == [("m", 255)]


# --- against the exact calendar -------------------------------------------------------------------------------------

bandwidths = st.lists(st.one_of(st.none(), st.integers(1, 10**4).map(lambda k: k * 10**5)), min_size=1, max_size=6)
gaps = st.one_of(st.just(0), st.integers(0, 300 * MS))
sizes = st.one_of(st.sampled_from([0, 1000, 10**6]), st.integers(1, 3 * 10**6))
caps = st.one_of(st.none(), st.none(), st.integers(1, 100).map(lambda k: k * 10**6))


@st.composite
def networks(draw, flows=14):
    links = draw(bandwidths)
    routes = st.lists(st.integers(0, len(links) - 1), min_size=0, max_size=4)
    star = st.just([0])
    return links, [(draw(gaps), draw(sizes), draw(st.one_of(routes, star)), draw(caps))
                   for _ in range(draw(st.integers(1, flows)))]


@settings(max_examples=80, deadline=None)
@given(networks())
def test_every_completion_is_that_of_the_exact_calendar(network):
    links, flows = network
    fluid, exact = fluid_of(*links), Exact(links)
    found, now = [], 0
    for item, (gap, size, route, cap) in enumerate(flows):
        now += gap
        found += run_out(fluid, now)
        fluid.start(now, item, size, route, cap_bps=cap)
        exact.start(now, item, size, route, cap)
    found += run_out(fluid)
    exact.advance(FOREVER)
    assert_completed(found, exact)


@st.composite
def stars(draw):
    """Clients behind access links of their own, one server link; some bandwidths and sizes are equal on purpose."""
    n = draw(st.integers(2, 25))
    access = draw(st.lists(st.sampled_from([10**6, 2 * 10**6, 5 * 10**6, 10**7]), min_size=n, max_size=n))
    return draw(st.sampled_from([10**6, 10**7, 3 * 10**7, 10**9])), [
        (draw(gaps), draw(sizes), a) for a in access]


@settings(max_examples=60, deadline=None)
@given(stars())
def test_a_star_is_a_hub_and_exact(star):
    server, clients = star
    links = [server, *(access for _, _, access in clients)]
    fluid, exact = fluid_of(*links), Exact(links)
    found, now = [], 0
    for client, (gap, size, _) in enumerate(clients, 1):
        now += gap
        found += run_out(fluid, now)
        fluid.start(now, client, size, [client, 0])
        exact.start(now, client, size, [client, 0])
        fluid.next_change()
        assert lone(fluid) or all(isinstance(flow.group, Hub) for flow in fluid._flows.values())
    found += run_out(fluid)
    exact.advance(FOREVER)
    assert_completed(found, exact)


def lone(fluid):
    return len(fluid.in_flight()) == 1


operations = st.lists(st.one_of(
    st.tuples(st.just("start"), sizes, st.lists(st.integers(0, 4), min_size=1, max_size=3), caps),
    st.tuples(st.just("start"), sizes, st.just([0]), caps),
    st.tuples(st.just("change"), st.one_of(st.just("infinite"), st.just(0), st.integers(1, 10**8)),
              st.integers(0, 4), st.none()),
    st.tuples(st.just("remove"), st.integers(0, 30), st.none(), st.none()),
    st.tuples(st.just("cut"), st.integers(0, 4), st.none(), st.none()),
    st.tuples(st.just("advance"), st.none(), st.none(), st.none()),
), min_size=1, max_size=30)


@settings(max_examples=80, deadline=None)
@given(st.lists(gaps, min_size=30, max_size=30), operations)
def test_whatever_happens_to_links_and_flows_rates_and_rests_are_exact(waits, todo):
    links = [10**7, 2 * 10**7, 5 * 10**6, 10**8, None]
    fluid, exact = fluid_of(*links), Exact(links)
    now, found, removed = 0, [], set()
    for step, (wait, (what, value, where, cap)) in enumerate(zip(waits, todo, strict=False)):
        now += wait
        found += fluid.completions(now)
        exact.advance(now)
        if what == "start":
            fluid.start(now, step, value, where, cap_bps=cap)
            exact.start(now, step, value, where, cap)
        elif what == "change":
            fluid.change(now, where, value)
            exact.links[where] = None if value == "infinite" else Fraction(value)
            exact.advance(now)
        elif what in ("remove", "cut"):
            gone = ([i for i in fluid.in_flight() if i == value] if what == "remove" else fluid.flows_on(value))
            assert fluid.remove(now, gone) == gone if what == "remove" else fluid.remove(now, link=value) == gone
            removed |= set(gone)
            for item in gone:
                exact.flows.pop(item, None)
        rates = exact.rates()
        found += fluid.completions(now)
        for item in fluid.in_flight():
            if item in rates:                               # else it ends in this very ns
                left = exact.flows[item][0] / (8 * S)
                assert fluid.rate_bps(item) == pytest.approx(float(rates[item]), rel=1e-9, abs=1e-6)
                assert fluid.remaining_bytes(now, item) == pytest.approx(float(left), rel=1e-9, abs=1e-3)
    found += run_out(fluid)
    exact.advance(FOREVER)
    assert {c.item for c in found} | removed == {item for _, item in exact.done} | removed
    times = {item: time for time, item in exact.done}
    assert all(abs(c.exact_ns - times[c.item]) <= 1e-9 * times[c.item] + 0.1 for c in found if c.item in times)


# --- laws -----------------------------------------------------------------------------------------------------------

def loaded(links, flows):
    """A fluid with all flows started at 0 and none ended: sizes are huge."""
    fluid = fluid_of(*links)
    for item, (_, _, route, cap) in enumerate(flows):
        fluid.start(0, item, 10**12, route, cap_bps=cap)
    fluid.advance(0)
    return fluid


@settings(max_examples=50, deadline=None)
@given(networks(flows=40))
def test_no_link_is_over_its_bandwidth_and_every_flow_has_a_bottleneck(network):
    """The bottleneck: a full link on which no flow has a higher rate. That is max-min optimality."""
    links, flows = network
    fluid = loaded(links, flows)
    load = {i: sum(fluid.rate_bps(item) for item in fluid.flows_on(i)) for i in range(len(links))}
    for i, bandwidth in enumerate(links):
        assert bandwidth is None or load[i] <= bandwidth * (1 + 1e-12)

    for item in fluid.in_flight():
        _, _, route, cap = flows[item]
        at_cap = cap is not None and fluid.rate_bps(item) >= cap * (1 - 1e-12)
        assert at_cap or any(load[i] >= links[i] * (1 - 1e-12)
                             and fluid.rate_bps(item) >= max(map(fluid.rate_bps, fluid.flows_on(i))) * (1 - 1e-9)
                             for i in route if links[i] is not None)


@settings(max_examples=60, deadline=None)
@given(networks(flows=40), st.sets(st.integers(0, 39)))
def test_what_arrivals_and_departures_leave_has_the_rates_of_a_fresh_start(network, gone):
    links, flows = network
    fluid = loaded(links, flows)
    fluid.remove(0, [item for item in fluid.in_flight() if item in gone])
    fresh = loaded(links, [flow for item, flow in enumerate(flows) if item not in gone])
    kept = {new: old for new, old in enumerate(item for item in range(len(flows)) if item not in gone)}
    for item in fresh.in_flight():
        assert fluid.rate_bps(kept[item]) == pytest.approx(fresh.rate_bps(item), rel=1e-12)


def replay(links, flows, k_time=1, k_size=1, order=None):
    """[(due, item)] where flows, in the order given where they start together, have their sizes and times scaled."""
    fluid = fluid_of(*(None if b is None else b * k_size / k_time for b in links))
    now, found, arrivals = 0, [], []
    for item, (gap, size, route, cap) in enumerate(flows):
        now += gap
        arrivals.append((now, item, size, route, cap))
    for now, item, size, route, cap in sorted(arrivals, key=lambda a: (a[0], (order or {}).get(a[1], a[1]))):
        found += run_out(fluid, now * k_time)
        fluid.start(now * k_time, item, size * k_size, route, cap_bps=None if cap is None else cap * k_size / k_time)
    return found + run_out(fluid)


@settings(max_examples=60, deadline=None)
@given(networks(), st.integers(2, 1000))
def test_scaling_sizes_and_bandwidths_changes_no_time(network, k):
    base, scaled = replay(*network), replay(*network, k_size=k)
    assert [(c.item, c.due_ns) for c in scaled] == [(c.item, c.due_ns) for c in base]


@settings(max_examples=60, deadline=None)
@given(networks(), st.integers(2, 1000))
def test_scaling_times_scales_every_completion(network, k):
    base = {c.item: c.exact_ns for c in replay(*network)}
    slow = {c.item: c.exact_ns for c in replay(*network, k_time=k)}
    assert slow == pytest.approx({item: time * k for item, time in base.items()}, rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(networks(), st.permutations(range(6)), st.permutations(range(14)))
def test_neither_the_numbers_of_links_nor_the_order_of_what_starts_together_matter(network, names, order):
    links, flows = network
    moved = [None] * 6
    for i, bandwidth in enumerate(links):
        moved[names[i]] = bandwidth
    renamed = [(gap, size, [names[i] for i in route], cap) for gap, size, route, cap in flows]
    base = {c.item: c.due_ns for c in replay(links, flows)}
    assert {c.item: c.due_ns for c in replay(moved, renamed, order=dict(enumerate(order)))} == base


@settings(max_examples=50, deadline=None)
@given(networks(flows=20), st.lists(st.integers(0, 400 * MS), min_size=1, max_size=20))
def test_bytes_are_conserved_at_every_look(network, looks):
    """What has crossed a link between two looks is the integral of the rates on it, and looking changes nothing."""
    links, flows = network
    links = [b for b in links if b is not None] or [10**7]
    fluid, blind = fluid_of(*links), fluid_of(*links)
    for item, (_, size, _, cap) in enumerate(flows):
        for each in (fluid, blind):
            each.start(0, item, size, [item % len(links)], cap_bps=cap)
    now = 0
    sizes_of = {item: flow[1] for item, flow in enumerate(flows)}
    left = dict(sizes_of)
    for gap in sorted(looks):
        before, now = now, now + gap
        ended = set(fluid.advance(now))
        after = {item: 0.0 if item in ended or item not in fluid.in_flight() else fluid.remaining_bytes(now, item)
                 for item in left}
        for i, bandwidth in enumerate(links):
            crossed = sum(left[item] - after[item] for item in left if item % len(links) == i)
            assert -1e-6 <= crossed <= bandwidth * (now - before + 1) / (8 * S) * (1 + 1e-9) + 1e-6
        left = after
    assert [(c.item, c.exact_ns) for c in run_out(fluid)] == [
        (c.item, c.exact_ns) for c in run_out(blind) if c.due_ns > now]


# --- size -----------------------------------------------------------------------------------------------------------

def test_a_thousand_uploads_through_one_server_need_no_mesh_and_end_as_processor_sharing_says():
    """F10 with n = 1000: t_k = (sum of the sizes up to k + (n - k) s_k) / C."""
    fluid = fluid_of(8 * S)
    sizes_of = [1000 + 7 * k for k in range(1000)]
    for k in reversed(range(1000)):
        fluid.start(0, k, sizes_of[k], [0])
    assert isinstance(next(iter(fluid._flows.values())).group, Hub)
    found = run_out(fluid)
    total = 0
    for k, completion in enumerate(found):
        total += sizes_of[k]
        assert completion.item == k
        assert completion.exact_ns == pytest.approx(total + (999 - k) * sizes_of[k], rel=1e-12)


def test_groups_form_fall_apart_and_become_hubs_again():
    fluid = fluid_of(8 * S, 8 * S, 8 * S)
    for item in range(10):
        fluid.start(0, item, 10**6, [item % 2])
    assert len({id(f.group) for f in fluid._flows.values()}) == 2
    fluid.start(0, "bridge", 10**6, [0, 1])
    assert {type(f.group) for f in fluid._flows.values()} == {Mesh}
    assert len({id(f.group) for f in fluid._flows.values()}) == 1
    fluid.remove(5, ["bridge"])
    fluid.remove(5, [0])
    fluid.start(6, "elsewhere", 10**6, [2])
    assert [type(f.group) for f in fluid._flows.values()] == [Hub] * 9 + [Mesh]
    assert len({id(f.group) for f in fluid._flows.values()}) == 3


def test_old_entries_of_the_calendar_are_thrown_away():
    fluid = fluid_of(8 * S)
    fluid.start(0, "long", 10**15, [0])
    for t in range(1, 2000):
        fluid.change(t, 0, 8 * S + t % 2)
    assert len(fluid._heap) < 100


def test_a_hub_that_is_never_idle_stays_exact():
    """Its sums and its virtual time are computed afresh from time to time."""
    fluid = fluid_of(8 * S)
    for item in ("always", "too"):
        fluid.start(0, item, 10**10, [0], cap_bps=S)
    hubs = set()
    for k in range(5000):
        fluid.start(k * 1000, k, 700, [0])
        assert fluid.advance(k * 1000 + 999) == [k]
        hubs.add(id(fluid._flows["too"].group))
    assert len(hubs) > 1
    assert fluid.remaining_bytes(5_000_000, "always") == pytest.approx(10**10 - 5_000_000 / 8, rel=1e-14)


@pytest.mark.parametrize("stand_ns", [10**12 + 1, 10**15 + 7, 10**18 + 9])
def test_flows_that_stood_still_for_years_end_to_the_ns(stand_ns):
    fluid = fluid_of(8 * S, 8 * S)
    for item in range(3):
        fluid.start(0, item, 1000 + 100 * item, [0])
    fluid.change(300, 0, 0)
    assert fluid.next_change() is None
    fluid.change(stand_ns, 0, 8 * S)
    assert [(c.item, c.due_ns - stand_ns) for c in run_out(fluid, 2 * stand_ns)] == [(0, 2700), (1, 2900), (2, 3000)]


def test_no_flow_starves_by_rounding_beside_giants():
    """Links of 10^15 bit/s whose flows are frozen one by one at levels of very different size."""
    fluid = fluid_of(1e15, *(10.0**k / 3 for k in range(1, 15)))
    for k in range(1, 15):
        fluid.start(0, k, 10**6, [0, k])
        fluid.start(0, -k, 10**6, [k])
    rates = [fluid.rate_bps(k) for k in range(1, 15)]
    assert rates == pytest.approx([10.0**k / 6 for k in range(1, 15)], rel=1e-12)
    fluid.start(0, "rest", 10**6, [0])
    assert fluid.rate_bps("rest") == pytest.approx(1e15 - sum(rates), rel=1e-9)


# --- quiet flows ------------------------------------------------------------------------------------------------------

def test_the_end_of_a_quiet_flow_is_no_event_while_it_is_alone():
    fluid = Fluid()
    link = fluid.add_link(8e6)                      # 1 byte takes 1 us
    fluid.start(0, "a", 1000, [link], quiet=True)
    assert fluid.next_change() is None
    assert fluid.advance(5 * MS) == []
    assert fluid.flows_on(link) == []
    assert fluid.end_of(5 * MS, "a") == MS
    assert fluid.next_change() is None


def test_the_end_of_a_quiet_flow_in_company_is_an_event():
    fluid = Fluid()
    link = fluid.add_link(8e6)
    fluid.start(0, "a", 1000, [link], quiet=True)
    fluid.start(MS // 2, "b", 1000, [link])
    assert fluid.next_change() == 3 * MS // 2
    assert fluid.advance(3 * MS // 2) == ["a"]
    assert fluid.next_change() == 2 * MS
    assert fluid.end_of(2 * MS, "a") is None


def test_who_asks_too_early_for_the_end_of_a_quiet_flow_gets_it_as_an_event():
    fluid = Fluid()
    link = fluid.add_link(8e6)
    fluid.start(0, "a", 1000, [link], quiet=True)
    fluid.change(MS // 2, link, 4e6)
    assert fluid.next_change() is None
    assert fluid.end_of(MS, "a") is None
    assert fluid.next_change() == 3 * MS // 2
    assert fluid.advance(3 * MS // 2) == ["a"]


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 60), st.sets(st.integers(0, 3), min_size=1),
                          st.booleans()), min_size=1, max_size=12))
def test_quiet_flows_end_when_they_would_otherwise(flows):
    """(ms of the start, kB, links, quiet)."""
    ends = []
    for some in (False, True):
        fluid, found = Fluid(), {}
        for bps in (8e6, 3e6, 20e6, 1e6):
            fluid.add_link(bps)
        for i, (at, kilobytes, links, quiet) in sorted(enumerate(flows), key=lambda each: each[1][0]):
            found |= {done.item: done.due_ns for done in fluid.completions(at * MS)}
            fluid.start(at * MS, i, kilobytes * 1000, sorted(links), quiet=quiet and some)
        found |= {done.item: done.due_ns for done in fluid.completions(FOREVER)}
        unseen = {i: fluid.end_of(FOREVER, i) for i in range(len(flows))}
        found |= {i: end for i, end in unseen.items() if end is not None}
        ends.append(found)
    assert ends[0] == ends[1]
