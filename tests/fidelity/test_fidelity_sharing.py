"""Fidelity of shared bandwidth: closed forms, processor sharing, the networks whose shares everybody knows."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from laws import BYTE_A_NS, FOREVER, MS, S, batch_z, fluid_ends, poisson_ns, sizes_of

from emul.network import Fluid
from emul.network.models.profiles import opportunities


def fluid_of(*bandwidths):
    fluid = Fluid()
    for bandwidth in bandwidths:
        fluid.add_link(bandwidth)
    return fluid


# --- F9 -------------------------------------------------------------------------------------------------------------

@pytest.mark.slow
@pytest.mark.parametrize("law", ["constant", "exponential", "lognormal", "two point"])
def test_f09_processor_sharing_does_not_ask_for_the_law_of_sizes(law):
    """M/G/1-PS at rho = .7: E[T] = E[S] / (1 - rho) = 3.3333 for any law; E[T | x] = x / (1 - rho) for any size x."""
    n, rho = 40_000, 0.7
    arrivals, sizes = poisson_ns(n, MS / rho, "ps", law), sizes_of(law, n, MS, "ps")
    ends = fluid_ends(fluid_of(BYTE_A_NS), [(now, i, sizes[i], [0]) for i, now in enumerate(arrivals)])
    kept = range(n // 20, n)
    times = np.array([ends[i] - arrivals[i] for i in kept]) / MS
    own = np.array([sizes[i] for i in kept]) / MS
    assert abs(batch_z(times, 1 / (1 - rho))) < 4
    for low, high in ((0, 0.5), (0.5, 1.0), (1.0, 99.0)):
        chosen = (own > low) & (own <= high) if law != "two point" else (own == (0.5 if low == 0 else 5.5))
        if chosen.sum() > 1000:
            assert abs(batch_z(times[chosen] / own[chosen], 1 / (1 - rho))) < 4


# --- F10, F12, F13 --------------------------------------------------------------------------------------------------

@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=100), st.floats(1e3, 1e12))
def test_f10_simultaneous_flows_end_as_the_formula_says(sizes, bandwidth):
    """t_k = [sum of s_j up to k + (n - k) s_k] / C over sizes in ascending order."""
    ends = fluid_ends(fluid_of(bandwidth), [(0, i, size, [0]) for i, size in enumerate(sizes)])
    total, n = 0, len(sizes)
    for k, i in enumerate(sorted(range(n), key=lambda i: sizes[i]), 1):
        total += sizes[i]
        expected = Fraction(8 * S * (total + (n - k) * sizes[i])) / Fraction(bandwidth)
        assert ends[i] == pytest.approx(float(expected), rel=1e-12)


def test_f12_parking_lot():
    """Caps 20 and 30, flows over both, over the first, over the second: 10, 10, 20."""
    fluid = fluid_of(20, 30)
    for item, links in (("both", [0, 1]), ("first", [0]), ("second", [1])):
        fluid.start(0, item, 10**9, links)
    assert [fluid.rate_bps(item) for item in ("both", "first", "second")] == pytest.approx([10, 10, 20], rel=1e-12)


def test_f13_access_links_cap_and_the_rest_is_shared():
    """Sources of 2, 10, 30 into a link of 20: 2, 9, 9; by access links and by caps alike."""
    fluid = fluid_of(20, 2, 10, 30)
    capped = fluid_of(20)
    for source, bandwidth in ((1, 2), (2, 10), (3, 30)):
        fluid.start(0, source, 10**9, [source, 0])
        capped.start(0, source, 10**9, [0], cap_bps=bandwidth)
    assert [fluid.rate_bps(i) for i in (1, 2, 3)] == pytest.approx([2, 9, 9], rel=1e-12)
    assert [capped.rate_bps(i) for i in (1, 2, 3)] == pytest.approx([2, 9, 9], rel=1e-12)


# --- F24 ------------------------------------------------------------------------------------------------------------

@settings(max_examples=50)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=40).map(sorted).filter(lambda stamps: stamps[-1] > 0))
def test_f24_a_saturated_mahimahi_trace_delivers_1500_bytes_an_opportunity(stamps):
    """At every whole ms of two rounds of the trace and a half; it begins anew at its last stamp."""
    fluid = Fluid()
    link = fluid.add_link(profile=opportunities(stamps))
    size = 10**9
    fluid.start(0, "all", size, [link])
    for ms in range(1, 5 * stamps[-1] // 2 + 1):
        expected = sum(lap * stamps[-1] + stamp <= ms for lap in range(4) for stamp in stamps)
        assert size - fluid.remaining_bytes(ms * MS, "all") == pytest.approx(1500 * expected, abs=1e-3)


# --- F25, F26, F27 --------------------------------------------------------------------------------------------------

networks = st.lists(st.tuples(st.integers(0, 300 * MS), st.integers(0, 3 * 10**6),
                              st.lists(st.integers(0, 3), min_size=1, max_size=3)), min_size=1, max_size=20)
BANDWIDTHS = (10**7, 3 * 10**7, 5 * 10**6, None)


def arrivals_of(flows):
    now = np.cumsum([gap for gap, _, _ in flows]).tolist()
    return [(now[i], i, size, links) for i, (_, size, links) in enumerate(flows)]


@given(networks)
def test_f25_flows_end_once_or_are_in_flight_and_no_link_carries_more_than_it_can(flows):
    """And all bytes cross: a finite link is busy for the sum of its flows' bytes over its bandwidth at least."""
    fluid, ended, started = fluid_of(*BANDWIDTHS), [], {}
    for now, item, size, links in arrivals_of(flows):
        ended += fluid.advance(now)
        fluid.start(now, item, size, links)
        started[item] = size
        left = {i: fluid.remaining_bytes(now, i) for i in fluid.in_flight()}
        ended += fluid.advance(now)
        assert sorted([*ended, *left]) == sorted(started)
        assert all(0 <= rest <= started[i] * (1 + 1e-12) for i, rest in left.items())
        for link, bandwidth in enumerate(BANDWIDTHS):
            rates = [fluid.rate_bps(i) for i in fluid.flows_on(link)]
            assert bandwidth is None or sum(rates) <= bandwidth * (1 + 1e-12)
    ends = fluid_ends(fluid, [])
    assert sorted([*ended, *ends]) == sorted(started)
    for link, bandwidth in enumerate(BANDWIDTHS):
        users = [i for i, (_, _, links) in enumerate(flows) if link in links]
        if users and bandwidth is not None:
            begin = arrivals_of(flows)[users[0]][0]
            needed = 8 * S * sum(started[i] for i in users) / bandwidth
            last = max(ends.get(i, 0) for i in users)
            assert not last or begin + needed <= last * (1 + 1e-12) + 1 or set(users) & set(ended)


