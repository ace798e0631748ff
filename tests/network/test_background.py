"""Background traffic against the numbers of its specification, against an integral computed apart, and its laws."""

from __future__ import annotations

import math
import tracemalloc
from fractions import Fraction
from itertools import pairwise
from statistics import fmean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emul.network import Fluid, LinkRule, TopologySpec, build
from emul.network.links.full_link import FullLink
from emul.network.models.background import OnOffRate, RampRate, SineRate, Traffic, WalkRate, mean_bps, rate_curve
from emul.network.models.laws import Exponential, Fixed, Normal, Pareto, Poisson, UniformLaw
from emul.network.models.profiles import NEVER, PiecewiseConstant
from emul.network.models.residual import LinkLoad, LoadEntry, Residual

M, S, MS = 10**6, 10**9, 10**6
MB = 10**6


def load(*rates, own=10 * M, at=0, lasts=None, seed=1):
    entries = [Traffic(f"entry {i}", rate, link="*", at_ns=at, for_ns=lasts) for i, rate in enumerate(rates)]
    return LinkLoad([LoadEntry(e.key, rate_curve(e, seed, "a", "b")) for e in entries], own)


def sent_fifo(background, own, size, now=0):
    """When the last byte of a message has left a first-in-first-out link."""
    link = FullLink(0, 1, 0, own, load=background)
    link.offer(now, "m", size, 0)
    return link.next_change()


def sent_shared(background, own, size, now=0):
    fluid = Fluid()
    number = fluid.add_link(profile=background.residual(own))
    fluid.start(now, "m", size, [number])
    while True:
        at = fluid.next_change()
        if fluid.advance(at):
            return at


SENT = {"fifo": sent_fifo, "shared": sent_shared}


@pytest.mark.parametrize("kind", SENT)
def test_a1_a_constant_background(kind):
    assert SENT[kind](load(4 * M), 10 * M, MB) == 1_333_333_334


@pytest.mark.parametrize("kind", SENT)
@pytest.mark.parametrize(("begin", "end"), [(0, 7.2), (0.5, 7.3)])
def test_a2_on_and_off_in_turn(kind, begin, end):
    rate = OnOffRate(8 * M, Fixed(S), Fixed(S))
    assert SENT[kind](load(rate), 10 * M, 5 * MB, round(begin * S)) == round(end * S)


@pytest.mark.parametrize("kind", SENT)
def test_a3_a_sine(kind):
    rate = SineRate(40 * M, 20 * M, 60 * S)
    found = SENT[kind](load(rate, own=100 * M), 100 * M, 100 * MB)
    assert found == pytest.approx(17.264072e9 - 0.26e6, abs=0.02e6)         # 144 steps a period
    fine = SENT[kind](load(SineRate(40 * M, 20 * M, 60 * S, 10 * MS), own=100 * M), 100 * M, 100 * MB)
    assert fine == pytest.approx(17.264072e9, abs=2e3)


@pytest.mark.parametrize("kind", SENT)
def test_a9_what_exceeds_the_rate_is_dropped_and_leaves_no_backlog(kind):
    entries = [Traffic("first", 12 * M, link="*", for_ns=S), Traffic("then", 4 * M, link="*", at_ns=S)]
    background = LinkLoad([LoadEntry(e.key, rate_curve(e, 1, "a", "b")) for e in entries], 10 * M)
    assert SENT[kind](background, 10 * M, MB) == 2_333_333_334
    first, then = background.carried(3 * S)
    assert (first.offered_bytes, first.carried_bytes, first.dropped_bytes) == (1_500_000, 1_250_000, 250_000)
    assert (then.offered_bytes, then.carried_bytes, then.dropped_bytes) == (MB, MB, 0)