@given(networks, st.integers(2, 1000))
def test_f27_scaled_flows_give_the_scaled_log(flows, k):
    base = fluid_ends(fluid_of(*BANDWIDTHS), arrivals_of(flows))
    more = fluid_ends(fluid_of(*(b and b * k for b in BANDWIDTHS)),
                      [(now, i, size * k, links) for now, i, size, links in arrivals_of(flows)])
    assert more == pytest.approx(base, rel=1e-12)
    slow = fluid_ends(fluid_of(*BANDWIDTHS),
                      [(now * k, i, size * k, links) for now, i, size, links in arrivals_of(flows)])
    assert slow == pytest.approx({i: end * k for i, end in base.items()}, rel=1e-12)


@given(networks, st.permutations(range(4)))
def test_f27_neither_names_of_links_nor_an_idle_one_matter(flows, names):
    base = fluid_ends(fluid_of(*BANDWIDTHS), arrivals_of(flows))
    moved = fluid_of(*(BANDWIDTHS[names.index(i)] for i in range(4)), 10**6)
    renamed = [(now, i, size, [names[link] for link in links]) for now, i, size, links in arrivals_of(flows)]
    assert fluid_ends(moved, renamed) == pytest.approx(base, rel=1e-12)
    assert moved.flows_on(4) == []


def test_f26_flows_over_a_link_without_bandwidth_have_no_next_change():
    fluid = fluid_of(0, BYTE_A_NS)
    fluid.start(0, "stands", 10, [0, 1])
    fluid.start(0, "nothing to send", 0, [0])
    fluid.start(0, "goes", 10, [1])
    assert fluid_ends(fluid, []) == {"nothing to send": 0, "goes": 10}
    assert fluid.next_change() is None
    assert fluid.advance(FOREVER) == []
    assert fluid.in_flight() == ["stands"]