def test_a11_stationary_exponential_stays():
    """0.5 MB beside 8 of 10 Mbit/s, on and off for exponential times of 1 s: .868729 s in the mean."""
    rate = OnOffRate(8 * M, Exponential(S), Exponential(S), stationary=True)
    times = [sent_fifo(load(rate, seed=seed), 10 * M, MB // 2) / 1e9 for seed in range(6000)]
    assert fmean(times) == pytest.approx(0.868729, abs=4 * stdev(times) / math.sqrt(len(times)))
    assert stdev(times) / math.sqrt(len(times)) < 0.01


def test_a_fault_that_sets_a_bandwidth_leaves_its_residual_and_one_that_pauses_carries_nothing():
    background = load(4 * M)
    link = FullLink(0, 1, 0, 10 * M, load=background)
    link.offer(0, "m", 2 * MB, 0)                    # 16 Mbit: 6 by 1 s, 1 at 5 - 4 by 2 s, none by 3 s, 9 at 6
    link.change(S, bandwidth_bps=5 * M)
    link.change(2 * S, down=True, inflight="pause")
    link.change(3 * S, down=False, bandwidth_bps=10 * M)
    assert link.next_change() == 4_500_000_000
    one, = background.carried(4 * S)
    assert (one.offered_bytes, one.carried_bytes, one.dropped_bytes) == (2 * MB, 3 * MB // 2, MB // 2)


@pytest.mark.parametrize("sharing", ["maxmin", "connections"])
def test_the_same_faults_on_a_link_that_shares(sharing):
    network = build(TopologySpec(generator="star", clients=2), [LinkRule("*", 0, 10 * M, sharing=sharing)], 1,
                    traffic=[Traffic("t", 4 * M, link="client1->server")])
    u, v = network.names.index("client1"), network.names.index("server")
    link, flows = network.link(u, v), network.flows
    flows.start(0, "m", 2 * MB, True, [link], 0)
    link.change(S, bandwidth_bps=5 * M)
    link.change(2 * S, down=True, inflight="pause")
    link.change(3 * S, bandwidth_bps=10 * M)
    link.change(3 * S, down=False)
    while flows.next_change() < 4 * S:
        flows.advance(flows.next_change())
    assert flows.next_change() == 4_500_000_000
    (*_, offered, carried, dropped), = network.traffic(4 * S)
    assert (offered, carried, dropped) == (2 * MB, 3 * MB // 2, MB // 2)


# ---- an integral computed apart ----

rates = st.integers(0, 20).map(lambda r: r * M)
pieces = st.lists(st.tuples(st.integers(1, 400), rates), min_size=1, max_size=6)


def stepped(found):
    times, at = [], 0
    for length, _ in found:
        times.append(at)
        at += length * MS
    return times, [rate for _, rate in found]


def value(times, values, t):
    return max((at, rate) for at, rate in zip(times, values, strict=True) if at <= t)[1]


class Steps:
    """A curve from lists."""

    def __init__(self, times, values):
        self.times, self.values = times, values

    def rate_at(self, t):
        return value(self.times, self.values, t)

    def next_change(self, t):
        return min((at for at in self.times if at > t), default=None)


def integral(own, loads, begin, end):
    """Bits left between two times in ns: every ns is of one piece, so the sum over all breakpoints is exact."""
    cuts = sorted({begin, end, *(t for times, _ in (own, *loads) for t in times if begin < t < end)})
    total = Fraction(0)
    for a, b in pairwise(cuts):
        left = value(*own, a) - sum(value(*one, a) for one in loads)
        total += Fraction(max(0, left) * (b - a), 10**9)
    return total


@given(pieces, st.lists(pieces, min_size=1, max_size=3), st.integers(0, 900), st.integers(1, 10**6))
def test_a_message_leaves_when_the_integral_of_the_residual_is_its_size(own, loads, begin, size):
    own, loads = stepped(own), [stepped(one) for one in loads]
    background = LinkLoad([LoadEntry(str(i), Steps(*one)) for i, one in enumerate(loads)], PiecewiseConstant(*own))
    left, begin = background.residual("profile"), begin * MS
    end = left.finish(begin, size)
    if end == NEVER:
        assert value(*own, 10**15) <= sum(value(*one, 10**15) for one in loads)
        assert integral(own, loads, begin, 10**13) < 8 * size
        return
    assert integral(own, loads, begin, end) >= 8 * size > integral(own, loads, begin, end - 1)
    assert left.sent_bytes(begin, end) * 8 == integral(own, loads, begin, end)


@given(pieces, st.lists(pieces, min_size=1, max_size=3), st.integers(1, 2000))
def test_carried_and_dropped_are_offered_and_no_more_than_the_link_carries(own, loads, end):
    own, loads, end = stepped(own), [stepped(one) for one in loads], end * MS
    background = LinkLoad([LoadEntry(str(i), Steps(*one)) for i, one in enumerate(loads)], PiecewiseConstant(*own))
    found = background.carried(end)
    assert all(one.carried_bytes + one.dropped_bytes == one.offered_bytes for one in found)
    offered = [-integral(([0], [0]), [([0], [0])], 0, end) + _sum(one, end) / 8 for one in loads]
    assert all(abs(one.offered_bytes - expected) < 1 for one, expected in zip(found, offered, strict=True))
    rest = background.residual("profile").sent_bytes(0, end)
    whole = _sum(own, end) / 8
    assert sum(one.carried_bytes for one in found) + rest <= whole + len(loads)
    assert abs(sum(one.dropped_bytes for one in found) - (sum(offered) - (whole - rest))) <= len(loads) + 1


def _sum(one, end):
    """The bits of a curve until `end`."""
    return integral(one, [([0], [0])], 0, end)


@given(pieces, pieces, st.lists(st.integers(0, 3000), min_size=1, max_size=8))
def test_answers_do_not_depend_on_what_was_asked_before(own, one, asked):
    own, one = PiecewiseConstant(*stepped(own)), Steps(*stepped(one))
    used = Residual(own, one)
    for t in asked:
        fresh = Residual(own, one)
        assert fresh.rate_at(t * MS) == used.rate_at(t * MS)
        assert Residual(own, one).next_change(t * MS) == used.next_change(t * MS)
        assert Residual(own, one).finish(t * MS, 12345) == used.finish(t * MS, 12345)


# ---- the laws ----

def test_a_ramp_has_the_exact_mean_of_each_step_and_stays():
    curve = rate_curve(Traffic("r", RampRate(0, 50 * M, 10 * S, 2 * S), link="*", at_ns=S), 1, "a", "b")
    assert [curve.rate_at(t * S) for t in (0, 1, 2, 3, 5, 7, 9, 10, 11, 10**6)] == [
        r * M for r in (0, 5, 5, 15, 25, 35, 45, 45, 50, 50)]
    ended = rate_curve(Traffic("r", RampRate(0, 50 * M, 10 * S), link="*", at_ns=S, for_ns=5 * S), 1, "a", "b")
    assert ended.rate_at(6 * S - 1) > 20 * M
    assert ended.rate_at(6 * S) == 0


@pytest.mark.parametrize(("law", "mean", "sigma"), [
    (UniformLaw(10 * M, 30 * M), 20 * M, 20 * M / math.sqrt(12)), (Normal(20 * M, 4 * M), 20 * M, 4 * M),
    (Exponential(20 * M), 20 * M, 20 * M), (Poisson(20 * M, M), 20 * M, math.sqrt(20) * M)])
def test_a_walk_draws_from_its_law(law, mean, sigma):
    walk = WalkRate(Fixed(S), law)
    curve = rate_curve(Traffic("w", walk, link="*"), 3, "a", "b")
    found = [curve.rate_at(t * S) for t in range(20_000)]
    assert fmean(found) == pytest.approx(mean, abs=4 * sigma / math.sqrt(len(found)))
    assert stdev(found) == pytest.approx(sigma, rel=0.05)
    assert mean_bps(walk) == pytest.approx(mean, rel=0.01)
    assert max(rate_curve(Traffic("w", WalkRate(Fixed(S), law, 21 * M), link="*"), 3, "a", "b").rate_at(t * S)
               for t in range(200)) == 21 * M


def test_pareto_stays_have_their_mean_and_a_stationary_start_the_long_run_share():
    rate = OnOffRate(8 * M, Pareto(2.5, S), Exponential(3 * S), stationary=True)
    on = [rate_curve(Traffic("o", rate, link="*"), seed, "a", "b").rate_at(t) > 0
          for seed in range(4000) for t in (0, 2 * S)]
    assert fmean(on) == pytest.approx(0.25, abs=0.03)
    assert mean_bps(rate) == 2 * M
    assert fmean(Pareto(2.5, S).quantile((i + 0.5) / 10**5) for i in range(10**5)) == pytest.approx(S, rel=0.01)


# ---- on a network ----

def star(*traffic, seed=1, **values):
    values = {"latency_ns": MS, "bandwidth_bps": 10 * M, **values}
    return build(TopologySpec(generator="star", clients=3), [LinkRule("*", **values)], seed, traffic=traffic)


def ends(network, *names):
    return tuple(network.names.index(name) for name in names)


def test_only_links_that_match_are_loaded_and_the_others_are_plain():
    network = star(Traffic("t", 4 * M, link="client2->server"))
    kinds = {name: type(network.link(*ends(network, name, "server"))).__name__
             for name in ("client1", "client2", "client3")}
    assert kinds == {"client1": "Link", "client2": "FullLink", "client3": "Link"}
    assert type(star(Traffic("t", 0, link="*")).link(0, 1)).__name__ == "Link"


def test_an_added_entry_changes_no_other_draw():
    walk = Traffic("w", WalkRate(Exponential(S), Exponential(M)), link="*")
    alone, beside = star(walk), star(Traffic("first", 3 * M, link="*"), walk)
    for network in (alone, beside):
        network.link(*ends(network, "client1", "server"))
    (*_, offered, _, _), = alone.traffic(50 * S)
    assert next(row for row in beside.traffic(50 * S) if row[2] == "w")[3] == offered


def test_one_loaded_link_of_a_large_star_leaves_the_others_as_they_were():
    """Only the link that an entry matches is made with features; all others are plain, as without traffic."""
    network = build(TopologySpec(generator="star", clients=2000), [LinkRule("*", MS, 10 * M)], 1,
                    traffic=[Traffic("t", 4 * M, link="client7->server")])
    server = network.names.index("server")
    kinds = [type(network.link(v, server)).__name__ for v in range(len(network.names)) if v != server]
    assert (kinds.count("FullLink"), kinds.count("Link")) == (1, 1999)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_one_loaded_link_of_a_star_of_100_000_takes_no_memory():
    """All links made: within 2 % of the memory of the same star without traffic."""
    def taken(*traffic):
        tracemalloc.start()
        network = build(TopologySpec(generator="star", clients=100_000), [LinkRule("*", MS, 10 * M)], 1,
                        traffic=traffic)
        server = network.names.index("server")
        for v in range(len(network.names)):
            if v != server:
                network.link(v, server)
        size, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return size

    assert taken(Traffic("t", 4 * M, link="client7->server")) / taken() == pytest.approx(1, abs=0.02)


def test_nobody_asks_for_the_changes_of_a_load_once_a_link_has_no_rate_any_more():
    class Blinking:
        asked = 0

        def rate_at(self, t_ns):
            return M * (t_ns // MS % 2)

        def next_change(self, t_ns):
            self.asked += 1
            return (t_ns // MS + 1) * MS

    load = Blinking()
    left = Residual(PiecewiseConstant([0, 10 * MS], [10 * M, 0]), load)
    assert left.finish(0, 10**9) == NEVER
    assert left.next_change(20 * MS) is None
    assert load.asked < 100
